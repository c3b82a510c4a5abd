//! From a worker's first packet to its service: versions, settings, the proof of its sandbox.

use crate::compose;
use crate::input::ProcessId;
use crate::process::State;
use crate::slot::{Occupant, Slot};
use crate::supervisor::{Supervisor, printable};
use crate::systemd;
use ipc_proto::edges::control::{EdgeName, Peer, SandboxReport, ToWorker};
use ipc_proto::settings::RoleSettings;
use ipc_proto::{Body, Client, MAGIC, Role, VERSION_MAX, VERSION_MIN};
use std::os::fd::OwnedFd;

impl Supervisor {
    pub(crate) fn hello(
        &mut self,
        id: ProcessId,
        magic: u32,
        theirs: (u16, u16),
        role: Role,
        build: &str,
    ) {
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
            return self.end(id);
        }
        if role == Role::Run {
            // Meanwhile this one sets itself up.
            self.prepare_ahead();
        }
    }

    fn welcome(&mut self, id: ProcessId, role: Role) -> Result<(), String> {
        let listener = match self.listeners.get(&role) {
            _ if role == Role::AppBridge => self.progress_listener()?,
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

    pub(crate) fn ready(&mut self, id: ProcessId, sandbox: SandboxReport) {
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
        if role == Role::Continuation {
            self.health = None;
        }
        self.reach(role, id);
        self.take_over(id);
        self.link(role);
        self.announce();
        self.dispatch();
    }

    /// Tells systemd once that every always-on worker serves, or that it won't without an operator:
    /// then it is up to `monoctl`, and a unit that stays in its start helps nobody.
    pub(crate) fn announce(&mut self) {
        let parked = |slot: &Slot| slot.occupant == Occupant::Parked;
        let settled = |slot: &Slot| parked(slot) || self.serving(slot.role).is_some();
        if self.announced || !self.slots.iter().all(settled) {
            return;
        }
        self.announced = true;
        let serving = self.slots.iter().filter(|slot| !parked(slot)).count();
        match self.slots.len() - serving {
            0 => tracing::info!("ready: {serving} confined workers serve"),
            given_up => tracing::error!(
                "{serving} confined workers serve, {given_up} are parked: see `monoctl status`"
            ),
        }
        self.tell_ready();
    }

    /// Tells systemd how many always-on workers serve.
    pub(crate) fn tell_ready(&self) {
        let parked = |slot: &&Slot| slot.occupant == Occupant::Parked;
        let parked = self.slots.iter().filter(parked).count();
        systemd::ready(self.slots.len() - parked, parked);
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
}
