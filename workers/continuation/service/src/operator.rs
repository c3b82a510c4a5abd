//! What an operator sees and does (spec s1, "Health and recovery"): the same over HTTP, over a granted channel
//! and in an embedding program.

use crate::desk::{Changed, Desk};
use crate::engine;
use crate::error::Rejection;
use crate::settings::MAX_PAGE;
use continuation_record::cursor::Cursor;
use continuation_record::event::{Effect, Event, Resolution};
use continuation_record::health::Status;
use continuation_record::{Record, retention};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time for the history to answer when an operator resolves a delivery.
const HISTORY_TIME: Duration = Duration::from_secs(30);
/// Longest delivery id that an operator may name, in characters.
const MAX_DELIVERY_ID: usize = 256;

/// What an operator found out about an unknown delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
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

/// The operator's calls.
#[derive(Clone)]
pub struct Operator {
    desk: Arc<Desk>,
    resolving: Arc<Mutex<HashSet<String>>>,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Operator")
    }
}

impl Operator {
    /// Over what the service holds.
    #[must_use]
    pub fn new(desk: Arc<Desk>) -> Self {
        Self {
            desk,
            resolving: Arc::default(),
        }
    }

    /// Whether a bearer is the operator's.
    pub(crate) fn authorize(&self, bearer: &str) -> Result<(), Rejection> {
        if self.desk.is_operator(bearer) {
            Ok(())
        } else {
            Err(Rejection::operator_capability())
        }
    }

    /// How it stands with everything.
    ///
    /// # Errors
    /// When the store fails.
    pub fn health(&self) -> Result<Value, Rejection> {
        self.desk.health()
    }

    /// A page: newest first. `limit` may lower the configured size of a page; `cursor` is what the page before
    /// gave out.
    ///
    /// # Errors
    /// `invalid_page_limit`, `invalid_page_cursor`.
    pub fn list(&self, limit: Option<&str>, cursor: Option<&str>) -> Result<Value, Rejection> {
        let most = self.desk.settings.limits.page_size.min(MAX_PAGE);
        let limit = match limit {
            None => most,
            Some(text) => number(text).filter(|limit| *limit <= most).ok_or_else(|| {
                Rejection::field(
                    "invalid_page_limit",
                    &format!("limit must be a whole number from 1 to {most}"),
                )
            })?,
        };
        let after = cursor
            .map(Cursor::decode)
            .transpose()
            .map_err(|e| Rejection::field("invalid_page_cursor", &e.to_string()))?;
        let (records, more) = self.desk.page(after.as_ref(), limit)?;
        let next = records.last().filter(|_| more).map(|last| {
            Cursor {
                created_at: last.created_at,
                continuation_id: last.continuation_id.clone(),
            }
            .encode()
        });
        let statuses: Vec<Value> = records.iter().map(status).collect::<Result<_, _>>()?;
        let mut page = json!({ "continuations": statuses, "pageSize": limit });
        if let Some(next) = next {
            page["nextCursor"] = next.into();
        }
        Ok(page)
    }

    /// One continuation.
    ///
    /// # Errors
    /// `not_found`.
    pub fn show(&self, id: &str) -> Result<Value, Rejection> {
        status(&self.record(id)?)
    }

    /// The text of a delivered capture with its id.
    ///
    /// # Errors
    /// `not_found`, also for what is no delivered capture or has lost its text to retention.
    pub fn captured(&self, id: &str) -> Result<Value, Rejection> {
        let text = self.captured_text(id)?.ok_or_else(Rejection::not_found)?;
        Ok(json!({ "continuationId": id, "text": text }))
    }

    /// The text of a delivered capture, and of nothing else.
    ///
    /// # Errors
    /// When the store fails.
    pub fn captured_text(&self, id: &str) -> Result<Option<String>, Rejection> {
        let record = self.desk.get(id)?;
        Ok(record
            .filter(retention::is_captured)
            .and_then(|record| record.synthesized_text))
    }

    /// Tries again what was refused, and after an explicit word what is unknown.
    ///
    /// # Errors
    /// `not_found`, `delivery_unknown`, `not_retryable`, `synthesis_not_retryable`.
    pub async fn retry(&self, id: &str, allow_unknown: bool) -> Result<Value, Rejection> {
        let _resolving = self.alone(id)?;
        self.apply(id, Event::Retry { allow_unknown }).await
    }

