//! What becomes of an accepted result: modes, synthesis, delivery, and ends in between.

use super::stage::{START, Stage, settings};
use crate::engine::{Answer, Question};
use crate::host::{Delivery, Readiness, Synthesis};
use continuation_record::{Mode, ReceiptKind, State};
use serde_json::json;
use std::time::Duration;

fn retryable(retry_after: Option<Duration>) -> Delivery {
    Delivery::Retryable {
        retry_after,
        code: "busy".into(),
        reason: "later".into(),
    }
}

#[tokio::test]
async fn each_mode_ends_in_its_own_way() {
    let stage = Stage::new();
    for (run, mode, payload, kind, asked, sent) in [
        (
            "a",
            Mode::Reply,
            json!({ "actionable": false }),
            ReceiptKind::Delivered,
            1,
            1,
        ),
        (
            "b",
            Mode::NotifyIfActionable,
            json!({ "summary": "x" }),
            ReceiptKind::Delivered,
            1,
            1,
        ),
        (
            "c",
            Mode::NotifyIfActionable,
            json!({ "status": " Nothing_to_report" }),
            ReceiptKind::Suppressed,
            0,
            0,
        ),
        (
            "d",
            Mode::Capture,
            json!({ "actionable": false }),
            ReceiptKind::Captured,
            1,
            0,
        ),
        (
            "e",
            Mode::Silent,
            json!({ "summary": "x" }),
            ReceiptKind::Silent,
            0,
            0,
        ),
    ] {
        let claimed = stage.committed(run, mode, "task").await;
        stage.submit(&claimed, payload).await;
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(record.receipt.unwrap().kind, kind, "{run}");
        stage.told(|told| {
            // The history has what was posted, and nothing else.
            assert_eq!(
                (told.synthesized.len(), told.sent.len(), told.entries.len()),
                (asked, sent, sent),
                "{run}"
            );
            told.synthesized.clear();
            told.sent.clear();
            told.entries.clear();
        });
        let text = stage
            .operator
            .captured_text(&claimed.text("continuationId"))
            .unwrap();
        assert_eq!(
            text.as_deref(),
            (mode == Mode::Capture).then_some("the answer"),
            "{run}"
        );
    }
}

#[tokio::test]
async fn the_text_is_on_the_disk_before_it_is_sent_and_the_marks_before_each_step() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let id = claimed.text("continuationId");
    stage
        .process(&id, |question| {
            let record = stage.store.record(&id);
            match question {
                Question::Synthesize(_) => {
                    assert_eq!(
                        (record.state, record.synthesis_attempts),
                        (State::Synthesizing, 1)
                    );
                    assert!(record.lease_owner.is_some() && record.synthesis_started_at.is_some());
                }
                Question::Deliver(request) => {
                    assert_eq!(record.synthesized_text.as_deref(), Some("the answer"));
                    assert_eq!(
                        (record.delivery_attempts, record.delivery_started_at),
                        (1, Some(START))
                    );
                    assert_eq!(request.key, format!("continuation:{id}"));
                    assert_eq!(request.text, "the answer");
                }
                Question::Enter { .. } => {
                    assert_eq!(record.state, State::Delivered);
                    assert_eq!(record.receipt.unwrap().history_recorded, Some(false));
                }
                _ => {}
            }
            None
        })
        .await;
    assert_eq!(
        stage.record(&claimed).receipt.unwrap().history_recorded,
        Some(true)
    );
}

