//! An answer that comes later, as a call of the endpoint's own callback address.
//!
//! Where a request's result goes is known for as long as the request; where an endpoint's results
//! go stands in the configuration, so that a later answer goes there, also after a restart. Which
//! host that may be is checked again by `egress`.

use super::callback::{Attempt, Callbacks, Parcel, WayOut};
use super::endpoints::{Endpoint, Endpoints};
use crate::later::{Later, not_posted, posted};
use futures_util::future::BoxFuture;
use ipc_proto::edges::delivery::{Obstacle, Reply, TOO_LATE};
use ipc_proto::rooms::WEBHOOK;
use ipc_proto::{ConversationId, Until};
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use url::Url;
use uuid::Uuid;

/// Hexadecimal digits that name an endpoint.
const NAME: usize = 16;

/// Names an endpoint by its path, which survives another order of the configuration.
fn name_of(path: &str) -> String {
    let digest = Sha256::digest(path.as_bytes());
    let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    hex[..NAME].to_owned()
}

/// The place of a request's answers that come later. One whose conversation has too long a name
/// is without it.
#[must_use]
pub fn place(path: &str, conversation: &ConversationId) -> Option<ConversationId> {
    let name = name_of(path);
    ConversationId::parse(&format!("{WEBHOOK}{name}:{conversation}"))
        .or_else(|_| ConversationId::parse(&format!("{WEBHOOK}{name}:")))
        .ok()
}

/// The endpoint's name and the conversation.
fn parse(destination: &ConversationId) -> Option<(&str, &str)> {
    destination.as_str().strip_prefix(WEBHOOK)?.split_once(':')
}

/// Calls endpoints' callbacks.
pub struct Calls {
    endpoints: Arc<Endpoints>,
    callbacks: Arc<Callbacks>,
    way_out: Arc<WayOut>,
}

impl Calls {
    /// Through this way.
    #[must_use]
    pub fn new(endpoints: Arc<Endpoints>, callbacks: Arc<Callbacks>, way_out: Arc<WayOut>) -> Self {
        Self {
            endpoints,
            callbacks,
            way_out,
        }
    }

    fn target(&self, destination: &ConversationId) -> Result<(&Endpoint, Url), Reply> {
        let never = |message: &str| not_posted(Obstacle::Ever, "unsupported_destination", message);
        let name = parse(destination).map(|(name, _)| name);
        let endpoint = self
            .endpoints
            .iter()
            .find(|endpoint| name.is_some_and(|name| name_of(&endpoint.settings.path) == name))
            .ok_or_else(|| never("no endpoint is configured there any more"))?;
        let url = endpoint.settings.callback_url.as_deref();
        let url = url
            .and_then(|url| Url::parse(url).ok())
            .ok_or_else(|| never("the endpoint has no callbackUrl of its own"))?;
        if endpoint.signing.is_none() {
            return Err(never("the endpoint has no key to sign results with"));
        }
        if self.way_out.now().is_none() {
            let message = "the way out is not there yet";
            return Err(not_posted(Obstacle::Now, "unavailable", message));
        }
        Ok((endpoint, url))
    }

