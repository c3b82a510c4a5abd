//! Every session and every process of the gateway.

use super::GatewayLimits;
use super::backend::{AskError, Backend, Making};
use super::job::Show;
use super::pool::{Inputs, PoolKey};
use super::surface::Anchor;
use crate::brake::{Brake, Decision};
use crate::servers::{Servers, Starter};
use ipc_proto::Door;
use ipc_proto::edges::delivery::Delivery;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use mono_mcp_stub::wire::Refused;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The process at a stub's end of a connection, as the kernel tells the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its number, which may be another's tomorrow.
    pub pid: u32,
    /// When it was started, in clock ticks since the machine's start: with the number, this process
    /// and no other.
    pub started: u64,
}

/// What has happened since the worker started, and what there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStats {
    /// Stubs now.
    pub sessions: usize,
    /// Processes of servers now.
    pub backends: usize,
    /// Requests that servers have not answered.
    pub outstanding: usize,
    /// Stubs that were taken in.
    pub registered: u64,
    /// Those that came again with their token.
    pub resumed: u64,
    /// Those that were not taken in.
    pub refused: u64,
    /// Requests that were handed on.
    pub requests: u64,
    /// Requests that were cancelled because their stub had gone.
    pub cancelled: u64,
    /// Processes that were started.
    pub started: u64,
    /// Of these, in the place of one that had ended.
    pub replaced: u64,
    /// Replacements that were not taken for what they replace.
    pub mismatched: u64,
    /// Results that got an app.
    pub apps: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) registered: AtomicU64,
    pub(super) resumed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) replaced: AtomicU64,
    pub(super) mismatched: AtomicU64,
    pub(super) apps: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A session that is connected.
#[derive(Debug)]
struct Present {
    holder: Holder,
    end: CancellationToken,
    serial: u64,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Backend>>>>;

#[derive(Default)]
struct Books {
    sessions: HashMap<String, Present>,
    serial: u64,
    slots: HashMap<PoolKey, Slot>,
    brakes: HashMap<String, Brake>,
}

/// Every session and every process.
pub struct Broker<S> {
    pub(super) servers: Arc<Servers<S>>,
    pub(super) limits: Arc<GatewayLimits>,
    pub(super) counters: Counters,
    books: Mutex<Books>,
    /// Where apps are shown.
    pub console: Door<Delivery>,
    this: Weak<Self>,
    closing: CancellationToken,
}

/// A stub that was taken in.
#[derive(Debug)]
pub struct Admitted {
    /// Names the session: the beginning of the token's digest.
    pub name: String,
    /// The server.
    pub settings: McpServerSettings,
    /// Cancelled when the session is to end.
    pub end: CancellationToken,
    serial: u64,
    key: String,
}

/// What a session wants a process for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The server.
    pub settings: &'a McpServerSettings,
    /// The session's name.
    pub session: &'a str,
    /// The parameters of `initialize` as they go to the server; none for a stateless client.
    pub greeting: Option<&'a str>,
    /// What its model was told of.
    pub anchor: Option<&'a Anchor>,
    /// It had one before.
    pub again: bool,
}

/// Why a session gets no process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoBackend {
    /// It can't be started, or does not greet.
    #[error("the server {0} can't be used: {1}")]
    Start(String, String),
    /// The server's own error, as JSON.
    #[error("the server refuses the handshake")]
    Handshake(String),
    /// It is not what the model was told of.
    #[error(
        "the server was started again and is not what it was: {0}. Begin a new session to use it as it is now"
    )]
    Changed(String),
}

