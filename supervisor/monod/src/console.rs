//! What passes between operators and the web console: logins one way, a look at the daemon the
//! other.

use crate::input::ProcessId;
use crate::operator::{Asker, answer};
use crate::supervisor::{Supervisor, printable};
use ipc_proto::admin::Admin;
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::console::{Act, Look, Order};
use ipc_proto::edges::continuation::Order as Wanted;
use ipc_proto::edges::control::{Refusal, ToWorker};
use ipc_proto::{Body, Role};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the console may take to answer an operator.
const WITHIN: Duration = Duration::from_secs(20);
/// Operators who wait for the console at once.
const MAX_ORDERS: usize = 64;
/// Looks of the console that are not answered yet.
const MAX_LOOKS: usize = 32;
/// Least time between two looks at the status, which is made here and now. The console shows one for
/// a second; who asks more often is no page.
const STATUS_PAUSE: Duration = Duration::from_millis(100);
/// Largest answer of the console in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// An operator who waits for the console.
#[derive(Debug)]
struct Waiting {
    console: ProcessId,
    since: Instant,
    order: Order,
    responder: Responder<Admin>,
}

/// Operators who wait, and how many looks are under way.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    waiting: HashMap<u64, Waiting>,
    next: u64,
    looks: usize,
    /// When the status was last looked at.
    status: Option<Instant>,
}

impl Orders {
    /// True when one more operator may wait.
    fn has_room(&self) -> bool {
        self.waiting.len() < MAX_ORDERS
    }

    /// Counts a look until it is answered. False when it is one too many, which must be answered too.
    fn begin_look(&mut self) -> bool {
        self.looks += 1;
        self.looks <= MAX_LOOKS
    }

    fn end_look(&mut self) {
        self.looks = self.looks.saturating_sub(1);
    }

    /// True when the status may be looked at now; it is then.
    fn may_see_status(&mut self, now: Instant) -> bool {
        let pause = self.status.map(|last| now.duration_since(last));
        let may = pause.is_none_or(|pause| pause >= STATUS_PAUSE);
        if may {
            self.status = Some(now);
        }
        may
    }

    /// Answers operators for whom the console has taken too long.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late = self
            .waiting
            .extract_if(|_, waiting| now.duration_since(waiting.since) > WITHIN);
        for (_, waiting) in late {
            let fault = Fault::new("worker_unavailable", "the console did not answer in time");
            tokio::spawn(answer::<Value>(waiting.responder, Err(fault)));
        }
    }
}

impl Supervisor {
    /// Passes an operator's wish to the console. The supervisor makes no login itself: what it
    /// hands on is of no use once it was used.
    pub(crate) fn operate_console(&mut self, order: Order, responder: Responder<Admin>) {
        let refuse = |code: &str, message: &str, responder| {
            let fault = Fault::new(code, message);
            tokio::spawn(answer::<Value>(responder, Err(fault)));
        };
        if !self.config.console.enabled {
            let message = "the console is not enabled: set console.enabled and restart the daemon";
            return refuse("not_enabled", message, responder);
        }
        let Some(console) = self.serving(Role::ChannelConsole) else {
            let message = "the console is not serving; see `monoctl status`";
            return refuse("worker_unavailable", message, responder);
        };
        if !self.orders.has_room() {
            return refuse("busy", "too many operators wait for the console", responder);
        }
        // 0 is what belongs to no request.
        self.orders.next += 1;
        let number = self.orders.next;
        let wish = ToWorker::Operate {
            order: order.clone(),
        };
        let sent = self
            .processes
            .get(&console)
            .is_some_and(|process| process.send(number, wish, vec![]));
        if !sent {
            return refuse("worker_unavailable", "the console reads nothing", responder);
        }
        let waiting = Waiting {
            console,
            since: Instant::now(),
            order,
            responder,
        };
        self.orders.waiting.insert(number, waiting);
    }

    /// The console has answered.
    pub(crate) fn operated(
        &mut self,
        process: ProcessId,
        request: u64,
        result: Result<Body, Refusal>,
        mut fds: VecDeque<OwnedFd>,
    ) {
        // A late answer, or one that nobody asked for, says nothing.
        let waiting = self.orders.waiting.remove(&request);
        let Some(waiting) = waiting.filter(|waiting| waiting.console == process) else {
            return;
        };
        let result = match result {
            Ok(body) => body
                .unpack_json::<Value>(&mut fds, MAX_ANSWER)
                .map_err(|e| Fault::new("internal", e.to_string())),
            Err(Refusal { code, message }) => Err(Fault { code, message }),
        };
        let result = result.map(|value| match waiting.order {
            Order::Link => self.link_of(&value),
            Order::Sessions | Order::Revoke { .. } => value,
        });
        tokio::spawn(answer(
            waiting.responder,
            result.map(|value| (value, vec![])),
        ));
    }

