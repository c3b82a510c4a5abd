//! The tools on offer in one turn: the agent's own that the policy permits, and the MCP servers'.

use crate::naming::{Names, Origin};
use crate::policy::ToolPolicy;
use crate::tools::Builtin;
use ipc_proto::chat::ToolSpec;
use ipc_proto::edges::app_bridge::McpTool;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Names listed when a call names none that exists and nothing is like it.
const LISTED: usize = 30;
/// How alike two names must be to be suggested (Jaro-Winkler).
const ALIKE: f64 = 0.75;
/// Bytes of a server's description of a tool.
const MAX_DESCRIPTION: usize = 8 * 1024;

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// One of the agent's own tools.
    Builtin(Builtin),
    /// A tool of an MCP server.
    Mcp(Origin),
}

impl Target {
    /// True when calls of one batch must run one after the other (facts 3.6).
    #[must_use]
    pub const fn is_sequential(&self) -> bool {
        match self {
            Self::Builtin(tool) => tool.mutates(),
            Self::Mcp(_) => true,
        }
    }
}

/// The tools of one turn.
#[derive(Debug)]
pub struct Catalog {
    specs: Vec<ToolSpec>,
    targets: HashMap<String, Target>,
    /// Tools of servers that declare a page.
    shown: HashSet<String>,
}

impl Catalog {
    /// Decides what is offered. The servers' tools are not asked of the policy (spec s3).
    #[must_use]
    pub fn new(policy: &ToolPolicy, listed: &[McpTool]) -> Self {
        let mut catalog = Self {
            specs: Vec::new(),
            targets: HashMap::new(),
            shown: HashSet::new(),
        };
        for tool in Builtin::ALL
            .into_iter()
            .filter(|tool| policy.permits(tool.gated()))
        {
            catalog.add(tool.spec(), Target::Builtin(tool));
        }
        let origin = |tool: &McpTool| Origin {
            server: tool.server.clone(),
            tool: tool.tool.clone(),
        };
        let origins: Vec<Origin> = listed.iter().map(origin).collect();
        let reserved: HashSet<&str> = Builtin::ALL.into_iter().map(Builtin::name).collect();
        let by_origin: HashMap<Origin, &McpTool> = origins.iter().cloned().zip(listed).collect();
        for (name, origin) in Names::assign(&origins, &reserved).iter() {
            if let Some(tool) = by_origin.get(origin) {
                let spec = ToolSpec {
                    name: name.to_owned(),
                    description: ipc_proto::text::cut(&tool.description, MAX_DESCRIPTION)
                        .to_owned(),
                    input_schema: object_schema(&tool.input_schema),
                };
                if tool.app {
                    catalog.shown.insert(name.to_owned());
                }
                catalog.add(spec, Target::Mcp(origin.clone()));
            }
        }
        catalog
    }

    fn add(&mut self, spec: ToolSpec, target: Target) {
        self.targets.insert(spec.name.clone(), target);
        self.specs.push(spec);
    }

    /// What the model is offered.
    #[must_use]
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// Names of the tools whose results a page shows, in order.
    #[must_use]
    pub fn all_shown(&self) -> Vec<String> {
        let names = self.specs.iter().map(|spec| &spec.name);
        names
            .filter(|name| self.shown.contains(*name))
            .cloned()
            .collect()
    }

    /// The tool of this name, if a page shows its results.
    #[must_use]
    pub fn shown(&self, name: &str) -> Option<&Origin> {
        match self.targets.get(name) {
            Some(Target::Mcp(origin)) if self.shown.contains(name) => Some(origin),
            _ => None,
        }
    }

