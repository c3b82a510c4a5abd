//! Turns that ask for background work: close, finalise, activate, abandon, and what a start makes of the rest.

use super::stage::{START, Stage, settings};
use crate::host::{Commitment, Context, Delivery};
use crate::origin::OriginError;
use continuation_record::snapshot::{SnapshotMessage, SnapshotRole};
use continuation_record::state::FIXED_ANSWER;
use continuation_record::{CompletionKind, Mode, OriginContextState, State};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_turn_without_claims_needs_no_snapshot() {
    let stage = Stage::new();
    stage.issue("run-1", "work-control", Mode::Reply);
    assert!(!stage.origins.close("run-1").await.unwrap());
    assert!(!stage.origins.close("unknown").await.unwrap());
    // Nothing is left of a run that claimed nothing: there are many such.
    assert!(stage.desk.bindings.of_run("run-1").is_empty());
    stage
        .origins
        .finalize("run-1", "u", "a", &[])
        .await
        .unwrap();
    stage.origins.activate("run-1").await.unwrap();
}

#[tokio::test]
async fn a_closed_capability_claims_nothing_more() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    stage.claim(&binding, "a").await;
    assert!(stage.origins.close("run-1").await.unwrap());
    assert_eq!(
        stage.claim(&binding, "b").await.code(),
        (401, "invalid_claim_capability")
    );
    // Not even the one that it has.
    assert_eq!(
        stage.claim(&binding, "a").await.code(),
        (401, "invalid_claim_capability")
    );
}

#[tokio::test]
async fn all_servers_of_a_run_share_one_snapshot_and_one_activation() {
    let stage = Stage::new();
    let one = stage.issue("run-1", "first", Mode::Reply);
    let two = stage.issue("run-1", "second", Mode::Reply);
    let claims = [
        stage.claim(&one, "a").await,
        stage.claim(&one, "b").await,
        stage.claim(&two, "a").await,
    ];
    stage.origins.close("run-1").await.unwrap();
    stage
        .origins
        .finalize("run-1", "please", "started", &[])
        .await
        .unwrap();
    let records: Vec<_> = claims.iter().map(|claimed| stage.record(claimed)).collect();
    for record in &records {
        assert_eq!(record.origin_context_state, OriginContextState::Pending);
        assert_eq!(
            record.origin_context_digest,
            records[0].origin_context_digest
        );
    }
    // Bound to its own claim each.
    assert_ne!(
        records[0].origin_context_binding_mac,
        records[1].origin_context_binding_mac
    );
    assert_ne!(
        records[0].origin_context_fingerprint,
        records[2].origin_context_fingerprint
    );
    stage.origins.activate("run-1").await.unwrap();
    for claimed in &claims {
        assert_eq!(
            stage.record(claimed).origin_context_state,
            OriginContextState::Pinned
        );
    }
}

#[tokio::test]
async fn an_origin_that_does_not_fit_or_can_not_be_stored_fails_the_turn() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let claimed = stage.claim(&binding, "a").await;
    stage.origins.close("run-1").await.unwrap();
    let over = "x".repeat(64 * 1024 + 1);
    let told = stage.origins.finalize("run-1", &over, "a", &[]).await;
    assert!(matches!(told, Err(OriginError::Snapshot(_))), "{told:?}");
    *stage.store.refuse.lock().unwrap() = Some(crate::Rejection::busy());
    let told = stage.origins.finalize("run-1", "u", "a", &[]).await;
    assert!(matches!(told, Err(OriginError::Store(_))), "{told:?}");
    *stage.store.refuse.lock().unwrap() = None;
    stage
        .origins
        .abandon("run-1", "the turn failed")
        .await
        .unwrap();
    let record = stage.record(&claimed);
    assert_eq!(record.origin_context_state, OriginContextState::Abandoned);
    assert_eq!(
        record.last_error.unwrap().code,
        "origin_context_unavailable"
    );
}

#[tokio::test]
async fn an_abandoned_origin_gets_the_fixed_answer_without_a_model_but_by_the_usual_way() {
    let stage = Stage::new();
    for (run, mode, state) in [
        ("reply", Mode::Reply, State::Delivered),
        ("notify", Mode::NotifyIfActionable, State::Delivered),
        ("capture", Mode::Capture, State::Delivered),
        ("silent", Mode::Silent, State::Delivered),
    ] {
        let binding = stage.issue(run, "work-control", mode);
        let claimed = stage.claim(&binding, "task").await;
        stage.origins.abandon(run, "cancelled").await.unwrap();
        stage.submit(&claimed, json!({ "summary": "x" })).await;
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(record.state, state, "{run}");
        if mode != Mode::Silent {
            assert_eq!(
                record.completion_kind,
                Some(CompletionKind::OriginContextUnavailable),
                "{run}"
            );
            assert_eq!(record.synthesis_attempts, 0);
        }
        let id = claimed.text("continuationId");
        let captured = stage.operator.captured_text(&id).unwrap();
        assert_eq!(
            captured.as_deref(),
            (mode == Mode::Capture).then_some(FIXED_ANSWER)
        );
    }
    stage.told(|told| {
        assert!(told.synthesized.is_empty());
        let texts: Vec<_> = told.sent.iter().map(|sent| sent.text.as_str()).collect();
        assert_eq!(texts, [FIXED_ANSWER, FIXED_ANSWER]);
    });
}

