//! Claims of running turns and of detached services.

use super::stage::{BEARER, START, Stage, claim_body, request, settings};
use crate::settings::Route;
use continuation_record::{Mode, OriginContextState, Record, State};
use serde_json::{Value, json};
use std::time::Duration;

const CLAIM: &str = "/v1/continuations/claim";

#[tokio::test]
async fn a_claim_is_bound_to_its_turn_and_answered_as_the_contract_says() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    assert_eq!(binding.url, "http://127.0.0.1:4319/v1/continuations/claim");
    let claimed = stage.claim(&binding, "task").await;
    assert_eq!(claimed.status, 200);
    let id = claimed.text("continuationId");
    let base = "http://127.0.0.1:4319/v1/continuations";
    assert_eq!(claimed.text("resultUrl"), format!("{base}/{id}/result"));
    assert_eq!(claimed.text("statusUrl"), format!("{base}/{id}/status"));
    assert_eq!(
        claimed.text("expiresAt"),
        START.plus_ms(24 * 3_600_000).to_string()
    );
    assert_eq!(claimed.text("fingerprint"), binding.fingerprint);
    let fields = claimed.json.as_object().unwrap().keys();
    assert_eq!(
        fields.collect::<std::collections::BTreeSet<_>>(),
        [
            "continuationId",
            "expiresAt",
            "fingerprint",
            "resultUrl",
            "statusUrl",
            "token"
        ]
        .map(str::to_owned)
        .iter()
        .collect()
    );
    assert_eq!(claimed.headers["cache-control"], "no-store");
    assert_eq!(claimed.headers["x-content-type-options"], "nosniff");
    let record = stage.record(&claimed);
    assert_eq!(record.state, State::Claimed);
    assert_eq!(record.origin_context_state, OriginContextState::Pending);
    assert_eq!(record.origin_conversation_id, "slack:C:T#2030-03-17");
    assert_eq!(
        record.reply_to_conversation_id.as_deref(),
        Some("slack:C:T")
    );
    assert_eq!(record.history_boundary.as_deref(), Some("run-1"));
    // The token itself is nowhere.
    let kept = serde_json::to_string(&record).unwrap();
    assert!(!kept.contains(&claimed.text("token")) && !kept.contains(binding.token.as_str()));
}

#[tokio::test]
async fn a_repeat_is_the_same_claim_also_after_a_restart_and_after_its_end() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let first = stage.claim(&binding, "task").await;
    let again = stage.claim(&binding, "task").await;
    assert_eq!(again.json["replayed"], true);
    for key in [
        "continuationId",
        "token",
        "resultUrl",
        "statusUrl",
        "expiresAt",
        "fingerprint",
    ] {
        assert_eq!(first.json[key], again.json[key], "{key}");
    }
    assert_eq!(stage.store.count(), 1);
    let detached = stage.detached("index", "task").await;
    stage.submit(&detached, json!(1)).await;
    stage.work().await;
    assert_eq!(stage.record(&detached).state, State::Delivered);
    let after = Stage::over(stage.store.clone(), settings());
    let again = after.detached("index", "task").await;
    assert_eq!(
        (again.status.as_u16(), &again.json["replayed"]),
        (200, &json!(true))
    );
    assert_eq!(again.json["token"], detached.json["token"]);
}

/// A service that comes back after its deadline must learn what became of its task.
#[tokio::test]
async fn a_repeat_is_answered_after_its_deadline_and_a_new_claim_is_not() {
    let stage = Stage::new();
    let body = |task: &str, hash: &str| {
        let mut body = claim_body(task);
        body["route"] = "index".into();
        body["taskHash"] = hash.into();
        body.to_string()
    };
    let send = async |body: String| {
        let request = request("POST", "/v1/continuations/detached/claim")
            .header("authorization", format!("Bearer {BEARER}"))
            .header("x-mono-agent-service-name", "work-control");
        stage.send(request.body(body.into()).unwrap()).await
    };
    let claimed = send(body("task", "hash")).await;
    stage.pass(Duration::from_secs(40 * 24 * 3600));
    stage.work().await;
    assert_eq!(stage.record(&claimed).state, State::Expired);
    let again = send(body("task", "hash")).await;
    assert_eq!(
        (again.status.as_u16(), &again.json["replayed"]),
        (200, &json!(true))
    );
    assert_eq!(again.json["token"], claimed.json["token"]);
    assert_eq!(
        send(body("task", "other")).await.code(),
        (409, "claim_conflict")
    );
    assert_eq!(
        send(body("another", "hash")).await.code(),
        (400, "invalid_deadline")
    );
    assert_eq!(stage.store.count(), 1);
}

