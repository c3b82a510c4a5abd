//! One process of a server, and everybody who speaks with it.
//!
//! Requests get numbers of ours, so that several callers can use the same ids; answers, progress
//! and cancellation find their way back by them. What can't be attributed to a caller is for the
//! only one that there is, or for nobody (spec s2; facts 6.5).

use super::GatewayLimits;
use super::ledger::{Asked, CallerId, Ledger, Shape, Taken, Told, Waits};
use super::params::{NotAnObject, Stamp, WANTS_CALLER, call_of, member, stamped, with_member};
use super::surface::{Anchor, Seen, narrow};
use crate::connection::Connection;
use crate::ends::End;
use crate::pipes::{LastLine, drain};
use crate::servers::Started;
use ipc_proto::ConversationId;
use ipc_proto::settings::McpServerSettings;
use mono_mcp_stub::frame::{
    Frame, INTERNAL, INVALID_REQUEST, METHOD_NOT_FOUND, Outcome, answer, failure, notification,
    request,
};
use mono_mcp_stub::lines::Lines;
use mono_mcp_stub::wire::Control;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Questions of a server that its caller has not answered.
const MAX_ASKED: usize = 64;
/// Subscriptions of one caller (facts 6.5).
const MAX_SUBSCRIPTIONS: usize = 1024;
/// Messages that wait for a server.
const QUEUE: usize = 256;
/// How long a server may take to end by itself.
const GOES_WITHIN: Duration = Duration::from_secs(2);
/// How long the reason of a server's end is waited for.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);

/// Where what is for a caller goes. A caller that takes nothing is cut off; the server's other
/// callers don't wait for it.
#[derive(Debug, Clone)]
pub struct Outbox {
    tell: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    most: usize,
    /// Cancelled when the caller takes nothing, or is gone.
    pub gone: CancellationToken,
}

/// The other end of an [`Outbox`].
#[derive(Debug)]
pub struct Inbox {
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

impl Outbox {
    /// With room for `most` bytes.
    #[must_use]
    pub fn new(most: usize, gone: CancellationToken) -> (Self, Inbox) {
        let (tell, lines) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        let inbox = Inbox {
            lines,
            waiting: waiting.clone(),
        };
        let outbox = Self {
            tell,
            waiting,
            most,
            gone,
        };
        (outbox, inbox)
    }

    /// Hands a line on, without its end.
    pub fn send(&self, line: String) {
        let bytes = line.len() + 1;
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            self.gone.cancel();
            return;
        }
        let mut line = line.into_bytes();
        line.push(b'\n');
        // Fails when nobody reads any more.
        let _ = self.tell.send(line);
    }
}

impl Inbox {
    /// The next line, with its end.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let line = self.lines.recv().await?;
        self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
        Some(line)
    }
}

/// Who speaks with a server.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Where its answers go.
    pub out: Outbox,
    /// Ourselves, on behalf of an app: sees every tool and gets results as they are.
    pub internal: bool,
    /// Names the session, in logs and to servers that ask.
    pub session: Arc<str>,
    /// The conversation that stands for the session in records of apps.
    pub conversation: ConversationId,
    /// The tools that its model was told of.
    pub anchor: Arc<Mutex<Option<Anchor>>>,
}

/// A result that may have an app.
#[derive(Debug)]
pub struct Job {
    /// Where it comes from.
    pub backend: Arc<Backend>,
    /// Who called.
    pub caller: Caller,
    /// The caller's id of the request.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments as JSON.
    pub arguments: String,
    /// The result as JSON.
    pub result: String,
}

/// Makes an app of a result and delivers it, with or without.
pub type Show = Arc<dyn Fn(Job) + Send + Sync>;

/// Why a question of ours has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The server's own error, as JSON.
    #[error("the server answers {0}")]
    Server(String),
    /// Not in time.
    #[error("the server did not answer within {0:?}")]
    Late(Duration),
    /// It has ended.
    #[error("the server has ended")]
    Gone,
}

struct Member {
    caller: Caller,
    subscriptions: HashSet<String>,
}

