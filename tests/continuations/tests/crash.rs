//! A short look; `cargo xtask crash continuations` looks everywhere.
#![forbid(unsafe_code)]

use continuation_proof::{Options, crash};

#[test]
fn a_power_cut_at_any_call_loses_nothing() {
    let options = Options {
        seed: 20_261_130,
        sample: Some(3_000),
    };
    let report = crash::run(options).expect("it can be tried, and disks that lie are found out");
    assert!(report.ok, "{:#?}", report.violations);
    assert!(report.points > 1_500, "{}", report.points);
}