    /// Ends what isn't over and isn't being worked on.
    ///
    /// # Errors
    /// `not_found`, `already_terminal`, `continuation_in_flight`.
    pub async fn cancel(&self, id: &str) -> Result<Value, Rejection> {
        self.apply(id, Event::Cancel).await
    }

    /// Says what became of an unknown delivery. A delivered one is entered into the history, which posts
    /// nothing.
    ///
    /// # Errors
    /// `not_found`, `not_delivery_unknown`, `resolution_in_progress`.
    pub async fn resolve(&self, id: &str, verdict: Verdict) -> Result<Value, Rejection> {
        let _resolving = self.alone(id)?;
        let before = self.record(id)?;
        let resolution = match &verdict {
            Verdict::Delivered { delivery_id } => Resolution::Delivered {
                delivery_id: delivery_id.as_deref(),
            },
            Verdict::NotDelivered => Resolution::NotDelivered,
            Verdict::DeadLettered => Resolution::DeadLettered,
        };
        let changed = self.desk.ask(id, Event::Resolve(resolution)).await?;
        let Changed::Yes(record, effect) = changed else {
            return self.show(id);
        };
        match (effect, before.synthesized_text) {
            (Effect::EnterHistory, Some(text)) => self.enter(&record, &text).await,
            (Effect::Wake, _) => {
                self.desk.wake();
                status(&record)
            }
            _ => status(&record),
        }
    }

    async fn enter(&self, record: &Record, text: &str) -> Result<Value, Rejection> {
        let id = &record.continuation_id;
        let key = engine::key(id);
        let host = &self.desk.host;
        let entering = host.commit_history(&record.origin_conversation_id, &key, text);
        let entered = tokio::time::timeout(HISTORY_TIME, entering)
            .await
            .unwrap_or_else(|_| Err("history_timeout".to_owned()));
        let event = match &entered {
            Ok(()) => Event::History(Ok(())),
            Err(code) => Event::History(Err(code)),
        };
        self.apply(id, event).await
    }

    fn alone(&self, id: &str) -> Result<Alone, Rejection> {
        let mut resolving = self
            .resolving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !resolving.insert(id.to_owned()) {
            return Err(Rejection::new(
                StatusCode::CONFLICT,
                "resolution_in_progress",
                "this continuation is being resolved",
            ));
        }
        Ok(Alone {
            id: id.to_owned(),
            resolving: self.resolving.clone(),
        })
    }

    async fn apply(&self, id: &str, event: Event<'_>) -> Result<Value, Rejection> {
        match self.desk.ask(id, event).await? {
            Changed::Yes(record, effect) => {
                if effect == Effect::Wake {
                    self.desk.wake();
                }
                status(&record)
            }
            Changed::No => self.show(id),
        }
    }

    fn record(&self, id: &str) -> Result<Record, Rejection> {
        self.desk.get(id)?.ok_or_else(|| {
            Rejection::new(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such continuation",
            )
        })
    }
}

/// One operator at a time works on a record whose delivery is unknown.
struct Alone {
    id: String,
    resolving: Arc<Mutex<HashSet<String>>>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let mut resolving = self
            .resolving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        resolving.remove(&self.id);
    }
}

impl Verdict {
    /// From what an operator sends: `kind`, and for `delivered` perhaps `deliveryId`.
    ///
    /// # Errors
    /// `invalid_resolution`.
    pub fn parse(kind: Option<&str>, delivery_id: Option<&str>) -> Result<Self, Rejection> {
        let invalid = || {
            Rejection::field(
                "invalid_resolution",
                "kind must be delivered, not_delivered or dead_lettered, and only delivered takes a deliveryId of 1 to 256 characters",
            )
        };
        let named = |id: &str| {
            !id.trim().is_empty() && continuation_record::validate::units(id) <= MAX_DELIVERY_ID
        };
        match (kind, delivery_id) {
            (Some("delivered"), None) => Ok(Self::Delivered { delivery_id: None }),
            (Some("delivered"), Some(id)) if named(id) => Ok(Self::Delivered {
                delivery_id: Some(id.to_owned()),
            }),
            (Some("not_delivered"), None) => Ok(Self::NotDelivered),
            (Some("dead_lettered"), None) => Ok(Self::DeadLettered),
            _ => Err(invalid()),
        }
    }
}

fn status(record: &Record) -> Result<Value, Rejection> {
    serde_json::to_value(Status::from(record)).map_err(|_| Rejection::internal())
}

/// A positive whole number without sign, blank or leading zero.
fn number(text: &str) -> Option<usize> {
    let plain =
        text.len() <= 9 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}
