//! The document says what the service does.

use super::stage::Stage;
use crate::http::router::Call;
use crate::openapi::{OPERATIONS, document};
use http::Method;
use std::collections::BTreeSet;
use std::path::Path;

const ID: &str = "0190b0a2-0000-4000-8000-000000000000";

/// With `MONO_UPDATE_DOCS=1` the file is written instead of compared.
#[test]
fn the_document_in_the_handbook_is_made_from_the_table() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/continuations.openapi.json");
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("MONO_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/continuations.openapi.json is not what the table says: run this test with MONO_UPDATE_DOCS=1"
    );
}

fn call(method: &str, path: &str) -> Option<Call> {
    let method: Method = method.to_uppercase().parse().unwrap();
    Call::of(&method, &path.replace("{id}", ID)).ok()
}

#[test]
fn every_call_of_the_table_is_served_and_no_other() {
    let paths: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.path).collect();
    let mut served = 0;
    for path in &paths {
        for method in [
            "get", "put", "post", "delete", "patch", "head", "options", "trace",
        ] {
            let listed = OPERATIONS
                .iter()
                .any(|o| o.path == *path && o.method == method);
            assert_eq!(call(method, path).is_some(), listed, "{method} {path}");
            served += usize::from(listed);
        }
    }
    assert_eq!(served, OPERATIONS.len());
    // Each kind of call is in the table.
    let names: BTreeSet<String> = OPERATIONS
        .iter()
        .filter_map(|operation| call(operation.method, operation.path))
        .map(|call| format!("{call:?}").split('(').next().unwrap().to_owned())
        .collect();
    let known = [
        "Cancel", "Captured", "Claim", "Detached", "Health", "List", "Resolve", "Result", "Retry",
        "Show", "Status",
    ];
    assert!(names.iter().map(String::as_str).eq(known), "{names:?}");
}

#[tokio::test]
async fn every_call_asks_for_the_capability_that_the_table_names() {
    let stage = Stage::new();
    for operation in OPERATIONS {
        let path = operation.path.replace("{id}", ID);
        let request = |bearer: Option<&str>| {
            let mut request = super::stage::request(&operation.method.to_uppercase(), &path)
                .header("x-mono-agent-service-name", "work-control");
            if let Some(bearer) = bearer {
                request = request.header("authorization", format!("Bearer {bearer}"));
            }
            request.body("{}".into()).unwrap()
        };
        let told = stage.send(request(None)).await;
        assert_eq!(
            told.code(),
            (401, "missing_capability"),
            "{}",
            operation.name
        );
        let told = stage.send(request(Some("wrong"))).await;
        assert_eq!(
            told.code(),
            (401, operation.capability.refusal()),
            "{}",
            operation.name
        );
    }
}

/// Every refusal that the source can give is in the document, and none that it can't.
#[test]
fn the_codes_are_those_of_the_source() {
    let listed: BTreeSet<&str> = OPERATIONS
        .iter()
        .flat_map(|operation| operation.all_refusals())
        .flat_map(|(_, codes)| codes)
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/src/event.rs");
    let mut source = std::fs::read_to_string(record).unwrap();
    for file in [
        "error.rs",
        "intake.rs",
        "operator.rs",
        "http/body.rs",
        "http/router.rs",
    ] {
        source += &std::fs::read_to_string(folder.join(file)).unwrap();
    }
    for code in &listed {
        assert!(
            source.contains(&format!("\"{code}\"")),
            "{code} is in no source"
        );
    }
    for refused in [
        crate::Rejection::stopping(),
        crate::Rejection::busy(),
        crate::Rejection::internal(),
        crate::Rejection::not_found(),
        crate::Rejection::too_large(1),
        crate::Rejection::missing_capability(),
        crate::Rejection::invalid_capability(),
    ] {
        assert!(listed.contains(refused.code), "{}", refused.code);
    }
    use continuation_record::event::Refused;
    for refused in [
        Refused::ResultConflict,
        Refused::ResultNotAccepted,
        Refused::Expired,
        Refused::DeliveryUnknown,
        Refused::NotRetryable,
        Refused::SynthesisNotRetryable,
        Refused::AlreadyTerminal,
        Refused::InFlight,
        Refused::NotDeliveryUnknown,
        Refused::OutOfPlace,
    ] {
        assert!(listed.contains(refused.code()), "{}", refused.code());
    }
}
