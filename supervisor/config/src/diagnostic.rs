//! What is wrong with a configuration, and where.

use serde::Serialize;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One problem. Never holds a secret; what it quotes is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// A fixed word for the kind of problem, for scripts: `unknown_key`, `invalid_tool_policy`, …
    pub code: &'static str,
    /// The file, unless the problem is in an environment variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// In characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The environment variable whose value is the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The JSON key path, as in `runtime.fallbacks[1].model`; empty for the whole file.
    pub key: String,
    /// What was found, in words.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl Diagnostic {
    pub fn error(
        code: &'static str,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            file: None,
            line: None,
            column: None,
            env: None,
            key: key.into(),
            message: message.into(),
            expected: None,
            suggestion: None,
        }
    }

    pub fn warning(
        code: &'static str,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, key, message)
        }
    }

    #[must_use]
    pub fn at(mut self, place: &Place) -> Diagnostic {
        match place {
            Place::File { file, at } => {
                self.file = Some(file.clone());
                self.line = Some(at.line);
                self.column = Some(at.column);
            }
            Place::Env(name) => self.env = Some(name.clone()),
        }
        self
    }

    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Diagnostic {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Diagnostic {
        self.suggestion = Some(suggestion.into());
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    File {
        file: String,
        at: crate::json::Position,
    },
    Env(String),
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, &self.env) {
            (Some(file), _) => {
                write!(f, "{file}:")?;
                if let (Some(line), Some(column)) = (self.line, self.column) {
                    write!(f, "{line}:{column}:")?;
                }
                write!(f, " ")?;
            }
            (None, Some(env)) => write!(f, "{env}: ")?,
            (None, None) => {}
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}]: ", self.code)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(expected) = &self.expected {
            write!(f, "\n  expected: {expected}")?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n  help: {suggestion}")?;
        }
        Ok(())
    }
}

/// All problems of a configuration that can't be used, warnings among them, in the order of the file.
#[derive(Debug, Clone)]
pub struct Errors {
    pub diagnostics: Vec<Diagnostic>,
}

impl Errors {
    pub fn count(&self) -> usize {
        self.diagnostics.iter().filter(|d| d.is_error()).count()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{diagnostic}")?;
        }
        let count = self.count();
        write!(
            f,
            "{count} error{} in the configuration",
            if count == 1 { "" } else { "s" }
        )
    }
}

impl std::error::Error for Errors {}

/// Orders by place: the file's problems from top to bottom, then those of the environment.
pub(crate) fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by(|a, b| {
        let place = |d: &Diagnostic| {
            (
                d.env.is_some(),
                d.file.clone(),
                d.line,
                d.column,
                d.env.clone(),
            )
        };
        place(a).cmp(&place(b)).then_with(|| a.key.cmp(&b.key))
    });
}

/// A text for a message: control characters escaped, at most 60 characters.
pub(crate) fn quote(text: &str) -> String {
    const MAX: usize = 60;
    let mut out: String = text
        .chars()
        .take(MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MAX).is_some() {
        out.push('…');
    }
    format!("\"{out}\"")
}

/// The candidate that a misspelt `word` most probably means.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A longer word may differ more; below this threshold the guess confuses more than it helps.
    const ALIKE: f64 = 0.82;
    // The measure is quadratic, and the word comes from the file.
    if word.len() > 128 {
        return None;
    }
    let folded = word.to_lowercase().replace(['_', '-'], "");
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&folded, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(score, _)| *score >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Position;

    #[test]
    fn shown_as_a_compiler_does() {
        let place = Place::File {
            file: "a.json".into(),
            at: Position { line: 3, column: 7 },
        };
        let shown = Diagnostic::error("unknown_key", "runtime.modle", "unknown key")
            .at(&place)
            .expected("a key of runtime")
            .suggest("did you mean `model`?")
            .to_string();
        assert_eq!(
            shown,
            "a.json:3:7: error[unknown_key]: runtime.modle: unknown key\n  expected: a key of runtime\n  help: did you mean `model`?"
        );
    }

    #[test]
    fn quoted_text_is_bounded_and_has_no_control_character() {
        let quoted = quote(&format!("\u{1b}[31m{}", "x".repeat(1000)));
        assert!(quoted.chars().count() < 80, "{quoted}");
        assert!(!quoted.contains('\u{1b}'));
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("modle", ["model", "effort"]), Some("model"));
        assert_eq!(
            nearest("max_turns", ["maxTurns", "model"]),
            Some("maxTurns")
        );
        assert_eq!(nearest("zzz", ["model", "effort"]), None);
        assert_eq!(nearest(&"m".repeat(100_000), ["model"]), None);
    }
}
