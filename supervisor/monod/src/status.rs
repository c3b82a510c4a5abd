//! `monoctl status`: what the kernel says is in force, not what was asked for.

use crate::memory::Enforcement;
use crate::process::Process;
use crate::slot::{Occupant, Slot};
use crate::violations::Violations;
use ipc_proto::Role;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The answer. Its shape is a contract: extend, never rename.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    ok: bool,
    /// It was asked to end, and takes no new turn; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopping: bool,
    version: &'static str,
    degraded: Vec<String>,
    uptime_ms: u128,
    protocol_violations: u64,
    /// Forbidden system calls that ended a process, by role and call.
    violations: Violations,
    memory: Memory,
    runs: Runs,
    workers: Vec<Worker>,
    /// As `monoctl continuations health`; absent where there are none, or nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    continuations: Option<serde_json::Value>,
}

/// How the limits of memory are enforced.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    enforcement: &'static str,
    /// Why it isn't the kernel that does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Memory {
    pub(crate) fn of(enforcement: &Enforcement) -> Self {
        Self {
            enforcement: enforcement.name(),
            reason: enforcement.reason().map(str::to_owned),
        }
    }
}

/// What a run or a server uses, with all below it.
#[derive(Debug, Serialize)]
struct Used {
    /// Absent when it can't be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    limit_bytes: u64,
}

/// How busy it is.
#[derive(Debug, Serialize)]
pub(crate) struct Runs {
    /// Runs that hold a slot.
    pub(crate) working: usize,
    /// Runs that have a process.
    pub(crate) assigned: usize,
    /// Runs in the queue.
    pub(crate) waiting: usize,
}

/// One worker.
#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    role: &'static str,
    /// The configured name of an MCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Another process serves its role: it is about to take over, or finishes what it began.
    #[serde(skip)]
    pub(crate) beside: bool,
    pid: Option<i32>,
    state: &'static str,
    restarts: u32,
    protocol: Option<u16>,
    rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Used>,
    #[serde(skip_serializing_if = "String::is_empty")]
    last_line: String,
    /// It has the program, or the settings, of before a reload; its successor is to come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) outdated: bool,
    sandbox: Option<Sandbox>,
}

/// What confines it.
#[derive(Debug, Serialize)]
pub(crate) struct Sandbox {
    seccomp: u32,
    seccomp_filters: u32,
    no_new_privs: bool,
    landlock_abi: u32,
    uid: u32,
    capabilities: u64,
    /// Those that differ from the supervisor's; absent when the kernel doesn't let it look.
    namespaces: Option<Vec<&'static str>>,
    /// `refused` or what went wrong, by probe.
    probes: BTreeMap<String, String>,
}

impl Status {
    pub(crate) fn new(
        workers: Vec<Worker>,
        runs: Runs,
        protocol_violations: u64,
        violations: Violations,
        uptime: Duration,
        degraded: Vec<String>,
        memory: &Enforcement,
    ) -> Self {
        let healthy = workers.iter().all(Worker::healthy);
        Self {
            ok: healthy && degraded.is_empty(),
            stopping: false,
            version: env!("CARGO_PKG_VERSION"),
            degraded,
            uptime_ms: uptime.as_millis(),
            protocol_violations,
            violations,
            memory: Memory::of(memory),
            runs,
            workers,
            continuations: None,
        }
    }

    /// Says whether it was asked to end.
    pub(crate) fn stopping(mut self, stopping: bool) -> Self {
        self.stopping = stopping;
        self
    }

    /// With what the continuation worker last said of its health.
    pub(crate) fn with_continuations(mut self, health: Option<serde_json::Value>) -> Self {
        self.continuations = health;
        self
    }
}

impl Worker {
    fn healthy(&self) -> bool {
        let always_on = self.role != Role::Run.name() && self.role != Role::McpServer.name();
        let needed = always_on && !self.beside;
        // Not confined yet: the handshake judges that, and nobody is served by it.
        if !needed && self.state == "starting" {
            return true;
        }
        let up = self.state == "serving" || (!needed && self.state != "parked");
        let confined = self
            .sandbox
            .as_ref()
            .is_none_or(|s| s.seccomp == 2 && s.no_new_privs && s.capabilities == 0 && s.uid != 0);
        // A process that serves without any report from the kernel is not known to be confined.
        up && confined && (self.state != "serving" || self.sandbox.is_some())
    }
}

