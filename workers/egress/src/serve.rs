//! The calls of one granted channel.

use crate::complete::Completer;
use crate::deliver::{Answer, DeliverError, Deliverer, Message};
use crate::event::{Gone, ModelEvent, Sink};
use crate::fetch::{FetchError, Fetcher, MAX_BODY, Page};
use ipc_proto::callbacks::MAX_DELIVERY;
use ipc_proto::channel::Fault;
use ipc_proto::channel::Responder;
use ipc_proto::chat::{MAX_MODEL_REQUEST, ModelRequest};
use ipc_proto::edges::delivery::TOO_LATE;
use ipc_proto::edges::egress::{Egress, Reply, Request};
use ipc_proto::link::LinkError;
use ipc_proto::text::{cut, pieces};
use ipc_proto::{Body, Call, Server};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Calls of one run, or of a channel, under way at once: five subagents and the run itself, each with a model stream
/// and a fetch, and no more memory than that.
pub const MAX_CONCURRENT: usize = 12;
/// Most bytes of text in one packet (edges::egress).
const MAX_DELTA: usize = 16 * 1024;
/// Most bytes of a message for people in one packet (edges::egress).
const MAX_MESSAGE: usize = 1024;

/// What calls are answered with; one for the whole worker.
pub struct Egresses {
    /// Model requests.
    pub completer: Completer,
    /// Fetches.
    pub fetcher: Fetcher,
    /// Deliveries.
    pub deliverer: Deliverer,
}

/// Serves one channel until its other end closes it, or `leave` turns true and no call is under
/// way. Dropping the future cancels every call.
///
/// # Errors
/// When the other end broke the protocol; the channel is closed then.
pub async fn serve(
    mut server: Server<Egress>,
    out: Arc<Egresses>,
    mut leave: watch::Receiver<bool>,
) -> Result<(), LinkError> {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            () = told(&mut leave), if calls.is_empty() => return Ok(()),
            call = server.recv() => match call? {
                None => return Ok(()),
                Some(call) if calls.len() >= MAX_CONCURRENT => {
                    let busy = format!("{MAX_CONCURRENT} calls of this run are under way");
                    call.responder.fault(&Fault::new("busy", busy)).await?;
                }
                Some(call) => {
                    calls.spawn(answer(call, out.clone()));
                }
            },
            Some(_) = calls.join_next() => {}
        }
    }
}

/// Waits for the word to leave; without a sender it never comes.
async fn told(leave: &mut watch::Receiver<bool>) {
    if leave.wait_for(|leave| *leave).await.is_err() {
        std::future::pending().await
    }
}

/// Answers one call. What is under way ends as soon as the caller withdraws it.
async fn answer(call: Call<Egress>, out: Arc<Egresses>) {
    let Call {
        request,
        mut fds,
        deadline,
        responder,
    } = call;
    let deadline = deadline.unwrap_or(Duration::MAX);
    let done = async {
        match request {
            Request::Complete { request } => {
                let request: ModelRequest = match request.unpack_json(&mut fds, MAX_MODEL_REQUEST) {
                    Ok(request) => request,
                    Err(e) => {
                        let fault = Fault::new("invalid_request", e.to_string());
                        return responder.fault(&fault).await;
                    }
                };
                let mut sink = CallSink(&responder);
                match tokio::time::timeout(deadline, out.completer.complete(&request, &mut sink))
                    .await
                {
                    Ok(Ok(()) | Err(Gone)) => Ok(()),
                    Err(_) => {
                        responder
                            .send(
                                &Reply::ModelFailed {
                                    kind: "timeout".to_owned(),
                                    message: "the run's deadline passed before an answer"
                                        .to_owned(),
                                    failovers: Vec::new(),
                                },
                                &[],
                            )
                            .await
                    }
                }
            }
            Request::Fetch {
                url,
                headers,
                max_bytes,
            } => {
                let max = max_bytes.min(MAX_BODY);
                let fetched =
                    tokio::time::timeout(deadline, out.fetcher.fetch(&url, &headers, max))
                        .await
                        .unwrap_or(Err(FetchError::Timeout));
                let (reply, fd) = fetch_reply(fetched);
                responder.send(&reply, fd.as_slice()).await
            }
            Request::Deliver {
                url,
                id,
                timestamp,
                signature,
                body,
                until,
            } => {
                let message = Message {
                    id: &id,
                    timestamp,
                    signature: &signature,
                };
                let failed = |code: &str, message: String| Reply::DeliveryFailed {
                    code: code.to_owned(),
                    message,
                };
                let reply = match body.unpack(&mut fds, MAX_DELIVERY) {
                    // It lay here for too long: whoever asked may have said what became of it.
                    Ok(_) if until.is_over() => failed(TOO_LATE, "nobody waits any more".into()),
                    Ok(body) => {
                        let within = deadline.min(until.left());
                        let delivering = out.deliverer.deliver(&url, &message, body);
                        let delivered = tokio::time::timeout(within, delivering).await;
                        delivery_reply(delivered.unwrap_or(Err(FetchError::Timeout.into())))
                    }
                    Err(e) => failed("too_large", e.to_string()),
                };
                responder.send(&reply, &[]).await
            }
        }
    };
    tokio::select! {
        sent = done => if let Err(e) = sent {
            tracing::warn!(error = %e, "an answer could not be sent");
        },
        () = responder.cancelled() => {}
    }
}

