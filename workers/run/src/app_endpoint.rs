//! `PublishReplyFile` for an agent program of another make that a command of this run starts: the
//! same tool over MCP, on the run's own loopback (`tools.appEndpoint`; spec s0, "Publishing a
//! reply file").
//!
//! Nothing is published here. A call becomes one of the turn's own tool calls, so the policy, the
//! record, the budget of parts and the identity of a file that was published before are the same
//! whichever way it came.

use crate::tools::publish::SERVER;
use crate::tools::{Builtin, ToolOutput, publish};
use app_tools::{Answer, AppTool, Call, CapabilityUrl, Endpoint, OpenError, ToolSet};
use ipc_proto::chat::Block;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

/// Variable in which commands find the endpoint; one of the reserved names, so no configured value
/// stands in its place (facts 4.6).
pub const URL_VARIABLE: &str = "MONO_AGENT_ADAPTER_TOOLS_URL";
/// Calls over the endpoint in one run; further ones are refused. They come out of the calls that
/// the store takes for a run, and a program in a loop must not use up those of the model.
pub const MAX_APP_CALLS: usize = 100;
/// What the tool of this endpoint is.
const TOOL: Builtin = Builtin::PublishReplyFile;

/// A run's endpoint and the calls that come in there.
#[derive(Debug)]
pub struct AppEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) calls: mpsc::Receiver<AppCall>,
}

/// One call of a program, waiting for the turn.
#[derive(Debug)]
pub(crate) struct AppCall {
    /// Arguments as sent.
    pub(crate) arguments: Map<String, Value>,
    answer: oneshot::Sender<Answer>,
}

impl AppEndpoint {
    /// Opens it. Belongs after the run was assigned: until then it has no slot.
    ///
    /// # Errors
    /// When loopback can't be listened on; the turn goes on without the endpoint.
    pub async fn open() -> Result<Self, OpenError> {
        // No room: a call waits at its own connection, whose number is bounded.
        let (sender, calls) = mpsc::channel(1);
        let endpoint = Endpoint::open(Forwarding { calls: sender }).await?;
        Ok(Self { endpoint, calls })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &CapabilityUrl {
        self.endpoint.url()
    }
}

impl AppCall {
    /// Nobody waits for the answer any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Answers with what the tool call came to.
    pub(crate) fn answer(self, content: &[Block], is_error: bool) {
        let text: String = content
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let answer = if is_error {
            Answer::error(&text)
        } else {
            Answer::text(&text)
        };
        // A program that is gone needs none.
        let _ = self.answer.send(answer);
    }

    /// Refuses the call that is one too many.
    pub(crate) fn refuse(self) {
        let ToolOutput { text, .. } = publish::failure("reply_part_too_large");
        let _ = self.answer.send(Answer::error(&text));
    }
}

/// The tool as the endpoint offers it: everything is passed on to the turn, whose state is of one
/// thread.
#[derive(Debug)]
struct Forwarding {
    calls: mpsc::Sender<AppCall>,
}

impl ToolSet for Forwarding {
    fn server_name(&self) -> &'static str {
        SERVER
    }

    fn tools(&self) -> Vec<AppTool> {
        let spec = TOOL.spec();
        vec![AppTool::new(spec.name, spec.description, spec.input_schema)]
    }

    async fn call(&self, call: Call) -> Answer {
        let (answer, answered) = oneshot::channel();
        let forwarded = AppCall {
            arguments: call.arguments,
            answer,
        };
        let over = || Answer::error(&publish::failure("artifact_publish_failed").text);
        if self.calls.send(forwarded).await.is_err() {
            return over();
        }
        answered.await.unwrap_or_else(|_| over())
    }
}
