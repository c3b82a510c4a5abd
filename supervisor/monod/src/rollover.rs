//! `runtime.session.rollover`: with `daily`, a conversation's history begins anew each day. The day
//! stands behind its name, `#2026-01-31`; where the answer goes is another name and stays the same.

use crate::run::Origin;
use ipc_proto::{ConversationId, Role};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use mono_config::{Config, Rollover};

/// The name of the history of a turn that begins now. Threads of the console and conversations of
/// the terminal have no days (facts 2.1), nor has what only puts an answer into words.
///
/// # Errors
/// A sentence when the name is too long with the day.
pub(crate) fn bucket(
    config: &Config,
    origin: Origin,
    conversation: ConversationId,
    now: Timestamp,
) -> Result<ConversationId, String> {
    let session = &config.runtime.session;
    let exempt = match origin {
        Origin::Admin => true,
        Origin::Channel(_, role) => matches!(role, Role::ChannelConsole | Role::Continuation),
    };
    if session.rollover != Rollover::Daily || exempt {
        return Ok(conversation);
    }
    // The configuration's check knows the zone; a machine that lost it since keeps the day of UTC.
    let zone = match session.rollover_timezone.as_deref() {
        Some(name) => TimeZone::get(name).unwrap_or(TimeZone::UTC),
        None => TimeZone::system(),
    };
    let day = zone.to_datetime(now).strftime("%Y-%m-%d").to_string();
    ConversationId::parse(&format!("{conversation}#{day}")).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::input::ProcessId;
    use std::collections::BTreeMap;

    fn config(session: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ID.md"), "x").unwrap();
        let text = format!(
            r#"{{"runtime":{{"model":"demo:scripted","session":{session}}},"context":{{"identityPath":"ID.md"}}}}"#
        );
        let file = folder.path().join("c.json");
        std::fs::write(&file, text).unwrap();
        mono_config::load(&file, &BTreeMap::new()).unwrap().config
    }

    #[test]
    fn a_day_begins_at_midnight_of_its_zone_and_for_histories_alone() {
        let daily = config(r#"{"rollover":"daily","rolloverTimezone":"Asia/Tokyo"}"#);
        let channel = |role| Origin::Channel(ProcessId(1), role);
        let name = |config: &Config, origin, at: &str, name: &str| {
            let conversation = ConversationId::parse(name).unwrap();
            bucket(config, origin, conversation, at.parse().unwrap())
                .map(|name| name.as_str().to_owned())
        };
        let openai = channel(Role::ChannelOpenai);
        for (at, expected) in [
            ("2026-01-31T14:59:59Z", "c#2026-01-31"),
            ("2026-01-31T15:00:00Z", "c#2026-02-01"),
        ] {
            assert_eq!(name(&daily, openai, at, "c").unwrap(), expected);
        }
        let noon = "2026-01-31T12:00:00Z";
        let exempt = [
            Origin::Admin,
            channel(Role::ChannelConsole),
            channel(Role::Continuation),
        ];
        for origin in exempt {
            assert_eq!(name(&daily, origin, noon, "c").unwrap(), "c");
        }
        let none = config("{}");
        // A `#` of one's own stays what it is.
        assert_eq!(name(&none, openai, noon, "c#1").unwrap(), "c#1");
        assert!(name(&daily, openai, noon, &"x".repeat(502)).is_err());
    }
}
