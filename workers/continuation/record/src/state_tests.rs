#![allow(clippy::unwrap_used)]
use super::*;
use crate::record::ContextRef;
use crate::validate::validate;
use crate::{Payload, binding};
use proptest::prelude::*;

const NOW: Time = Time::from_ms(1_900_000_000_000);
const FAULT: Fault<'static> = Fault {
    code: "code",
    reason: "reason",
};

fn hash(text: &str) -> String {
    crate::canonical::sha256_hex(text.as_bytes())
}

fn reference() -> ContextRef {
    ContextRef {
        schema_version: 1,
        digest: hash("snapshot"),
        bytes: 100,
        message_count: 2,
    }
}

fn payload() -> Payload {
    Payload::parse(r#"{"summary":"done"}"#).unwrap()
}

/// A claimed record whose origin is pinned.
fn claimed() -> Record {
    Record {
        continuation_id: "c-1".into(),
        origin_conversation_id: "slack:C:T#2030-01-01".into(),
        reply_to_conversation_id: Some("slack:C:T".into()),
        origin_context_state: OriginContextState::Pinned,
        origin_context_ref: Some(reference()),
        origin_context_digest: Some(reference().digest),
        origin_context_message_count: Some(2),
        origin_context_fingerprint: Some(hash("fingerprint")),
        origin_context_binding_mac: Some(hash("mac")),
        task_key: "key".into(),
        task_hash: "hash".into(),
        claim_fingerprint: binding::detached_fingerprint("s", "r", "reply", None),
        result_token_hash: hash("token"),
        created_at: NOW.plus_ms(-1000),
        updated_at: NOW.plus_ms(-1000),
        deadline: NOW.plus_ms(60_000),
        ..crate::sample::claimed(1)
    }
}

fn pending(mut record: Record) -> Record {
    record.origin_context_state = OriginContextState::Pending;
    record
}

fn step(record: &Record, event: Event<'_>) -> Record {
    match apply(record, event, NOW) {
        Outcome::Changed(next, _) => {
            validate(&next).unwrap();
            *next
        }
        other => panic!("{event:?} on {:?}: {other:?}", record.state),
    }
}

fn submit<'a>(payload: &'a Payload, hash: &'a str) -> Event<'a> {
    Event::Submit {
        key: "result",
        payload,
        hash,
    }
}

fn received() -> Record {
    let payload = payload();
    step(&claimed(), submit(&payload, &payload.hash()))
}

/// One record in each situation that the table tells apart.
fn situations() -> Vec<(&'static str, Record)> {
    let synthesizing = step(&received(), Event::BeginSynthesis { owner: "me" });
    let ready = step(&synthesizing, Event::Synthesized { text: "the answer" });
    let sending = step(&ready, Event::BeginDelivery { owner: "me" });
    let again = Event::Retryable {
        until: Some(NOW.plus_ms(1000)),
        fault: FAULT,
    };
    let retry = step(&sending, again);
    let cancelled = step(&claimed(), Event::Cancel);
    let mut past = claimed();
    past.deadline = NOW;
    vec![
        ("claimed", claimed()),
        ("past", past.clone()),
        ("received", received()),
        ("received, origin pending", pending(received())),
        ("synthesizing", synthesizing.clone()),
        ("ready", ready),
        ("sending", sending.clone()),
        ("retry", retry),
        (
            "delivered",
            step(&sending, Event::Delivered(Posted::default())),
        ),
        ("unknown", step(&sending, Event::Unprovable(FAULT))),
        ("expired", step(&past, Event::Expire)),
        ("cancelled", cancelled),
        (
            "dead, no text",
            step(&synthesizing, Event::SynthesisFailed(FAULT)),
        ),
        ("dead, text", step(&sending, Event::Permanent(FAULT))),
    ]
}

const ORDER: [&str; 14] = [
    "claimed",
    "past",
    "received",
    "received, origin pending",
    "synthesizing",
    "ready",
    "sending",
    "retry",
    "delivered",
    "unknown",
    "expired",
    "cancelled",
    "dead, no text",
    "dead, text",
];

/// `=` nothing changes; `!code` refused; `late STATE`; else the state that follows.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Changed(next, effect) => match effect {
            Effect::Nothing => next.state.name().to_owned(),
            Effect::Wake => format!("{} wake", next.state.name()),
            Effect::EnterHistory => format!("{} history", next.state.name()),
        },
        Outcome::Same => "=".to_owned(),
        Outcome::Late(next) => format!("late {}", next.state.name()),
        Outcome::Refused(Refused::OutOfPlace) => "-".to_owned(),
        Outcome::Refused(refused) => format!("!{}", refused.code()),
    }
}

