//! What a run asks of apps before its calls have results.

use super::reply;
use crate::apps::heal::MAX_PARTIAL;
use crate::servers::{Servers, Starter};
use ipc_proto::Body;
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::edges::app_bridge::{AppBridge, McpTool, Reply};
use ipc_proto::edges::control::RunScope;
use ipc_proto::link::LinkError;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Largest answer in bytes: what was taken out may be longer than what it was.
const MAX_ANSWER: usize = 8 * MAX_PARTIAL;

/// Of the tools that declare a page, those have an app whose server's apps are shown.
pub(super) fn without_apps<S: Starter>(servers: &Servers<S>, tools: &mut [McpTool]) {
    let shows = servers.stand().shows();
    for tool in tools.iter_mut().filter(|tool| tool.app) {
        let of_server = servers.settings(&tool.server).and_then(|s| s.apps.as_ref());
        tool.app = shows && of_server.is_some();
    }
}

pub(super) async fn draft<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    server: &str,
    tool: &str,
    responder: &Responder<AppBridge>,
) -> Result<(), LinkError> {
    let drafted = async {
        let desk = servers.stand().soon().await?;
        desk.draft(servers, scope, server, tool).await
    };
    let part = tokio::select! {
        biased;
        () = responder.cancelled() => return Ok(()),
        part = drafted => part,
    };
    reply(responder, &part, MAX_ANSWER, |part| Reply::Draft { part }).await
}

pub(super) async fn input<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    draft: &str,
    text: Body,
    fds: &mut VecDeque<OwnedFd>,
    responder: &Responder<AppBridge>,
) -> Result<(), LinkError> {
    let text = match text.unpack_text(fds, MAX_PARTIAL) {
        Ok(text) => text,
        Err(error) => {
            let fault = Fault::new("invalid_request", error.to_string());
            return responder.fault(&fault).await;
        }
    };
    let desk = servers.stand().desk();
    let run = scope.run.as_str();
    let arguments = desk.and_then(|desk| desk.partial(servers, run, draft, &text));
    reply(responder, &arguments, MAX_ANSWER, |arguments| {
        Reply::DraftInput { arguments }
    })
    .await
}

/// The call of a draft is made.
pub(super) fn called<S: Starter>(
    servers: &Servers<S>,
    scope: &RunScope,
    draft: Option<&str>,
    arguments: &Map<String, Value>,
) {
    if let (Some(draft), Some(desk)) = (draft, servers.stand().own()) {
        desk.call_begins(scope.run.as_str(), draft, arguments);
    }
}

/// The call of a draft is over.
pub(super) fn end<S: Starter>(servers: &Servers<S>, scope: &RunScope, draft: Option<&str>) {
    if let (Some(draft), Some(desk)) = (draft, servers.stand().own()) {
        desk.end_draft(scope.run.as_str(), draft);
    }
}
