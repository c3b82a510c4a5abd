//! What may be said: kind × sender × phase, how often, with how many descriptors.
//!
//! A kind without a row is refused. Handlers never check any of this again.

use crate::role::Role;
use Role::{AppBridge, Artifact, Continuation, Egress, Monod, Run, Store};

/// Withdraw a request; its id is the request's. Generic on every request edge.
pub const CANCEL: u16 = 0x0001;
/// The receiver took messages of a stream: more may be sent. Body: u32.
pub const CREDIT: u16 = 0x0002;
/// A request can't be served: body [`crate::channel::Fault`]. Ends the call.
pub const FAULT: u16 = 0x0003;

/// Where a control channel stands. Other channels are `Serving` from their first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing was said yet.
    Greeting,
    /// `Hello` or `Welcome` was said; the sandbox closes.
    Starting,
    /// Ready.
    Serving,
}

/// Who may send a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Senders {
    /// Exactly these roles.
    Only(&'static [Role]),
    /// Any channel worker.
    Channels,
    /// Who starts runs: any channel worker, and the continuation worker.
    Starters,
    /// Every worker.
    Workers,
    /// Both ends of any edge.
    Anyone,
}

impl Senders {
    fn allows(self, role: Role) -> bool {
        match self {
            Self::Only(roles) => roles.contains(&role),
            Self::Channels => role.is_channel(),
            Self::Starters => role.is_channel() || role == Role::Continuation,
            Self::Workers => !matches!(role, Role::Monod | Role::McpServer),
            Self::Anyone => role != Role::McpServer,
        }
    }
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The kind.
    pub kind: u16,
    /// Its name, for errors.
    pub name: &'static str,
    /// Who may send it.
    pub senders: Senders,
    /// The phase it belongs to.
    pub phase: Phase,
    /// At most once on a channel.
    pub once: bool,
    /// Fewest and most descriptors.
    pub descriptors: (u8, u8),
}

const fn rule(
    kind: u16,
    name: &'static str,
    senders: Senders,
    phase: Phase,
    once: bool,
    descriptors: (u8, u8),
) -> Rule {
    Rule {
        kind,
        name,
        senders,
        phase,
        once,
        descriptors,
    }
}

const MANY: bool = false;
const ONCE: bool = true;
const MONOD: Senders = Senders::Only(&[Monod]);
const RUN: Senders = Senders::Only(&[Run]);
const STORE: Senders = Senders::Only(&[Store]);
const ARTIFACT: Senders = Senders::Only(&[Artifact]);
const EGRESS: Senders = Senders::Only(&[Egress]);
const WEBHOOK: Senders = Senders::Only(&[Role::ChannelWebhook]);
const BRIDGE: Senders = Senders::Only(&[AppBridge]);
/// Owners of rich replies.
const OWNERS: Senders = Senders::Only(&[Artifact, AppBridge]);
const CONTINUATION: Senders = Senders::Only(&[Continuation]);
const CONSOLE: Senders = Senders::Only(&[Role::ChannelConsole]);
const METRICS: Senders = Senders::Only(&[Role::Metrics]);
const READERS: Senders = Senders::Only(&[
    Monod,
    Role::ChannelOpenai,
    Role::ChannelConsole,
    Role::ChannelWebhook,
    Role::ChannelSlack,
    Role::ChannelTelegram,
]);
use Phase::{Greeting, Serving, Starting};