    /// The whole link: only the supervisor knows where the console really listens.
    fn link_of(&self, made: &Value) -> Value {
        let token = made["token"].as_str().unwrap_or_default();
        let bound = self
            .listeners
            .get(&Role::ChannelConsole)
            .and_then(|listener| listener.local_addr().ok());
        let host = host_of(bound, &self.config.console.allowed_hosts);
        json!({
            "url": format!("http://{host}/login/{token}"),
            "expiresInMs": made["expiresInMs"],
        })
    }

    /// The console wants to see something of the daemon: what `monoctl` shows.
    pub(crate) fn look(&mut self, process: ProcessId, request: u64, at: Look) {
        let Some(asker) = self.asker(process, request) else {
            return;
        };
        match at {
            Look::Status if !self.orders.may_see_status(Instant::now()) => {
                let fault = Fault::new("busy", "the status was looked at a moment ago");
                self.looked(process, request, Err(fault));
            }
            Look::Status => {
                let status = serde_json::to_value(self.status())
                    .map_err(|e| Fault::new("internal", e.to_string()));
                self.looked(process, request, status);
            }
            Look::Config => self.looked(process, request, Ok(json!({ "fields": self.reports }))),
            Look::Runs {
                status,
                limit,
                cursor,
            } => self.list_runs(None, status, limit, cursor, asker),
            Look::Run { run } => self.show_run(&run, asker),
            Look::Artifacts { limit, cursor } => self.list_artifacts(limit, cursor, asker),
            Look::ContinuationHealth => self.operate_continuations(&Wanted::Health, asker),
            Look::Continuations { limit, cursor } => {
                self.operate_continuations(&Wanted::List { limit, cursor }, asker);
            }
            Look::Continuation { id } => {
                self.operate_continuations(&Wanted::Show { id }, asker);
            }
            Look::CapturedText { id } => {
                self.operate_continuations(&Wanted::Captured { id }, asker);
            }
        }
    }

    /// An operator does something in the console.
    pub(crate) fn act(&mut self, process: ProcessId, request: u64, act: Act) {
        let Some(asker) = self.asker(process, request) else {
            return;
        };
        let (what, order) = wanted(act);
        tracing::info!("an operator of the console {what}");
        self.operate_continuations(&order, asker);
    }

    /// Whom to answer; nobody when too much is under way, and the console is told so.
    fn asker(&mut self, process: ProcessId, request: u64) -> Option<Asker> {
        if !self.orders.begin_look() {
            let fault = Fault::new("busy", "too many looks at once");
            self.looked(process, request, Err(fault));
            return None;
        }
        Some(Asker::Console {
            process,
            request,
            tell: self.tell.clone(),
        })
    }

    /// Gives the console what it wanted to see.
    pub(crate) fn looked(
        &mut self,
        process: ProcessId,
        request: u64,
        result: Result<Value, Fault>,
    ) {
        self.orders.end_look();
        let packed = result.and_then(|value| {
            Body::pack_json(&value).map_err(|e| Fault::new("internal", e.to_string()))
        });
        let (answer, fds) = match packed {
            Ok((body, memfd)) => (ToWorker::Seen { body }, memfd.into_iter().collect()),
            Err(Fault { code, message }) => {
                let refusal = Refusal { code, message };
                (ToWorker::NotSeen { refusal }, vec![])
            }
        };
        if let Some(process) = self.processes.get(&process) {
            process.send(request, answer, fds);
        }
    }
}

/// What the continuation worker is told, and how the log says it.
fn wanted(act: Act) -> (String, Wanted) {
    match act {
        Act::RetryContinuation { id, allow_unknown } => {
            let may = if allow_unknown {
                ", though nobody knows whether it was delivered"
            } else {
                ""
            };
            let said = format!("retries the continuation {}{may}", printable(&id));
            (said, Wanted::Retry { id, allow_unknown })
        }
        Act::CancelContinuation { id } => {
            let said = format!("cancels the continuation {}", printable(&id));
            (said, Wanted::Cancel { id })
        }
        Act::ResolveContinuation {
            id,
            kind,
            delivery_id,
        } => {
            let (shown, how) = (printable(&id), printable(&kind));
            let said = format!("resolves the continuation {shown} as {how}");
            let order = Wanted::Resolve {
                id,
                kind,
                delivery_id,
            };
            (said, order)
        }
    }
}