#[tokio::test]
async fn a_claim_with_another_hash_deadline_or_binding_conflicts() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    stage.claim(&binding, "task").await;
    for (key, value) in [
        ("taskHash", json!("another")),
        ("deadline", json!(START.plus_ms(3_600_000).to_string())),
    ] {
        let mut body = claim_body("task");
        body[key] = value;
        let told = stage
            .call("POST", CLAIM, binding.token.as_str(), body.to_string())
            .await;
        assert_eq!(told.code(), (409, "claim_conflict"), "{key}");
    }
    let capture = stage.issue("run-1", "work-control", Mode::Capture);
    assert_eq!(
        stage.claim(&capture, "task").await.code(),
        (409, "claim_conflict")
    );
    // Another server, or another run, is another identity.
    let server = stage.issue("run-1", "second", Mode::Reply);
    assert_eq!(stage.claim(&server, "task").await.status, 200);
    let run = stage.issue("run-2", "work-control", Mode::Reply);
    assert_eq!(stage.claim(&run, "task").await.status, 200);
    assert_eq!(stage.store.count(), 3);
    // The same instant in another form is the same deadline.
    let mut body = claim_body("task");
    body["deadline"] = "2030-03-18T18:46:40+01:00".into();
    let told = stage
        .call("POST", CLAIM, binding.token.as_str(), body.to_string())
        .await;
    assert_eq!(told.json["replayed"], true, "{}", told.json);
}

#[tokio::test]
async fn each_field_of_a_claim_has_its_bound_and_its_code() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let month = 30 * 24 * 3_600_000;
    let at = |ms: i64| json!(START.plus_ms(ms).to_string());
    let cases: Vec<(&str, Value, &str)> = vec![
        ("taskKey", json!("k".repeat(256)), ""),
        ("taskKey", json!("k".repeat(257)), "invalid_taskKey"),
        ("taskKey", json!(""), "invalid_taskKey"),
        ("taskKey", json!("  "), "invalid_taskKey"),
        ("taskKey", json!(7), "invalid_taskKey"),
        ("taskKey", Value::Null, "invalid_taskKey"),
        ("taskHash", json!("h".repeat(256)), ""),
        ("taskHash", json!("h".repeat(257)), "invalid_taskHash"),
        ("taskHash", json!(["h"]), "invalid_taskHash"),
        ("deadline", at(month), ""),
        ("deadline", at(month + 1), "deadline_too_far"),
        ("deadline", at(1), ""),
        ("deadline", at(0), "invalid_deadline"),
        ("deadline", at(-1), "invalid_deadline"),
        ("deadline", json!("soon"), "invalid_deadline"),
        ("deadline", json!(1_900_000_100_000_i64), "invalid_deadline"),
        (
            "deadline",
            json!(format!("{}2030-03-18T00:00:00Z", " ".repeat(50))),
            "invalid_deadline",
        ),
    ];
    for (n, (key, value, code)) in cases.into_iter().enumerate() {
        let mut body = claim_body(&format!("task-{n}"));
        body[key] = value.clone();
        let told = stage
            .call("POST", CLAIM, binding.token.as_str(), body.to_string())
            .await;
        let expected = if code.is_empty() {
            (200, "")
        } else {
            (400, code)
        };
        assert_eq!(told.code(), expected, "{key} {value}");
    }
    for key in ["taskKey", "taskHash", "deadline"] {
        let mut body = claim_body("missing");
        body.as_object_mut().unwrap().remove(key);
        let told = stage
            .call("POST", CLAIM, binding.token.as_str(), body.to_string())
            .await;
        assert_eq!(told.code(), (400, format!("invalid_{key}").as_str()));
    }
}

#[tokio::test]
async fn a_claim_of_sixteen_kibibytes_is_read_and_a_byte_more_is_not() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let plain = claim_body("task").to_string();
    let padded = |bytes: usize| format!("{plain}{}", " ".repeat(bytes - plain.len()));
    let told = stage
        .call("POST", CLAIM, binding.token.as_str(), padded(16 * 1024))
        .await;
    assert_eq!(told.code(), (200, ""));
    let told = stage
        .call("POST", CLAIM, binding.token.as_str(), padded(16 * 1024 + 1))
        .await;
    assert_eq!(told.code(), (413, "payload_too_large"));
}

