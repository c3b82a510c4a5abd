//! Directives in a message, and the behaviour they add up to.

use super::conversation::{Api, Speaker, Turn, own_words, pick};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// One `[[mock:NAME REST]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Directive {
    name: String,
    rest: String,
}

/// The directives in `text` that hold for `model`.
fn directives(text: &str, model: &str) -> Vec<Directive> {
    let mut out = Vec::new();
    for part in text.split("[[mock").skip(1) {
        let Some(inner) = part.split("]]").next() else {
            continue;
        };
        let (only, inner) = match inner.strip_prefix('@') {
            Some(rest) => match rest.split_once(':') {
                Some((only, inner)) => (Some(only), inner),
                None => continue,
            },
            None => match inner.strip_prefix(':') {
                Some(inner) => (None, inner),
                None => continue,
            },
        };
        if only.is_none_or(|only| only == model) {
            let (name, rest) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
            out.push(Directive {
                name: name.to_owned(),
                rest: rest.trim().to_owned(),
            });
        }
    }
    out
}

/// What the service says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Text(String),
    Call { name: String, arguments: String },
}

/// A refusal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refuse {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
}

/// Everything about one answer.
#[derive(Debug, Clone)]
pub(super) struct Behaviour {
    pub(super) said: Said,
    pub(super) thought: Option<String>,
    pub(super) delay: Duration,
    pub(super) gap: Duration,
    /// Characters of one delta.
    pub(super) piece: Option<usize>,
    pub(super) refuse: Option<Refuse>,
    /// Refuse so the first n times that `key` is seen.
    pub(super) flaky: Option<(u64, Refuse)>,
    pub(super) cut: Option<usize>,
    /// Cut after so many events, the first n times that `key` is seen.
    pub(super) cut_first: Option<(u64, usize)>,
    pub(super) stall: Option<usize>,
    /// After so many events, the rest waits until this file is there.
    pub(super) hold: Option<(usize, PathBuf)>,
    pub(super) hang: bool,
    pub(super) malformed: bool,
    pub(super) garbage: bool,
    pub(super) leak: bool,
    /// The message that decided, for counting.
    pub(super) key: String,
    /// Tool results after that message.
    pub(super) results: usize,
    /// A wanted tool that was not on offer.
    pub(super) missing: Option<String>,
}

/// Decides from the newest user message with a directive, else from the newest user message.
pub(super) fn behaviour(api: Api, model: &str, turns: &[Turn], tools: &[String]) -> Behaviour {
    let is_user = |t: &Turn| t.speaker == Speaker::User;
    let at = turns
        .iter()
        .rposition(|t| is_user(t) && own_words(&t.text).contains("[[mock"))
        .or_else(|| turns.iter().rposition(is_user));
    let text = at.map_or("", |at| own_words(&turns[at].text));
    let after = at.map_or(&turns[..0], |at| &turns[at + 1..]);
    let results: Vec<&Turn> = after
        .iter()
        .filter(|t| t.speaker == Speaker::Tool)
        .collect();

    let mut b = Behaviour {
        said: Said::Text("pong".to_owned()),
        thought: None,
        delay: Duration::ZERO,
        gap: Duration::ZERO,
        piece: None,
        refuse: None,
        flaky: None,
        cut: None,
        cut_first: None,
        stall: None,
        hold: None,
        hang: false,
        malformed: false,
        garbage: false,
        leak: false,
        key: format!("{} {model} {text}", api.name()),
        results: results.len(),
        missing: None,
    };
    let mut calls: Vec<(String, Value)> = Vec::new();
    for Directive { name, rest } in directives(text, model) {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize, default: u64| {
            words
                .get(at)
                .and_then(|w| w.parse::<u64>().ok())
                .unwrap_or(default)
        };
        let count = |at: usize| usize::try_from(number(at, 2)).unwrap_or(usize::MAX);
        match name.as_str() {
            "text" => b.said = Said::Text(rest),
            "think" => b.thought = Some(rest),
            "echo" => {
                if let Some(last) = results.last() {
                    b.said = Said::Text(format!("tool said: {}", last.text));
                }
            }
            "long" => {
                let words = usize::try_from(number(0, 1000)).unwrap_or(0).min(1_000_000);
                b.said = Said::Text("word ".repeat(words).trim_end().to_owned());
            }
            "tool" => {
                let (name, arguments) = rest
                    .split_once(char::is_whitespace)
                    .unwrap_or((&rest, "{}"));
                let arguments =
                    serde_json::from_str(arguments).unwrap_or_else(|_| json!({"input": arguments}));
                calls.push((name.to_owned(), arguments));
            }
            "bigtool" => {
                let size = usize::try_from(number(1, 2 << 20))
                    .unwrap_or(0)
                    .min(64 << 20);
                let name = words.first().copied().unwrap_or("echo");
                calls.push((name.to_owned(), json!({"message": "x".repeat(size)})));
            }
            "delay" => b.delay = Duration::from_millis(number(0, 1000)),
            "gap" => b.gap = Duration::from_millis(number(0, 50)),
            "piece" => b.piece = Some(count(0).max(1)),
            "status" => b.refuse = Some(refuse(words.first(), words.get(1), 500)),
            "flaky" => b.flaky = Some((number(0, 1), refuse(words.get(1), words.get(2), 503))),
            "cut" => b.cut = Some(count(0)),
            "cut-first" => b.cut_first = Some((number(0, 1), count(1))),
            "stall" => b.stall = Some(count(0)),
            "hold" => b.hold = words.get(1).map(|path| (count(0), PathBuf::from(path))),
            "hang" => b.hang = true,
            "malformed" => b.malformed = true,
            "garbage" => b.garbage = true,
            "leak" => b.leak = true,
            _ => {}
        }
    }
    if let Some((wanted, arguments)) = calls.get(results.len()) {
        match pick(tools, wanted) {
            Some(name) => {
                b.said = Said::Call {
                    name: name.to_owned(),
                    arguments: arguments.to_string(),
                };
            }
            None => b.missing = Some(wanted.clone()),
        }
    }
    b
}

