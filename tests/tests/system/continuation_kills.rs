//! A short look; `cargo xtask crash kills` goes on for longer.

use mono_tests::kills;
use std::time::{SystemTime, UNIX_EPOCH};

#[test]
fn every_accepted_claim_has_its_one_delivery_whoever_dies() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_micros().try_into().unwrap_or(1);
    println!("seed {seed}");
    let report = kills::run(seed, 10).unwrap();
    println!("{report:#?}");
    assert!(report.ok, "{:#?}", report.violations);
    assert!(
        report.scenes["claims"] > 16 && report.kinds.len() > 2,
        "too little happened"
    );
}