/// The table. A [`crate::Body`] may bring one descriptor of its own, hence ranges.
pub const RULES: &[Rule] = &[
    // generic
    rule(CANCEL, "Cancel", Senders::Anyone, Serving, MANY, (0, 0)),
    rule(CREDIT, "Credit", Senders::Anyone, Serving, MANY, (0, 0)),
    rule(FAULT, "Fault", Senders::Anyone, Serving, MANY, (0, 0)),
    // control: supervisor to worker
    rule(0x0101, "Welcome", MONOD, Greeting, ONCE, (0, 16)),
    rule(0x0102, "Grant", MONOD, Serving, MANY, (1, 1)),
    rule(0x0103, "Revoke", MONOD, Serving, MANY, (0, 0)),
    rule(0x0104, "Ping", MONOD, Serving, MANY, (0, 0)),
    rule(0x0105, "Assign", MONOD, Serving, ONCE, (1, 8)),
    rule(0x0106, "CancelRun", MONOD, Serving, MANY, (0, 0)),
    rule(0x0107, "Drain", MONOD, Serving, MANY, (0, 0)),
    rule(0x0108, "Shutdown", MONOD, Serving, MANY, (0, 0)),
    rule(0x0109, "ServerExited", MONOD, Serving, MANY, (0, 0)),
    rule(0x010a, "Operate", MONOD, Serving, MANY, (0, 0)),
    rule(0x010b, "Stub", MONOD, Serving, MANY, (1, 1)),
    rule(0x0181, "RunStarted", MONOD, Serving, MANY, (1, 1)),
    rule(0x0182, "RunRefused", MONOD, Serving, MANY, (0, 0)),
    rule(0x0183, "ServerStarted", MONOD, Serving, MANY, (3, 3)),
    rule(0x0184, "ServerFailed", MONOD, Serving, MANY, (0, 0)),
    rule(0x0185, "Done", MONOD, Serving, MANY, (0, 0)),
    rule(0x0186, "Figures", MONOD, Serving, MANY, (0, 1)),
    rule(0x0187, "Seen", MONOD, Serving, MANY, (0, 1)),
    rule(0x0188, "NotSeen", MONOD, Serving, MANY, (0, 0)),
    rule(0x0189, "Room", MONOD, Serving, MANY, (0, 0)),
    // control: worker to supervisor
    rule(0x0140, "Hello", Senders::Workers, Greeting, ONCE, (0, 0)),
    rule(0x0141, "Ready", Senders::Workers, Starting, ONCE, (0, 0)),
    rule(0x0142, "Failed", Senders::Workers, Starting, MANY, (0, 0)),
    rule(0x0143, "Pong", Senders::Workers, Serving, MANY, (0, 0)),
    rule(0x0144, "StartRun", Senders::Starters, Serving, MANY, (0, 1)),
    rule(
        0x0145,
        "CancelRun",
        Senders::Starters,
        Serving,
        MANY,
        (0, 0),
    ),
    rule(0x0146, "StartServer", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0147, "StopServer", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0148, "RunDone", RUN, Serving, ONCE, (0, 0)),
    rule(0x0149, "Figures", METRICS, Serving, MANY, (0, 0)),
    rule(0x014a, "Operated", CONSOLE, Serving, MANY, (0, 1)),
    rule(0x014b, "NotOperated", CONSOLE, Serving, MANY, (0, 0)),
    rule(0x014c, "Look", CONSOLE, Serving, MANY, (0, 0)),
    rule(0x014d, "StartClaimingServer", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x014e, "Health", CONTINUATION, Serving, MANY, (0, 0)),
    rule(0x014f, "Room", OWNERS, Serving, MANY, (0, 0)),
    rule(0x0150, "Act", CONSOLE, Serving, MANY, (0, 0)),
    rule(
        0x0151,
        "StartServerOfRequest",
        BRIDGE,
        Serving,
        MANY,
        (0, 0),
    ),
    // store
    rule(0x0201, "BeginRun", RUN, Serving, ONCE, (0, 0)),
    rule(0x0202, "ToolStarted", RUN, Serving, MANY, (0, 0)),
    rule(0x0203, "ToolEnded", RUN, Serving, MANY, (0, 0)),
    rule(0x0204, "CommitRun", RUN, Serving, MANY, (0, 1)),
    rule(0x0205, "FailRun", RUN, Serving, MANY, (0, 1)),
    rule(0x0206, "ListRuns", MONOD, Serving, MANY, (0, 0)),
    rule(0x0207, "ShowRun", MONOD, Serving, MANY, (0, 0)),
    rule(
        0x0208,
        "RunCommitted",
        Senders::Only(&[Monod, Continuation]),
        Serving,
        MANY,
        (0, 0),
    ),
    rule(0x0209, "Interrupt", MONOD, Serving, MANY, (0, 0)),
    rule(
        0x020a,
        "LatestHistory",
        Senders::Only(&[Continuation]),
        Serving,
        MANY,
        (0, 0),
    ),
    rule(
        0x020b,
        "AppendHistory",
        Senders::Only(&[Continuation]),
        Serving,
        MANY,
        (0, 1),
    ),
    rule(0x020c, "Console", CONSOLE, Serving, MANY, (0, 1)),
    rule(0x020d, "LeaveLetter", CONTINUATION, Serving, MANY, (0, 1)),
    rule(0x020e, "Letters", MONOD, Serving, MANY, (0, 0)),
    rule(0x0281, "Began", STORE, Serving, MANY, (0, 1)),
    rule(0x0282, "Recorded", STORE, Serving, MANY, (0, 0)),
    rule(0x0283, "Committed", STORE, Serving, MANY, (0, 0)),
    rule(0x0284, "Runs", STORE, Serving, MANY, (0, 1)),
    rule(0x0285, "Run", STORE, Serving, MANY, (0, 1)),
    rule(0x0286, "Committedness", STORE, Serving, MANY, (0, 0)),
    rule(0x0287, "Console", STORE, Serving, MANY, (0, 1)),
    rule(0x0288, "Letters", STORE, Serving, MANY, (0, 1)),
    // artifact
    rule(0x0301, "Publish", RUN, Serving, MANY, (0, 1)),
    rule(0x0302, "Finalise", RUN, Serving, ONCE, (0, 0)),
    rule(0x0303, "Discard", RUN, Serving, ONCE, (0, 0)),
    rule(0x0304, "Open", READERS, Serving, MANY, (0, 0)),
    rule(0x0305, "List", MONOD, Serving, MANY, (0, 0)),
    rule(0x0306, "Enter", RUN, Serving, MANY, (0, 1)),
    rule(0x0307, "Keep", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0308, "Kept", CONSOLE, Serving, MANY, (0, 0)),
    rule(0x0381, "Published", ARTIFACT, Serving, MANY, (0, 1)),
    rule(0x0382, "Refused", ARTIFACT, Serving, MANY, (0, 1)),
    rule(0x0383, "Finalised", ARTIFACT, Serving, MANY, (0, 1)),
    rule(0x0384, "Discarded", ARTIFACT, Serving, MANY, (0, 0)),
    rule(0x0385, "Opened", ARTIFACT, Serving, MANY, (1, 2)),
    rule(0x0386, "Artifacts", ARTIFACT, Serving, MANY, (0, 1)),
    // egress
    rule(0x0401, "Complete", RUN, Serving, MANY, (0, 1)),
    rule(0x0402, "Fetch", RUN, Serving, MANY, (0, 0)),
    rule(0x0403, "Deliver", WEBHOOK, Serving, MANY, (0, 1)),
    rule(0x0481, "TextDelta", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0482, "ThoughtDelta", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0483, "ToolCall", EGRESS, Serving, MANY, (0, 1)),
    rule(0x0484, "Usage", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0485, "Status", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0486, "Restart", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0487, "Done", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0488, "ModelFailed", EGRESS, Serving, MANY, (0, 0)),
    rule(0x0489, "Fetched", EGRESS, Serving, MANY, (0, 1)),
    rule(0x048a, "FetchFailed", EGRESS, Serving, MANY, (0, 0)),
    rule(0x048b, "Delivered", EGRESS, Serving, MANY, (0, 0)),
    rule(0x048c, "DeliveryFailed", EGRESS, Serving, MANY, (0, 0)),
    rule(0x048d, "ArgumentsDelta", EGRESS, Serving, MANY, (0, 0)),
    // app-bridge
    rule(0x0501, "ListTools", RUN, Serving, MANY, (0, 0)),
    rule(0x0502, "CallTool", RUN, Serving, MANY, (0, 1)),
    rule(0x0510, "App", CONSOLE, Serving, MANY, (0, 1)),
    rule(0x0511, "Inspect", MONOD, Serving, MANY, (0, 1)),
    rule(0x0512, "KeepApps", RUN, Serving, MANY, (0, 0)),
    rule(0x0513, "Hand", CONSOLE, Serving, MANY, (0, 1)),
    rule(0x0514, "Accompany", RUN, Serving, ONCE, (0, 0)),
    rule(0x0515, "DraftApp", RUN, Serving, MANY, (0, 0)),
    rule(0x0516, "DraftInput", RUN, Serving, MANY, (0, 1)),
    rule(0x0517, "CallDrafted", RUN, Serving, MANY, (0, 1)),
    rule(0x0581, "Tools", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0582, "Progress", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0583, "Result", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0584, "Failed", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0590, "App", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0591, "Inspected", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0592, "AppsKept", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0593, "Page", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0594, "Posted", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0595, "Draft", BRIDGE, Serving, MANY, (0, 1)),
    rule(0x0596, "DraftInput", BRIDGE, Serving, MANY, (0, 1)),
    // events: a run speaks; the supervisor only to end one that never got a process
    rule(0x0601, "Started", RUN, Serving, ONCE, (0, 0)),
    rule(0x0602, "Append", RUN, Serving, MANY, (0, 0)),
    rule(0x0603, "Replace", RUN, Serving, MANY, (0, 0)),
    rule(0x0604, "Thought", RUN, Serving, MANY, (0, 0)),
    rule(0x0605, "ToolStarted", RUN, Serving, MANY, (0, 0)),
    rule(0x0606, "ToolProgress", RUN, Serving, MANY, (0, 0)),
    rule(0x0607, "ToolCompleted", RUN, Serving, MANY, (0, 0)),
    rule(0x0608, "UsageUpdate", RUN, Serving, MANY, (0, 0)),
    rule(0x0609, "ProviderStatus", RUN, Serving, MANY, (0, 0)),
    rule(0x060a, "Warning", RUN, Serving, MANY, (0, 0)),
    rule(0x060b, "Part", RUN, Serving, MANY, (0, 1)),
    rule(0x060c, "Finish", RUN, Serving, ONCE, (0, 1)),
    rule(0x060d, "Failed", RUN, Serving, ONCE, (0, 0)),
    rule(0x060e, "Background", RUN, Serving, ONCE, (0, 0)),
    rule(0x060f, "Posted", RUN, Serving, MANY, (0, 0)),
    rule(0x0610, "AppDraft", RUN, Serving, MANY, (0, 1)),
    rule(0x0611, "AppInput", RUN, Serving, MANY, (0, 1)),
    rule(0x0612, "AppCalled", RUN, Serving, MANY, (0, 0)),
    rule(0x0613, "AppGone", RUN, Serving, MANY, (0, 0)),
    // bench
    rule(0x0701, "Echo", Senders::Anyone, Serving, MANY, (0, 0)),
    rule(0x0781, "Echoed", Senders::Anyone, Serving, MANY, (0, 0)),
    // continuation
    rule(0x0901, "Issue", BRIDGE, Serving, MANY, (0, 0)),
    rule(0x0902, "Close", RUN, Serving, MANY, (0, 0)),
    rule(0x0903, "Pin", RUN, Serving, ONCE, (0, 1)),
    rule(0x0904, "Activate", RUN, Serving, ONCE, (0, 0)),
    rule(0x0905, "Abandon", RUN, Serving, ONCE, (0, 0)),
    rule(0x0906, "Operate", MONOD, Serving, MANY, (0, 1)),
    rule(0x0981, "Issued", CONTINUATION, Serving, MANY, (0, 0)),
    rule(0x0982, "Closed", CONTINUATION, Serving, MANY, (0, 0)),
    rule(0x0983, "Settled", CONTINUATION, Serving, MANY, (0, 0)),
    rule(0x0984, "Operated", CONTINUATION, Serving, MANY, (0, 1)),
    rule(0x0985, "Activated", CONTINUATION, Serving, MANY, (0, 0)),
    // delivery
    rule(0x0a01, "Reach", CONTINUATION, Serving, MANY, (0, 0)),
    rule(0x0a02, "Deliver", CONTINUATION, Serving, MANY, (0, 1)),
    rule(0x0a03, "Present", BRIDGE, Serving, MANY, (0, 1)),
    rule(
        0x0a81,
        "Reachable",
        Senders::Channels,
        Serving,
        MANY,
        (0, 0),
    ),
    rule(
        0x0a82,
        "NotDelivered",
        Senders::Channels,
        Serving,
        MANY,
        (0, 0),
    ),
    rule(
        0x0a83,
        "Delivered",
        Senders::Channels,
        Serving,
        MANY,
        (0, 0),
    ),
    // admin: monoctl is no worker; the socket's peer credentials are its permission
    rule(0x0801, "Ask", MONOD, Serving, MANY, (0, 1)),
    rule(0x0881, "Answer", MONOD, Serving, MANY, (0, 1)),
];

