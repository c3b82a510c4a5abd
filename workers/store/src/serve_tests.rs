#![allow(clippy::unwrap_used)]

use super::*;
use ipc_proto::chat::{ChatMessage, ChatRole, Usage};
use ipc_proto::{CallError, Client, ConversationId};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;

const WAIT: Duration = Duration::from_secs(30);

struct Bench {
    desk: Desk,
    damage: mpsc::UnboundedReceiver<String>,
    dir: TempDir,
}

struct Channel {
    client: Client<edge::Store>,
    revoke: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

fn bench() -> Bench {
    let dir = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .unwrap();
    let (desk, damage) = Desk::new(Store::open(dir.path(), Limits::default()).unwrap());
    Bench { desk, damage, dir }
}

fn scope(run: &str, conversation: &str) -> RunScope {
    let conversation = ConversationId::parse(conversation).unwrap();
    RunScope {
        run: RunId::parse(run).unwrap(),
        delivery: conversation.clone(),
        conversation,
    }
}

impl Bench {
    fn grant(&self, role: Role, run: Option<RunScope>) -> Channel {
        let (ours, theirs) = ipc_proto::link::pair().unwrap();
        let (revoke, revoked) = oneshot::channel();
        let desk = self.desk.clone();
        let peer = Peer { role, run };
        let served = tokio::spawn(async move { serve(&desk, ours, peer, revoked).await });
        Channel {
            client: Client::new(theirs, Role::Store).unwrap(),
            revoke: Some(revoke),
            served,
        }
    }

    fn run(&self, run: &str, conversation: &str) -> Channel {
        self.grant(Role::Run, Some(scope(run, conversation)))
    }

    fn status(&self, run: &str) -> Option<(String, Option<String>)> {
        let run = RunId::parse(run).unwrap();
        let record = self.desk.with(|store| store.show_run(&run)).unwrap();
        record.map(|record| (record.status, record.failure_kind))
    }
}

impl Channel {
    async fn ask(
        &self,
        request: Request,
        fd: Option<OwnedFd>,
    ) -> Result<(Reply, VecDeque<OwnedFd>), CallError> {
        let fds: Vec<OwnedFd> = fd.into_iter().collect();
        self.client.call(&request, &fds, WAIT).await
    }

