//! Which of the agent's own tools a run may use (facts 4.2; spec s3, "External MCP tools are NOT
//! gated by tools.allowedTools").
//!
//! Pure: a policy and a name in, a verdict out. Tools of external MCP servers never come here;
//! that their server is declared is what makes them available.

use std::collections::HashSet;

/// Everything, in either list.
const ALL: &str = "*";
/// Deprecated names that a policy may still use, and what they mean. Never shown to the model.
const ALIASES: [(&str, &str); 2] = [
    ("run_history", "RunHistory"),
    ("session_history", "SessionHistory"),
];

/// Why two lists are no policy. The code is fixed: `invalid_tool_policy`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PolicyError {
    /// One name twice in one list.
    #[error("invalid_tool_policy: {list} names {name:?} twice; keep one")]
    Duplicate {
        /// The configuration key.
        list: &'static str,
        /// The name, aliases resolved.
        name: String,
    },
    /// One name allowed and denied.
    #[error(
        "invalid_tool_policy: {name:?} is in tools.allowedTools and in tools.disallowedTools; keep one"
    )]
    InBoth {
        /// The name, aliases resolved.
        name: String,
    },
}

/// A tool that the policy can decide about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gated<'a> {
    /// The name that the model sees, such as `Bash`.
    pub name: &'a str,
    /// The app-owned server it counts as, such as `mono-agent-reply-artifacts`; none for a
    /// built-in.
    pub server: Option<&'a str>,
}

/// What `tools.allowedTools` lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Allowed {
    All,
    Only(HashSet<String>),
}

/// The decided lists of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPolicy {
    allowed: Allowed,
    denied: HashSet<String>,
}

impl Default for ToolPolicy {
    /// Composition without a policy fails closed: nothing is allowed.
    fn default() -> Self {
        Self {
            allowed: Allowed::Only(HashSet::new()),
            denied: HashSet::new(),
        }
    }
}

impl ToolPolicy {
    /// Makes a policy of the two configured lists. `allowed` is `None` when the key was left out,
    /// which means everything; an empty list means nothing.
    ///
    /// # Errors
    /// `invalid_tool_policy` for a name twice in a list or in both. `*` may stand in both: denying
    /// everything under the default of allowing everything is how all tools are switched off.
    pub fn new(allowed: Option<&[String]>, denied: &[String]) -> Result<Self, PolicyError> {
        let denied = unique("tools.disallowedTools", denied)?;
        let allowed = match allowed {
            None => Allowed::All,
            Some(list) => {
                let names = unique("tools.allowedTools", list)?;
                if let Some(name) = list
                    .iter()
                    .map(|name| canonical(name))
                    .find(|name| *name != ALL && denied.contains(*name))
                {
                    return Err(PolicyError::InBoth {
                        name: name.to_owned(),
                    });
                }
                if names.contains(ALL) {
                    Allowed::All
                } else {
                    Allowed::Only(names)
                }
            }
        };
        Ok(Self { allowed, denied })
    }

    /// Whether a built-in or app-owned tool is offered and may be called. Denial always wins.
    #[must_use]
    pub fn permits(&self, tool: Gated<'_>) -> bool {
        !matches_any(&self.denied, tool)
            && match &self.allowed {
                Allowed::All => true,
                Allowed::Only(names) => matches_any(names, tool),
            }
    }
}

fn canonical(name: &str) -> &str {
    ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, real)| real)
}

fn unique(list: &'static str, names: &[String]) -> Result<HashSet<String>, PolicyError> {
    let mut seen = HashSet::with_capacity(names.len());
    for name in names {
        let name = canonical(name);
        if !seen.insert(name.to_owned()) {
            return Err(PolicyError::Duplicate {
                list,
                name: name.to_owned(),
            });
        }
    }
    Ok(seen)
}

