//! Between the supervisor and every worker: handshake, grants, runs, servers, stopping.

use crate::Body;
use crate::ids::{ConversationId, RunId};
use crate::messages;
use crate::role::Role;
use serde::{Deserialize, Serialize};

/// What a worker is told about the holder of a channel it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The peer's role.
    pub role: Role,
    /// The run that the peer serves, for role `run`.
    pub run: Option<RunScope>,
}

/// The run a channel is bound to. Nothing in a message can widen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunScope {
    /// The run.
    pub run: RunId,
    /// The logical conversation: history and provider session.
    pub conversation: ConversationId,
    /// The physical conversation: reply routing and delivery binding.
    pub delivery: ConversationId,
}

/// Which edge a granted descriptor speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EdgeName {
    /// `edges::store`.
    Store,
    /// `edges::artifact`.
    Artifact,
    /// `edges::egress`.
    Egress,
    /// `edges::app_bridge`.
    AppBridge,
    /// `edges::events`.
    Events,
    /// `edges::continuation`.
    Continuation,
    /// `edges::bench`.
    Bench,
    /// `edges::delivery`.
    Delivery,
}

/// The outcome of one thing that a worker must not be able to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What was tried, e.g. `open:/etc/shadow`.
    pub name: String,
    /// True when the kernel refused it.
    pub refused: bool,
    /// The error or what came back, for people.
    pub detail: String,
}

/// A worker's own account of its confinement, sent when both stages are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// `Seccomp:` of /proc/self/status; 2 is filter mode.
    pub seccomp: u32,
    /// Number of filters stacked.
    pub seccomp_filters: u32,
    /// `NoNewPrivs:`.
    pub no_new_privs: bool,
    /// The Landlock ABI in force; 0 when the domain is missing.
    pub landlock_abi: u32,
    /// Effective user id, as seen inside.
    pub uid: u32,
    /// Effective capabilities; must be 0.
    pub capabilities: u64,
    /// What it tried.
    pub probes: Vec<Probe>,
}

/// What started a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// The channel's name, e.g. `openai`, `terminal`.
    pub source: String,
    /// For people: remote address, job id.
    pub detail: Option<String>,
}

/// The person's message, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnInput {
    /// The new message.
    pub content: Vec<crate::chat::Block>,
    /// Messages that precede it in the caller's transcript; used only while the conversation has
    /// no history of ours.
    #[serde(default)]
    pub preceding: Vec<crate::chat::ChatMessage>,
    /// A system message of the caller, treated as untrusted session guidance.
    #[serde(default)]
    pub guidance: Option<String>,
    /// Model override: must be in the configured chain.
    #[serde(default)]
    pub model: Option<String>,
    /// Effort override.
    #[serde(default)]
    pub effort: Option<String>,
    /// Warnings that the channel wants in the event stream (ignored parameters).
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Files that came with the message, for the run's own folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<InputFile>,
}

/// A file that came with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// A plain file name, ≤ 240 bytes.
    pub name: String,
    /// `type/subtype`.
    pub media_type: String,
    /// Base64 of the bytes.
    pub data: String,
}

/// Largest [`TurnInput`] body in bytes.
pub const MAX_TURN_INPUT: usize = 32 * 1024 * 1024;

/// A wish for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRun {
    /// The logical conversation.
    pub conversation: ConversationId,
    /// The physical conversation.
    pub delivery: ConversationId,
    /// What started it.
    pub trigger: Trigger,
    /// A [`TurnInput`].
    pub input: Body,
}

/// Why a run was not started: a fixed code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// `queue_full`, `shutting_down`, `starting`, `degraded`, `invalid_request`.
    pub code: String,
    /// What to do about it.
    pub message: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Committed.
    Succeeded,
    /// Recorded as failed.
    Failed,
    /// Ended on request.
    Cancelled,
}

