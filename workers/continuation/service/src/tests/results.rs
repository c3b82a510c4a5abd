//! Results and statuses.

use super::stage::{Stage, Told2};
use continuation_record::{Mode, Payload, State};
use serde_json::{Value, json};
use std::time::Duration;

fn path(claimed: &Told2) -> String {
    format!(
        "/v1/continuations/{}/result",
        claimed.text("continuationId")
    )
}

async fn put(stage: &Stage, claimed: &Told2, body: &Value) -> Told2 {
    stage
        .call(
            "PUT",
            &path(claimed),
            &claimed.text("token"),
            body.to_string(),
        )
        .await
}

#[tokio::test]
async fn a_result_is_accepted_once_and_its_repeat_is_the_same() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let body = json!({ "idempotencyKey": "k", "payload": { "summary": "done" } });
    for method in ["PUT", "POST", "PUT"] {
        let told = stage
            .call(
                method,
                &path(&claimed),
                &claimed.text("token"),
                body.to_string(),
            )
            .await;
        let id = claimed.text("continuationId");
        assert_eq!(told.status, 202);
        assert_eq!(
            told.json,
            json!({ "continuationId": id, "state": "result_received", "accepted": true })
        );
    }
    stage.work().await;
    // The present state, also when it is over and the payload is gone.
    let told = put(&stage, &claimed, &body).await;
    assert_eq!(
        (told.status.as_u16(), told.text("state").as_str()),
        (202, "delivered")
    );
    assert!(stage.record(&claimed).result_payload.is_none());
}

#[tokio::test]
async fn another_key_or_payload_conflicts_for_ever() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    put(
        &stage,
        &claimed,
        &json!({ "idempotencyKey": "k", "payload": 1 }),
    )
    .await;
    for again in 0..2 {
        for body in [
            json!({ "idempotencyKey": "k", "payload": 2 }),
            json!({ "idempotencyKey": "l", "payload": 1 }),
        ] {
            assert_eq!(
                put(&stage, &claimed, &body).await.code(),
                (409, "result_conflict"),
                "{again}"
            );
        }
        stage.work().await;
    }
}

#[tokio::test]
async fn the_hash_is_of_the_canonical_form_and_optional() {
    let stage = Stage::new();
    let text = r#"{"b":1,"10":2,"9":3,"01":4}"#;
    let hash = "87d9050a29fbae75c0aba82c3c6a8a821c6f82c28bbf2be2cba4d3f05d4d910d";
    assert_eq!(Payload::parse(text).unwrap().hash(), hash);
    for (n, (told, status)) in [
        (format!("\"{hash}\""), 202),
        (format!("\"{}\"", hash.to_uppercase()), 400),
        (format!("\"{}\"", &hash[1..]), 400),
        ("\"\"".into(), 400),
        ("null".into(), 400),
        ("7".into(), 400),
    ]
    .into_iter()
    .enumerate()
    {
        let claimed = stage
            .committed(&format!("run-{n}"), Mode::Reply, "task")
            .await;
        let body = format!(r#"{{"idempotencyKey":"k","payloadHash":{told},"payload":{text}}}"#);
        let answer = stage
            .call("PUT", &path(&claimed), &claimed.text("token"), body)
            .await;
        assert_eq!(answer.status.as_u16(), status, "{told}: {}", answer.json);
        if status == 400 {
            assert_eq!(answer.code().1, "payload_hash_mismatch");
        }
    }
    // Keys in another order are the same payload.
    let claimed = stage.committed("run-x", Mode::Reply, "task").await;
    for text in [r#"{"a":1,"b":[1.0]}"#, r#"{ "b":[1],"a":1e0 }"#] {
        let body = format!(r#"{{"idempotencyKey":"k","payload":{text}}}"#);
        let answer = stage
            .call("PUT", &path(&claimed), &claimed.text("token"), body)
            .await;
        assert_eq!(answer.status, 202);
    }
}

#[tokio::test]
async fn each_field_of_a_result_has_its_bound_and_its_code() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    for (body, code) in [
        (json!({ "payload": 1 }), "invalid_idempotencyKey"),
        (
            json!({ "idempotencyKey": "", "payload": 1 }),
            "invalid_idempotencyKey",
        ),
        (
            json!({ "idempotencyKey": "k".repeat(257), "payload": 1 }),
            "invalid_idempotencyKey",
        ),
        (
            json!({ "idempotencyKey": 1, "payload": 1 }),
            "invalid_idempotencyKey",
        ),
        (json!({ "idempotencyKey": "k" }), "missing_payload"),
    ] {
        assert_eq!(
            put(&stage, &claimed, &body).await.code(),
            (400, code),
            "{body}"
        );
    }
    assert_eq!(stage.record(&claimed).state, State::Claimed);
    // null is a payload.
    let told = put(
        &stage,
        &claimed,
        &json!({ "idempotencyKey": "k".repeat(256), "payload": null }),
    )
    .await;
    assert_eq!(told.status, 202);
}

#[tokio::test]
async fn a_result_of_256_kibibytes_is_read_and_a_byte_more_is_not() {
    let stage = Stage::new();
    let body = |bytes: usize| {
        let frame = r#"{"idempotencyKey":"k","payload":""}"#.len();
        format!(
            r#"{{"idempotencyKey":"k","payload":"{}"}}"#,
            "x".repeat(bytes - frame)
        )
    };
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let token = claimed.text("token");
    let told = stage
        .call("PUT", &path(&claimed), &token, body(256 * 1024 + 1))
        .await;
    assert_eq!(told.code(), (413, "payload_too_large"));
    assert_eq!(told.headers["connection"], "close");
    let told = stage
        .call("PUT", &path(&claimed), &token, body(256 * 1024))
        .await;
    assert_eq!(told.status, 202);
}

/// Numbers are written out, so that a body within its bound may hold a payload over its own.
#[tokio::test]
async fn a_payload_that_grows_over_its_bound_is_refused_by_its_own_name() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let numbers = vec!["1e20"; 50_000].join(",");
    let body = format!(r#"{{"idempotencyKey":"k","payload":[{numbers}]}}"#);
    let told = stage
        .call("PUT", &path(&claimed), &claimed.text("token"), body)
        .await;
    assert_eq!(told.code(), (413, "payload_too_large"));
    let message = told.json["error"]["message"].as_str().unwrap();
    assert!(message.contains("canonical text"), "{message}");
    assert_eq!(stage.record(&claimed).state, State::Claimed);
}

#[tokio::test]
async fn what_is_cancelled_takes_no_result() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let id = claimed.text("continuationId");
    stage.operator.cancel(&id).await.unwrap();
    let told = stage.submit(&claimed, json!(1)).await;
    assert_eq!(told.code(), (409, "result_not_accepted"));
}

