//! What the records say, against what is found at the places.

use super::clients::{Client, Place};
use crate::console::Browser;
use crate::daemon::Daemon;
use crate::receiver::Receiver;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How the answers of tasks begin.
const ANSWER: &str = "answer of ";
/// What stands in place of an answer when the turn that asked was not committed (spec s1).
const LOST: &str = "The background task finished, but I could not safely restore";

/// What is known at the end.
pub(super) struct Verdict {
    /// By task.
    pub(super) records: BTreeMap<String, Value>,
    /// Tasks whose claims their service knows to be accepted.
    pub(super) known: BTreeSet<String>,
    pub(super) violations: Vec<String>,
    pub(super) states: BTreeMap<String, usize>,
    pub(super) answers: BTreeMap<&'static str, usize>,
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_default()
}

impl Verdict {
    pub(super) const fn new(records: BTreeMap<String, Value>) -> Self {
        Self {
            records,
            known: BTreeSet::new(),
            violations: Vec::new(),
            states: BTreeMap::new(),
            answers: BTreeMap::new(),
        }
    }

    /// Whether more has to happen to it.
    pub(super) fn waits(&self, record: &Value) -> bool {
        let over = ["delivered", "delivery_unknown", "dead_lettered"];
        self.known.contains(text(record, "taskKey")) && !over.contains(&text(record, "state"))
    }