messages! {
    /// Supervisor to worker.
    pub enum ToWorker, descriptors 16 {
        /// Answers `Hello`: the version to speak, the settings, named descriptors in packet order
        /// (after the settings' own memfd, if it has one). Once.
        Welcome {
            /// The version that both sides speak from now on.
            version: u16,
            /// [`crate::settings::RoleSettings`] as JSON.
            settings: Body,
            /// Names of the descriptors.
            descriptors: Vec<String>,
        } = 0x0101,
        /// A channel that this worker owns one end of. One descriptor.
        Grant {
            /// Number of the channel, for `Revoke`.
            channel: u64,
            /// The edge spoken on it.
            edge: EdgeName,
            /// Who holds the other end. For an edge where this worker is the requester: the owner.
            peer: Peer,
        } = 0x0102,
        /// The channel's permission is withdrawn; the worker closes its end.
        Revoke {
            /// Number of the channel.
            channel: u64,
        } = 0x0103,
        /// Answer with `Pong` from the loop that does the work.
        Ping {
            /// Echoed.
            seq: u64,
        } = 0x0104,
        /// The one run of a run worker. Descriptors: the input's memfd if any, then one per edge.
        Assign {
            /// The run's scope.
            scope: RunScope,
            /// What started it.
            trigger: Trigger,
            /// Who reads the events: a channel's role, or the supervisor's for `monoctl`.
            reader: Role,
            /// A [`TurnInput`].
            input: Body,
            /// The edges of the descriptors, in order.
            edges: Vec<EdgeName>,
        } = 0x0105,
        /// End the run as cancelled.
        CancelRun {
            /// For the record.
            reason: String,
        } = 0x0106,
        /// Finish what is running, take nothing new.
        Drain = 0x0107,
        /// Stop now.
        Shutdown = 0x0108,
        /// Answers `StartRun`; one descriptor: the event channel.
        RunStarted {
            /// The run.
            run: RunId,
        } = 0x0181,
        /// Answers `StartRun`.
        RunRefused {
            /// Why.
            refusal: Refusal,
        } = 0x0182,
        /// Answers `StartServer`; three descriptors: its stdin, stdout and stderr.
        ServerStarted {
            /// Names the process in `StopServer` and `ServerExited`.
            server: u64,
        } = 0x0183,
        /// Answers `StartServer`.
        ServerFailed {
            /// Why, and what to do.
            message: String,
        } = 0x0184,
        /// A server process ended.
        ServerExited {
            /// Which.
            server: u64,
            /// e.g. `exit status 1`, `signal 9`.
            status: String,
        } = 0x0109,
        /// Answers `StopServer` and `CancelRun`.
        Done = 0x0185,
        /// Answers `Figures`. One descriptor when they are large.
        Figures {
            /// [`crate::figures::Figures`] as JSON.
            body: Body,
        } = 0x0186,
        /// An operator wants something of the console's logins; `Operated` or `NotOperated` answers.
        Operate {
            /// What.
            order: crate::console::Order,
        } = 0x010a,
        /// Answers `Look` and `Act`. One descriptor when it is large.
        Seen {
            /// JSON, as `monoctl` prints it.
            body: Body,
        } = 0x0187,
        /// Answers `Look` and `Act`.
        NotSeen {
            /// Why.
            refusal: Refusal,
        } = 0x0188,
        /// To the app-bridge: somebody of the daemon's own user has connected to the gateway. One
        /// descriptor: the connection.
        Stub {
            /// The process at its other end.
            pid: u32,
            /// When that process was started, in clock ticks since the machine's start.
            started: u64,
        } = 0x010b,
        /// Answers `Room`.
        Room {
            /// Durable bytes that the worker may have from now on; less than it holds only when it was
            /// replaced.
            granted: u64,
        } = 0x0189,
    }
}

messages! {
    /// Worker to supervisor.
    pub enum FromWorker, descriptors 1 {
        /// The first packet. Once.
        Hello {
            /// [`crate::MAGIC`].
            magic: u32,
            /// Oldest version spoken.
            version_min: u16,
            /// Newest version spoken.
            version_max: u16,
            /// The role that this binary implements; must be the one it was started as.
            role: Role,
            /// Build id.
            build: String,
        } = 0x0140,
        /// Both sandbox stages are in force and the probes were refused. Once.
        Ready {
            /// The worker's own account.
            sandbox: SandboxReport,
        } = 0x0141,
        /// The worker can't work; the supervisor restarts or parks it.
        Failed {
            /// For people; no secret.
            message: String,
        } = 0x0142,
        /// Answers `Ping`.
        Pong {
            /// Echoed.
            seq: u64,
        } = 0x0143,
        /// A channel worker wants a run; the continuation worker one without tools, which puts an
        /// answer into words. One descriptor when the input is large.
        StartRun {
            /// The wish.
            start: StartRun,
        } = 0x0144,
        /// Who started a run ends it.
        CancelRun {
            /// Which.
            run: RunId,
            /// For the record.
            reason: String,
        } = 0x0145,
        /// The app-bridge wants a configured stdio server started.
        StartServer {
            /// The configured name.
            name: String,
            /// The run it is for, for servers that get a fresh process for each run.
            run: Option<RunId>,
        } = 0x0146,
        /// The app-bridge ends a server.
        StopServer {
            /// Which.
            server: u64,
        } = 0x0147,
        /// The run's end, after the commit. Once.
        RunDone {
            /// How it ended.
            status: RunStatus,
            /// e.g. `provider_auth`, `cancelled`.
            failure_kind: Option<String>,
        } = 0x0148,
        /// The metrics worker wants to know what is counted.
        Figures = 0x0149,
        /// Answers `Operate`. One descriptor when it is large.
        Operated {
            /// JSON, as [`crate::console::Order`] says.
            body: Body,
        } = 0x014a,
        /// Answers `Operate`.
        NotOperated {
            /// Why.
            refusal: Refusal,
        } = 0x014b,
        /// The console wants to see something for its operator pages.
        Look {
            /// What.
            at: crate::console::Look,
        } = 0x014c,
        /// The app-bridge wants a stdio server started that may claim continuations.
        StartClaimingServer {
            /// The configured name.
            name: String,
            /// The run that it is for; it ends with it.
            run: RunId,
            /// Goes into its environment.
            claim: crate::edges::continuation::Claim,
        } = 0x014d,
        /// The continuation worker's health changed.
        Health {
            /// JSON, as [`crate::edges::continuation::Order::Health`] answers. Inline.
            health: Body,
        } = 0x014e,
        /// An owner of rich replies wants room for durable bytes, or gives some back.
        Room {
            /// What it has, which is not argued about.
            held: u64,
            /// What it would like to have in all.
            wanted: u64,
        } = 0x014f,
        /// An operator does something in the console.
        Act {
            /// What.
            act: crate::console::Act,
        } = 0x0150,
        /// The app-bridge wants a stdio server started that is told of the request it works for.
        StartServerOfRequest {
            /// The configured name.
            name: String,
            /// The run that it is for; it ends with it.
            run: RunId,
            /// Goes into its environment, with what the supervisor knows of the run.
            context: crate::request_context::RequestContext,
            /// If it may claim continuations.
            claim: Option<crate::edges::continuation::Claim>,
        } = 0x0151,
    }
}