#[derive(Default)]
struct Inner {
    ledger: Ledger,
    callers: HashMap<CallerId, Member>,
    next_caller: CallerId,
    /// Questions of the server to its only caller, by their ids.
    asked: HashMap<String, CallerId>,
    heard: Option<Instant>,
    asked_at: Option<Instant>,
    /// Tools whose results have pages; none while no listing was seen.
    pages: Option<BTreeSet<String>>,
    /// Why it ended.
    epitaph: Option<String>,
    unused_since: Option<Instant>,
}

struct Queued {
    line: String,
    _room: OwnedSemaphorePermit,
}

/// One process and its callers.
pub struct Backend {
    /// The server.
    pub settings: McpServerSettings,
    /// Names the process to the supervisor.
    pub process: u64,
    /// Several may speak with it.
    pub shared: bool,
    /// Apps are announced to it.
    pub apps: bool,
    /// Cancelled when the process has ended or is to be ended.
    pub dead: CancellationToken,
    /// Cancelled when nobody new may speak with it.
    retired: CancellationToken,
    /// What the last lines on its standard error were.
    pub last_line: LastLine,
    /// It was the producer of an app that may call back.
    pub has_apps: AtomicBool,
    limits: Arc<GatewayLimits>,
    inner: Mutex<Inner>,
    to_server: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    /// The result of `initialize`, and whether the server wants to know who calls.
    greeting: tokio::sync::Mutex<Option<String>>,
    wants_caller: AtomicBool,
    /// The model-visible tools of this process, asked for once.
    surface: tokio::sync::Mutex<Option<Anchor>>,
    show: Option<Show>,
    /// Our own connection, for apps.
    pub(super) own: tokio::sync::Mutex<Option<Arc<Connection>>>,
    end: End,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Backend({}, process {})",
            self.settings.name, self.process
        )
    }
}

/// What a process is made of.
pub struct Making {
    /// The server.
    pub settings: McpServerSettings,
    /// Several may speak with it.
    pub shared: bool,
    /// The bounds.
    pub limits: Arc<GatewayLimits>,
    /// Makes apps; none where they are not shown.
    pub show: Option<Show>,
    /// How the process ends.
    pub end: End,
}

impl Backend {
    /// Speaks over the pipes of a started process.
    ///
    /// # Errors
    /// When they can't be used.
    pub fn start(started: Started, making: Making) -> io::Result<Arc<Self>> {
        let stdin = pipe::Sender::from_owned_fd(started.stdin)?;
        let stdout = pipe::Receiver::from_owned_fd(started.stdout)?;
        let stderr = pipe::Receiver::from_owned_fd(started.stderr)?;
        let (to_server, queue) = mpsc::channel(QUEUE);
        let Making {
            settings,
            shared,
            limits,
            show,
            end,
        } = making;
        let this = Arc::new(Self {
            process: started.process,
            shared,
            apps: show.is_some(),
            dead: CancellationToken::new(),
            retired: CancellationToken::new(),
            last_line: LastLine::default(),
            has_apps: AtomicBool::new(false),
            inner: Mutex::default(),
            to_server,
            room: Arc::new(Semaphore::new(limits.bytes)),
            greeting: tokio::sync::Mutex::new(None),
            wants_caller: AtomicBool::new(false),
            surface: tokio::sync::Mutex::new(None),
            own: tokio::sync::Mutex::new(None),
            limits,
            show,
            end,
            settings,
        });
        let name = this.settings.name.clone();
        tokio::spawn(drain(name, stderr, this.last_line.clone()));
        tokio::spawn(this.clone().write(stdin, queue));
        tokio::spawn(this.clone().listen(stdout));
        Ok(this)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change is whole before anything that could panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True until the process has ended or is to be ended.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.dead.is_cancelled() && !self.retired.is_cancelled()
    }

    /// Longest message in bytes.
    #[must_use]
    pub fn message_bound(&self) -> usize {
        self.limits.message
    }

