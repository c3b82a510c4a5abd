//! Nothing that stands in a file makes loading panic, and the schema agrees with the loader.
#![allow(clippy::unwrap_used)]

use mono_config::{Env, check, fields, load, schema};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn full() -> String {
    std::fs::read_to_string(examples().join("full.config.json")).unwrap()
}

/// Loads and checks the bytes: no panic; an error says what it is.
fn try_load(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    for name in ["identity.md", "mcp.json"] {
        std::fs::copy(examples().join(name), folder.path().join(name)).unwrap();
    }
    let file = folder.path().join("c.json");
    std::fs::write(&file, bytes).unwrap();
    let env = Env::new();
    let report = check(&file, &env);
    match load(&file, &env) {
        Ok(loaded) => {
            assert!(report.ok, "{report}");
            assert!(loaded.warnings.iter().all(|warning| !warning.is_error()));
            true
        }
        Err(errors) => {
            assert!(!report.ok, "{report}\n{errors}");
            assert!(
                errors.count() > 0 && errors.diagnostics.iter().all(|d| d.code != "internal"),
                "{errors}"
            );
            for problem in &errors.diagnostics {
                assert!(problem.message.len() < 1000, "{problem}");
            }
            false
        }
    }
}

/// All places of a document.
fn pointers(value: &Value, here: String, out: &mut Vec<String>) {
    out.push(here.clone());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(
                    value,
                    format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")),
                    out,
                );
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, format!("{here}/{index}"), out);
            }
        }
        _ => {}
    }
}

fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("~")),
        Just(json!("x".repeat(100_000))),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[], {}, null])),
        Just(json!({"": {"": 1}})),
    ]
}

fn key_name() -> impl Strategy<Value = String> {
    let names: Vec<String> = fields()
        .flat_map(|field| field.key.split('.'))
        .map(|name| name.trim_end_matches("[]").to_string())
        .collect();
    prop_oneof![4 => prop::sample::select(names), 1 => "\\PC{0,12}"]
}

