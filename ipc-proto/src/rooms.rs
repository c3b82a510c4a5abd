//! Whose conversation a name belongs to: a client of one channel can't go on in another's.
//!
//! A channel that makes names begins them with its own word (facts 2.1). Who holds a key of the API
//! or of a webhook endpoint may know such a name, from a log or a link, and has no right to what
//! was said there.

use crate::Role;
use serde::{Deserialize, Serialize};

/// Beginning of the names that the API makes.
pub const OPENAI: &str = "openai-api:";
/// Beginning of the names that the webhooks make.
pub const WEBHOOK: &str = "webhook:";
/// Beginning of the names of the console's threads.
pub const CONSOLE: &str = "web:";
/// The operator's conversation when none is named, and the source of the operator's runs.
pub const TERMINAL: &str = "terminal";
/// Beginnings of the names that channels make.
const OWNED: [&str; 9] = [
    OPENAI,
    WEBHOOK,
    CONSOLE,
    "terminal:",
    "cron:",
    "a2a:",
    "slack:",
    "telegram:",
    "continuation-route:",
];

/// Conversations that the configuration gives to webhook endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reserved(pub Vec<String>);

impl Reserved {
    /// True when a client of the channel whose names begin with `own` may name this one.
    #[must_use]
    pub fn may_name(&self, own: &str, name: &str) -> bool {
        let owner = OWNED.iter().find(|owned| name.starts_with(**owned));
        let foreign = owner.is_some_and(|owner| *owner != own) || name == TERMINAL;
        !foreign && !self.0.iter().any(|fixed| fixed == name)
    }

    /// True when the worker of a channel may name this one for a run. It asks less of its own clients
    /// than [`Reserved::may_name`], since it is not told which of them asks, and holds also when the
    /// worker was taken over.
    #[must_use]
    pub fn channel_may_name(&self, role: Role, name: &str) -> bool {
        match role {
            Role::ChannelConsole => name.starts_with(CONSOLE),
            Role::ChannelOpenai => self.may_name(OPENAI, name),
            // Its endpoints' own are among those that are reserved.
            Role::ChannelWebhook => {
                self.0.iter().any(|fixed| fixed == name) || self.may_name(WEBHOOK, name)
            }
            // What only puts an answer into words has no history.
            Role::Continuation => true,
            _ => false,
        }
    }
}

/// The source of a channel's run, whatever its worker says: the channel's own word, behind which
/// it may say which of its clients asks.
#[must_use]
pub fn source_of(role: Role, said: String) -> String {
    let word = role.name();
    let word = word.strip_prefix("channel-").unwrap_or(word);
    let more = said.strip_prefix(word);
    if more.is_some_and(|more| more.is_empty() || more.starts_with(':')) {
        said
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_belongs_to_the_channel_that_makes_such_names() {
        let reserved = Reserved(vec!["deploys".to_owned(), "webhook:fixed".to_owned()]);
        for owned in OWNED {
            for own in [OPENAI, WEBHOOK] {
                let may = reserved.may_name(own, &format!("{owned}x"));
                assert_eq!(may, own == owned, "{own} {owned}");
            }
        }
        for (name, may) in [
            ("plan", true),
            ("web", true),
            ("website:1", true),
            ("Web:1", true),
            ("terminals", true),
            ("terminal", false),
            ("deploys", false),
            ("deploys2", true),
            ("webhook:fixed", false),
        ] {
            assert_eq!(reserved.may_name(WEBHOOK, name), may, "{name}");
        }
    }

    #[test]
    fn a_channels_worker_names_only_what_its_clients_may() {
        let given = Reserved(vec!["deploys".to_owned(), "web:board".to_owned()]);
        let all = [
            "web:1",
            "openai-api:1",
            "webhook:1",
            "plan",
            "deploys",
            "web:board",
        ];
        for (role, may) in [
            (Role::ChannelConsole, vec!["web:1", "web:board"]),
            (Role::ChannelOpenai, vec!["openai-api:1", "plan"]),
            (
                Role::ChannelWebhook,
                vec!["webhook:1", "plan", "deploys", "web:board"],
            ),
            (Role::ChannelSlack, vec![]),
            (Role::Run, vec![]),
        ] {
            let named = all
                .into_iter()
                .filter(|name| given.channel_may_name(role, name));
            assert_eq!(named.collect::<Vec<_>>(), may, "{role}");
        }
        for foreign in ["terminal", "terminal:x", "cron:1:2", "slack:C"] {
            for role in Role::ALL
                .into_iter()
                .filter(|role| *role != Role::Continuation)
            {
                assert!(!given.channel_may_name(role, foreign), "{role} {foreign}");
            }
        }
    }

    #[test]
    fn a_source_is_the_channels_own() {
        for (role, said, source) in [
            (Role::ChannelOpenai, "openai", "openai"),
            (Role::ChannelOpenai, "terminal", "openai"),
            (Role::ChannelOpenai, "openai2", "openai"),
            (Role::ChannelWebhook, "webhook:ci", "webhook:ci"),
            (Role::ChannelWebhook, "console", "webhook"),
            (Role::ChannelConsole, "", "console"),
            (Role::Continuation, "continuation", "continuation"),
        ] {
            assert_eq!(source_of(role, said.to_owned()), source, "{role} {said}");
        }
    }
}