fn row(event: Event<'_>) -> Vec<String> {
    let situations = situations();
    assert!(situations.iter().map(|(name, _)| *name).eq(ORDER));
    situations
        .iter()
        .map(|(name, record)| {
            validate(record).unwrap_or_else(|e| panic!("{name}: {e}"));
            let outcome = apply(record, event, NOW);
            if let Outcome::Changed(next, _) | Outcome::Late(next) = &outcome {
                validate(next).unwrap_or_else(|e| panic!("{event:?} on {name}: {e}"));
            }
            told(&outcome)
        })
        .collect()
}

fn expect(event: Event<'_>, expected: [&str; 14]) {
    let row = row(event);
    for ((situation, got), expected) in ORDER.iter().zip(&row).zip(expected) {
        assert_eq!(got, expected, "{event:?} on {situation}");
    }
}

#[test]
fn every_state_with_every_event() {
    let (own, other) = (payload(), Payload::parse("1").unwrap());
    let (own_hash, other_hash) = (own.hash(), other.hash());
    let dash = ["-"; 14];
    let at = |pairs: &[(usize, &'static str)]| {
        let mut row = dash;
        for (place, told) in pairs {
            row[*place] = told;
        }
        row
    };
    #[rustfmt::skip]
    let services: [(Event<'_>, [&str; 14]); 2] = [
        (submit(&own, &own_hash), ["result_received wake", "late expired", "=", "=", "=", "=", "=", "=", "=", "=", "!continuation_expired", "!result_not_accepted", "=", "="]),
        (submit(&other, &other_hash), ["result_received wake", "late expired", "!result_conflict", "!result_conflict", "!result_conflict", "!result_conflict", "!result_conflict", "!result_conflict", "!result_conflict", "!result_conflict", "!continuation_expired", "!result_not_accepted", "!result_conflict", "!result_conflict"]),
    ];
    for (event, expected) in services {
        expect(event, expected);
    }
    let until = NOW.plus_ms(5000);
    // The steps of processing, each in its own place only.
    expect(Event::Defer { until }, at(&[(3, "result_received")]));
    expect(
        Event::Hold {
            until,
            fault: FAULT,
        },
        at(&[(2, "result_received"), (3, "result_received")]),
    );
    expect(Event::Suppress, at(&[(2, "delivered")]));
    expect(Event::Silence, at(&[(2, "delivered")]));
    expect(
        Event::OriginUnavailable(FAULT),
        at(&[(2, "ready_to_deliver wake")]),
    );
    let refused: Vec<_> = [0, 1, 2, 3, 5, 7]
        .map(|place| (place, "dead_lettered"))
        .into();
    expect(Event::Refuse(FAULT), at(&refused));
    expect(Event::Forged, at(&refused));
    expect(
        Event::BeginSynthesis { owner: "me" },
        at(&[(2, "synthesizing")]),
    );
    expect(
        Event::NotAsked {
            until,
            fault: FAULT,
        },
        at(&[(4, "result_received")]),
    );
    expect(
        Event::Synthesized { text: " x " },
        at(&[(4, "ready_to_deliver wake")]),
    );
    expect(
        Event::Synthesized { text: " \n" },
        at(&[(4, "dead_lettered")]),
    );
    expect(Event::SynthesisFailed(FAULT), at(&[(4, "dead_lettered")]));
    expect(
        Event::BeginDelivery { owner: "me" },
        at(&[(5, "ready_to_deliver"), (7, "delivery_retry")]),
    );
    expect(
        Event::Delivered(Posted::default()),
        at(&[(6, "delivered history")]),
    );
    let again = Event::Retryable {
        until: Some(until),
        fault: FAULT,
    };
    expect(
        again,
        at(&[
            (5, "delivery_retry"),
            (6, "delivery_retry"),
            (7, "delivery_retry"),
        ]),
    );
    let exhausted = Event::Retryable {
        until: None,
        fault: FAULT,
    };
    expect(
        exhausted,
        at(&[
            (5, "dead_lettered"),
            (6, "dead_lettered"),
            (7, "dead_lettered"),
        ]),
    );
    expect(Event::Permanent(FAULT), at(&[(6, "dead_lettered")]));
    expect(Event::Unprovable(FAULT), at(&[(6, "delivery_unknown")]));
    expect(Event::History(Ok(())), at(&[(8, "delivered")]));
    expect(Event::Expire, at(&[(1, "expired")]));
    // What the origin and the operator do.
    #[rustfmt::skip]
    let others: [(Event<'_>, [&str; 14]); 8] = [
        (Event::Activate, ["=", "=", "=", "result_received wake", "=", "=", "=", "=", "-", "-", "-", "-", "-", "-"]),
        (Event::Abandon(FAULT), at(&[(3, "result_received wake")])),
        (Event::Retry { allow_unknown: false }, ["!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "ready_to_deliver wake", "!not_retryable", "!delivery_unknown", "!not_retryable", "!not_retryable", "!synthesis_not_retryable", "ready_to_deliver wake"]),
        (Event::Retry { allow_unknown: true }, ["!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "!not_retryable", "ready_to_deliver wake", "!not_retryable", "ready_to_deliver wake", "!not_retryable", "!not_retryable", "!synthesis_not_retryable", "ready_to_deliver wake"]),
        (Event::Cancel, ["cancelled", "cancelled", "cancelled", "cancelled", "!continuation_in_flight", "cancelled", "!continuation_in_flight", "cancelled", "!already_terminal", "!already_terminal", "!already_terminal", "=", "!already_terminal", "!already_terminal"]),
        (Event::Resolve(Resolution::Delivered { delivery_id: Some("ts") }), resolved("delivered history")),
        (Event::Resolve(Resolution::NotDelivered), resolved("ready_to_deliver wake")),
        (Event::Resolve(Resolution::DeadLettered), resolved("dead_lettered")),
    ];
    for (event, expected) in others {
        expect(event, expected);
    }
    #[rustfmt::skip]
    expect(Event::Recover, ["=", "expired", "=", "=", "dead_lettered", "=", "delivery_unknown", "=", "=", "=", "=", "=", "=", "="]);
}

fn resolved(state: &'static str) -> [&'static str; 14] {
    let mut row = ["!not_delivery_unknown"; 14];
    row[9] = state;
    row
}

fn situation(name: &str) -> Record {
    let found = situations().into_iter().find(|(known, _)| *known == name);
    found.unwrap().1
}

#[test]
fn settling_drops_payload_snapshot_and_all_texts_but_those_that_are_kept() {
    for name in [
        "delivered",
        "expired",
        "cancelled",
        "dead, no text",
        "dead, text",
    ] {
        let record = situation(name);
        assert!(
            record.result_payload.is_none() && record.origin_context_ref.is_none(),
            "{name}"
        );
        assert_eq!(
            record.origin_context_state,
            OriginContextState::Scrubbed,
            "{name}"
        );
        assert_eq!(record.compacted_at, Some(NOW), "{name}");
        assert_eq!(
            record.synthesized_text.is_some(),
            name == "dead, text",
            "{name}"
        );
        assert!(
            record.lease_owner.is_none() && record.delivery_started_at.is_none(),
            "{name}"
        );
        // What idempotency needs stays.
        assert_eq!(
            record.origin_context_digest,
            Some(reference().digest),
            "{name}"
        );
    }
    let mut capture = received();
    capture.mode = Mode::Capture;
    let asked = step(&capture, Event::BeginSynthesis { owner: "me" });
    let captured = step(&asked, Event::Synthesized { text: "kept" });
    assert_eq!(
        captured.receipt.as_ref().unwrap().kind,
        ReceiptKind::Captured
    );
    assert_eq!(captured.synthesized_text.as_deref(), Some("kept"));
}

#[test]
fn an_unknown_delivery_keeps_what_the_operator_needs() {
    let record = situation("unknown");
    assert!(record.result_payload.is_some() && record.synthesized_text.is_some());
    assert_eq!(record.origin_context_state, OriginContextState::Scrubbed);
    assert!(record.origin_context_ref.is_none() && record.compacted_at.is_none());
}

/// Fault 2 of the earlier implementation: the text was gone and the attempts were used up.
#[test]
fn a_dead_letter_can_be_retried_and_has_all_its_attempts_again() {
    let mut record = situation("ready");
    for attempt in 1..=backoff::MAX_ATTEMPTS {
        record = step(&record, Event::BeginDelivery { owner: "me" });
        let until = Some(NOW.plus_ms(1));
        record = step(
            &record,
            Event::Retryable {
                until,
                fault: FAULT,
            },
        );
        assert_eq!(record.delivery_attempts, attempt);
    }
    assert_eq!(record.state, State::DeadLettered);
    assert_eq!(
        record.last_error.as_ref().unwrap().code,
        "delivery_attempts_exhausted"
    );
    let again = step(
        &record,
        Event::Retry {
            allow_unknown: false,
        },
    );
    assert_eq!(
        (again.state, again.delivery_attempts),
        (State::ReadyToDeliver, 0)
    );
    assert_eq!(again.synthesized_text.as_deref(), Some("the answer"));
}

#[test]
fn a_retry_after_the_deadline_is_refused_and_keeps_the_text() {
    for name in ["dead, text", "unknown"] {
        let mut record = situation(name);
        record.deadline = NOW;
        let outcome = apply(
            &record,
            Event::Retry {
                allow_unknown: true,
            },
            NOW,
        );
        assert_eq!(outcome, Outcome::Refused(Refused::NotRetryable), "{name}");
    }
}

#[test]
fn what_was_left_as_unknown_is_retried_only_after_an_explicit_word() {
    let left = step(
        &situation("unknown"),
        Event::Resolve(Resolution::DeadLettered),
    );
    assert!(left.synthesized_text.is_some());
    let retry = |allow_unknown| apply(&left, Event::Retry { allow_unknown }, NOW);
    assert_eq!(retry(false), Outcome::Refused(Refused::DeliveryUnknown));
    assert_eq!(told(&retry(true)), "ready_to_deliver wake");
    // Of what certainly was not posted it needs none.
    let refused = Resolution::NotDelivered;
    let again = step(&situation("unknown"), Event::Resolve(refused));
    let sending = step(&again, Event::BeginDelivery { owner: "me" });
    let dead = step(&sending, Event::Permanent(FAULT));
    let event = Event::Retry {
        allow_unknown: false,
    };
    assert_eq!(told(&apply(&dead, event, NOW)), "ready_to_deliver wake");
}

#[test]
fn a_late_answer_is_expired_and_not_delivered() {
    let mut record = situation("synthesizing");
    record.deadline = NOW;
    assert_eq!(
        step(&record, Event::Synthesized { text: "late" }).state,
        State::Expired
    );
}

#[test]
fn a_model_that_was_not_asked_gives_its_attempt_back() {
    let asked = situation("synthesizing");
    assert_eq!(asked.synthesis_attempts, 1);
    let until = NOW.plus_ms(1000);
    let back = step(
        &asked,
        Event::NotAsked {
            until,
            fault: FAULT,
        },
    );
    assert_eq!(
        (back.synthesis_attempts, back.next_attempt_at),
        (0, Some(until))
    );
    assert!(back.synthesis_started_at.is_none() && back.lease_owner.is_none());
}

#[test]
fn a_start_takes_every_lease_for_interrupted() {
    let mut record = situation("synthesizing");
    record.lease_until = Some(NOW.plus_ms(LEASE_MS));
    assert_eq!(step(&record, Event::Recover).state, State::DeadLettered);
    // Even past its deadline a begun delivery is unknown and not expired.
    let mut record = situation("sending");
    record.deadline = NOW;
    assert_eq!(step(&record, Event::Recover).state, State::DeliveryUnknown);
    let mut with_text = situation("synthesizing");
    with_text.synthesized_text = Some("kept".into());
    assert_eq!(
        step(&with_text, Event::Recover).state,
        State::ReadyToDeliver
    );
}

#[test]
fn a_start_keeps_no_wait_that_is_longer_than_any_is() {
    let mut record = situation("retry");
    record.next_attempt_at = Some(NOW.plus_ms(backoff::LONGEST_MS));
    assert_eq!(apply(&record, Event::Recover, NOW), Outcome::Same);
    record.next_attempt_at = Some(NOW.plus_ms(backoff::LONGEST_MS + 1));
    record.deadline = NOW.plus_ms(2 * backoff::LONGEST_MS);
    let next = step(&record, Event::Recover);
    assert_eq!(
        (next.state, next.next_attempt_at),
        (State::DeliveryRetry, None)
    );
}

#[test]
fn the_history_of_a_confirmed_post_changes_the_receipt_and_nothing_else() {
    let record = situation("delivered");
    let receipt = |record: &Record| record.receipt.clone().unwrap();
    assert_eq!(receipt(&record).history_recorded, Some(false));
    let done = step(&record, Event::History(Ok(())));
    assert_eq!(
        (
            receipt(&done).history_recorded,
            receipt(&done).history_error_code
        ),
        (Some(true), None)
    );
    let failed = step(&record, Event::History(Err("history_full")));
    assert_eq!(
        receipt(&failed).history_error_code.as_deref(),
        Some("history_full")
    );
    assert_eq!(failed.updated_at, record.updated_at);
    let long = "x".repeat(129);
    let failed = step(&record, Event::History(Err(&long)));
    assert_eq!(
        receipt(&failed).history_error_code.as_deref(),
        Some(&long[1..])
    );
    let posted = Posted {
        history: Some(Ok(())),
        ..Posted::default()
    };
    let sent = step(&situation("sending"), Event::Delivered(posted));
    assert_eq!(
        apply(&sent, Event::History(Ok(())), NOW),
        Outcome::Refused(Refused::OutOfPlace)
    );
}

#[test]
fn long_and_hostile_reasons_are_bounded() {
    let long = "é\n".repeat(2000);
    let fault = Fault {
        code: &long,
        reason: &long,
    };
    let error = step(&situation("sending"), Event::Permanent(fault))
        .last_error
        .unwrap();
    assert_eq!((units(&error.code), units(&error.reason)), (128, 1000));
    assert!(!error.reason.contains('\n'));
    assert_eq!(bounded("ab😀", 3), "ab");
}

#[test]
fn an_origin_is_finalised_once_and_activated_after_that() {
    let mut bare = pending(claimed());
    let (kept, fingerprint, mac) = (reference(), hash("fingerprint"), hash("mac"));
    bare.origin_context_ref = None;
    bare.origin_context_digest = None;
    bare.origin_context_message_count = None;
    bare.origin_context_fingerprint = None;
    bare.origin_context_binding_mac = None;
    assert_eq!(
        apply(&bare, Event::Activate, NOW),
        Outcome::Refused(Refused::OutOfPlace)
    );
    let binding = Binding {
        reference: &kept,
        fingerprint: &fingerprint,
        mac: &mac,
    };
    let bound = step(&bare, Event::Finalize(binding));
    assert_eq!(apply(&bound, Event::Finalize(binding), NOW), Outcome::Same);
    let other = ContextRef {
        bytes: 7,
        ..reference()
    };
    let rebound = Event::Finalize(Binding {
        reference: &other,
        ..binding
    });
    assert_eq!(
        apply(&bound, rebound, NOW),
        Outcome::Refused(Refused::OutOfPlace)
    );
    let pinned = step(&bound, Event::Activate);
    assert_eq!(pinned.origin_context_state, OriginContextState::Pinned);
    assert_eq!(apply(&pinned, Event::Activate, NOW), Outcome::Same);
    assert_eq!(
        apply(&pinned, Event::Abandon(FAULT), NOW),
        Outcome::Refused(Refused::OutOfPlace)
    );
}

/// The event of a number, with what it borrows.
fn event<'a>(kind: u8, payload: &'a Payload, hash: &'a str, until: Time) -> Event<'a> {
    match kind {
        0 | 1 => submit(payload, hash),
        2 => Event::Activate,
        3 => Event::Abandon(FAULT),
        4 => Event::Defer { until },
        5 => Event::Hold {
            until,
            fault: FAULT,
        },
        6 => Event::Suppress,
        7 => Event::Silence,
        8 => Event::OriginUnavailable(FAULT),
        9 => Event::Refuse(FAULT),
        10..=12 => Event::BeginSynthesis { owner: "me" },
        13 => Event::NotAsked {
            until,
            fault: FAULT,
        },
        14..=16 => Event::Synthesized { text: "text" },
        17 => Event::SynthesisFailed(FAULT),
        18..=20 => Event::BeginDelivery { owner: "me" },
        21 => Event::Delivered(Posted::default()),
        22 => Event::Retryable {
            until: Some(until),
            fault: FAULT,
        },
        23 => Event::Permanent(FAULT),
        24 => Event::Unprovable(FAULT),
        25 => Event::History(Err("x")),
        26 => Event::Expire,
        27 => Event::Retry {
            allow_unknown: false,
        },
        28 => Event::Cancel,
        29 => Event::Resolve(Resolution::Delivered { delivery_id: None }),
        30 => Event::Resolve(Resolution::DeadLettered),
        31 => Event::Forged,
        _ => Event::Recover,
    }
}

proptest! {
    /// Any order of events, with anything out of place among them: each record that comes out may be
    /// stored, the model is asked once, and without a word of the channel or of an operator nothing is sent
    /// twice.
    #[test]
    fn no_order_of_events_breaks_a_record_or_repeats_what_is_done_once(
        kinds in proptest::collection::vec((0_u8..33, 0_i64..20_000), 0..60),
        mode in prop_oneof![Just(Mode::Reply), Just(Mode::NotifyIfActionable), Just(Mode::Capture), Just(Mode::Silent)],
        waits: bool,
    ) {
        let mut record = claimed();
        record.mode = mode;
        if waits {
            record = pending(record);
        }
        let payload = payload();
        let hash = payload.hash();
        let mut now = NOW;
        let (mut asked, mut sent, mut may_send) = (0, 0, 1);
        for (kind, passed) in kinds {
            now = now.plus_ms(passed);
            // A mode decides which of these its processing ever says.
            if mode == Mode::Silent && matches!(kind, 8 | 10..=12) {
                continue;
            }
            let event = event(kind, &payload, &hash, now.plus_ms(500));
            match apply(&record, event, now) {
                Outcome::Changed(next, _) | Outcome::Late(next) => {
                    prop_assert!(validate(&next).is_ok(), "{:?}: {:?}", event, validate(&next));
                    prop_assert!(crate::validate::encode_file(&next).is_ok());
                    match event {
                        Event::BeginSynthesis { .. } => asked += 1,
                        Event::NotAsked { .. } => asked -= 1,
                        Event::BeginDelivery { .. } => sent += 1,
                        Event::Retryable { .. } | Event::Retry { .. } => may_send += 1,
                        _ => {}
                    }
                    prop_assert!(asked <= 1);
                    prop_assert!(sent <= may_send);
                    if record.state.is_settled() && !matches!(event, Event::Retry { .. }) {
                        prop_assert_eq!(record.state, next.state);
                    }
                    record = *next;
                }
                Outcome::Same | Outcome::Refused(_) => {}
            }
        }
    }
}

#[path = "state_any_tests.rs"]
mod any;
