//! What an answer has brought so far, within its bounds.

use super::{Delta, WireCall};
use crate::failure::{ErrorClass, Failure};
use std::collections::HashSet;

/// Most bytes of text and thoughts in one answer.
pub const MAX_TEXT: usize = 16 * 1024 * 1024;
/// Most bytes of arguments of all tool calls of one answer.
pub const MAX_ARGUMENTS: usize = 8 * 1024 * 1024;
/// Most tool calls of one answer.
pub const MAX_CALLS: usize = 128;
/// Bytes of the arguments of one call that are told as they come; what is longer comes whole.
pub const MAX_STREAMED: usize = 64 * 1024;
/// Longest id or name of a tool call in bytes; names on offer have 64 at most.
pub const MAX_NAME: usize = 256;

/// Counts text and collects tool calls by the wire's own position numbers.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    text: usize,
    arguments: usize,
    /// Tools whose arguments are told as they come.
    streamed: HashSet<String>,
    calls: Vec<(u64, WireCall)>,
}

impl Assembly {
    pub(super) fn text(&mut self, piece: &str, out: &mut Vec<Delta>) -> Result<(), Failure> {
        self.count_text(piece)?;
        out.push(Delta::Text(piece.to_owned()));
        Ok(())
    }

    pub(super) fn thought(&mut self, piece: &str, out: &mut Vec<Delta>) -> Result<(), Failure> {
        self.count_text(piece)?;
        out.push(Delta::Thought(piece.to_owned()));
        Ok(())
    }

    fn count_text(&mut self, piece: &str) -> Result<(), Failure> {
        self.text += piece.len();
        if self.text > MAX_TEXT {
            return Err(too_large("text", MAX_TEXT));
        }
        Ok(())
    }

    /// The newest call with this number.
    pub(super) fn call(&mut self, number: u64) -> Option<&mut WireCall> {
        self.calls
            .iter_mut()
            .rev()
            .find(|(n, _)| *n == number)
            .map(|(_, call)| call)
    }

    /// The number of the newest call.
    pub(super) fn last_number(&self) -> Option<u64> {
        self.calls.last().map(|(number, _)| *number)
    }

    /// Begins a call. A number may come again: then it means the new call from here on.
    pub(super) fn begin(&mut self, number: u64, id: &str, name: &str) -> Result<(), Failure> {
        if self.calls.len() == MAX_CALLS {
            return Err(Failure::new(
                ErrorClass::AnswerTooLarge,
                format!("the answer has more than {MAX_CALLS} tool calls"),
            ));
        }
        let call = WireCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
        };
        self.calls.push((number, call));
        Ok(())
    }

    pub(super) fn stream(&mut self, tools: HashSet<String>) {
        self.streamed = tools;
    }

    /// Adds to the arguments of call `number`; a piece for a call that never began is dropped.
    pub(super) fn append(
        &mut self,
        number: u64,
        piece: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), Failure> {
        self.count_arguments(piece)?;
        let Some(at) = self.calls.iter().rposition(|(n, _)| *n == number) else {
            return Ok(());
        };
        let call = &mut self.calls[at].1;
        call.arguments.push_str(piece);
        let told = !piece.is_empty() && call.arguments.len() <= MAX_STREAMED;
        if told && self.streamed.contains(&call.name) {
            out.push(Delta::Arguments {
                call: u32::try_from(at).unwrap_or(u32::MAX),
                name: call.name.clone(),
                text: piece.to_owned(),
            });
        }
        Ok(())
    }

    /// Puts the final arguments in place of the pieces.
    pub(super) fn replace(&mut self, number: u64, whole: &str) -> Result<(), Failure> {
        if let Some(call) = self.call(number) {
            let before = std::mem::take(&mut call.arguments);
            self.arguments -= before.len().min(self.arguments);
            // Not told: it was, in pieces, or it is whole as soon as it begins.
            self.append(number, whole, &mut Vec::new())?;
        }
        Ok(())
    }

    fn count_arguments(&mut self, piece: &str) -> Result<(), Failure> {
        self.arguments += piece.len();
        if self.arguments > MAX_ARGUMENTS {
            return Err(too_large("tool arguments", MAX_ARGUMENTS));
        }
        Ok(())
    }

    /// All calls in order. No arguments at all is an empty object.
    pub(super) fn into_calls(self) -> Result<Vec<WireCall>, Failure> {
        let mut calls = Vec::with_capacity(self.calls.len());
        for (_, mut call) in self.calls {
            if call.name.is_empty() {
                return Err(Failure::new(
                    ErrorClass::ServerError,
                    "a tool call without a name",
                ));
            }
            if call.name.len() > MAX_NAME || call.id.len() > MAX_NAME {
                let message = format!("a tool call's id or name is longer than {MAX_NAME} bytes");
                return Err(Failure::new(ErrorClass::ServerError, message));
            }
            if call.arguments.trim().is_empty() {
                "{}".clone_into(&mut call.arguments);
            }
            calls.push(call);
        }
        Ok(calls)
    }
}

