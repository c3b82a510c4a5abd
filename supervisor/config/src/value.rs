//! One value against one row: its type, its bounds, its form.

use crate::diagnostic::{nearest, quote};
use crate::field::{Fallback, Field, Kind};
use crate::form;
use crate::json::{Node, Tree};
use secret_signs::looks_secret;
use serde_json::{Number, Value};

/// Why a value doesn't fit. The place is the caller's to add.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) expected: String,
    pub(crate) suggestion: Option<String>,
}

impl Mismatch {
    fn new(
        code: &'static str,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Mismatch {
        Mismatch {
            code,
            message: message.into(),
            expected: expected.into(),
            suggestion: None,
        }
    }
}

/// Checks a single value (not a list, not an object). `secret` keeps the value out of the message.
pub(crate) fn check(kind: &Kind, node: &Node, secret: bool) -> Result<Value, Mismatch> {
    let wrong_type = || {
        let mut mismatch = Mismatch::new(
            "wrong_type",
            format!("found {}", describe(node, secret)),
            expected(kind),
        );
        if let (
            Tree::Text(text),
            Kind::Bool | Kind::Int { .. } | Kind::Millis { .. } | Kind::Number { .. },
        ) = (&node.tree, kind)
            && !secret
            && (matches!(text.as_str(), "true" | "false") || text.parse::<f64>().is_ok())
        {
            mismatch.suggestion = Some(format!("write {} without quotes", quote(text)));
        }
        mismatch
    };
    let out_of_range =
        |shown: String| Mismatch::new("out_of_range", format!("found {shown}"), expected(kind));

    match (kind, &node.tree) {
        (Kind::Bool, Tree::Bool(b)) => Ok(Value::Bool(*b)),
        (Kind::Int { min, max } | Kind::Millis { min, max }, Tree::Number(number)) => {
            let whole = whole(number).ok_or_else(wrong_type)?;
            if whole < i128::from(*min) || whole > i128::from(*max) {
                return Err(out_of_range(number.to_string()));
            }
            i64::try_from(whole)
                .map(Value::from)
                .map_err(|_| wrong_type())
        }
        (Kind::IntChoice(of), Tree::Number(number)) => {
            let found = whole(number).and_then(|whole| i64::try_from(whole).ok());
            match found.filter(|n| of.contains(n)) {
                Some(n) => Ok(Value::from(n)),
                None => Err(out_of_range(number.to_string())),
            }
        }
        (Kind::Id, Tree::Number(number)) => match whole(number) {
            Some(whole) => Ok(Value::String(whole.to_string())),
            None => Err(wrong_type()),
        },
        (Kind::Number { min, max }, Tree::Number(number)) => match number.as_f64() {
            Some(n) if n >= *min && n <= *max => Ok(Value::Number(number.clone())),
            _ => Err(out_of_range(number.to_string())),
        },
        (Kind::Choice(of), Tree::Text(text)) => {
            if of.contains(&text.as_str()) {
                return Ok(Value::String(text.clone()));
            }
            let mut mismatch = Mismatch::new(
                "not_a_choice",
                format!("found {}", describe(node, secret)),
                expected(kind),
            );
            mismatch.suggestion =
                nearest(text, of.iter().copied()).map(|near| format!("did you mean \"{near}\"?"));
            Err(mismatch)
        }
        (
            Kind::Text { .. }
            | Kind::Id
            | Kind::Path(_)
            | Kind::SecretEnv
            | Kind::SecretFile
            | Kind::SecretCredential,
            Tree::Text(text),
        ) => {
            let (max, form) = text_bounds(kind);
            if text.is_empty() {
                return Err(Mismatch::new(
                    "empty",
                    "found an empty string",
                    expected(kind),
                ));
            }
            if text.len() > max {
                let found = format!("found a string of {} bytes", text.len());
                return Err(Mismatch::new(
                    "too_long",
                    found,
                    format!("at most {max} bytes"),
                ));
            }
            form::check(form, text).map_err(|expected| {
                Mismatch::new(
                    "wrong_form",
                    format!("found {}", describe(node, secret)),
                    expected,
                )
            })?;
            Ok(Value::String(text.clone()))
        }
        _ => Err(wrong_type()),
    }
}

/// Bounds and form of the kinds that are strings.
pub(crate) fn text_bounds(kind: &Kind) -> (usize, crate::field::Form) {
    use crate::field::Form;
    match kind {
        Kind::Text { max, form } => (*max, *form),
        Kind::Id => (64, Form::Line),
        Kind::SecretEnv => (128, Form::EnvName),
        Kind::SecretCredential => (255, Form::CredentialName),
        // A path: the kernel's own bound.
        _ => (4096, Form::Line),
    }
}

/// A whole number, also one written as `3.0` or `1e3`.
fn whole(number: &Number) -> Option<i128> {
    // 2^53: beyond it a float no longer says which integer was meant.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(n) = number.as_i64() {
        return Some(i128::from(n));
    }
    if let Some(n) = number.as_u64() {
        return Some(i128::from(n));
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i128)
}

/// What the row wants, in words.
pub(crate) fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "true or false".into(),
        Kind::Int { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Millis { min, max } => format!("milliseconds, a whole number from {min} to {max}"),
        Kind::Number { min, max } => format!("a number from {min} to {max}"),
        Kind::Text { form, .. } => form::expected(*form).into(),
        Kind::Choice(of) => format!("one of {}", of.join(", ")),
        Kind::Id => "a name or a whole number".into(),
        Kind::IntChoice(of) => {
            format!(
                "one of {}",
                of.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
            )
        }
        Kind::Path(_) => "a path".into(),
        Kind::List { item, max } => {
            format!("a list of at most {max} values, each {}", expected(item))
        }
        Kind::TextMap { .. } => "an object whose values are strings".into(),
        Kind::SecretEnv => form::expected(crate::field::Form::EnvName).into(),
        Kind::SecretFile => "the path of a file".into(),
        Kind::SecretCredential => form::expected(crate::field::Form::CredentialName).into(),
        Kind::Payload => "an object".into(),
        Kind::Section { .. } | Kind::Map { .. } => "an object".into(),
        Kind::Records { max } => format!("a list of at most {max} objects"),
    }
}

/// What was found, bounded, and never a secret.
pub(crate) fn describe(node: &Node, secret: bool) -> String {
    match &node.tree {
        Tree::Null => "null".into(),
        Tree::Bool(b) if !secret => b.to_string(),
        Tree::Number(n) if !secret => format!("the number {n}"),
        Tree::Text(text) if !secret && looks_secret(text) => {
            "a string that looks like a credential".into()
        }
        Tree::Text(text) if !secret => format!("the string {}", quote(text)),
        Tree::Bool(_) => "a boolean".into(),
        Tree::Number(_) => "a number".into(),
        Tree::Text(_) => "a string".into(),
        Tree::List(_) => "a list".into(),
        Tree::Object(_) => "an object".into(),
    }
}

/// The default of a row as JSON, if it has one.
pub(crate) fn default(field: &Field) -> Option<Value> {
    Some(match field.default {
        Fallback::Unset | Fallback::Meaning(_) => return None,
        Fallback::Bool(b) => Value::from(b),
        Fallback::Int(n) => Value::from(n),
        Fallback::Number(n) => Value::from(n),
        Fallback::Text(text) => Value::from(text),
        Fallback::Texts(texts) => Value::from(texts.to_vec()),
    })
}
