//! The MCP conformance suite against the app-bridge's client, through `mcp-probe`.
#![allow(clippy::unwrap_used)]

use mono_tests::node::{conformance, node};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;

/// Scenario and revision. A scenario that applies to several revisions is run with each.
const PASS: [(&str, &str); 14] = [
    ("initialize", "2025-06-18"),
    ("initialize", "2025-11-25"),
    ("tools_call", "2025-06-18"),
    ("tools_call", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("sse-retry", "2025-11-25"),
    ("request-metadata", "2026-07-28"),
    ("sep-2322-client-request-state", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("http-custom-headers", "2026-07-28"),
    ("http-invalid-tool-headers", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
    ("json-schema-2020-12-preservation", "2025-11-25"),
    ("json-schema-2020-12-preservation", "2026-07-28"),
];

/// Scenario, revision, and why it can't pass. Each is run, so that one that begins to pass is seen.
const EXPECTED_FAILURES: [(&str, &str, &str); 1] = [(
    "elicitation-sep1034-client-defaults",
    "2025-11-25",
    "the host declares no elicitation and declines: no person sits at a tool call",
)];

/// Beginnings of names, and why those scenarios say nothing about this client.
const NOT_APPLICABLE: [(&str, &str); 2] = [
    (
        "auth/",
        "servers are authorised by literal headers; OAuth is not offered",
    ),
    ("sep-2640-", "the skills extension is not declared"),
];

fn suite() -> Command {
    let mut command = Command::new(node());
    command.arg(conformance());
    command
}

/// The text of one run, and whether the suite is content.
fn run(probe: &str, scenario: &str, revision: &str) -> (bool, String) {
    let results = tempfile::tempdir().unwrap();
    let output = suite()
        .args(["client", "--command", probe, "--scenario", scenario])
        // Of a scenario, in milliseconds: a busy machine is no failure.
        .args(["--timeout", "120000"])
        .args(["--spec-version", revision, "--output-dir"])
        .arg(results.path())
        .output()
        .unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    // A scenario that does not apply is skipped with success: that must not count.
    let judged = text.contains("OVERALL: PASSED") && !text.contains("Passed: 0/0");
    (output.status.success() && judged, text)
}

#[test]
fn every_client_scenario_passes_or_is_named_with_its_reason() {
    let listed = suite().args(["list", "--client"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let known: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next())
        .collect();
    assert!(known.len() > 40, "{listed}");
    let named: BTreeSet<&str> = PASS
        .iter()
        .map(|(scenario, _)| *scenario)
        .chain(EXPECTED_FAILURES.iter().map(|(scenario, ..)| *scenario))
        .collect();
    let other: Vec<&&str> = known
        .iter()
        .filter(|scenario| !named.contains(*scenario))
        .filter(|scenario| {
            !NOT_APPLICABLE
                .iter()
                .any(|(start, _)| scenario.starts_with(start))
        })
        .collect();
    assert!(
        other.is_empty(),
        "scenarios that nobody decided about: {other:?}"
    );
    assert!(
        named.is_subset(&known),
        "scenarios that are no more: {:?}",
        named.difference(&known)
    );

    let probe = env!("CARGO_BIN_EXE_mcp-probe");
    let mut failed = Vec::new();
    for (scenario, revision) in PASS {
        let (passed, text) = run(probe, scenario, revision);
        if !passed {
            failed.push(format!("{scenario} {revision}:\n{text}"));
        }
    }
    let passed = PASS.len() - failed.len();
    // Written past the test harness, which would keep it to itself: the number is a result.
    let _ = writeln!(
        std::io::stderr(),
        "MCP conformance, client: {passed} of {} runs passed, {} expected failures, {} scenarios not applicable",
        PASS.len(),
        EXPECTED_FAILURES.len(),
        known.len() - named.len(),
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    for (scenario, revision, reason) in EXPECTED_FAILURES {
        let (passed, _) = run(probe, scenario, revision);
        assert!(!passed, "{scenario} passes now, although {reason}");
    }
}
