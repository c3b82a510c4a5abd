//! The calls of one run.

use super::{attend, drafts, reply, until};
use crate::apps::capture::Shown;
use crate::call::CallRequest;
use crate::client::Progress;
use crate::content::convert;
use crate::error::{CallError, Warning};
use crate::limits::PROGRESS_QUEUE;
use crate::progress::pass_on;
use crate::servers::{Servers, Starter};
use ipc_proto::Body;
use ipc_proto::channel::{Call, Fault, Responder, Server};
use ipc_proto::edges::app_bridge::{
    AppBridge, MAX_LISTING, MAX_RESULT, McpResult, McpWarning, Reply, Request, ToolListing,
};
use ipc_proto::edges::control::RunScope;
use ipc_proto::link::LinkError;
use ipc_proto::request_context::MAX_ATTACHED;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Answers one run until it closes its channel, `stop` is cancelled, or it breaks the protocol.
///
/// # Errors
/// When the run broke the protocol.
pub async fn serve_run<S: Starter>(
    servers: &Arc<Servers<S>>,
    server: Server<AppBridge>,
    scope: &RunScope,
    stop: &CancellationToken,
) -> Result<(), LinkError> {
    servers.begin(&scope.run);
    let outcome = attend(server, stop, |call, calls| match call.request {
        // At once: what the run asks for next may start a server.
        Request::Accompany { attachments } if attachments.len() <= MAX_ATTACHED => {
            let board = servers.board();
            let posts = board.accompany(&scope.run, attachments);
            let passing = pass_on(board.clone(), scope.run.clone(), posts, call.responder);
            calls.spawn(passing);
        }
        _ => {
            calls.spawn(answer(servers.clone(), scope.clone(), call));
        }
    })
    .await;
    servers.release(&scope.run).await;
    if let Some(desk) = servers.stand().own() {
        desk.settle(scope.run.as_str()).await;
    }
    outcome
}

async fn answer<S: Starter>(servers: Arc<Servers<S>>, scope: RunScope, call: Call<AppBridge>) {
    let Call {
        request,
        mut fds,
        deadline,
        responder,
    } = call;
    let sent = match request {
        Request::ListTools => {
            let listing = tokio::select! {
                biased;
                () = responder.cancelled() => return,
                listing = servers.list_tools(&scope) => listing,
            };
            let (mut tools, warnings) = listing;
            drafts::without_apps(&servers, &mut tools);
            let listing = ToolListing {
                tools,
                warnings: warnings.into_iter().map(warning).collect(),
            };
            reply(&responder, &listing, MAX_LISTING, |listing| Reply::Tools {
                listing,
            })
            .await
        }
        request @ (Request::CallTool { .. } | Request::CallDrafted { .. }) => {
            let Some(wish) = Wish::of(request, deadline) else {
                return;
            };
            match call_tool(&servers, &scope, wish, &mut fds, &responder).await {
                Ok(result) => {
                    reply(&responder, &result, MAX_RESULT, |result| Reply::Result {
                        result,
                    })
                    .await
                }
                Err((code, message)) => {
                    tracing::info!(run = %scope.run, code, "{message}");
                    let code = code.to_owned();
                    responder.send(&Reply::Failed { code, message }, &[]).await
                }
            }
        }
        Request::KeepApps { invocations } => {
            keep_apps(&servers, &scope, invocations, &responder).await
        }
        Request::DraftApp { server, tool } => {
            drafts::draft(&servers, &scope, &server, &tool, &responder).await
        }
        Request::DraftInput { draft, text } => {
            drafts::input(&servers, &scope, &draft, text, &mut fds, &responder).await
        }
        Request::Accompany { .. } => {
            let fault = Fault::new("invalid_request", "too many files");
            responder.fault(&fault).await
        }
        Request::App { .. } | Request::Inspect { .. } | Request::Hand { .. } => {
            responder
                .fault(&Fault::new("forbidden", "not for a run"))
                .await
        }
    };
    if let Err(error) = sent {
        tracing::debug!(run = %scope.run, "an answer was not taken: {error}");
    }
}

