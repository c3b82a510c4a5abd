//! What the metrics worker gets when it asks: everything that is counted, and how things stand now
//! (docs/operations.md, "Metrics").

use crate::counters::{Counters, Durations, Outcome, Reason};
use crate::input::ProcessId;
use crate::slot::Occupant;
use crate::status::{self, rss_bytes};
use crate::supervisor::Supervisor;
use ipc_proto::edges::control::ToWorker;
use ipc_proto::figures::{Family, Figures, Kind, Sample, Unit, Value, Word};
use ipc_proto::rooms::TERMINAL;
use ipc_proto::{Body, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// An answer this old is given again: a worker that was taken over must not keep the loop busy
/// with looking at every process.
const FRESH: Duration = Duration::from_millis(100);

/// The latest answer.
#[derive(Debug, Default)]
pub(crate) struct LastFigures(Option<(Instant, Vec<u8>)>);

/// States of a worker, and of a role without one.
const STATES: [&str; 7] = [
    "starting", "serving", "idle", "draining", "ending", "waiting", "parked",
];

/// A family whose words are all known when the daemon is built.
pub(crate) fn family(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &[&'static str],
    samples: impl IntoIterator<Item = (Vec<&'static str>, Value)>,
) -> Family {
    let words = |words: &[&'static str]| words.iter().map(|word| Word::Borrowed(word)).collect();
    Family {
        name: name.into(),
        help: help.into(),
        unit: None,
        kind,
        labels: words(labels),
        samples: samples
            .into_iter()
            .map(|(labels, value)| Sample {
                labels: words(&labels),
                value,
            })
            .collect(),
    }
}

fn in_unit(unit: Unit, family: Family) -> Family {
    Family {
        unit: Some(unit),
        ..family
    }
}

fn whole(n: usize) -> Value {
    Value::Whole(n as u64)
}

fn by_role(map: &BTreeMap<Role, u64>, roles: &BTreeSet<Role>) -> Vec<(Vec<&'static str>, Value)> {
    let all: BTreeSet<Role> = roles.iter().chain(map.keys()).copied().collect();
    all.into_iter()
        .map(|role| {
            let n = map.get(&role).copied().unwrap_or_default();
            (vec![role.name()], Value::Whole(n))
        })
        .collect()
}

fn durations<K: Copy>(
    map: &BTreeMap<K, Durations>,
    name: fn(K) -> &'static str,
) -> Vec<(Vec<&'static str>, Value)> {
    map.iter()
        .map(|(key, durations)| (vec![name(*key)], durations.into()))
        .collect()
}

/// What is counted. Every label set that can come is there from the beginning, so that the first
/// event is a rise from 0 and not a new line.
fn counted(
    counters: &Counters,
    roles: &BTreeSet<Role>,
    channels: &BTreeSet<&'static str>,
) -> Vec<Family> {
    let restarts = roles.iter().flat_map(|role| {
        Reason::ALL.map(|reason| {
            let n = counters.restarts.get(&(*role, reason));
            (
                vec![role.name(), reason.name()],
                Value::Whole(n.copied().unwrap_or_default()),
            )
        })
    });
    let turns = channels.iter().flat_map(|channel| {
        Outcome::ALL.map(|outcome| {
            let n = counters.turns.get(&(*channel, outcome));
            (
                vec![*channel, outcome.name()],
                Value::Whole(n.copied().unwrap_or_default()),
            )
        })
    });
    let failures = counters.failures.iter();
    let failures = failures.map(|((channel, kind), n)| (vec![*channel, *kind], Value::Whole(*n)));
    vec![
        family(
            "mono_worker_restarts",
            "Workers that ended and had to be replaced, by why they ended.",
            Kind::Counter,
            &["role", "reason"],
            restarts,
        ),
        in_unit(
            Unit::Seconds,
            family(
                "mono_worker_start_duration",
                "Time from the start of a worker until it was ready and confined.",
                Kind::Histogram,
                &["role"],
                durations(&counters.starts, Role::name),
            ),
        ),
        in_unit(
            Unit::Seconds,
            family(
                "mono_heartbeat_round_trip",
                "Time from a heartbeat to its answer: the latency of a worker's loop and of the daemon's.",
                Kind::Histogram,
                &["role"],
                durations(&counters.heartbeats, Role::name),
            ),
        ),
        family(
            "mono_protocol_violations",
            "Packets and claims that a worker had no right to.",
            Kind::Counter,
            &["role"],
            by_role(&counters.violations, roles),
        ),
        family(
            "mono_log_lines",
            "Lines that workers logged.",
            Kind::Counter,
            &["role"],
            by_role(&counters.lines, roles),
        ),
        family(
            "mono_turns",
            "Turns that ended, by channel and outcome.",
            Kind::Counter,
            &["channel", "outcome"],
            turns,
        ),
        family(
            "mono_turn_failures",
            "Turns that failed, were refused or interrupted, by kind of failure.",
            Kind::Counter,
            &["channel", "kind"],
            failures,
        ),
        in_unit(
            Unit::Seconds,
            family(
                "mono_turn_duration",
                "Time that a run worker took for a turn.",
                Kind::Histogram,
                &["channel"],
                durations(&counters.turn_durations, |channel| channel),
            ),
        ),
    ]
}

impl Supervisor {
    /// Answers the metrics worker.
    pub(crate) fn tell_figures(&mut self, asker: ProcessId, request: u64) {
        let now = Instant::now();
        let last = self.last_figures.0.take();
        let bytes = match last {
            Some((at, bytes)) if now.duration_since(at) < FRESH => Ok((at, bytes)),
            _ => serde_json::to_vec(&self.figures()).map(|bytes| (now, bytes)),
        };
        let packed = match bytes {
            Ok((at, bytes)) => {
                let packed = Body::pack(bytes.clone()).map_err(|e| e.to_string());
                self.last_figures.0 = Some((at, bytes));
                packed
            }
            Err(e) => Err(e.to_string()),
        };
        match packed {
            Ok((body, memfd)) => {
                if let Some(process) = self.processes.get(&asker) {
                    let fds = memfd.into_iter().collect();
                    process.send(request, ToWorker::Figures { body }, fds);
                }
            }
            Err(e) => tracing::error!("the figures can't be packed: {e}"),
        }
    }

    fn figures(&self) -> Figures {
        let mut roles: BTreeSet<Role> = self.slots.iter().map(|slot| slot.role).collect();
        roles.insert(Role::Run);
        let channels = roles.iter().filter(|role| role.is_channel());
        let mut channels: BTreeSet<&'static str> = channels.map(|role| role.name()).collect();
        channels.insert(TERMINAL);
        channels.extend(self.counters.turns.keys().map(|(channel, _)| *channel));
        let runs = channels.iter().flat_map(|channel| {
            let (running, waiting) = self.queue.counts_of(channel);
            [
                (vec![*channel, "running"], whole(running)),
                (vec![*channel, "waiting"], whole(waiting)),
            ]
        });
        let mut families = vec![
            family(
                "mono_build_info",
                "The daemon's version; always 1.",
                Kind::Gauge,
                &["version"],
                [(vec![env!("CARGO_PKG_VERSION")], whole(1))],
            ),
            in_unit(
                Unit::Seconds,
                family(
                    "mono_uptime",
                    "Time since the daemon started.",
                    Kind::Gauge,
                    &[],
                    [(vec![], Value::Real(self.started.elapsed().as_secs_f64()))],
                ),
            ),
            family(
                "mono_workers",
                "Processes by role and state, and always-on roles without one (waiting, parked).",
                Kind::Gauge,
                &["role", "state"],
                self.states(&roles),
            ),
            in_unit(
                Unit::Bytes,
                family(
                    "mono_resident_memory",
                    "Resident memory of the processes of a role, and of the daemon itself.",
                    Kind::Gauge,
                    &["role"],
                    self.memory(&roles),
                ),
            ),
            family(
                "mono_runs",
                "Runs that hold a slot, and runs in the queue.",
                Kind::Gauge,
                &["channel", "state"],
                runs,
            ),
            family(
                "mono_log_lines_dropped",
                "Lines that are no longer in memory for `monoctl logs`.",
                Kind::Counter,
                &[],
                [(vec![], Value::Whole(self.logbook.dropped()))],
            ),
        ];
        families.extend(counted(&self.counters, &roles, &channels));
        families.push(self.forbidden_calls());
        if self.config.continuations.enabled {
            families.extend(crate::continuations::families(self.known_health()));
        }
        Figures { families }
    }

    fn forbidden_calls(&self) -> Family {
        // The names are those of the policy, never a process's own.
        let word = |text: &str| Word::Owned(text.to_owned());
        let samples = self.forbidden.iter().map(|(role, call, n)| Sample {
            labels: vec![word(role), word(call)],
            value: Value::Whole(n),
        });
        Family {
            samples: samples.collect(),
            ..family(
                "mono_sandbox_violations",
                "Forbidden system calls that ended a process.",
                Kind::Counter,
                &["role", "syscall"],
                [],
            )
        }
    }

    fn states(&self, roles: &BTreeSet<Role>) -> Vec<(Vec<&'static str>, Value)> {
        let mut found: BTreeMap<(Role, &'static str), usize> = BTreeMap::new();
        for process in self.processes.values() {
            *found
                .entry((process.role, status::state(process)))
                .or_default() += 1;
        }
        for slot in self.slots.iter().chain([&self.pool_slot]) {
            match slot.occupant {
                Occupant::Parked => *found.entry((slot.role, "parked")).or_default() += 1,
                // The pool fills itself; nothing of it is missing.
                Occupant::Waiting(_) if slot.role != Role::Run => {
                    *found.entry((slot.role, "waiting")).or_default() += 1;
                }
                Occupant::Waiting(_) | Occupant::Filled(_) => {}
            }
        }
        let roles: BTreeSet<Role> = roles.iter().copied().chain([Role::McpServer]).collect();
        let all = roles
            .iter()
            .flat_map(|role| STATES.map(|state| (*role, state)));
        all.map(|(role, state)| {
            let n = found.get(&(role, state)).copied().unwrap_or_default();
            (vec![role.name(), state], whole(n))
        })
        .collect()
    }

    fn memory(&self, roles: &BTreeSet<Role>) -> Vec<(Vec<&'static str>, Value)> {
        let mut found: BTreeMap<Role, u64> = roles.iter().map(|role| (*role, 0)).collect();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        found.insert(Role::Monod, rss_bytes(own));
        for process in self.processes.values() {
            *found.entry(process.role).or_default() += rss_bytes(process.pid);
        }
        by_role(&found, roles)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::process::State;

    #[test]
    fn every_label_set_is_there_before_anything_happened() {
        let roles = BTreeSet::from([Role::Store, Role::Run]);
        let channels = BTreeSet::from([TERMINAL]);
        let before = counted(&Counters::default(), &roles, &channels);
        let samples = |name: &str| {
            let family = before.iter().find(|family| family.name == name).unwrap();
            family.samples.len()
        };
        assert_eq!(samples("mono_worker_restarts"), 2 * Reason::ALL.len());
        assert_eq!(samples("mono_turns"), Outcome::ALL.len());
        assert_eq!(samples("mono_protocol_violations"), 2);
        for family in &before {
            for sample in &family.samples {
                assert_eq!(sample.labels.len(), family.labels.len(), "{family:?}");
            }
        }
    }

    #[test]
    fn what_was_counted_is_told() {
        let mut counters = Counters::default();
        counters.restart(Role::Store, Reason::Killed);
        counters.turn(TERMINAL, Outcome::Failed, Some("timeout"));
        counters.violation(Role::Egress);
        let families = counted(
            &counters,
            &BTreeSet::from([Role::Store]),
            &BTreeSet::from([TERMINAL]),
        );
        let value = |name: &str, labels: &[&str]| {
            let family = families.iter().find(|family| family.name == name).unwrap();
            let sample = family.samples.iter().find(|s| s.labels == labels).unwrap();
            sample.value.clone()
        };
        let one = Value::Whole(1);
        assert_eq!(value("mono_worker_restarts", &["store", "killed"]), one);
        assert_eq!(value("mono_turns", &[TERMINAL, "failed"]), one);
        assert_eq!(value("mono_turn_failures", &[TERMINAL, "timeout"]), one);
        // A role that is not started any more keeps what it did.
        assert_eq!(value("mono_protocol_violations", &["egress"]), one);
    }

    #[test]
    fn every_state_of_a_process_has_its_word() {
        for state in [
            State::Starting,
            State::Serving,
            State::Draining,
            State::Ending,
        ] {
            assert!(STATES.contains(&state.name()), "{state:?}");
        }
    }
}
