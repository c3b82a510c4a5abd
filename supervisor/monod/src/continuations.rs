//! What the supervisor does for durable continuations (spec s1): it gives a run and the app-bridge
//! their channels to the worker, says where an answer may go later, and passes operators on.

use crate::figures::family;
use crate::input::ProcessId;
use crate::operator::{Asker, forward};
use crate::run::Origin;
use crate::supervisor::Supervisor;
use ipc_proto::door::Again;
use ipc_proto::edges::continuation::{MAX_OPERATED, Order, Reply, Request};
use ipc_proto::edges::control::{EdgeName, Peer, RunScope, ToWorker};
use ipc_proto::figures::{Family, Kind, Value as Figure};
use ipc_proto::{Body, ConversationId, Role};
use serde_json::Value;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Largest health in bytes.
const MAX_HEALTH: usize = 32 * 1024;

/// States of a continuation (spec s1). What the worker counts under other names is not told on.
const STATES: [&str; 10] = [
    "claimed",
    "result_received",
    "synthesizing",
    "ready_to_deliver",
    "delivery_retry",
    "delivered",
    "delivery_unknown",
    "expired",
    "cancelled",
    "dead_lettered",
];

/// Verdicts on all of them together.
const VERDICTS: [&str; 3] = ["healthy", "degraded", "unhealthy"];

/// How it stands, for the metrics worker; every figure is 0 until the worker said something.
pub(crate) fn families(health: Option<&Value>) -> [Family; 3] {
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let health = health.unwrap_or(&Value::Null);
    let states = STATES.map(|state| {
        let n = count(&health["counts"][state]);
        (vec![state], Figure::Whole(n))
    });
    let status = health["status"].as_str();
    let verdicts = VERDICTS.map(|word| {
        let is_it = status == Some(word);
        (vec![word], Figure::Whole(u64::from(is_it)))
    });
    [
        family(
            "mono_continuations",
            "Answers that come after their turn, by state.",
            Kind::Gauge,
            &["state"],
            states,
        ),
        family(
            "mono_continuation_health",
            "1 for the verdict on all of them together; 0 everywhere when nobody says.",
            Kind::Gauge,
            &["status"],
            verdicts,
        ),
        family(
            "mono_continuations_due",
            "Those that wait for nothing but their turn.",
            Kind::Gauge,
            &[],
            [(vec![], Figure::Whole(count(&health["due"])))],
        ),
    ]
}

/// Where an answer that comes later goes: begins with the name of the channel that the run came
/// from, which the supervisor knows and no conversation's name can pretend.
///
/// `None` where the channel has no such place, or the name would be too long.
pub(crate) fn route(origin: Origin, delivery: &ConversationId) -> Option<ConversationId> {
    let text = delivery.as_str();
    // These two name their places themselves; nothing else of theirs is one.
    let own = |prefix: &str| text.starts_with(prefix).then(|| text.to_owned());
    let named = match origin {
        Origin::Admin => Some(format!("terminal:{text}")),
        Origin::Channel(_, Role::ChannelConsole) => own("web:"),
        Origin::Channel(_, Role::ChannelWebhook) => own("webhook:"),
        Origin::Channel(_, Role::ChannelOpenai) => Some(format!("openai:{text}")),
        Origin::Channel(_, Role::ChannelSlack) => own("slack:"),
        Origin::Channel(_, Role::ChannelTelegram) => own("telegram:"),
        Origin::Channel(..) => None,
    };
    named.and_then(|name| ConversationId::parse(&name).ok())
}

impl Supervisor {
    /// Channels to the continuation worker for a run whose servers may claim: one for the
    /// app-bridge, which is sent before the run's own, and one for the run, which is returned.
    pub(crate) fn grant_claims(&mut self, origin: Origin, scope: &RunScope) -> Option<OwnedFd> {
        let config = &self.config;
        if !config.continuations.enabled || config.tools.continuation_servers.is_empty() {
            return None;
        }
        let bridge = self.serving(Role::AppBridge)?;
        let Some(owner) = self.serving(Role::Continuation) else {
            tracing::warn!(run = %scope.run, "no claims in this run: the continuation worker is not serving");
            return None;
        };
        let bound = RunScope {
            delivery: route(origin, &scope.delivery)?,
            ..scope.clone()
        };
        let peer = |role| Peer {
            role,
            run: Some(bound.clone()),
        };
        let issues = self.grant(owner, EdgeName::Continuation, peer(Role::AppBridge))?;
        let channel = self.next_channel;
        self.next_channel += 1;
        let told = ToWorker::Grant {
            channel,
            edge: EdgeName::Continuation,
            peer: peer(Role::Continuation),
        };
        let sent = |process: &crate::process::Process| process.send(0, told, vec![issues]);
        if !self.processes.get(&bridge).is_some_and(sent) {
            return None;
        }
        self.grant(owner, EdgeName::Continuation, peer(Role::Run))
    }

