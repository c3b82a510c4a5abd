use crate::bytes::Bytes;
use crate::frame::{HEAD, Head, frame};
use crate::meta::{Active, Id, Meta};
use crate::op::Op;
use continuation_record::{State, Time};
use proptest::prelude::*;

fn any_id() -> impl Strategy<Value = Id> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(Id::Uuid),
        "[A-Z]{1,40}".prop_map(|text| Id::new(&text)),
    ]
}

fn any_time() -> impl Strategy<Value = Time> {
    (0..=Time::MAX.ms()).prop_map(Time::from_ms)
}

fn any_meta() -> impl Strategy<Value = Meta> {
    let active = (
        any_time(),
        prop::option::of(any_time()),
        any::<[u8; 16]>(),
        prop::option::of(any::<[u8; 16]>()),
        prop::option::of((any::<[u8; 32]>(), any::<u32>())),
    );
    (
        any_id(),
        0..State::ALL.len(),
        any::<u8>(),
        any_time(),
        any_time(),
        any::<[u8; 16]>(),
        active,
    )
        .prop_map(|(id, state, flags, created, updated, claim, active)| {
            let state = State::ALL[state];
            let (deadline, next, fingerprint, origin, context) = active;
            let active = (!state.is_settled()).then(|| {
                Box::new(Active {
                    deadline,
                    next,
                    fingerprint,
                    origin,
                    context,
                })
            });
            Meta {
                id,
                state,
                flags,
                created,
                updated,
                claim,
                active,
            }
        })
}

proptest! {
    #[test]
    fn a_step_is_read_as_it_was_written(meta in any_meta(), body in any::<Vec<u8>>(), digest in any::<[u8; 32]>()) {
        let steps = [
            Op::Delete(meta.id.clone()),
            Op::Context(digest, &body),
            Op::Put(meta, &body),
        ];
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for step in &steps {
            step.encode(&mut bytes);
            ends.push(bytes.len());
        }
        let mut rest = Bytes(&bytes);
        for step in &steps {
            let read = Op::decode(&mut rest);
            prop_assert_eq!(read.as_ref(), Some(step));
        }
        prop_assert!(rest.is_empty());
        // Cut off anywhere but at an end, the last one is none.
        for end in 0..bytes.len() {
            let mut rest = Bytes(&bytes[..end]);
            let mut whole = 0;
            while Op::decode(&mut rest).is_some() {
                whole += 1;
            }
            prop_assert_eq!(whole, ends.iter().filter(|at| **at <= end).count());
        }
    }

    #[test]
    fn no_bytes_do_harm(bytes in any::<Vec<u8>>()) {
        let mut rest = Bytes(&bytes);
        while Op::decode(&mut rest).is_some() {}
        let _ = Head::decode(&bytes);
    }

    #[test]
    fn a_frame_with_any_bit_flipped_is_none(body in prop::collection::vec(any::<u8>(), 0..200), at in any::<u32>(), bit in any::<prop::sample::Index>()) {
        let at = u64::from(at);
        let whole = frame(at, at / 2, at / 3, 77, &body);
        let is_frame = |bytes: &[u8]| {
            Head::decode(bytes).is_some_and(|head| {
                // What the log asks of it besides.
                (head.at, head.previous, head.generation) == (at, at / 2, 77)
                    && bytes.get(HEAD..).is_some_and(|body| head.fits(body))
            })
        };
        prop_assert!(is_frame(&whole));
        let mut flipped = whole.clone();
        let bit = bit.index(flipped.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!is_frame(&flipped), "bit {}", bit);
    }

    #[test]
    fn names_are_ordered_as_their_texts(a in any_id(), b in any_id()) {
        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        prop_assert_eq!(Id::new(&a.to_string()), a);
    }
}
