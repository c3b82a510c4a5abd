//! A run's parts and a producer's outcomes, as whatever JSON.
#![no_main]

use ipc_proto::outcomes::{PartOutcome, of_parts, sanitise};
use ipc_proto::reply::{FAILURE_CODES, MAX_PARTS};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Checks the bounds, and that a second hop changes nothing.
fn holds(out: &[PartOutcome], length: usize) {
    assert_eq!(out.len(), length.min(MAX_PARTS));
    for (index, record) in out.iter().enumerate() {
        assert_eq!(record.part_index, index);
        assert!(record.status == "failed" && FAILURE_CODES.contains(&record.code));
        assert!(record.affected_part_count.is_none() || index == MAX_PARTS - 1);
    }
    let json = serde_json::to_value(out).expect("outcomes are JSON");
    assert_eq!(sanitise(&json), out);
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let length = source.as_array().map_or(0, Vec::len);
    holds(&sanitise(&source), length);
    holds(&of_parts(&source), length);
});