#[tokio::test]
async fn a_snapshot_that_is_missing_or_changed_gets_the_fixed_answer_while_its_seal_holds() {
    for broken in [
        (|_: &str| None) as fn(&str) -> Option<String>,
        |text| Some(text.replace("started", "stopped")),
        |text| Some(format!("{text} ")),
        |_| Some(String::new()),
    ] {
        let stage = Stage::new();
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.store.tamper_blobs(broken);
        stage.submit(&claimed, json!(1)).await;
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(record.state, State::Delivered);
        assert_eq!(
            record.completion_kind,
            Some(CompletionKind::OriginContextUnavailable)
        );
        stage.told(|told| {
            assert!(told.synthesized.is_empty());
            assert_eq!(told.sent[0].text, FIXED_ANSWER);
        });
    }
}

#[tokio::test]
async fn altered_claim_metadata_is_dead_lettered_and_nothing_is_delivered() {
    use continuation_record::Record;
    let alterations: [fn(&mut Record); 9] = [
        |r| r.reply_to_conversation_id = Some("slack:EVIL".into()),
        |r| r.origin_conversation_id = "slack:C:T#2030-03-18".into(),
        |r| r.mode = Mode::Capture,
        |r| r.mode = Mode::Silent,
        |r| r.task_key = "another".into(),
        |r| r.deadline = r.deadline.plus_ms(1),
        |r| r.server_name = "another".into(),
        |r| r.origin_context_binding_mac = Some("0".repeat(64)),
        |r| r.origin_context_fingerprint = Some("0".repeat(64)),
    ];
    for (n, alter) in alterations.into_iter().enumerate() {
        let stage = Stage::new();
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.submit(&claimed, json!(1)).await;
        stage.store.tamper(&claimed.text("continuationId"), alter);
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(record.state, State::DeadLettered, "{n}");
        assert_eq!(
            record.last_error.unwrap().code,
            "origin_binding_invalid",
            "{n}"
        );
        stage.told(|told| assert!(told.synthesized.is_empty() && told.sent.is_empty(), "{n}"));
    }
}

/// A text may wait for its channel for hours.
#[tokio::test]
async fn what_is_altered_while_it_waits_is_not_delivered_either() {
    use continuation_record::Record;
    let alterations: [fn(&mut Record); 2] = [
        |r| r.reply_to_conversation_id = Some("slack:EVIL".into()),
        |r| r.origin_context_binding_mac = Some("0".repeat(64)),
    ];
    for (n, alter) in alterations.into_iter().enumerate() {
        let stage = Stage::new();
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.submit(&claimed, json!(1)).await;
        let later = Delivery::Retryable {
            retry_after: None,
            code: "busy".into(),
            reason: "later".into(),
        };
        stage.told(|told| told.delivery = Some(later));
        stage.work().await;
        assert_eq!(stage.record(&claimed).state, State::DeliveryRetry);
        let id = claimed.text("continuationId");
        stage.store.tamper(&id, alter);
        stage.told(|told| told.delivery = None);
        stage.pass(Duration::from_secs(3600));
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(
            (record.state, record.last_error.unwrap().code.as_str()),
            (State::DeadLettered, "origin_binding_invalid"),
            "{n}"
        );
        // Nor by an operator, who can't see where it would go.
        let refused = stage.operator.retry(&id, true).await.unwrap_err();
        assert_eq!(refused.code, "synthesis_not_retryable");
        stage.work().await;
        stage.told(|told| assert_eq!(told.sent.len(), 1, "{n}"));
    }
}

#[tokio::test]
async fn what_was_migrated_without_a_snapshot_takes_the_fixed_answer() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage
        .store
        .tamper(&claimed.text("continuationId"), |record| {
            record.origin_context_state = OriginContextState::LegacyMissing;
            record.origin_context_ref = None;
        });
    stage.submit(&claimed, json!(1)).await;
    stage.work().await;
    stage.told(|told| {
        assert_eq!(
            (told.synthesized.len(), told.sent[0].text.as_str()),
            (0, FIXED_ANSWER)
        )
    });
}

fn said(content: &str) -> [SnapshotMessage; 2] {
    [
        SnapshotMessage::new(SnapshotRole::User, content),
        SnapshotMessage::new(SnapshotRole::Assistant, content),
    ]
}