    /// Where a call of this name goes.
    ///
    /// # Errors
    /// A sentence for the model, with the name it may have meant.
    pub fn target(&self, name: &str) -> Result<&Target, String> {
        if let Some(target) = self.targets.get(name) {
            return Ok(target);
        }
        if Builtin::from_name(name).is_some() {
            return Err(format!(
                "{name} is not allowed by this agent's tool policy. Do without it."
            ));
        }
        let shown: String = ipc_proto::text::cut(name, 100)
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        let alike = self
            .specs
            .iter()
            .map(|spec| {
                (
                    strsim::jaro_winkler(&spec.name.to_lowercase(), &shown.to_lowercase()),
                    &spec.name,
                )
            })
            .filter(|(score, _)| *score >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        Err(match alike {
            Some((_, name)) => format!("There is no tool {shown:?}. Did you mean {name:?}?"),
            None if self.specs.is_empty() => {
                format!("There is no tool {shown:?}; no tools are on offer.")
            }
            None => {
                let names: Vec<&str> = self
                    .specs
                    .iter()
                    .take(LISTED)
                    .map(|spec| spec.name.as_str())
                    .collect();
                format!(
                    "There is no tool {shown:?}. On offer: {}.",
                    names.join(", ")
                )
            }
        })
    }
}

/// Model interfaces refuse a whole request for one schema that describes no object, so a server's
/// broken one is replaced by "any object".
fn object_schema(schema: &Value) -> Value {
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        schema.clone()
    } else {
        serde_json::json!({ "type": "object" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn mcp(server: &str, tool: &str) -> McpTool {
        McpTool {
            server: server.into(),
            tool: tool.into(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
            read_only: false,
            app: false,
        }
    }

    fn names(catalog: &Catalog) -> Vec<&str> {
        catalog
            .specs()
            .iter()
            .map(|spec| spec.name.as_str())
            .collect()
    }

    #[test]
    fn the_policy_gates_our_tools_and_no_servers() {
        let none = ToolPolicy::new(Some(&[]), &["*".to_owned()]).unwrap();
        assert_eq!(names(&Catalog::new(&none, &[mcp("a", "echo")])), ["echo"]);
        let all = ToolPolicy::new(None, &["Bash".to_owned()]).unwrap();
        let catalog = Catalog::new(&all, &[mcp("a", "Bash"), mcp("a", "echo")]);
        assert!(!names(&catalog).contains(&"Bash") && names(&catalog).contains(&"mcp__a__Bash"));
        assert!(catalog.target("Bash").unwrap_err().contains("policy"));
        let origin = Origin {
            server: "a".into(),
            tool: "Bash".into(),
        };
        assert_eq!(catalog.target("mcp__a__Bash"), Ok(&Target::Mcp(origin)));
    }

    #[test]
    fn a_tool_with_a_page_is_known_by_the_name_that_it_is_offered_under() {
        let shown = McpTool {
            app: true,
            ..mcp("b", "show")
        };
        let listed = [mcp("a", "show"), shown, mcp("a", "plain")];
        let catalog = Catalog::new(&ToolPolicy::default(), &listed);
        let [name] = &catalog.all_shown()[..] else {
            panic!("{:?}", catalog.all_shown())
        };
        assert_eq!(catalog.shown(name).map(|origin| &*origin.server), Some("b"));
        assert!(catalog.shown("plain").is_none() && catalog.shown("Bash").is_none());
    }

    #[test]
    fn a_schema_that_is_no_object_is_replaced() {
        let broken = McpTool {
            input_schema: json!("x"),
            ..mcp("a", "echo")
        };
        let catalog = Catalog::new(&ToolPolicy::default(), &[broken]);
        assert_eq!(catalog.specs()[0].input_schema, json!({"type": "object"}));
    }

    #[test]
    fn an_unknown_name_brings_a_suggestion_or_the_list() {
        let all = ToolPolicy::new(None, &[]).unwrap();
        let catalog = Catalog::new(&all, &[]);
        assert!(
            catalog
                .target("bash")
                .unwrap_err()
                .contains("Did you mean \"Bash\"?")
        );
        assert!(
            catalog
                .target("web_fetch")
                .unwrap_err()
                .contains("\"WebFetch\"")
        );
        assert!(
            catalog
                .target("zzz\n")
                .unwrap_err()
                .contains("On offer: Read, Write")
        );
        let empty = Catalog::new(&ToolPolicy::default(), &[]);
        assert!(empty.target("x").unwrap_err().contains("no tools"));
    }

    #[test]
    fn reading_goes_side_by_side_and_changing_one_by_one() {
        let sequential: Vec<&str> = Builtin::ALL
            .into_iter()
            .filter(|tool| Target::Builtin(*tool).is_sequential())
            .map(Builtin::name)
            .collect();
        assert_eq!(
            sequential,
            ["Write", "Edit", "Bash", "Exec", "PublishReplyFile"]
        );
        assert!(
            Target::Mcp(Origin {
                server: String::new(),
                tool: String::new()
            })
            .is_sequential()
        );
    }
}
