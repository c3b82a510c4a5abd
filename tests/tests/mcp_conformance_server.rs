//! The MCP conformance suite against the endpoints of application-owned tools, through `mcp-serve`.
#![allow(clippy::unwrap_used)]

use mono_tests::node::{conformance, node};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// Run with every revision that the suite has of them; each check is passed, but for those named.
const SCENARIOS: [(&str, &[&str]); 16] = [
    ("server-initialize", &[]),
    (
        "server-stateless",
        // They need tools that ask the client for something or log to it. These don't.
        &[
            "sep-2575-server-rejects-undeclared-capability",
            "sep-2575-missing-capability-http-400",
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-server-no-log-without-loglevel",
        ],
    ),
    ("ping", &[]),
    ("tools-list", &[]),
    ("tools-call-simple-text", &[]),
    ("tools-call-image", &[]),
    ("tools-call-audio", &[]),
    ("tools-call-embedded-resource", &[]),
    ("tools-call-mixed-content", &[]),
    ("tools-call-error", &[]),
    ("tools-call-with-progress", &[]),
    ("json-schema-2020-12", &[]),
    ("dns-rebinding-protection", &[]),
    ("http-header-validation", &[]),
    ("http-custom-header-server-validation", &[]),
    (
        "caching",
        // There are tools and nothing else.
        &[
            "sep-2549-prompts-list-caching-hints",
            "sep-2549-resources-list-caching-hints",
            "sep-2549-resources-templates-list-caching-hints",
        ],
    ),
];

/// Beginnings of names, and why those scenarios say nothing about these servers.
const NOT_APPLICABLE: [(&str, &str); 14] = [
    (
        "server-session-lifecycle",
        "there are no sessions: each request stands alone",
    ),
    (
        "server-sse-",
        "there are no sessions, so nothing to resume and no stream of the server's own",
    ),
    ("resources-", "no resources are offered"),
    ("sep-2164-", "no resources are offered"),
    ("prompts-", "no prompts are offered"),
    ("completion-", "nothing is offered that could be completed"),
    ("logging-", "logging is not declared"),
    ("tools-call-with-logging", "logging is not declared"),
    ("tools-call-sampling", "a tool asks its client for nothing"),
    (
        "tools-call-elicitation",
        "a tool asks its client for nothing",
    ),
    ("elicitation-", "a tool asks its client for nothing"),
    (
        "input-required-result-",
        "a tool asks its client for nothing",
    ),
    ("sep-2640-", "the skills extension is not declared"),
    ("tasks-", "the tasks extension is not declared"),
];

/// The server under test; ends with its input.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcp-serve"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        Self {
            child,
            url: url.trim().to_owned(),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn suite() -> Command {
    let mut command = Command::new(node());
    command.arg(conformance());
    command
}

/// Names and revisions, as the suite lists them.
fn listed() -> Vec<(String, Vec<String>)> {
    let listed = suite().args(["list", "--server"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let scenario = |line: &str| {
        let (name, revisions) = line.trim().strip_prefix("- ")?.split_once(" [")?;
        let revisions = revisions.strip_suffix(']')?.split(',');
        Some((name.to_owned(), revisions.map(str::to_owned).collect()))
    };
    listed.lines().filter_map(scenario).collect()
}

/// How many checks were passed, and which were not.
fn run(url: &str, scenario: &str, revision: &str) -> (usize, BTreeSet<String>, String) {
    let results = tempfile::tempdir().unwrap();
    let output = suite()
        .args(["server", "--url", url, "--scenario", scenario])
        // Of a scenario, in milliseconds: a busy machine is no failure.
        .args(["--timeout", "120000"])
        .args(["--spec-version", revision, "--output-dir"])
        .arg(results.path())
        .output()
        .unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let mut passed = 0;
    let mut failed = BTreeSet::new();
    for entry in std::fs::read_dir(results.path()).unwrap() {
        let checks = std::fs::read(entry.unwrap().path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        for check in checks {
            match check["status"].as_str().unwrap() {
                "SUCCESS" => passed += 1,
                "INFO" | "SKIPPED" => {}
                // A warning is a recommendation that was not followed.
                _ => drop(failed.insert(check["id"].as_str().unwrap().to_owned())),
            }
        }
    }
    (passed, failed, text)
}

#[test]
fn every_server_scenario_passes_or_is_named_with_its_reason() {
    let listed = listed();
    assert!(listed.len() > 50, "{listed:?}");
    let expected = |name: &str| SCENARIOS.iter().find(|(scenario, _)| *scenario == name);
    let undecided: Vec<&String> = listed
        .iter()
        .map(|(name, _)| name)
        .filter(|name| expected(name).is_none())
        .filter(|name| {
            !NOT_APPLICABLE
                .iter()
                .any(|(start, _)| name.starts_with(start))
        })
        .collect();
    assert!(
        undecided.is_empty(),
        "scenarios that nobody decided about: {undecided:?}"
    );
    let known = |name: &str| listed.iter().any(|(listed, _)| listed == name);
    for (scenario, _) in SCENARIOS {
        assert!(known(scenario), "{scenario} is no more");
    }

    let served = Served::start();
    let mut wrong = Vec::new();
    let (mut runs, mut checks) = (0, 0);
    for (name, revisions) in &listed {
        let Some((_, unmet)) = expected(name) else {
            continue;
        };
        let unmet: BTreeSet<String> = unmet.iter().map(|&id| id.to_owned()).collect();
        for revision in revisions {
            let (passed, failed, text) = run(&served.url, name, revision);
            // A scenario that does not apply is skipped with success: that must not count.
            if passed == 0 || failed != unmet {
                wrong.push(format!("{name} {revision}: {failed:?}\n{text}"));
            }
            runs += 1;
            checks += passed;
        }
    }
    // Written past the test harness, which would keep it to itself: the number is a result.
    let _ = writeln!(
        std::io::stderr(),
        "MCP conformance, server: {} of {runs} runs passed with {checks} checks, {} scenarios not applicable",
        runs - wrong.len(),
        listed.len() - SCENARIOS.len(),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
