//! A sample of the crash points: all of them are tried by `cargo xtask crash`.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

fn suite(arguments: &[&str]) -> (Output, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_crash-suite"))
        .args(arguments)
        .arg("--json")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}\n{text}\n{errors}"));
    (output, report)
}

#[test]
fn the_owner_of_reply_files_loses_and_leaks_nothing_wherever_it_is_killed() {
    let (output, report) = suite(&["artifact", "--sample", "240"]);
    assert_eq!(report["violations"], serde_json::json!([]), "{report}");
    assert!(output.status.success() && report["ok"] == true, "{report}");
    assert_eq!(report["points"], 240);
    // All scenes have been traced, and none ended at its first calls.
    let scenes = report["scenes"].as_object().unwrap();
    assert_eq!(scenes.len(), 7, "{report}");
    for (scene, points) in scenes {
        assert!(points.as_u64().unwrap() >= 40, "{scene}: {points}");
    }
}

#[test]
fn the_owner_of_apps_loses_and_leaks_nothing_wherever_it_is_killed_or_the_disk_is_full() {
    let (output, report) = suite(&["apps", "--sample", "240"]);
    assert_eq!(report["violations"], serde_json::json!([]), "{report}");
    assert!(output.status.success() && report["ok"] == true, "{report}");
    let scenes = report["scenes"].as_object().unwrap();
    assert_eq!(scenes.len(), 6, "{report}");
    for (scene, points) in scenes {
        assert!(points.as_u64().unwrap() >= 40, "{scene}: {points}");
    }
    assert!(
        report["kinds"]["full_from_here"].as_u64().unwrap() > 0,
        "{report}"
    );
}

#[test]
fn the_owner_of_continuations_keeps_its_promises_wherever_it_is_killed_or_the_disk_fails() {
    let (output, report) = suite(&["continuation-worker", "--sample", "160"]);
    assert_eq!(report["violations"], serde_json::json!([]), "{report}");
    assert!(output.status.success() && report["ok"] == true, "{report}");
    let scenes = report["scenes"].as_object().unwrap();
    assert_eq!(scenes.len(), 4, "{report}");
    for (scene, points) in scenes {
        assert!(points.as_u64().unwrap() >= 100, "{scene}: {points}");
    }
}

/// What the harness is for: without this the test above could not fail.
#[test]
fn an_owner_that_writes_in_place_is_found_out_at_every_point() {
    let (output, report) = suite(&["careless"]);
    assert_eq!(
        (output.status.code(), &report["ok"]),
        (Some(1), &Value::Bool(false))
    );
    // Two writes, the answer and the mark at the end, killed before and after each; the writes are
    // refused in four ways as well.
    assert_eq!(report["points"], 4 * 2 + 2 * 4, "{report}");
    let violations: Vec<_> = report["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|violation| violation.as_str().unwrap())
        .collect();
    let found = |point: &str, what: &str| {
        violations.iter().any(|violation| {
            violation.starts_with(&format!("write, {point}")) && violation.ends_with(what)
        })
    };
    assert!(!found("killed_before at 0", ""), "{report}");
    for half in [
        "killed_after at 0",
        "killed_before at 1",
        "killed_before at 2",
    ] {
        assert!(found(half, "half of it is there"), "{half}: {report}");
    }
    assert!(
        !found("killed_before at 1", "it was promised and is lost"),
        "{report}"
    );
    assert!(
        found("killed_after at 1", "it was promised and is lost"),
        "{report}"
    );
    assert!(!found("killed_after at 2", ""), "{report}");
    for at in [0, 1] {
        for kind in [
            "full_once",
            "full_from_here",
            "broken_once",
            "broken_from_here",
        ] {
            let point = format!("{kind} at {at}");
            assert!(
                found(&point, "it was promised and is lost"),
                "{point}: {report}"
            );
        }
    }
    // The same seed tries the same points.
    let sample = |_| {
        let mut report = suite(&["careless", "--sample", "5", "--seed", "7"]).1;
        report["violations"]
            .as_array_mut()
            .unwrap()
            .sort_by_key(Value::to_string);
        report
    };
    let samples = [(); 2].map(sample);
    assert_eq!(samples[0], samples[1]);
    assert_eq!(
        (&samples[0]["points"], &samples[0]["seed"]),
        (&Value::from(5), &Value::from(7))
    );
}
