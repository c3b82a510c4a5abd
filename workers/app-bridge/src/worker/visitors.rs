//! The console and operators, who are there as long as this worker.

use super::{attend, reply, send};
use crate::apps::desk::Answered;
use crate::apps::files::Content;
use crate::apps::operator::inspect;
use crate::servers::{Servers, Starter};
use ipc_proto::apps::{AppAsk, Inspect, MAX_ANSWER, MAX_ASK, MAX_FILE};
use ipc_proto::channel::{Call, Fault, Responder, Server};
use ipc_proto::edges::app_bridge::{AppBridge, Reply, Request};
use ipc_proto::link::LinkError;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Answers the console or an operator. Requests run side by side; what is under way when the
/// channel ends is ended in order.
///
/// # Errors
/// When the asker broke the protocol.
pub async fn serve_visitor<S: Starter>(
    servers: &Arc<Servers<S>>,
    server: Server<AppBridge>,
    stop: &CancellationToken,
) -> Result<(), LinkError> {
    attend(server, stop, |call, calls| {
        calls.spawn(visit(servers.clone(), call));
    })
    .await
}

async fn visit<S: Starter>(servers: Arc<Servers<S>>, call: Call<AppBridge>) {
    let Call {
        request,
        mut fds,
        responder,
        ..
    } = call;
    let sent = match request {
        Request::App { ask } => match ask.unpack_json::<AppAsk>(&mut fds, MAX_ASK) {
            Ok(ask) => answer_app(&servers, ask, None, &responder).await,
            Err(error) => {
                let fault = Fault::new("invalid_request", error.to_string());
                responder.fault(&fault).await
            }
        },
        Request::Hand { ask, content } => {
            let handed = ask
                .unpack_json::<AppAsk>(&mut fds, MAX_ASK)
                .and_then(|ask| Ok((ask, content.sealed(&mut fds, MAX_FILE)?)));
            match handed {
                Ok((ask, (file, bytes))) => {
                    let content = Some(Content { file, bytes });
                    answer_app(&servers, ask, content, &responder).await
                }
                Err(error) => {
                    let fault = Fault::new("invalid_request", error.to_string());
                    responder.fault(&fault).await
                }
            }
        }
        Request::Inspect { ask } => {
            let ask = ask.unpack_json::<Inspect>(&mut fds, MAX_ASK);
            let seen = match ask {
                Ok(ask) => inspect(&servers, ask).await,
                Err(error) => Err(Fault::new("invalid_request", error.to_string())),
            };
            match seen {
                Ok(seen) => {
                    reply(&responder, &seen, MAX_ANSWER, |answer| Reply::Inspected {
                        answer,
                    })
                    .await
                }
                Err(fault) => responder.fault(&fault).await,
            }
        }
        Request::ListTools
        | Request::CallTool { .. }
        | Request::CallDrafted { .. }
        | Request::DraftApp { .. }
        | Request::DraftInput { .. }
        | Request::KeepApps { .. }
        | Request::Accompany { .. } => {
            responder
                .fault(&Fault::new("forbidden", "only for a run"))
                .await
        }
    };
    if let Err(error) = sent {
        tracing::debug!("an answer was not taken: {error}");
    }
}

/// Answers the console; when it no longer waits, what is under way ends, and only then this.
async fn answer_app<S: Starter>(
    servers: &Arc<Servers<S>>,
    ask: AppAsk,
    content: Option<Content>,
    responder: &Responder<AppBridge>,
) -> Result<(), LinkError> {
    let Some(desk) = servers.stand().soon().await else {
        let fault = Fault::new("not_enabled", "apps are not shown here");
        return responder.fault(&fault).await;
    };
    let gone = CancellationToken::new();
    let answering = desk.answer(servers, ask, content, gone.clone());
    tokio::pin!(answering);
    let answered = tokio::select! {
        answered = &mut answering => answered,
        () = responder.cancelled() => {
            gone.cancel();
            answering.await
        }
    };
    match answered {
        Answered::Json(answer) => {
            reply(responder, &answer, MAX_ANSWER, |answer| Reply::App {
                answer,
            })
            .await
        }
        Answered::Page(page) => send(responder, page, |page| Reply::Page { page }).await,
    }
}