fn delivery_reply(delivered: Result<Answer, DeliverError>) -> Reply {
    match delivered {
        Ok(Answer {
            status,
            retry_after,
        }) => Reply::Delivered {
            status,
            retry_after,
        },
        Err(e) => Reply::DeliveryFailed {
            code: e.code().to_owned(),
            message: cut(&e.to_string(), MAX_MESSAGE).to_owned(),
        },
    }
}

fn fetch_reply(fetched: Result<Page, FetchError>) -> (Reply, Option<OwnedFd>) {
    let failed = |code: &str, message: String| {
        let message = cut(&message, MAX_MESSAGE).to_owned();
        (
            Reply::FetchFailed {
                code: code.to_owned(),
                message,
            },
            None,
        )
    };
    match fetched {
        Err(e) => failed(e.code(), e.to_string()),
        Ok(Page {
            status,
            url,
            content_type,
            truncated,
            body,
        }) => match Body::pack(body) {
            Ok((body, fd)) => (
                Reply::Fetched {
                    status,
                    url,
                    content_type,
                    truncated,
                    body,
                },
                fd,
            ),
            Err(e) => failed("network", e.to_string()),
        },
    }
}

/// Packs events for the channel; waits when the run has no credit left.
struct CallSink<'a>(&'a Responder<Egress>);

impl Sink for CallSink<'_> {
    async fn send(&mut self, event: ModelEvent) -> Result<(), Gone> {
        match event {
            ModelEvent::Text(text) => {
                for piece in pieces(&text, MAX_DELTA) {
                    self.reply(
                        Reply::TextDelta {
                            text: piece.to_owned(),
                        },
                        None,
                    )
                    .await?;
                }
                Ok(())
            }
            ModelEvent::Thought(text) => {
                for piece in pieces(&text, MAX_DELTA) {
                    self.reply(
                        Reply::ThoughtDelta {
                            text: piece.to_owned(),
                        },
                        None,
                    )
                    .await?;
                }
                Ok(())
            }
            ModelEvent::ToolCall {
                id,
                name,
                arguments,
            } => {
                let (arguments, fd) = Body::pack(arguments.into_bytes()).map_err(|e| {
                    tracing::error!(error = %e, "a tool call could not be packed");
                    Gone
                })?;
                self.reply(
                    Reply::ToolCall {
                        id,
                        name,
                        arguments,
                    },
                    fd,
                )
                .await
            }
            ModelEvent::Arguments { call, name, text } => {
                for piece in pieces(&text, MAX_DELTA) {
                    let (name, text) = (name.clone(), piece.to_owned());
                    self.reply(Reply::ArgumentsDelta { call, name, text }, None)
                        .await?;
                }
                Ok(())
            }
            ModelEvent::Usage(usage) => self.reply(Reply::Usage { usage }, None).await,
            ModelEvent::Status {
                stage,
                model,
                detail,
            } => {
                self.reply(
                    Reply::Status {
                        stage,
                        model,
                        detail,
                    },
                    None,
                )
                .await
            }
            ModelEvent::Restart { reason } => self.reply(Reply::Restart { reason }, None).await,
            ModelEvent::Done {
                finish,
                model,
                failovers,
            } => {
                self.reply(
                    Reply::Done {
                        finish,
                        model,
                        failovers,
                    },
                    None,
                )
                .await
            }
            ModelEvent::Failed {
                kind,
                message,
                failovers,
            } => {
                let message = cut(&message, MAX_MESSAGE).to_owned();
                self.reply(
                    Reply::ModelFailed {
                        kind,
                        message,
                        failovers,
                    },
                    None,
                )
                .await
            }
        }
    }
}

impl CallSink<'_> {
    async fn reply(&self, reply: Reply, fd: Option<OwnedFd>) -> Result<(), Gone> {
        self.0.send(&reply, fd.as_slice()).await.map_err(|e| {
            tracing::debug!(error = %e, "a run went away in the middle of an answer");
            Gone
        })
    }
}