/// A running process.
pub(crate) fn worker(process: &Process, restarts: u32, floor: u32) -> Worker {
    Worker {
        role: process.role.name(),
        name: None,
        beside: false,
        pid: Some(process.pid),
        state: state(process),
        restarts,
        protocol: (process.protocol > 0).then_some(process.protocol),
        rss_bytes: rss_bytes(process.pid),
        memory: process.memory.as_ref().map(|bound| Used {
            bytes: bound.used(process.pid),
            limit_bytes: bound.limit,
        }),
        last_line: process.last_line.clone(),
        outdated: false,
        sandbox: sandbox(process, floor),
    }
}

/// The word for where a process stands.
pub(crate) fn state(process: &Process) -> &'static str {
    match (process.role, process.run.is_some(), process.state.name()) {
        (Role::Run, false, "serving") => "idle",
        (_, _, other) => other,
    }
}

/// Resident memory of a process; 0 when it has just ended.
pub(crate) fn rss_bytes(pid: i32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .unwrap_or(4096);
    pages * page.unsigned_abs()
}

fn sandbox(process: &Process, floor: u32) -> Option<Sandbox> {
    let kernel = policy::inforce::of(process.pid).ok()?;
    let probes = process
        .sandbox
        .iter()
        .flat_map(|report| &report.probes)
        .map(|probe| {
            let outcome = if probe.refused {
                "refused".to_owned()
            } else {
                format!("NOT refused: {}", probe.detail)
            };
            (probe.name.clone(), outcome)
        });
    Some(Sandbox {
        seccomp: kernel.seccomp,
        seccomp_filters: kernel.filters,
        no_new_privs: kernel.no_new_privs,
        // The launcher asks for Landlock as a hard requirement: a process that runs has it.
        landlock_abi: process
            .sandbox
            .as_ref()
            .map_or(floor, |report| report.landlock_abi),
        uid: kernel.uid,
        capabilities: kernel.capabilities,
        // It can't have changed them since, and another user's process isn't shown to us any more.
        namespaces: kernel.namespaces.or_else(|| process.namespaces.clone()),
        probes: probes.collect(),
    })
}

/// A slot without a process.
pub(crate) fn absent(slot: &Slot) -> Worker {
    Worker {
        role: slot.role.name(),
        name: None,
        beside: false,
        pid: None,
        state: if slot.occupant == Occupant::Parked {
            "parked"
        } else {
            "waiting"
        },
        restarts: slot.restarts,
        protocol: None,
        rss_bytes: 0,
        memory: None,
        last_line: slot.last_words.clone(),
        outdated: false,
        sandbox: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_healthy(role: Role, state: &'static str, seccomp: u32) -> bool {
        let sandbox = Sandbox {
            seccomp,
            seccomp_filters: seccomp,
            no_new_privs: true,
            landlock_abi: 6,
            uid: 1,
            capabilities: 0,
            namespaces: None,
            probes: BTreeMap::new(),
        };
        let worker = Worker {
            role: role.name(),
            name: None,
            beside: false,
            pid: Some(1),
            state,
            restarts: 0,
            protocol: None,
            rss_bytes: 0,
            memory: None,
            last_line: String::new(),
            outdated: false,
            sandbox: Some(sandbox),
        };
        worker.healthy()
    }

    #[test]
    fn the_next_run_worker_is_no_illness_while_it_starts_and_one_without_a_filter_is_afterwards() {
        assert!(is_healthy(Role::Run, "starting", 0));
        assert!(is_healthy(Role::McpServer, "starting", 0));
        assert!(!is_healthy(Role::Store, "starting", 2));
        for state in ["idle", "serving"] {
            assert!(is_healthy(Role::Run, state, 2), "{state}");
            assert!(!is_healthy(Role::Run, state, 0), "{state}");
        }
        assert!(!is_healthy(Role::Run, "parked", 2));
    }
}
