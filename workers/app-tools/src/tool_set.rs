//! What an endpoint serves.

use rmcp::model::{CallToolResult, ProgressNotificationParam, ProgressToken, Tool};
use rmcp::{Peer, RoleServer};
use serde_json::{Map, Value};
use std::future::Future;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// One piece of an answer: text, a picture, sound, a resource.
pub use rmcp::model::ContentBlock as Content;

/// Longest block of text in an answer, in characters; a longer text becomes several blocks.
pub const MAX_BLOCK_CHARS: usize = 10_000;

/// One tool as a client sees it.
#[derive(Debug, Clone)]
pub struct AppTool {
    name: String,
    description: String,
    input_schema: Map<String, Value>,
}

impl AppTool {
    /// A tool that takes what `input_schema`, a JSON Schema of an object, says. A schema that is
    /// no JSON object becomes the one that takes no argument.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        let input_schema = match input_schema {
            Value::Object(schema) => schema,
            _ => Map::from_iter([
                ("type".to_owned(), Value::from("object")),
                ("additionalProperties".to_owned(), Value::from(false)),
            ]),
        };
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
        }
    }

    pub(crate) fn into_tool(self) -> Tool {
        Tool::new(self.name, self.description, Arc::new(self.input_schema))
    }
}

/// One call of a tool. The name is one of [`ToolSet::tools`]; the arguments are as the client sent
/// them, at most [`crate::MAX_BODY`] bytes, and were checked against no schema.
#[derive(Debug)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Tells the client how far the work is.
    pub progress: Progress,
    /// The client gave up, or the endpoint closes: whoever still works works for nobody.
    pub cancelled: CancellationToken,
}

/// Reports progress to the client of one call, if it asked for that.
#[derive(Debug, Clone)]
pub struct Progress(pub(crate) Option<(Peer<RoleServer>, ProgressToken)>);

impl Progress {
    /// Reports that `done` of `total` is behind us. A client that is gone is noticed elsewhere.
    pub async fn report(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        let Some((peer, token)) = &self.0 else { return };
        let mut report = ProgressNotificationParam::new(token.clone(), done);
        report.total = total;
        report.message = message.map(str::to_owned);
        let _ = peer.notify_progress(report).await;
    }
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its pieces, in order.
    pub content: Vec<Content>,
    /// True when the tool did not do what was asked.
    pub is_error: bool,
}

impl Answer {
    /// A text, in blocks of at most [`MAX_BLOCK_CHARS`].
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self {
            content: blocks(text).map(Content::text).collect(),
            is_error: false,
        }
    }

    /// The same, of a call that failed.
    #[must_use]
    pub fn error(text: &str) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        if self.is_error {
            CallToolResult::error(self.content)
        } else {
            CallToolResult::success(self.content)
        }
    }
}

/// The pieces of a text, in order and without loss. An empty text is one empty piece.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        match text.char_indices().nth(MAX_BLOCK_CHARS) {
            Some((end, _)) => {
                rest = Some(&text[end..]);
                Some(&text[..end])
            }
            None => Some(text),
        }
    })
}

/// The tools that one request offers.
pub trait ToolSet: Send + Sync + 'static {
    /// Name of the MCP server, such as `mono-agent-reply-artifacts`.
    fn server_name(&self) -> &str;

    /// The tools. Asked once, when the endpoint opens.
    fn tools(&self) -> Vec<AppTool>;

    /// Calls one of them. What goes wrong is told in the answer.
    fn call(&self, call: Call) -> impl Future<Output = Answer> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_is_cut_at_ten_thousand_characters_and_not_bytes() {
        let table = [
            (0, 1),
            (1, 1),
            (10_000, 1),
            (10_001, 2),
            (20_000, 2),
            (20_001, 3),
        ];
        for (characters, expected) in table {
            let answer = Answer::text(&"ä".repeat(characters));
            assert_eq!(answer.content.len(), expected, "{characters}");
            for block in &answer.content {
                let text = block.as_text().map(|text| text.text.chars().count());
                assert!(text.is_some_and(|count| count <= MAX_BLOCK_CHARS));
            }
        }
    }

    #[test]
    fn a_schema_that_is_none_takes_nothing() {
        let tool = AppTool::new("x", "y", Value::from(1)).into_tool();
        assert_eq!(
            tool.input_schema.get("additionalProperties"),
            Some(&Value::from(false))
        );
    }

    proptest! {
        #[test]
        fn blocks_lose_nothing(text in "[a-zä€𝄞]{0,64}", times in 1_usize..700) {
            let text = text.repeat(times);
            let joined: String = blocks(&text).collect();
            prop_assert_eq!(joined, text);
        }
    }
}