#[tokio::test]
async fn a_synthesis_that_failed_timed_out_or_was_interrupted_is_never_repeated() {
    for (answer, code) in [
        (Answer::TimedOut, "synthesis_timeout"),
        (
            Answer::Synthesis(Synthesis::Failed {
                code: "provider".into(),
                reason: "no".into(),
            }),
            "provider",
        ),
        (
            Answer::Synthesis(Synthesis::Text("  ".into())),
            "synthesis_invalid_text",
        ),
        (
            Answer::Synthesis(Synthesis::Text("x".repeat(200_001))),
            "synthesis_invalid_text",
        ),
        (Answer::Entered(Ok(())), "synthesis_threw"),
    ] {
        let stage = Stage::new();
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.submit(&claimed, json!(1)).await;
        let id = claimed.text("continuationId");
        stage
            .process(&id, |question| {
                matches!(question, Question::Synthesize(_)).then(|| answer.clone())
            })
            .await;
        let record = stage.record(&claimed);
        assert_eq!(
            (record.state, record.last_error.unwrap().code.as_str()),
            (State::DeadLettered, code)
        );
        let told = stage
            .operate("POST", &format!("continuations/{id}/retry"), "")
            .await;
        assert_eq!(told.code(), (409, "synthesis_not_retryable"));
        stage.pass(Duration::from_secs(3600));
        stage.work().await;
        stage.told(|told| assert!(told.synthesized.is_empty() && told.sent.is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_has_ten_minutes_and_a_channel_two() {
    for (payload, text, minutes, state, code) in [
        ("hang", "x", 10, State::DeadLettered, "synthesis_timeout"),
        (
            "go",
            "hang",
            2,
            State::DeliveryUnknown,
            "delivery_timeout_outcome_unknown",
        ),
    ] {
        let stage = Stage::new();
        stage.told(|told| {
            told.hangs_on = Some("hang".into());
            told.synthesis = Some(Synthesis::Text(text.into()));
        });
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.submit(&claimed, json!(payload)).await;
        let began = tokio::time::Instant::now();
        stage.work().await;
        assert_eq!(began.elapsed(), Duration::from_secs(60 * minutes));
        let record = stage.record(&claimed);
        assert_eq!(
            (record.state, record.last_error.unwrap().code.as_str()),
            (state, code)
        );
    }
}

#[tokio::test]
async fn the_longest_answer_is_kept_and_sent_whole() {
    let stage = Stage::new();
    let long = "ä".repeat(200_000);
    stage.told(|told| told.synthesis = Some(Synthesis::Text(format!("\n{long} "))));
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.work().await;
    stage.told(|told| assert!(told.sent[0].text == long));
}

#[tokio::test]
async fn a_model_or_channel_that_is_not_there_costs_no_attempt() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.told(|told| told.ready = Some(Readiness::Later { retry_after: None }));
    stage.work().await;
    let record = stage.record(&claimed);
    assert_eq!(
        (record.state, record.synthesis_attempts),
        (State::ResultReceived, 0)
    );
    assert_eq!(record.next_attempt_at, Some(START.plus_ms(1000)));
    stage.told(|told| {
        told.ready = None;
        told.synthesis = Some(Synthesis::Unavailable {
            retry_after: Some(Duration::from_secs(30)),
            reason: "queue full".into(),
        });
    });
    stage.pass(Duration::from_secs(1));
    stage.work().await;
    let record = stage.record(&claimed);
    assert_eq!(
        (record.state, record.synthesis_attempts),
        (State::ResultReceived, 0)
    );
    assert_eq!(record.next_attempt_at, Some(START.plus_ms(31_000)));
    stage.told(|told| told.synthesis = None);
    stage.pass(Duration::from_secs(30));
    stage.work().await;
    assert_eq!(stage.record(&claimed).state, State::Delivered);
}

#[tokio::test]
async fn allowlists_are_asked_again_before_the_model_and_before_each_send() {
    let refused = || {
        Some(Readiness::Refused {
            reason: "not allowed any more".into(),
        })
    };
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.told(|told| told.ready = refused());
    stage.work().await;
    let record = stage.record(&claimed);
    assert_eq!(
        (record.state, record.last_error.unwrap().code.as_str()),
        (State::DeadLettered, "destination_refused")
    );
    stage.told(|told| assert!(told.synthesized.is_empty() && told.sent.is_empty()));
    // Revoked while the model answered: the text is not sent, and nowhere else either.
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let id = claimed.text("continuationId");
    stage
        .process(&id, |question| {
            if matches!(question, Question::Synthesize(_)) {
                stage.told(|told| told.ready = refused());
            }
            None
        })
        .await;
    assert_eq!(stage.record(&claimed).state, State::DeadLettered);
    stage.told(|told| {
        assert!(told.sent.is_empty());
        assert!(told.asked_ready.iter().all(|target| target == "slack:C:T"));
        told.ready = None;
    });
    // Its text is kept, so an operator may send it once the place is allowed again.
    let told = stage
        .operate("POST", &format!("continuations/{id}/retry"), "")
        .await;
    assert_eq!(told.status, 200);
    stage.work().await;
    stage.told(|told| assert_eq!(told.sent.len(), 1));
}

#[tokio::test]
async fn a_retryable_delivery_is_tried_again_with_one_key_and_ends_after_twenty() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.told(|told| told.delivery = Some(retryable(None)));
    for attempt in 1..=20 {
        stage.work().await;
        let record = stage.record(&claimed);
        assert_eq!(record.delivery_attempts, attempt);
        match record.next_attempt_at {
            Some(next) => {
                let wait = next.since(stage.desk.waiting());
                assert!((1000..=3_600_000).contains(&wait), "{attempt}: {wait}");
                stage.pass(Duration::from_millis(u64::try_from(wait).unwrap()));
            }
            None => assert_eq!((attempt, record.state), (20, State::DeadLettered)),
        }
    }
    stage.told(|told| {
        assert_eq!((told.synthesized.len(), told.sent.len()), (1, 20));
        assert!(told.sent.iter().all(|sent| *sent == told.sent[0]));
    });
    assert_eq!(
        stage.record(&claimed).last_error.unwrap().code,
        "delivery_attempts_exhausted"
    );
}

#[tokio::test]
async fn a_channel_may_say_when_to_come_back() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.told(|told| told.delivery = Some(retryable(Some(Duration::from_secs(77)))));
    stage.work().await;
    assert_eq!(
        stage.record(&claimed).next_attempt_at,
        Some(START.plus_ms(77_000))
    );
}

#[tokio::test]
async fn a_partial_or_unprovable_delivery_is_unknown_and_never_posted_again() {
    for (answer, code) in [
        (Answer::TimedOut, "delivery_timeout_outcome_unknown"),
        (
            Answer::Delivery(Delivery::Unknown {
                code: "partial_delivery".into(),
                reason: "1 of 2".into(),
            }),
            "partial_delivery",
        ),
        (Answer::Entered(Ok(())), "delivery_threw"),
    ] {
        let stage = Stage::new();
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.submit(&claimed, json!(1)).await;
        let id = claimed.text("continuationId");
        stage
            .process(&id, |question| {
                matches!(question, Question::Deliver(_)).then(|| answer.clone())
            })
            .await;
        let record = stage.record(&claimed);
        assert_eq!(
            (record.state, record.last_error.unwrap().code.as_str()),
            (State::DeliveryUnknown, code)
        );
        stage.pass(Duration::from_secs(3600));
        stage.work().await;
        stage.told(|told| assert!(told.sent.is_empty() && told.entries.is_empty()));
    }
}

#[tokio::test]
async fn a_permanent_refusal_is_dead_lettered() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let refusal = Delivery::Permanent {
        code: "not_allowlisted".into(),
        reason: "no".into(),
    };
    stage.told(|told| told.delivery = Some(refusal));
    stage.work().await;
    let record = stage.record(&claimed);
    assert_eq!(
        (record.state, record.last_error.unwrap().code.as_str()),
        (State::DeadLettered, "not_allowlisted")
    );
    stage.told(|told| assert_eq!((told.sent.len(), told.entries.len()), (1, 0)));
}

