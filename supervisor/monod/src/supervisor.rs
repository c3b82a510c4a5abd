//! The supervisor: the process table and the loop that decides one thing at a time.
//!
//! Nothing in here waits for a worker. Packets to workers are queued, answers come back as inputs.

use crate::admin::Operators;
use crate::admission::{Limits, Queue};
use crate::capacity::wants_run_worker;
use crate::compose::Places;
use crate::console::Orders;
use crate::counters::{Counters, Reason};
use crate::figures::LastFigures;
use crate::handover::{Left, Luggage};
use crate::input::{Input, ProcessId};
use crate::launch::{LaunchError, Launcher, Prepared};
use crate::logbook::Logbook;
use crate::owner::Owners;
use crate::ownership::unshared;
use crate::process::{Process, Source, State, Streams};
use crate::request::Leftover;
use crate::restart::{Decision, Ending};
use crate::room::Rooms;
use crate::run::Run;
use crate::servers::{Server, Wish};
use crate::slot::{Occupant, Slot};
use crate::stopping::Stopping;
use crate::systemd;
use crate::upgrade::{Own, Upgrade};
use crate::violations::{Ear, Violations};
use crate::watchdog::{self, Finding};
use ipc_proto::edges::control::{FromWorker, ToWorker};
use ipc_proto::{Role, RunId};
use mono_config::Config;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;
use tokio::sync::mpsc;

/// What the supervisor is started with.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) reports: Vec<mono_config::FieldReport>,
    /// The configuration's file, read again by a reload.
    pub(crate) file: PathBuf,
    pub(crate) places: Places,
    pub(crate) launcher: Launcher,
    pub(crate) listeners: BTreeMap<Role, TcpListener>,
    /// The gateway's socket.
    pub(crate) gateway: Option<OwnedFd>,
    pub(crate) own: Own,
}

