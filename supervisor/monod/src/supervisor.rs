//! The supervisor: the process table and the loop that decides one thing at a time.
//!
//! Nothing in here waits for a worker. Packets to workers are queued, answers come back as inputs.

use crate::admin::Operators;
use crate::admission::{Limits, Queue};
use crate::compose::{self, Places};
use crate::console::Orders;
use crate::counters::{Counters, Reason};
use crate::figures::LastFigures;
use crate::handover::{Left, Luggage};
use crate::input::{Input, ProcessId};
use crate::launch::{LaunchError, Launcher};
use crate::logbook::Logbook;
use crate::memory::Bound;
use crate::process::{Process, Source, State, Streams};
use crate::restart::{Decision, Ending};
use crate::run::Run;
use crate::servers::Server;
use crate::slot::{Occupant, Slot};
use crate::stopping::Stopping;
use crate::systemd;
use crate::upgrade::{Own, Upgrade};
use crate::violations::{Ear, Violations};
use ipc_proto::edges::artifact::Artifact;
use ipc_proto::edges::control::{EdgeName, FromWorker, Peer, SandboxReport, ToWorker};
use ipc_proto::edges::store::Store;
use ipc_proto::settings::RoleSettings;
use ipc_proto::{Body, Client, MAGIC, Role, RunId, VERSION_MAX, VERSION_MIN};
use mono_config::Config;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Idle, confined, never used run workers that wait: a turn then pays one message and no start.
const POOL: usize = 2;
/// From start to `Ready`.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Run workers that start at once: a burst of runs must not turn into a burst of starts.
const STARTING_AT_ONCE: usize = 4;
/// Between heartbeats.
pub(crate) const TICK: Duration = Duration::from_secs(2);
/// A worker that leaves a heartbeat unanswered this long is ended.
const HUNG_AFTER: Duration = Duration::from_secs(30);
/// The last lines of a process that has ended may take this long.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// A run worker may live this long after it reported its end.
const LINGER: Duration = Duration::from_secs(5);
/// What the supervisor is started with.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) reports: Vec<mono_config::FieldReport>,
    /// The configuration's file, read again by a reload.
    pub(crate) file: PathBuf,
    pub(crate) places: Places,
    pub(crate) launcher: Launcher,
    pub(crate) listeners: BTreeMap<Role, TcpListener>,
    pub(crate) own: Own,
}

/// The daemon's state.
pub(crate) struct Supervisor {
    pub(crate) config: Config,
    pub(crate) reports: Vec<mono_config::FieldReport>,
    pub(crate) file: PathBuf,
    pub(crate) places: Places,
    pub(crate) launcher: Launcher,
    pub(crate) listeners: BTreeMap<Role, TcpListener>,
    pub(crate) tell: mpsc::UnboundedSender<Input>,
    pub(crate) processes: HashMap<ProcessId, Process>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) runs: HashMap<RunId, Run>,
    pub(crate) queue: Queue,
    pub(crate) servers: HashMap<u64, Server>,
    pub(crate) store: Option<Client<Store>>,
    pub(crate) artifact: Option<Client<Artifact>>,
    pub(crate) violations: u64,
    pub(crate) counters: Counters,
    pub(crate) last_figures: LastFigures,
    pub(crate) forbidden: Violations,
    pub(crate) logbook: Logbook,
    pub(crate) orders: Orders,
    /// systemd knows that the daemon is ready.
    pub(crate) announced: bool,
    pub(crate) own: Own,
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) started: Instant,
    pub(crate) pool_slot: Slot,
    pub(crate) next_process: u64,
    pub(crate) next_channel: u64,
    pub(crate) next_server: u64,
    pub(crate) next_ping: u64,
    /// When the loop looks again for what is due.
    wake: Option<Instant>,
    pub(crate) stopping: Option<Stopping>,
    /// Since when the look at the memory of runs and servers is under way, or the next one awaited.
    pub(crate) looking: Option<Instant>,
}

