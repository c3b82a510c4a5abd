//! All servers for all runs: which connection a run gets, and when one is started, replaced or
//! ended. The decisions are pure and live in [`crate::shelf`] and [`crate::brake`]; how a connection
//! is made stands in [`opening`].

mod opening;

use crate::apps::desk::Desk;
use crate::apps::stand::Stand;
use crate::brake::{Brake, Decision};
use crate::call::CallRequest;
use crate::claims::Claims;
use crate::connection::{Connection, Era};
use crate::content::convert;
use crate::ends::{End, Ends};
use crate::error::{CallError, ConnectError, Warning};
use crate::limits::Limits;
use crate::listing::size;
use crate::progress::Board;
use crate::shelf::{Key, Scope, Shelf};
use futures_util::future::join_all;
use ipc_proto::RunId;
use ipc_proto::edges::app_bridge::{McpResult, McpTool};
use ipc_proto::edges::continuation::Claim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::request_context::RequestContext;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use opening::Failure;
use rmcp::model::CallToolResult;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A server process that somebody else started for us: its three pipes and its name.
#[derive(Debug)]
pub struct Started {
    /// Names the process to [`Starter::stop`].
    pub process: u64,
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// The lists of all servers together, in bytes of JSON; leaves the wire's own bound some room.
pub const LISTING_TOTAL_MAX: usize = 12 * 1024 * 1024;

/// Who starts server processes: the supervisor, in a test the test itself.
pub trait Starter: Send + Sync + 'static {
    /// Starts the configured server `name`; for `run`, if it gets a process of its own each run, and
    /// with what it may claim continuations with, if it may.
    ///
    /// The error is a sentence that says what failed and what to do.
    fn start(
        &self,
        name: &str,
        run: Option<&RunId>,
        claim: Option<Claim>,
    ) -> impl Future<Output = Result<Started, String>> + Send;

    /// Starts a server that is told of the request of its run.
    ///
    /// The error is as that of [`Starter::start`].
    fn start_told(
        &self,
        name: &str,
        run: &RunId,
        context: RequestContext,
        claim: Option<Claim>,
    ) -> impl Future<Output = Result<Started, String>> + Send {
        // Who has no names for it leaves it out.
        let _ = context;
        self.start(name, Some(run), claim)
    }

    /// Ends a process that [`Starter::start`] gave. One that has ended already is no error.
    fn stop(&self, process: u64) -> impl Future<Output = ()> + Send;
}

/// One place for one connection. Its lock is held while the server starts, so that two callers
/// don't start it twice.
type Slot = Arc<tokio::sync::Mutex<Option<Live>>>;

struct Live {
    connection: Arc<Connection>,
    process: Option<u64>,
}

/// What was learnt about a server, whoever used it.
#[derive(Debug, Default)]
struct Record {
    brake: Brake,
    era: Era,
}

#[derive(Default)]
struct Books {
    shelf: Shelf,
    slots: HashMap<Key, Slot>,
    /// Runs between [`Servers::begin`] and [`Servers::release`]; nobody else may hold anything.
    runs: HashSet<RunId>,
    records: HashMap<String, Record>,
    /// Connections by their names.
    known: HashMap<String, (Weak<Connection>, Key)>,
    leases: u64,
}

/// A connection that is used on behalf of an app. It stays as long as this is held.
pub struct Lease<S: Starter> {
    /// The connection.
    pub connection: Arc<Connection>,
    /// Whose it is.
    pub key: Key,
    holder: String,
    servers: Arc<Servers<S>>,
}

impl<S: Starter> Drop for Lease<S> {
    fn drop(&mut self) {
        self.servers.books().shelf.release(&self.holder, now());
        self.servers.idle.notify_one();
    }
}

/// How a configured server is doing, for an operator.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStanding {
    /// Its configured name.
    pub name: String,
    /// `stdio`, `http` or `sse`.
    pub transport: &'static str,
    /// One connection for all.
    pub shared: bool,
    /// A fresh one for each run.
    pub per_run: bool,
    /// Its apps are shown.
    pub apps: bool,
    /// Connections now.
    pub connections: usize,
    /// Failures in a row.
    pub failures: u32,
}

