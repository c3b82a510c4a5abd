//! What a tool of an MCP server is called towards the model (facts 4.1, "Tool naming for MCP").
//!
//! The bare name, or `mcp__<server>__<tool>` when the bare name is one of the agent's own tools
//! or another server has it too. Model interfaces take `[a-zA-Z0-9_-]{1,64}` only, so a name
//! outside that is rewritten and gets a hash of the original, which keeps it unique and the same
//! from turn to turn whatever order the servers answered in.

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Longest tool name that every model interface takes, in bytes.
pub const MAX_NAME: usize = 64;
/// Hex digits of the hash in a rewritten name.
const HASH_DIGITS: usize = 8;

/// A tool of an MCP server, as the server names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// The configured server name.
    pub server: String,
    /// The tool's name in that server's listing.
    pub tool: String,
}

/// Model-facing name → where a call goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    by_name: BTreeMap<String, Origin>,
}

impl Names {
    /// Names every tool. `reserved` are the names of the agent's own tools, offered or not: a
    /// denied `Bash` must not come back under that name from a server.
    ///
    /// A server that lists one name twice gets it once.
    #[must_use]
    pub fn assign(tools: &[Origin], reserved: &HashSet<&str>) -> Self {
        let tools: std::collections::BTreeSet<&Origin> = tools.iter().collect();
        let mut owners: HashMap<&str, usize> = HashMap::new();
        for origin in &tools {
            *owners.entry(&origin.tool).or_default() += 1;
        }
        let mut names = Self::default();
        let (bare, qualified): (Vec<&Origin>, Vec<&Origin>) = tools.iter().partition(|origin| {
            owners.get(origin.tool.as_str()) == Some(&1) && !reserved.contains(origin.tool.as_str())
        });
        // Bare names first: a tool that happens to be called `mcp__a__b` keeps its name, and the
        // generated one beside it takes the hash.
        for origin in bare {
            names.insert(&origin.tool, origin, reserved);
        }
        for origin in qualified {
            names.insert(
                &format!("mcp__{}__{}", origin.server, origin.tool),
                origin,
                reserved,
            );
        }
        names
    }

    fn insert(&mut self, wanted: &str, origin: &Origin, reserved: &HashSet<&str>) {
        let free = |name: &str| !self.by_name.contains_key(name) && !reserved.contains(name);
        let name = if is_safe(wanted) && free(wanted) {
            wanted.to_owned()
        } else {
            hashed(wanted, origin)
        };
        // Two equal hashed names need a collision of 32 bits inside one listing; the later tool is
        // then left out rather than answered by the wrong server.
        self.by_name.entry(name).or_insert_with(|| origin.clone());
    }

    /// Where a call of this name goes.
    #[must_use]
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.by_name.get(name)
    }

    /// Every name with its origin, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Origin)> {
        self.by_name
            .iter()
            .map(|(name, origin)| (name.as_str(), origin))
    }
}

fn is_safe(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_safe_byte)
}

fn is_safe_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn hashed(wanted: &str, origin: &Origin) -> String {
    let mut digest = Sha256::new();
    digest.update(origin.server.as_bytes());
    // No server or tool name that came as JSON text can hide a border: both are hashed with it.
    digest.update([0]);
    digest.update(origin.tool.as_bytes());
    let hash: String = digest
        .finalize()
        .iter()
        .take(HASH_DIGITS / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let head: String = wanted
        .chars()
        .map(|c| {
            if c.is_ascii() && is_safe_byte(c as u8) {
                c
            } else {
                '_'
            }
        })
        .take(MAX_NAME - HASH_DIGITS - 1)
        .collect();
    format!("{head}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn origin(server: &str, tool: &str) -> Origin {
        Origin {
            server: server.to_owned(),
            tool: tool.to_owned(),
        }
    }

    fn assigned(tools: &[(&str, &str)]) -> Vec<(String, Origin)> {
        let tools: Vec<Origin> = tools
            .iter()
            .map(|(server, tool)| origin(server, tool))
            .collect();
        let names = Names::assign(&tools, &HashSet::from(["Bash", "Read"]));
        names
            .iter()
            .map(|(name, origin)| (name.to_owned(), origin.clone()))
            .collect()
    }

    #[test]
    fn bare_unless_it_collides() {
        let names = assigned(&[("a", "echo"), ("a", "add"), ("b", "add"), ("b", "Bash")]);
        assert_eq!(
            names,
            [
                ("echo".to_owned(), origin("a", "echo")),
                ("mcp__a__add".to_owned(), origin("a", "add")),
                ("mcp__b__Bash".to_owned(), origin("b", "Bash")),
                ("mcp__b__add".to_owned(), origin("b", "add")),
            ]
        );
    }

    #[test]
    fn a_name_listed_twice_by_one_server_is_one_tool() {
        assert_eq!(
            assigned(&[("a", "x"), ("a", "x")]),
            [("x".to_owned(), origin("a", "x"))]
        );
    }

    #[test]
    fn borders_inside_names_cant_mix_up_two_servers() {
        let names = assigned(&[("a__b", "c"), ("a", "b__c"), ("z", "c"), ("z", "b__c")]);
        let origins: HashSet<&Origin> = names.iter().map(|(_, origin)| origin).collect();
        assert_eq!((names.len(), origins.len()), (4, 4), "{names:?}");
    }

    #[test]
    fn a_tool_that_looks_generated_keeps_its_name_and_the_generated_one_moves() {
        let names = assigned(&[("a", "x"), ("b", "x"), ("c", "mcp__a__x")]);
        let bare = names
            .iter()
            .find(|(name, _)| name == "mcp__a__x")
            .map(|(_, origin)| origin);
        assert_eq!(bare, Some(&origin("c", "mcp__a__x")));
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn a_dotted_or_long_name_is_rewritten_and_stays_the_same() {
        let long = "t".repeat(80);
        let one = assigned(&[("a", "files.read"), ("a", &long), ("a", "")]);
        assert_eq!(
            one,
            assigned(&[("a", ""), ("a", &long), ("a", "files.read")])
        );
        assert!(
            one.iter()
                .any(|(name, _)| name.starts_with("files_read_") && name.len() == 19)
        );
        assert!(one.iter().any(|(name, _)| name.len() == MAX_NAME));
    }

    proptest! {
        #[test]
        fn every_name_is_safe_unique_and_leads_back(
            tools in proptest::collection::vec((".{0,70}", ".{0,70}"), 0..12),
        ) {
            let tools: Vec<Origin> = tools.iter().map(|(s, t)| origin(s, t)).collect();
            let reserved = HashSet::from(["Bash"]);
            let names = Names::assign(&tools, &reserved);
            let distinct: HashSet<&Origin> = tools.iter().collect();
            prop_assert_eq!(names.iter().count(), distinct.len());
            for (name, origin) in names.iter() {
                prop_assert!(is_safe(name), "{}", name);
                prop_assert!(!reserved.contains(name));
                prop_assert!(distinct.contains(origin));
            }
        }
    }
}