#[tokio::test]
async fn admission_is_bounded_in_all_and_for_one_origin() {
    let mut settings = settings();
    settings.limits.max_active = 4;
    settings.limits.max_active_per_origin = 2;
    let stage = Stage::with(settings);
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    for task in ["a", "b"] {
        assert_eq!(stage.claim(&binding, task).await.status, 200);
    }
    assert_eq!(
        stage.claim(&binding, "c").await.code(),
        (429, "active_origin_limit")
    );
    // A repeat is no new one.
    assert_eq!(stage.claim(&binding, "a").await.status, 200);
    // For detached ones the origin is one service on one route.
    let one = stage.detached("index", "d").await;
    assert_eq!(stage.detached("index", "e").await.status, 200);
    assert_eq!(
        stage.detached("daily", "f").await.code(),
        (429, "active_continuation_limit")
    );
    // What is settled makes room.
    stage.submit(&one, json!({})).await;
    stage.work().await;
    assert_eq!(stage.detached("daily", "f").await.status, 200);
}

#[tokio::test]
async fn ten_thousand_are_active_at_most_and_500_of_one_origin() {
    let stage = Stage::new();
    let one = stage.issue("run-1", "work-control", Mode::Reply);
    for n in 0..500 {
        let told = stage.claim(&one, &format!("task-{n}")).await;
        assert_eq!(told.code(), (200, ""), "{n}");
    }
    let told = stage.claim(&one, "one more").await;
    assert_eq!(told.code(), (429, "active_origin_limit"));
    // Of others, all but the last.
    let others = (500..9_999).map(|n| Record {
        origin_run_id: format!("run-{n}"),
        deadline: START.plus_ms(3_600_000),
        ..continuation_record::sample::claimed(n)
    });
    stage.store.fill(others).await;
    let other = stage.issue("another", "work-control", Mode::Reply);
    assert_eq!(stage.claim(&other, "the last").await.code(), (200, ""));
    let told = stage.claim(&other, "one more").await;
    assert_eq!(told.code(), (429, "active_continuation_limit"));
}

#[tokio::test]
async fn detached_claims_take_their_destination_from_the_route_alone() {
    let stage = Stage::new();
    let mut body = claim_body("task");
    for (key, value) in [
        ("route", "daily"),
        ("conversationId", "slack:EVIL"),
        ("replyToConversationId", "slack:EVIL"),
        ("mode", "reply"),
    ] {
        body[key] = value.into();
    }
    let request = request("POST", "/v1/continuations/detached/claim")
        .header("authorization", format!("Bearer {BEARER}"))
        .header("x-mono-agent-service-name", "work-control");
    let claimed = stage
        .send(request.body(body.to_string().into()).unwrap())
        .await;
    let record = stage.record(&claimed);
    assert_eq!(record.server_name, "detached:work-control");
    assert_eq!(record.origin_run_id, "detached:work-control:task");
    assert_eq!(record.origin_conversation_id, "slack:C:T");
    assert_eq!(
        record.reply_to_conversation_id.as_deref(),
        Some("slack:C:T")
    );
    assert_eq!(
        (record.mode, record.route_name.as_deref()),
        (Mode::NotifyIfActionable, Some("daily"))
    );
    assert_eq!(
        record.origin_context_state,
        OriginContextState::DetachedLatest
    );
    // One task can't be used on two routes.
    assert_eq!(
        stage.detached("index", "task").await.code(),
        (409, "claim_conflict")
    );
    let silent = stage.detached("index", "quiet").await;
    let record = stage.record(&silent);
    assert_eq!(record.origin_conversation_id, "continuation-route:index");
    assert_eq!(record.reply_to_conversation_id, None);
    let capture = stage.record(&stage.detached("verify", "kept").await);
    assert_eq!(capture.reply_to_conversation_id, None);
}