async fn keep_apps<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    invocations: Vec<String>,
    responder: &Responder<AppBridge>,
) -> Result<(), LinkError> {
    let kept = match servers.stand().own() {
        None => Ok(Ok(())),
        Some(desk) => {
            let (vault, run) = (desk.vault().clone(), scope.run.clone());
            let keep = move || vault.keep(run.as_str(), &invocations);
            tokio::task::spawn_blocking(keep).await
        }
    };
    match kept {
        Ok(Ok(())) => responder.send(&Reply::AppsKept, &[]).await,
        Ok(Err(error)) => {
            tracing::error!(run = %scope.run, "a run's apps can't be kept: {error}");
            let code = "app_resource_invalid".to_owned();
            let message = "the apps of the reply could not be kept".to_owned();
            responder.send(&Reply::Failed { code, message }, &[]).await
        }
        Err(_) => {
            responder
                .fault(&Fault::new("internal", "the keeper was lost"))
                .await
        }
    }
}

struct Wish {
    draft: Option<String>,
    server: String,
    tool: String,
    arguments: Body,
    deadline: Option<Duration>,
}

impl Wish {
    fn of(request: Request, deadline: Option<Duration>) -> Option<Self> {
        let (draft, server, tool, arguments) = match request {
            Request::CallTool {
                server,
                tool,
                arguments,
            } => (None, server, tool, arguments),
            Request::CallDrafted {
                draft,
                server,
                tool,
                arguments,
            } => (Some(draft), server, tool, arguments),
            _ => return None,
        };
        Some(Self {
            draft,
            server,
            tool,
            arguments,
            deadline,
        })
    }
}

/// Calls, and passes progress on meanwhile. A slow reader of progress never holds the call up.
async fn call_tool<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    wish: Wish,
    fds: &mut VecDeque<OwnedFd>,
    responder: &Responder<AppBridge>,
) -> Result<McpResult, (&'static str, String)> {
    let arguments = wish
        .arguments
        .unpack_json(fds, servers.limits().arguments)
        .map_err(|error| ("invalid_arguments", error.to_string()))?;
    let (progress, mut reports) = mpsc::channel(PROGRESS_QUEUE);
    let cancel = CancellationToken::new();
    let request = CallRequest {
        tool: wish.tool,
        arguments,
        progress,
        cancel: cancel.clone(),
    };
    let forward = async {
        while let Some(report) = reports.recv().await {
            if responder.send(&progress_reply(report), &[]).await.is_err() {
                break;
            }
        }
        pending::<Infallible>().await
    };
    let withdrawn = async {
        tokio::select! {
            () = responder.cancelled() => {}
            () = until(wish.deadline.map(|left| tokio::time::Instant::now() + left)) => {}
        }
        cancel.cancel();
        pending::<Infallible>().await
    };
    let draft = wish.draft.as_deref();
    let result = tokio::select! {
        biased;
        never = forward => match never {},
        never = withdrawn => match never {},
        result = call_and_capture(servers, scope, &wish.server, request, draft) => result,
    };
    drafts::end(servers, scope, draft);
    result.map_err(|error: CallError| (error.code(), error.message()))
}

/// The result of a call, and the app that shows it.
async fn call_and_capture<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    server: &str,
    request: CallRequest,
    draft: Option<&str>,
) -> Result<McpResult, CallError> {
    let settings = servers.settings(server);
    let Some(settings) = settings.filter(|settings| settings.apps.is_some()) else {
        return servers.call(scope, server, request).await;
    };
    let (tool, arguments) = (request.tool.clone(), request.arguments.clone());
    drafts::called(servers, scope, draft, &arguments);
    let (connection, result) = servers.call_raw(scope, server, request).await?;
    let shown = Shown {
        scope,
        settings,
        tool: &tool,
        arguments: &arguments,
        connection: &connection,
        result: &result,
    };
    let app = match servers.stand().soon().await {
        Some(desk) => {
            let run = scope.run.as_str();
            let draft = draft.and_then(|draft| desk.find_draft(run, draft));
            desk.capture_drafted(shown, draft).await
        }
        None => None,
    };
    let mut converted = convert(result, servers.limits())?;
    converted.app = app;
    Ok(converted)
}

fn progress_reply(report: Progress) -> Reply {
    Reply::Progress {
        progress: report.progress,
        total: report.total,
        message: report.message,
    }
}

fn warning(warning: Warning) -> McpWarning {
    McpWarning {
        code: warning.code.to_owned(),
        server: warning.server,
        message: warning.message,
    }
}