#[tokio::test]
async fn a_status_says_how_it_stands_and_nothing_of_what_was_said() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let id = claimed.text("continuationId");
    let path = format!("/v1/continuations/{id}/status");
    let token = claimed.text("token");
    let told = stage.call("GET", &path, &token, "").await;
    assert_eq!(told.status, 200);
    let status = &told.json;
    assert_eq!(status["state"], "claimed");
    assert_eq!(status["mode"], "reply");
    assert_eq!(status["taskKey"], "task");
    assert_eq!(status["attempts"], json!({ "synthesis": 0, "delivery": 0 }));
    assert_eq!(status["originContext"]["state"], "pinned");
    assert_eq!(status["originContext"]["messageCount"], 2);
    stage
        .submit(&claimed, json!({ "secret-finding": "forty-two" }))
        .await;
    stage.told(|told| {
        told.synthesis = Some(crate::host::Synthesis::Text("the spoken answer".into()))
    });
    stage.work().await;
    let told = stage.call("GET", &path, &token, "").await;
    assert_eq!(told.json["state"], "delivered");
    let receipt = &told.json["receipt"];
    assert_eq!(
        (
            &receipt["kind"],
            &receipt["deliveryId"],
            &receipt["channelId"]
        ),
        (&json!("delivered"), &json!("ts-1"), &json!("C"))
    );
    assert_eq!(receipt["historyRecorded"], true);
    assert_eq!(told.json["completionKind"], "synthesized");
    for never in [
        "forty-two",
        "secret-finding",
        "spoken",
        "work-control",
        "slack:",
        &token,
    ] {
        assert!(
            !told.json.to_string().contains(never),
            "{never} in {}",
            told.json
        );
    }
}

#[tokio::test]
async fn an_early_result_waits_for_its_origin_in_every_mode() {
    for mode in [
        Mode::Reply,
        Mode::NotifyIfActionable,
        Mode::Capture,
        Mode::Silent,
    ] {
        let stage = Stage::new();
        let binding = stage.issue("run-1", "work-control", mode);
        let claimed = stage.claim(&binding, "task").await;
        let told = stage.submit(&claimed, json!({ "actionable": false })).await;
        assert_eq!(told.text("state"), "result_received");
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(
            (record.state, record.synthesis_deferrals),
            (State::ResultReceived, 1),
            "{mode:?}"
        );
        stage.pass(Duration::from_secs(3));
        stage.work().await;
        assert_eq!(stage.record(&claimed).synthesis_deferrals, 2);
        assert!(stage.origins.close("run-1").await.unwrap());
        stage
            .origins
            .finalize("run-1", "please", "started", &[])
            .await
            .unwrap();
        stage.pass(Duration::from_secs(5));
        stage.work().await;
        assert_eq!(
            stage.record(&claimed).state,
            State::ResultReceived,
            "{mode:?}"
        );
        stage.origins.activate("run-1").await.unwrap();
        // At once, whatever the deferral said.
        stage.work().await;
        assert_eq!(stage.record(&claimed).state, State::Delivered, "{mode:?}");
    }
}
