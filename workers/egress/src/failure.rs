//! What went wrong in one attempt at one model, and what class of trouble that is.

use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Most bytes of a provider's error text that are passed on.
pub const MAX_MESSAGE: usize = 2 * 1024;

/// The classes that the retry decision knows (spec facts 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The provider says that it has too much to do.
    Overloaded,
    /// This key or account asks too often.
    RateLimited,
    /// No answer, or no further byte of one, in time.
    Timeout,
    /// The connection could not be made or broke before an answer began.
    Network,
    /// The provider failed, or sent what its own protocol doesn't know.
    ServerError,
    /// The stream ended without a finish reason: no answer, whatever text came before.
    StreamCut,
    /// The conversation doesn't fit this model.
    ContextLimit,
    /// The key is missing, wrong, barred or without credit.
    ProviderAuth,
    /// The provider doesn't have this model (or has no such path).
    ModelUnavailable,
    /// The provider refuses the request as it stands; asking again changes nothing.
    InvalidRequest,
    /// The answer went over one of our bounds; asking again would cost the same again.
    AnswerTooLarge,
}

impl ErrorClass {
    /// Every class, for tables.
    pub const ALL: [ErrorClass; 11] = [
        ErrorClass::Overloaded,
        ErrorClass::RateLimited,
        ErrorClass::Timeout,
        ErrorClass::Network,
        ErrorClass::ServerError,
        ErrorClass::StreamCut,
        ErrorClass::ContextLimit,
        ErrorClass::ProviderAuth,
        ErrorClass::ModelUnavailable,
        ErrorClass::InvalidRequest,
        ErrorClass::AnswerTooLarge,
    ];

    /// The fixed code in run summaries and events.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            ErrorClass::Overloaded => "overloaded",
            ErrorClass::RateLimited => "rate_limited",
            ErrorClass::Timeout => "timeout",
            ErrorClass::Network => "network",
            ErrorClass::ServerError => "server_error",
            ErrorClass::StreamCut => "stream_cut",
            ErrorClass::ContextLimit => "context_limit",
            ErrorClass::ProviderAuth => "provider_auth",
            ErrorClass::ModelUnavailable => "model_unavailable",
            ErrorClass::InvalidRequest => "invalid_request",
            ErrorClass::AnswerTooLarge => "answer_too_large",
        }
    }
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", class.code())]
pub struct Failure {
    /// What the retry decision looks at.
    pub class: ErrorClass,
    /// What happened, for a person; at most [`MAX_MESSAGE`] bytes, free of keys.
    pub message: String,
    /// How long the provider asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without a wish of the provider. The message is cut to its bound.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.len() > MAX_MESSAGE {
            message.truncate(ipc_proto::text::cut(&message, MAX_MESSAGE).len());
            message.push('…');
        }
        Self {
            class,
            message,
            retry_after: None,
        }
    }

    /// From a refused HTTP request: the status and as much of the body as was read.
    #[must_use]
    pub fn from_http(status: u16, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let said = match serde_json::from_slice::<Value>(body) {
            Ok(value) => Said::from_json(&value),
            Err(_) => Said {
                message: text.trim().to_owned(),
                ..Said::default()
            },
        };
        let detail = if said.message.is_empty() {
            "no explanation"
        } else {
            &said.message
        };
        Self::new(
            classify(Some(status), &said),
            format!("HTTP {status}: {detail}"),
        )
    }

    /// From an error object inside a stream that began with status 200.
    #[must_use]
    pub fn from_event(error: &Value) -> Self {
        let said = Said::from_json(error);
        let detail = if said.message.is_empty() {
            "no explanation"
        } else {
            &said.message
        };
        Self::new(
            classify(said.status, &said),
            format!("error in the stream: {detail}"),
        )
    }
}

/// What an error object of any of the wires says.
#[derive(Debug, Default)]
struct Said {
    status: Option<u16>,
    codes: Vec<String>,
    message: String,
}