    /// The worker says how things stand.
    pub(crate) fn continuation_health(
        &mut self,
        worker: ProcessId,
        health: Body,
        mut fds: VecDeque<OwnedFd>,
    ) {
        match health.unpack_json::<Value>(&mut fds, MAX_HEALTH) {
            Ok(health) => self.health = Some(health),
            Err(e) => {
                tracing::warn!("the health of continuations can't be read: {e}");
                self.violations += 1;
                self.counters.violation(Role::Continuation);
                self.end(worker);
            }
        }
    }

    /// The latest health, while a worker serves.
    pub(crate) fn known_health(&self) -> Option<&Value> {
        self.serving(Role::Continuation)?;
        self.health.as_ref()
    }

    /// Passes an operator's wish to the worker.
    pub(crate) fn operate_continuations(&self, order: &Order, asker: Asker) {
        use ipc_proto::channel::Fault;
        if !self.config.continuations.enabled {
            let message = "continuations are not enabled: add a `continuations` block, or a server to tools.continuationServers, and restart the daemon";
            return crate::operator::refuse(asker, Fault::new("not_enabled", message));
        }
        let order = match serde_json::to_vec(order) {
            Ok(bytes) => Body::Inline(bytes),
            Err(e) => {
                return crate::operator::refuse(asker, Fault::new("internal", e.to_string()));
            }
        };
        let take = |reply| match reply {
            Reply::Operated { result } => Ok(Some(result)),
            _ => Err(crate::operator::unexpected()),
        };
        const { assert!(MAX_OPERATED <= crate::operator::MAX_RECORD) };
        let line = self.line_to(&self.owners.continuation, Role::Continuation);
        forward(line, Request::Operate { order }, Again::Never, take, asker);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_place_begins_with_the_channel_that_the_run_came_from() {
        let channel = |role| Origin::Channel(ProcessId(1), role);
        let long = "x".repeat(512);
        for (origin, name, expected) in [
            (Origin::Admin, "demo", Some("terminal:demo")),
            // No name gets an answer into somebody else's channel.
            (Origin::Admin, "web:1", Some("terminal:web:1")),
            (Origin::Admin, "terminal:1", Some("terminal:terminal:1")),
            (Origin::Admin, &long, None),
            (channel(Role::ChannelOpenai), "web:1", Some("openai:web:1")),
            (channel(Role::ChannelConsole), "web:1", Some("web:1")),
            (channel(Role::ChannelConsole), "slack:1", None),
            (
                channel(Role::ChannelWebhook),
                "webhook:a:c",
                Some("webhook:a:c"),
            ),
            (channel(Role::ChannelWebhook), "web:1", None),
            (channel(Role::ChannelSlack), "slack:C:1", Some("slack:C:1")),
            (channel(Role::ChannelTelegram), "slack:C:1", None),
            (channel(Role::ChannelCron), "cron:1", None),
            (channel(Role::Continuation), "web:1", None),
        ] {
            let delivery = ConversationId::parse(name).unwrap();
            let found = route(origin, &delivery);
            let found = found.as_ref().map(ConversationId::as_str);
            assert_eq!(found, expected, "{origin:?} {name}");
        }
    }

    #[test]
    fn figures_are_of_known_words_only() {
        let health = json!({
            "status": "degraded",
            "due": 2,
            "counts": { "claimed": 3, "delivered": "many", "secret words": 9 },
        });
        let [states, verdicts, due] = families(Some(&health));
        let value = |family: &Family, word: &str| {
            let found = family.samples.iter().find(|s| s.labels == [word]);
            found.unwrap().value.clone()
        };
        assert_eq!(states.samples.len(), STATES.len());
        assert_eq!(value(&states, "claimed"), Figure::Whole(3));
        assert_eq!(value(&states, "delivered"), Figure::Whole(0));
        assert_eq!(value(&verdicts, "degraded"), Figure::Whole(1));
        assert_eq!(value(&verdicts, "healthy"), Figure::Whole(0));
        assert_eq!(due.labels.len(), 0);
        assert_eq!(due.samples[0].value, Figure::Whole(2));
        for family in families(None) {
            assert!(family.samples.iter().all(|s| s.value == Figure::Whole(0)));
        }
    }
}
