use super::*;
use crate::canonical::MAX_PAYLOAD_BYTES;
use crate::sample;
use crate::time::Time;

fn claimed() -> Record {
    sample::claimed(1)
}

fn with_result(payload: &str) -> Record {
    sample::received(claimed(), payload)
}

fn pinned() -> Record {
    Record {
        origin_context_state: OriginContextState::Pinned,
        ..sample::bound(claimed(), &"c".repeat(64), "snapshot")
    }
}

fn delivered() -> Record {
    let ready = sample::ready(with_result("{}"), "the answer");
    sample::delivered(ready, sample::at(1))
}

#[test]
fn what_is_written_is_read_again() {
    for record in [
        claimed(),
        with_result(r#"{"b":[1,"\ud800"]}"#),
        with_result("null"),
        pinned(),
        delivered(),
    ] {
        for text in [encode(&record), encode_file(&record)] {
            assert_eq!(decode(&text.expect("valid")), Ok(record.clone()));
        }
    }
}

#[test]
fn a_file_is_indented_and_ends_with_a_newline() {
    let text = String::from_utf8(encode_file(&claimed()).expect("valid")).expect("UTF-8");
    assert!(
        text.starts_with("{\n  \"continuationId\": \"0000"),
        "{text}"
    );
    assert!(text.ends_with("\n}\n"), "{text}");
}

#[test]
fn an_unknown_or_missing_or_repeated_field_is_refused() {
    let text = String::from_utf8(encode(&claimed()).expect("valid")).expect("UTF-8");
    for (from, to) in [
        ("{\"continuationId\"", "{\"extra\":1,\"continuationId\""),
        ("\"mode\":\"reply\",", ""),
        ("\"mode\":\"reply\"", "\"mode\":\"constructor\""),
        (
            "\"mode\":\"reply\"",
            "\"mode\":\"reply\",\"mode\":\"reply\"",
        ),
        ("\"state\":\"claimed\"", "\"state\":\"done\""),
        ("\"synthesisAttempts\":0", "\"synthesisAttempts\":-1"),
    ] {
        let other = text.replacen(from, to, 1);
        assert_ne!(other, text, "{from}");
        assert!(
            matches!(decode(other.as_bytes()), Err(Invalid::Format { .. })),
            "{to}"
        );
    }
}

#[test]
fn every_text_has_its_bound() {
    type Set = fn(&mut Record, String);
    let cases: [(&str, usize, Set); 13] = [
        ("continuationId", MAX_ID, |r, t| r.continuation_id = t),
        ("serverName", MAX_SERVER, |r, t| r.server_name = t),
        ("originRunId", MAX_RUN, |r, t| r.origin_run_id = t),
        ("originConversationId", MAX_CONVERSATION, |r, t| {
            r.origin_conversation_id = t
        }),
        ("replyToConversationId", MAX_CONVERSATION, |r, t| {
            r.reply_to_conversation_id = Some(t)
        }),
        ("historyBoundary", MAX_RUN, |r, t| {
            r.history_boundary = Some(t)
        }),
        ("routeName", MAX_ROUTE, |r, t| r.route_name = Some(t)),
        ("taskKey", MAX_KEY, |r, t| r.task_key = t),
        ("taskHash", MAX_KEY, |r, t| r.task_hash = t),
        ("resultIdempotencyKey", MAX_KEY, |r, t| {
            r.result_idempotency_key = Some(t)
        }),
        ("synthesizedText", MAX_TEXT, |r, t| {
            r.synthesized_text = Some(t)
        }),
        ("receipt.deliveryId", MAX_CHANNEL_NAME, |r, t| {
            r.receipt.as_mut().expect("delivered").delivery_id = Some(t);
        }),
        ("receipt.historyErrorCode", MAX_CODE, |r, t| {
            r.receipt.as_mut().expect("delivered").history_error_code = Some(t);
        }),
    ];
    for (field, max, set) in cases {
        // Two units, four bytes: the bound is in units.
        for (unit, count) in [("a", max), ("\u{1f600}", max / 2)] {
            let mut record = delivered();
            set(&mut record, unit.repeat(count));
            assert_eq!(validate(&record), Ok(()), "{field}");
            set(&mut record, unit.repeat(count + 1));
            assert_eq!(validate(&record), Err(Invalid::Field(field)));
        }
        let mut record = delivered();
        set(&mut record, String::new());
        assert_eq!(validate(&record), Err(Invalid::Field(field)));
    }
}

#[test]
fn errors_have_their_bounds() {
    let with = |code: usize, reason: usize| Record {
        last_error: Some(LastError {
            code: "a".repeat(code),
            reason: "a".repeat(reason),
            at: Time::ZERO,
        }),
        ..claimed()
    };
    assert_eq!(validate(&with(MAX_CODE, MAX_REASON)), Ok(()));
    assert_eq!(validate(&with(1, 0)), Ok(()));
    for (record, field) in [
        (with(MAX_CODE + 1, 1), "lastError.code"),
        (with(0, 1), "lastError.code"),
        (with(1, MAX_REASON + 1), "lastError.reason"),
    ] {
        assert_eq!(validate(&record), Err(Invalid::Field(field)));
    }
}

#[test]
fn a_digest_is_64_digits_of_lower_case_hex() {
    for bad in ["", "a", &"A".repeat(64), &"g".repeat(64), &"a".repeat(65)] {
        let record = Record {
            claim_fingerprint: bad.to_owned(),
            ..claimed()
        };
        assert_eq!(validate(&record), Err(Invalid::Field("claimFingerprint")));
        let record = Record {
            origin_context_binding_mac: Some(bad.to_owned()),
            ..pinned()
        };
        assert_eq!(
            validate(&record),
            Err(Invalid::Field("originContextBindingMac"))
        );
    }
}

#[test]
fn contradictions_are_refused() {
    let cases: [(&str, Record); 17] = [
        (
            "a payload in a claim",
            Record {
                state: State::Claimed,
                ..with_result("1")
            },
        ),
        (
            "received without a payload",
            Record {
                result_payload: None,
                ..with_result("1")
            },
        ),
        (
            "ready without a text",
            Record {
                state: State::ReadyToDeliver,
                ..with_result("1")
            },
        ),
        (
            "retry without a text",
            Record {
                state: State::DeliveryRetry,
                ..with_result("1")
            },
        ),
        (
            "a hash without a key",
            Record {
                result_idempotency_key: None,
                ..with_result("1")
            },
        ),
        (
            "a key without a hash",
            Record {
                result_payload_hash: None,
                ..with_result("1")
            },
        ),
        (
            "delivered without a receipt",
            Record {
                receipt: None,
                ..delivered()
            },
        ),
        (
            "a receipt of what is expired",
            Record {
                state: State::Expired,
                ..delivered()
            },
        ),
        (
            "a lease without an end",
            Record {
                lease_owner: Some("p".to_owned()),
                ..claimed()
            },
        ),
        (
            "a lease of what is over",
            Record {
                lease_owner: Some("p".to_owned()),
                lease_until: Some(Time::ZERO),
                ..delivered()
            },
        ),
        (
            "a payload after its end",
            Record {
                compacted_at: Some(Time::ZERO),
                ..with_result("1")
            },
        ),
        (
            "pinned to nothing",
            Record {
                origin_context_ref: None,
                ..pinned()
            },
        ),
        (
            "pending for ever",
            Record {
                history_boundary: None,
                ..claimed()
            },
        ),
        (
            "another digest",
            Record {
                origin_context_digest: Some("f".repeat(64)),
                ..pinned()
            },
        ),
        (
            "unbound",
            Record {
                origin_context_binding_mac: None,
                ..pinned()
            },
        ),
        (
            "a snapshot of a detached claim",
            Record {
                origin_context_state: OriginContextState::DetachedLatest,
                ..pinned()
            },
        ),
        (
            "scrubbed too early",
            Record {
                origin_context_state: OriginContextState::Scrubbed,
                ..claimed()
            },
        ),
    ];
    for (what, record) in cases {
        assert!(
            matches!(validate(&record), Err(Invalid::Contradiction(_))),
            "{what}"
        );
        assert!(
            encode(&record).is_err() && encode_file(&record).is_err(),
            "{what}"
        );
    }
}

#[test]
fn the_largest_payload_and_the_longest_text_fit_together() {
    let payload = format!("\"{}\"", "a".repeat(MAX_PAYLOAD_BYTES - 2));
    let record = Record {
        state: State::ReadyToDeliver,
        // The character that grows most when it is written.
        synthesized_text: Some("\u{1}".repeat(MAX_TEXT)),
        ..with_result(&payload)
    };
    let file = encode_file(&record).expect("it fits");
    assert_eq!(decode(&file), Ok(record.clone()));
    assert!(encode(&record).is_ok());
}

#[test]
fn a_file_that_is_too_long_is_not_even_read() {
    let mut text = encode(&claimed()).expect("valid");
    text.resize(MAX_RECORD_BYTES, b' ');
    assert!(decode(&text).is_ok());
    text.push(b' ');
    assert!(matches!(decode(&text), Err(Invalid::Long { .. })));
}

#[test]
fn names_are_those_of_the_file() {
    for state in State::ALL {
        assert_eq!(
            serde_json::to_string(&state).ok(),
            Some(format!("{:?}", state.name()))
        );
    }
    for mode in [
        Mode::Reply,
        Mode::NotifyIfActionable,
        Mode::Capture,
        Mode::Silent,
    ] {
        assert_eq!(
            serde_json::to_string(&mode).ok(),
            Some(format!("{:?}", mode.name()))
        );
    }
}
