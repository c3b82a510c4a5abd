//! What all parts of the service share: the store, the host, the settings, the time.

use crate::ambient::Ambient;
use crate::bindings::Bindings;
use crate::error::Rejection;
use crate::host::{Commitment, Host};
use crate::keeper::{Change, Keeper, Need};
use crate::origin;
use crate::settings::Settings;
use crate::timeline::Timeline;
use continuation_record::cursor::Cursor;
use continuation_record::event::{Effect, Event, Fault, Outcome};
use continuation_record::token::{Secret, Token, TokenDigest};
use continuation_record::{OriginContextState, Record, State, Time, state};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What is handed to a service when it starts.
pub struct Parts {
    /// The store.
    pub keeper: Arc<dyn Keeper>,
    /// The store's secret.
    pub secret: Secret,
    /// The checked configuration.
    pub settings: Settings,
    /// The other processes.
    pub host: Arc<dyn Host>,
    /// Time and chance.
    pub ambient: Arc<dyn Ambient>,
}

/// The shared part.
pub struct Desk {
    pub(crate) keeper: Arc<dyn Keeper>,
    pub(crate) secret: Secret,
    pub(crate) settings: Settings,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) bindings: Bindings,
    ambient: Arc<dyn Ambient>,
    timeline: Mutex<Timeline>,
    operator: TokenDigest,
    owner: String,
    woken: Notify,
    stopping: AtomicBool,
}

/// Whether an event changed a record.
#[derive(Debug)]
pub(crate) enum Changed {
    Yes(Box<Record>, Effect),
    No,
}

