//! One JSON-RPC message, as far as a relay looks at it. What it carries stays as it was written.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Longest id in bytes as it is written.
pub const MAX_ID: usize = 256;
/// Longest name of a method in bytes.
pub const MAX_METHOD: usize = 256;
/// JSON-RPC: not a message.
pub const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: nobody knows the method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: everything else.
pub const INTERNAL: i32 = -32603;

/// Why a line is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not a JSON object with the members of a message.
    #[error("not a JSON-RPC message: {0}")]
    Json(String),
    /// An id that is neither a string nor a number, or is too long.
    #[error("an id is a string or a number of at most {MAX_ID} bytes")]
    Id,
    /// A name that is too long.
    #[error("a method's name has at most {MAX_METHOD} bytes")]
    Method,
    /// Neither a request, a notification nor an answer.
    #[error("neither a request, a notification nor an answer")]
    Kind,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// A message. Ids, parameters, results and errors are JSON as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Wants an answer.
    Request {
        /// Its id.
        id: &'a str,
        /// What.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a str>,
    },
    /// Wants none.
    Notification {
        /// What.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a str>,
    },
    /// An answer: a result or an error.
    Answer {
        /// The request's id; `None` when the other side could not read it.
        id: Option<&'a str>,
        /// What came of it.
        outcome: Outcome<'a>,
    },
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It was done.
    Result(&'a str),
    /// It was not.
    Error(&'a str),
}

impl<'a> Frame<'a> {
    /// Reads one line.
    ///
    /// # Errors
    /// When it is no message, or an id or a name is over its bound.
    pub fn parse(line: &'a [u8]) -> Result<Self, FrameError> {
        let raw: Raw<'a> =
            serde_json::from_slice(line).map_err(|e| FrameError::Json(e.to_string()))?;
        let id = raw.id.map(RawValue::get);
        if let Some(id) = id {
            let kind = id.as_bytes().first();
            let fits = matches!(kind, Some(b'"' | b'-' | b'0'..=b'9'));
            if !fits || id.len() > MAX_ID {
                return Err(FrameError::Id);
            }
        }
        let params = raw.params.map(RawValue::get);
        match (raw.method, id, raw.result, raw.error) {
            (Some(method), ..) if method.len() > MAX_METHOD => Err(FrameError::Method),
            (Some(method), Some(id), None, None) => Ok(Self::Request { id, method, params }),
            (Some(method), None, None, None) => Ok(Self::Notification { method, params }),
            (None, Some(id), Some(result), None) => Ok(Self::Answer {
                id: Some(id),
                outcome: Outcome::Result(result.get()),
            }),
            (None, id, None, Some(error)) => Ok(Self::Answer {
                id,
                outcome: Outcome::Error(error.get()),
            }),
            _ => Err(FrameError::Kind),
        }
    }
}

/// A request. `id` and `params` are JSON, `method` is not.
#[must_use]
pub fn request(id: &str, method: &str, params: Option<&str>) -> String {
    let method = quoted(method);
    match params {
        Some(params) => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#)
        }
        None => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#),
    }
}

/// A notification. `params` is JSON, `method` is not.
#[must_use]
pub fn notification(method: &str, params: Option<&str>) -> String {
    let method = quoted(method);
    match params {
        Some(params) => format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#),
        None => format!(r#"{{"jsonrpc":"2.0","method":{method}}}"#),
    }
}

/// An answer. All of it is JSON.
#[must_use]
pub fn answer(id: &str, outcome: Outcome<'_>) -> String {
    match outcome {
        Outcome::Result(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        Outcome::Error(error) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
    }
}

/// An error of our own; `id` is JSON.
#[must_use]
pub fn failure(id: &str, code: i32, message: &str) -> String {
    let message = quoted(message);
    let error = format!(r#"{{"code":{code},"message":{message}}}"#);
    answer(id, Outcome::Error(&error))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_three_kinds_are_told_apart_and_carry_what_was_written() {
        let line = br#"{"jsonrpc":"2.0","id":"a\n1","method":"tools/call","params":{ "x" : 1.0 }}"#;
        let request = Frame::Request {
            id: r#""a\n1""#,
            method: "tools/call".into(),
            params: Some(r#"{ "x" : 1.0 }"#),
        };
        assert_eq!(Frame::parse(line).unwrap(), request);
        let line = br#"{"method":"notifications/initialized","jsonrpc":"2.0"}"#;
        let method = "notifications/initialized".into();
        let notification = Frame::Notification {
            method,
            params: None,
        };
        assert_eq!(Frame::parse(line).unwrap(), notification);
        let line = br#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        let answer = Frame::Answer {
            id: Some("7"),
            outcome: Outcome::Result("{}"),
        };
        assert_eq!(Frame::parse(line).unwrap(), answer);
        let line = br#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#;
        assert!(matches!(
            Frame::parse(line).unwrap(),
            Frame::Answer {
                id: None,
                outcome: Outcome::Error(_)
            }
        ));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let long = format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(MAX_ID));
        let name = format!(r#"{{"id":1,"method":"{}"}}"#, "x".repeat(MAX_METHOD + 1));
        for line in [
            "",
            "x",
            "[]",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":[1],"method":"m"}"#,
            r#"{"id":true,"method":"m"}"#,
            r#"{"id":1,"id":2,"method":"m"}"#,
            r#"{"id":1,"method":"m","result":{}}"#,
            r#"{"id":1,"result":{},"error":{}}"#,
            r#"{"result":{}}"#,
            r#"{"method":"m"} {"#,
            &long,
            &name,
        ] {
            assert!(Frame::parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    proptest! {
        /// What is put together reads back as what it was made of.
        #[test]
        fn built_messages_read_back(method in "\\PC{1,40}", id in any::<i64>(), text in "\\PC{0,40}") {
            let (id, params) = (id.to_string(), serde_json::json!({ "t": text }).to_string());
            let line = request(&id, &method, Some(&params));
            let frame = Frame::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(frame, Frame::Request { id: &id, method: method.clone().into(), params: Some(&params) });
            let line = notification(&method, None);
            let frame = Frame::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(frame, Frame::Notification { method: method.into(), params: None });
            let line = failure(&id, INTERNAL, &text);
            let frame = Frame::parse(line.as_bytes()).unwrap();
            let told = matches!(frame, Frame::Answer { id: Some(told), outcome: Outcome::Error(_) } if told == id);
            prop_assert!(told);
        }

        /// Nothing makes the reader panic.
        #[test]
        fn any_bytes_are_read_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::parse(&line);
        }
    }
}
