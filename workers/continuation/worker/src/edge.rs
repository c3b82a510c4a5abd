//! Who asks this worker: the app-bridge for a run's servers, a run at its end, the supervisor for an
//! operator. Who it is and for which run, the grant says and no message.

use continuation_record::Mode;
use continuation_service::{Bound, Operator, OriginError, Origins, Rejection, Verdict};
use ipc_proto::channel::{Call, Fault};
use ipc_proto::edges::continuation::{
    Claim, ClaimToken, Continuation, MAX_OPERATED, MAX_ORIGIN, Order, Origin, Reply, Request,
};
use ipc_proto::edges::control::{Peer, RunScope};
use ipc_proto::edges::events::MAX_BACKGROUND;
use ipc_proto::{Body, Role, Server};
use serde_json::Value;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::task::JoinSet;

use crate::owners::{Fate, Owners, snapshot_message};

/// Largest order of an operator in bytes.
const MAX_ORDER: usize = 16 * 1024;
/// Why an origin is abandoned.
const NOT_COMMITTED: &str = "the turn that asked was not committed";

/// The service's doors, for whoever asks.
#[derive(Clone)]
pub struct Desk {
    /// The host's side of turns.
    pub origins: Origins,
    /// The operator's calls.
    pub operator: Operator,
    /// Whoever knows what became of a run.
    pub owners: Arc<Owners>,
}

impl Desk {
    /// Serves one channel to its end. A run's channel that closes before the run has settled its
    /// claims leaves them to the store's word: the descriptor is the lease.
    pub async fn serve(self, fd: OwnedFd, peer: Peer) {
        let mut server = match Server::<Continuation>::new(fd, peer.role) {
            Ok(server) => server,
            Err(e) => return tracing::error!(role = %peer.role, "a channel can't be used: {e}"),
        };
        let mut settled = false;
        // An operator may wait long; a run asks one thing after the other.
        let mut calls = JoinSet::new();
        loop {
            let call = tokio::select! {
                call = server.recv() => call,
                Some(_) = calls.join_next() => continue,
            };
            match call {
                Ok(Some(call)) if peer.role == Role::Monod => {
                    let desk = self.clone();
                    calls.spawn(async move { desk.operate(call).await });
                }
                Ok(Some(call)) => settled |= self.answer(&peer, call).await,
                Ok(None) => break,
                Err(e) => {
                    tracing::warn!(role = %peer.role, "a channel broke: {e}");
                    break;
                }
            }
        }
        if let (Role::Run, Some(scope), false) = (peer.role, &peer.run, settled) {
            self.ask_for(scope).await;
        }
    }

    /// Settles what a run left open, once the store knows how it ended.
    async fn ask_for(&self, scope: &RunScope) {
        let run = scope.run.as_str();
        // Nothing is claimed any more, whatever comes.
        if let Err(e) = self.origins.close(run).await {
            tracing::warn!(run, "its claims are not closed: {e}");
        }
        for wait in [0, 50, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000] {
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
            let outcome = match self.owners.fate(run).await {
                Fate::Committed => self.origins.activate(run).await,
                Fate::NotCommitted => self.origins.abandon(run, NOT_COMMITTED).await,
                Fate::Open => continue,
            };
            match outcome {
                Ok(()) => return,
                Err(e) => tracing::warn!(run, "its claims are not settled: {e}"),
            }
        }
        // The service asks again each time that it looks at one of them.
        tracing::warn!(run, "nobody says how it ended; its claims wait");
    }

    /// Answers a run or the app-bridge; true when the run has settled its claims.
    async fn answer(&self, peer: &Peer, call: Call<Continuation>) -> bool {
        let Call {
            request,
            mut fds,
            responder,
            ..
        } = call;
        let settles = matches!(request, Request::Activate | Request::Abandon);
        let reply = match (peer.role, &peer.run) {
            (Role::AppBridge, Some(scope)) => self.of_bridge(scope, request),
            (Role::Run, Some(scope)) => self.of_run(scope, request, &mut fds).await,
            _ => Err(forbidden()),
        };
        let done = settles && reply.is_ok();
        let sent = match reply {
            Ok(reply) => responder.send(&reply, &[]).await,
            Err(fault) => responder.fault(&fault).await,
        };
        if let Err(e) = sent {
            tracing::debug!(role = %peer.role, "an answer was not taken: {e}");
        }
        done
    }

