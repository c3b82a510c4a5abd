//! The neutral model conversation, as JSON inside a [`crate::Body`].
//!
//! Providers' own wires are the business of `egress` alone.

use serde::{Deserialize, Serialize};

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// The person, or the results of tools.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who said it.
    pub role: ChatRole,
    /// Its content in order.
    pub content: Vec<Block>,
}

impl ChatMessage {
    /// A message of one text block.
    #[must_use]
    pub fn text(role: ChatRole, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![Block::Text { text: text.into() }],
        }
    }

    /// All text blocks joined by nothing.
    #[must_use]
    pub fn plain_text(&self) -> String {
        self.content
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// An inline image.
    Image {
        /// `image/png` and the like.
        media_type: String,
        /// Base64 of the bytes.
        data: String,
    },
    /// The model asks for a tool.
    ToolUse {
        /// The model's id of the call.
        id: String,
        /// The exposed tool name.
        name: String,
        /// The arguments as JSON text, exactly as the model wrote them.
        arguments: String,
    },
    /// A tool's answer.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The exposed tool name.
        name: String,
        /// Text and images.
        content: Vec<Block>,
        /// True when the tool failed.
        is_error: bool,
    },
}

/// A tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Exposed name, `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: serde_json::Value,
}

/// What a run asks of a model. The model chain, the retries and the keys are in `egress`'s settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// `<provider>:<model>` that replaces the configured chain's first entry; it must be one that
    /// the configuration names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reasoning effort, as `runtime.effort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The assembled system prompt.
    pub system: String,
    /// The conversation, oldest first; the last one is the person's or tools' results.
    pub messages: Vec<ChatMessage>,
    /// Tools on offer; empty for none.
    pub tools: Vec<ToolSpec>,
    /// Names of tools whose arguments are wanted as they come, beside the whole call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streamed: Vec<String>,
    /// Most tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
}

/// Largest model request body in bytes (64 messages of 64 KiB, tools, images).
pub const MAX_MODEL_REQUEST: usize = 64 * 1024 * 1024;

/// Tokens and cost of a run or a model call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Prompt tokens.
    pub input: u64,
    /// Answer tokens.
    pub output: u64,
    /// Prompt tokens read from a cache.
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    pub cache_creation: u64,
    /// Cost in US dollars where the provider says it.
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Adds another call's usage.
    pub fn add(&mut self, other: &Usage) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_creation += other.cache_creation;
        if let Some(cost) = other.cost_usd {
            self.cost_usd = Some(self.cost_usd.unwrap_or(0.0) + cost);
        }
    }
}

/// One step away from the first choice of model, kept in the run (`failoverHistory`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// `<provider>:<model>` that failed.
    pub model: String,
    /// The failure class, e.g. `rate_limited`.
    pub failure_kind: String,
    /// Attempts made with it.
    pub attempts: u32,
}