fn matches_any(names: &HashSet<String>, tool: Gated<'_>) -> bool {
    names.contains(ALL)
        || names.contains(tool.name)
        || tool.server.is_some_and(|server| {
            names.contains(&format!("mcp__{server}__{}", tool.name))
                || names.contains(&format!("mcp__{server}__*"))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const READ: Gated<'_> = Gated {
        name: "Read",
        server: None,
    };
    const BASH: Gated<'_> = Gated {
        name: "Bash",
        server: None,
    };
    const PUBLISH: Gated<'_> = Gated {
        name: "PublishReplyFile",
        server: Some("mono-agent-reply-artifacts"),
    };
    const HISTORY: Gated<'_> = Gated {
        name: "RunHistory",
        server: Some("mono-agent-run-history"),
    };

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn lists_decide_as_the_table_says() {
        let publish_full = "mcp__mono-agent-reply-artifacts__PublishReplyFile";
        let publish_server = "mcp__mono-agent-reply-artifacts__*";
        // (allowed, denied, tool, permitted)
        type Case<'a> = (Option<&'a [&'a str]>, &'a [&'a str], Gated<'a>, bool);
        let table: &[Case<'_>] = &[
            (None, &[], READ, true),
            (Some(&["*"]), &[], READ, true),
            (Some(&["Bash", "*"]), &[], READ, true),
            (Some(&["Read"]), &[], READ, true),
            (Some(&["Read"]), &[], BASH, false),
            (Some(&["read"]), &[], READ, false),
            (Some(&[]), &[], READ, false),
            (Some(&[]), &[], PUBLISH, false),
            (None, &["Bash"], BASH, false),
            (None, &["Bash"], READ, true),
            (Some(&["*"]), &["*"], READ, false),
            (None, &["*"], PUBLISH, false),
            (None, &[publish_full], PUBLISH, false),
            (None, &[publish_server], PUBLISH, false),
            (
                None,
                &["mcp__mono-agent-reply-artifacts__Other"],
                PUBLISH,
                true,
            ),
            (None, &["mcp__other__*"], PUBLISH, true),
            (Some(&[publish_full]), &[], PUBLISH, true),
            (Some(&[publish_server]), &[], PUBLISH, true),
            (
                Some(&["PublishReplyFile"]),
                &[publish_server],
                PUBLISH,
                false,
            ),
            (Some(&["run_history"]), &[], HISTORY, true),
            (None, &["run_history"], HISTORY, false),
            (
                None,
                &["memory_journal"],
                Gated {
                    name: "MemoryJournal",
                    server: None,
                },
                true,
            ),
        ];
        for (allowed, denied, tool, expected) in table {
            let allowed_list = allowed.map(owned);
            let policy = ToolPolicy::new(allowed_list.as_deref(), &owned(denied)).unwrap();
            assert_eq!(
                policy.permits(*tool),
                *expected,
                "{allowed:?} {denied:?} {tool:?}"
            );
        }
    }

    #[test]
    fn no_policy_allows_nothing() {
        assert!(!ToolPolicy::default().permits(READ));
        assert!(!ToolPolicy::default().permits(PUBLISH));
    }

    #[test]
    fn contradictions_are_refused() {
        type Case<'a> = (Option<&'a [&'a str]>, &'a [&'a str], PolicyError);
        let duplicate = |list, name: &str| PolicyError::Duplicate {
            list,
            name: name.to_owned(),
        };
        let both = |name: &str| PolicyError::InBoth {
            name: name.to_owned(),
        };
        let table: &[Case<'_>] = &[
            (
                Some(&["Read", "Read"]),
                &[],
                duplicate("tools.allowedTools", "Read"),
            ),
            (
                None,
                &["Bash", "Bash"],
                duplicate("tools.disallowedTools", "Bash"),
            ),
            (Some(&["Read"]), &["Read"], both("Read")),
            (Some(&["*", "Read"]), &["Read"], both("Read")),
            (
                Some(&["run_history", "RunHistory"]),
                &[],
                duplicate("tools.allowedTools", "RunHistory"),
            ),
            (Some(&["RunHistory"]), &["run_history"], both("RunHistory")),
        ];
        for (allowed, denied, expected) in table {
            let allowed_list = allowed.map(owned);
            let error = ToolPolicy::new(allowed_list.as_deref(), &owned(denied)).unwrap_err();
            assert_eq!(error, *expected);
            assert!(error.to_string().starts_with("invalid_tool_policy"));
        }
    }

    proptest! {
        #[test]
        fn a_denied_name_is_never_permitted(
            allowed in proptest::option::of(proptest::collection::hash_set("[A-C]{1,2}|\\*", 0..4)),
            denied in proptest::collection::hash_set("[A-C]{1,2}|\\*", 0..4),
            name in "[A-C]{1,2}",
        ) {
            let allowed: Option<Vec<String>> = allowed.map(|set| set.into_iter().collect());
            let denied: Vec<String> = denied.into_iter().collect();
            if let Ok(policy) = ToolPolicy::new(allowed.as_deref(), &denied) {
                let permitted = policy.permits(Gated { name: &name, server: None });
                let is_denied = denied.iter().any(|entry| entry == "*" || *entry == name);
                let is_allowed = allowed.is_none_or(|list| list.iter().any(|entry| entry == "*" || *entry == name));
                prop_assert_eq!(permitted, is_allowed && !is_denied);
            }
        }
    }
}
