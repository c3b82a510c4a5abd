//! Health, lists, and what operators do.

use super::stage::{Stage, Told2, settings};
use crate::engine::{Answer, Question};
use continuation_record::token::Token;
use continuation_record::{Mode, State};
use serde_json::{Value, json};
use std::time::Duration;

/// A delivery whose outcome nobody knows.
async fn unknown(stage: &Stage, run: &str) -> Told2 {
    let claimed = stage.committed(run, Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let id = claimed.text("continuationId");
    stage
        .process(&id, |question| {
            matches!(question, Question::Deliver(_)).then_some(Answer::TimedOut)
        })
        .await;
    assert_eq!(stage.record(&claimed).state, State::DeliveryUnknown);
    claimed
}

fn step(claimed: &Told2, step: &str) -> String {
    format!("continuations/{}/{step}", claimed.text("continuationId"))
}

#[tokio::test]
async fn health_follows_the_worst_and_counts_everything() {
    let stage = Stage::new();
    let told = stage.operate("GET", "health", "").await;
    assert_eq!(
        (told.status.as_u16(), &told.json["status"]),
        (200, &json!("healthy"))
    );
    assert_eq!(told.json["counts"].as_object().unwrap().len(), 10);
    assert!(told.json.get("oldestPendingAt").is_none());
    stage.committed("run-1", Mode::Reply, "task").await;
    let told = stage.operate("GET", "health", "").await;
    assert_eq!(told.json["status"], "degraded");
    assert_eq!(
        (&told.json["pending"], &told.json["due"]),
        (&json!(1), &json!(1))
    );
    assert!(told.json["oldestPendingAt"].is_string());
    unknown(&stage, "run-2").await;
    let told = stage.operate("GET", "health", "").await;
    assert_eq!(told.json["status"], "unhealthy");
    let storage = &told.json["storage"];
    assert_eq!(storage["format"], "per-record-v3");
    assert_eq!(
        (
            &storage["records"],
            &storage["active"],
            &storage["unresolvedDelivery"]
        ),
        (&json!(2), &json!(2), &json!(1))
    );
    assert_eq!(storage["limits"]["maxActiveRecords"], 10_000);
}

#[tokio::test]
async fn pages_go_from_the_newest_to_the_oldest_without_a_gap() {
    let stage = Stage::new();
    for n in 0..7 {
        stage.detached("index", &format!("task-{n}")).await;
        // Some in the same instant.
        if n % 3 == 2 {
            stage.pass(Duration::from_millis(1));
        }
    }
    let whole = stage.operate("GET", "continuations", "").await.json;
    assert_eq!(
        (
            whole["continuations"].as_array().unwrap().len(),
            &whole["pageSize"]
        ),
        (7, &json!(100))
    );
    assert!(whole.get("nextCursor").is_none());
    let mut seen = Vec::new();
    let mut path = "continuations?limit=3".to_owned();
    loop {
        let page = stage.operate("GET", &path, "").await.json;
        assert_eq!(page["pageSize"], 3);
        seen.extend(page["continuations"].as_array().unwrap().clone());
        match page["nextCursor"].as_str() {
            Some(next) => path = format!("continuations?limit=3&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(json!(seen), whole["continuations"]);
    let key = |status: &Value| {
        (
            status["createdAt"].to_string(),
            status["continuationId"].to_string(),
        )
    };
    assert!(seen.windows(2).all(|pair| key(&pair[0]) > key(&pair[1])));
}

#[tokio::test]
async fn limits_and_cursors_that_are_wrong_fail_closed() {
    let mut settings = settings();
    settings.limits.page_size = 5;
    let stage = Stage::with(settings);
    for (query, code) in [
        ("limit=5", ""),
        ("limit=6", "invalid_page_limit"),
        ("limit=0", "invalid_page_limit"),
        ("limit=-1", "invalid_page_limit"),
        ("limit=01", "invalid_page_limit"),
        ("limit=1.0", "invalid_page_limit"),
        ("limit=%201", "invalid_page_limit"),
        ("limit=", "invalid_page_limit"),
        ("limit=99999999999999999999", "invalid_page_limit"),
        ("limit=1&limit=1", "invalid_page_limit"),
        ("cursor=", "invalid_page_cursor"),
        ("cursor=abc", "invalid_page_cursor"),
        ("cursor=WyIyMDMwIiwiYSJd", "invalid_page_cursor"),
        ("other=1", ""),
    ] {
        let told = stage
            .operate("GET", &format!("continuations?{query}"), "")
            .await;
        let expected = if code.is_empty() {
            (200, "")
        } else {
            (400, code)
        };
        assert_eq!(told.code(), expected, "{query}");
    }
}

#[tokio::test]
async fn an_unknown_delivery_is_resolved_in_three_ways() {
    let stage = Stage::new();
    let delivered = unknown(&stage, "a").await;
    let body = json!({ "kind": "delivered", "deliveryId": "proved" }).to_string();
    let told = stage
        .operate("POST", &step(&delivered, "resolve"), body)
        .await;
    assert_eq!(
        (told.status.as_u16(), &told.json["state"]),
        (200, &json!("delivered"))
    );
    assert_eq!(
        (
            &told.json["receipt"]["deliveryId"],
            &told.json["receipt"]["historyRecorded"]
        ),
        (&json!("proved"), &json!(true))
    );
    stage.told(|told| {
        assert_eq!((told.entries.len(), told.sent.len()), (1, 0));
        assert_eq!(told.entries[0].2, "the answer");
    });
    let not = unknown(&stage, "b").await;
    let body = json!({ "kind": "not_delivered" }).to_string();
    let told = stage.operate("POST", &step(&not, "resolve"), body).await;
    assert_eq!(told.json["state"], "ready_to_deliver");
    stage.work().await;
    assert_eq!(stage.record(&not).state, State::Delivered);
    stage.told(|told| assert_eq!((told.sent.len(), told.synthesized.len()), (1, 2)));
    let dead = unknown(&stage, "c").await;
    let body = json!({ "kind": "dead_lettered" }).to_string();
    let told = stage
        .operate("POST", &step(&dead, "resolve"), body.clone())
        .await;
    assert_eq!(told.json["state"], "dead_lettered");
    let told = stage.operate("POST", &step(&dead, "resolve"), body).await;
    assert_eq!(told.code(), (409, "not_delivery_unknown"));
}

#[tokio::test]
async fn a_history_that_fails_when_a_delivery_is_resolved_stays_visible() {
    let stage = Stage::new();
    let claimed = unknown(&stage, "a").await;
    stage.told(|told| told.entered = Some(Err("history_full".into())));
    let body = json!({ "kind": "delivered" }).to_string();
    let told = stage
        .operate("POST", &step(&claimed, "resolve"), body)
        .await;
    assert_eq!(told.json["receipt"]["historyErrorCode"], "history_full");
    assert_eq!(stage.operator.health().unwrap()["status"], "degraded");
}

#[tokio::test]
async fn resolutions_that_say_nothing_clear_are_refused() {
    let stage = Stage::new();
    let claimed = unknown(&stage, "a").await;
    for body in [
        json!({}),
        json!({ "kind": "maybe" }),
        json!({ "kind": "Delivered" }),
        json!({ "kind": null }),
        json!({ "kind": 7 }),
        json!({ "kind": "delivered", "deliveryId": "" }),
        json!({ "kind": "delivered", "deliveryId": "d".repeat(257) }),
        json!({ "kind": "delivered", "deliveryId": 7 }),
        json!({ "kind": "not_delivered", "deliveryId": "d" }),
    ] {
        let told = stage
            .operate("POST", &step(&claimed, "resolve"), body.to_string())
            .await;
        assert_eq!(told.code(), (400, "invalid_resolution"), "{body}");
    }
    assert_eq!(
        stage
            .operate("POST", &step(&claimed, "resolve"), "")
            .await
            .code(),
        (400, "invalid_resolution")
    );
    assert_eq!(
        stage
            .operate("POST", &step(&claimed, "resolve"), "[]")
            .await
            .code(),
        (400, "invalid_body")
    );
    assert_eq!(stage.record(&claimed).state, State::DeliveryUnknown);
    let longest = json!({ "kind": "delivered", "deliveryId": "d".repeat(256) }).to_string();
    let told = stage
        .operate("POST", &step(&claimed, "resolve"), longest)
        .await;
    assert_eq!(told.status, 200);
}

#[tokio::test]
async fn an_unknown_delivery_is_retried_only_after_an_explicit_word() {
    let stage = Stage::new();
    let claimed = unknown(&stage, "a").await;
    for body in ["", "{}", r#"{"allowUnknown":false}"#] {
        let told = stage.operate("POST", &step(&claimed, "retry"), body).await;
        assert_eq!(told.code(), (409, "delivery_unknown"), "{body}");
    }
    for word in [r#""true""#, "1", "null", "[]"] {
        let body = format!(r#"{{"allowUnknown":{word}}}"#);
        let told = stage.operate("POST", &step(&claimed, "retry"), body).await;
        assert_eq!(told.code(), (400, "invalid_body"), "{word}");
    }
    let told = stage
        .operate("POST", &step(&claimed, "retry"), r#"{"allowUnknown":true}"#)
        .await;
    assert_eq!(told.json["state"], "ready_to_deliver");
}

#[tokio::test]
async fn what_an_operator_left_as_unknown_needs_the_word_too() {
    let stage = Stage::new();
    let claimed = unknown(&stage, "a").await;
    let left = r#"{"kind":"dead_lettered"}"#;
    let told = stage
        .operate("POST", &step(&claimed, "resolve"), left)
        .await;
    assert_eq!(told.json["state"], "dead_lettered");
    let told = stage.operate("POST", &step(&claimed, "retry"), "").await;
    assert_eq!(told.code(), (409, "delivery_unknown"));
    let told = stage
        .operate("POST", &step(&claimed, "retry"), r#"{"allowUnknown":true}"#)
        .await;
    assert_eq!(told.json["state"], "ready_to_deliver");
}

#[tokio::test]
async fn cancelling_is_idempotent_and_leaves_what_is_over_or_in_flight() {
    let stage = Stage::new();
    let claimed = stage.committed("a", Mode::Reply, "task").await;
    for _ in 0..2 {
        let told = stage.operate("POST", &step(&claimed, "cancel"), "").await;
        assert_eq!(
            (told.status.as_u16(), &told.json["state"]),
            (200, &json!("cancelled"))
        );
    }
    let done = stage.detached("index", "done").await;
    stage.submit(&done, json!(1)).await;
    stage.work().await;
    assert_eq!(
        stage
            .operate("POST", &step(&done, "cancel"), "")
            .await
            .code(),
        (409, "already_terminal")
    );
    let asked = stage.committed("b", Mode::Reply, "task").await;
    stage.submit(&asked, json!(1)).await;
    let id = asked.text("continuationId");
    let mut answers = Vec::new();
    let mut step_ = stage.engine.start(&id).await.unwrap();
    while let crate::engine::Step::Ask(job, question) = step_ {
        if matches!(question, Question::Synthesize(_) | Question::Deliver(_)) {
            answers.push(
                stage
                    .operate("POST", &step(&asked, "cancel"), "")
                    .await
                    .code()
                    .1
                    .to_owned(),
            );
        }
        let answer = crate::service::put(&*stage.host, question, &stage.desk.settings.limits).await;
        step_ = stage.engine.advance(job, answer).await.unwrap();
    }
    assert_eq!(
        answers,
        ["continuation_in_flight", "continuation_in_flight"]
    );
}

#[tokio::test]
async fn what_is_cancelled_while_its_channel_is_asked_is_not_worked_on() {
    let stage = Stage::new();
    let claimed = stage.committed("a", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let id = claimed.text("continuationId");
    let step_ = stage.engine.start(&id).await.unwrap();
    let crate::engine::Step::Ask(job, Question::Ready { .. }) = step_ else {
        panic!()
    };
    stage.operator.cancel(&id).await.unwrap();
    let ready = Answer::Ready(crate::host::Readiness::Ready);
    assert!(matches!(
        stage.engine.advance(job, ready).await.unwrap(),
        crate::engine::Step::Done
    ));
    stage.told(|told| assert!(told.synthesized.is_empty()));
    assert_eq!(stage.record(&claimed).state, State::Cancelled);
}

#[tokio::test]
async fn operators_ask_with_their_own_capability_only() {
    let stage = Stage::new();
    let claimed = stage.committed("a", Mode::Reply, "task").await;
    let id = claimed.text("continuationId");
    let other = Token::operator(&continuation_record::token::Secret::new([8; 32]));
    for bearer in [
        claimed.text("token"),
        super::stage::BEARER.into(),
        other.as_str().into(),
        "x".into(),
    ] {
        for (method, path) in [
            ("GET", "/v1/operator/health".to_owned()),
            ("GET", "/v1/operator/continuations".to_owned()),
            ("GET", format!("/v1/operator/continuations/{id}")),
            ("POST", format!("/v1/operator/continuations/{id}/cancel")),
            ("POST", format!("/v1/operator/continuations/{id}/retry")),
            ("POST", format!("/v1/operator/continuations/{id}/resolve")),
        ] {
            let told = stage.call(method, &path, &bearer, "").await;
            assert_eq!(told.code(), (401, "invalid_operator_capability"), "{path}");
        }
    }
    // Nor does the operator's open anything else.
    let operator = Token::operator(&super::stage::secret());
    let path = format!("/v1/continuations/{id}/status");
    assert_eq!(
        stage.call("GET", &path, operator.as_str(), "").await.code(),
        (401, "invalid_result_capability")
    );
    let told = stage
        .call("POST", "/v1/continuations/claim", operator.as_str(), "{}")
        .await;
    assert_eq!(told.code(), (401, "invalid_claim_capability"));
}

#[tokio::test]
async fn what_there_is_not_is_not_found_once_the_operator_is_known() {
    let stage = Stage::new();
    for (method, path) in [
        ("GET", "continuations/none"),
        ("POST", "continuations/none/cancel"),
        ("POST", "continuations/none/retry"),
        ("POST", "continuations/none/resolve"),
    ] {
        let body = r#"{"kind":"delivered"}"#;
        let told = stage
            .operate(
                method,
                path,
                if path.ends_with("resolve") { body } else { "" },
            )
            .await;
        assert_eq!(told.code(), (404, "not_found"), "{path}");
    }
}

#[tokio::test]
async fn captured_text_is_for_operators_and_of_delivered_captures_only() {
    let stage = Stage::new();
    let capture = stage.detached("verify", "capture").await;
    let path = format!("continuations/{}/captured", capture.text("continuationId"));
    // Claimed, and not delivered yet.
    assert_eq!(
        stage.operate("GET", &path, "").await.code(),
        (404, "not_found")
    );
    stage.submit(&capture, json!(1)).await;
    stage.work().await;
    let told = stage.operate("GET", &path, "").await;
    assert_eq!(
        (told.status.as_u16(), told.text("text").as_str()),
        (200, "the answer")
    );
    // A dead letter keeps a text too, and a delivered reply had one.
    let dead = unknown(&stage, "dead").await;
    let body = json!({ "kind": "dead_lettered" }).to_string();
    stage.operate("POST", &step(&dead, "resolve"), body).await;
    assert!(stage.record(&dead).synthesized_text.is_some());
    for other in [dead.text("continuationId"), "none".into()] {
        let path = format!("continuations/{other}/captured");
        assert_eq!(
            stage.operate("GET", &path, "").await.code(),
            (404, "not_found")
        );
    }
    let full = format!("/v1/operator/{path}");
    let told = stage.call("GET", &full, &capture.text("token"), "").await;
    assert_eq!(told.code(), (401, "invalid_operator_capability"));
}