impl Desk {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            keeper,
            secret,
            settings,
            host,
            ambient,
        } = parts;
        let (wall, elapsed) = (ambient.wall(), ambient.elapsed());
        let timeline = Timeline::over(keeper.newest(), wall, elapsed, settings.clock_grace);
        if timeline.is_doubted() {
            tracing::warn!(
                "the clock is more than 31 days past all that is pending; nothing expires, and nothing is gone on with, until it is set right or has run on for {} minutes",
                settings.clock_grace.as_secs() / 60
            );
        }
        let operator = Token::operator(&secret).digest();
        let mut owner = [0; 16];
        ambient.fill(&mut owner);
        Arc::new(Self {
            keeper,
            secret,
            settings,
            host,
            bindings: Bindings::default(),
            ambient,
            timeline: Mutex::new(timeline),
            operator,
            owner: hex::encode(owner),
            woken: Notify::new(),
            stopping: AtomicBool::new(false),
        })
    }

    fn on_timeline<T>(&self, of: impl FnOnce(&mut Timeline) -> T) -> T {
        of(&mut self.timeline.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time for deadlines and for what records say.
    pub fn now(&self) -> Time {
        let (wall, elapsed) = (self.ambient.wall(), self.ambient.elapsed());
        self.on_timeline(|timeline| timeline.now(wall, elapsed))
    }

    /// Whether this process began at a time that it doesn't believe yet.
    pub(crate) fn is_doubted(&self) -> bool {
        // What is believed is decided by looking.
        self.now();
        self.on_timeline(|timeline| timeline.is_doubted())
    }

    /// What can be worked on now, oldest change first; nothing while the time is doubted.
    pub(crate) fn due(&self, count: usize) -> Vec<String> {
        if self.is_doubted() {
            return Vec::new();
        }
        self.keeper.due(self.waiting(), count)
    }

    /// The time by which waits are measured.
    pub(crate) fn waiting(&self) -> Time {
        let elapsed = self.ambient.elapsed();
        self.on_timeline(|timeline| timeline.waiting(elapsed))
    }

    /// When a wait that begins now is over.
    pub(crate) fn after(&self, wait: Duration) -> Time {
        let ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.waiting().plus_ms(ms)
    }

    pub(crate) fn chance(&self) -> u64 {
        self.ambient.number()
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        self.ambient.fill(bytes);
    }

    pub(crate) fn new_id(&self) -> String {
        let mut bytes = [0; 16];
        self.ambient.fill(&mut bytes);
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }

    /// The lease's owner: this process.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn is_operator(&self, bearer: &str) -> bool {
        self.operator.matches(&TokenDigest::of(bearer))
    }

    pub(crate) fn is_sealed(&self, record: &Record) -> bool {
        origin::is_sealed(&self.secret, record)
    }

    /// There is work.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<Record>, Rejection> {
        self.keeper.get(id)
    }

    pub(crate) fn blob(&self, digest: &str) -> Result<Option<Vec<u8>>, Rejection> {
        self.keeper.blob(digest)
    }

    pub(crate) fn of_origin(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
    ) -> Result<Vec<Record>, Rejection> {
        let mut records = self.keeper.of_origin(run, conversation, boundary)?;
        records.retain(|record| {
            record.state.is_pending() && record.origin_context_state == OriginContextState::Pending
        });
        Ok(records)
    }

    pub(crate) fn page(
        &self,
        after: Option<&Cursor>,
        count: usize,
    ) -> Result<(Vec<Record>, bool), Rejection> {
        self.keeper.page(after, count)
    }

    /// Decides and stores; returns when what was seen and done is on the disk.
    pub(crate) async fn decide<'a, T: Send + 'a>(
        &'a self,
        need: Need,
        decide: impl FnOnce(&mut dyn Change) -> Result<T, Rejection> + Send + 'a,
    ) -> Result<T, Rejection> {
        let mut told = None;
        let slot = &mut told;
        let decision = Box::new(move |change: &mut dyn Change| {
            *slot = Some(decide(change)?);
            Ok(())
        });
        self.keeper.change(need, decision).await?;
        told.ok_or_else(Rejection::internal)
    }

    /// An event of the host's own: one that is out of place changes nothing, because another was faster.
    pub(crate) async fn apply(&self, id: &str, event: Event<'_>) -> Result<Changed, Rejection> {
        match self.outcome(id, event).await? {
            Some(Outcome::Changed(record, effect)) => Ok(Changed::Yes(record, effect)),
            _ => Ok(Changed::No),
        }
    }

    /// An event that somebody asked for, who is told when it is refused.
    pub(crate) async fn ask(&self, id: &str, event: Event<'_>) -> Result<Changed, Rejection> {
        match self.outcome(id, event).await? {
            None => Err(Rejection::new(
                http::StatusCode::NOT_FOUND,
                "not_found",
                "there is no such continuation",
            )),
            Some(Outcome::Changed(record, effect)) => Ok(Changed::Yes(record, effect)),
            Some(Outcome::Same | Outcome::Late(_)) => Ok(Changed::No),
            Some(Outcome::Refused(refused)) => Err(refused.into()),
        }
    }

    async fn outcome(&self, id: &str, event: Event<'_>) -> Result<Option<Outcome>, Rejection> {
        let now = self.now();
        self.decide(Need::Owed, |change| {
            let Some(record) = change.get(id)? else {
                return Ok(None);
            };
            let outcome = state::apply(&record, event, now);
            if let Outcome::Changed(next, _) | Outcome::Late(next) = &outcome {
                change.put((**next).clone())?;
            }
            Ok(Some(outcome))
        })
        .await
    }

    /// Pins all claims of an origin, in one commit point.
    pub(crate) async fn activate(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
    ) -> Result<(), Rejection> {
        let now = self.now();
        self.keeper
            .activate(run, conversation, boundary, now)
            .await?;
        self.wake();
        Ok(())
    }

    /// Gives up the origins of these claims. Each is a change of its own: what a crash leaves, the next start
    /// gives up by the same reason.
    pub(crate) async fn abandon(&self, members: &[Record], reason: &str) -> Result<(), Rejection> {
        for member in members {
            let fault = Fault {
                code: "origin_context_unavailable",
                reason,
            };
            let id = &member.continuation_id;
            if let Changed::Yes(_, Effect::Wake) = self.apply(id, Event::Abandon(fault)).await? {
                self.wake();
            }
        }
        Ok(())
    }

    /// Settles the origin of a record, and of all that share it, by the word of the history's owner. False
    /// while it can't be settled.
    pub(crate) async fn settle_origin(
        &self,
        id: &str,
        told: Commitment,
    ) -> Result<bool, Rejection> {
        let Some(record) = self.get(id)? else {
            return Ok(false);
        };
        if record.origin_context_state != OriginContextState::Pending {
            return Ok(true);
        }
        // While its turn goes on, its claims are the turn's to settle, and its history may not know of it yet.
        if told == Commitment::NotCommitted && self.bindings.is_open(&record.origin_run_id) {
            return Ok(false);
        }
        let boundary = record.history_boundary.as_deref().unwrap_or_default();
        let (run, conversation) = (&record.origin_run_id, &record.origin_conversation_id);
        match told {
            Commitment::Unknown => return Ok(false),
            Commitment::Committed if record.origin_context_ref.is_some() => {
                self.activate(run, conversation, boundary).await?;
            }
            // Committed without a snapshot, which the order of the steps rules out: nothing to go by.
            Commitment::Committed | Commitment::NotCommitted => {
                let members = self.of_origin(run, conversation, boundary)?;
                let reason = "the turn that asked was not committed";
                self.abandon(&members, reason).await?;
            }
        }
        Ok(true)
    }

    /// The health object.
    pub(crate) fn health(&self) -> Result<Value, Rejection> {
        let now = self.now();
        let mut figures = self.keeper.figures(self.waiting());
        let held = self.on_timeline(|timeline| timeline.held(self.ambient.elapsed()));
        figures.standing.clock_held = held.is_some();
        let standing = figures.standing;
        let settled = State::ALL.into_iter().filter(|state| state.is_settled());
        let tombstones: usize = settled.map(|state| standing.of(state)).sum();
        let records: usize = standing.by_state.iter().sum();
        let limits = self.settings.limits;
        let mut storage = json!({
            "format": "per-record-v3",
            "records": records,
            "active": records - tombstones,
            "unresolvedDelivery": standing.of(State::DeliveryUnknown),
            "deadLettered": standing.of(State::DeadLettered),
            "terminalTombstones": tombstones,
            "compacted": figures.compacted,
            "capturedText": figures.captured_text,
            "historyDegraded": standing.history_degraded,
            "limits": {
                "maxActiveRecords": limits.max_active,
                "maxActivePerOrigin": limits.max_active_per_origin,
                "maxConcurrent": limits.max_concurrent,
            },
        });
        for (key, value) in figures.more {
            storage[key] = value;
        }
        let mut health = json!({
            "status": standing.health(),
            "checkedAt": now,
            "counts": standing.counts(),
            "pending": standing.pending(),
            "due": figures.due,
            "storage": storage,
        });
        if let Some(oldest) = figures.oldest_pending {
            health["oldestPendingAt"] = oldest.to_string().into();
        }
        if let Some((step, left)) = held {
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            health["clock"] = json!({ "steppedByMs": step.by_ms, "heldForMs": left });
        }
        Ok(health)
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Desk")
    }
}