impl Supervisor {
    pub(crate) fn new(parts: Parts, tell: mpsc::UnboundedSender<Input>) -> Self {
        let mut roles = vec![Role::Store, Role::Artifact, Role::Egress, Role::AppBridge];
        if parts.config.openai_api.enabled {
            roles.push(Role::ChannelOpenai);
        }
        if parts.config.console.enabled {
            roles.push(Role::ChannelConsole);
        }
        if parts.config.webhook.enabled {
            roles.push(Role::ChannelWebhook);
        }
        if parts.config.metrics.enabled {
            roles.push(Role::Metrics);
        }
        let limits = limits(&parts.config);
        Self {
            config: parts.config,
            reports: parts.reports,
            file: parts.file,
            places: parts.places,
            launcher: parts.launcher,
            listeners: parts.listeners,
            tell,
            processes: HashMap::new(),
            slots: roles.into_iter().map(Slot::new).collect(),
            runs: HashMap::new(),
            queue: Queue::new(limits),
            servers: HashMap::new(),
            store: None,
            artifact: None,
            violations: 0,
            counters: Counters::default(),
            last_figures: LastFigures::default(),
            forbidden: Violations::default(),
            logbook: Logbook::default(),
            orders: Orders::default(),
            announced: false,
            own: parts.own,
            upgrade: None,
            started: Instant::now(),
            pool_slot: Slot::new(Role::Run),
            next_process: 1,
            next_channel: 1,
            next_server: 1,
            next_ping: 1,
            wake: None,
            stopping: None,
            looking: None,
        }
    }

    /// Runs until the daemon is to end and every process has ended, or until another program is to
    /// go on; then with what that one needs.
    pub(crate) async fn serve(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
        operators: &Operators,
    ) -> Option<(Left, Luggage)> {
        self.fill();
        while let Some(input) = inputs.recv().await {
            self.decide(input);
            if self.upgrade_is_due() {
                return Some(self.leave(inputs, operators).await);
            }
            if self.stopping.is_some() && self.processes.is_empty() {
                break;
            }
        }
        self.see_off(inputs, operators).await;
        None
    }

    pub(crate) fn decide(&mut self, input: Input) {
        match input {
            Input::Packet {
                process,
                request,
                message,
                fds,
            } => {
                self.packet(process, request, message, fds);
            }
            Input::ChannelEnded { process, error } => self.channel_ended(process, error),
            Input::ChildEnded => self.reap(),
            Input::Line { source, text } => self.line(source, &text),
            Input::Forbidden { source, event } => self.forbidden(source, event),
            Input::Due => {
                self.fill();
                self.press_stop(Instant::now());
            }
            Input::Asked {
                ask,
                fds,
                responder,
            } => self.asked(ask, fds, responder),
            Input::Checked { result, responder } => self.checked(result, responder),
            Input::Interrupted { run } => self.release(&run),
            Input::Looked {
                process,
                request,
                result,
            } => self.looked(process, request, result),
            Input::Tick => self.tick(),
            Input::LookAtMemory { since } => self.look_again(since),
            Input::Memory { since, above } => self.memory_seen(since, above),
            // Its outcome is in the log.
            Input::Reload => drop(self.reload()),
            Input::Stop => self.stop(),
        }
    }

    /// True while no new run is taken.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    // ----- starting -----

