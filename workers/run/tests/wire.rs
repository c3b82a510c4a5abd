//! Whole turns over real channels, with small owners at the other ends: what the traits promise
//! holds on the wire too.
#![allow(clippy::unwrap_used)]

use ipc_proto::channel::{Call, Fault};
use ipc_proto::chat::{ChatMessage, ChatRole, ModelRequest, Usage};
use ipc_proto::edges::app_bridge::{self, AppBridge, McpResult, McpTool, ToolListing};
use ipc_proto::edges::artifact::{self, Artifact};
use ipc_proto::edges::control::{EdgeName, RunStatus, Trigger, TurnInput};
use ipc_proto::edges::egress::{self, Egress, FinishReason};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::edges::store::{self, History, RunCommit, RunFailure, Store};
use ipc_proto::link::pair;
use ipc_proto::reply::{ArtifactReference, ReplyPart};
use ipc_proto::{Body, Edge, EventReceiver, Role, RunId, Server};
use mono_run::cancel::Cancel;
use mono_run::policy::ToolPolicy;
use mono_run::process::Runner;
use mono_run::tools::path::Places;
use mono_run::turn::{Job, Outcome, run};
use mono_run::wire::Wire;
use nix::sys::socket::{Shutdown, shutdown};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

const BIG: usize = 100_000;

/// What the owners saw.
#[derive(Default)]
struct Seen {
    commits: RefCell<Vec<RunCommit>>,
    failures: RefCell<Vec<RunFailure>>,
    published: RefCell<Vec<String>>,
    discarded: Cell<bool>,
    requests: RefCell<Vec<ModelRequest>>,
    called: RefCell<Vec<String>>,
}

