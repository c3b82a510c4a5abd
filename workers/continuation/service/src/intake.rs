//! Claims and results: what services send (spec s1, "Claim, result, and status protocol", "Detached claims").

use crate::bindings::Binding;
use crate::desk::Desk;
use crate::error::Rejection;
use crate::http::body::Fields;
use crate::keeper::Need;
use crate::settings::MAX_DEADLINE;
use continuation_record::binding::detached_fingerprint;
use continuation_record::event::{Event, Outcome};
use continuation_record::health::Status;
use continuation_record::token::{Token, TokenDigest, same};
use continuation_record::validate::MAX_KEY;
use continuation_record::{Mode, OriginContextState, Payload, Record, State, Time, state};
use http::StatusCode;
use serde::Serialize;
use std::sync::Arc;

/// The answer to a claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claimed {
    /// The continuation.
    pub continuation_id: String,
    /// Where the result goes.
    pub result_url: String,
    /// Where it can be asked about.
    pub status_url: String,
    /// The result token, the same for every repeat.
    pub token: String,
    /// The deadline in its normal form.
    pub expires_at: Time,
    /// What the claim is bound to.
    pub fingerprint: String,
    /// True where the claim was there already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

/// The answer to a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The continuation.
    pub continuation_id: String,
    /// Its state at present.
    pub state: State,
    /// Always true.
    pub accepted: bool,
}

/// What a service says of its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its key of the task.
    pub task_key: String,
    /// Its hash of the task.
    pub task_hash: String,
    /// Its deadline.
    pub deadline: Time,
}

impl Wanted {
    /// Reads the fields that every claim has. When the deadline may be is asked by [`Self::in_time`]: a repeat of
    /// what was claimed is answered after it too.
    ///
    /// # Errors
    /// 400 with the field's code.
    pub fn parse(fields: &Fields) -> Result<Self, Rejection> {
        let task_key = fields.text("taskKey", MAX_KEY, "invalid_taskKey")?;
        let task_hash = fields.text("taskHash", MAX_KEY, "invalid_taskHash")?;
        let deadline = fields.text("deadline", 64, "invalid_deadline")?;
        Ok(Self {
            task_key: task_key.to_owned(),
            task_hash: task_hash.to_owned(),
            deadline: Time::parse_lenient(deadline).ok_or_else(invalid_deadline)?,
        })
    }

    /// Whether a new claim may have this deadline: in the future, and at most 30 days away.
    ///
    /// # Errors
    /// `invalid_deadline`, `deadline_too_far`.
    pub fn in_time(&self, now: Time) -> Result<(), Rejection> {
        if self.deadline <= now {
            return Err(invalid_deadline());
        }
        let most = i64::try_from(MAX_DEADLINE.as_millis()).unwrap_or(i64::MAX);
        if self.deadline.since(now) > most {
            return Err(Rejection::field(
                "deadline_too_far",
                "deadline must be at most 30 days away",
            ));
        }
        Ok(())
    }
}

fn invalid_deadline() -> Rejection {
    Rejection::field(
        "invalid_deadline",
        "deadline must be a time in the future, such as 2030-01-02T03:04:05.000Z",
    )
}

/// A result as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The service's key of it.
    pub key: String,
    /// The payload.
    pub payload: Payload,
    /// SHA-256 of its canonical text.
    pub hash: String,
}

impl Submission {
    /// Reads a result.
    ///
    /// # Errors
    /// 400 with the field's code; 413 when the canonical text is over its bound.
    pub fn parse(fields: &Fields) -> Result<Self, Rejection> {
        let key = fields.text("idempotencyKey", MAX_KEY, "invalid_idempotencyKey")?;
        let payload = fields
            .get("payload")
            .ok_or_else(|| Rejection::field("missing_payload", "payload must be there"))?;
        let payload = Payload::parse(&payload.canonical()).map_err(|e| {
            let message = format!("the payload is too large: {e}");
            Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message)
        })?;
        let hash = payload.hash();
        let told = match fields.get("payloadHash") {
            None => true,
            Some(told) => matches!(told, continuation_record::canonical::Json::Text(text)
                if text.as_str().is_some_and(|told| same(told, &hash))),
        };
        if !told {
            return Err(Rejection::field(
                "payload_hash_mismatch",
                "payloadHash must be the SHA-256 of the payload's canonical JSON in lower-case hex",
            ));
        }
        Ok(Self {
            key: key.to_owned(),
            payload,
            hash,
        })
    }
}

/// A claim with all that the host adds to it.
struct Claim<'a> {
    server: String,
    run: String,
    conversation: String,
    reply_to: Option<String>,
    boundary: Option<String>,
    mode: Mode,
    route: Option<String>,
    fingerprint: &'a str,
    wanted: Wanted,
}

