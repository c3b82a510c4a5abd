//! Refusals: nothing was started, or nothing is there.

use crate::intake::Unread;
use crate::runs::StartError;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use ipc_proto::ConversationId;
use serde_json::{Value, json};

/// Seconds after which a refused caller may come again.
const COME_AGAIN: HeaderValue = HeaderValue::from_static("1");

/// A refusal on its way to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The fixed code; `busy` and `not_found` are the status word too.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The same request may be sent again.
    pub again: bool,
    /// Methods that the route takes.
    pub allow: Option<&'static str>,
    /// The conversation that is busy.
    pub conversation: Option<ConversationId>,
}

impl Refusal {
    fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            again: false,
            allow: None,
            conversation: None,
        }
    }

    /// The body says something that can't be served.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    /// The result may not be sent there.
    pub fn callback(message: impl Into<String>) -> Self {
        Self::new(400, "callback_forbidden", message)
    }

    /// No or a wrong key.
    #[must_use]
    pub fn unauthorised() -> Self {
        Self::new(
            401,
            "invalid_api_key",
            "Incorrect or missing API key. Send it as \"Authorization: Bearer KEY\".",
        )
    }

    /// The caller may not talk to this server.
    pub fn forbidden(status: u16, message: impl Into<String>) -> Self {
        Self::new(status, "forbidden", message)
    }

    /// No such route, or no such request.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(404, "not_found", "There is no such route or request.")
    }

    /// The route takes another method.
    #[must_use]
    pub fn wrong_method(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(405, "method_not_allowed", "The route takes another method.")
        }
    }

    /// A request of this conversation is under way at this endpoint.
    #[must_use]
    pub fn busy(conversation: ConversationId) -> Self {
        Self {
            conversation: Some(conversation),
            ..Self::new(
                409,
                "busy",
                "A request of this conversation is under way here.",
            )
        }
    }

    /// Over a bound of size.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "request_too_large", message)
    }

    /// As many requests as are stored are under way.
    #[must_use]
    pub fn full() -> Self {
        Self {
            again: true,
            ..Self::new(429, "queue_full", "Too many requests are under way.")
        }
    }

    fn json(&self) -> Value {
        let status = match self.code.as_str() {
            word @ ("busy" | "not_found") => word,
            _ => "rejected",
        };
        let mut body = json!({
            "status": status,
            "error": {"code": self.code, "message": self.message},
        });
        if let Some(conversation) = &self.conversation {
            body["conversationId"] = json!(conversation);
        }
        body
    }
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::too_large("The request body is larger than the limit."),
            Unread::Overloaded => Self {
                again: true,
                ..Self::new(503, "overloaded", "The server is busy. Try again.")
            },
            Unread::TooSlow => Self::new(
                408,
                "request_timeout",
                "The request body did not arrive in time.",
            ),
            Unread::BrokenOff => Self::invalid("The request body broke off."),
        }
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Refused { code, message } => {
                let (status, again) = match code.as_str() {
                    "queue_full" => (429, true),
                    "invalid_request" => (400, false),
                    "shutting_down" | "starting" | "degraded" => (503, true),
                    _ => (500, false),
                };
                Self {
                    again,
                    ..Self::new(status, &code, message)
                }
            }
            StartError::Unavailable(detail) => {
                tracing::error!("a run could not be started: {detail}");
                // It may have been started all the same, so no invitation to send it again.
                Self::new(500, "unavailable", "The run could not be started.")
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.json().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.again {
            headers.insert(RETRY_AFTER, COME_AGAIN);
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_shapes_are_exact() {
        let busy = Refusal::busy(ConversationId::parse("c").unwrap());
        assert_eq!(
            busy.json(),
            json!({"status": "busy", "conversationId": "c", "error": {"code": "busy", "message": "A request of this conversation is under way here."}})
        );
        assert_eq!(Refusal::not_found().json()["status"], "not_found");
        assert_eq!(
            Refusal::invalid("x").json(),
            json!({"status": "rejected", "error": {"code": "invalid_request", "message": "x"}})
        );
    }

    #[test]
    fn a_refused_start_has_its_status() {
        for (code, status, again) in [
            ("queue_full", 429, true),
            ("shutting_down", 503, true),
            ("starting", 503, true),
            ("degraded", 503, true),
            ("invalid_request", 400, false),
            ("surprise", 500, false),
        ] {
            let refusal = Refusal::from(StartError::Refused {
                code: code.into(),
                message: String::new(),
            });
            assert_eq!((refusal.status, refusal.again), (status, again), "{code}");
            assert_eq!(
                refusal.into_response().headers().contains_key(RETRY_AFTER),
                again
            );
        }
        let unknown = Refusal::from(StartError::Unavailable("detail".into()));
        assert!(unknown.status == 500 && !unknown.message.contains("detail"));
    }
}
