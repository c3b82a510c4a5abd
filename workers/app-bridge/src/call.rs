//! One call of one tool: progress, limits, cancellation, and the questions of newer servers.

use crate::client::{Progress, Route, decline};
use crate::connection::{Connection, Era, chain};
use crate::content::convert;
use crate::error::CallError;
use crate::listing::size;
use crate::patience::{Patience, Step};
use crate::watch::Stamp;
use ipc_proto::edges::app_bridge::McpResult;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, DiscoverRequest,
    DiscoverRequestParams, ErrorData, InputRequiredResult, InputResponses, PingRequest,
    ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// What is to be called, and who wants to hear about it.
#[derive(Debug)]
pub struct CallRequest {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// Reports are dropped, not waited for, when this is full.
    pub progress: mpsc::Sender<Progress>,
    /// Cancels the call here and tells the server.
    pub cancel: CancellationToken,
}

impl Connection {
    /// Calls a tool and waits for its result.
    ///
    /// # Errors
    /// Each failure has a fixed code ([`CallError::code`]). A result that the tool itself marks as
    /// an error is a result.
    pub async fn call(&self, request: CallRequest) -> Result<McpResult, CallError> {
        let result = self.call_raw(request).await?;
        convert(result, &self.limits)
    }

    /// As [`Connection::call`], with the result as the server gave it.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_raw(&self, request: CallRequest) -> Result<CallToolResult, CallError> {
        let mut result = self.run(request).await;
        if let Err(CallError::Gone { reason, .. }) = &mut result
            && let Some(end) = &self.carrier.end
            && let Some(how) = end.how().await
        {
            *reason = format!("it {how}; {reason}");
        }
        if let Err(error) = &result
            && error.ends_connection()
        {
            self.mark_broken();
        }
        result
    }

    async fn run(&self, request: CallRequest) -> Result<CallToolResult, CallError> {
        let _permit = self.permits.try_acquire().map_err(|_| CallError::Busy {
            server: self.server.clone(),
        })?;
        if size(&request.arguments) > self.limits.arguments {
            return Err(CallError::TooLarge {
                what: "the list of arguments",
                limit: self.limits.arguments,
            });
        }
        let mut params =
            CallToolRequestParams::new(request.tool.clone()).with_arguments(request.arguments);
        let mut patience = Patience::new(
            Instant::now().into_std(),
            self.limits.call_inactivity,
            self.limits.call_total,
        );
        for _round in 0..self.limits.input_rounds {
            let mut round = Round {
                connection: self,
                tool: &request.tool,
                cancel: &request.cancel,
                patience: &mut patience,
            };
            match round.ask(params.clone(), &request.progress).await? {
                Answer::Result(result) => return Ok(*result),
                Answer::Question(question) => {
                    let (responses, state) = self.answer(*question)?;
                    params.input_responses = responses;
                    params.request_state = state;
                }
            }
        }
        Err(self.protocol(format!(
            "it asked more than {} questions",
            self.limits.input_rounds
        )))
    }

    /// Declines every question of a server. We declared no capability to answer any, so a server
    /// that asks all the same gets one consistent answer and may go on without.
    fn answer(
        &self,
        question: InputRequiredResult,
    ) -> Result<(Option<InputResponses>, Option<String>), CallError> {
        let asked = question.input_requests.unwrap_or_default();
        if asked.is_empty() && question.request_state.is_none() {
            return Err(self.protocol("it wants input and asks nothing"));
        }
        let mut responses = InputResponses::new();
        for (key, request) in asked {
            let answer = decline(&request)
                .ok_or_else(|| self.protocol("it asks for something that was not offered"))?;
            responses.insert(key, answer);
        }
        Ok((
            (!responses.is_empty()).then_some(responses),
            question.request_state,
        ))
    }

    fn protocol(&self, reason: impl Into<String>) -> CallError {
        CallError::Protocol {
            server: self.server.clone(),
            reason: reason.into(),
        }
    }

    fn gone(&self, reason: impl Into<String>) -> CallError {
        if self.carrier.overflow.happened() {
            return CallError::TooLarge {
                what: "a message of the server",
                limit: self.limits.message,
            };
        }
        let reason = reason.into();
        CallError::Gone {
            server: self.server.clone(),
            reason: match self.last_line() {
                Some(line) => format!("{reason}; it last said: {line}"),
                None => reason,
            },
        }
    }

    fn refused(&self, error: ErrorData) -> CallError {
        CallError::Refused {
            server: self.server.clone(),
            rpc_code: error.code.0,
            message: error.message.into_owned(),
        }
    }

    fn service_error(&self, tool: &str, error: ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => self.refused(error),
            ServiceError::TransportClosed => self.gone("its connection closed"),
            ServiceError::TransportSend(error) => self.send_error(&error),
            ServiceError::Cancelled { .. } => CallError::Cancelled {
                tool: tool.to_owned(),
            },
            other => self.protocol(other.to_string()),
        }
    }

    /// A message that could not be sent. Over HTTP the answer comes the same way, so an oversized
    /// answer and a refusal by status show up here too.
    fn send_error(&self, error: &DynamicTransportError) -> CallError {
        match error.error.downcast_ref() {
            Some(StreamableHttpError::<reqwest::Error>::ResponseBodyTooLarge { .. }) => {
                CallError::TooLarge {
                    what: "a message of the server",
                    limit: self.limits.message,
                }
            }
            Some(StreamableHttpError::HttpStatus(HttpStatusError { status, .. })) => {
                CallError::Refused {
                    server: self.server.clone(),
                    rpc_code: i32::from(*status),
                    message: format!("HTTP status {status}"),
                }
            }
            _ => self.gone(chain(error.error.as_ref())),
        }
    }

    /// Asks whether the server is there. Only that something comes back matters, and that is
    /// noted by the transport; the answer itself, an error too, is dropped.
    fn probe(&self) -> AbortOnDropHandle<()> {
        let peer = self.peer.clone();
        // Ping was removed in 2026-07-28; discovery is what every server of that era answers.
        let request = match self.era() {
            Era::Stateless => {
                ClientRequest::DiscoverRequest(DiscoverRequest::new(DiscoverRequestParams {}))
            }
            _ => ClientRequest::PingRequest(PingRequest::default()),
        };
        AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = peer.send_request(request).await;
        }))
    }
}