/// What a server, or the model that asked it, says of places and modes is not even looked at.
#[tokio::test]
async fn a_turns_claim_takes_its_destination_from_the_turn_alone() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let mut body = claim_body("task");
    for (key, value) in [
        ("conversationId", "slack:EVIL"),
        ("replyTo", "slack:EVIL"),
        ("replyToConversationId", "slack:EVIL"),
        ("originConversationId", "slack:EVIL"),
        ("callbackUrl", "http://127.0.0.1:1/"),
        ("mode", "silent"),
        ("route", "daily"),
        ("serverName", "another"),
        ("runId", "run-2"),
    ] {
        body[key] = value.into();
    }
    let request = request("POST", CLAIM)
        .header(
            "authorization",
            format!("Bearer {}", binding.token.as_str()),
        )
        .header("x-mono-agent-service-name", "another")
        .header("x-mono-agent-continuation-claim-mode", "silent")
        .header(
            "x-mono-agent-continuation-claim-fingerprint",
            "0".repeat(64),
        );
    let claimed = stage
        .send(request.body(body.to_string().into()).unwrap())
        .await;
    assert_eq!(claimed.text("fingerprint"), binding.fingerprint);
    let record = stage.record(&claimed);
    assert_eq!(record.server_name, "work-control");
    assert_eq!(record.origin_run_id, "run-1");
    assert_eq!(record.origin_conversation_id, "slack:C:T#2030-03-17");
    assert_eq!(
        record.reply_to_conversation_id.as_deref(),
        Some("slack:C:T")
    );
    assert_eq!((record.mode, record.route_name), (Mode::Reply, None));
    // It is the same claim as without those words.
    let again = stage.claim(&binding, "task").await;
    assert_eq!(again.json["replayed"], true);
}

/// What is said in a conversation of the terminal is kept by its name alone.
#[tokio::test]
async fn an_answer_for_the_terminal_belongs_to_the_history_of_its_conversation() {
    for (mode, conversation, place) in [
        (Mode::NotifyIfActionable, "plan", Some("terminal:plan")),
        (Mode::Capture, "terminal:plan", None),
    ] {
        let mut settings = settings();
        let route = Route {
            mode,
            conversation: Some("terminal:plan".into()),
        };
        settings.routes.insert("letters".into(), route);
        let stage = Stage::with(settings);
        let record = stage.record(&stage.detached("letters", "task").await);
        assert_eq!(record.origin_conversation_id, conversation);
        assert_eq!(record.reply_to_conversation_id.as_deref(), place);
    }
}

#[tokio::test]
async fn detached_claims_are_refused_with_their_codes() {
    let stage = Stage::new();
    let send = async |service: Option<&str>, bearer: Option<&str>, body: Value| {
        let mut request = request("POST", "/v1/continuations/detached/claim");
        if let Some(service) = service {
            request = request.header("x-mono-agent-service-name", service);
        }
        if let Some(bearer) = bearer {
            request = request.header("authorization", format!("Bearer {bearer}"));
        }
        let told = stage
            .send(request.body(body.to_string().into()).unwrap())
            .await;
        (
            told.status.as_u16(),
            told.json["error"]["code"].as_str().unwrap_or("").to_owned(),
        )
    };
    let on = |route: Value| {
        let mut body = claim_body("task");
        body["route"] = route;
        body
    };
    let told = async |service, bearer, route| send(service, bearer, on(route)).await;
    let ok = Some("work-control");
    let is = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(
        told(ok, None, json!("daily")).await,
        is(401, "missing_capability")
    );
    assert_eq!(
        told(None, Some(BEARER), json!("daily")).await,
        is(400, "missing_service_name")
    );
    let long = "s".repeat(257);
    assert_eq!(
        told(Some(&long), Some(BEARER), json!("daily")).await,
        is(400, "missing_service_name")
    );
    // Another service's bearer, and a service that there isn't: one answer.
    for (service, bearer) in [
        ("other", BEARER),
        ("work-control", "another-detached-bearer"),
        ("nobody", BEARER),
        ("constructor", BEARER),
        ("WORK-CONTROL", BEARER),
    ] {
        let told = told(Some(service), Some(bearer), json!("daily")).await;
        assert_eq!(told, is(401, "invalid_service_capability"), "{service}");
    }
    for route in [json!(null), json!(""), json!(7), json!("r".repeat(257))] {
        assert_eq!(
            told(ok, Some(BEARER), route).await,
            is(400, "invalid_route")
        );
    }
    for route in [
        "weekly",
        "Daily",
        "daily ",
        "constructor",
        "__proto__",
        "toString",
    ] {
        let told = told(ok, Some(BEARER), json!(route)).await;
        assert_eq!(told, is(403, "unknown_named_route"), "{route}");
    }
    assert_eq!(stage.store.count(), 0);
}

#[tokio::test]
async fn a_deadline_is_judged_when_the_body_is_complete() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    stage.pass(Duration::from_secs(24 * 3600));
    assert_eq!(
        stage.claim(&binding, "task").await.code(),
        (400, "invalid_deadline")
    );
}
