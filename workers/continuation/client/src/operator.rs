//! An operator's calls. The capability is derived from the service's secret; none of them names a destination.

use crate::wire::{Endpoint, Error, Question};
use continuation_record::token::{Secret, Token};
use continuation_record::{CompletionKind, LastError, Mode, Receipt, State, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const OPERATOR: &str = "/v1/operator";

/// How one continuation stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its id.
    pub continuation_id: String,
    /// Where it stands.
    pub state: State,
    /// What becomes of its result.
    pub mode: Mode,
    /// The service's key of the task.
    pub task_key: String,
    /// When it was claimed.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
    /// When it expires.
    pub deadline: Time,
    /// How often what was tried.
    pub attempts: Attempts,
    /// How often its origin was waited for.
    pub synthesis_deferrals: u32,
    /// Its origin.
    pub origin_context: OriginContext,
    /// Where its text came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_kind: Option<CompletionKind>,
    /// Not before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// What last went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Proof of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}

/// Attempts of a [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Times that a model was asked.
    pub synthesis: u32,
    /// Times that a channel was.
    pub delivery: u32,
}

/// The origin of a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OriginContext {
    /// What is known of it.
    pub state: String,
    /// The snapshot's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Its messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_count: Option<u32>,
}

/// A part of the list of all continuations, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Those of this page.
    pub continuations: Vec<Status>,
    /// The most that it could have held.
    pub page_size: usize,
    /// What to ask the next one with, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What became of an unknown delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It is there.
    Delivered {
        /// The message's id in the channel.
        delivery_id: Option<String>,
    },
    /// It is not there, and is to be posted.
    NotDelivered,
    /// It is to be left.
    DeadLettered,
}

/// The operator of one service.
#[derive(Debug, Clone)]
pub struct Operator {
    endpoint: Endpoint,
    token: Token,
}

impl Operator {
    /// With the service's secret.
    #[must_use]
    pub fn new(endpoint: Endpoint, secret: &Secret) -> Self {
        Self {
            endpoint,
            token: Token::operator(secret),
        }
    }

    /// How it stands with everything.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn health(&self) -> Result<Value, Error> {
        let path = format!("{OPERATOR}/health");
        self.endpoint.ask(Question::get(&path, &self.token)).await
    }

    /// A page. `limit` may lower the configured size; `cursor` is the page's before.
    ///
    /// # Errors
    /// `invalid_page_limit`, `invalid_page_cursor`.
    pub async fn list(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page, Error> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(limit) = limit {
            query.append_pair("limit", &limit.to_string());
        }
        if let Some(cursor) = cursor {
            query.append_pair("cursor", cursor);
        }
        let path = format!("{OPERATOR}/continuations?{}", query.finish());
        self.endpoint.ask(Question::get(&path, &self.token)).await
    }

    /// One continuation.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn show(&self, id: &str) -> Result<Status, Error> {
        let path = at(id, "")?;
        self.endpoint.ask(Question::get(&path, &self.token)).await
    }

    /// The text of a delivered capture; `None` for anything else, and once retention has taken it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn captured_text(&self, id: &str) -> Result<Option<String>, Error> {
        #[derive(Deserialize)]
        struct Captured {
            text: String,
        }
        let path = at(id, "/captured")?;
        let question = Question::get(&path, &self.token);
        match self.endpoint.ask::<Captured>(question).await {
            Ok(captured) => Ok(Some(captured.text)),
            Err(e) if e.code() == Some("not_found") => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Tries again. An unknown delivery only with `allow_unknown`, by who has proved that it did not happen.
    ///
    /// # Errors
    /// `delivery_unknown`, `not_retryable`, `synthesis_not_retryable`, `not_found`.
    pub async fn retry(&self, id: &str, allow_unknown: bool) -> Result<Status, Error> {
        let body = if allow_unknown {
            json!({ "allowUnknown": true })
        } else {
            json!({})
        };
        self.act(id, "/retry", &body).await
    }

    /// Ends what isn't over and isn't being worked on.
    ///
    /// # Errors
    /// `already_terminal`, `continuation_in_flight`, `not_found`.
    pub async fn cancel(&self, id: &str) -> Result<Status, Error> {
        self.act(id, "/cancel", &json!({})).await
    }

    /// Says what became of an unknown delivery.
    ///
    /// # Errors
    /// `invalid_resolution`, `not_delivery_unknown`, `resolution_in_progress`, `not_found`.
    pub async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<Status, Error> {
        let body = match resolution {
            Resolution::Delivered { delivery_id: None } => json!({ "kind": "delivered" }),
            Resolution::Delivered {
                delivery_id: Some(id),
            } => json!({ "kind": "delivered", "deliveryId": id }),
            Resolution::NotDelivered => json!({ "kind": "not_delivered" }),
            Resolution::DeadLettered => json!({ "kind": "dead_lettered" }),
        };
        self.act(id, "/resolve", &body).await
    }

    async fn act(&self, id: &str, step: &str, body: &Value) -> Result<Status, Error> {
        let path = at(id, step)?;
        let body = body.to_string().into_bytes();
        self.endpoint
            .ask(Question::post(&path, &self.token, body))
            .await
    }
}

/// An id is one part of a path and nothing else; what isn't one is as unknown here as there.
fn at(id: &str, step: &str) -> Result<String, Error> {
    let fits = !id.is_empty()
        && id.len() <= 256
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if fits {
        Ok(format!("{OPERATOR}/continuations/{id}{step}"))
    } else {
        Err(Error::Refused {
            status: 404,
            code: "not_found".to_owned(),
            message: "there is no such continuation".to_owned(),
        })
    }
}