/// What services may do.
#[derive(Clone)]
pub struct Intake {
    desk: Arc<Desk>,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Intake")
    }
}

/// The conversation that is held at a place. Those of the terminal have any name, so that only
/// their place says whose they are.
fn conversation_at(place: &str) -> &str {
    place.strip_prefix("terminal:").unwrap_or(place)
}

impl Intake {
    /// Over what the service holds.
    #[must_use]
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    /// The capability of a running turn, before the body is read.
    pub(crate) fn capability(&self, bearer: &str) -> Result<Arc<Binding>, Rejection> {
        let found = self.desk.bindings.find(bearer);
        found.ok_or_else(Rejection::claim_capability)
    }

    /// A claim whose body is complete.
    pub(crate) async fn claim(
        &self,
        binding: &Arc<Binding>,
        body: &[u8],
    ) -> Result<Claimed, Rejection> {
        // Only now: a body that trickles in while the turn ends must not make a claim that nobody settles.
        let _admitted = binding.admit().ok_or_else(Rejection::claim_capability)?;
        let fields = Fields::parse(body)?;
        let wanted = Wanted::parse(&fields)?;
        let bound = &binding.bound;
        self.enter(Claim {
            server: bound.server.clone(),
            run: bound.run.clone(),
            conversation: bound.conversation.clone(),
            reply_to: bound.reply_to.clone(),
            boundary: Some(binding.boundary().to_owned()),
            mode: bound.mode,
            route: None,
            fingerprint: &binding.fingerprint,
            wanted,
        })
        .await
    }

    /// Whether a bearer is this detached service's. An unknown service and a wrong bearer are one answer.
    pub(crate) fn service(&self, name: &str, bearer: &str) -> Result<(), Rejection> {
        let known = self.desk.settings.services.get(name);
        let digest = known.copied().unwrap_or_else(|| TokenDigest::of(""));
        let fits = digest.matches(&TokenDigest::of(bearer));
        if known.is_some() && fits {
            Ok(())
        } else {
            Err(Rejection::service_capability())
        }
    }

    /// A claim without a turn, on a named route.
    pub(crate) async fn detached(&self, service: &str, body: &[u8]) -> Result<Claimed, Rejection> {
        let fields = Fields::parse(body)?;
        let route_name = fields.text("route", MAX_KEY, "invalid_route")?.to_owned();
        let Some(route) = self.desk.settings.routes.get(&route_name) else {
            return Err(Rejection::new(
                StatusCode::FORBIDDEN,
                "unknown_named_route",
                "there is no such named route",
            ));
        };
        let wanted = Wanted::parse(&fields)?;
        let place = route.conversation.as_deref();
        let fingerprint = detached_fingerprint(service, &route_name, route.mode.name(), place);
        self.enter(Claim {
            server: format!("detached:{service}"),
            run: format!("detached:{service}:{}", wanted.task_key),
            conversation: match place {
                Some(place) if route.mode == Mode::NotifyIfActionable => {
                    conversation_at(place).to_owned()
                }
                Some(conversation) => conversation.to_owned(),
                None => format!("continuation-route:{route_name}"),
            },
            // What is only kept has no destination.
            reply_to: place
                .filter(|_| route.mode == Mode::NotifyIfActionable)
                .map(str::to_owned),
            boundary: None,
            mode: route.mode,
            route: Some(route_name),
            fingerprint: &fingerprint,
            wanted,
        })
        .await
    }

    async fn enter(&self, claim: Claim<'_>) -> Result<Claimed, Rejection> {
        let desk = &self.desk;
        let id = desk.new_id();
        let (doubted, now) = (desk.is_doubted(), desk.now());
        let limits = desk.settings.limits;
        let (record, replayed) = desk
            .decide(Need::Refusable, |tx| {
                let wanted = &claim.wanted;
                let known = tx.by_claim(&claim.server, &claim.run, &wanted.task_key)?;
                if let Some(known) = known {
                    let same = known.task_hash == wanted.task_hash
                        && known.deadline == wanted.deadline
                        && same(&known.claim_fingerprint, claim.fingerprint);
                    return if same {
                        Ok((known, true))
                    } else {
                        Err(Rejection::new(
                            StatusCode::CONFLICT,
                            "claim_conflict",
                            "this task was claimed with another hash, deadline or binding",
                        ))
                    };
                }
                // Whether its deadline may be is not known.
                if doubted {
                    return Err(Rejection::clock());
                }
                wanted.in_time(now)?;
                if tx.active_count() >= limits.max_active {
                    return Err(full(
                        "active_continuation_limit",
                        "too many continuations are active",
                    ));
                }
                if tx.active_of(claim.fingerprint) >= limits.max_active_per_origin {
                    return Err(full(
                        "active_origin_limit",
                        "too many continuations of this origin are active",
                    ));
                }
                let record = new_record(&claim, id, desk, now);
                tx.put(record.clone())?;
                Ok((record, false))
            })
            .await?;
        let base = desk.settings.base();
        let token = Token::result(&desk.secret, &record.continuation_id, &record.task_hash);
        Ok(Claimed {
            result_url: format!("{base}/{}/result", record.continuation_id),
            status_url: format!("{base}/{}/status", record.continuation_id),
            token: token.as_str().to_owned(),
            expires_at: record.deadline,
            fingerprint: record.claim_fingerprint,
            continuation_id: record.continuation_id,
            replayed,
        })
    }

