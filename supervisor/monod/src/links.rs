//! Channels between two workers that live as long as both, beside those of runs.

use crate::supervisor::Supervisor;
use ipc_proto::Role;
use ipc_proto::edges::control::{EdgeName, Peer, ToWorker};

impl Supervisor {
    /// A worker serves from now on. The webhook channel sends results through `egress`: when one
    /// of the two is new they get a channel, and the webhook channel closes the one that it had.
    /// What may be said on it stands in the table of the wire; to which hosts, in what `egress` was
    /// told.
    pub(crate) fn link(&mut self, role: Role) {
        let callback = &self.config.webhook.callback;
        let declared = !(callback.hosts.is_empty() && callback.private_hosts.is_empty());
        if !declared || !matches!(role, Role::Egress | Role::ChannelWebhook) {
            return;
        }
        let (Some(owner), Some(channel)) = (
            self.serving(Role::Egress),
            self.serving(Role::ChannelWebhook),
        ) else {
            return;
        };
        let peer = |role| Peer { role, run: None };
        let Some(end) = self.grant(owner, EdgeName::Egress, peer(Role::ChannelWebhook)) else {
            return;
        };
        let number = self.next_channel;
        self.next_channel += 1;
        let grant = ToWorker::Grant {
            channel: number,
            edge: EdgeName::Egress,
            peer: peer(Role::Egress),
        };
        if let Some(process) = self.processes.get(&channel)
            && !process.send(0, grant, vec![end])
        {
            self.end(channel);
        }
    }
}
