use super::*;

/// A record of any shape that the reader lets in: what an older version or a careless hand may have left.
fn any_record() -> impl Strategy<Value = Record> {
    let context = prop_oneof![
        Just(OriginContextState::Pending),
        Just(OriginContextState::Pinned),
        Just(OriginContextState::Abandoned),
        Just(OriginContextState::DetachedLatest),
        Just(OriginContextState::LegacyMissing),
        Just(OriginContextState::Scrubbed),
    ];
    let mode = prop_oneof![
        Just(Mode::Reply),
        Just(Mode::NotifyIfActionable),
        Just(Mode::Capture),
        Just(Mode::Silent),
    ];
    let place = 0..State::ALL.len();
    (
        place,
        context,
        mode,
        proptest::array::uniform10(any::<bool>()),
    )
        .prop_map(|(place, context, mode, has)| {
            let mut record = claimed();
            record.state = State::ALL[place];
            record.origin_context_state = context;
            record.mode = mode;
            let [
                reference,
                result,
                payload,
                text,
                started,
                lease,
                target,
                boundary,
                receipt,
                past,
            ] = has;
            if !reference {
                record.origin_context_ref = None;
            }
            if result {
                record.result_idempotency_key = Some("k".into());
                record.result_payload_hash = Some(hash("h"));
            }
            record.result_payload = payload.then(self::payload);
            record.synthesized_text = text.then(|| "text".into());
            record.delivery_started_at = started.then_some(NOW);
            if lease {
                record.lease_owner = Some("other".into());
                record.lease_until = Some(NOW);
            }
            if !target {
                record.reply_to_conversation_id = None;
            }
            if !boundary {
                record.history_boundary = None;
            }
            record.receipt = receipt.then_some(Receipt {
                kind: ReceiptKind::Delivered,
                delivered_at: NOW,
                delivery_id: None,
                channel_id: None,
                history_recorded: Some(false),
                history_error_code: None,
            });
            if past {
                record.deadline = NOW;
            }
            record
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, max_global_rejects: 1_000_000, ..ProptestConfig::default() })]
    #[test]
    fn whatever_the_reader_lets_in_no_event_makes_a_record_that_it_does_not(record in any_record(), kind in 0_u8..33) {
        prop_assume!(validate(&record).is_ok());
        let payload = payload();
        let hash = payload.hash();
        let event = event(kind, &payload, &hash, NOW.plus_ms(500));
        if let Outcome::Changed(next, _) | Outcome::Late(next) = apply(&record, event, NOW) {
            prop_assert!(validate(&next).is_ok(), "{:?} on {:?}: {:?}", event, record, validate(&next));
        }
    }
}

/// One of them whose text may have been posted.
fn any_begun() -> impl Strategy<Value = Record> {
    let states = [
        State::ReadyToDeliver,
        State::DeliveryRetry,
        State::DeliveryUnknown,
    ];
    (any_record(), 0..states.len()).prop_map(move |(mut record, place)| {
        record.state = states[place];
        record.delivery_started_at = Some(NOW);
        record
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_global_rejects: 1_000_000, ..ProptestConfig::default() })]
    #[test]
    fn what_may_have_been_posted_is_sent_again_by_no_plain_retry_whatever_shape_it_has(record in any_begun(), kind in 0_u8..33) {
        prop_assume!(validate(&record).is_ok());
        let payload = payload();
        let hash = payload.hash();
        let event = event(kind, &payload, &hash, NOW.plus_ms(500));
        // The channel says for certain that nothing was posted.
        prop_assume!(!matches!(event, Event::Retryable { .. } | Event::Permanent(_)));
        let next = match apply(&record, event, NOW) {
            Outcome::Changed(next, _) | Outcome::Late(next) => next,
            Outcome::Same | Outcome::Refused(_) => Box::new(record),
        };
        let retried = apply(&next, Event::Retry { allow_unknown: false }, NOW);
        prop_assert!(!matches!(retried, Outcome::Changed(..)), "{:?} on {:?}", event, next);
    }
}