    async fn begin(&self) -> edge::History {
        match self.ask(begin(), None).await.unwrap() {
            (Reply::Began { history }, mut fds) => history.unpack_json(&mut fds, 64 << 20).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn commit(&self, text: &str) -> Result<u64, CallError> {
        let (commit, fd) = Body::pack_json(&commit(text)).unwrap();
        match self.ask(Request::CommitRun { commit }, fd).await? {
            (Reply::Committed { revision }, _) => Ok(revision),
            other => panic!("{other:?}"),
        }
    }

    async fn code(&self, request: Request) -> String {
        match self.ask(request, None).await {
            Err(CallError::Fault(fault)) => fault.code,
            other => panic!("{other:?}"),
        }
    }

    /// Closes the requester's end and waits until the store has noticed.
    async fn close(self) {
        drop(self.client);
        self.served.await.unwrap();
    }
}

fn begin() -> Request {
    Request::BeginRun {
        source: "terminal".into(),
        source_detail: None,
        model: "demo:scripted".into(),
        user_text: "hello".into(),
    }
}

fn commit(text: &str) -> edge::RunCommit {
    edge::RunCommit {
        messages: vec![
            ChatMessage::text(ChatRole::User, "hello"),
            ChatMessage::text(ChatRole::Assistant, text),
        ],
        text: text.into(),
        parts: Vec::new(),
        usage: Usage::default(),
        model: "demo:scripted".into(),
        failovers: Vec::new(),
    }
}

fn all_requests() -> Vec<Request> {
    let run = || RunId::parse("other").unwrap();
    let conversation = || ConversationId::parse("other").unwrap();
    vec![
        begin(),
        Request::ToolStarted {
            id: "t".into(),
            name: "n".into(),
            arguments: "{}".into(),
        },
        Request::ToolEnded {
            id: "t".into(),
            state: "success".into(),
            preview: String::new(),
        },
        Request::CommitRun {
            commit: Body::Inline(b"{}".to_vec()),
        },
        Request::FailRun {
            failure: Body::Inline(b"{}".to_vec()),
        },
        Request::ListRuns {
            conversation: None,
            status: None,
            limit: 1,
            cursor: None,
        },
        Request::ShowRun { run: run() },
        Request::RunCommitted { run: run() },
        Request::Interrupt {
            run: run(),
            failure_kind: "x".into(),
        },
        Request::LatestHistory {
            conversation: conversation(),
        },
        Request::AppendHistory {
            conversation: conversation(),
            key: "k".into(),
            messages: Body::Inline(b"[]".to_vec()),
        },
        Request::Console {
            ask: Body::Inline(br#"{"ask":"sessions"}"#.to_vec()),
        },
        Request::LeaveLetter {
            conversation: conversation(),
            key: "k".into(),
            text: Body::Inline(b"text".to_vec()),
            until: Until::after(WAIT),
        },
        Request::Letters {
            conversation: None,
            after: 0,
            limit: 1,
        },
    ]
}

/// What lay here for too long could be found in the channel after its record said otherwise.
#[tokio::test]
async fn an_answer_that_comes_later_is_entered_in_time_or_not_at_all() {
    let bench = bench();
    let (letters, console) = (
        bench.grant(Role::Continuation, None),
        bench.grant(Role::ChannelConsole, None),
    );
    let leave = |key: &str, until| Request::LeaveLetter {
        conversation: ConversationId::parse("c").unwrap(),
        key: key.into(),
        text: Body::Inline(b"text".to_vec()),
        until,
    };
    let ask = |ask: serde_json::Value| Request::Console {
        ask: Body::Inline(ask.to_string().into_bytes()),
    };
    let deliver = |id: &str, until: Until| {
        let message = serde_json::json!({
            "id": id, "role": "assistant", "createdAt": 1, "text": "later", "status": "succeeded",
        });
        ask(
            serde_json::json!({ "ask": "deliver", "thread": "t", "message": message, "until": until }),
        )
    };
    let new = ask(serde_json::json!({ "ask": "new-thread", "id": "t" }));
    console.ask(new, None).await.unwrap();
    let (early, late) = (Until::after(WAIT), Until::after(Duration::ZERO));
    assert_eq!(letters.code(leave("k1", late)).await, TOO_LATE);
    assert_eq!(console.code(deliver("m1", late)).await, TOO_LATE);
    letters.ask(leave("k2", early), None).await.unwrap();
    console.ask(deliver("m2", early), None).await.unwrap();
    // Also what is there already: the next request says so, and not this one.
    assert_eq!(letters.code(leave("k2", late)).await, TOO_LATE);

    let left = bench.desk.with(|store| store.letters(None, 0, 9)).unwrap();
    let keys: Vec<_> = left
        .letters
        .iter()
        .map(|l| l.delivery_id.as_str())
        .collect();
    assert_eq!(keys, ["k2"]);
    let show = serde_json::json!({ "ask": "show-thread", "id": "t", "limit": 9 });
    let shown = console.ask(ask(show), None).await.unwrap();
    let (Reply::Console { answer }, mut fds) = shown else {
        panic!("{shown:?}");
    };
    let view: serde_json::Value = answer.unpack_json(&mut fds, MAX_BODY).unwrap();
    let ids: Vec<_> = view["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["m2"]);
}

#[tokio::test]
async fn a_turn_over_the_wire() {
    let bench = bench();
    let first = bench.run("r1", "c");
    assert!(first.begin().await.messages.is_empty());
    let started = Request::ToolStarted {
        id: "t".into(),
        name: "Read".into(),
        arguments: "{}".into(),
    };
    assert_eq!(first.ask(started, None).await.unwrap().0, Reply::Recorded);
    let ended = Request::ToolEnded {
        id: "t".into(),
        state: "success".into(),
        preview: "x".into(),
    };
    assert_eq!(first.ask(ended, None).await.unwrap().0, Reply::Recorded);
    // Larger than a packet, so it travels as a memfd, both ways.
    let text = "x".repeat(60_000);
    assert_eq!(first.commit(&text).await.unwrap(), 1);
    assert_eq!(first.commit(&text).await.unwrap(), 1);
    assert!(
        matches!(first.commit("other").await, Err(CallError::Fault(f)) if f.code == "conflict")
    );
    first.close().await;
    assert_eq!(bench.status("r1").unwrap().0, "succeeded");

    let second = bench.run("r2", "c");
    let history = second.begin().await;
    assert_eq!(history.messages[1].plain_text(), text);
    let monod = bench.grant(Role::Monod, None);
    let show = Request::ShowRun {
        run: RunId::parse("r1").unwrap(),
    };
    let (
        Reply::Run {
            record: Some(record),
        },
        mut fds,
    ) = monod.ask(show, None).await.unwrap()
    else {
        panic!()
    };
    let record: edge::RunRecord = record.unpack_json(&mut fds, 1 << 20).unwrap();
    assert_eq!((record.tools.len(), record.messages.len()), (1, 2));
    let list = Request::ListRuns {
        conversation: None,
        status: Some("running".into()),
        limit: 10,
        cursor: None,
    };
    let (Reply::Runs { page }, mut fds) = monod.ask(list, None).await.unwrap() else {
        panic!()
    };
    let page: edge::RunPage = page.unpack_json(&mut fds, 1 << 20).unwrap();
    assert_eq!(page.runs[0].run_id, "r2");
}

#[tokio::test]
async fn a_run_that_ends_with_the_supervisor_is_left_to_the_next_start() {
    let bench = bench();
    let lost = bench.run("r1", "c");
    lost.begin().await;
    // Its end is seen, and then the supervisor's, with which the worker drops all that it serves: at
    // once, so the clock stands still.
    tokio::time::pause();
    drop(lost.client);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    lost.served.abort();
    assert!(lost.served.await.unwrap_err().is_cancelled());
    assert_eq!(bench.status("r1"), Some(("running".into(), None)));
    bench.desk.with(|store| store.sweep(2)).unwrap();
    let ended = Some(("interrupted".into(), Some("process_death".into())));
    assert_eq!(bench.status("r1"), ended);
}

#[tokio::test]
async fn a_run_that_loses_its_channel_is_interrupted_and_its_conversation_goes_on() {
    let mut bench = bench();
    let lost = bench.run("r1", "c");
    lost.begin().await;
    let waiting = bench.run("r2", "c");
    assert_eq!(waiting.code(begin()).await, "busy");
    waiting.close().await;
    lost.close().await;
    assert_eq!(
        bench.status("r1"),
        Some(("interrupted".into(), Some("worker_lost".into())))
    );
    let next = bench.run("r3", "c");
    assert!(next.begin().await.account.unwrap().contains("worker_lost"));

    // Withdrawing the grant is the same.
    let mut revoked = bench.run("r4", "d");
    revoked.begin().await;
    drop(revoked.revoke.take());
    revoked.served.await.unwrap();
    assert_eq!(bench.status("r4").unwrap().0, "interrupted");
    // One that never began leaves nothing.
    bench.run("r5", "d").close().await;
    assert_eq!(bench.status("r5"), None);
    assert!(bench.damage.try_recv().is_err());
}

#[tokio::test]
async fn a_run_fails_itself_and_nobody_else() {
    let bench = bench();
    let (one, two) = (bench.run("r1", "c1"), bench.run("r2", "c2"));
    one.begin().await;
    two.begin().await;
    let failure = edge::RunFailure {
        cancelled: true,
        failure_kind: "cancelled".into(),
        message: "on request".into(),
        user_text: "hello".into(),
        partial_text: String::new(),
        usage: Usage::default(),
        failovers: Vec::new(),
    };
    let (failure, fd) = Body::pack_json(&failure).unwrap();
    assert_eq!(
        one.ask(Request::FailRun { failure }, fd).await.unwrap().0,
        Reply::Recorded
    );
    assert!(matches!(one.commit("late").await, Err(CallError::Fault(f)) if f.code == "ended"));
    assert_eq!(
        (bench.status("r1").unwrap().0, bench.status("r2").unwrap().0),
        ("cancelled".into(), "running".into())
    );
}

/// The table ends the channel of a peer that asks for what its role may not; behind it, the store
/// refuses on its own.
#[tokio::test]
async fn what_a_role_may_ask_is_refused_twice() {
    let bench = bench();
    let peers = [
        (Role::Run, Some(scope("r1", "c")), &[0, 1, 2, 3, 4][..]),
        // A run's grant without its scope, and a scope with another role.
        (Role::Run, None, &[]),
        (Role::Monod, Some(scope("r1", "c")), &[]),
        (Role::Monod, None, &[5, 6, 7, 8, 13]),
        (Role::Continuation, None, &[7, 9, 10, 12]),
        (Role::ChannelOpenai, None, &[]),
        (Role::ChannelConsole, None, &[11]),
        (Role::ChannelConsole, Some(scope("r1", "c")), &[]),
        (Role::Egress, None, &[]),
        (Role::AppBridge, None, &[]),
        (Role::Artifact, None, &[]),
    ];
    for (role, run, allowed) in peers {
        for (index, request) in all_requests().into_iter().enumerate() {
            let peer = Peer {
                role,
                run: run.clone(),
            };
            let direct = handle(&bench.desk, &peer, 0, request.clone(), &mut VecDeque::new());
            let refused = matches!(&direct, Err(fault) if fault.code == "forbidden");
            assert_eq!(
                refused,
                !allowed.contains(&index),
                "{role} {request:?}: {direct:?}"
            );
            if refused {
                let channel = bench.grant(role, run.clone());
                let wire = channel.ask(request.clone(), None).await;
                let closed = !matches!(wire, Ok(_) | Err(CallError::Timeout { .. }));
                assert!(closed, "{role} {request:?}: {wire:?}");
            }
        }
    }
}

#[tokio::test]
async fn malformed_bodies_and_wishes_are_refused_by_code() {
    let bench = bench();
    let run = bench.run("r1", "c");
    run.begin().await;
    for body in [&b"{}"[..], b"", b"[]", b"\xff", b"{\"messages\":[{}]}"] {
        let commit = Body::Inline(body.to_vec());
        assert_eq!(
            run.code(Request::CommitRun { commit }).await,
            "invalid_request",
            "{body:?}"
        );
    }
    assert_eq!(
        run.code(Request::CommitRun {
            commit: Body::Sealed(40_000)
        })
        .await,
        "invalid_request"
    );
    let monod = bench.grant(Role::Monod, None);
    for (status, limit, cursor) in [
        (Some("lost"), 1, None),
        (None, 0, None),
        (None, 101, None),
        (None, 1, Some("x")),
    ] {
        let request = Request::ListRuns {
            conversation: None,
            status: status.map(str::to_owned),
            limit,
            cursor: cursor.map(str::to_owned),
        };
        assert_eq!(
            monod.code(request).await,
            "invalid_request",
            "{status:?} {limit} {cursor:?}"
        );
    }
    let unknown = Request::Interrupt {
        run: RunId::parse("nobody").unwrap(),
        failure_kind: "x".into(),
    };
    assert_eq!(monod.code(unknown).await, "not_found");
    // The run is as it was.
    assert_eq!(run.commit("fine").await.unwrap(), 1);
}

#[tokio::test]
async fn a_continuation_reads_and_appends() {
    let bench = bench();
    let run = bench.run("r1", "c");
    run.begin().await;
    let continuation = bench.grant(Role::Continuation, None);
    for (expected, end) in [("running", true), ("committed", false)] {
        let asked = Request::RunCommitted {
            run: RunId::parse("r1").unwrap(),
        };
        let (reply, _) = continuation.ask(asked, None).await.unwrap();
        assert_eq!(
            reply,
            Reply::Committedness {
                state: expected.into()
            }
        );
        if end {
            run.commit("answer").await.unwrap();
        }
    }
    let conversation = ConversationId::parse("c").unwrap();
    let later = vec![ChatMessage::text(ChatRole::Assistant, "later")];
    for revision in [2, 2] {
        let (messages, fd) = Body::pack_json(&later).unwrap();
        let append = Request::AppendHistory {
            conversation: conversation.clone(),
            key: "d1".into(),
            messages,
        };
        assert_eq!(
            continuation.ask(append, fd).await.unwrap().0,
            Reply::Committed { revision }
        );
    }
    let latest = Request::LatestHistory { conversation };
    let (Reply::Began { history }, mut fds) = continuation.ask(latest, None).await.unwrap() else {
        panic!()
    };
    let history: edge::History = history.unpack_json(&mut fds, 1 << 20).unwrap();
    assert_eq!(history.messages.last(), later.last());
}

#[tokio::test]
async fn damage_found_while_serving_ends_the_worker() {
    let mut bench = bench();
    let run = bench.run("r1", "c");
    run.begin().await;
    run.commit("answer").await.unwrap();
    // The history's JSON is fine, its shape is not: what a flipped bit looks like.
    bench
        .desk
        .with(|store| {
            Ok(store
                .db
                .execute("UPDATE messages SET content = '[1]', bytes = 3", [])?)
        })
        .unwrap();
    let next = bench.run("r2", "c");
    assert_eq!(next.code(begin()).await, "unavailable");
    assert!(bench.damage.recv().await.unwrap().contains("damaged"));
}

#[test]
fn no_fault_names_a_path() {
    let bench = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(async { bench() });
    let path = bench.dir.path().to_path_buf();
    let errors = [
        StoreError::InUse,
        StoreError::Corrupt {
            path: path.clone(),
            detail: "x".into(),
        },
        StoreError::Foreign {
            path: path.clone(),
            found: 0,
            expected: 1,
        },
        StoreError::Newer {
            path: path.clone(),
            found: 9,
            known: 1,
        },
    ];
    for error in &errors {
        let fault = fault(error);
        assert_eq!(fault.code, "unavailable");
        assert!(!fault.message.contains(path.to_str().unwrap()));
    }
}