/// What somebody counts.
pub(crate) type Figures = Box<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Every configured server.
pub struct Servers<S> {
    settings: Vec<McpServerSettings>,
    limits: Arc<Limits>,
    starter: S,
    /// There when a server is declared that needs it.
    http: Option<reqwest::Client>,
    books: Mutex<Books>,
    ends: Ends,
    claims: Claims,
    board: Arc<Board>,
    stand: Stand,
    /// A connection became idle outside of a run.
    idle: Notify,
    gateway: OnceLock<Figures>,
}

impl<S: Starter> Servers<S> {
    pub fn new(
        settings: Vec<McpServerSettings>,
        limits: Limits,
        starter: S,
        http: Option<reqwest::Client>,
    ) -> Self {
        Self {
            settings,
            limits: Arc::new(limits),
            starter,
            http,
            books: Mutex::default(),
            ends: Ends::default(),
            claims: Claims::default(),
            board: Arc::default(),
            stand: Stand::default(),
            idle: Notify::new(),
            gateway: OnceLock::new(),
        }
    }

    /// Shows apps from now on.
    pub fn show_apps(&self, desk: Arc<Desk>) {
        self.stand.show(desk);
    }

    /// Where apps are asked for.
    pub fn stand(&self) -> &Stand {
        &self.stand
    }

    /// What an operator is told of the gateway; `null` while it is off.
    pub(crate) fn gateway_figures(&self) -> serde_json::Value {
        let figures = self.gateway.get();
        figures.map_or(serde_json::Value::Null, |figures| figures())
    }

    /// There is a gateway, with these figures.
    pub(crate) fn set_gateway_figures(&self, figures: Figures) {
        // There is one at most, from the worker's start on.
        let _ = self.gateway.set(figures);
    }

    /// Who starts processes.
    pub(crate) fn starter(&self) -> &S {
        &self.starter
    }

    /// The end of a process that was started outside of here.
    pub(crate) fn expect_end(&self, process: u64) -> End {
        self.ends.expect(process)
    }

    /// A connection that was made outside of here, and whose it is: apps may call through it.
    pub(crate) fn adopt(&self, connection: &Arc<Connection>, key: Key) {
        let mut books = self.books();
        books.known.retain(|_, (weak, _)| weak.strong_count() > 0);
        let place = (Arc::downgrade(connection), key);
        books.known.insert(connection.id().to_owned(), place);
    }

    /// Where apps are kept and answered, if they are shown.
    pub fn desk(&self) -> Option<&Arc<Desk>> {
        self.stand.desk()
    }

    /// A configured server.
    pub fn settings(&self, name: &str) -> Option<&McpServerSettings> {
        self.settings.iter().find(|settings| settings.name == name)
    }

    /// Returns when a connection became idle outside of a run: there may be something to sweep.
    pub async fn became_idle(&self) {
        self.idle.notified().await;
    }

    /// The connection of this name, if it is still there.
    pub fn lease(self: &Arc<Self>, connection: &str) -> Option<Lease<S>> {
        let mut books = self.books();
        let (weak, key) = books.known.get(connection)?;
        let (found, key) = (weak.upgrade()?, key.clone());
        if !found.is_usable() {
            return None;
        }
        books.leases += 1;
        let holder = format!("app:{}", books.leases);
        books.shelf.hold(&key, &holder, now());
        Some(Lease {
            connection: found,
            key,
            holder,
            servers: self.clone(),
        })
    }

    /// The names of connections that are there.
    pub fn live(&self) -> HashSet<String> {
        let mut books = self.books();
        books.known.retain(|_, (weak, _)| weak.strong_count() > 0);
        let usable = |weak: &Weak<Connection>| weak.upgrade().is_some_and(|c| c.is_usable());
        let live = books.known.iter().filter(|(_, (weak, _))| usable(weak));
        live.map(|(id, _)| id.clone()).collect()
    }