impl Said {
    /// Finds the error in `{"error":{…}}`, `{"error":"text"}`, `{"message":…}` or `{"detail":…}`.
    fn from_json(value: &Value) -> Self {
        let error = match value.get("error") {
            Some(inner) if !inner.is_null() => inner,
            _ => value,
        };
        if let Some(text) = error.as_str() {
            return Self {
                message: text.to_owned(),
                ..Self::default()
            };
        }
        let mut said = Self::default();
        for key in ["type", "code", "status"] {
            match error.get(key) {
                Some(Value::String(code)) => said.codes.push(code.to_ascii_lowercase()),
                Some(Value::Number(n)) => {
                    said.status = n.as_u64().and_then(|n| u16::try_from(n).ok());
                }
                _ => {}
            }
        }
        for key in ["message", "detail"] {
            if let Some(text) = error.get(key).and_then(Value::as_str) {
                text.clone_into(&mut said.message);
                break;
            }
        }
        said
    }
}

/// Phrases by which servers that have no code of their own say that the prompt is too long.
const CONTEXT_PHRASES: &[&str] = &[
    "maximum context length",
    "context length exceeded",
    "context window",
    "available context size",
    "prompt is too long",
    "input is too long",
    "exceeds the context",
];

/// Phrases for an account that can't pay; some providers send them with a retryable status.
const CREDIT_PHRASES: &[&str] = &[
    "credit balance",
    "insufficient_quota",
    "exceeded your current quota",
];

fn classify(status: Option<u16>, said: &Said) -> ErrorClass {
    let message = said.message.to_ascii_lowercase();
    let has = |codes: &[&str]| said.codes.iter().any(|c| codes.contains(&c.as_str()));
    let phrase = |phrases: &[&str]| phrases.iter().any(|p| message.contains(p));

    // What the error says of itself is more exact than the status it came with.
    if has(&["context_length_exceeded", "request_too_large"]) || phrase(CONTEXT_PHRASES) {
        return ErrorClass::ContextLimit;
    }
    if has(&["insufficient_quota", "billing_error", "billing_not_active"]) || phrase(CREDIT_PHRASES)
    {
        return ErrorClass::ProviderAuth;
    }
    match status {
        Some(401..=403) => return ErrorClass::ProviderAuth,
        Some(413) => return ErrorClass::ContextLimit,
        Some(429) => return ErrorClass::RateLimited,
        Some(503 | 529) => return ErrorClass::Overloaded,
        Some(408 | 504 | 524) => return ErrorClass::Timeout,
        // 409 and 425 mean "not now"; the official clients retry them too.
        Some(409 | 425 | 500..) => return ErrorClass::ServerError,
        // A redirect is never followed with a key: the configured address is wrong.
        Some(300..=399 | 404 | 405 | 410) => return ErrorClass::ModelUnavailable,
        _ => {}
    }
    if has(&[
        "overloaded_error",
        "overloaded",
        "server_overloaded",
        "slow_down",
    ]) {
        ErrorClass::Overloaded
    } else if has(&["rate_limit_error", "rate_limit_exceeded", "rate_limited"]) {
        ErrorClass::RateLimited
    } else if has(&[
        "authentication_error",
        "permission_error",
        "invalid_api_key",
    ]) {
        ErrorClass::ProviderAuth
    } else if has(&["not_found_error", "model_not_found"]) {
        ErrorClass::ModelUnavailable
    } else if has(&["timeout_error", "timeout"]) {
        ErrorClass::Timeout
    } else if has(&["invalid_request_error", "invalid_prompt"]) || status.is_some() {
        ErrorClass::InvalidRequest
    } else {
        ErrorClass::ServerError
    }
}

