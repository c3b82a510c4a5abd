//! A million steps from one seed; `cargo xtask crash continuations-simulation` takes others, and goes
//! on for longer.
#![forbid(unsafe_code)]

use continuation_proof::simulation::{self, Length};
use continuation_proof::trial::Report;

fn run(steps: usize, honest: bool) -> Report {
    let length = Length {
        steps,
        crash_every: 50,
        honest,
    };
    simulation::run(20_261_130, length).expect("it can be tried")
}

#[test]
fn every_promise_is_kept_whatever_happens() {
    let report = run(1_000_000, true);
    assert!(report.ok, "{:#?}", report.violations);
    // All of it was met, or it would prove little.
    for kind in ["restarts", "retention", "the clock jumps", "a resolution"] {
        assert!(report.kinds[kind] > 20, "{kind}: {:?}", report.kinds);
    }
    for count in ["models asked", "texts sent", "delivered", "expired"] {
        assert!(report.scenes[count] > 20, "{count}: {:?}", report.scenes);
    }
    for count in ["dead_lettered", "delivery_unknown", "cancelled"] {
        assert!(report.scenes[count] > 5, "{count}: {:?}", report.scenes);
    }
}

#[test]
fn a_seed_repeats_what_happened() {
    let [first, second] = [run(20_000, true), run(20_000, true)];
    assert_eq!(first.scenes, second.scenes);
    assert_eq!(first.kinds, second.kinds);
}

#[test]
fn a_disk_that_only_claims_to_sync_is_found_out() {
    let report = run(10_000, false);
    assert!(!report.ok);
}
