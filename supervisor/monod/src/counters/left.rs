//! What one image of the supervisor has counted, for the next one. Words that the next one doesn't
//! know, and histograms with other bounds, begin anew.

use super::{Counters, Durations, HEARTBEAT, Outcome, Reason, START, TURN, known};
use crate::input::ProcessId;
use ipc_proto::Role;
use ipc_proto::rooms::TERMINAL;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// [`Counters`] as they are left. A part that an earlier image doesn't know is empty.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CountersLeft {
    restarts: Vec<(String, String, u64)>,
    starts: Vec<(String, DurationsLeft)>,
    heartbeats: Vec<(String, DurationsLeft)>,
    violations: Vec<(String, u64)>,
    lines: Vec<(String, u64)>,
    turns: Vec<(String, String, u64)>,
    failures: Vec<(String, String, u64)>,
    turn_durations: Vec<(String, DurationsLeft)>,
    blamed: Vec<(u64, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DurationsLeft {
    bounds: Vec<f64>,
    within: Vec<u64>,
    sum: f64,
    count: u64,
}

impl DurationsLeft {
    fn taken(self, bounds: &'static [f64]) -> Option<Durations> {
        let same = self.bounds == bounds && self.within.len() == bounds.len();
        same.then_some(Durations {
            bounds,
            within: self.within,
            sum: self.sum,
            count: self.count,
        })
    }
}

impl From<Durations> for DurationsLeft {
    fn from(durations: Durations) -> Self {
        Self {
            bounds: durations.bounds.to_vec(),
            within: durations.within,
            sum: durations.sum,
            count: durations.count,
        }
    }
}

fn role(name: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role.name() == name)
}

/// The name of a channel in metrics.
fn channel(name: &str) -> Option<&'static str> {
    match name {
        TERMINAL => Some(TERMINAL),
        other => role(other).map(Role::name),
    }
}

fn reason(name: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name)
}

fn outcome(name: &str) -> Option<Outcome> {
    Outcome::ALL
        .into_iter()
        .find(|outcome| outcome.name() == name)
}

/// Histograms whose owner is still known.
fn durations<K: Ord>(
    left: Vec<(String, DurationsLeft)>,
    bounds: &'static [f64],
    key: fn(&str) -> Option<K>,
) -> BTreeMap<K, Durations> {
    let left = left.into_iter();
    left.filter_map(|(name, durations)| Some((key(&name)?, durations.taken(bounds)?)))
        .collect()
}

fn by_role(left: Vec<(String, u64)>) -> BTreeMap<Role, u64> {
    let left = left.into_iter();
    left.filter_map(|(name, n)| Some((role(&name)?, n)))
        .collect()
}

impl From<Counters> for CountersLeft {
    fn from(counters: Counters) -> Self {
        let named = |roles: BTreeMap<Role, u64>| {
            let roles = roles.into_iter();
            roles.map(|(role, n)| (role.name().to_owned(), n)).collect()
        };
        let timed = |roles: BTreeMap<Role, Durations>| {
            let roles = roles.into_iter();
            roles
                .map(|(role, all)| (role.name().to_owned(), all.into()))
                .collect()
        };
        let restarts = counters.restarts.into_iter();
        let turns = counters.turns.into_iter();
        let failures = counters.failures.into_iter();
        let turn_durations = counters.turn_durations.into_iter();
        let blamed = counters.blamed.into_iter();
        Self {
            restarts: restarts
                .map(|((role, reason), n)| (role.name().into(), reason.name().into(), n))
                .collect(),
            starts: timed(counters.starts),
            heartbeats: timed(counters.heartbeats),
            violations: named(counters.violations),
            lines: named(counters.lines),
            turns: turns
                .map(|((channel, outcome), n)| (channel.into(), outcome.name().into(), n))
                .collect(),
            failures: failures
                .map(|((channel, kind), n)| (channel.into(), kind.into(), n))
                .collect(),
            turn_durations: turn_durations
                .map(|(channel, all)| (channel.into(), all.into()))
                .collect(),
            blamed: blamed
                .map(|(process, reason)| (process.0, reason.name().into()))
                .collect(),
        }
    }
}

impl From<CountersLeft> for Counters {
    fn from(left: CountersLeft) -> Self {
        let mut failures = BTreeMap::new();
        for (name, kind, n) in left.failures {
            if let Some(channel) = channel(&name) {
                // Several may be one by now.
                *failures.entry((channel, known(&kind))).or_default() += n;
            }
        }
        let restarts = left.restarts.into_iter();
        let turns = left.turns.into_iter();
        let blamed = left.blamed.into_iter();
        Self {
            restarts: restarts
                .filter_map(|(of, why, n)| Some(((role(&of)?, reason(&why)?), n)))
                .collect(),
            starts: durations(left.starts, START, role),
            heartbeats: durations(left.heartbeats, HEARTBEAT, role),
            violations: by_role(left.violations),
            lines: by_role(left.lines),
            turns: turns
                .filter_map(|(of, how, n)| Some(((channel(&of)?, outcome(&how)?), n)))
                .collect(),
            failures,
            turn_durations: durations(left.turn_durations, TURN, channel),
            blamed: blamed
                .filter_map(|(process, why)| Some((ProcessId(process), reason(&why)?)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_counted_goes_on_and_what_is_unknown_begins_anew() {
        let mut counters = Counters::default();
        counters.ready(Role::Store, Duration::from_millis(20));
        counters.heartbeat(Role::Egress, Duration::from_millis(1));
        counters.violation(Role::Run);
        counters.line(Role::Artifact);
        counters.blame(ProcessId(7), Reason::Hung);
        counters.restart(Role::Metrics, Reason::Killed);
        counters.turn(TERMINAL, Outcome::Failed, Some("timeout"));
        counters.turn(Role::ChannelOpenai.name(), Outcome::Succeeded, None);
        counters.turn_took(TERMINAL, Duration::from_secs(3));
        let expected = format!("{counters:?}");
        let mut text = serde_json::to_value(CountersLeft::from(counters)).unwrap();
        let taken: CountersLeft = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(format!("{:?}", Counters::from(taken)), expected);

        text["starts"][0][1]["bounds"] = serde_json::json!([1.0]);
        text["lines"][0][0] = "a-role-of-tomorrow".into();
        text["restarts"][0][1] = "a reason".into();
        text["failures"][0][1] = "a kind".into();
        text.as_object_mut().unwrap().remove("violations");
        let taken: CountersLeft = serde_json::from_value(text).unwrap();
        let taken = Counters::from(taken);
        assert!(taken.starts.is_empty() && taken.lines.is_empty() && taken.restarts.is_empty());
        assert!(taken.violations.is_empty() && taken.heartbeats[&Role::Egress].count == 1);
        assert_eq!(taken.failures[&(TERMINAL, "other")], 1);
    }
}
