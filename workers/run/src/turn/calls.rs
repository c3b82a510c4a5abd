//! The tool calls of one answer: one after the other when one of them changes something or goes to
//! an MCP server, else side by side (facts 3.6).

use super::stream::ModelCall;
use super::{Failure, hands::Hands};
use crate::catalog::Target;
use crate::naming::Origin;
use crate::owners::{McpCall, McpEvent, Workers};
use crate::redact;
use crate::results::{self, Bounded};
use crate::tools::{Builtin, ToolOutput, ToolState, Workshop, args};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use ipc_proto::Body;
use ipc_proto::chat::Block;
use ipc_proto::edges::app_bridge::McpResult;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::marker::strip;
use ipc_proto::reply::ReplyPart;
use ipc_proto::text::cut;
use serde_json::Value;
use std::time::Instant;

/// Calls under way at once.
const SIDE_BY_SIDE: usize = 8;
/// Bytes of a result that are recorded and shown to people.
const MAX_PREVIEW: usize = 4096;
/// Added to a result whose app found no place in the reply.
const APP_LEFT_OUT: &str =
    "[This result's interactive view is not shown: the reply holds as many parts as it can.]";
/// Bytes of a progress message that are passed on.
const MAX_MESSAGE: usize = 1024;

impl<W: Workers> Hands<'_, W> {
    /// Executes the calls; results are in the order of the calls.
    pub(super) async fn execute(&self, calls: &[ModelCall]) -> Result<Vec<Block>, Failure> {
        let alone = calls
            .iter()
            .any(|call| self.target(&call.name).is_ok_and(Target::is_sequential));
        let at_once = if alone { 1 } else { SIDE_BY_SIDE };
        stream::iter(calls)
            .map(|call| self.execute_one(call))
            .buffered(at_once)
            .try_collect()
            .await
    }

    pub(super) async fn execute_one(&self, call: &ModelCall) -> Result<Block, Failure> {
        let parsed = args::parse_object(&call.arguments);
        let recorded = match &parsed {
            Ok(arguments) => redact::arguments(arguments),
            // What can't be parsed can't be redacted.
            Err(_) => format!("[{} bytes that are no JSON object]", call.arguments.len()),
        };
        let recorded = self.recordable(&recorded).into_owned();
        let (id, name) = (call.id.clone(), call.name.clone());
        let begin = Instant::now();
        self.say(RunEvent::ToolStarted {
            id: id.clone(),
            name: name.clone(),
            arguments: recorded.clone(),
        })
        .await?;
        // Recorded before it has an effect, so that a crash leaves a trace of what may have happened.
        self.unless_cancelled(self.workers.tool_started(&id, &name, &recorded))
            .await??;
        let (result, part) = match (self.target(&call.name), parsed) {
            (Err(told), _) | (_, Err(told)) => (self.bounded(ToolOutput::rejected(told)), None),
            (Ok(Target::Builtin(tool)), Ok(arguments)) => self.builtin(*tool, arguments).await?,
            (Ok(Target::Mcp(origin)), Ok(arguments)) => self.mcp(call, origin, &arguments).await?,
        };
        let text = result.text();
        let preview = cut(&self.recordable(&text), MAX_PREVIEW).to_owned();
        self.workers
            .tool_ended(&id, result.state.name(), &preview)
            .await?;
        self.say(RunEvent::ToolCompleted {
            id: id.clone(),
            name: name.clone(),
            ok: result.state == ToolState::Success,
            preview,
            duration_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
        .await?;
        let shown = part.as_ref().map(|part| part.id().to_owned());
        if let Some(part) = part {
            self.announce(part).await?;
        }
        if let Some(id) = call.draft.clone().filter(|id| shown.as_ref() != Some(id)) {
            self.say(RunEvent::AppGone { id }).await?;
        }
        let is_error = result.state != ToolState::Success;
        Ok(Block::ToolResult {
            id,
            name,
            content: result.content,
            is_error,
        })
    }

    async fn builtin(
        &self,
        tool: Builtin,
        arguments: Value,
    ) -> Result<(Bounded, Option<ReplyPart>), Failure> {
        let workshop = Workshop {
            places: self.places,
            runner: self.runner,
            fetch: self.workers,
            artifacts: self.workers,
            cancel: self.cancel.token(),
        };
        let called = workshop.call(tool, arguments).await?;
        Ok((self.bounded(called.output), called.part))
    }

    async fn mcp(
        &self,
        call: &ModelCall,
        origin: &Origin,
        arguments: &Value,
    ) -> Result<(Bounded, Option<ReplyPart>), Failure> {
        let cancelled = || ToolOutput {
            state: ToolState::Cancelled,
            ..ToolOutput::error("The run was cancelled.".into())
        };
        if self.claim_servers.contains(&origin.server) {
            self.may_have_claimed.set(true);
        }
        let (id, draft) = (&call.id, call.draft.as_deref());
        let start = self
            .workers
            .call(&origin.server, &origin.tool, arguments, draft);
        let Ok(call) = self.unless_cancelled(start).await else {
            return Ok((self.bounded(cancelled()), None));
        };
        let mut call = call?;
        if let Some(draft) = draft {
            let id = draft.to_owned();
            self.say(RunEvent::AppCalled { id }).await?;
        }
        loop {
            // Silence and total time are bounded by the app-bridge, an app-bridge that hangs by the
            // supervisor's heartbeat. Leaving here drops the call, which cancels it at the server.
            let Ok(event) = self.unless_cancelled(call.next()).await else {
                return Ok((self.bounded(cancelled()), None));
            };
            match event? {
                McpEvent::Progress {
                    progress,
                    total,
                    message,
                } => {
                    let message =
                        message.map(|message| cut(&strip(&message), MAX_MESSAGE).to_owned());
                    self.say(RunEvent::ToolProgress {
                        id: id.clone(),
                        progress,
                        total,
                        message,
                    })
                    .await?;
                }
                McpEvent::Ended(Ok(mut result)) => {
                    let app = match result.app.take() {
                        Some(app) => self.enter(*app, &mut result).await?,
                        None => None,
                    };
                    let spill = self.spill();
                    // Scaling a picture takes long enough to make the heartbeat late.
                    let bounded =
                        tokio::task::spawn_blocking(move || results::mcp(result, &spill)).await;
                    let broken = |_| {
                        self.bounded(ToolOutput::error(
                            "The result could not be read.".to_owned(),
                        ))
                    };
                    return Ok((bounded.unwrap_or_else(broken), app));
                }
                McpEvent::Ended(Err(denied)) => {
                    let state = match denied.code.as_str() {
                        "mcp_server_silent" | "mcp_call_timeout" => ToolState::Timeout,
                        "mcp_call_cancelled" => ToolState::Cancelled,
                        _ => ToolState::Error,
                    };
                    let output = ToolOutput {
                        state,
                        ..ToolOutput::error(denied.to_string())
                    };
                    return Ok((self.bounded(output), None));
                }
            }
        }
    }

    /// Gives an app its place in the reply. Where there is none left, the model is told; nothing
    /// else of the result changes.
    async fn enter(
        &self,
        app: ReplyPart,
        result: &mut McpResult,
    ) -> Result<Option<ReplyPart>, Failure> {
        self.has_apps.set(true);
        if self.workers.enter(&app).await? {
            return Ok(Some(app));
        }
        result.content.push(Block::Text {
            text: APP_LEFT_OUT.to_owned(),
        });
        Ok(None)
    }

    fn bounded(&self, output: ToolOutput) -> Bounded {
        results::builtin(output, &self.spill())
    }

    fn spill(&self) -> std::path::PathBuf {
        self.places
            .scratch()
            .join(format!("result-{}", self.runner.next_id()))
    }

    /// Tells of a reply part, once.
    async fn announce(&self, part: ReplyPart) -> Result<(), Failure> {
        if !self.announced.borrow_mut().insert(part.id().to_owned()) {
            return Ok(());
        }
        match Body::pack_json(&part) {
            Ok((part, fd)) => self.say_with(RunEvent::Part { part }, fd).await,
            // The finished reply carries the part in any case.
            Err(_) => Ok(()),
        }
    }
}