/// The daemon's state.
pub(crate) struct Supervisor {
    pub(crate) config: Config,
    pub(crate) reports: Vec<mono_config::FieldReport>,
    pub(crate) file: PathBuf,
    pub(crate) places: Places,
    pub(crate) launcher: Launcher,
    /// What the next run worker starts with.
    ahead: Option<Prepared>,
    pub(crate) listeners: BTreeMap<Role, TcpListener>,
    pub(crate) gateway: Option<OwnedFd>,
    pub(crate) tell: mpsc::UnboundedSender<Input>,
    pub(crate) processes: HashMap<ProcessId, Process>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) runs: HashMap<RunId, Run>,
    pub(crate) queue: Queue,
    pub(crate) servers: HashMap<u64, Server>,
    /// Scratch folders of runs whose servers have not ended.
    pub(crate) leftovers: Vec<Leftover>,
    pub(crate) owners: Owners,
    /// What the continuation worker said last.
    pub(crate) health: Option<serde_json::Value>,
    pub(crate) violations: u64,
    pub(crate) counters: Counters,
    pub(crate) last_figures: LastFigures,
    pub(crate) forbidden: Violations,
    pub(crate) logbook: Logbook,
    pub(crate) orders: Orders,
    pub(crate) rooms: Rooms,
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
        if parts.config.continuations.enabled {
            roles.push(Role::Continuation);
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
            ahead: None,
            listeners: parts.listeners,
            gateway: parts.gateway,
            tell,
            processes: HashMap::new(),
            slots: roles.into_iter().map(Slot::new).collect(),
            runs: HashMap::new(),
            queue: Queue::new(limits),
            servers: HashMap::new(),
            leftovers: Vec::new(),
            owners: Owners::default(),
            health: None,
            violations: 0,
            counters: Counters::default(),
            last_figures: LastFigures::default(),
            forbidden: Violations::default(),
            logbook: Logbook::default(),
            orders: Orders::default(),
            rooms: Rooms::default(),
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
                ..
            } => {
                self.packet(process, request, message, fds);
            }
            Input::ChannelEnded { process, error } => self.channel_ended(process, error),
            Input::ChildEnded => self.reap(),
            Input::LinesEnded { process } => self.lines_ended(process),
            Input::Line { source, text, .. } => self.line(source, &text),
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
            Input::Arrived(arrival) => self.arrived(arrival),
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
            if !wants_run_worker(idle, starting, self.runs_without_process()) {
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

    pub(crate) fn after(&mut self, role: Role, decision: Decision) {
        match decision {
            Decision::After(delay) => {
                tracing::info!(role = %role, "starts again in {} ms", delay.as_millis());
                self.wake_at(Instant::now() + delay);
            }
            Decision::Park => {
                tracing::error!(role = %role, "parked; `monoctl worker unpark {role}` starts it again");
                self.announce();
            }
        }
    }

    pub(crate) fn start(&mut self, role: Role) -> Result<ProcessId, LaunchError> {
        let ready = self.ahead.take_if(|_| role == Role::Run);
        let prepared = match ready.filter(Prepared::is_whole) {
            Some(prepared) => prepared,
            None => self.prepare(role)?,
        };
        let started = match self.launcher.worker(&prepared) {
            Ok(started) => started,
            Err(e) => {
                prepared.discard();
                return Err(e);
            }
        };
        let (id, made) = (prepared.id, prepared.folders);
        let (scratch, folders) = made.map(|made| (made.scratch, made.shared)).unzip();
        let mut process = Process::new(id, role, started.child, scratch);
        process.folders = folders;
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

    fn prepare(&mut self, role: Role) -> Result<Prepared, LaunchError> {
        let id = self.next_process_id(role);
        self.launcher.prepare(role, id)
    }

    /// Makes folders and profile of the run worker that starts next, while nobody waits for them.
    pub(crate) fn prepare_ahead(&mut self) {
        if self.ahead.is_some() || self.is_stopping() || self.is_leaving() {
            return;
        }
        match self.prepare(Role::Run) {
            Ok(prepared) => self.ahead = Some(prepared),
            // If that lasts, the next start says so.
            Err(e) => tracing::debug!(role = "run", "nothing is prepared for the next one: {e}"),
        }
    }

    /// Nothing is to start with what was made ahead.
    pub(crate) fn discard_ahead(&mut self) {
        if let Some(prepared) = self.ahead.take() {
            prepared.discard();
        }
    }

    pub(crate) fn next_process_id(&mut self, role: Role) -> ProcessId {
        let living = self.processes.values().filter(|p| p.role == role);
        let living = living.map(|p| p.id);
        let ahead = self.ahead.iter().map(|prepared| prepared.id);
        let id = unshared(self.next_process, living.chain(ahead));
        self.next_process = id.0 + 1;
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
        if (process.state == State::Ending || process.ending) && !last_words {
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
            FromWorker::StartServer { name, run } => {
                let wish = Wish {
                    name: &name,
                    run: run.as_ref(),
                    context: None,
                    claim: None,
                };
                self.start_server(id, request, &wish);
            }
            FromWorker::StartClaimingServer { name, run, claim } => {
                let wish = Wish {
                    name: &name,
                    run: Some(&run),
                    context: None,
                    claim: Some(&claim),
                };
                self.start_server(id, request, &wish);
            }
            FromWorker::StartServerOfRequest {
                name,
                run,
                context,
                claim,
            } => {
                let wish = Wish {
                    name: &name,
                    run: Some(&run),
                    context: Some(&context),
                    claim: claim.as_ref(),
                };
                self.start_server(id, request, &wish);
            }
            FromWorker::Health { health } => self.continuation_health(id, health, fds),
            FromWorker::StopServer { server } => self.stop_server(id, request, server),
            FromWorker::RunDone {
                status,
                failure_kind,
            } => self.run_done(id, status, failure_kind),
            FromWorker::Figures => self.tell_figures(id, request),
            FromWorker::Operated { body } => self.operated(id, request, Ok(body), fds),
            FromWorker::NotOperated { refusal } => self.operated(id, request, Err(refusal), fds),
            FromWorker::Look { at } => self.look(id, request, at),
            FromWorker::Room { held, wanted } => self.grant_room(id, request, held, wanted),
            FromWorker::Act { act } => self.act(id, request, act),
        }
    }

    /// The serving process of an always-on role.
    pub(crate) fn serving(&self, role: Role) -> Option<ProcessId> {
        let id = self.slots.iter().find(|s| s.role == role)?.process()?;
        (self.processes.get(&id)?.state == State::Serving).then_some(id)
    }

    fn line(&mut self, source: Source, text: &str) {
        let Source { process, role, pid } = source;
        let process = self.processes.get_mut(&process);
        let text = printable(text);
        let run = process
            .as_ref()
            .and_then(|p| Some(p.run.as_ref()?.as_str()));
        crate::relay::relay(role, pid, run, &text);
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
            let asked = process.ping.map(|(_, sent)| sent);
            match watchdog::find(process.state, process.since, asked, now) {
                Finding::Waits => {}
                Finding::Late => late.push((process.id, Reason::Late, "was not ready in time")),
                Finding::Lingers => process.kill(),
                Finding::Hung => {
                    late.push((process.id, Reason::Hung, "did not answer its heartbeat"));
                }
                Finding::Answered => {
                    let seq = self.next_ping;
                    self.next_ping += 1;
                    if process.send(0, ToWorker::Ping { seq }, vec![]) {
                        process.ping = Some((seq, now));
                    } else {
                        late.push((process.id, Reason::Hung, "let its packets pile up"));
                    }
                }
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
        self.end_stubborn_runs(now);
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
pub(crate) fn jitter() -> f64 {
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
