//! The three wires that model providers speak.
//!
//! Each wire is a pure function from a neutral request to a JSON body, and a pure incremental
//! parser from the bytes of the answer to text, thoughts and, at its end, tool calls. Nothing here
//! reads a clock or a socket, so every parser is tested by cutting recorded streams anywhere.

pub mod anthropic_messages;
mod assembly;
pub mod openai_chat;
pub mod openai_responses;

use crate::failure::{ErrorClass, Failure};
use crate::sse::{SseDecoder, SseEvent};
use ipc_proto::chat::{Block, ModelRequest, Usage};
use ipc_proto::edges::egress::FinishReason;
use ipc_proto::settings::Wire;
use serde_json::Value;
use std::collections::HashSet;

use assembly::Assembly;
pub use assembly::{MAX_ARGUMENTS, MAX_CALLS, MAX_NAME, MAX_STREAMED, MAX_TEXT};

/// Most bytes of one answer as they come from the network: keeps an endless stream of pings, or of
/// events that nothing is kept of, from running for ever.
pub const MAX_STREAM: u64 = 512 * 1024 * 1024;

/// A wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI chat completions; also Ollama, LM Studio and most compatible servers.
    OpenaiChat,
    /// OpenAI responses.
    OpenaiResponses,
    /// Anthropic messages.
    AnthropicMessages,
}

impl Api {
    /// The wire that a provider is configured for; `None` for the embedded demo model.
    #[must_use]
    pub fn of(wire: Wire) -> Option<Self> {
        match wire {
            Wire::OpenaiChat => Some(Self::OpenaiChat),
            Wire::OpenaiResponses => Some(Self::OpenaiResponses),
            Wire::AnthropicMessages => Some(Self::AnthropicMessages),
            Wire::Demo => None,
        }
    }

    /// The route below a provider's base address.
    #[must_use]
    pub fn route(self) -> &'static str {
        match self {
            Self::OpenaiChat => openai_chat::ROUTE,
            Self::OpenaiResponses => openai_responses::ROUTE,
            Self::AnthropicMessages => anthropic_messages::ROUTE,
        }
    }

    /// The body of a streamed request.
    #[must_use]
    pub fn body(self, request: &ModelRequest, target: &Target<'_>) -> Value {
        match self {
            Self::OpenaiChat => openai_chat::body(request, target),
            Self::OpenaiResponses => openai_responses::body(request, target),
            Self::AnthropicMessages => anthropic_messages::body(request, target),
        }
    }
}

/// Whom a body is for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The model's name at its provider.
    pub model: &'a str,
    /// Reasoning effort in the words of `runtime.effort`; nothing is sent without one.
    pub effort: Option<&'a str>,
    /// True for the inventor of the wire, which has renamed a field that others know by its old name.
    pub official: bool,
}

/// What a parser gives while an answer arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// The next piece of the answer.
    Text(String),
    /// The next piece of the model's reasoning.
    Thought(String),
    /// The next piece of the arguments of a call that is not whole yet, for display alone.
    Arguments {
        /// Which of the answer's calls, from 0.
        call: u32,
        /// The tool's name.
        name: String,
        /// The piece.
        text: String,
    },
}

/// A complete tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireCall {
    /// The provider's id; empty when it gave none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them: meant to be a JSON object, not checked here.
    pub arguments: String,
}

/// The end of a complete answer. Tool calls are given only here: none is ever acted on that came
/// in a stream which broke off later.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// Why it ended.
    pub finish: FinishReason,
    /// The tool calls, in order.
    pub calls: Vec<WireCall>,
    /// Token counts, when the provider gave them.
    pub usage: Option<Usage>,
}

/// What one wire makes of one event.
trait Events {
    /// Takes one event; appends what it says to `out`. True when it was the last one.
    fn event(&mut self, event: &SseEvent, out: &mut Vec<Delta>) -> Result<bool, Failure>;

    /// Arguments of calls of these tools are told as they come.
    fn stream(&mut self, tools: HashSet<String>);

    /// The finish reason, if one came, and everything assembled.
    fn end(self: Box<Self>) -> Result<Option<End>, Failure>;
}

