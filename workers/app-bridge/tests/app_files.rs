//! Files that an app hands over: who decides, what is checked, and what the artifact worker gets.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::apps::{Act, AppAnswer, AppAsk, Claim, Decision, MAX_FILE};
use ipc_proto::channel::{Call, Server};
use ipc_proto::edges::artifact::{Artifact, Reply, Request};
use ipc_proto::reply::{ArtifactReference, ReplyPart};
use ipc_proto::{Body, Role};
use mono_app_bridge::apps::desk::Answered;
use mono_app_bridge::apps::files::Content;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;
use support::stage::{Bench, Watched, bench, code, done};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);

/// The artifact worker's end.
struct Keeper(Server<Artifact>);

fn keeper(bench: &Bench) -> Keeper {
    let (ours, theirs) = ipc_proto::link::pair().unwrap();
    let door = bench.servers.stand().keeper();
    door.open(theirs, Role::Artifact).unwrap();
    Keeper(Server::new(ours, Role::AppBridge).unwrap())
}

impl Keeper {
    async fn asked(&mut self) -> Call<Artifact> {
        let call = tokio::time::timeout(SOON, self.0.recv()).await.unwrap();
        call.unwrap().unwrap()
    }

    /// Answers the next file as the artifact worker would; what was asked, and the bytes.
    async fn keeps(&mut self) -> (Request, Vec<u8>) {
        let Call {
            request,
            mut fds,
            responder,
            ..
        } = self.asked().await;
        let Request::Keep { name, content, .. } = request.clone() else {
            panic!("{request:?}")
        };
        let bytes = content.unpack(&mut fds, MAX_FILE).unwrap();
        let part = ReplyPart::Attachment {
            id: "i".into(),
            reference: ArtifactReference {
                scheme: "mono-agent-artifact".into(),
                id: "i".into(),
            },
            name,
            media_type: "text/csv".into(),
            size_bytes: bytes.len() as u64,
            integrity_id: "sha256:00".into(),
            expires_at: None,
        };
        let (part, _) = Body::pack_json(&part).unwrap();
        responder
            .send(&Reply::Published { part }, &[])
            .await
            .unwrap();
        (request, bytes)
    }

    /// True when nothing was asked so far.
    async fn is_idle(&mut self) -> bool {
        let next = tokio::time::timeout(Duration::from_millis(20), self.0.recv());
        next.await.is_err()
    }
}

fn offer(bytes: usize) -> Value {
    json!({ "files": [{ "uri": "ui://x/../a.csv", "mimeType": "text/csv", "bytes": bytes }],
        "head": "key sk-live-abcdefghijklmnop1234" })
}

fn content(bytes: &[u8]) -> Content {
    let (body, fd) = Body::pack(bytes.to_vec()).unwrap();
    let mut fds: VecDeque<OwnedFd> = fd.into_iter().collect();
    let (file, bytes) = body.sealed(&mut fds, MAX_FILE).unwrap();
    Content { file, bytes }
}

/// The name under which an allowed file is expected.
async fn wanted(view: &Watched<'_>, bytes: usize) -> String {
    let wanted: Value = done(
        view.allowed("ui/download-file", offer(bytes), Decision::Once)
            .await,
    );
    assert_eq!(
        (&wanted["files"][0]["name"], &wanted["files"][0]["bytes"]),
        (&json!("a.csv"), &json!(bytes))
    );
    wanted["files"][0]["file"].as_str().unwrap().to_owned()
}

async fn hand(bench: &Bench, claim: &Claim, act: Act, bytes: Option<&[u8]>) -> AppAnswer {
    let ask = AppAsk {
        claim: claim.clone(),
        act,
    };
    let (content, gone) = (bytes.map(content), CancellationToken::new());
    match bench.desk.answer(&bench.servers, ask, content, gone).await {
        Answered::Json(answer) => answer,
        Answered::Page(_) => panic!("a page"),
    }
}

fn act(view: &Watched<'_>, file: &str) -> Act {
    Act::Hand {
        view: view.view.clone(),
        capability: view.capability.clone(),
        file: file.to_owned(),
    }
}

#[tokio::test]
async fn a_file_is_asked_about_kept_once_and_written_down() {
    let bench = bench();
    let mut keeper = keeper(&bench);
    let view = bench.watched().await;
    let AppAnswer::Confirm { confirmation } = view.ask("ui/download-file", offer(3)).await else {
        panic!()
    };
    assert_eq!(confirmation.files[0].name, "a.csv");
    assert_eq!(confirmation.files[0].bytes, 3);
    assert!(!confirmation.may_remember && !confirmation.preview.contains("sk-live"));
    let declined = view.decide(&confirmation.id, Decision::Deny).await;
    assert_eq!(code(&declined), "app_declined");
    assert_eq!(view.phases(), ["requested", "rejected"]);
    assert!(keeper.is_idle().await);

    let file = wanted(&view, 3).await;
    // Nothing is done yet.
    assert_eq!(view.phases(), ["requested", "rejected", "requested"]);
    let handing = hand(&bench, &view.claim, act(&view, &file), Some(b"a,b"));
    let (answer, (request, bytes)) = tokio::join!(handing, keeper.keeps());
    let part: Value = done(answer);
    assert_eq!(
        (&part["type"], &part["name"]),
        (&json!("attachment"), &json!("a.csv"))
    );
    let Request::Keep {
        app,
        run,
        delivery,
        media_type,
        ..
    } = request
    else {
        panic!()
    };
    assert_eq!(
        (app, run.as_str()),
        (view.claim.invocation.clone(), &*view.claim.run)
    );
    assert_eq!(
        (delivery.as_str(), media_type.as_deref(), &bytes[..]),
        ("web:t", Some("text/csv"), &b"a,b"[..])
    );
    assert_eq!(view.phases()[3..], ["confirmed", "completed"]);
    // Once.
    let again = hand(&bench, &view.claim, act(&view, &file), Some(b"a,b")).await;
    assert_eq!(code(&again), "app_request_invalid");
    assert!(bench.calls().is_empty());
}