/// What is to go wrong: the first time that a request of this kind comes, its owner leaves or
/// refuses.
#[derive(Clone, Copy)]
enum Trouble {
    None,
    Leaves(&'static str),
    Refuses(&'static str),
}

fn kind<T: std::fmt::Debug>(request: &T) -> String {
    format!("{request:?}")
        .chars()
        .take_while(|c| c.is_alphanumeric())
        .collect()
}

/// Serves an edge until its requester, or the owner itself, leaves.
async fn serve<E: Edge>(
    fd: OwnedFd,
    trouble: Trouble,
    mut answer: impl AsyncFnMut(E::Request, &mut VecDeque<OwnedFd>) -> Vec<(E::Reply, Option<OwnedFd>)>,
) where
    E::Request: std::fmt::Debug,
{
    let line = fd.try_clone().unwrap();
    let mut server: Server<E> = Server::new(fd, Role::Run).unwrap();
    while let Ok(Some(Call {
        request,
        mut fds,
        responder,
        ..
    })) = server.recv().await
    {
        let kind = kind(&request);
        match trouble {
            Trouble::Leaves(at) if at == kind => {
                // As when it is killed: nothing more is said, while a dropped responder would refuse.
                shutdown(line.as_raw_fd(), Shutdown::Both).unwrap();
                return;
            }
            Trouble::Refuses(at) if at == kind => {
                responder
                    .fault(&Fault::new("busy", "not now"))
                    .await
                    .unwrap();
                continue;
            }
            _ => {}
        }
        for (reply, fd) in answer(request, &mut fds).await {
            let fds: Vec<OwnedFd> = fd.into_iter().collect();
            responder.send(&reply, &fds).await.unwrap();
        }
    }
}

fn json_body<T: serde::Serialize>(value: &T) -> (Body, Option<OwnedFd>) {
    Body::pack_json(value).unwrap()
}

async fn store(fd: OwnedFd, trouble: Trouble, seen: &Seen) {
    serve::<Store>(fd, trouble, async |request, fds| {
        use store::{Reply, Request};
        let reply = match request {
            Request::BeginRun {
                source, user_text, ..
            } => {
                assert_eq!((source.as_str(), user_text.as_str()), ("openai", "please"));
                // Large enough to travel as a memfd.
                let old = vec![ChatMessage::text(ChatRole::User, "h".repeat(BIG))];
                let history = History {
                    messages: old,
                    account: None,
                    epoch: String::new(),
                    revision: 1,
                    turns: vec![],
                };
                let (history, fd) = json_body(&history);
                return vec![(Reply::Began { history }, fd)];
            }
            Request::CommitRun { commit } => {
                seen.commits
                    .borrow_mut()
                    .push(commit.unpack_json(fds, 1 << 24).unwrap());
                Reply::Committed { revision: 2 }
            }
            Request::FailRun { failure } => {
                seen.failures
                    .borrow_mut()
                    .push(failure.unpack_json(fds, 1 << 24).unwrap());
                Reply::Recorded
            }
            _ => Reply::Recorded,
        };
        vec![(reply, None)]
    })
    .await;
}

async fn artifact(fd: OwnedFd, trouble: Trouble, seen: &Seen) {
    serve::<Artifact>(fd, trouble, async |request, fds| {
        use artifact::{Reply, Request};
        let part = ReplyPart::Attachment {
            id: "p".into(),
            reference: ArtifactReference {
                scheme: "mono-agent-artifact".into(),
                id: "a".into(),
            },
            name: "r.txt".into(),
            media_type: "text/plain".into(),
            size_bytes: 6,
            integrity_id: "sha256:0".into(),
            expires_at: None,
        };
        let reply = match request {
            Request::Publish { .. } => {
                let mut text = String::new();
                File::from(fds.pop_front().unwrap())
                    .read_to_string(&mut text)
                    .unwrap();
                seen.published.borrow_mut().push(text);
                Reply::Published {
                    part: json_body(&part).0,
                }
            }
            Request::Finalise => {
                let parts = if seen.published.borrow().is_empty() {
                    vec![]
                } else {
                    vec![part]
                };
                Reply::Finalised {
                    parts: json_body(&parts).0,
                }
            }
            _ => {
                seen.discarded.set(true);
                Reply::Discarded
            }
        };
        vec![(reply, None)]
    })
    .await;
}

async fn egress(fd: OwnedFd, trouble: Trouble, seen: &Seen) {
    serve::<Egress>(fd, trouble, async |request, fds| {
        use egress::{Reply, Request};
        let Request::Complete { request } = request else {
            let message = "10.0.0.1".into();
            return vec![(
                Reply::FetchFailed {
                    code: "private_address".into(),
                    message,
                },
                None,
            )];
        };
        let request: ModelRequest = request.unpack_json(fds, 1 << 24).unwrap();
        seen.requests.borrow_mut().push(request);
        let done = |finish| {
            (
                Reply::Done {
                    finish,
                    model: "demo:one".into(),
                    failovers: vec![],
                },
                None,
            )
        };
        if seen.requests.borrow().len() > 1 {
            // Fewer pieces than the stream's window: this owner takes no credit while it answers.
            let piece = || {
                (
                    Reply::TextDelta {
                        text: "t".repeat(BIG / 50),
                    },
                    None,
                )
            };
            let mut script: Vec<_> = (0..50).map(|_| piece()).collect();
            script.push(done(FinishReason::Stop));
            return script;
        }
        let call = |id: &str, name: &str, arguments| {
            let (arguments, fd) = json_body(&arguments);
            (
                Reply::ToolCall {
                    id: id.into(),
                    name: name.into(),
                    arguments,
                },
                fd,
            )
        };
        vec![
            (
                Reply::Usage {
                    usage: Usage {
                        input: 1,
                        ..Usage::default()
                    },
                },
                None,
            ),
            call(
                "1",
                "Write",
                json!({"file_path": "r.txt", "content": "c".repeat(BIG)}),
            ),
            call("2", "PublishReplyFile", json!({"path": "r.txt"})),
            call("3", "echo", json!({"x": "y".repeat(BIG)})),
            call("4", "WebFetch", json!({"url": "http://intranet/"})),
            done(FinishReason::ToolUse),
        ]
    })
    .await;
}

async fn bridge(fd: OwnedFd, trouble: Trouble, seen: &Seen) {
    serve::<AppBridge>(fd, trouble, async |request, fds| {
        use app_bridge::{Reply, Request};
        match request {
            Request::ListTools => {
                let tool = McpTool {
                    server: "s".into(),
                    tool: "echo".into(),
                    description: "d".repeat(BIG),
                    input_schema: json!({"type": "object"}),
                    read_only: false,
                    app: false,
                };
                let (listing, fd) = json_body(&ToolListing {
                    tools: vec![tool],
                    warnings: vec![],
                });
                vec![(Reply::Tools { listing }, fd)]
            }
            Request::CallTool {
                server,
                tool,
                arguments,
            } => {
                let arguments: serde_json::Value = arguments.unpack_json(fds, 1 << 24).unwrap();
                assert_eq!(arguments["x"].as_str().unwrap().len(), BIG);
                seen.called.borrow_mut().push(format!("{server}/{tool}"));
                let content = vec![ipc_proto::chat::Block::Text {
                    text: "e".repeat(BIG),
                }];
                let (result, fd) = json_body(&McpResult {
                    content,
                    structured: None,
                    is_error: false,
                    app: None,
                });
                let progress = Reply::Progress {
                    progress: 1.0,
                    total: None,
                    message: None,
                };
                vec![(progress, None), (Reply::Result { result }, fd)]
            }
            Request::KeepApps { .. } => vec![(Reply::AppsKept, None)],
            other => panic!("{other:?}"),
        }
    })
    .await;
}

struct Turn {
    outcome: Outcome,
    seen: Rc<Seen>,
    events: Vec<RunEvent>,
    text: String,
}

/// Runs one turn; `reads` is how many events the reader takes before it leaves.
async fn turn(trouble: Trouble, reads: usize) -> Turn {
    let (workspace, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let places = Places::new(workspace.path(), scratch.path());
    let runner = Runner::new(scratch.path(), std::env::vars_os()).unwrap();
    let seen = Rc::new(Seen::default());
    let mut channels = Vec::new();
    let mut owners = VecDeque::new();
    for edge in [
        EdgeName::Store,
        EdgeName::Artifact,
        EdgeName::Egress,
        EdgeName::AppBridge,
        EdgeName::Events,
    ] {
        let (ours, theirs) = pair().unwrap();
        channels.push((edge, ours));
        owners.push_back(theirs);
    }
    let mut next = || owners.pop_front().unwrap();
    let (a, b, c, d, e) = (next(), next(), next(), next(), next());
    let trigger = Trigger {
        source: "openai".into(),
        detail: None,
    };
    let wire = Wire::new(channels, Role::ChannelOpenai, trigger).unwrap();
    let input = TurnInput {
        content: vec![ipc_proto::chat::Block::Text {
            text: "please".into(),
        }],
        ..TurnInput::default()
    };
    let cancel = Cancel::default();
    let job = Job {
        run: RunId::new(),
        source: "openai",
        input: &input,
        model: "demo:one",
        policy: &ToolPolicy::new(None, &[]).unwrap(),
        max_turns: None,
        soul: None,
        identity: "I",
        skills: &[],
        skills_by_name: false,
        today: "2030-01-01",
        claim_servers: &[],
        attached: None,
    };
    let reader = async {
        let mut receiver = EventReceiver::new(e).unwrap();
        let (mut events, mut text) = (Vec::new(), String::new());
        while events.len() < reads
            && let Ok(Some((event, mut fds))) = receiver.next().await
        {
            if let RunEvent::Finish { text: body, .. } = &event {
                text = String::from_utf8(body.clone().unpack(&mut fds, 1 << 24).unwrap()).unwrap();
            }
            let last = event.is_final();
            events.push(event);
            if last {
                break;
            }
        }
        (events, text)
    };
    let work = async {
        let (outcome, (events, text)) = tokio::join!(
            run(&wire, &job, &places, &runner, &cancel, Ok(None)),
            reader
        );
        (outcome, events, text)
    };
    let owners = async {
        tokio::join!(
            store(a, trouble, &seen),
            artifact(b, trouble, &seen),
            egress(c, trouble, &seen),
            bridge(d, trouble, &seen)
        );
        std::future::pending::<()>().await;
    };
    let both = async {
        tokio::select! {
            done = work => done,
            () = owners => unreachable!("owners wait for ever"),
        }
    };
    let (outcome, events, text) = tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .unwrap();
    Turn {
        outcome,
        seen,
        events,
        text,
    }
}

#[tokio::test]
async fn a_whole_turn_with_bodies_of_every_size() {
    let Turn {
        outcome,
        seen,
        events,
        text,
    } = turn(Trouble::None, usize::MAX).await;
    assert_eq!(outcome.status, RunStatus::Succeeded, "{events:?}");
    assert_eq!(seen.published.borrow().as_slice(), ["c".repeat(BIG)]);
    assert_eq!(seen.called.borrow().as_slice(), ["s/echo"]);
    let commits = seen.commits.borrow();
    assert_eq!(
        (
            commits[0].text.len(),
            commits[0].parts.len(),
            commits[0].usage.input
        ),
        (BIG, 1, 1)
    );
    assert_eq!(text, commits[0].text);
    let streamed: usize = events
        .iter()
        .map(|e| {
            if let RunEvent::Append { text } = e {
                text.len()
            } else {
                0
            }
        })
        .sum();
    assert_eq!(streamed, BIG);
    let ok: Vec<(&str, bool)> = events
        .iter()
        .filter_map(|e| {
            if let RunEvent::ToolCompleted { name, ok, .. } = e {
                Some((name.as_str(), *ok))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        ok,
        [
            ("Write", true),
            ("PublishReplyFile", true),
            ("echo", true),
            ("WebFetch", false)
        ]
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, RunEvent::Part { .. }))
    );
    assert!(matches!(events.last(), Some(RunEvent::Finish { .. })));
    assert_eq!(
        seen.requests.borrow()[0].messages[0].plain_text().len(),
        BIG
    );
}

#[tokio::test]
async fn an_owner_that_leaves_is_named_and_the_rest_is_put_in_order() {
    // (at which request, the worker, recorded in the store)
    let table = [
        ("BeginRun", "store", false),
        ("ToolStarted", "store", false),
        ("CommitRun", "store", false),
        ("Complete", "egress", true),
        ("Fetch", "egress", true),
        ("ListTools", "app-bridge", true),
        ("CallTool", "app-bridge", true),
        ("Publish", "artifact", true),
        ("Finalise", "artifact", true),
    ];
    for (at, worker, recorded) in table {
        let Turn {
            outcome,
            seen,
            events,
            ..
        } = turn(Trouble::Leaves(at), usize::MAX).await;
        assert_eq!(outcome.failure_kind.as_deref(), Some("worker_lost"), "{at}");
        let Some(RunEvent::Failed { message, .. }) = events.last() else {
            panic!("{at}: {events:?}")
        };
        assert!(message.contains(worker), "{at}: {message}");
        assert_eq!(seen.failures.borrow().len(), usize::from(recorded), "{at}");
        assert!(seen.commits.borrow().is_empty(), "{at}");
        let kept = at == "CommitRun" || worker == "artifact";
        assert_eq!(seen.discarded.get(), !kept, "{at}");
    }
}

#[tokio::test]
async fn a_refusal_ends_the_turn_only_where_nothing_goes_on_without() {
    // (which request is refused, the recorded kind; none when the turn goes on)
    let table = [
        ("BeginRun", Some("busy")),
        ("CommitRun", Some("busy")),
        ("Finalise", Some("busy")),
        ("Complete", Some("busy")),
        ("Fetch", None),
        ("ListTools", None),
        ("CallTool", None),
        ("Publish", None),
    ];
    for (at, kind) in table {
        let Turn {
            outcome,
            events,
            seen,
            ..
        } = turn(Trouble::Refuses(at), usize::MAX).await;
        assert_eq!(outcome.failure_kind.as_deref(), kind, "{at}: {events:?}");
        assert_eq!(
            seen.failures.borrow().len(),
            usize::from(kind.is_some()),
            "{at}"
        );
    }
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_run_as_cancelled() {
    let Turn { outcome, seen, .. } = turn(Trouble::None, 2).await;
    assert_eq!(outcome.status, RunStatus::Cancelled);
    assert!(seen.failures.borrow()[0].cancelled && seen.discarded.get());
}

#[tokio::test]
async fn an_assignment_without_a_channel_is_refused_by_name() {
    let (ours, _theirs) = pair().unwrap();
    let trigger = Trigger {
        source: "openai".into(),
        detail: None,
    };
    let error = Wire::new(vec![(EdgeName::Store, ours)], Role::Monod, trigger).unwrap_err();
    assert!(error.to_string().contains("Artifact"), "{error}");
}