    /// Takes a caller in.
    pub fn attach(&self, caller: Caller) -> CallerId {
        let mut inner = self.inner();
        inner.next_caller += 1;
        let id = inner.next_caller;
        let member = Member {
            caller,
            subscriptions: HashSet::new(),
        };
        inner.callers.insert(id, member);
        inner.unused_since = None;
        id
    }

    /// A caller is gone: what it had under way is cancelled, and what it was asked is declined.
    pub async fn detach(&self, caller: CallerId) -> usize {
        let (numbers, declined) = {
            let mut inner = self.inner();
            inner.callers.remove(&caller);
            if inner.callers.values().all(|member| member.caller.internal) {
                inner.unused_since = Some(Instant::now());
            }
            let numbers = inner.ledger.forget(caller);
            let declined: Vec<String> = (inner.asked.extract_if(|_, whose| *whose == caller))
                .map(|(id, _)| id)
                .collect();
            (numbers, declined)
        };
        for number in &numbers {
            let params = format!(r#"{{"requestId":{number},"reason":"the client is gone"}}"#);
            self.send(notification("notifications/cancelled", Some(&params)))
                .await;
        }
        for id in declined {
            self.send(failure(&id, INTERNAL, "the client is gone"))
                .await;
        }
        numbers.len()
    }

    /// Since when only we ourselves speak with it, if so.
    #[must_use]
    pub fn unused_since(&self) -> Option<Instant> {
        let inner = self.inner();
        let last = inner.heard.filter(|_| inner.unused_since.is_some());
        inner.unused_since.into_iter().chain(last).max()
    }

    /// Requests that are not answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.inner().ledger.len()
    }

    /// Callers, without ourselves.
    #[must_use]
    pub fn callers(&self) -> usize {
        let inner = self.inner();
        let others = inner
            .callers
            .values()
            .filter(|member| !member.caller.internal);
        others.count()
    }

    /// Hands a line to the server; waits while it reads nothing.
    async fn send(&self, line: String) {
        let bytes = (line.len() + 1).min(self.limits.bytes);
        let room = self.room.clone().acquire_many_owned(bytes as u32);
        tokio::select! {
            biased;
            () = self.dead.cancelled() => {}
            room = room => if let Ok(room) = room {
                // Fails when the process has ended, which everybody who waits is told.
                let _ = self.to_server.send(Queued { line, _room: room }).await;
            },
        }
    }