/// A packet that the table refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("protocol violation: expected {expected}, got {got}")]
pub struct Violation {
    /// What the table allows here.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl Violation {
    /// The only way to make one: both sides of the disagreement.
    pub fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            got: got.into(),
        }
    }
}

/// The row of a kind.
#[must_use]
pub fn find(kind: u16) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.kind == kind)
}

/// Follows one direction of one channel through the table.
#[derive(Debug)]
pub struct Guard {
    sender: Role,
    phase: Phase,
    seen: Vec<u16>,
}

impl Guard {
    /// A channel whose other end is held by `sender`, ready for requests.
    #[must_use]
    pub fn serving(sender: Role) -> Self {
        Self {
            sender,
            phase: Phase::Serving,
            seen: Vec::new(),
        }
    }

    /// A control channel before the handshake.
    #[must_use]
    pub fn greeting(sender: Role) -> Self {
        Self {
            sender,
            phase: Phase::Greeting,
            seen: Vec::new(),
        }
    }

    /// Moves a control channel on.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Who is at the other end.
    #[must_use]
    pub fn sender(&self) -> Role {
        self.sender
    }

    /// Checks a packet's kind, sender, phase, count and descriptors, and remembers once-only kinds.
    ///
    /// # Errors
    /// The [`Violation`], which ends the channel.
    pub fn admit(&mut self, kind: u16, descriptors: usize) -> Result<&'static Rule, Violation> {
        let Some(row) = find(kind) else {
            return Err(Violation::new("a known kind", format!("{kind:#06x}")));
        };
        if !row.senders.allows(self.sender) {
            return Err(Violation::new(
                format!("{} from {:?}", row.name, row.senders),
                format!("{} from {}", row.name, self.sender),
            ));
        }
        // A worker may report failure until it serves; everything else belongs to one phase.
        if row.phase != self.phase {
            return Err(Violation::new(
                format!("{} in phase {:?}", row.name, row.phase),
                format!("{} in phase {:?}", row.name, self.phase),
            ));
        }
        let (least, most) = row.descriptors;
        if descriptors < usize::from(least) || descriptors > usize::from(most) {
            return Err(Violation::new(
                format!("{} with {least} to {most} descriptors", row.name),
                format!("{descriptors}"),
            ));
        }
        if row.once {
            if self.seen.contains(&kind) {
                return Err(Violation::new(
                    format!("{} once", row.name),
                    "a second one".to_owned(),
                ));
            }
            self.seen.push(kind);
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::edges::{
        app_bridge, artifact, bench, continuation, control, delivery, egress, events, store,
    };

    #[test]
    fn every_kind_of_every_enum_has_one_row_and_every_row_a_kind() {
        let all: Vec<(u16, &str)> = [
            control::ToWorker::KINDS,
            control::FromWorker::KINDS,
            store::Request::KINDS,
            store::Reply::KINDS,
            artifact::Request::KINDS,
            artifact::Reply::KINDS,
            egress::Request::KINDS,
            egress::Reply::KINDS,
            app_bridge::Request::KINDS,
            app_bridge::Reply::KINDS,
            events::RunEvent::KINDS,
            bench::Request::KINDS,
            bench::Reply::KINDS,
            continuation::Request::KINDS,
            continuation::Reply::KINDS,
            delivery::Request::KINDS,
            delivery::Reply::KINDS,
        ]
        .concat();
        for (kind, name) in &all {
            let rows: Vec<_> = RULES.iter().filter(|r| r.kind == *kind).collect();
            assert_eq!(rows.len(), 1, "{name} {kind:#06x}");
            assert_eq!(rows[0].name, *name);
        }
        let generic = [CANCEL, CREDIT, FAULT, 0x0801, 0x0881];
        for row in RULES {
            assert!(
                generic.contains(&row.kind) || all.iter().any(|(k, _)| *k == row.kind),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn the_default_is_refusal() {
        // role × kind: exactly the senders of the row pass, in the row's phase only
        for role in Role::ALL {
            for row in RULES {
                for phase in [Phase::Greeting, Phase::Starting, Phase::Serving] {
                    let mut guard = Guard {
                        sender: role,
                        phase,
                        seen: Vec::new(),
                    };
                    let ok = guard
                        .admit(row.kind, usize::from(row.descriptors.0))
                        .is_ok();
                    assert_eq!(
                        ok,
                        row.senders.allows(role) && phase == row.phase,
                        "{role} {}",
                        row.name
                    );
                }
            }
            for kind in [0u16, 0x0004, 0x01ff, 0xffff] {
                assert!(Guard::serving(role).admit(kind, 0).is_err());
            }
        }
    }

    #[test]
    fn once_and_descriptors_are_counted() {
        let mut guard = Guard::serving(Role::Run);
        assert!(guard.admit(0x0201, 0).is_ok());
        let twice = guard.admit(0x0201, 0).unwrap_err();
        assert_eq!(
            twice.to_string(),
            "protocol violation: expected BeginRun once, got a second one"
        );
        assert!(guard.admit(0x0301, 1).is_ok());
        assert!(guard.admit(0x0301, 2).is_err());
        assert!(guard.admit(0x0202, 1).is_err());
    }
}