#[tokio::test]
async fn synthesis_sees_the_pinned_history_and_the_bucket_of_its_day() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let claimed = stage.claim(&binding, "task").await;
    stage.origins.close("run-1").await.unwrap();
    stage
        .origins
        .finalize("run-1", "please", "started", &said("before"))
        .await
        .unwrap();
    stage.origins.activate("run-1").await.unwrap();
    // The conversation goes on, and midnight passes.
    stage.told(|told| told.history = said("after").to_vec());
    stage.pass(Duration::from_secs(8 * 3600));
    stage.submit(&claimed, json!({ "summary": "x" })).await;
    stage.work().await;
    stage.told(|told| {
        let request = &told.synthesized[0];
        assert_eq!(request.conversation, "slack:C:T#2030-03-17");
        assert_eq!(
            (
                request.origin_run.as_str(),
                request.history_boundary.as_deref()
            ),
            ("run-1", Some("run-1"))
        );
        let Context::Pinned(snapshot) = &request.context else {
            panic!("{request:?}")
        };
        let contents: Vec<_> = snapshot
            .messages
            .iter()
            .map(|m| m.content.as_str())
            .collect();
        assert_eq!(contents, ["before", "before", "please", "started"]);
        assert_eq!(snapshot.captured_at, START);
        // Delivered to the physical place, recorded in the logical history of that day.
        assert_eq!(told.sent[0].target, "slack:C:T");
        assert_eq!(told.entries[0].0, "slack:C:T#2030-03-17");
    });
}

#[tokio::test]
async fn a_detached_route_sees_the_latest_history() {
    let stage = Stage::new();
    stage.told(|told| told.history = said("latest").to_vec());
    let claimed = stage.detached("daily", "task").await;
    stage.submit(&claimed, json!({ "summary": "x" })).await;
    stage.work().await;
    stage.told(|told| {
        assert!(matches!(&told.synthesized[0].context, Context::DetachedLatest(messages) if messages.len() == 2));
        assert_eq!(told.sent[0].target, "slack:C:T");
    });
}

#[tokio::test]
async fn a_start_asks_the_owner_of_the_history_what_became_of_an_origin() {
    for (told, finalized, state) in [
        (Commitment::Committed, true, OriginContextState::Pinned),
        (Commitment::Committed, false, OriginContextState::Abandoned),
        (
            Commitment::NotCommitted,
            true,
            OriginContextState::Abandoned,
        ),
        (
            Commitment::NotCommitted,
            false,
            OriginContextState::Abandoned,
        ),
        (Commitment::Unknown, true, OriginContextState::Pending),
    ] {
        let stage = Stage::new();
        let binding = stage.issue("run-1", "work-control", Mode::Reply);
        let claimed = stage.claim(&binding, "task").await;
        stage.origins.close("run-1").await.unwrap();
        if finalized {
            stage
                .origins
                .finalize("run-1", "u", "a", &[])
                .await
                .unwrap();
        }
        let next = Stage::over(stage.store.clone(), settings());
        next.told(|host| host.committed = Some(told));
        crate::service::recover(&next.desk).await.unwrap();
        let record = next.record(&claimed);
        assert_eq!(record.origin_context_state, state, "{told:?} {finalized}");
        // What nobody could say at the start is asked again when it is needed.
        if told == Commitment::Unknown {
            next.told(|host| host.committed = Some(Commitment::Committed));
            next.submit(&claimed, json!(1)).await;
            next.work().await;
            assert_eq!(next.record(&claimed).state, State::Delivered);
        }
    }
}

#[tokio::test]
async fn a_running_turn_is_not_abandoned_because_its_history_does_not_know_it_yet() {
    let stage = Stage::new();
    stage.told(|told| told.committed = Some(Commitment::NotCommitted));
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let claimed = stage.claim(&binding, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.work().await;
    assert_eq!(
        stage.record(&claimed).origin_context_state,
        OriginContextState::Pending
    );
}

/// A run whose end nobody could settle has closed capabilities that nobody forgets.
#[tokio::test]
async fn an_origin_that_was_closed_and_never_settled_is_settled_with_its_result() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let claimed = stage.claim(&binding, "task").await;
    stage.origins.close("run-1").await.unwrap();
    stage.told(|told| told.committed = Some(Commitment::NotCommitted));
    stage.submit(&claimed, json!(1)).await;
    stage.work().await;
    let record = stage.record(&claimed);
    assert_eq!(
        (record.state, record.completion_kind),
        (
            State::Delivered,
            Some(CompletionKind::OriginContextUnavailable)
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_does_not_wait_for_each_origin_that_nobody_can_tell_of() {
    let stage = Stage::new();
    let mut last = None;
    for run in ["a", "b", "c", "d", "e"] {
        let binding = stage.issue(run, "work-control", Mode::Reply);
        last = Some(stage.claim(&binding, "task").await);
    }
    let next = Stage::over(stage.store.clone(), settings());
    next.told(|told| told.is_history_silent = true);
    let began = tokio::time::Instant::now();
    crate::service::recover(&next.desk).await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(31));
    let last = last.unwrap();
    assert_eq!(
        next.record(&last).origin_context_state,
        OriginContextState::Pending
    );
    next.told(|told| {
        told.is_history_silent = false;
        told.committed = Some(Commitment::NotCommitted);
    });
    next.submit(&last, json!(1)).await;
    next.work().await;
    assert_eq!(next.record(&last).state, State::Delivered);
}
