//! Whose conversation a name belongs to: a client of one channel can't go on in another's.
//!
//! A channel that makes names begins them with its own word (facts 2.1). Who holds a key of the API
//! or of a webhook endpoint may know such a name, from a log or a link, and has no right to what
//! was said there.

use serde::{Deserialize, Serialize};

/// Beginning of the names that the API makes.
pub const OPENAI: &str = "openai-api:";
/// Beginning of the names that the webhooks make.
pub const WEBHOOK: &str = "webhook:";
/// The operator's conversation when none is named.
pub const TERMINAL: &str = "terminal";
/// Beginnings of the names that channels make.
const OWNED: [&str; 9] = [
    OPENAI,
    WEBHOOK,
    "web:",
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
}