    /// Starts what is due: always-on roles and the pool of run workers.
    pub(crate) fn fill(&mut self) {
        if self.is_stopping() || self.is_leaving() {
            return;
        }
        let now = Instant::now();
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if let Occupant::Waiting(at) = slot.occupant {
                if at > now {
                    self.wake_at(at);
                    continue;
                }
                let role = slot.role;
                match self.start(role) {
                    Ok(id) => self.slots[index].occupant = Occupant::Filled(id),
                    Err(e) => {
                        tracing::error!(role = %role, "can't start: {e}");
                        self.slots[index].last_words = e.to_string();
                        self.counters.restart(role, Reason::NotStarted);
                        let decision = self.slots[index].vacate(Ending::Unfit, now, jitter());
                        self.after(role, decision);
                    }
                }
            }
        }
        self.fill_pool();
    }

    pub(crate) fn fill_pool(&mut self) {
        if self.is_stopping() || self.is_leaving() {
            return;
        }
        let now = Instant::now();
        match self.pool_slot.occupant {
            Occupant::Waiting(at) if at <= now => {}
            Occupant::Waiting(at) => return self.wake_at(at),
            Occupant::Parked => return,
            Occupant::Filled(_) => {}
        }
        loop {
            let idle = self.idle_run_workers(false).count();
            let starting = idle - self.idle_run_workers(true).count();
            if idle >= POOL + self.runs_without_process() || starting >= STARTING_AT_ONCE {
                return;
            }
            match self.start(Role::Run) {
                Ok(_) => {}
                Err(e) => {
                    tracing::error!(role = "run", "can't start: {e}");
                    self.pool_slot.last_words = e.to_string();
                    self.counters.restart(Role::Run, Reason::NotStarted);
                    let decision = self.pool_slot.vacate(Ending::Unfit, now, jitter());
                    return self.after(Role::Run, decision);
                }
            }
        }
    }

    /// Looks again at `at` for what is due. Each look asks for the next one, so one that comes
    /// earlier already is enough: a timer for every asker would multiply with every look.
    pub(crate) fn wake_at(&mut self, at: Instant) {
        let early = |armed: Instant| armed > Instant::now() && armed <= at;
        if self.wake.is_some_and(early) {
            return;
        }
        self.wake = Some(at);
        let tell = self.tell.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let _ = tell.send(Input::Due);
        });
    }

    fn after(&mut self, role: Role, decision: Decision) {
        match decision {
            Decision::After(delay) => {
                tracing::info!(role = %role, "starts again in {} ms", delay.as_millis());
                self.wake_at(Instant::now() + delay);
            }
            Decision::Park => {
                tracing::error!(role = %role, "parked; `monoctl worker unpark {role}` starts it again");
            }
        }
    }

    pub(crate) fn start(&mut self, role: Role) -> Result<ProcessId, LaunchError> {
        let id = self.next_process_id();
        let scratch = match role {
            Role::Run => Some(self.launcher.make_scratch(&self.places.scratch, id)?),
            _ => None,
        };
        let started = self.launcher.worker(role, id, scratch.as_deref())?;
        let mut process = Process::new(id, role, started.child, scratch);
        process.memory = started.memory;
        let streams = Streams {
            control: Some(started.control),
            stderr: Some(started.stderr),
            begun: vec![],
        };
        process.hear(Ear::awaiting(started.violations), &self.tell);
        process.follow(streams, &self.tell)?;
        tracing::debug!(role = %role, pid = process.pid, "started");
        self.processes.insert(id, process);
        Ok(id)
    }

    pub(crate) fn next_process_id(&mut self) -> ProcessId {
        let id = ProcessId(self.next_process);
        self.next_process += 1;
        id
    }

    /// Run workers without a run; only ready ones when `ready`.
    pub(crate) fn idle_run_workers(&self, ready: bool) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(move |p| {
            p.role == Role::Run
                && p.run.is_none()
                && !p.dismissed
                && matches!(p.state, State::Starting | State::Serving)
                && (!ready || p.state == State::Serving)
        })
    }

    // ----- what workers say -----

    fn packet(&mut self, id: ProcessId, request: u64, message: FromWorker, fds: VecDeque<OwnedFd>) {
        let Some(process) = self.processes.get(&id) else {
            return;
        };
        let last_words = matches!(
            message,
            FromWorker::RunDone { .. } | FromWorker::Failed { .. }
        );
        if process.state == State::Ending && !last_words {
            return;
        }
        match message {
            FromWorker::Hello {
                magic,
                version_min,
                version_max,
                role,
                build,
            } => {
                self.hello(id, magic, (version_min, version_max), role, &build);
            }
            FromWorker::Ready { sandbox } => self.ready(id, sandbox),
            FromWorker::Failed { message } => {
                let role = process.role;
                tracing::error!(role = %role, "can't work: {}", printable(&message));
                if let Some(process) = self.processes.get_mut(&id) {
                    process.last_line = printable(&message);
                    process.unfit = true;
                }
                self.end(id);
            }
            FromWorker::Pong { seq } => {
                if let Some(process) = self.processes.get_mut(&id)
                    && process.ping.is_some_and(|(sent, _)| sent == seq)
                {
                    let sent = process.ping.take().map(|(_, sent)| sent);
                    let after = sent.map(|sent| sent.elapsed()).unwrap_or_default();
                    self.counters.heartbeat(process.role, after);
                }
            }
            FromWorker::StartRun { start } => self.start_run(id, request, start, fds),
            FromWorker::CancelRun { run, reason } => {
                self.cancel_from_channel(id, request, &run, &reason)
            }
            FromWorker::StartServer { name, run } => self.start_server(id, request, &name, run),
            FromWorker::StopServer { server } => self.stop_server(id, request, server),
            FromWorker::RunDone {
                status,
                failure_kind,
            } => self.run_done(id, status, failure_kind),
            FromWorker::Figures => self.tell_figures(id, request),
            FromWorker::Operated { body } => self.operated(id, request, Ok(body), fds),
            FromWorker::NotOperated { refusal } => self.operated(id, request, Err(refusal), fds),
            FromWorker::Look { at } => self.look(id, request, at),
        }
    }

    fn hello(&mut self, id: ProcessId, magic: u32, theirs: (u16, u16), role: Role, build: &str) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let version = ipc_proto::common_version((VERSION_MIN, VERSION_MAX), theirs);
        let refusal = match (magic == MAGIC, role == process.role, version) {
            (true, true, Some(version)) => {
                process.protocol = version;
                None
            }
            (false, ..) => Some("it doesn't speak this protocol".to_owned()),
            (_, false, _) => Some(format!("it says it is {role}")),
            (.., None) => Some(format!(
                "it speaks versions {} to {}, this supervisor {VERSION_MIN} to {VERSION_MAX}",
                theirs.0, theirs.1
            )),
        };
        let role = process.role;
        tracing::debug!(role = %role, build = %printable(build), "hello");
        if let Some(reason) = refusal {
            process.last_line = format!("refused: {reason}");
            process.unfit = true;
            tracing::error!(role = %role, "refused: {reason}");
            return self.end(id);
        }
        if let Err(e) = self.welcome(id, role) {
            tracing::error!(role = %role, "can't be set up: {e}");
            if let Some(process) = self.processes.get_mut(&id) {
                process.last_line = e;
                process.unfit = true;
            }
            self.end(id);
        }
    }

    fn welcome(&mut self, id: ProcessId, role: Role) -> Result<(), String> {
        let listener = match self.listeners.get(&role) {
            Some(listener) => Some(listener.try_clone().map_err(|e| e.to_string())?.into()),
            None => None,
        };
        let (mut settings, named) = compose::compose(&self.config, &self.places, role, listener)
            .map_err(|e| e.to_string())?;
        if let RoleSettings::Run(run) = &mut settings
            && let Some(scratch) = self.processes.get(&id).and_then(|p| p.scratch.as_deref())
        {
            run.scratch = self.launcher.scratch_inside(scratch);
        }
        let (settings, memfd) = Body::pack_json(&settings).map_err(|e| e.to_string())?;
        let (descriptors, fds): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let fds = memfd.into_iter().chain(fds).collect();
        let Some(process) = self.processes.get(&id) else {
            return Ok(());
        };
        let welcome = ToWorker::Welcome {
            version: process.protocol,
            settings,
            descriptors,
        };
        if process.send(0, welcome, fds) {
            Ok(())
        } else {
            Err("its queue is full".into())
        }
    }

    fn ready(&mut self, id: ProcessId, sandbox: SandboxReport) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let role = process.role;
        if let Err(weakness) = self.launcher.accept(role, process.pid, &sandbox) {
            tracing::error!(role = %role, "its sandbox is weaker than the policy: {weakness}");
            process.last_line = format!("sandbox: {weakness}");
            process.unfit = true;
            return self.end(id);
        }
        process.sandbox = Some(sandbox);
        process.state = State::Serving;
        self.counters.ready(role, process.since.elapsed());
        tracing::debug!(role = %role, pid = process.pid, ms = process.since.elapsed().as_millis() as u64, "ready");
        match role {
            Role::Store => {
                self.store = self.grant_client(id, EdgeName::Store, Role::Store);
            }
            Role::Artifact => {
                self.artifact = self.grant_client(id, EdgeName::Artifact, Role::Artifact);
            }
            _ => {}
        }
        self.take_over(id);
        self.link(role);
        if !self.announced
            && self
                .slots
                .iter()
                .all(|slot| self.serving(slot.role).is_some())
        {
            self.announced = true;
            systemd::ready(self.slots.len());
        }
        self.dispatch();
    }

    pub(crate) fn grant_client<E: ipc_proto::Edge>(
        &mut self,
        owner: ProcessId,
        edge: EdgeName,
        role: Role,
    ) -> Option<Client<E>> {
        let ours = self.grant(
            owner,
            edge,
            Peer {
                role: Role::Monod,
                run: None,
            },
        )?;
        Client::new(ours, role).ok()
    }

    /// Makes a pair, gives the owner its end with the peer's identity, and returns the other end.
    pub(crate) fn grant(
        &mut self,
        owner: ProcessId,
        edge: EdgeName,
        peer: Peer,
    ) -> Option<OwnedFd> {
        let process = self.processes.get(&owner)?;
        let (theirs, ours) = ipc_proto::link::pair()
            .map_err(|e| tracing::error!("no socket pair: {e}"))
            .ok()?;
        let channel = self.next_channel;
        self.next_channel += 1;
        process
            .send(
                0,
                ToWorker::Grant {
                    channel,
                    edge,
                    peer,
                },
                vec![theirs],
            )
            .then_some(ours)
    }

    /// The serving process of an always-on role.
    pub(crate) fn serving(&self, role: Role) -> Option<ProcessId> {
        let id = self.slots.iter().find(|s| s.role == role)?.process()?;
        (self.processes.get(&id)?.state == State::Serving).then_some(id)
    }

    // ----- ends -----

    fn channel_ended(&mut self, id: ProcessId, error: Option<String>) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        if process.exit.is_some() {
            return self.reap();
        }
        let broken = error.is_some();
        if let Some(error) = error {
            self.violations += 1;
            self.counters.violation(process.role);
            self.counters.blame(id, Reason::Violation);
            tracing::error!(role = %process.role, pid = process.pid, "{}", printable(&error));
            process.last_line = printable(&error);
        }
        match process.state {
            // A run worker that reported its end closes its channel on its way out.
            State::Ending => {}
            State::Draining if !broken => self.expect_exit(id),
            _ => self.end(id),
        }
    }

    /// Ends a process that is no longer wanted; its end counts against nobody.
    pub(crate) fn dismiss(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.dismissed = true;
            process.kill();
        }
    }

    /// Ends a process at once.
    pub(crate) fn end(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.state = if process.state == State::Starting {
                State::Starting
            } else {
                State::Ending
            };
            process.kill();
        }
    }

    /// Takes every process that has ended. Signals coalesce, so all of them are looked at. What one
    /// said last is heard first: it is often the reason.
    pub(crate) fn reap(&mut self) {
        let now = Instant::now();
        let mut late = None;
        let mut ended = Vec::new();
        for process in self.processes.values_mut() {
            if process.exit.is_none()
                && let Some(status) = process.ended()
            {
                process.exit = Some((process.state, status));
                process.ended_at = now;
                process.state = State::Ending;
            }
            if process.exit.is_some() {
                let until = process.ended_at + HEARD_WITHIN;
                if process.is_talking() && now < until {
                    late = late.max(Some(until));
                } else {
                    ended.push(process.id);
                }
            }
        }
        for id in ended {
            self.exited(id);
        }
        if let Some(until) = late {
            self.reap_at(until);
        }
        self.press_stop(now);
    }

    /// A descendant of an ended process may hold its standard error, e.g. where it has no process
    /// namespace of its own.
    fn reap_at(&self, at: Instant) {
        let tell = self.tell.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let _ = tell.send(Input::ChildEnded);
        });
    }

    fn exited(&mut self, id: ProcessId) {
        let Some(mut process) = self.processes.remove(&id) else {
            return;
        };
        let Some((state, status)) = process.exit.take() else {
            return;
        };
        let status = status.as_str();
        process.state = state;
        let role = process.role;
        if let Some(scratch) = process.scratch.clone() {
            crate::launch::remove_scratch(scratch, id);
        }
        let over = process.memory.take().filter(Bound::ended);
        if over.is_some() {
            self.counters.blame(id, Reason::Memory);
        } else if process.forbidden_call.is_some() {
            self.counters.blame(id, Reason::Sandbox);
        }
        let reason = self.counters.verdict(id, process.unfit, status);
        if role == Role::McpServer {
            return self.server_exited(id, status, over.as_ref());
        }
        if process.dismissed {
            return self.fill_pool();
        }
        let ending = match (process.unfit, process.state) {
            (true, _) => Ending::Unfit,
            (_, State::Starting) => Ending::BeforeReady,
            _ => Ending::InService(process.since.elapsed()),
        };
        if role == Role::Run {
            process.memory = over;
            return self.run_worker_exited(process, status, ending, reason);
        }
        if self.is_stopping() {
            return;
        }
        if state == State::Draining {
            tracing::info!(role = %role, pid = process.pid, "drained: {status}");
        } else {
            tracing::warn!(role = %role, pid = process.pid, "{status}: {}", process.last_line);
        }
        let current = self.slots.iter().any(|s| s.process() == Some(id));
        match role {
            Role::Store if current => self.store = None,
            Role::Artifact if current => self.artifact = None,
            Role::AppBridge => self.end_servers_of(id),
            _ => {}
        }
        if let Some(slot) = self.slots.iter_mut().find(|s| s.successor == Some(id)) {
            slot.successor = None;
            tracing::error!(role = %role, "the new worker can't serve; the old one stays");
        }
        if let Some(slot) = self.slots.iter_mut().find(|s| s.process() == Some(id)) {
            if slot.outdated && state == State::Ending {
                // It made room for its successor of another program.
                slot.outdated = false;
                slot.start_now();
                self.counters.restart(role, Reason::Reload);
                return self.fill();
            }
            let drained = slot.is_draining();
            slot.restarts += u32::from(!drained);
            if !drained {
                self.counters.restart(role, reason);
            }
            slot.last_words = if drained {
                format!("drained, {status}")
            } else {
                format!("{status}: {}", process.last_line)
            };
            let decision = slot.vacate(ending, Instant::now(), jitter());
            self.after(role, decision);
        }
    }

    fn run_worker_exited(
        &mut self,
        process: Process,
        status: &str,
        ending: Ending,
        reason: Reason,
    ) {
        if let Some(run) = process.run {
            if self.is_at_work(&run) {
                self.counters.restart(Role::Run, reason);
            }
            let over = process.memory.as_ref();
            self.run_process_exited(&run, status, &process.last_line, over);
        } else if !self.is_stopping() {
            tracing::warn!(
                role = "run",
                pid = process.pid,
                "{status}: {}",
                process.last_line
            );
            self.pool_slot.restarts += 1;
            self.counters.restart(Role::Run, reason);
            self.pool_slot.last_words = format!("{status}: {}", process.last_line);
            let decision = self.pool_slot.vacate(ending, Instant::now(), jitter());
            return self.after(Role::Run, decision);
        }
        self.fill_pool();
    }

    fn line(&mut self, source: Source, text: &str) {
        let Source { process, role, pid } = source;
        let process = self.processes.get_mut(&process);
        let text = printable(text);
        let run = process
            .as_ref()
            .and_then(|p| Some(p.run.as_ref()?.as_str()));
        tracing::info!(role = %role, pid, run = run.unwrap_or_default(), "{text}");
        self.logbook.enter((role, pid), run, &text);
        self.counters.line(role);
        if let Some(process) = process {
            process.last_line = text;
        }
    }

    // ----- time -----

    fn tick(&mut self) {
        let now = Instant::now();
        let mut late = Vec::new();
        for process in self.processes.values_mut() {
            if process.role == Role::McpServer {
                continue;
            }
            let age = now.duration_since(process.since);
            match process.state {
                State::Starting if age > READY_WITHIN => {
                    late.push((process.id, Reason::Late, "was not ready in time"))
                }
                State::Ending if age > LINGER => process.kill(),
                State::Serving | State::Draining => match process.ping {
                    Some((_, sent)) if now.duration_since(sent) > HUNG_AFTER => {
                        late.push((process.id, Reason::Hung, "did not answer its heartbeat"));
                    }
                    Some(_) => {}
                    None => {
                        let seq = self.next_ping;
                        self.next_ping += 1;
                        if process.send(0, ToWorker::Ping { seq }, vec![]) {
                            process.ping = Some((seq, now));
                        } else {
                            late.push((process.id, Reason::Hung, "let its packets pile up"));
                        }
                    }
                },
                _ => {}
            }
        }
        for (id, reason, words) in late {
            self.counters.blame(id, reason);
            if let Some(process) = self.processes.get_mut(&id) {
                process.last_line = words.to_owned();
                tracing::error!(role = %process.role, pid = process.pid, "{words}");
            }
            self.end(id);
        }
        self.expire_runs(now);
        self.orders.expire(now);
        self.watch_memory();
        self.fill();
        self.press_stop(now);
        // Last, so that a loop which no longer does its work doesn't say that it lives.
        systemd::alive();
    }

    /// Marks a run worker as finishing: it exits by itself, or is ended after a while.
    pub(crate) fn expect_exit(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.state = State::Ending;
            process.since = Instant::now();
        }
    }

    /// The slot of the run workers' pool, for status.
    pub(crate) fn pool(&self) -> &Slot {
        &self.pool_slot
    }
}

/// The bounds of the queue.
pub(crate) fn limits(config: &Config) -> Limits {
    let bound = |n: Option<usize>| n.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Limits {
        concurrent: bound(config.concurrency.max_concurrent_runs),
        pending: bound(config.concurrency.max_pending_runs),
    }
}

/// Spreads restarts: a number from 0 to 1, no secret.
fn jitter() -> f64 {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.subsec_nanos());
    f64::from(nanos % 1000) / 1000.0
}

/// A worker's text for a log line: no control characters, at most 2,000 characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .take(2_000)
        .collect()
}