impl<S: Starter> Broker<S> {
    /// For these servers.
    #[must_use]
    pub fn new(servers: Arc<Servers<S>>, limits: GatewayLimits) -> Arc<Self> {
        let broker = Arc::new_cyclic(|this: &Weak<Self>| Self {
            servers: servers.clone(),
            limits: Arc::new(limits),
            counters: Counters::default(),
            books: Mutex::default(),
            console: Door::default(),
            this: this.clone(),
            closing: CancellationToken::new(),
        });
        let this = Arc::downgrade(&broker);
        servers.set_gateway_figures(Box::new(move || {
            let stats = this.upgrade().map(|broker| broker.stats());
            serde_json::to_value(stats).unwrap_or_default()
        }));
        broker
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn weak(&self) -> Option<Weak<Self>> {
        (self.this.strong_count() > 0).then(|| self.this.clone())
    }

    /// What there is and what has happened.
    #[must_use]
    pub fn stats(&self) -> GatewayStats {
        let (sessions, slots) = {
            let books = self.books();
            let slots: Vec<Slot> = books.slots.values().cloned().collect();
            (books.sessions.len(), slots)
        };
        let busy = slots.iter().filter(|slot| slot.try_lock().is_err()).count();
        let backends: Vec<_> = slots
            .iter()
            .filter_map(|slot| slot.try_lock().ok()?.clone())
            .collect();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        GatewayStats {
            sessions,
            backends: busy
                + backends
                    .iter()
                    .filter(|backend| backend.is_usable())
                    .count(),
            outstanding: backends.iter().map(|backend| backend.outstanding()).sum(),
            registered: read(&counters.registered),
            resumed: read(&counters.resumed),
            refused: read(&counters.refused),
            requests: read(&counters.requests),
            cancelled: read(&counters.cancelled),
            started: read(&counters.started),
            replaced: read(&counters.replaced),
            mismatched: read(&counters.mismatched),
            apps: read(&counters.apps),
        }
    }

    /// Takes a stub in. Who holds the token is the session; while one process does, no other can be
    /// (spec s2; facts 6.4).
    ///
    /// # Errors
    /// What the stub is told.
    pub fn admit(&self, server: &str, token: &str, holder: Holder) -> Result<Admitted, Refused> {
        let admitted = self.try_admit(server, token, holder);
        if let Err(refused) = &admitted {
            count(&self.counters.refused, 1);
            let (code, pid) = (&refused.code, holder.pid);
            tracing::warn!(target: "security", operation = "mcp-gateway.claim", decision = "deny", code, pid, server, "mcp gateway");
        }
        admitted
    }

    fn try_admit(&self, server: &str, token: &str, holder: Holder) -> Result<Admitted, Refused> {
        let refuse = |code: &str, message: String, retry| {
            let code = code.to_owned();
            Err(Refused {
                code,
                message,
                retry,
            })
        };
        if self.closing.is_cancelled() {
            return refuse(
                "closing",
                "the gateway is about to be replaced".to_owned(),
                true,
            );
        }
        let Some(settings) = self.servers.settings(server) else {
            let text = format!(
                "no server {server:?} stands in tools.mcpServers of the daemon's configuration"
            );
            return refuse("server_unknown", text, false);
        };
        if settings.transport != McpTransport::Stdio {
            let text = format!(
                "{server} is reached over HTTP; only servers with a command can be had here"
            );
            return refuse("server_not_stdio", text, false);
        }
        if settings.per_run {
            let text =
                format!("{server} gets a process for each run of the agent; it can't be had here");
            return refuse("server_per_run", text, false);
        }
        // Neither the token nor anything it could be found from stays here.
        let key = hex::encode(Sha256::digest(token.as_bytes()));
        let name = key[..16].to_owned();
        let mut books = self.books();
        let known = books.sessions.get(&key);
        if known.is_some_and(|known| known.holder != holder) {
            let text = "this session belongs to another process".to_owned();
            return refuse("session_refused", text, false);
        }
        if known.is_none() && books.sessions.len() >= self.limits.sessions {
            let text = format!(
                "{} sessions are there already (tools.gateway.maxSessions)",
                self.limits.sessions
            );
            return refuse("too_many_sessions", text, true);
        }
        let resumed = known.is_some();
        books.serial += 1;
        let serial = books.serial;
        let end = self.closing.child_token();
        let present = Present {
            holder,
            end: end.clone(),
            serial,
        };
        if let Some(earlier) = books.sessions.insert(key.clone(), present) {
            earlier.end.cancel();
        }
        drop(books);
        count(&self.counters.registered, 1);
        count(&self.counters.resumed, u64::from(resumed));
        let pid = holder.pid;
        tracing::info!(target: "security", operation = "mcp-gateway.claim", decision = "allow", session = name, pid, server, "mcp gateway");
        Ok(Admitted {
            name,
            settings: settings.clone(),
            end,
            serial,
            key,
        })
    }

    /// A session's connection has ended.
    pub fn leave(&self, admitted: &Admitted) {
        let mut books = self.books();
        let own = books.sessions.get(&admitted.key);
        if own.is_some_and(|present| present.serial == admitted.serial) {
            books.sessions.remove(&admitted.key);
        }
    }

    /// The process that a session is to speak with, greeted and compared with what the session
    /// knows of it; and the result of `initialize`, where there is one.
    ///
    /// # Errors
    /// [`NoBackend`].
    pub async fn backend(
        &self,
        wanted: Wanted<'_>,
    ) -> Result<(Arc<Backend>, Option<String>), NoBackend> {
        let settings = wanted.settings;
        let show = self.shows(settings);
        let shared = settings.shared;
        let key = PoolKey::of(Inputs {
            settings,
            apps: show.is_some(),
            greeting: wanted.greeting,
            session: (!shared).then_some(wanted.session),
        });
        let name = &settings.name;
        let slot = self.slot(&key, name).await?;
        let mut place = slot.lock().await;
        let earlier = place.take_if(|backend| !backend.is_usable());
        let backend = match place.as_ref() {
            Some(backend) => backend.clone(),
            None => {
                let started = self.start(settings, show).await;
                let backend = started.map_err(|why| NoBackend::Start(name.clone(), why))?;
                count(
                    &self.counters.replaced,
                    u64::from(earlier.is_some() || wanted.again),
                );
                let pool = key.short();
                let (session, process) = (wanted.session, backend.process);
                tracing::info!(
                    server = name,
                    session,
                    process,
                    pool,
                    shared,
                    "a server of the gateway was started"
                );
                place.insert(backend).clone()
            }
        };
        drop(place);
        let failed = |error: AskError| {
            self.brake(name, |brake| brake.failed(Instant::now().into_std()));
            match error {
                AskError::Server(error) => NoBackend::Handshake(error),
                other => {
                    let why = backend.epitaph().unwrap_or_else(|| other.to_string());
                    NoBackend::Start(name.clone(), why)
                }
            }
        };
        let greeted = match wanted.greeting {
            None => None,
            Some(greeting) => match backend.greet(greeting).await {
                Ok(greeted) => Some(greeted),
                Err(error) => {
                    let error = failed(error);
                    backend.dead.cancel();
                    return Err(error);
                }
            },
        };
        if let Some(anchor) = wanted.anchor {
            let surface = backend.surface().await.map_err(failed)?;
            let broken = match surface {
                Some(surface) => anchor.broken_by(&surface),
                None => vec!["its tools come in pages and can't be compared".to_owned()],
            };
            if !broken.is_empty() {
                count(&self.counters.mismatched, 1);
                let told = crate::limits::printable(&broken.join(", "), 400);
                let session = wanted.session;
                tracing::warn!(target: "security", operation = "mcp-gateway.respawn-toolset", decision = "deny", server = name, session, "{told}");
                if !shared {
                    backend.dead.cancel();
                }
                return Err(NoBackend::Changed(told));
            }
        }
        self.brake(name, Brake::succeeded);
        Ok((backend, greeted))
    }

    fn brake(&self, server: &str, change: impl FnOnce(&mut Brake)) {
        change(self.books().brakes.entry(server.to_owned()).or_default());
    }

    /// The place of a process; makes room by ending one that nobody uses.
    async fn slot(&self, key: &PoolKey, server: &str) -> Result<Slot, NoBackend> {
        let most = self.limits.backends;
        for _attempt in 0..2 {
            {
                let mut books = self.books();
                let here = books.slots.get(key).cloned();
                if let Some(slot) = here {
                    return Ok(slot);
                }
                books
                    .slots
                    .retain(|_, slot| Arc::strong_count(slot) > 1 || is_filled(slot));
                if books.slots.len() < most {
                    return Ok(books.slots.entry(key.clone()).or_default().clone());
                }
            }
            self.end_unused(0, 1);
        }
        let why = format!(
            "{most} servers of the gateway are running already (tools.gateway.maxBackends)"
        );
        Err(NoBackend::Start(server.to_owned(), why))
    }

    async fn start(
        &self,
        settings: &McpServerSettings,
        show: Option<Show>,
    ) -> Result<Arc<Backend>, String> {
        let name = &settings.name;
        let (decision, failures) = {
            let books = self.books();
            let brake = books.brakes.get(name).copied().unwrap_or_default();
            (brake.decide(Instant::now().into_std()), brake.failures())
        };
        if let Decision::Wait(wait) = decision {
            let seconds = wait.as_secs() + 1;
            return Err(format!(
                "it failed {failures} times in a row and is left alone for {seconds} s"
            ));
        }
        let started = self.servers.starter().start(name, None, None).await;
        let started = started.inspect_err(|_| {
            self.brake(name, |brake| brake.failed(Instant::now().into_std()));
        })?;
        let process = started.process;
        let making = Making {
            settings: settings.clone(),
            shared: settings.shared,
            limits: self.limits.clone(),
            show,
            end: self.servers.expect_end(process),
        };
        let backend =
            Backend::start(started, making).map_err(|e| format!("its pipes can't be used: {e}"))?;
        count(&self.counters.started, 1);
        if let Some(this) = self.this.upgrade() {
            let (dead, servers) = (backend.dead.clone(), this.servers.clone());
            // With its pipes closed it may go on: its process ends with it.
            tokio::spawn(async move {
                dead.cancelled().await;
                servers.starter().stop(process).await;
            });
        }
        Ok(backend)
    }

    /// A session has left a process. One that nobody else can have, and that no app can call, ends.
    pub fn left(&self, backend: &Arc<Backend>) {
        if !backend.shared && !backend.has_apps.load(Ordering::Relaxed) {
            backend.retire();
        }
        self.end_unused(self.limits.kept, 0);
    }

    /// Ends processes that were not used for too long, and the longest unused ones beyond `kept`,
    /// but at least so many.
    fn end_unused(&self, kept: usize, at_least: usize) {
        let now = Instant::now();
        let slots: Vec<Slot> = self.books().slots.values().cloned().collect();
        let held = |slot: &Slot| slot.try_lock().ok()?.clone();
        let mut unused: Vec<(Instant, Arc<Backend>)> = (slots.iter().filter_map(held))
            .filter(|backend| backend.is_usable() && backend.outstanding() == 0)
            .filter_map(|backend| Some((backend.unused_since()?, backend)))
            .collect();
        unused.sort_by_key(|(since, _)| *since);
        let beyond = unused.len().saturating_sub(kept);
        let beyond = if at_least > 0 {
            at_least.min(unused.len())
        } else {
            beyond
        };
        for (n, (since, backend)) in unused.iter().enumerate() {
            if n < beyond || now.duration_since(*since) >= self.limits.idle {
                backend.retire();
            }
        }
        let mut books = self.books();
        books
            .slots
            .retain(|_, slot| Arc::strong_count(slot) > 2 || is_filled(slot));
    }

    /// Looks after what is idle, until the gateway closes.
    pub async fn keep_house(self: Arc<Self>) {
        let mut ticks =
            tokio::time::interval((self.limits.idle / 20).max(Duration::from_millis(50)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                _ = ticks.tick() => self.end_unused(self.limits.kept, 0),
            }
        }
    }

    /// Takes nobody in any more and ends every session; their stubs go to the next gateway.
    pub fn close(&self) {
        self.closing.cancel();
        let slots: Vec<Slot> = self.books().slots.drain().map(|(_, slot)| slot).collect();
        for slot in slots {
            if let Ok(place) = slot.try_lock()
                && let Some(backend) = place.as_ref()
            {
                backend.dead.cancel();
            }
        }
    }
}

/// True for a place with a process that is usable, or that somebody is about to fill.
fn is_filled(slot: &Slot) -> bool {
    match slot.try_lock() {
        Ok(place) => place.as_ref().is_some_and(|backend| backend.is_usable()),
        Err(_) => true,
    }
}
