//! Errors in the shape that OpenAI clients read.

use crate::runs::{Failure, StartError};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// What OpenAI's clients treat as a hint beside the status: whether sending again makes sense.
/// Without it they repeat every 5xx twice by themselves, and a turn would run three times.
const SHOULD_RETRY: &str = "x-should-retry";
/// Seconds after which a refused client may come again.
const COME_AGAIN: HeaderValue = HeaderValue::from_static("1");
/// nginx's "client closed request", which facts of the channel name for a cancelled run.
const CLIENT_CLOSED: u16 = 499;

/// A refusal or failure on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status; inside a stream it is left out.
    pub status: u16,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.code`.
    pub code: String,
    /// `error.param`: which part of the request.
    pub param: Option<String>,
    /// One sentence.
    pub message: String,
    /// Nothing was started: the same request may be sent again.
    pub again: bool,
}

#[derive(Serialize)]
struct Shape<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            code: code.to_owned(),
            param: None,
            message: message.into(),
            again: false,
        }
    }

    /// The request says something that can't be served.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(400, "invalid_request_error", "invalid_request", message)
        }
    }

    /// The body is no JSON, or could not be read.
    pub fn unreadable(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", "invalid_request", message)
    }

    /// No or a wrong API key.
    #[must_use]
    pub fn unauthorised() -> Self {
        Self::new(
            401,
            "authentication_error",
            "invalid_api_key",
            "Incorrect or missing API key. Send it as \"Authorization: Bearer KEY\".",
        )
    }

    /// The client may not talk to this server.
    #[must_use]
    pub fn forbidden(status: u16, message: String) -> Self {
        Self::new(status, "invalid_request_error", "forbidden", message)
    }

    /// No such route.
    #[must_use]
    pub fn unknown_route() -> Self {
        Self::new(
            404,
            "invalid_request_error",
            "unknown_url",
            "There is no such route.",
        )
    }

    /// The route takes another method.
    #[must_use]
    pub fn wrong_method() -> Self {
        Self::new(
            405,
            "invalid_request_error",
            "method_not_allowed",
            "The route takes another method.",
        )
    }

    /// The body is over the bound.
    #[must_use]
    pub fn too_large(max: usize) -> Self {
        Self::new(
            413,
            "invalid_request_error",
            "request_too_large",
            format!("The request body has more than {max} bytes."),
        )
    }

    /// The body did not arrive in time.
    #[must_use]
    pub fn too_slow() -> Self {
        Self::new(
            408,
            "invalid_request_error",
            "request_timeout",
            "The request body did not arrive in time.",
        )
    }

    /// Too many bodies are being read.
    #[must_use]
    pub fn overloaded() -> Self {
        Self {
            again: true,
            ..Self::new(
                503,
                "server_error",
                "overloaded",
                "The server is busy. Try again.",
            )
        }
    }

    /// The answer was begun anew after text of the failed attempt had been sent.
    #[must_use]
    pub fn restarted() -> Self {
        Self::new(
            500,
            "server_error",
            "answer_restarted",
            "The model failed in the middle of its answer and began another one. What was sent until \
             here is void: send the message again, or without \"stream\".",
        )
    }

    /// The answer is over what is carried to a client.
    #[must_use]
    pub fn answer_too_large(max: usize) -> Self {
        Self::new(
            500,
            "server_error",
            "answer_too_large",
            format!("The answer has more than {max} bytes."),
        )
    }

    /// The error in OpenAI's shape.
    #[must_use]
    pub fn json(&self) -> String {
        let shape = Shape {
            error: Detail {
                message: &self.message,
                r#type: self.kind,
                param: self.param.as_deref(),
                code: &self.code,
            },
        };
        // Strings always serialise.
        serde_json::to_string(&shape).unwrap_or_default()
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Refused { code, message } => {
                let (status, kind, again) = match code.as_str() {
                    "queue_full" => (429, "rate_limit_error", true),
                    "invalid_request" => (400, "invalid_request_error", false),
                    "shutting_down" | "starting" | "degraded" => (503, "server_error", true),
                    _ => (500, "server_error", false),
                };
                Self {
                    again,
                    ..Self::new(status, kind, &code, message)
                }
            }
            StartError::Unavailable(detail) => {
                tracing::error!("a run could not be started: {detail}");
                // It may have been started all the same, so no invitation to send it again.
                Self::new(
                    500,
                    "server_error",
                    "unavailable",
                    "The run could not be started.",
                )
            }
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let (status, kind) = match failure.kind.as_str() {
            _ if failure.cancelled => (CLIENT_CLOSED, "cancelled"),
            "context_limit" | "conversation_taken" => (400, "invalid_request_error"),
            "timeout" => (504, "provider_error"),
            "provider_unavailable_exhausted" => (503, "provider_error"),
            "provider_auth" | "overloaded" | "rate_limited" | "network" | "server_error" => {
                (502, "provider_error")
            }
            code if code.starts_with("provider_") => (502, "provider_error"),
            _ => (500, "server_error"),
        };
        Self::new(status, kind, &failure.kind, failure.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.json()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.again {
            headers.insert(RETRY_AFTER, COME_AGAIN);
        } else {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_exact() {
        assert_eq!(
            ApiError::invalid("tools", "no").json(),
            r#"{"error":{"message":"no","type":"invalid_request_error","param":"tools","code":"invalid_request"}}"#
        );
        assert_eq!(
            ApiError::unknown_route().json(),
            r#"{"error":{"message":"There is no such route.","type":"invalid_request_error","param":null,"code":"unknown_url"}}"#
        );
    }

    #[test]
    fn refusals_and_failures_have_their_status() {
        let refused = |code: &str| {
            ApiError::from(StartError::Refused {
                code: code.into(),
                message: String::new(),
            })
        };
        for (code, status, again) in [
            ("queue_full", 429, true),
            ("shutting_down", 503, true),
            ("starting", 503, true),
            ("degraded", 503, true),
            ("invalid_request", 400, false),
            ("surprise", 500, false),
        ] {
            let error = refused(code);
            assert_eq!(
                (error.status, error.again, error.code.as_str()),
                (status, again, code)
            );
            let response = error.into_response();
            assert_eq!(response.headers().contains_key(RETRY_AFTER), again);
            assert_eq!(response.headers().contains_key(SHOULD_RETRY), !again);
        }
        for (kind, status) in [
            ("provider_auth", 502),
            ("provider_unavailable_exhausted", 503),
            ("rate_limited", 502),
            ("timeout", 504),
            ("context_limit", 400),
            ("conversation_taken", 400),
            ("worker_lost", 500),
            ("memory_limit", 500),
            ("internal", 500),
        ] {
            assert_eq!(
                ApiError::from(Failure::new(kind, "")).status,
                status,
                "{kind}"
            );
        }
        let cancelled = Failure {
            cancelled: true,
            ..Failure::new("cancelled", "")
        };
        assert_eq!(ApiError::from(cancelled).status, 499);
    }
}
