//! Refusals of the console: a fixed code, a status, a plain sentence.

use crate::intake::Unread;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use ipc_proto::channel::Fault;
use serde_json::json;

/// A refusal on its way to the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// The fixed code.
    pub code: String,
    /// One sentence.
    pub message: String,
}

impl ApiError {
    /// A refusal.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
        }
    }

    /// The request can't be served as it is.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    /// Nothing of this name.
    pub fn not_found(what: &str) -> Self {
        Self::new(404, "not_found", format!("There is no such {what}."))
    }

    /// Over a bound.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "too_large", message)
    }

    /// A worker that is needed isn't there.
    pub fn unavailable(what: &str) -> Self {
        let message = format!("The {what} does not answer at the moment. Try again.");
        Self::new(503, "unavailable", message)
    }
}

/// What the store, or the supervisor, refuses.
impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        let status = match fault.code.as_str() {
            "invalid_request"
            | "invalid_page_limit"
            | "invalid_page_cursor"
            | "invalid_resolution" => 400,
            "not_found" | "not_enabled" => 404,
            "running"
            | "queue_full"
            | "conflict"
            | "delivery_unknown"
            | "not_retryable"
            | "synthesis_not_retryable"
            | "already_terminal"
            | "continuation_in_flight"
            | "not_delivery_unknown"
            | "resolution_in_progress" => 409,
            "continuation_expired" => 410,
            "storage_full" | "disk_full" => 507,
            "busy" => 429,
            _ => 503,
        };
        let mut message = fault.message;
        if let Some(first) = message.get(..1) {
            let first = first.to_uppercase();
            message.replace_range(..1, &first);
        }
        if !message.ends_with('.') {
            message.push('.');
        }
        Self::new(status, &fault.code, message)
    }
}

impl From<Unread> for ApiError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::too_large("The request's body is too large."),
            Unread::Overloaded => Self::new(
                503,
                "overloaded",
                "Too many large requests at once. Try again.",
            ),
            Unread::TooSlow => Self::new(408, "too_slow", "The request's body took too long."),
            Unread::BrokenOff => Self::invalid("The request's body broke off."),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let headers = [(CONTENT_TYPE, "application/json")];
        (status, headers, Body::from(body.to_string())).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_store_has_its_status() {
        for (code, status) in [
            ("invalid_request", 400),
            ("not_found", 404),
            ("running", 409),
            ("queue_full", 409),
            ("storage_full", 507),
            ("disk_full", 507),
            ("unavailable", 503),
            ("busy", 429),
        ] {
            let error = ApiError::from(Fault::new(code, "it is so"));
            assert_eq!((error.status, &*error.code), (status, code));
            assert_eq!(error.message, "It is so.");
        }
    }
}