#[tokio::test]
async fn who_hands_is_judged_before_what_is_handed_and_nothing_is_kept() {
    let bench = bench();
    let mut keeper = keeper(&bench);
    let view = bench.watched().await;
    let other = bench.view(bench.app("web:other").await).await;
    let file = wanted(&view, 3).await;
    let with = |change: fn(&mut Claim)| {
        let mut claim = view.claim.clone();
        change(&mut claim);
        claim
    };
    for (claim, expected) in [
        (with(|c| c.invocation = "0".repeat(32)), "app_missing"),
        (with(|c| c.delivery = "web:other".into()), "app_forbidden"),
        (with(|c| c.run = "another".into()), "app_forbidden"),
        (with(|c| c.connection = "another".into()), "app_forbidden"),
        (other.claim.clone(), "app_forbidden"),
    ] {
        let answer = hand(&bench, &claim, act(&view, &file), Some(b"a,b")).await;
        assert_eq!(code(&answer), expected, "{claim:?}");
    }
    for capability in [String::new(), other.capability.clone()] {
        let act = Act::Hand {
            view: view.view.clone(),
            capability,
            file: file.clone(),
        };
        let answer = hand(&bench, &view.claim, act, Some(b"a,b")).await;
        assert_eq!(code(&answer), "app_forbidden");
    }
    // Another view's file, one that nobody allowed, other bytes than those that were offered.
    let answer = hand(&bench, &other.claim, act(&other, &file), Some(b"a,b")).await;
    assert_eq!(code(&answer), "app_request_invalid");
    for bytes in [None, Some(&b""[..]), Some(b"a,b,c")] {
        let file = wanted(&view, 3).await;
        let answer = hand(&bench, &view.claim, act(&view, &file), bytes).await;
        assert_eq!(code(&answer), "app_request_invalid", "{bytes:?}");
    }
    let never = hand(&bench, &view.claim, act(&view, "x"), Some(b"a,b")).await;
    assert_eq!(code(&never), "app_request_invalid");
    // With the view goes what was allowed in it.
    let close = Act::Close {
        view: view.view.clone(),
    };
    bench.act(&view.claim, close).await;
    let closed = hand(&bench, &view.claim, act(&view, &file), Some(b"a,b")).await;
    assert_eq!(code(&closed), "app_forbidden");
    assert!(keeper.is_idle().await);
    assert!(!view.phases().contains(&"confirmed".to_owned()));
}

#[tokio::test]
async fn files_are_bounded_in_size_number_and_time() {
    let bench = bench();
    let mut keeper = keeper(&bench);
    let view = bench.watched().await;
    let large = view.ask("ui/download-file", offer(MAX_FILE + 1)).await;
    assert_eq!(code(&large), "app_request_too_large");
    assert_eq!(
        code(&view.ask("ui/download-file", offer(MAX_FILE)).await),
        "confirm"
    );
    // Sixty executed requests a minute, files among them.
    for n in 0..60 {
        let file = wanted(&view, 1).await;
        let handing = hand(&bench, &view.claim, act(&view, &file), Some(b"x"));
        let (answer, _) = tokio::join!(handing, keeper.keeps());
        assert_eq!(code(&answer), "done", "{n}");
    }
    let file = wanted(&view, 1).await;
    let more = hand(&bench, &view.claim, act(&view, &file), Some(b"x")).await;
    assert_eq!(code(&more), "app_rate_limited");
    assert!(keeper.is_idle().await);
}

#[tokio::test]
async fn what_the_artifact_worker_refuses_is_not_there() {
    let bench = bench();
    let view = bench.watched().await;
    // Nobody keeps files.
    let file = wanted(&view, 1).await;
    let absent = hand(&bench, &view.claim, act(&view, &file), Some(b"x")).await;
    assert_eq!(code(&absent), "unavailable");
    let mut keeper = keeper(&bench);
    for (refused, expected) in [
        ("artifact_publish_failed", "artifact_publish_failed"),
        ("artifact_too_large", "app_request_too_large"),
        ("reply_part_too_large", "reply_part_too_large"),
    ] {
        let file = wanted(&view, 1).await;
        let handing = hand(&bench, &view.claim, act(&view, &file), Some(b"x"));
        let refusing = async {
            let call = keeper.asked().await;
            let refused = Reply::Refused {
                code: refused.into(),
                part: None,
            };
            call.responder.send(&refused, &[]).await.unwrap();
        };
        let (answer, ()) = tokio::join!(handing, refusing);
        assert_eq!(code(&answer), expected);
    }
    // A view that closes meanwhile takes its request back.
    let file = wanted(&view, 1).await;
    let handing = hand(&bench, &view.claim, act(&view, &file), Some(b"x"));
    let closing = async {
        let call = keeper.asked().await;
        let close = Act::Close {
            view: view.view.clone(),
        };
        bench.act(&view.claim, close).await;
        // Heard where the channel is read.
        tokio::select! {
            () = call.responder.cancelled() => {}
            _ = keeper.0.recv() => panic!("another request"),
        }
    };
    let both = async { tokio::join!(handing, closing) };
    let (answer, ()) = tokio::time::timeout(SOON, both).await.unwrap();
    assert_eq!(code(&answer), "app_connection_closed");
    assert_eq!(view.phases().last().unwrap(), "completed");
}
