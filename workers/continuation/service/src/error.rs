//! Refusals as they stand on the wire: a status, a fixed code and one sentence.

use continuation_record::event::Refused;
use http::StatusCode;

/// A refused request. The message never holds what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Rejection {
    /// The status.
    pub status: StatusCode,
    /// The code, which clients decide by.
    pub code: &'static str,
    /// One sentence for people.
    pub message: String,
}

impl Rejection {
    /// A refusal.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    /// No bearer at all.
    #[must_use]
    pub fn missing_capability() -> Self {
        unauthorized(
            "missing_capability",
            "send Authorization: Bearer with the capability",
        )
    }

    /// A bearer that can't be one.
    #[must_use]
    pub fn invalid_capability() -> Self {
        unauthorized("invalid_capability", "the capability is empty or too long")
    }

    /// Not a claim capability of a running turn.
    #[must_use]
    pub fn claim_capability() -> Self {
        unauthorized(
            "invalid_claim_capability",
            "the claim capability is unknown or its turn is over",
        )
    }

    /// Not this continuation's capability, or no such continuation: one answer for both.
    #[must_use]
    pub fn result_capability() -> Self {
        unauthorized(
            "invalid_result_capability",
            "there is no such continuation, or this is not its capability",
        )
    }

    /// Not that service's capability, or no such service: one answer for both.
    #[must_use]
    pub fn service_capability() -> Self {
        unauthorized(
            "invalid_service_capability",
            "there is no such detached service, or this is not its capability",
        )
    }

    /// Not the operator's capability.
    #[must_use]
    pub fn operator_capability() -> Self {
        unauthorized(
            "invalid_operator_capability",
            "this is not the operator's capability",
        )
    }

    /// No such path, method or record.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here")
    }

    /// A field that is missing or out of its bounds.
    #[must_use]
    pub fn field(code: &'static str, message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// A body over its bound.
    #[must_use]
    pub fn too_large(most: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            format!("the request's body is larger than {most} bytes"),
        )
    }

    /// The service ends.
    #[must_use]
    pub fn stopping() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "service_stopping",
            "the service is stopping; try again",
        )
    }

    /// The disk can't take more for the moment.
    #[must_use]
    pub fn busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "service_busy",
            "the store is behind; try again",
        )
    }

    /// The time of this start is not believed yet.
    #[must_use]
    pub fn clock() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "service_busy",
            "the clock is not believed yet; try again later",
        )
    }

    /// A failure of ours. The detail is in the log.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            "the service could not do this",
        )
    }
}

fn unauthorized(code: &'static str, message: &str) -> Rejection {
    Rejection::new(StatusCode::UNAUTHORIZED, code, message)
}

impl From<Refused> for Rejection {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::Expired => StatusCode::GONE,
            Refused::OutOfPlace => return Self::internal(),
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, refused.code(), refused.to_string())
    }
}