/// Reads `retry-after-ms`, then `retry-after` (seconds or an HTTP date, RFC 9110 section 10.2.3).
///
/// A date in the past is no wait; what can't be read is no wish at all.
#[must_use]
pub fn retry_after(headers: &http::HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::trim)
    };
    let number = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n >= 0.0)
    };
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let value = text("retry-after")?;
    if let Some(seconds) = number(value) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ErrorClass as C;
    use http::HeaderMap;

    #[test]
    fn http_refusals_are_classified() {
        let openai = |kind: &str, code: &str, message: &str| {
            serde_json::json!({"error": {"type": kind, "code": code, "message": message}})
                .to_string()
        };
        let cases: &[(u16, String, C)] = &[
            (
                401,
                openai("invalid_request_error", "invalid_api_key", "Incorrect key"),
                C::ProviderAuth,
            ),
            (402, String::new(), C::ProviderAuth),
            (403, "forbidden".into(), C::ProviderAuth),
            (
                429,
                openai("requests", "rate_limit_exceeded", "Slow"),
                C::RateLimited,
            ),
            (
                429,
                openai("insufficient_quota", "insufficient_quota", "Pay"),
                C::ProviderAuth,
            ),
            (
                400,
                openai("invalid_request_error", "context_length_exceeded", "x"),
                C::ContextLimit,
            ),
            (
                400,
                openai("invalid_request_error", "", "prompt is too long: 3 > 2"),
                C::ContextLimit,
            ),
            (
                400,
                openai(
                    "invalid_request_error",
                    "",
                    "Your credit balance is too low",
                ),
                C::ProviderAuth,
            ),
            (
                400,
                openai("invalid_request_error", "", "bad schema"),
                C::InvalidRequest,
            ),
            (422, r#"{"detail":"no"}"#.into(), C::InvalidRequest),
            (413, String::new(), C::ContextLimit),
            (
                404,
                r#"{"error":"model 'x' not found"}"#.into(),
                C::ModelUnavailable,
            ),
            (302, String::new(), C::ModelUnavailable),
            (408, String::new(), C::Timeout),
            (409, String::new(), C::ServerError),
            (500, "<html>".into(), C::ServerError),
            (502, String::new(), C::ServerError),
            (503, String::new(), C::Overloaded),
            (504, String::new(), C::Timeout),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"O"}}"#.into(),
                C::Overloaded,
            ),
        ];
        for (status, body, class) in cases {
            let failure = Failure::from_http(*status, body.as_bytes());
            assert_eq!(failure.class, *class, "{status} {body}");
            assert!(failure.message.contains(&status.to_string()));
        }
    }

    #[test]
    fn errors_inside_a_stream_are_classified() {
        let cases = [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                C::Overloaded,
            ),
            (r#"{"error":{"type":"rate_limit_error"}}"#, C::RateLimited),
            (
                r#"{"error":{"code":429,"message":"upstream"}}"#,
                C::RateLimited,
            ),
            (
                r#"{"code":"rate_limit_exceeded","message":"m"}"#,
                C::RateLimited,
            ),
            (r#"{"code":"server_error","message":"m"}"#, C::ServerError),
            (
                r#"{"type":"error","code":null,"message":"m"}"#,
                C::ServerError,
            ),
            (
                r#"{"error":{"type":"authentication_error"}}"#,
                C::ProviderAuth,
            ),
            (
                r#"{"error":{"type":"not_found_error"}}"#,
                C::ModelUnavailable,
            ),
            (r#"{"error":{"type":"timeout_error"}}"#, C::Timeout),
            (
                r#"{"error":{"type":"invalid_request_error","message":"m"}}"#,
                C::InvalidRequest,
            ),
            (r#"{"code":"context_length_exceeded"}"#, C::ContextLimit),
            (r#"{"error":"llama runner stopped"}"#, C::ServerError),
            (r#"7"#, C::ServerError),
        ];
        for (text, class) in cases {
            let failure = Failure::from_event(&serde_json::from_str(text).unwrap());
            assert_eq!(failure.class, class, "{text}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::from_http(400, "é".repeat(MAX_MESSAGE).as_bytes());
        assert!(failure.message.len() <= MAX_MESSAGE + '…'.len_utf8());
        assert!(failure.message.ends_with("é…"));
    }

    #[test]
    fn the_wish_to_wait_is_read_in_its_three_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let cases: &[(&str, &str, Option<u64>)] = &[
            ("retry-after", "7", Some(7_000)),
            ("retry-after", " 0.5 ", Some(500)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT", Some(10_000)),
            ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("retry-after", "-1", None),
            ("retry-after", "inf", None),
            ("retry-after", "1e300", None),
            ("retry-after", "soon", None),
            ("other", "7", None),
        ];
        for (name, value, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
            assert_eq!(
                retry_after(&headers, now),
                expected.map(Duration::from_millis),
                "{name}: {value}"
            );
        }
    }
}