fn any_document() -> impl Strategy<Value = Value> {
    odd_value().prop_recursive(5, 96, 8, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            4 => prop::collection::btree_map(key_name(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_json_gives_a_configuration_or_errors(document in any_document()) {
        try_load(document.to_string().as_bytes());
    }

    #[test]
    fn a_changed_value_gives_a_configuration_or_errors(place in any::<prop::sample::Index>(), value in odd_value()) {
        let mut document: Value = serde_json::from_str(&full()).unwrap();
        let mut places = Vec::new();
        pointers(&document, String::new(), &mut places);
        *document.pointer_mut(&places[place.index(places.len())]).unwrap() = value;
        try_load(document.to_string().as_bytes());
    }

    #[test]
    fn damaged_bytes_give_a_configuration_or_errors(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..6)
    ) {
        let mut bytes = full().into_bytes();
        for (place, byte, how) in cuts {
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        try_load(&bytes);
    }

    #[test]
    fn any_variable_gives_a_configuration_or_errors(
        name in prop::sample::select(fields().filter_map(|field| field.env_name()).collect::<Vec<_>>()),
        value in "\\PC{0,40}",
    ) {
        let env = Env::from([(name, value)]);
        let _ = load(&examples().join("mono-agent.config.json"), &env);
        let _ = check(&examples().join("full.config.json"), &env);
    }

    /// The schema is the looser of the two: what loads, it accepts.
    #[test]
    fn the_schema_accepts_what_loads(place in any::<prop::sample::Index>(), value in odd_value()) {
        let mut document: Value = serde_json::from_str(&full()).unwrap();
        let mut places = Vec::new();
        pointers(&document, String::new(), &mut places);
        *document.pointer_mut(&places[place.index(places.len())]).unwrap() = value;
        if try_load(document.to_string().as_bytes()) {
            let problems: Vec<String> =
                VALIDATOR.iter_errors(&document).map(|error| error.to_string()).collect();
            prop_assert!(problems.is_empty(), "{problems:?}");
        }
    }
}

static VALIDATOR: std::sync::LazyLock<jsonschema::Validator> =
    std::sync::LazyLock::new(|| jsonschema::validator_for(&schema()).unwrap());

#[test]
fn the_schema_is_one_and_accepts_the_examples() {
    assert!(jsonschema::meta::is_valid(&schema()));
    for name in ["mono-agent.config.json", "full.config.json"] {
        let text = std::fs::read_to_string(examples().join(name)).unwrap();
        let document = serde_json::from_str(&text).unwrap();
        let problems: Vec<String> = VALIDATOR
            .iter_errors(&document)
            .map(|error| error.to_string())
            .collect();
        assert!(problems.is_empty(), "{name}: {problems:?}");
    }
}

#[test]
fn the_schema_refuses_what_a_row_refuses() {
    let good = json!({"runtime": {"model": "demo:scripted"}, "context": {"identityPath": "me.md"}});
    assert!(VALIDATOR.is_valid(&good));
    for (pointer, value) in [
        ("/runtime", json!({})),
        ("/runtime/model", json!("nothing")),
        ("/runtime/maxTurns", json!(101)),
        ("/runtime/modle", json!("x")),
        ("/surprise", json!(1)),
        ("/tools", json!({"mcpServers": {"a b": {}}})),
        (
            "/tools",
            json!({"mcpServers": {"a": {"command": "x", "sandbox": {"network": "some"}}}}),
        ),
        ("/continuations", json!({"port": 0})),
        ("/interaction", json!({"askUser": {"timeoutMs": 5}})),
    ] {
        let mut bad = good.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[name] = value;
        assert!(!VALIDATOR.is_valid(&bad), "{bad}");
    }
}

/// A row without a member in the structure, or the other way round, fails to load with `internal`.
#[test]
fn the_full_example_writes_every_key() {
    let document: Value = serde_json::from_str(&full()).unwrap();
    let mut places = Vec::new();
    pointers(&document, String::new(), &mut places);
    let names: Vec<Vec<String>> = places
        .iter()
        .map(|place| place.split('/').skip(1).map(str::to_string).collect())
        .collect();
    // Alternatives of something that the example writes in another way.
    let left_out = |key: &str| {
        let secret = [
            "apiKey",
            "botToken",
            "appToken",
            "bearerToken",
            "callback.secret",
            "callbackSecret",
        ]
        .iter()
        .any(|name| key.contains(name));
        secret
            || [
                "providers.pi",
                "a2a.provider.enabled",
                "context.soulPath",
                "context.skillsRoot",
                "cron.expression",
                "cron.preflight",
            ]
            .iter()
            .any(|prefix| key.starts_with(prefix))
    };
    for field in fields().filter(|field| !left_out(field.key)) {
        let pattern: Vec<String> = field
            .key
            .replace("[]", ".#")
            .split('.')
            .map(str::to_string)
            .collect();
        let written = names.iter().any(|name| {
            name.len() == pattern.len()
                && name.iter().zip(&pattern).all(|(name, pattern)| {
                    pattern.starts_with('<')
                        || (pattern == "#" && name.parse::<usize>().is_ok())
                        || name == pattern
                })
        });
        assert!(written, "{} is not in the full example", field.key);
    }
}

/// What the full example leaves out is in the structures too.
#[test]
fn the_keys_that_the_full_example_leaves_out_load() {
    let mut document: Value = serde_json::from_str(&full()).unwrap();
    document["providers"]["piAuthPath"] = json!("~/x");
    document["providers"]["piNative"] = json!({"transport": "sse", "piMaxRetries": 1, "maxRetryDelayMs": 5,
        "piSessionsRoot": "s", "cacheRetention": "long"});
    document["a2a"]["provider"]["enabled"] = json!(false);
    document["context"]["soulPath"] = json!("identity.md");
    document["context"]["skillsRoot"] = json!(".");
    document["cron"]["expression"] = json!("0 0 * * *");
    document["cron"]["preflight"] = json!(["true"]);
    for (section, name) in [
        ("openaiApi", "apiKey"),
        ("webhook", "apiKey"),
        ("tui", "apiKey"),
        ("slack", "botToken"),
        ("slack", "appToken"),
        ("telegram", "botToken"),
    ] {
        let section = document[section].as_object_mut().unwrap();
        section.remove(&format!("{name}File"));
        section.remove(&format!("{name}Credential"));
        section.insert(name.to_string(), json!("a literal"));
    }
    for (pointer, name) in [
        ("/webhook/callback", "secret"),
        ("/webhook/endpoints/0", "apiKey"),
        ("/webhook/endpoints/0", "callbackSecret"),
    ] {
        let section = document.pointer_mut(pointer).unwrap();
        let section = section.as_object_mut().unwrap();
        section.remove(&format!("{name}Credential"));
        section.insert(name.to_string(), json!("a literal"));
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["identity.md", "mcp.json"] {
        std::fs::copy(examples().join(name), folder.path().join(name)).unwrap();
    }
    let file = folder.path().join("c.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let bearer = "WORK_CONTROL_CONTINUATION_TOKEN".to_string();
    let env = Env::from([
        ("HOME".to_string(), "/home/a".to_string()),
        (bearer, "0123456789abcdef".to_string()),
    ]);
    let loaded = load(&file, &env).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(
        loaded
            .warnings
            .iter()
            .filter(|warning| warning.code == "secret_in_file")
            .count(),
        9
    );
}