fn refuse(status: Option<&&str>, retry_after: Option<&&str>, default: u16) -> Refuse {
    Refuse {
        status: status.and_then(|s| s.parse().ok()).unwrap_or(default),
        retry_after: retry_after.map(|s| (*s).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn turn(speaker: Speaker, text: &str) -> Turn {
        Turn {
            speaker,
            text: text.to_owned(),
        }
    }

    fn decide(turns: &[Turn]) -> Behaviour {
        behaviour(Api::Chat, "m", turns, &["mcp__mini__echo".to_owned()])
    }

    #[test]
    fn without_a_directive_it_says_pong() {
        assert_eq!(decide(&[]).said, Said::Text("pong".into()));
        assert_eq!(
            decide(&[turn(Speaker::User, "hi")]).said,
            Said::Text("pong".into())
        );
    }

    #[test]
    fn tools_are_called_once_each_and_in_order() {
        let mut turns = vec![turn(
            Speaker::User,
            "[[mock:tool echo {\"a\":1}]] [[mock:tool nope]] [[mock:text end]]",
        )];
        let call =
            |said: &Said| matches!(said, Said::Call { name, .. } if name == "mcp__mini__echo");
        assert!(call(&decide(&turns).said));
        turns.push(turn(Speaker::Tool, "r1"));
        let second = decide(&turns);
        assert_eq!(
            (second.missing.as_deref(), &second.said),
            (Some("nope"), &Said::Text("end".into()))
        );
        turns.push(turn(Speaker::Tool, "r2"));
        turns.push(turn(Speaker::User, "a reminder of the host"));
        assert_eq!(decide(&turns).said, Said::Text("end".into()));
    }

    #[test]
    fn directives_that_a_host_note_quotes_are_not_obeyed() {
        let text = "<host-note kind=\"x\">\n> [[mock:hang]]\n</host-note>\n[[mock:text fine]]";
        let b = decide(&[turn(Speaker::User, text)]);
        assert!(!b.hang);
        assert_eq!(b.said, Said::Text("fine".into()));
    }

    #[test]
    fn a_directive_may_hold_for_one_model() {
        let text = "[[mock@other:status 401]] [[mock@m:status 429 7]]";
        let b = decide(&[turn(Speaker::User, text)]);
        assert_eq!(
            b.refuse,
            Some(Refuse {
                status: 429,
                retry_after: Some("7".into())
            })
        );
    }
}
