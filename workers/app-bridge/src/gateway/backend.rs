//! One process of a server, and everybody who speaks with it.
//!
//! Requests get numbers of ours, so that several callers can use the same ids; answers, progress
//! and cancellation find their way back by them. What can't be attributed to a caller is for the
//! only one that there is, or for nobody (spec s2; facts 6.5).

mod process;
mod traffic;

use super::GatewayLimits;
use super::job::Show;
use super::ledger::{CallerId, Ledger, Told};
use super::outbox::Outbox;
use super::params::WANTS_CALLER;
use super::surface::{Anchor, Seen, narrow};
use crate::connection::Connection;
use crate::ends::End;
use crate::pipes::{LastLine, drain};
use crate::servers::Started;
use ipc_proto::ConversationId;
use ipc_proto::settings::McpServerSettings;
use mono_mcp_stub::frame::{INTERNAL, failure, notification, request};
use process::Queued;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Messages that wait for a server.
const QUEUE: usize = 256;
/// How long a server may take to hear that a caller is gone.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

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
    /// Tools of the latest listing that are not for a model.
    hidden: BTreeSet<String>,
    /// Why it ended.
    epitaph: Option<String>,
    unused_since: Option<Instant>,
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
        tokio::spawn(this.clone().watch());
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
        let telling = async {
            for number in &numbers {
                let params = format!(r#"{{"requestId":{number},"reason":"the client is gone"}}"#);
                self.send(notification("notifications/cancelled", Some(&params)))
                    .await;
            }
            for id in declined {
                self.send(failure(&id, INTERNAL, "the client is gone"))
                    .await;
            }
        };
        // Who is gone does not wait for a server that reads nothing.
        let _ = tokio::time::timeout(TOLD_WITHIN, telling).await;
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
        let asking = async {
            self.send(request(&number.to_string(), method, params))
                .await;
            told.await
        };
        let told = tokio::select! {
            biased;
            told = asking => told,
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
        let Some(Seen {
            anchor,
            pages,
            hidden,
        }) = seen
        else {
            return Ok(None);
        };
        let mut inner = self.inner();
        (inner.pages, inner.hidden) = (Some(pages), hidden);
        drop(inner);
        Ok(Some(surface.insert(anchor).clone()))
    }
}
