//! Channels between two workers that live as long as both, beside those of runs.

use crate::compose::shows_apps;
use crate::input::ProcessId;
use crate::process::{Process, State};
use crate::supervisor::Supervisor;
use ipc_proto::Role;
use ipc_proto::edges::control::{EdgeName, Peer, ToWorker};

/// Who gets a channel to whom. What may be said on it stands in the table of the wire.
const LINKS: [(EdgeName, Role, Role); 9] = [
    // Results go out through `egress`; to which hosts, in what it was told.
    (EdgeName::Egress, Role::Egress, Role::ChannelWebhook),
    // Threads, messages and logins of the console.
    (EdgeName::Store, Role::Store, Role::ChannelConsole),
    // Reply files of the console's conversations.
    (EdgeName::Artifact, Role::Artifact, Role::ChannelConsole),
    // Files that apps hand over.
    (EdgeName::Artifact, Role::Artifact, Role::AppBridge),
    // Apps that the console shows.
    (EdgeName::AppBridge, Role::AppBridge, Role::ChannelConsole),
    // What became of a run, latest histories, and what is entered into them later.
    (EdgeName::Store, Role::Store, Role::Continuation),
    // Answers that come later.
    (EdgeName::Delivery, Role::ChannelConsole, Role::Continuation),
    (EdgeName::Delivery, Role::ChannelWebhook, Role::Continuation),
    // Apps of agents that are not ours.
    (EdgeName::Delivery, Role::ChannelConsole, Role::AppBridge),
];

impl Supervisor {
    /// A worker serves from now on: where it is one end of a link and the other end serves too,
    /// both get a channel. Who asks closes the one that it had.
    pub(crate) fn link(&mut self, role: Role) {
        let due = LINKS
            .into_iter()
            .filter(|(_, owner, asker)| role == *owner || role == *asker);
        for (edge, owner, asker) in due {
            if asker == Role::ChannelWebhook && !self.sends_results() {
                continue;
            }
            let wanted = match edge {
                EdgeName::Artifact => shows_apps(&self.config),
                _ => self.config.tools.gateway.enabled,
            };
            if asker == Role::AppBridge && !wanted {
                continue;
            }
            // A new owner is for those too that finish what they began: they are owed the end.
            let finishing = |p: &Process| p.state == State::Draining && role == owner;
            let askers: Vec<ProcessId> = (self.processes.values())
                .filter(|p| p.role == asker && !p.ending)
                .filter(|p| self.serving(asker) == Some(p.id) || finishing(p))
                .map(|p| p.id)
                .collect();
            for id in askers {
                self.connect(edge, owner, id);
            }
        }
    }

    fn sends_results(&self) -> bool {
        let callback = &self.config.webhook.callback;
        !(callback.hosts.is_empty() && callback.private_hosts.is_empty())
    }

    fn connect(&mut self, edge: EdgeName, owner_role: Role, asker: ProcessId) {
        let asker_role = self.processes.get(&asker).map(|p| p.role);
        let (Some(owner), Some(asker_role)) = (self.serving(owner_role), asker_role) else {
            return;
        };
        let peer = |role| Peer { role, run: None };
        let Some(end) = self.grant(owner, edge, peer(asker_role)) else {
            return;
        };
        let channel = self.next_channel;
        self.next_channel += 1;
        let grant = ToWorker::Grant {
            channel,
            edge,
            peer: peer(owner_role),
        };
        if let Some(process) = self.processes.get(&asker)
            && !process.send(0, grant, vec![end])
        {
            self.end(asker);
        }
    }
}