/// Parses one answer.
pub struct AnswerParser {
    decoder: SseDecoder,
    events: Box<dyn Events + Send>,
    received: u64,
    complete: bool,
}

impl AnswerParser {
    /// A parser for one answer on `api`.
    #[must_use]
    pub fn new(api: Api) -> Self {
        let events: Box<dyn Events + Send> = match api {
            Api::OpenaiChat => Box::new(openai_chat::ChatEvents::default()),
            Api::OpenaiResponses => Box::new(openai_responses::ResponsesEvents::default()),
            Api::AnthropicMessages => Box::new(anthropic_messages::MessagesEvents::default()),
        };
        Self {
            decoder: SseDecoder::default(),
            events,
            received: 0,
            complete: false,
        }
    }

    /// Tells the arguments of calls of these tools as they come, too.
    #[must_use]
    pub fn streaming(mut self, tools: &[String]) -> Self {
        self.events.stream(tools.iter().cloned().collect());
        self
    }

    /// Takes the next bytes and returns what they add.
    ///
    /// # Errors
    /// When the stream is no event stream, reports an error, or goes over a bound. The parser is of
    /// no further use then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, Failure> {
        self.received += bytes.len() as u64;
        if self.received > MAX_STREAM {
            return Err(Failure::new(
                ErrorClass::AnswerTooLarge,
                format!("the answer's stream is larger than {MAX_STREAM} bytes"),
            ));
        }
        let mut events = Vec::new();
        let decoded = self.decoder.push(bytes, &mut events);
        let mut out = Vec::new();
        for event in &events {
            if self.complete {
                break;
            }
            self.complete = self.events.event(event, &mut out)?;
        }
        decoded.map_err(|e| Failure::new(ErrorClass::ServerError, e.to_string()))?;
        Ok(out)
    }

    /// True when the wire's own last event came; further bytes don't matter.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Ends the answer where the stream ended.
    ///
    /// # Errors
    /// [`ErrorClass::StreamCut`] when no finish reason came; a failure when a tool call has no name.
    pub fn end(self) -> Result<End, Failure> {
        self.events.end()?.ok_or_else(|| {
            Failure::new(
                ErrorClass::StreamCut,
                "the stream ended before its finish reason",
            )
        })
    }
}

/// The levels of `runtime.effort` that OpenAI doesn't know are above its highest.
fn openai_effort(effort: &str) -> &str {
    match effort {
        "max" | "ultra" => "xhigh",
        other => other,
    }
}

fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

/// The text of a tool's answer. Wires without a mark for failure get it in words.
fn result_text(content: &[Block], mark_error: bool) -> String {
    let mut all = String::new();
    for block in content {
        if let Block::Text { text } = block {
            if !all.is_empty() {
                all.push('\n');
            }
            all.push_str(text);
        }
    }
    if mark_error {
        all.insert_str(0, "The tool failed: ");
    }
    all
}

/// The JSON of an event.
fn json(event: &SseEvent) -> Result<Value, Failure> {
    serde_json::from_str(&event.data).map_err(|e| {
        Failure::new(
            ErrorClass::ServerError,
            format!("an event of the stream is no JSON: {e}"),
        )
    })
}

/// The text at `key`, if there is some.
fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value
        .get(key)
        .and_then(Value::as_str)
        .filter(|t| !t.is_empty())
}

/// What the answer cost, where a provider says it.
fn cost(usage: &Value) -> Option<f64> {
    ["cost_usd", "cost"]
        .iter()
        .find_map(|key| usage.get(key).and_then(Value::as_f64))
}

/// The count at `key`, or zero.
fn count(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stream_of_which_nothing_is_kept_ends_at_512_mebibytes() {
        for api in [
            Api::OpenaiChat,
            Api::OpenaiResponses,
            Api::AnthropicMessages,
        ] {
            let mut parser = AnswerParser::new(api);
            let ping = b": ping\n\n";
            parser.received = (512 << 20) - ping.len() as u64;
            assert_eq!(parser.push(ping).unwrap(), []);
            let failure = parser.push(b"\n").unwrap_err();
            assert_eq!(failure.class, ErrorClass::AnswerTooLarge);
        }
    }
}
