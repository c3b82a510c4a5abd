//! A record read back from the disk: what is taken can be written and read again, and any event on it gives one
//! that can be.
#![no_main]

use continuation_record::event::{Event, Fault, Outcome, Posted};
use continuation_record::state::apply;
use continuation_record::validate::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = decode(bytes) else { return };
    let Ok(written) = encode(&record) else { return };
    assert!(decode(&written).is_ok_and(|again| again == record));
    let fault = Fault {
        code: "code",
        reason: "reason",
    };
    let later = record.updated_at.plus_ms(1000);
    for event in [
        Event::Recover,
        Event::Expire,
        Event::Cancel,
        Event::Retry {
            allow_unknown: true,
        },
        Event::Abandon(fault),
        Event::Suppress,
        Event::Unprovable(fault),
        Event::Delivered(Posted::default()),
    ] {
        if let Outcome::Changed(next, _) = apply(&record, event, later) {
            assert!(encode(&next).is_ok(), "{event:?}");
        }
    }
});
