//! What an app's calls are allowed by the configuration (`apps.rules`): the first rule that fits
//! `@server/tool` decides, and none permits, as it does for the model (spec s2). Pure.

use ipc_proto::settings::{AppRule, Verdict};

/// A rule that can't be applied. Whatever it was meant to say, the call is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rule {0:?} is none: it has the form @server/tool, each part with at most one * at its end"
)]
pub struct Unreadable(String);

/// The verdict on a call.
///
/// # Errors
/// [`Unreadable`], which denies.
pub fn judge(rules: &[AppRule], server: &str, tool: &str) -> Result<Verdict, Unreadable> {
    for rule in rules {
        if fits(&rule.tool, server, tool)? {
            return Ok(rule.decision);
        }
    }
    Ok(Verdict::Allow)
}

fn fits(pattern: &str, server: &str, tool: &str) -> Result<bool, Unreadable> {
    let unreadable = || Unreadable(pattern.to_owned());
    let body = pattern.strip_prefix('@').ok_or_else(unreadable)?;
    let (of_server, of_tool) = body.split_once('/').ok_or_else(unreadable)?;
    let part = |pattern: &str, name: &str| match pattern.split_once('*') {
        None if pattern.is_empty() => Err(unreadable()),
        None => Ok(pattern == name),
        Some((start, "")) => Ok(name.starts_with(start)),
        Some(_) => Err(unreadable()),
    };
    // Both are looked at, so that a broken second part is never hidden by the first.
    let (server, tool) = (part(of_server, server)?, part(of_tool, tool)?);
    Ok(server && tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[(&str, Verdict)]) -> Vec<AppRule> {
        let rule = |(tool, decision): &(&str, Verdict)| AppRule {
            tool: (*tool).to_owned(),
            decision: *decision,
        };
        list.iter().map(rule).collect()
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_none_permits() {
        let list = rules(&[
            ("@files/delete_*", Verdict::Deny),
            ("@files/*", Verdict::Ask),
            ("@*/pay", Verdict::Deny),
        ]);
        for (server, tool, expected) in [
            ("files", "delete_all", Verdict::Deny),
            ("files", "read", Verdict::Ask),
            ("shop", "pay", Verdict::Deny),
            ("shop", "pays", Verdict::Allow),
            ("files2", "delete_all", Verdict::Allow),
        ] {
            assert_eq!(judge(&list, server, tool), Ok(expected), "{server} {tool}");
        }
        assert_eq!(judge(&[], "a", "b"), Ok(Verdict::Allow));
    }

    #[test]
    fn a_rule_that_can_not_be_read_denies() {
        for pattern in [
            "",
            "files/x",
            "@files",
            "@/x",
            "@files/",
            "@f*s/x",
            "@files/a*b",
        ] {
            let list = rules(&[(pattern, Verdict::Allow)]);
            assert!(judge(&list, "files", "x").is_err(), "{pattern}");
        }
    }
}
