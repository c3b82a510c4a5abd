//! The named sets of system calls, read from the data files under `syscalls/`.

use super::constants::{errno_of, value_of};
use super::names::{Named, lookup};
use super::{Action, Condition, Decision, Filter, Rule};
use serde::Deserialize;
use std::collections::BTreeMap;
use thiserror::Error;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../syscalls/", $name, ".json")))),*];
    };
}

files! {
    "core", "exec-by-descriptor", "exec-by-path", "files-own", "files-read", "files-resolve", "files-sync",
    "kill-hostile",     "kill-io-uring", "net-accept", "net-client", "program", "sockets-inet", "start",
}

/// The names of all sets.
pub fn set_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// A data file says something that has no meaning.
#[derive(Debug, Error)]
pub enum SetError {
    /// No such file.
    #[error("there is no set of system calls named `{0}` (see policy/syscalls/)")]
    NoSet(String),
    /// Not of the form that is read.
    #[error("syscalls/{set}.json: {source}")]
    Malformed {
        /// The set.
        set: String,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A name that stands for nothing.
    #[error("syscalls/{set}.json: `{word}` is no {kind}")]
    Unknown {
        /// The set.
        set: String,
        /// What is wrong.
        word: String,
        /// What it should have been.
        kind: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFile {
    #[expect(
        dead_code,
        reason = "for the reader of the file; its presence is required"
    )]
    summary: String,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[expect(
        dead_code,
        reason = "for the reader of the file; its presence is required"
    )]
    reason: String,
    calls: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or an object with `call` and `when`")]
enum Entry {
    Always(String),
    Conditional(Conditional),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conditional {
    call: String,
    when: Vec<When>,
    /// The error when the call is listed but its arguments don't fit. `EPERM` if absent.
    otherwise: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    arg: u8,
    mask: Option<String>,
    /// The argument is 64 bits wide: a pointer or a length.
    #[serde(default)]
    wide: bool,
    /// Any of these.
    #[serde(default)]
    is: Vec<String>,
    /// None of these.
    #[serde(default)]
    not: Vec<String>,
}

const NARROW: u64 = u32::MAX as u64;

struct Set<'a> {
    name: &'a str,
}

impl Set<'_> {
    fn unknown(&self, word: &str, kind: &'static str) -> SetError {
        SetError::Unknown {
            set: self.name.to_owned(),
            word: word.to_owned(),
            kind,
        }
    }

    fn read(&self) -> Result<SetFile, SetError> {
        let file = FILES.iter().find(|(known, _)| *known == self.name);
        let (_, text) = file.ok_or_else(|| SetError::NoSet(self.name.to_owned()))?;
        serde_json::from_str(text).map_err(|source| SetError::Malformed {
            set: self.name.to_owned(),
            source,
        })
    }

    fn number(&self, call: &str) -> Result<Option<u32>, SetError> {
        match lookup(call) {
            Named::Call(number) => Ok(Some(number)),
            Named::Elsewhere => Ok(None),
            Named::Unknown => Err(self.unknown(call, "system call")),
        }
    }

    fn value(&self, word: &str) -> Result<u64, SetError> {
        value_of(word).ok_or_else(|| self.unknown(word, "value"))
    }

    /// All conjunctions that the tests allow: each `is` list multiplies them by its length.
    fn alternatives(&self, tests: &[When]) -> Result<Vec<Vec<Condition>>, SetError> {
        let mut alternatives = vec![Vec::new()];
        for test in tests {
            if test.arg > 5 || test.is.is_empty() == test.not.is_empty() {
                return Err(self.unknown("when", "test with an argument 0 to 5 and one of is, not"));
            }
            let mask = match &test.mask {
                Some(mask) => self.value(mask)?,
                None if test.wide => u64::MAX,
                None => NARROW,
            };
            let condition = |word: &String, equal| {
                let value = self.value(word)?;
                if value & !mask != 0 {
                    return Err(self.unknown(word, "value inside its mask"));
                }
                Ok(Condition {
                    argument: test.arg,
                    mask,
                    value,
                    equal,
                })
            };
            for word in &test.not {
                let condition = condition(word, false)?;
                alternatives
                    .iter_mut()
                    .for_each(|conditions| conditions.push(condition));
            }
            if !test.is.is_empty() {
                let mut multiplied = Vec::new();
                for word in &test.is {
                    let condition = condition(word, true)?;
                    multiplied.extend(alternatives.iter().cloned().map(|mut conditions| {
                        conditions.push(condition);
                        conditions
                    }));
                }
                alternatives = multiplied;
            }
        }
        Ok(alternatives)
    }
}

pub(super) fn combine(allow: &[&str], kill: &[&str]) -> Result<Filter, SetError> {
    let mut calls: BTreeMap<u32, Decision> = BTreeMap::new();
    // Hostile rules come first, so that they win.
    for (names, action) in [(kill, Action::Kill), (allow, Action::Allow)] {
        for name in names {
            add(&mut calls, &Set { name }, action)?;
        }
    }
    for decision in calls.values_mut() {
        simplify(decision);
    }
    Ok(Filter {
        calls,
        unlisted: super::UNLISTED,
        foreign: Action::Kill,
    })
}

fn add(calls: &mut BTreeMap<u32, Decision>, set: &Set<'_>, action: Action) -> Result<(), SetError> {
    const UNFITTING: Action = Action::Errno(libc::EPERM as u16);
    for entry in set.read()?.groups.into_iter().flat_map(|group| group.calls) {
        let (call, alternatives, otherwise) = match &entry {
            Entry::Always(call) => (call, vec![Vec::new()], UNFITTING),
            Entry::Conditional(entry) => {
                let otherwise = match &entry.otherwise {
                    Some(name) => Action::Errno(
                        errno_of(name).ok_or_else(|| set.unknown(name, "error name"))?,
                    ),
                    None => UNFITTING,
                };
                (&entry.call, set.alternatives(&entry.when)?, otherwise)
            }
        };
        let Some(number) = set.number(call)? else {
            continue;
        };
        let unlisted = Decision {
            rules: Vec::new(),
            otherwise: super::UNLISTED,
        };
        let decision = calls.entry(number).or_insert(unlisted);
        if action == Action::Allow && matches!(decision.otherwise, Action::Errno(_)) {
            // The first list that names a call for a reason of its own says the error.
            if matches!(decision.otherwise, a if a == super::UNLISTED || a == UNFITTING) {
                decision.otherwise = otherwise;
            }
        }
        let rules = alternatives
            .into_iter()
            .map(|conditions| Rule { conditions, action });
        decision.rules.extend(rules);
    }
    Ok(())
}

/// Drops what can't be reached: allowing rules beside one that always allows, and everything
/// after a rule that always holds.
pub(super) fn simplify(decision: &mut Decision) {
    let always = |rule: &Rule, action| rule.conditions.is_empty() && rule.action == action;
    let has = |action| decision.rules.iter().any(|rule| always(rule, action));
    let strictest = [Action::Kill, Action::Before].into_iter().find(|a| has(*a));
    let only = |action| Rule {
        conditions: Vec::new(),
        action,
    };
    if let Some(action) = strictest {
        decision.rules = vec![only(action)];
    } else if has(Action::Allow) {
        decision.rules.retain(|rule| rule.action != Action::Allow);
        decision.rules.push(only(Action::Allow));
    }
    decision.rules.dedup();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn number(name: &str) -> u32 {
        match lookup(name) {
            Named::Call(number) => number,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn every_file_is_understood_and_says_something() {
        for name in set_names() {
            let filter = combine(&[name], &[]).unwrap();
            assert!(!filter.calls.is_empty(), "{name}");
        }
        assert!(matches!(
            combine(&["nothing"], &[]),
            Err(SetError::NoSet(_))
        ));
    }

    #[test]
    fn what_one_set_allows_always_another_cannot_narrow() {
        let filter = combine(&["core", "start"], &[]).unwrap();
        assert_eq!(
            filter.calls[&number("mmap")].constant(),
            Some(Action::Allow)
        );
        let narrow = combine(&["core"], &[]).unwrap();
        assert_eq!(narrow.calls[&number("mmap")].constant(), None);
    }

    #[test]
    fn a_hostile_call_stays_hostile_when_a_set_allows_it() {
        let filter = combine(&["program"], &["kill-hostile"]).unwrap();
        let clone = &filter.calls[&number("clone")];
        assert_eq!(clone.rules[0].action, Action::Kill);
        assert_eq!(clone.rules.last().unwrap().action, Action::Allow);
        assert_eq!(
            filter.calls[&number("ptrace")].constant(),
            Some(Action::Kill)
        );
    }

    #[test]
    fn words_without_meaning_are_named() {
        let set = Set { name: "test" };
        let test = |json: &str| {
            let when: Vec<When> = serde_json::from_str(json).unwrap();
            set.alternatives(&when).map_err(|error| error.to_string())
        };
        assert!(
            test(r#"[{"arg": 1, "is": ["AF_WHAT"]}]"#)
                .unwrap_err()
                .contains("AF_WHAT")
        );
        assert!(test(r#"[{"arg": 6, "is": ["1"]}]"#).is_err());
        assert!(test(r#"[{"arg": 1}]"#).is_err());
        assert!(test(r#"[{"arg": 1, "is": ["1"], "not": ["2"]}]"#).is_err());
        assert!(test(r#"[{"arg": 1, "mask": "0x1", "is": ["2"]}]"#).is_err());
        assert_eq!(
            test(r#"[{"arg":0,"is":["1","2"]},{"arg":1,"is":["3","4"]}]"#)
                .unwrap()
                .len(),
            4
        );
    }
}