    /// Ends the process in order: it reads what was sent to it and then the end of its input, and
    /// has a while to go by itself.
    pub fn retire(self: &Arc<Self>) {
        if self.retired.is_cancelled() {
            return;
        }
        self.retired.cancel();
        let this = self.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(GOES_WITHIN, this.dead.cancelled()).await;
            this.dead.cancel();
        });
    }

    async fn write(self: Arc<Self>, mut stdin: pipe::Sender, mut queue: mpsc::Receiver<Queued>) {
        loop {
            let queued = tokio::select! {
                biased;
                () = self.dead.cancelled() => return,
                queued = queue.recv() => queued,
                () = self.retired.cancelled() => None,
            };
            let Some(Queued { mut line, _room }) = queued else {
                return;
            };
            line.push('\n');
            let written = tokio::select! {
                biased;
                () = self.dead.cancelled() => return,
                written = stdin.write_all(line.as_bytes()) => written,
            };
            if written.is_err() {
                // Its output ends too, and may hold the reason.
                return;
            }
        }
    }

    async fn listen(self: Arc<Self>, mut stdout: pipe::Receiver) {
        let mut lines = Lines::new(self.limits.message);
        let mut buffer = vec![0u8; 64 << 10];
        let mut watch = tokio::time::interval(self.limits.ping.min(Duration::from_secs(5)));
        watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let why = 'all: loop {
            tokio::select! {
                biased;
                () = self.dead.cancelled() => break "was ended".to_owned(),
                read = stdout.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => break self.last_words().await,
                    Ok(read) => {
                        lines.push(&buffer[..read]);
                        loop {
                            match lines.next_line() {
                                Ok(Some(line)) => self.from_server(&line).await,
                                Ok(None) => break,
                                Err(e) => break 'all format!("wrote too much: {e}"),
                            }
                        }
                    }
                },
                _ = watch.tick() => if self.is_hung().await {
                    break "answers nothing, no ping either".to_owned();
                },
            }
        };
        self.bury(&why);
    }

    async fn last_words(&self) -> String {
        let how = tokio::time::timeout(Duration::from_secs(1), self.end.how()).await;
        let how = how.ok().flatten().unwrap_or_else(|| "ended".to_owned());
        tokio::time::sleep(LAST_WORDS_WITHIN.min(Duration::from_millis(50))).await;
        let last = self.last_line.get();
        if last.is_empty() {
            how
        } else {
            format!("{how}; it last said: {last}")
        }
    }

    /// The process is of no use any more: everybody who waits is told.
    fn bury(&self, why: &str) {
        self.dead.cancel();
        let (waiting, callers) = {
            let mut inner = self.inner();
            inner.epitaph = Some(why.to_owned());
            inner.asked.clear();
            let callers: HashMap<CallerId, Caller> = (inner.callers.iter())
                .map(|(id, member)| (*id, member.caller.clone()))
                .collect();
            (inner.ledger.drain(), callers)
        };
        let server = &self.settings.name;
        tracing::info!(
            server,
            process = self.process,
            lost = waiting.len(),
            "a server of the gateway {why}"
        );
        for waits in waiting {
            // Who waits for us sees its channel close.
            let Waits::Caller(asked) = waits else {
                continue;
            };
            if let Some(caller) = callers.get(&asked.caller) {
                let text = format!(
                    "The server {why}. What was asked may have been carried out; it was not repeated."
                );
                caller.out.send(failure(&asked.id, INTERNAL, &text));
            }
        }
    }

    /// Why it ended, once it has.
    #[must_use]
    pub fn epitaph(&self) -> Option<String> {
        self.inner().epitaph.clone()
    }

    /// Asks whether the server is there, while something is outstanding; true when it is not.
    async fn is_hung(&self) -> bool {
        let now = Instant::now();
        {
            let mut inner = self.inner();
            let Some(oldest) = inner.ledger.oldest() else {
                return false;
            };
            let silent = now.duration_since(inner.heard.unwrap_or(oldest).max(oldest));
            if now.duration_since(oldest) >= self.limits.old && silent >= self.limits.silent {
                return true;
            }
            let asked = inner
                .asked_at
                .is_some_and(|at| now.duration_since(at) < self.limits.ping);
            if silent < self.limits.ping || asked {
                return false;
            }
            inner.asked_at = Some(now);
        }
        // Not one of those that wait: that would keep the question alive by itself. Not awaited for
        // long: a server that reads nothing has a full pipe.
        let ping = self.send(request(r#""mono:ping""#, "ping", None));
        let _ = tokio::time::timeout(Duration::from_millis(100), ping).await;
        false
    }

    /// A question of our own.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn ask(
        &self,
        method: &str,
        params: Option<&str>,
        within: Duration,
    ) -> Result<String, AskError> {
        let (tell, told) = oneshot::channel::<Told>();
        let number = self.inner().ledger.own(tell, Instant::now());
        self.send(request(&number.to_string(), method, params))
            .await;
        let told = tokio::select! {
            biased;
            told = told => told,
            () = tokio::time::sleep(within) => {
                self.inner().ledger.take(number);
                return Err(AskError::Late(within));
            }
            () = self.dead.cancelled() => return Err(AskError::Gone),
        };
        told.map_err(|_| AskError::Gone)?.map_err(AskError::Server)
    }

    /// Shakes hands, once for all callers: the result of `initialize`.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn greet(&self, params: &str) -> Result<String, AskError> {
        let mut greeting = self.greeting.lock().await;
        if let Some(known) = greeting.as_ref() {
            return Ok(known.clone());
        }
        let result = self
            .ask("initialize", Some(params), self.limits.greet)
            .await?;
        let told: Value = serde_json::from_str(&result).unwrap_or_default();
        let wants = told["capabilities"]["experimental"]
            .get(WANTS_CALLER)
            .is_some();
        self.wants_caller.store(wants, Ordering::Relaxed);
        self.send(notification("notifications/initialized", None))
            .await;
        Ok(greeting.insert(result).clone())
    }

    /// The result of `initialize`, if hands were shaken.
    pub async fn greeted(&self) -> Option<String> {
        self.greeting.lock().await.clone()
    }

    /// What a model sees of this process's tools; none for a listing of several pages, which can't
    /// be compared.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn surface(&self) -> Result<Option<Anchor>, AskError> {
        let mut surface = self.surface.lock().await;
        if let Some(known) = surface.as_ref() {
            return Ok(Some(known.clone()));
        }
        let listing = self.ask("tools/list", None, self.limits.greet).await?;
        let mut listing: Value = serde_json::from_str(&listing).unwrap_or_default();
        let seen = narrow(&mut listing);
        if listing
            .get("nextCursor")
            .is_some_and(|cursor| !cursor.is_null())
        {
            return Ok(None);
        }
        let Some(Seen { anchor, pages }) = seen else {
            return Ok(None);
        };
        self.inner().pages = Some(pages);
        Ok(Some(surface.insert(anchor).clone()))
    }

    /// A caller says something; `initialize` is not for here. The error is a line for the caller.
    ///
    /// # Errors
    /// When it is not handed on.
    pub async fn from_caller(&self, caller: CallerId, frame: Frame<'_>) -> Result<(), String> {
        match frame {
            Frame::Request { id, method, params } => {
                let line = self.enter(caller, id, &method, params);
                let line = line.map_err(|error| failure(id, INVALID_REQUEST, &error))?;
                self.send(line).await;
            }
            Frame::Notification { method, params } => {
                if let Some(line) = self.note(caller, &method, params) {
                    self.send(line).await;
                }
            }
            Frame::Answer { id, outcome } => {
                let Some(id) = id else { return Ok(()) };
                let wanted = {
                    let mut inner = self.inner();
                    let own = inner.asked.get(id) == Some(&caller);
                    own && inner.asked.remove(id).is_some()
                };
                if wanted {
                    self.send(answer(id, outcome)).await;
                }
            }
        }
        Ok(())
    }

    fn enter(
        &self,
        caller: CallerId,
        id: &str,
        method: &str,
        params: Option<&str>,
    ) -> Result<String, String> {
        let mut inner = self.inner();
        let member = inner.callers.get(&caller).ok_or("this session has ended")?;
        let (internal, session) = (member.caller.internal, member.caller.session.clone());
        let shape = match method {
            "tools/list" => Shape::List {
                first: params.is_none_or(|p| member_is_absent(p, "cursor")),
            },
            "tools/call" if self.show.is_some() && !internal => match call_of(params) {
                Some((tool, arguments)) => Shape::Call { tool, arguments },
                None => Shape::Plain,
            },
            _ => Shape::Plain,
        };
        self.subscribe(&mut inner, caller, method, params)?;
        let asked = Asked {
            caller,
            id: id.to_owned(),
            shape,
            token: None,
        };
        let most = self.limits.outstanding;
        let stamp = |number| Stamp {
            number,
            caller: self
                .wants_caller
                .load(Ordering::Relaxed)
                .then_some(&*session),
            apps: self.apps,
        };
        // The number is known before the request is entered, for it stands in its parameters.
        let (params, token) = stamped(params, stamp(inner.ledger.next()))
            .map_err(|error: NotAnObject| error.to_string())?;
        let number = inner
            .ledger
            .enter(Asked { token, ..asked }, most, Instant::now())
            .map_err(|error: Taken| error.to_string())?;
        Ok(request(&number.to_string(), method, params.as_deref()))
    }

    fn subscribe(
        &self,
        inner: &mut Inner,
        caller: CallerId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        let subscribes = match method {
            "resources/subscribe" => true,
            "resources/unsubscribe" => false,
            _ => return Ok(()),
        };
        let Some(uri) = member(params, "uri").filter(|uri| uri.len() <= 8 << 10) else {
            return Err("a subscription needs a uri of at most 8 KiB".to_owned());
        };
        if let Some(member) = inner.callers.get_mut(&caller) {
            if !subscribes {
                member.subscriptions.remove(&uri);
            } else if member.subscriptions.len() < MAX_SUBSCRIPTIONS {
                member.subscriptions.insert(uri);
            } else {
                return Err(format!(
                    "{MAX_SUBSCRIPTIONS} subscriptions are there already"
                ));
            }
        }
        Ok(())
    }

    /// The line that a caller's notification becomes, if it becomes one.
    fn note(&self, caller: CallerId, method: &str, params: Option<&str>) -> Option<String> {
        match method {
            // Hands were shaken for everybody.
            "notifications/initialized" => None,
            "notifications/cancelled" => {
                let id = member(params, "requestId")?;
                let mut inner = self.inner();
                let number = inner.ledger.find(caller, &id)?;
                // Who cancels waits no longer; a late answer is for nobody.
                inner.ledger.take(number);
                drop(inner);
                let params = with_member(params, "requestId", &number.to_string())?;
                Some(notification(method, Some(&params)))
            }
            // Of a server's own question, or of the client's roots: there is one client only.
            _ if !self.shared => Some(notification(method, params)),
            _ => None,
        }
    }

    /// The server says something. What is not understood is left out, as rmcp does.
    async fn from_server(self: &Arc<Self>, line: &[u8]) {
        self.inner().heard = Some(Instant::now());
        let frame = match Frame::parse(line) {
            Ok(frame) => frame,
            Err(error) => {
                let server = &self.settings.name;
                tracing::debug!(server, "a line of a server is no message: {error}");
                return;
            }
        };
        match frame {
            Frame::Answer { id, outcome } => {
                let number = id.and_then(|id| id.parse().ok());
                let waits = number.and_then(|number| self.inner().ledger.take(number));
                match waits {
                    Some(Waits::Caller(asked)) => self.deliver(asked, outcome),
                    Some(Waits::Own(tell)) => {
                        // Nobody may wait any more.
                        let _ = tell.send(match outcome {
                            Outcome::Result(result) => Ok(result.to_owned()),
                            Outcome::Error(error) => Err(error.to_owned()),
                        });
                    }
                    // Late: who asked has cancelled, or is gone.
                    None => {}
                }
            }
            Frame::Request { id, method, .. } => {
                if let Some(own) = self.asked_by_server(id, &method, line) {
                    self.send(own).await;
                }
            }
            Frame::Notification { method, params } => self.noted_by_server(&method, params, line),
        }
    }

    /// A question of the server goes to its only caller. The answer of ours, where there is none.
    fn asked_by_server(&self, id: &str, method: &str, line: &[u8]) -> Option<String> {
        if method == "ping" {
            return Some(answer(id, Outcome::Result("{}")));
        }
        let mut inner = self.inner();
        let only = if self.shared { None } else { inner.only() };
        let room = inner.asked.len() < MAX_ASKED && !inner.asked.contains_key(id);
        match only.filter(|_| room) {
            Some((caller, out)) => {
                inner.asked.insert(id.to_owned(), caller);
                out.send(String::from_utf8_lossy(line).into_owned());
                None
            }
            None => Some(failure(id, METHOD_NOT_FOUND, "nobody here can answer that")),
        }
    }

    fn noted_by_server(&self, method: &str, params: Option<&str>, line: &[u8]) {
        let text = || String::from_utf8_lossy(line).into_owned();
        let mut inner = self.inner();
        match method {
            "notifications/progress" => {
                let number = member(params, "progressToken").and_then(|token| token.parse().ok());
                let Some((caller, token)) = number.and_then(|n| inner.ledger.progress(n)) else {
                    return;
                };
                let params = with_member(params, "progressToken", token);
                if let (Some(params), Some(member)) = (params, inner.callers.get(&caller)) {
                    member.caller.out.send(notification(method, Some(&params)));
                }
            }
            "notifications/resources/updated" if self.shared => {
                let Some(uri) = member(params, "uri") else {
                    return;
                };
                for member in inner
                    .callers
                    .values()
                    .filter(|m| m.subscriptions.contains(&uri))
                {
                    member.caller.out.send(text());
                }
            }
            _ if method.ends_with("/list_changed") => {
                if method == "notifications/tools/list_changed" {
                    inner.pages = None;
                }
                for member in inner.callers.values() {
                    member.caller.out.send(text());
                }
            }
            "notifications/cancelled" if !self.shared => {
                let id = member(params, "requestId");
                if let Some(caller) = id.and_then(|id| inner.asked.remove(&id))
                    && let Some(member) = inner.callers.get(&caller)
                {
                    member.caller.out.send(text());
                }
            }
            // Whose it is can't be told where several share.
            _ if self.shared => {}
            _ => {
                if let Some((_, out)) = inner.only() {
                    out.send(text());
                }
            }
        }
    }

    fn deliver(self: &Arc<Self>, asked: Asked, outcome: Outcome<'_>) {
        let caller = {
            let inner = self.inner();
            let Some(member) = inner.callers.get(&asked.caller) else {
                return;
            };
            member.caller.clone()
        };
        match (asked.shape, outcome) {
            (Shape::List { first }, Outcome::Result(result)) if !caller.internal => {
                let result = self.listed(&caller, first, result);
                caller.out.send(answer(&asked.id, Outcome::Result(&result)));
            }
            (Shape::Call { tool, arguments }, Outcome::Result(result))
                if self.may_have_app(&tool, result) =>
            {
                let job = Job {
                    backend: self.clone(),
                    caller,
                    id: asked.id,
                    tool,
                    arguments,
                    result: result.to_owned(),
                };
                match &self.show {
                    Some(show) => show(job),
                    None => job.deliver(None),
                }
            }
            (_, outcome) => caller.out.send(answer(&asked.id, outcome)),
        }
    }

    /// A listing without what is not for the model; its caller's anchor is what it shows.
    fn listed(&self, caller: &Caller, first: bool, result: &str) -> String {
        let Ok(mut listing) = serde_json::from_str::<Value>(result) else {
            return result.to_owned();
        };
        let seen = narrow(&mut listing);
        let whole = first && listing.get("nextCursor").is_none_or(Value::is_null);
        let mut anchor = caller.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.filter(|_| whole) {
            Some(seen) => {
                caller
                    .out
                    .send(Control::Anchor(seen.anchor.to_text()).to_line());
                *anchor = Some(seen.anchor);
                self.inner().pages = Some(seen.pages);
            }
            // What comes in pages is not compared.
            None => *anchor = None,
        }
        listing.to_string()
    }

    /// False only where it is sure that there is none.
    fn may_have_app(&self, tool: &str, result: &str) -> bool {
        let inner = self.inner();
        let declared = inner
            .pages
            .as_ref()
            .is_none_or(|pages| pages.contains(tool));
        declared || result.contains("resourceUri")
    }
}

impl Inner {
    /// The one caller that is not ourselves.
    fn only(&self) -> Option<(CallerId, Outbox)> {
        let mut others = self
            .callers
            .iter()
            .filter(|(_, member)| !member.caller.internal);
        let (id, member) = others.next()?;
        others
            .next()
            .is_none()
            .then(|| (*id, member.caller.out.clone()))
    }
}

impl Job {
    /// Hands the result to its caller, with the marker of its app.
    pub fn deliver(self, app: Option<&str>) {
        let marked = app.and_then(|app| {
            let mut result: Value = serde_json::from_str(&self.result).ok()?;
            super::marker::append(&mut result, app);
            Some(result.to_string())
        });
        let result = marked.as_deref().unwrap_or(&self.result);
        self.caller
            .out
            .send(answer(&self.id, Outcome::Result(result)));
    }
}

fn member_is_absent(params: &str, name: &str) -> bool {
    member(Some(params), name).is_none_or(|value| value == "null")
}