#[tokio::test]
async fn a_history_that_fails_after_the_post_degrades_and_reposts_nothing() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    stage.told(|told| told.entered = Some(Err("history_full".into())));
    stage.work().await;
    let receipt = stage.record(&claimed).receipt.unwrap();
    assert_eq!(
        (
            receipt.history_recorded,
            receipt.history_error_code.as_deref()
        ),
        (Some(false), Some("history_full"))
    );
    let health = stage.operator.health().unwrap();
    assert_eq!(
        (&health["status"], &health["storage"]["historyDegraded"]),
        (&json!("degraded"), &json!(1))
    );
    stage.pass(Duration::from_secs(3600));
    stage.work().await;
    stage.told(|told| assert_eq!((told.sent.len(), told.entries.len()), (1, 1)));
}

#[tokio::test]
async fn an_adapter_that_records_itself_is_believed() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let delivered = Delivery::Delivered {
        delivery_id: None,
        channel_id: None,
        history: Some(Ok(())),
    };
    stage.told(|told| told.delivery = Some(delivered));
    stage.work().await;
    assert_eq!(
        stage.record(&claimed).receipt.unwrap().history_recorded,
        Some(true)
    );
    stage.told(|told| assert!(told.entries.is_empty()));
}

#[tokio::test]
async fn the_deadline_ends_what_waits_and_what_comes_too_late() {
    let day = Duration::from_secs(24 * 3600);
    // Before any result.
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.pass(day);
    stage.work().await;
    assert_eq!(stage.record(&claimed).state, State::Expired);
    // While the model answers.
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let id = claimed.text("continuationId");
    let late = |question: &Question| {
        if matches!(question, Question::Synthesize(_)) {
            stage.pass(day);
        }
        None
    };
    stage.process(&id, late).await;
    assert_eq!(stage.record(&claimed).state, State::Expired);
    stage.told(|told| assert!(told.sent.is_empty()));
    // While the channel is asked whether it is there.
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let id = claimed.text("continuationId");
    let late = |question: &Question| {
        if matches!(question, Question::Ready { .. })
            && stage.store.record(&id).state == State::ReadyToDeliver
        {
            stage.pass(day);
        }
        None
    };
    stage.process(&id, late).await;
    assert_eq!(stage.record(&claimed).state, State::Expired);
    stage.told(|told| assert!(told.sent.is_empty()));
}

