//! Attacks on a running daemon, with the hostile program in place of its workers.

pub mod bridge;
pub mod channel;
pub mod control;
pub mod edges;
pub mod gateway;
pub mod order;
pub mod secrets;
pub mod wire;
pub mod worker;

mod edge_attacks;
mod owners;
mod sessions;

use crate::attack::jobs;
use crate::attack::outcome::Outcome;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// By who is attacked from, or whom, and action.
pub type Outcomes = BTreeMap<String, BTreeMap<String, Outcome>>;

/// The roles that a daemon starts a program of ours for.
pub const ROLES: [&str; 10] = [
    "store",
    "artifact",
    "egress",
    "app-bridge",
    "channel-openai",
    "channel-console",
    "channel-webhook",
    "continuation",
    "metrics",
    "run",
];

/// What a daemon is like afterwards; each is `nothing` when nothing has changed.
pub const AFTERWARDS: [&str; 6] = [
    "afterwards-processes",
    "afterwards-descriptors",
    "afterwards-memory",
    "afterwards-answers",
    "latency-of-others",
    "large-answers-of-others",
];

/// Everything against the supervisor, worker by worker.
///
/// # Errors
/// When a daemon can't be started.
pub fn against_supervisor(programs: &Path) -> Result<Outcomes> {
    type Job<'a> = Box<dyn Fn() -> Result<Outcomes> + Send + 'a>;
    let mut jobs: Vec<Job<'_>> = vec![
        Box::new(|| sessions::search(programs)),
        Box::new(|| sessions::channel(programs)),
        Box::new(|| sessions::bridge(programs)),
    ];
    for attack in control::ATTACKS {
        jobs.push(Box::new(|| sessions::control(programs, attack)));
    }
    // Most of the time is spent waiting for heartbeats.
    let mut all = Outcomes::new();
    for outcomes in jobs::run(4, jobs) {
        for (who, outcomes) in outcomes? {
            all.entry(who).or_default().extend(outcomes);
        }
    }
    Ok(all)
}

/// Everything of a stub that is none against the gateway.
///
/// # Errors
/// When the daemon can't be started.
pub fn against_gateway(programs: &Path) -> Result<Outcomes> {
    gateway::attacked(programs)
}

/// Everything of a hostile run against the owners of its channels.
///
/// # Errors
/// When the daemon can't be started.
pub fn against_owners(programs: &Path) -> Result<Outcomes> {
    let mut all = owners::edges(programs)?;
    all.extend(owners::supervisor(programs)?);
    Ok(all)
}