    /// How each server is doing, in the configured order.
    pub fn standing(&self) -> Vec<ServerStanding> {
        let books = self.books();
        let standing = |settings: &McpServerSettings| ServerStanding {
            name: settings.name.clone(),
            transport: match settings.transport {
                McpTransport::Stdio => "stdio",
                McpTransport::Http { .. } => "http",
                McpTransport::Sse { .. } => "sse",
            },
            shared: settings.shared,
            per_run: settings.per_run,
            apps: self.limits.apps && settings.apps.is_some(),
            connections: books
                .slots
                .keys()
                .filter(|key| key.server == settings.name)
                .count(),
            failures: books
                .records
                .get(&settings.name)
                .map_or(0, |r| r.brake.failures()),
        };
        self.settings.iter().map(standing).collect()
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Who may claim continuations.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// What servers are told of their requests, and what they post.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The supervisor tells how a server's process ended.
    pub fn ended(&self, process: u64, how: String) {
        self.ends.told(process, how);
    }

    /// A run begins: until it is released it may hold connections.
    pub fn begin(&self, run: &RunId) {
        self.books().runs.insert(run.clone());
    }

    /// The tools of every server, in the configured order, for one run.
    ///
    /// Servers start side by side, so the slowest one decides. A server that can't be started or
    /// doesn't list its tools is a warning, and the others go on.
    pub async fn list_tools(self: &Arc<Self>, scope: &RunScope) -> (Vec<McpTool>, Vec<Warning>) {
        let all = self
            .settings
            .iter()
            .map(|settings| self.list_one(settings, scope));
        let mut tools = Vec::new();
        let mut warnings = Vec::new();
        let mut bytes = 0;
        for (found, told) in join_all(all).await {
            warnings.extend(told);
            bytes += size(&found);
            if bytes <= LISTING_TOTAL_MAX {
                tools.extend(found);
            } else if let Some(first) = found.first() {
                let text = format!(
                    "its tools are left out: all servers' lists together have more than {LISTING_TOTAL_MAX} bytes"
                );
                warnings.push(Warning::new(
                    "mcp_tools_truncated",
                    &first.server,
                    text,
                    None,
                ));
            }
        }
        (tools, warnings)
    }

    async fn list_one(
        self: &Arc<Self>,
        settings: &McpServerSettings,
        scope: &RunScope,
    ) -> (Vec<McpTool>, Vec<Warning>) {
        let name = &settings.name;
        let connection = match self.acquire(settings, scope).await {
            Ok(connection) => connection,
            Err(failure) => {
                let line = failure.last_line.as_deref();
                let warning = Warning::new("mcp_init_failed", name, failure.error, line);
                return (Vec::new(), vec![warning]);
            }
        };
        match connection.list_tools().await {
            Ok(listed) => {
                self.record(name, |record| record.brake.succeeded());
                listed
            }
            Err(error) => {
                // Its next user gets a new connection: this one doesn't do what it is for.
                connection.mark_broken();
                self.record(name, |record| record.brake.failed(now()));
                let line = connection.last_line();
                let warning = Warning::new("mcp_list_tools_failed", name, error, line.as_deref());
                (Vec::new(), vec![warning])
            }
        }
    }

    /// Calls a tool for a run. A server that has ended since is started again first; a call that
    /// was under way when it ended is not repeated, since nobody knows what it has done.
    ///
    /// # Errors
    /// As [`Connection::call`], and when the server is unknown or can't be started.
    pub async fn call(
        self: &Arc<Self>,
        scope: &RunScope,
        server: &str,
        request: CallRequest,
    ) -> Result<McpResult, CallError> {
        let (_, result) = self.call_raw(scope, server, request).await?;
        convert(result, &self.limits)
    }

    /// As [`Servers::call`], with the result as the server gave it and the connection that it came
    /// from.
    ///
    /// # Errors
    /// As [`Servers::call`].
    pub async fn call_raw(
        self: &Arc<Self>,
        scope: &RunScope,
        server: &str,
        request: CallRequest,
    ) -> Result<(Arc<Connection>, CallToolResult), CallError> {
        let settings = self
            .settings(server)
            .ok_or_else(|| CallError::UnknownServer {
                server: server.to_owned(),
            })?;
        let cancelled = CallError::Cancelled {
            tool: request.tool.clone(),
        };
        let connection = tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Err(cancelled),
            connection = self.acquire(settings, scope) => connection,
        };
        let connection = connection.map_err(|failure| CallError::Start {
            server: server.to_owned(),
            reason: match failure.last_line {
                Some(line) => format!("{}; it last said: {line}", failure.error),
                None => failure.error.to_string(),
            },
        })?;
        let result = connection.call_raw(request).await?;
        self.record(server, |record| record.brake.succeeded());
        Ok((connection, result))
    }