    fn of_bridge(&self, scope: &RunScope, request: Request) -> Result<Reply, Fault> {
        let Request::Issue { server } = request else {
            return Err(forbidden());
        };
        let run = scope.run.as_str().to_owned();
        let bound = Bound {
            boundary: Some(run.clone()),
            run,
            server,
            conversation: scope.conversation.as_str().to_owned(),
            reply_to: Some(scope.delivery.as_str().to_owned()),
            mode: Mode::Reply,
        };
        let issued = self.origins.issue(bound).map_err(|e| refused(&e))?;
        let claim = Claim {
            url: issued.url,
            token: ClaimToken(issued.token.as_str().to_owned()),
            fingerprint: issued.fingerprint,
            mode: issued.mode.name().to_owned(),
        };
        Ok(Reply::Issued { claim })
    }

    async fn of_run(
        &self,
        scope: &RunScope,
        request: Request,
        fds: &mut VecDeque<OwnedFd>,
    ) -> Result<Reply, Fault> {
        let run = scope.run.as_str();
        match request {
            Request::Close => {
                let needed = self.origins.close(run).await.map_err(|e| refused(&e))?;
                let active = u32::from(needed);
                Ok(Reply::Closed { active })
            }
            Request::Pin { origin } => {
                let origin: Origin = origin
                    .unpack_json(fds, MAX_ORIGIN)
                    .map_err(|e| Fault::new("invalid_request", e.to_string()))?;
                let history = origin.history.into_iter();
                let history: Vec<_> = history
                    .map(|m| snapshot_message(m.role, m.text, m.turn, m.at))
                    .collect();
                let (user, assistant) = (&origin.user, &origin.assistant);
                let pinned = self.origins.finalize(run, user, assistant, &history).await;
                pinned.map_err(|e| refused(&e))?;
                Ok(Reply::Settled)
            }
            Request::Activate => {
                // Afterwards nobody knows whose they were.
                let open = self.origins.open(run).map_err(|e| refused(&e))?;
                self.origins.activate(run).await.map_err(|e| refused(&e))?;
                let continuations = open.into_iter().take(MAX_BACKGROUND).collect();
                Ok(Reply::Activated { continuations })
            }
            Request::Abandon => {
                let abandoned = self.origins.abandon(run, NOT_COMMITTED).await;
                abandoned.map_err(|e| refused(&e))?;
                Ok(Reply::Settled)
            }
            Request::Issue { .. } | Request::Operate { .. } => Err(forbidden()),
        }
    }

    async fn operate(&self, call: Call<Continuation>) {
        let Call {
            request,
            mut fds,
            responder,
            ..
        } = call;
        let result = match request {
            Request::Operate { order } => match order.unpack_json::<Order>(&mut fds, MAX_ORDER) {
                Ok(order) => self.order(order).await.map_err(|e| rejected(&e)),
                Err(e) => Err(Fault::new("invalid_request", e.to_string())),
            },
            _ => Err(forbidden()),
        };
        let packed = result.and_then(|value| {
            let bytes = serde_json::to_vec(&value).unwrap_or_default();
            if bytes.len() > MAX_OPERATED {
                return Err(Fault::new("too_large", "ask for a smaller page"));
            }
            Body::pack(bytes).map_err(|e| Fault::new("internal", e.to_string()))
        });
        let sent = match packed {
            Ok((result, fd)) => {
                let fds: Vec<OwnedFd> = fd.into_iter().collect();
                responder.send(&Reply::Operated { result }, &fds).await
            }
            Err(fault) => responder.fault(&fault).await,
        };
        if let Err(e) = sent {
            tracing::debug!("an operator did not wait: {e}");
        }
    }

    async fn order(&self, order: Order) -> Result<Value, Rejection> {
        let operator = &self.operator;
        match order {
            Order::Health => operator.health(),
            Order::List { limit, cursor } => {
                let limit = limit.map(|limit| limit.to_string());
                operator.list(limit.as_deref(), cursor.as_deref())
            }
            Order::Show { id } => operator.show(&id),
            Order::Captured { id } => operator.captured(&id),
            Order::Retry { id, allow_unknown } => operator.retry(&id, allow_unknown).await,
            Order::Cancel { id } => operator.cancel(&id).await,
            Order::Resolve {
                id,
                kind,
                delivery_id,
            } => {
                let verdict = Verdict::parse(Some(&kind), delivery_id.as_deref())?;
                operator.resolve(&id, verdict).await
            }
        }
    }
}

fn forbidden() -> Fault {
    Fault::new("forbidden", "this channel may not ask for that")
}

fn rejected(rejection: &Rejection) -> Fault {
    Fault::new(rejection.code, rejection.message.clone())
}

/// A fixed code for the run or the app-bridge.
fn refused(error: &OriginError) -> Fault {
    let code = match error {
        OriginError::Closed => "continuations_closed",
        OriginError::Snapshot(_) => "origin_context_too_large",
        OriginError::Store(rejection) => rejection.code,
        OriginError::OutOfPlace => "origin_context_unavailable",
    };
    Fault::new(code, error.to_string())
}
