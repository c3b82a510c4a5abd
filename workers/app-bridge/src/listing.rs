//! The tools of one server, gathered page by page within bounds. No I/O.

use crate::apps::meta::{Visibility, page, visibility};
use crate::error::Warning;
use crate::limits::{Limits, TOOL_NAME_MAX, printable};
use ipc_proto::edges::app_bridge::McpTool;
use ipc_proto::text::cut;
use rmcp::model::Tool;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What to do after a page.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Page(String),
    Done,
}

/// A tool as its server declares it, whoever may call it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The server's name of it.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// What it does, cut.
    pub description: String,
    /// JSON Schema of the arguments, as the server wrote it.
    pub schema: Value,
    /// Who may call it.
    pub visibility: Visibility,
    /// The page that shows its results, if it declares a valid one.
    pub page: Option<String>,
}

/// A whole listing.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    /// What the model may call.
    pub tools: Vec<McpTool>,
    /// What the person should know about the rest.
    pub warnings: Vec<Warning>,
    /// Every tool.
    pub declared: Arc<Vec<Declared>>,
}

/// The listing of one server while it grows.
pub struct Listing<'a> {
    server: &'a str,
    limits: &'a Limits,
    names: BTreeSet<String>,
    tools: Vec<McpTool>,
    declared: Vec<Declared>,
    bytes: usize,
    pages: usize,
    cursors: BTreeSet<String>,
    refused: Vec<String>,
    truncated: Option<String>,
}

impl<'a> Listing<'a> {
    pub fn new(server: &'a str, limits: &'a Limits) -> Self {
        Self {
            server,
            limits,
            names: BTreeSet::new(),
            tools: Vec::new(),
            declared: Vec::new(),
            bytes: 0,
            pages: 0,
            cursors: BTreeSet::new(),
            refused: Vec::new(),
            truncated: None,
        }
    }

    /// Takes one page. A server that never ends its list, or repeats a cursor, is cut off with
    /// what it has given so far.
    pub fn page(&mut self, tools: Vec<Tool>, next_cursor: Option<String>) -> Next {
        self.pages += 1;
        for tool in tools {
            if self.truncated.is_none() {
                self.take(tool);
            }
        }
        let Some(cursor) = next_cursor.filter(|_| self.truncated.is_none()) else {
            return Next::Done;
        };
        if self.pages >= self.limits.pages {
            self.truncated = Some(format!("more than {} pages", self.limits.pages));
            return Next::Done;
        }
        if !self.cursors.insert(cursor.clone()) {
            self.truncated = Some("a page that was given before".to_owned());
            return Next::Done;
        }
        Next::Page(cursor)
    }

    fn take(&mut self, tool: Tool) {
        let name = tool.name.to_string();
        if let Err(reason) = self.acceptable(&name) {
            self.refused
                .push(format!("{} ({reason})", printable(&name, TOOL_NAME_MAX)));
            return;
        }
        let schema = Value::Object(Arc::unwrap_or_clone(tool.input_schema));
        let schema_size = size(&schema);
        if schema_size > self.limits.schema {
            self.refused.push(format!(
                "{name} (its schema is {schema_size} bytes, more than {})",
                self.limits.schema
            ));
            return;
        }
        let description = tool.description.as_deref().unwrap_or_default();
        let meta = tool.meta.as_ref().map(|meta| &meta.0);
        let declared = Declared {
            name: name.clone(),
            title: tool.title,
            description: cut(description, self.limits.description).to_owned(),
            schema,
            visibility: visibility(meta),
            page: page(meta).unwrap_or_default(),
        };
        let mut info = McpTool {
            server: self.server.to_owned(),
            tool: name.clone(),
            description: cut(description, self.limits.description).to_owned(),
            input_schema: Value::Null,
            read_only: tool
                .annotations
                .and_then(|hints| hints.read_only_hint)
                .unwrap_or(false),
            app: declared.page.is_some(),
        };
        let bytes = self.bytes + size(&info) - size(&Value::Null) + schema_size;
        if self.declared.len() >= self.limits.tools {
            self.truncated = Some(format!("more than {} tools", self.limits.tools));
        } else if bytes > self.limits.listing {
            self.truncated = Some(format!("more than {} bytes", self.limits.listing));
        } else {
            self.bytes = bytes;
            self.names.insert(name);
            // What its server keeps from the model stays away from it, whether apps are shown here
            // or not.
            if declared.visibility.model {
                // As the server wrote it: no `$ref` is fetched, no keyword is dropped.
                info.input_schema = declared.schema.clone();
                self.tools.push(info);
            }
            self.declared.push(declared);
        }
    }