#[tokio::test]
async fn a_restart_repeats_neither_a_model_nor_a_post_that_was_begun() {
    for (stop_at, state, code) in [
        (
            "synthesis",
            State::DeadLettered,
            "synthesis_outcome_unknown",
        ),
        ("delivery", State::DeliveryUnknown, "delivery_interrupted"),
    ] {
        let stage = Stage::new();
        let claimed = stage.committed("run-1", Mode::Reply, "task").await;
        stage.submit(&claimed, json!(1)).await;
        let id = claimed.text("continuationId");
        let mut step = stage.engine.start(&id).await.unwrap();
        while let crate::engine::Step::Ask(job, question) = step {
            let stops = match &question {
                Question::Synthesize(_) => stop_at == "synthesis",
                Question::Deliver(_) => stop_at == "delivery",
                _ => false,
            };
            if stops {
                // The process ends here.
                break;
            }
            let answer =
                crate::service::put(&*stage.host, question, &stage.desk.settings.limits).await;
            step = stage.engine.advance(job, answer).await.unwrap();
        }
        let next = Stage::over(stage.store.clone(), settings());
        crate::service::recover(&next.desk).await.unwrap();
        next.work().await;
        let record = next.record(&claimed);
        assert_eq!(
            (record.state, record.last_error.unwrap().code.as_str()),
            (state, code)
        );
        next.told(|told| assert!(told.synthesized.is_empty() && told.sent.is_empty()));
    }
}

#[tokio::test]
async fn a_restart_before_anything_began_goes_on() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let next = Stage::over(stage.store.clone(), settings());
    crate::service::recover(&next.desk).await.unwrap();
    next.work().await;
    assert_eq!(next.record(&claimed).state, State::Delivered);
}

#[tokio::test]
async fn tombstones_and_texts_are_kept_within_their_bounds() {
    use super::memory::RETENTION;
    let stage = Stage::new();
    let mut captures = Vec::new();
    for n in 0..25 {
        let route = if n % 5 == 0 { "verify" } else { "index" };
        let claimed = stage.detached(route, &format!("task-{n}")).await;
        stage.submit(&claimed, json!(1)).await;
        stage.work().await;
        stage.pass(Duration::from_secs(1));
        if route == "verify" {
            captures.push(claimed);
        }
    }
    stage.desk.keeper.retain(stage.desk.now()).await.unwrap();
    assert_eq!(stage.store.count(), RETENTION.terminal_max_records);
    let text = |claimed: &super::stage::Told2| {
        let id = claimed.text("continuationId");
        stage.operator.captured_text(&id).unwrap()
    };
    // The first is gone with its record, the second has lost its text, the last three have it.
    let texts: Vec<_> = captures
        .iter()
        .map(|claimed| text(claimed).is_some())
        .collect();
    assert_eq!(texts, [false, false, true, true, true]);
    stage.pass(Duration::from_secs(30 * 24 * 3600));
    stage.desk.keeper.retain(stage.desk.now()).await.unwrap();
    assert!(captures.iter().all(|claimed| text(claimed).is_none()));
    assert_eq!(stage.store.count(), RETENTION.terminal_max_records);
    stage.pass(Duration::from_secs(336 * 24 * 3600));
    stage.desk.keeper.retain(stage.desk.now()).await.unwrap();
    assert_eq!(stage.store.count(), 0);
}

#[tokio::test]
async fn an_answer_that_could_not_be_stored_at_once_is_stored_later_and_nothing_is_repeated() {
    use crate::engine::Step;
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    stage.submit(&claimed, json!(1)).await;
    let mut step = stage
        .engine
        .start(&claimed.text("continuationId"))
        .await
        .unwrap();
    while let Step::Ask(job, question) = step {
        let answer = crate::service::put(&*stage.host, question, &stage.desk.settings.limits).await;
        *stage.store.refuse.lock().unwrap() = Some(crate::Rejection::busy());
        let _ = stage.engine.advance(job.clone(), answer.clone()).await;
        *stage.store.refuse.lock().unwrap() = None;
        step = stage.engine.advance(job, answer).await.unwrap();
    }
    assert_eq!(stage.record(&claimed).state, State::Delivered);
    stage.told(|told| assert_eq!((told.synthesized.len(), told.sent.len()), (1, 1)));
}
