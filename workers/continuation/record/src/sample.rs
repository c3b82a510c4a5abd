//! Records for tests: one in each situation that they tell apart. Only with the feature `sample`.
#![allow(clippy::expect_used, reason = "a test's own mistake")]

use crate::{
    CompletionKind, ContextRef, Mode, OriginContextState, Payload, Receipt, ReceiptKind, Record,
    State, Time,
};

/// When all of them begin.
pub const START: Time = Time::from_ms(1_800_000_000_000);

/// So many milliseconds after [`START`].
#[must_use]
pub fn at(ms: i64) -> Time {
    START.plus_ms(ms)
}

/// The name of the record of a number.
#[must_use]
pub fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// A claim that waits for its result.
///
/// # Panics
/// When the number is no time.
#[must_use]
pub fn claimed(number: usize) -> Record {
    let time = at(i64::try_from(number).expect("small"));
    Record {
        continuation_id: id(number),
        server_name: "work-control".to_owned(),
        origin_run_id: "run-1".to_owned(),
        origin_conversation_id: "slack:D1:1.1#2026-07-14".to_owned(),
        reply_to_conversation_id: Some("slack:D1:1.1".to_owned()),
        history_boundary: Some("run-1".to_owned()),
        origin_context_state: OriginContextState::Pending,
        origin_context_ref: None,
        origin_context_digest: None,
        origin_context_message_count: None,
        origin_context_fingerprint: None,
        origin_context_binding_mac: None,
        completion_kind: None,
        mode: Mode::Reply,
        route_name: None,
        task_key: format!("task-{number}"),
        task_hash: "0".repeat(64),
        claim_fingerprint: "a".repeat(64),
        result_token_hash: "b".repeat(64),
        created_at: time,
        updated_at: time,
        deadline: time.plus_ms(3_600_000),
        state: State::Claimed,
        result_idempotency_key: None,
        result_payload_hash: None,
        result_payload: None,
        synthesis_attempts: 0,
        synthesis_deferrals: 0,
        synthesis_started_at: None,
        synthesized_text: None,
        actionable: None,
        delivery_attempts: 0,
        delivery_started_at: None,
        next_attempt_at: None,
        lease_owner: None,
        lease_until: None,
        last_error: None,
        receipt: None,
        compacted_at: None,
    }
}

/// A snapshot's text, as far as the store looks into it.
#[must_use]
pub fn context(name: &str) -> String {
    format!("{{\"conversationId\":\"{name}\"}}")
}

/// Bound to a snapshot.
#[must_use]
pub fn bound(record: Record, digest: &str, text: &str) -> Record {
    Record {
        origin_context_ref: Some(ContextRef {
            schema_version: 1,
            digest: digest.to_owned(),
            bytes: text.len() as u64,
            message_count: 2,
        }),
        origin_context_digest: Some(digest.to_owned()),
        origin_context_message_count: Some(2),
        origin_context_fingerprint: Some("d".repeat(64)),
        origin_context_binding_mac: Some("e".repeat(64)),
        ..record
    }
}

/// With a result.
///
/// # Panics
/// When the payload is no JSON.
#[must_use]
pub fn received(record: Record, payload: &str) -> Record {
    let payload = Payload::parse(payload).expect("JSON");
    Record {
        state: State::ResultReceived,
        result_idempotency_key: Some("key".to_owned()),
        result_payload_hash: Some(payload.hash()),
        result_payload: Some(payload),
        ..record
    }
}

/// With an answer that is to be delivered.
#[must_use]
pub fn ready(record: Record, text: &str) -> Record {
    Record {
        state: State::ReadyToDeliver,
        synthesized_text: Some(text.to_owned()),
        completion_kind: Some(CompletionKind::Synthesized),
        synthesis_attempts: 1,
        ..record
    }
}

/// With its receipt.
#[must_use]
pub fn delivered(record: Record, at: Time) -> Record {
    Record {
        state: State::Delivered,
        result_payload: None,
        synthesized_text: None,
        origin_context_ref: None,
        origin_context_state: OriginContextState::Scrubbed,
        receipt: Some(Receipt {
            kind: ReceiptKind::Delivered,
            delivered_at: at,
            delivery_id: Some("1".to_owned()),
            channel_id: None,
            history_recorded: Some(true),
            history_error_code: None,
        }),
        compacted_at: Some(at),
        updated_at: at,
        delivery_attempts: 1,
        ..record
    }
}

/// Past its deadline.
#[must_use]
pub fn expired(record: Record, at: Time) -> Record {
    Record {
        state: State::Expired,
        result_payload: None,
        origin_context_ref: None,
        origin_context_state: OriginContextState::Scrubbed,
        compacted_at: Some(at),
        updated_at: at,
        ..record
    }
}

/// Refused by its channel for now.
#[must_use]
pub fn retrying(record: Record, at: Time) -> Record {
    Record {
        state: State::DeliveryRetry,
        next_attempt_at: Some(at),
        ..record
    }
}

/// Perhaps delivered.
#[must_use]
pub fn unknown(record: Record, at: Time) -> Record {
    Record {
        state: State::DeliveryUnknown,
        origin_context_ref: None,
        origin_context_state: OriginContextState::Scrubbed,
        updated_at: at,
        ..record
    }
}