fn too_large(what: &str, bound: usize) -> Failure {
    Failure::new(
        ErrorClass::AnswerTooLarge,
        format!("the answer's {what} are larger than {bound} bytes"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn class(outcome: Result<(), Failure>) -> Option<ErrorClass> {
        outcome.err().map(|f| f.class)
    }

    #[test]
    fn text_and_thoughts_share_a_bound() {
        let mut assembly = Assembly::default();
        let mut out = Vec::new();
        let half = "x".repeat(MAX_TEXT / 2);
        assembly.text(&half, &mut out).unwrap();
        assembly.thought(&half, &mut out).unwrap();
        assert_eq!(
            class(assembly.text("x", &mut out)),
            Some(ErrorClass::AnswerTooLarge)
        );
    }

    #[test]
    fn arguments_have_a_bound_that_replacing_does_not_use_up() {
        let mut assembly = Assembly::default();
        assembly.begin(0, "a", "t").unwrap();
        let whole = "x".repeat(MAX_ARGUMENTS);
        for _ in 0..3 {
            assembly.replace(0, &whole).unwrap();
        }
        assert_eq!(
            class(assembly.append(0, "x", &mut Vec::new())),
            Some(ErrorClass::AnswerTooLarge)
        );
        assert_eq!(
            class(assembly.append(9, "x", &mut Vec::new())),
            Some(ErrorClass::AnswerTooLarge)
        );
    }

    #[test]
    fn arguments_are_told_as_they_come_where_that_is_wanted_and_not_for_ever() {
        let mut assembly = Assembly::default();
        assembly.stream(HashSet::from(["shown".to_owned()]));
        assembly.begin(4, "a", "other").unwrap();
        assembly.begin(7, "b", "shown").unwrap();
        let mut out = Vec::new();
        assembly.append(4, "{", &mut out).unwrap();
        assembly.append(9, "{", &mut out).unwrap();
        assembly.append(7, "", &mut out).unwrap();
        assembly.replace(7, "{").unwrap();
        assert!(out.is_empty(), "{out:?}");
        let half = "x".repeat(MAX_STREAMED - 1);
        assembly.append(7, &half, &mut out).unwrap();
        let told = Delta::Arguments {
            call: 1,
            name: "shown".into(),
            text: half,
        };
        assert_eq!(out, [told]);
        assembly.append(7, "x", &mut out).unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(
            assembly.into_calls().unwrap()[1].arguments.len(),
            MAX_STREAMED + 1
        );
    }

    #[test]
    fn ids_and_names_have_a_bound() {
        let ends = |id: usize, name: usize| {
            let mut assembly = Assembly::default();
            assembly
                .begin(0, &"i".repeat(id), &"n".repeat(name))
                .unwrap();
            assembly.into_calls().is_ok()
        };
        assert!(ends(0, 1) && ends(MAX_NAME, MAX_NAME));
        assert!(!ends(0, 0) && !ends(MAX_NAME + 1, 1) && !ends(1, MAX_NAME + 1));
    }

    #[test]
    fn calls_have_a_bound() {
        let mut assembly = Assembly::default();
        for n in 0..MAX_CALLS as u64 {
            assembly.begin(n, "", "t").unwrap();
        }
        assert_eq!(
            class(assembly.begin(0, "", "t")),
            Some(ErrorClass::AnswerTooLarge)
        );
    }
}