    /// The record of a result capability. An unknown id and a wrong token are one answer, in one time.
    pub(crate) fn authorize(&self, id: &str, bearer: &str) -> Result<Record, Rejection> {
        let record = self.desk.get(id)?;
        let digest = record
            .as_ref()
            .and_then(|record| TokenDigest::parse(&record.result_token_hash))
            .unwrap_or_else(|| TokenDigest::of(""));
        let fits = digest.matches(&TokenDigest::of(bearer));
        match record {
            Some(record) if fits => Ok(record),
            _ => Err(Rejection::result_capability()),
        }
    }

    /// A result whose body is complete.
    pub(crate) async fn result(
        &self,
        id: &str,
        bearer: &str,
        body: &[u8],
    ) -> Result<Accepted, Rejection> {
        // The record may have gone while the body came in.
        self.authorize(id, bearer)?;
        let submission = Submission::parse(&Fields::parse(body)?)?;
        let now = self.desk.now();
        let told = self
            .desk
            .decide(Need::Refusable, |tx| {
                let record = tx.get(id)?.ok_or_else(Rejection::result_capability)?;
                let event = Event::Submit {
                    key: &submission.key,
                    payload: &submission.payload,
                    hash: &submission.hash,
                };
                match state::apply(&record, event, now) {
                    Outcome::Changed(next, _) => {
                        let state = next.state;
                        tx.put(*next)?;
                        Ok(Ok((state, true)))
                    }
                    Outcome::Same => Ok(Ok((record.state, false))),
                    Outcome::Refused(refused) => Err(refused.into()),
                    // The expiry is stored, though the request is refused.
                    Outcome::Late(next) => {
                        tx.put(*next)?;
                        Ok(Err(Rejection::from(
                            continuation_record::event::Refused::Expired,
                        )))
                    }
                }
            })
            .await?;
        let (state, fresh) = told?;
        if fresh {
            self.desk.wake();
        }
        Ok(Accepted {
            continuation_id: id.to_owned(),
            state,
            accepted: true,
        })
    }

    /// How it stands.
    pub(crate) fn status(&self, id: &str, bearer: &str) -> Result<serde_json::Value, Rejection> {
        let record = self.authorize(id, bearer)?;
        serde_json::to_value(Status::from(&record)).map_err(|_| Rejection::internal())
    }
}

fn full(code: &'static str, message: &str) -> Rejection {
    Rejection::new(StatusCode::TOO_MANY_REQUESTS, code, message)
}

fn new_record(claim: &Claim<'_>, id: String, desk: &Desk, now: Time) -> Record {
    let token = Token::result(&desk.secret, &id, &claim.wanted.task_hash);
    let origin_context_state = match claim.boundary {
        Some(_) => OriginContextState::Pending,
        None => OriginContextState::DetachedLatest,
    };
    Record {
        server_name: claim.server.clone(),
        origin_run_id: claim.run.clone(),
        origin_conversation_id: claim.conversation.clone(),
        reply_to_conversation_id: claim.reply_to.clone(),
        history_boundary: claim.boundary.clone(),
        origin_context_state,
        mode: claim.mode,
        route_name: claim.route.clone(),
        task_key: claim.wanted.task_key.clone(),
        task_hash: claim.wanted.task_hash.clone(),
        claim_fingerprint: claim.fingerprint.to_owned(),
        result_token_hash: token.digest().hex(),
        created_at: now,
        updated_at: now,
        deadline: claim.wanted.deadline,
        continuation_id: id,
        state: State::Claimed,
        origin_context_ref: None,
        origin_context_digest: None,
        origin_context_message_count: None,
        origin_context_fingerprint: None,
        origin_context_binding_mac: None,
        completion_kind: None,
        result_idempotency_key: None,
        result_payload_hash: None,
        result_payload: None,
        synthesis_attempts: 0,
        synthesis_deferrals: 0,
        synthesis_started_at: None,
        synthesized_text: None,
        actionable: None,
        delivery_attempts: 0,
        delivery_started_at: None,
        next_attempt_at: None,
        lease_owner: None,
        lease_until: None,
        last_error: None,
        receipt: None,
        compacted_at: None,
    }
}