enum Answer {
    Result(Box<CallToolResult>),
    Question(Box<InputRequiredResult>),
}

/// One request of a call; a call has several when the server asks back.
struct Round<'a> {
    connection: &'a Connection,
    tool: &'a str,
    cancel: &'a CancellationToken,
    patience: &'a mut Patience,
}

impl Round<'_> {
    async fn ask(
        &mut self,
        params: CallToolRequestParams,
        progress: &mpsc::Sender<Progress>,
    ) -> Result<Answer, CallError> {
        let route = Route {
            active: Stamp::never(),
            reports: progress.clone(),
        };
        let mut routes = self.connection.routes.lock().await;
        let handle = self
            .connection
            .peer
            .send_cancellable_request(
                ClientRequest::CallToolRequest(CallToolRequest::new(params)),
                PeerRequestOptions::no_options(),
            )
            .await
            .map_err(|error| self.connection.service_error(self.tool, error))?;
        let token = handle.progress_token.clone();
        routes.insert(token.clone(), route.clone());
        drop(routes);
        let outcome = self.wait(handle, &route.active).await;
        self.connection.routes.lock().await.remove(&token);
        match outcome? {
            ServerResult::CallToolResult(result) => Ok(Answer::Result(Box::new(result))),
            ServerResult::InputRequiredResult(question) => Ok(Answer::Question(Box::new(question))),
            // A result without content looks like this to rmcp.
            ServerResult::EmptyResult(_) => Ok(Answer::Result(Box::default())),
            _ => Err(self
                .connection
                .protocol("the answer is not the result of a tool")),
        }
    }

    async fn wait(
        &mut self,
        mut handle: RequestHandle<RoleClient>,
        active: &Stamp,
    ) -> Result<ServerResult, CallError> {
        // Held here: dropping it ends an unanswered probe with the call.
        let mut probe = None;
        loop {
            let now = Instant::now().into_std();
            if let Some(when) = active.last() {
                self.patience.progress(when);
            }
            if let Some(when) = self.connection.heard.last() {
                self.patience.heard(when);
            }
            let until = match self.patience.step(now) {
                Step::WaitUntil(until) => until,
                Step::Probe => {
                    self.patience.probed(now);
                    probe = Some(self.connection.probe());
                    continue;
                }
                step => {
                    let error = self.give_up(step);
                    self.withdraw(handle, "the host stopped waiting").await;
                    return Err(error);
                }
            };
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    drop(probe);
                    return match answer {
                        Ok(Ok(result)) => Ok(result),
                        Ok(Err(error)) => Err(self.connection.service_error(self.tool, error)),
                        Err(_) => Err(self.connection.gone("its connection closed")),
                    };
                }
                () = self.cancel.cancelled() => {
                    self.withdraw(handle, "cancelled").await;
                    return Err(CallError::Cancelled { tool: self.tool.to_owned() });
                }
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    fn give_up(&self, step: Step) -> CallError {
        let server = self.connection.server.clone();
        let tool = self.tool.to_owned();
        let waited = self.connection.limits.call_inactivity;
        match step {
            Step::Silent => CallError::Silent { server, waited },
            Step::TooLong => CallError::TooLong {
                server,
                tool,
                limit: self.connection.limits.call_total,
            },
            _ => CallError::Inactive {
                server,
                tool,
                waited,
            },
        }
    }

    /// Tells the server that nobody waits any more. It may ignore that; its late answer is then
    /// dropped. A server that doesn't even read is wedged, and this connection with it.
    async fn withdraw(&self, handle: RequestHandle<RoleClient>, reason: &str) {
        let told = handle.cancel(Some(reason.to_owned()));
        if tokio::time::timeout(self.connection.limits.cancel_write, told)
            .await
            .is_err()
        {
            self.connection.mark_broken();
        }
    }
}