    async fn call(
        &self,
        destination: &ConversationId,
        key: &str,
        text: &str,
        until: Until,
    ) -> Reply {
        let (endpoint, url) = match self.target(destination) {
            Ok(target) => target,
            Err(refusal) => return refusal,
        };
        let Some(signing) = &endpoint.signing else {
            return not_posted(Obstacle::Ever, "unsupported_destination", "no key");
        };
        let digest = Sha256::digest(key.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        // The same in every attempt: a receiver can tell a repetition.
        let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
        let parcel = || {
            let body = body(id, parse(destination).map_or("", |(_, name)| name), text);
            let timestamp = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
            Parcel {
                url,
                id: id.to_string(),
                timestamp,
                signature: signing.sign(&id.to_string(), timestamp, &body),
                body: body.into(),
            }
        };
        of_attempt(id, self.callbacks.once(until, parcel).await)
    }
}

fn body(id: Uuid, conversation: &str, text: &str) -> Vec<u8> {
    let mut body = json!({
        "status": "succeeded",
        "requestId": id.to_string(),
        "completedAt": Timestamp::now().to_string(),
        "text": text,
        "continuation": true,
    });
    if !conversation.is_empty() {
        body["conversationId"] = json!(conversation);
    }
    body.to_string().into_bytes()
}

/// What one attempt says of the delivery. Only an attempt that certainly reached nobody, or that the receiver itself
/// turned down, may be repeated.
fn of_attempt(id: Uuid, attempt: Attempt) -> Reply {
    match attempt {
        Attempt::Answered {
            status,
            retry_after,
        } => match status {
            200..=299 => posted(id.to_string()),
            // A gateway says it, of a receiver that it gave the text to.
            502 | 504 | 520..=599 => {
                let message = format!("HTTP status {status}: the receiver may have taken it");
                not_posted(Obstacle::Unknown, "receiver_unknown", message)
            }
            408 | 425 | 429 | 500..=519 => Reply::NotDelivered {
                obstacle: Obstacle::Now,
                code: "receiver_busy".to_owned(),
                message: format!("HTTP status {status}: the receiver did not take it yet"),
                retry_after_ms: retry_after
                    .map(|wait| wait.as_millis().try_into().unwrap_or(u64::MAX)),
            },
            _ => {
                let message = format!("HTTP status {status}");
                not_posted(Obstacle::Ever, "receiver_refused", message)
            }
        },
        Attempt::Failed { code, message } => {
            let obstacle = match code.as_str() {
                "dns" | "no_connection" | TOO_LATE => Obstacle::Now,
                "undeclared_host" | "private_address" | "invalid_url" | "too_large" => {
                    Obstacle::Ever
                }
                _ => Obstacle::Unknown,
            };
            not_posted(obstacle, &code, message)
        }
    }
}

impl Later for Calls {
    fn reach(&self, destination: ConversationId) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            match self.target(&destination) {
                Ok(_) => Reply::Reachable,
                Err(refusal) => refusal,
            }
        })
    }

    fn deliver(
        &self,
        destination: ConversationId,
        key: String,
        text: String,
        until: Until,
    ) -> BoxFuture<'_, Reply> {
        Box::pin(async move { self.call(&destination, &key, &text, until).await })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn id(text: &str) -> ConversationId {
        ConversationId::parse(text).unwrap()
    }

    #[test]
    fn a_place_names_the_endpoint_and_the_conversation() {
        let found = place("/hook", &id("c:1")).unwrap();
        let (name, conversation) = parse(&found).unwrap();
        assert_eq!((name, conversation), (&*name_of("/hook"), "c:1"));
        assert_ne!(name_of("/hook"), name_of("/hook2"));
        let long = place("/hook", &id(&"x".repeat(512))).unwrap();
        assert_eq!(parse(&long), Some((&*name_of("/hook"), "")));
    }

    #[test]
    fn only_what_reached_nobody_is_tried_again() {
        let obstacle = |attempt: Attempt| match of_attempt(Uuid::nil(), attempt) {
            Reply::NotDelivered { obstacle, .. } => Some(obstacle),
            _ => None,
        };
        let answered = |status| Attempt::Answered {
            status,
            retry_after: Some(Duration::from_secs(2)),
        };
        let failed = |code: &str| Attempt::Failed {
            code: code.into(),
            message: "m".into(),
        };
        for (attempt, expected) in [
            (answered(200), None),
            (answered(408), Some(Obstacle::Now)),
            (answered(429), Some(Obstacle::Now)),
            (answered(500), Some(Obstacle::Now)),
            (answered(503), Some(Obstacle::Now)),
            // A gateway's word about a receiver that may have taken it: another attempt could be a second post.
            (answered(502), Some(Obstacle::Unknown)),
            (answered(504), Some(Obstacle::Unknown)),
            (answered(524), Some(Obstacle::Unknown)),
            (answered(404), Some(Obstacle::Ever)),
            (answered(307), Some(Obstacle::Ever)),
            (failed("no_connection"), Some(Obstacle::Now)),
            (failed("dns"), Some(Obstacle::Now)),
            (failed(TOO_LATE), Some(Obstacle::Now)),
            (failed("undeclared_host"), Some(Obstacle::Ever)),
            (failed("too_large"), Some(Obstacle::Ever)),
            (failed("network"), Some(Obstacle::Unknown)),
            (failed("timeout"), Some(Obstacle::Unknown)),
            (failed("unavailable"), Some(Obstacle::Unknown)),
        ] {
            assert_eq!(obstacle(attempt.clone()), expected, "{attempt:?}");
        }
    }

    #[test]
    fn a_receiver_says_when_to_come_again() {
        let busy = |retry_after| Attempt::Answered {
            status: 429,
            retry_after,
        };
        let told = |attempt| match of_attempt(Uuid::nil(), attempt) {
            Reply::NotDelivered { retry_after_ms, .. } => retry_after_ms,
            other => panic!("{other:?}"),
        };
        assert_eq!(told(busy(Some(Duration::from_secs(2)))), Some(2_000));
        assert_eq!(told(busy(None)), None);
    }

    #[test]
    fn the_body_tells_what_it_is() {
        let body: serde_json::Value =
            serde_json::from_slice(&body(Uuid::nil(), "c", "text")).unwrap();
        assert_eq!(
            (
                &body["continuation"],
                &body["conversationId"],
                &body["text"]
            ),
            (&json!(true), &json!("c"), &json!("text"))
        );
    }
}