    fn acceptable(&self, name: &str) -> Result<(), &'static str> {
        if name.is_empty() || name.len() > TOOL_NAME_MAX {
            return Err("its name is empty or too long");
        }
        if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("its name holds blanks or control characters");
        }
        if self.names.contains(name) {
            return Err("the server lists it twice");
        }
        Ok(())
    }

    /// The tools in the server's order, and what the person should know about the rest.
    pub fn finish(self) -> Listed {
        let mut warnings = Vec::new();
        if !self.refused.is_empty() {
            let text = format!("left out: {}", self.refused.join(", "));
            warnings.push(Warning::new("mcp_tool_refused", self.server, text, None));
        }
        if let Some(what) = self.truncated {
            let text = format!(
                "its list has {what}; the first {} tools are used",
                self.declared.len()
            );
            warnings.push(Warning::new("mcp_tools_truncated", self.server, text, None));
        }
        Listed {
            tools: self.tools,
            warnings,
            declared: Arc::new(self.declared),
        }
    }
}

/// Bytes of `value` as JSON, without building it.
pub fn size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            self.0 += buf.len();
            Ok(buf.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // A value that has no JSON form fits nowhere.
        Err(_) => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn tool(name: &str) -> Tool {
        serde_json::from_value(
            json!({ "name": name, "description": "d", "inputSchema": { "type": "object" } }),
        )
        .unwrap()
    }

    fn limits() -> Limits {
        Limits::default()
    }

    fn names(tools: &[McpTool]) -> Vec<&str> {
        tools.iter().map(|tool| tool.tool.as_str()).collect()
    }

    #[test]
    fn pages_are_joined_in_order() {
        let limits = limits();
        let mut listing = Listing::new("s", &limits);
        let next = listing.page(vec![tool("b")], Some("2".into()));
        assert_eq!(next, Next::Page("2".into()));
        assert_eq!(listing.page(vec![tool("a")], None), Next::Done);
        let Listed {
            tools, warnings, ..
        } = listing.finish();
        assert_eq!(names(&tools), ["b", "a"]);
        assert!(warnings.is_empty());
    }

    #[test]
    fn the_model_is_told_of_no_tool_that_is_for_apps_alone() {
        let limits = limits();
        let with = |name: &str, visibility: Value| {
            let mut tool = tool(name);
            tool.meta =
                serde_json::from_value(json!({ "ui": { "visibility": visibility } })).unwrap();
            tool
        };
        let mut listing = Listing::new("s", &limits);
        let page = vec![
            tool("both"),
            with("app", json!(["app"])),
            with("model", json!(["model"])),
            with("odd", json!(["model", "x"])),
            // A name that is hidden is taken all the same.
            tool("app"),
        ];
        assert_eq!(listing.page(page, None), Next::Done);
        let Listed {
            tools,
            warnings,
            declared,
        } = listing.finish();
        assert_eq!(names(&tools), ["both", "model"]);
        let all: Vec<_> = declared.iter().map(|tool| &*tool.name).collect();
        assert_eq!(all, ["both", "app", "model", "odd"]);
        assert!(warnings[0].message.contains("twice"));
    }

    #[test]
    fn a_list_without_end_is_cut_at_the_page_limit() {
        let limits = limits();
        let mut listing = Listing::new("s", &limits);
        let mut asked = 0;
        let mut next = Next::Page("start".into());
        while let Next::Page(_) = next {
            asked += 1;
            next = listing.page(vec![tool(&format!("t{asked}"))], Some(format!("{asked}")));
        }
        let Listed {
            tools, warnings, ..
        } = listing.finish();
        assert_eq!((asked, tools.len()), (limits.pages, limits.pages));
        assert_eq!(warnings[0].code, "mcp_tools_truncated");
    }

    #[test]
    fn a_repeated_cursor_ends_the_list() {
        let limits = limits();
        let mut listing = Listing::new("s", &limits);
        assert_eq!(
            listing.page(vec![], Some("x".into())),
            Next::Page("x".into())
        );
        assert_eq!(listing.page(vec![], Some("x".into())), Next::Done);
        assert_eq!(listing.finish().warnings[0].code, "mcp_tools_truncated");
    }

    #[test]
    fn the_tools_beyond_the_limit_are_left_out_with_one_warning() {
        let limits = limits();
        let mut listing = Listing::new("s", &limits);
        let many = (0..=limits.tools).map(|n| tool(&format!("t{n}"))).collect();
        assert_eq!(listing.page(many, Some("more".into())), Next::Done);
        let Listed {
            tools, warnings, ..
        } = listing.finish();
        assert_eq!((tools.len(), warnings.len()), (limits.tools, 1));
    }

    #[test]
    fn the_whole_list_is_bounded_in_bytes() {
        let limits = Limits {
            listing: 300,
            ..limits()
        };
        let mut listing = Listing::new("s", &limits);
        let next = listing.page((0..9).map(|n| tool(&format!("t{n}"))).collect(), None);
        assert_eq!(next, Next::Done);
        let Listed {
            tools, warnings, ..
        } = listing.finish();
        assert!(tools.len() < 9 && size(&tools) <= 300 + 2 + tools.len());
        assert_eq!(warnings[0].code, "mcp_tools_truncated");
    }

    #[test]
    fn a_tool_with_a_bad_name_or_a_huge_schema_is_refused_and_the_rest_stays() {
        let limits = Limits {
            schema: 64,
            ..limits()
        };
        let mut huge = tool("huge");
        huge.input_schema = std::sync::Arc::new(
            json!({ "type": "object", "description": "x".repeat(64) })
                .as_object()
                .unwrap()
                .clone(),
        );
        let bad = ["", "a b", "a\nb", &"n".repeat(129), "ok"];
        let mut tools: Vec<Tool> = vec![huge, tool("ok")];
        tools.extend(bad.iter().map(|name| tool(name)));
        let mut listing = Listing::new("s", &limits);
        assert_eq!(listing.page(tools, None), Next::Done);
        let Listed {
            tools, warnings, ..
        } = listing.finish();
        assert_eq!(names(&tools), ["ok"]);
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].code, "mcp_tool_refused");
        assert!(warnings[0].message.contains("huge"), "{warnings:?}");
    }

    #[test]
    fn a_long_description_is_cut() {
        let limits = Limits {
            description: 5,
            ..limits()
        };
        let mut long = tool("t");
        long.description = Some("äöüß".into());
        let mut listing = Listing::new("s", &limits);
        assert_eq!(listing.page(vec![long], None), Next::Done);
        assert_eq!(listing.finish().tools[0].description, "äö");
    }

    #[test]
    fn a_schema_passes_unchanged() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": { "x": { "$anchor": "a" } },
            "$ref": "https://example.invalid/never-fetched",
            "unevaluatedProperties": false
        });
        let mut odd = tool("t");
        odd.input_schema = std::sync::Arc::new(schema.as_object().unwrap().clone());
        let limits = limits();
        let mut listing = Listing::new("s", &limits);
        assert_eq!(listing.page(vec![odd], None), Next::Done);
        assert_eq!(listing.finish().tools[0].input_schema, schema);
    }
}
