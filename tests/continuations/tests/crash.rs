//! A short look; `cargo xtask crash continuations` looks everywhere.
#![forbid(unsafe_code)]

use continuation_proof::crash;

#[test]
fn a_power_cut_at_any_call_loses_nothing() {
    let report = crash::run(20_261_130, Some(3_000))
        .expect("it can be tried, and disks that lie are found out");
    assert!(report.ok, "{:#?}", report.violations);
    assert!(report.points > 1_500, "{}", report.points);
}