/// What a browser of this machine calls the console by.
fn host_of(bound: Option<SocketAddr>, allowed: &[String]) -> String {
    match (bound, allowed.first()) {
        // The loopback address is only a name of its own while no names are configured.
        (Some(bound), None) => bound.to_string(),
        (_, Some(name)) => name.clone(),
        (None, None) => "localhost".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::admin::{Answer, Ask};
    use ipc_proto::{Client, Server};

    #[test]
    fn the_status_is_not_looked_at_without_a_pause() {
        let mut orders = Orders::default();
        let start = Instant::now();
        let early = start + STATUS_PAUSE.saturating_sub(Duration::from_millis(1));
        assert!(orders.may_see_status(start) && !orders.may_see_status(early));
        assert!(orders.may_see_status(start + STATUS_PAUSE));
        assert!(!orders.may_see_status(start + STATUS_PAUSE));
    }

    #[test]
    fn thirty_two_looks_are_under_way_at_most() {
        let mut orders = Orders::default();
        assert!((0..32).all(|_| orders.begin_look()));
        assert!(!orders.begin_look());
        // The refusal is an answer.
        orders.end_look();
        assert!(!orders.begin_look());
        orders.end_look();
        orders.end_look();
        assert!(orders.begin_look());
    }

    #[tokio::test]
    async fn sixty_four_operators_wait_for_the_console_and_each_for_twenty_seconds() {
        let mut orders = Orders::default();
        let start = Instant::now();
        let (ours, theirs) = ipc_proto::link::pair().unwrap();
        let client: Client<Admin> = Client::new(ours, Role::Monod).unwrap();
        let mut server: Server<Admin> = Server::new(theirs, Role::Monod).unwrap();
        let ask = |client: Client<Admin>| async move {
            client
                .call(&Ask::Status, &[], Duration::from_secs(60))
                .await
        };
        let asking: Vec<_> = (0..64).map(|_| tokio::spawn(ask(client.clone()))).collect();
        for number in 0..64 {
            assert!(orders.has_room(), "{number}");
            let waiting = Waiting {
                console: ProcessId(1),
                since: start,
                order: Order::Sessions,
                responder: server.recv().await.unwrap().unwrap().responder,
            };
            orders.waiting.insert(number, waiting);
        }
        assert!(!orders.has_room());
        orders.expire(start + Duration::from_secs(20));
        assert_eq!(orders.waiting.len(), 64);
        orders.expire(start + Duration::from_millis(20_001));
        assert!(orders.has_room() && orders.waiting.is_empty());
        for asked in asking {
            let (answer, _) = asked.await.unwrap().unwrap();
            let refused =
                matches!(&answer, Answer::Error { code, .. } if code == "worker_unavailable");
            assert!(refused, "{answer:?}");
        }
    }

    #[test]
    fn what_an_operator_does_is_an_order_and_a_line_of_the_log() {
        let id = || "c\n1".to_owned();
        let retry = |allow_unknown| Act::RetryContinuation {
            id: id(),
            allow_unknown,
        };
        let (calm, order) = wanted(retry(false));
        let expected = Wanted::Retry {
            id: id(),
            allow_unknown: false,
        };
        assert_eq!(order, expected);
        let (warned, _) = wanted(retry(true));
        assert!(warned.starts_with(&calm) && warned.ends_with("was delivered"));
        let cancel = Act::CancelContinuation { id: id() };
        let resolve = Act::ResolveContinuation {
            id: id(),
            kind: "not\ndelivered".into(),
            delivery_id: None,
        };
        for said in [calm, warned, wanted(cancel).0, wanted(resolve).0] {
            assert!(
                !said.contains('\n') && said.contains("continuation c"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_link_names_the_address_or_the_first_allowed_name() {
        let bound = |text: &str| text.parse().ok();
        let name = ["agent.lan:5050".to_owned(), "b".to_owned()];
        assert_eq!(host_of(bound("127.0.0.1:5050"), &[]), "127.0.0.1:5050");
        assert_eq!(host_of(bound("[::1]:7"), &[]), "[::1]:7");
        assert_eq!(host_of(bound("0.0.0.0:5050"), &name), "agent.lan:5050");
        assert_eq!(host_of(bound("127.0.0.1:5050"), &name), "agent.lan:5050");
    }
}