    /// The connection that a call of this run would go through.
    pub async fn connection(
        self: &Arc<Self>,
        scope: &RunScope,
        server: &str,
    ) -> Option<Arc<Connection>> {
        self.acquire(self.settings(server)?, scope).await.ok()
    }

    /// Connects as a run would and lists every tool.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub async fn probe(
        self: &Arc<Self>,
        scope: &RunScope,
        server: &str,
    ) -> Result<(Arc<Connection>, Arc<Vec<crate::listing::Declared>>), String> {
        let settings = self.settings(server).ok_or("no such server")?;
        let connection = self.acquire(settings, scope).await;
        let connection = connection.map_err(|failure| match failure.last_line {
            Some(line) => format!("{}; it last said: {line}", failure.error),
            None => failure.error.to_string(),
        })?;
        let tools = connection.fresh_tools(self.limits.list).await;
        Ok((connection, tools.map_err(|error| error.to_string())?))
    }

    /// A run has ended: what it held becomes idle, what was its own is ended.
    pub async fn release(self: &Arc<Self>, run: &RunId) {
        {
            let mut books = self.books();
            books.runs.remove(run);
            self.claims.leave(run);
            self.board.leave(run);
            books.shelf.release(run.as_str(), now());
        }
        // The task can't be cancelled, and a panic in it would have been told already.
        let _ = self.sweep().await;
    }

    /// Ends what is idle too long or too much. Call it when [`Servers::next_sweep`] says so. The
    /// decision is made at once; the ending, which may take seconds, in the task that is returned.
    pub fn sweep(self: &Arc<Self>) -> JoinHandle<()> {
        let ended: Vec<Slot> = {
            let mut books = self.books();
            let keys = books.shelf.sweep(now());
            keys.iter()
                .filter_map(|key| books.slots.remove(key))
                .collect()
        };
        let this = self.clone();
        tokio::spawn(async move {
            join_all(ended.into_iter().map(|slot| this.clear(slot))).await;
        })
    }

    /// When a sweep will next have something to do, if nothing changes before.
    pub fn next_sweep(&self) -> Option<Instant> {
        self.books().shelf.next_expiry().map(Instant::from_std)
    }

    /// Ends everything, for an orderly stop.
    pub async fn close(&self) {
        let slots: Vec<Slot> = self.books().slots.drain().map(|(_, slot)| slot).collect();
        join_all(slots.into_iter().map(|slot| self.clear(slot))).await;
    }

    /// Connections that are there now; for tests and status.
    pub fn connections(&self) -> usize {
        self.books().slots.len()
    }

    async fn clear(&self, slot: Slot) {
        if let Some(live) = slot.lock().await.take() {
            self.end(live).await;
        }
    }

    async fn end(&self, live: Live) {
        live.connection.close().await;
        if let Some(process) = live.process {
            self.starter.stop(process).await;
        }
    }

    /// The connection of `scope` to a server. It is started in a task of its own: a caller that
    /// stops waiting leaves a started server behind for the next call and no half-open one.
    async fn acquire(
        self: &Arc<Self>,
        settings: &McpServerSettings,
        scope: &RunScope,
    ) -> Result<Arc<Connection>, Failure> {
        let (this, settings, scope) = (self.clone(), settings.clone(), scope.clone());
        let task = tokio::spawn(async move { this.place(&settings, &scope).await });
        task.await
            .unwrap_or_else(|error| Err(ConnectError::Start(error.to_string()).into()))
    }

    async fn place(
        &self,
        settings: &McpServerSettings,
        scope: &RunScope,
    ) -> Result<Arc<Connection>, Failure> {
        let key = key(settings, scope);
        loop {
            let slot = self.hold(&key, &scope.run)?;
            let mut place = slot.lock().await;
            if !self.is_current(&key, &slot) {
                // Swept, or given up by another caller, while this one waited for the lock.
                continue;
            }
            if let Some(live) = place.take() {
                if live.connection.is_usable() {
                    return Ok(place.insert(live).connection.clone());
                }
                self.end(live).await;
            }
            let outcome = self.start(settings, &scope.run).await;
            if outcome.is_err() {
                let mut books = self.books();
                books.slots.remove(&key);
                books.shelf.forget(&key);
            }
            let connection = place.insert(outcome?).connection.clone();
            let mut books = self.books();
            books.known.retain(|_, (weak, _)| weak.strong_count() > 0);
            let place = (Arc::downgrade(&connection), key);
            books.known.insert(connection.id().to_owned(), place);
            return Ok(connection);
        }
    }

    fn hold(&self, key: &Key, run: &RunId) -> Result<Slot, ConnectError> {
        let mut books = self.books();
        if !books.runs.contains(run) {
            return Err(ConnectError::Start("its run has ended".to_owned()));
        }
        books.shelf.hold(key, run.as_str(), now());
        Ok(books.slots.entry(key.clone()).or_default().clone())
    }

    fn is_current(&self, key: &Key, slot: &Slot) -> bool {
        self.books()
            .slots
            .get(key)
            .is_some_and(|current| Arc::ptr_eq(current, slot))
    }

    /// Starts a server if the brake allows, and remembers how that went.
    async fn start(&self, settings: &McpServerSettings, run: &RunId) -> Result<Live, Failure> {
        let era = self.permission(&settings.name)?;
        let mut outcome = self.connect(settings, run, era).await;
        // The failure may have taught how this server wants to be greeted: once more, then.
        if let Err(failure) = &outcome
            && let Some(next) = failure.next.filter(|next| *next != era)
        {
            outcome = self.connect(settings, run, next).await;
        }
        self.learn(&settings.name, &outcome);
        outcome
    }

    /// How to greet the server, if the brake lets it be started at all.
    fn permission(&self, name: &str) -> Result<Era, ConnectError> {
        let books = self.books();
        let Some(record) = books.records.get(name) else {
            return Ok(Era::Unknown);
        };
        match record.brake.decide(now()) {
            Decision::Start => Ok(record.era),
            Decision::Wait(wait) => Err(ConnectError::Braked {
                failures: record.brake.failures(),
                wait,
            }),
        }
    }

    /// A connection alone is no success yet: a server may greet well and then never list.
    fn learn(&self, name: &str, outcome: &Result<Live, Failure>) {
        self.record(name, |record| match outcome {
            Ok(live) => record.era = live.connection.era(),
            Err(_) => {
                record.brake.failed(now());
                record.era = Era::Unknown;
            }
        });
    }

    fn record(&self, name: &str, change: impl FnOnce(&mut Record)) {
        change(self.books().records.entry(name.to_owned()).or_default());
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic while it was held can't have left it half changed: each change is one call.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(settings: &McpServerSettings, scope: &RunScope) -> Key {
    place_of(settings, scope.run.as_str(), scope.conversation.as_str())
}

/// Whose connection a run of a conversation gets.
pub(crate) fn place_of(settings: &McpServerSettings, run: &str, conversation: &str) -> Key {
    let owner = if settings.per_run {
        Scope::Run(run.to_owned())
    } else if settings.shared {
        Scope::Shared
    } else {
        Scope::Conversation(conversation.to_owned())
    };
    Key {
        server: settings.name.clone(),
        scope: owner,
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