    /// Nothing that a service keeps is unknown to the host.
    pub(super) fn kept(&mut self, claims: &Path) -> Result<()> {
        for entry in std::fs::read_dir(claims)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "json") {
                let claim: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
                let task = text(&claim, "task");
                if !self.records.contains_key(task) {
                    self.violations
                        .push(format!("the accepted claim of {task} is lost"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn compare(
        &mut self,
        daemon: &Daemon,
        receiver: &Receiver,
        clients: &[Client],
    ) -> Result<()> {
        for (task, record) in &self.records {
            let state = match text(record, "state") {
                "dead_lettered" => {
                    format!("dead_lettered ({})", text(&record["lastError"], "code"))
                }
                "delivered" => format!("delivered ({})", text(record, "completionKind")),
                other => other.to_owned(),
            };
            *self.states.entry(state).or_default() += 1;
            let asked = record["attempts"]["synthesis"].as_u64();
            if asked.is_none_or(|asked| asked > 1) {
                self.violations
                    .push(format!("{task}: a model was asked {asked:?} times"));
            }
        }
        let called = callbacks(receiver)?;
        let browser = Browser::log_in(daemon)?;
        for client in clients {
            let found = match client.place {
                Place::Api => Vec::new(),
                Place::Console => in_threads(&browser, &client.threads)?,
                Place::Webhook => {
                    let own = called.iter().filter(|(c, _)| *c == client.conversation());
                    own.map(|(_, text)| text.clone()).collect()
                }
                Place::Terminal => {
                    let letters = daemon.letters(&client.conversation())?;
                    let texts = letters.iter().map(|l| text(&l["letter"], "text"));
                    texts.map(str::to_owned).collect()
                }
            };
            self.of(client, &found);
        }
        Ok(())
    }

    /// Each answer is there once; of what is unknown it may be there.
    fn of(&mut self, client: &Client, found: &[String]) {
        *self.answers.entry(client.place.name()).or_default() += found.len();
        let who = format!("client {} ({})", client.number, client.place.name());
        let own = format!("{}-", client.number);
        let ours: Vec<_> = self
            .records
            .iter()
            .filter(|(task, _)| task.starts_with(&own))
            .collect();
        let count = |state: &str| {
            ours.iter()
                .filter(|(_, r)| text(r, "state") == state)
                .count()
        };
        let (delivered, unknown) = (count("delivered"), count("delivery_unknown"));
        let mut wrong = Vec::new();
        if !(delivered..=delivered + unknown).contains(&found.len()) {
            let there = found.len();
            wrong.push(format!(
                "{there} answers, but {delivered} delivered and {unknown} unknown"
            ));
        }
        let mut seen = BTreeSet::new();
        for answer in found {
            match answer.strip_prefix(ANSWER) {
                Some(task) => {
                    if !seen.insert(task) {
                        wrong.push(format!("the answer of {task} came twice"));
                    }
                    let record = self.records.get(task).filter(|_| task.starts_with(&own));
                    let state = record.map_or("unknown to all", |record| text(record, "state"));
                    if !["delivered", "delivery_unknown"].contains(&state) {
                        wrong.push(format!("the answer of {task} came, and it is {state}"));
                    }
                }
                None if answer.starts_with(LOST) => {}
                None => wrong.push(format!("an answer that nobody gave: {answer:?}")),
            }
        }
        for (task, record) in ours {
            let said = text(record, "completionKind") == "synthesized";
            if text(record, "state") == "delivered" && said && !seen.contains(task.as_str()) {
                wrong.push(format!("{task} is delivered, and its answer is not there"));
            }
        }
        self.violations
            .extend(wrong.into_iter().map(|what| format!("{who}: {what}")));
    }
}

/// The conversations and texts of the calls that brought an answer later.
fn callbacks(receiver: &Receiver) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for call in receiver.arrived() {
        let body: Value = serde_json::from_slice(&call.body)?;
        if body["continuation"] == true {
            let conversation = text(&body, "conversationId").to_owned();
            all.push((conversation, text(&body, "text").to_owned()));
        }
    }
    Ok(all)
}

/// What came in threads beside what their turns said.
fn in_threads(browser: &Browser, threads: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for thread in threads {
        let view = browser.get(&format!("/threads/{thread}"))?;
        let messages = view["messages"].as_array().context("no messages")?;
        let said = messages.iter().filter(|m| m["role"] == "assistant");
        let later = said
            .map(|m| text(m, "text"))
            .filter(|said| said.starts_with(ANSWER) || said.starts_with(LOST));
        all.extend(later.map(str::to_owned));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(states: &[&str]) -> Verdict {
        let record = |(n, state): (usize, &&str)| {
            let task = format!("9-{n}");
            let record =
                json!({ "taskKey": task, "state": state, "completionKind": "synthesized" });
            (task, record)
        };
        Verdict::new(states.iter().enumerate().map(record).collect())
    }

    fn wrong(states: &[&str], found: &[&str]) -> Vec<String> {
        let mut verdict = verdict(states);
        let found: Vec<_> = found.iter().map(|&text| text.to_owned()).collect();
        verdict.of(&Client::new(9), &found);
        verdict.violations
    }

    #[test]
    fn what_comes_twice_or_never_or_from_nowhere_is_found_out() {
        let one = ["answer of 9-0"];
        assert_eq!(wrong(&["delivered"], &one), [""; 0]);
        assert_eq!(wrong(&["delivery_unknown"], &one), [""; 0]);
        assert_eq!(wrong(&["delivery_unknown", "claimed"], &[]), [""; 0]);
        for (states, found, what) in [
            (&["delivered"][..], &[][..], "its answer is not there"),
            (
                &["delivered"],
                &["answer of 9-0", "answer of 9-0"],
                "came twice",
            ),
            (
                &["dead_lettered"],
                &["answer of 9-0"],
                "it is dead_lettered",
            ),
            (&["delivered"], &["answer of 9-7"], "it is unknown to all"),
            (&["delivered"], &["answer of 8-0"], "it is unknown to all"),
            (&["delivered"], &["something else"], "nobody gave"),
        ] {
            let wrong = wrong(states, found);
            let said = wrong.iter().any(|wrong| wrong.contains(what));
            assert!(said, "{what}: {wrong:?}");
        }
    }

    #[test]
    fn a_claim_that_the_host_does_not_know_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut verdict = verdict(&["claimed"]);
        for (n, lost) in [(0, 0), (1, 1)] {
            let claim = json!({ "task": format!("9-{n}") }).to_string();
            std::fs::write(folder.path().join(format!("{n}.json")), claim).expect("written");
            verdict.violations.clear();
            verdict.kept(folder.path()).expect("read");
            assert_eq!(verdict.violations.len(), lost);
        }
    }
}
