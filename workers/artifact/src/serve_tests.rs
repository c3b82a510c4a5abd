#![allow(clippy::unwrap_used)]
use super::*;
use crate::manifest::integrity_id;
use ipc_proto::edges::artifact::{ArtifactPage, ArtifactRecord, Root};
use ipc_proto::link::pair;
use ipc_proto::reply::ReplyPart;
use ipc_proto::{CallError, Client, ConversationId, RunId};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

#[path = "serve_app_tests.rs"]
mod apps;

const SOON: Duration = Duration::from_secs(60);

struct Place {
    temp: tempfile::TempDir,
    shared: Shared,
}

fn dir(path: &Path) -> Dir {
    Dir::from_fd(File::open(path).unwrap().into()).unwrap()
}

fn place() -> Place {
    use std::os::unix::fs::PermissionsExt as _;
    let temp = tempfile::tempdir().unwrap();
    let at = |p: &str| temp.path().join(p);
    for sub in ["w", "scratch/run-1/outbound", "state"] {
        fs::create_dir_all(at(sub)).unwrap();
    }
    fs::set_permissions(at("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let state = dir(&at("state"));
    let roots = Roots::new(
        Some(dir(&at("w"))),
        Some(dir(&at("scratch"))),
        &[],
        state.id().unwrap(),
    );
    let shelf = Shelf::open(&state, CEILING, Timestamp::now()).unwrap();
    let retention = Retention {
        max_age_days: 1,
        max_count: 100,
        dry_run: false,
    };
    Place {
        temp,
        shared: Shared::new(Arc::new(Desk {
            shelf,
            roots,
            retention,
        })),
    }
}

fn conversation(text: &str) -> ConversationId {
    ConversationId::parse(text).unwrap()
}

impl Place {
    fn grant(&self, peer: Peer) -> Client<Artifact> {
        let (ours, theirs) = pair().unwrap();
        tokio::spawn(serve(self.shared.clone(), 1, peer, ours));
        Client::new(theirs, Role::Artifact).unwrap()
    }

    fn run(&self, delivery: &str) -> Client<Artifact> {
        let scope = RunScope {
            run: RunId::parse("run-1").unwrap(),
            conversation: conversation("logical"),
            delivery: conversation(delivery),
        };
        self.grant(Peer {
            role: Role::Run,
            run: Some(scope),
        })
    }

    fn reader(&self, role: Role) -> Client<Artifact> {
        self.grant(Peer { role, run: None })
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Vec<OwnedFd> {
        let path = self.temp.path().join(path);
        fs::write(&path, bytes).unwrap();
        vec![File::open(path).unwrap().into()]
    }

    /// Waits for what happens after a channel has ended.
    async fn until_empty(&self) {
        let empty = async {
            // An entry leaves the shelf a moment before its bytes leave the account.
            while self.shared.desk.shelf.count() > 0 || self.shared.desk.shelf.used() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, empty).await.unwrap();
    }
}

fn publish(root: Root, path: &str) -> Request {
    Request::Publish {
        root,
        path: path.to_owned(),
        name: None,
        media_type: None,
    }
}

fn open(id: &str, integrity: Option<&str>, delivery: Option<&str>) -> Request {
    Request::Open {
        id: id.to_owned(),
        integrity_id: integrity.map(str::to_owned),
        delivery: delivery.map(conversation),
        run: Some(RunId::parse("run-1").unwrap()),
    }
}

/// As [`open`], for an operator.
fn open_any(id: &str) -> Request {
    Request::Open {
        id: id.to_owned(),
        integrity_id: None,
        delivery: None,
        run: None,
    }
}

fn attachment(reply: Reply, mut fds: VecDeque<OwnedFd>) -> (String, String) {
    let Reply::Published { part } = reply else {
        panic!("{reply:?}")
    };
    let ReplyPart::Attachment {
        reference,
        integrity_id,
        ..
    } = part.unpack_json(&mut fds, 1 << 20).unwrap()
    else {
        panic!("no attachment")
    };
    (reference.id, integrity_id)
}

#[tokio::test]
async fn a_file_goes_from_a_run_to_the_reader_of_its_delivery_conversation() {
    let place = place();
    let run = place.run("physical");
    let fds = place.write("w/a.txt", b"hello");
    let (reply, fds) = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    let (id, integrity) = attachment(reply, fds);
    let fds = place.write("scratch/run-1/outbound/b.txt", b"other");
    let (reply, fds) = run
        .call(&publish(Root::Outbound, "b.txt"), &fds, SOON)
        .await
        .unwrap();
    attachment(reply, fds);
    let (reply, mut fds) = run.call(&Request::Finalise, &[], SOON).await.unwrap();
    let Reply::Finalised { parts } = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        parts
            .unpack_json::<Vec<ReplyPart>>(&mut fds, 1 << 20)
            .unwrap()
            .len(),
        2
    );
    drop(run);

    let channel = place.reader(Role::ChannelOpenai);
    let wish = open(&id, Some(&integrity), Some("physical"));
    let (reply, mut fds) = channel.call(&wish, &[], SOON).await.unwrap();
    let Reply::Opened { record } = reply else {
        panic!("{reply:?}")
    };
    let record: ArtifactRecord = record.unpack_json(&mut fds, 1 << 20).unwrap();
    let mut bytes = String::new();
    File::from(fds.pop_front().unwrap())
        .read_to_string(&mut bytes)
        .unwrap();
    assert_eq!(
        (
            bytes.as_str(),
            record.size_bytes,
            record.delivery_conversation_id.as_deref()
        ),
        ("hello", 5, Some("physical"))
    );
    assert!(fds.is_empty());
}

/// What a reader learns who gets no file: a code, and no descriptor.
async fn refusal(reader: &Client<Artifact>, wish: &Request) -> String {
    let (reply, fds) = reader.call(wish, &[], SOON).await.unwrap();
    assert!(fds.is_empty(), "{reply:?}");
    match reply {
        Reply::Refused { code, part: None } => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whoever_gets_no_file_gets_a_code_and_not_one_byte() {
    let place = place();
    let run = place.run("physical");
    let fds = place.write("w/a.txt", b"hello");
    let (reply, fds) = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    let (id, integrity) = attachment(reply, fds);
    let channel = place.reader(Role::ChannelOpenai);
    let wish = open(&id, Some(&integrity), Some("physical"));
    // Its run is not at its end yet.
    assert_eq!(refusal(&channel, &wish).await, "artifact_missing");
    run.call(&Request::Finalise, &[], SOON).await.unwrap();
    assert!(channel.call(&wish, &[], SOON).await.is_ok());

    let other = integrity_id(&[0; 32]);
    let mut other_message = wish.clone();
    let Request::Open { run, .. } = &mut other_message else {
        panic!("{other_message:?}")
    };
    *run = Some(RunId::parse("run-2").unwrap());
    let foreign = open(&id, Some(&integrity), Some("elsewhere"));
    let unknown = open(
        &uuid::Uuid::new_v4().to_string(),
        Some(&integrity),
        Some("physical"),
    );
    let unexpected = open(&id, Some(&other), Some("physical"));
    let long = open(&"x".repeat(10_000), Some(&integrity), Some("physical"));
    for (wish, code) in [
        (&foreign, "artifact_missing"),
        (&other_message, "artifact_missing"),
        (&unknown, "artifact_missing"),
        (&long, "artifact_missing"),
        (&unexpected, "artifact_integrity_failed"),
    ] {
        assert_eq!(refusal(&channel, wish).await, code, "{wish:?}");
    }
    let content = place
        .temp
        .path()
        .join(format!("state/reply-files/{id}/content"));
    fs::write(content, b"jello").unwrap();
    assert_eq!(refusal(&channel, &wish).await, "artifact_integrity_failed");
}

#[tokio::test]
async fn a_file_past_its_time_is_expired_and_gives_not_one_byte() {
    let place = place();
    let scope = RunScope {
        run: RunId::parse("run-1").unwrap(),
        conversation: conversation("logical"),
        delivery: conversation("physical"),
    };
    let mut session = Session::new(place.shared.desk.clone(), scope);
    place.write("w/a.txt", b"hello");
    let publication = Publication {
        root: Root::Workspace,
        path: "a.txt".to_owned(),
        name: None,
        media_type: None,
        source: Some(
            File::open(place.temp.path().join("w/a.txt"))
                .unwrap()
                .into(),
        ),
    };
    let long_ago = Timestamp::now() - jiff::SignedDuration::from_hours(24);
    let outcome = session.publish(publication, long_ago, &|_| true).unwrap();
    let Outcome::Published(ReplyPart::Attachment {
        reference,
        integrity_id,
        ..
    }) = outcome
    else {
        panic!("{outcome:?}")
    };
    session.finalise().unwrap();
    let channel = place.reader(Role::ChannelOpenai);
    let wish = open(&reference.id, Some(&integrity_id), Some("physical"));
    assert_eq!(refusal(&channel, &wish).await, "artifact_expired");
    let foreign = open(&reference.id, Some(&integrity_id), Some("elsewhere"));
    assert_eq!(refusal(&channel, &foreign).await, "artifact_missing");
}

#[tokio::test]
async fn a_full_store_has_its_own_code_and_a_visible_part() {
    let place = place();
    // Somebody's bytes fill it but for less than a manifest.
    let free = 1000;
    place
        .shared
        .desk
        .shelf
        .index()
        .quarantine(CEILING - crate::quota::charge(0) - free);
    let run = place.run("c");
    let fds = place.write("w/a.txt", b"hello");
    let (reply, mut fds) = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    let Reply::Refused {
        code,
        part: Some(part),
    } = reply
    else {
        panic!("{reply:?}")
    };
    assert_eq!(code, "artifact_publish_failed");
    let part: ReplyPart = part.unpack_json(&mut fds, 1 << 20).unwrap();
    assert!(matches!(part, ReplyPart::Failure { code, .. } if code == "artifact_publish_failed"));
    // The turn goes on, and an operator sees why.
    run.call(&Request::Finalise, &[], SOON).await.unwrap();
    let supervisor = place.reader(Role::Monod);
    let list = Request::List {
        limit: 1,
        cursor: None,
    };
    let (reply, mut fds) = supervisor.call(&list, &[], SOON).await.unwrap();
    let Reply::Artifacts { page } = reply else {
        panic!("{reply:?}")
    };
    let usage = page
        .unpack_json::<ArtifactPage>(&mut fds, 1 << 20)
        .unwrap()
        .usage
        .unwrap();
    assert_eq!(
        (usage.used_bytes, usage.ceiling_bytes, usage.count),
        (CEILING - free, CEILING, 0)
    );
    assert_eq!((usage.max_count, usage.due, usage.dry_run), (100, 0, false));
}

#[tokio::test]
async fn the_console_gets_no_file_of_another_channel() {
    for (delivery, allowed) in [
        ("web:t1", true),
        ("openai-api:x", false),
        ("terminal", false),
        ("website:1", false),
    ] {
        let place = place();
        let run = place.run(delivery);
        let fds = place.write("w/a.txt", b"hello");
        let (reply, fds) = run
            .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
            .await
            .unwrap();
        let (id, integrity) = attachment(reply, fds);
        run.call(&Request::Finalise, &[], SOON).await.unwrap();
        let console = place.reader(Role::ChannelConsole);
        let kept = Request::Kept {
            app: "0".repeat(32),
            delivery: conversation(delivery),
            run: RunId::parse("run-1").unwrap(),
        };
        for wish in [open(&id, Some(&integrity), Some(delivery)), kept] {
            match console.call(&wish, &[], SOON).await {
                Ok(_) => assert!(allowed, "{wish:?}"),
                Err(CallError::Fault(fault)) => {
                    assert_eq!((allowed, &*fault.code), (false, "forbidden"));
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[tokio::test]
async fn only_the_supervisor_lists_and_reads_without_naming_a_conversation() {
    let place = place();
    let run = place.run("physical");
    let fds = place.write("w/a.txt", b"hello");
    let (reply, fds) = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    let (id, integrity) = attachment(reply, fds);
    run.call(&Request::Finalise, &[], SOON).await.unwrap();
    let channel = place.reader(Role::ChannelOpenai);
    let mut of_any_message = open(&id, Some(&integrity), Some("physical"));
    if let Request::Open { run, .. } = &mut of_any_message {
        *run = None;
    }
    for wish in [
        open_any(&id),
        open(&id, Some(&integrity), None),
        open(&id, None, Some("physical")),
        of_any_message,
    ] {
        let refused = channel.call(&wish, &[], SOON).await.unwrap_err();
        assert!(matches!(refused, CallError::Fault(fault) if fault.code == "forbidden"));
    }
    let supervisor = place.reader(Role::Monod);
    let (_, fds) = supervisor.call(&open_any(&id), &[], SOON).await.unwrap();
    assert_eq!(fds.len(), 1);
    let list = Request::List {
        limit: 10,
        cursor: None,
    };
    let (reply, mut fds) = supervisor.call(&list, &[], SOON).await.unwrap();
    let Reply::Artifacts { page } = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        page.unpack_json::<ArtifactPage>(&mut fds, 1 << 20)
            .unwrap()
            .artifacts[0]
            .id,
        id
    );
    // A channel that asks for the list breaks the protocol and loses its channel.
    assert!(channel.call(&list, &[], SOON).await.is_err());
    // So does a run that reads.
    assert!(run.call(&open_any(&id), &[], SOON).await.is_err());
}

#[tokio::test]
async fn a_refused_file_is_a_visible_part_and_the_run_goes_on() {
    let place = place();
    let run = place.run("c");
    let fds = place.write("w/server.pem", b"key");
    let (reply, mut fds) = run
        .call(&publish(Root::Workspace, "server.pem"), &fds, SOON)
        .await
        .unwrap();
    let Reply::Refused {
        code,
        part: Some(part),
    } = reply
    else {
        panic!("{reply:?}")
    };
    let part: ReplyPart = part.unpack_json(&mut fds, 1 << 20).unwrap();
    assert!(
        matches!(part, ReplyPart::Failure { code: of, .. } if of == code && code == "artifact_publish_failed")
    );
    let fds = place.write("w/a.txt", b"fine");
    let (reply, _) = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    assert!(matches!(reply, Reply::Published { .. }));
}

#[tokio::test]
async fn a_run_whose_channel_closes_unfinalised_leaves_nothing() {
    let place = place();
    let run = place.run("c");
    let fds = place.write("w/a.txt", b"hello");
    let (reply, _) = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    assert!(matches!(reply, Reply::Published { .. }));
    assert_eq!(place.shared.desk.shelf.count(), 1);
    drop(run);
    place.until_empty().await;
}

#[tokio::test]
async fn a_run_that_discards_after_it_finalised_leaves_nothing() {
    let place = place();
    let run = place.run("c");
    let fds = place.write("w/a.txt", b"hello");
    run.call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap();
    run.call(&Request::Finalise, &[], SOON).await.unwrap();
    let late = run
        .call(&publish(Root::Workspace, "a.txt"), &fds, SOON)
        .await
        .unwrap_err();
    assert!(matches!(late, CallError::Fault(fault) if fault.code == "settled"));
    let (reply, _) = run.call(&Request::Discard, &[], SOON).await.unwrap();
    assert_eq!(reply, Reply::Discarded);
    place.until_empty().await;
}

#[tokio::test]
async fn twenty_mebibytes_hold_up_neither_the_loop_nor_a_reader() {
    let place = place();
    let run = place.run("c");
    let big = vec![3; crate::MAX_FILE as usize];
    let supervisor = place.reader(Role::Monod);
    let list = Request::List {
        limit: 1,
        cursor: None,
    };
    let mut most = 0;
    // A machine that is busy may let this thread wait while the other one copies, but not each time.
    for file in 0..8 {
        let name = format!("{file}.bin");
        let fds = place.write(&format!("w/{name}"), &big);
        let wish = publish(Root::Workspace, &name);
        let publishing = run.call(&wish, &fds, SOON);
        let beats = async {
            let mut answered = 0u32;
            loop {
                supervisor.call(&list, &[], SOON).await.unwrap();
                answered += 1;
                tokio::task::yield_now().await;
                if place.shared.desk.shelf.count() > file {
                    return answered;
                }
            }
        };
        let (published, answered) = tokio::join!(publishing, beats);
        let (reply, fds) = published.unwrap();
        assert_eq!(
            attachment(reply, fds).1,
            integrity_id(&Sha256::digest(&big).into())
        );
        most = most.max(answered);
        if most > 3 {
            break;
        }
    }
    assert!(most > 3, "{most} answers while 20 MiB were copied");
}

#[tokio::test]
async fn requests_of_one_run_are_answered_in_order_and_a_withdrawn_one_leaves_nothing() {
    let place = place();
    let run = place.run("c");
    let big = place.write("w/big.bin", &vec![3; crate::MAX_FILE as usize]);
    let small = place.write("w/small.txt", b"small");
    let withdrawn = run
        .stream(&publish(Root::Workspace, "big.bin"), &big, None)
        .await
        .unwrap();
    let wish = publish(Root::Workspace, "small.txt");
    let next = run.call(&wish, &small, SOON);
    drop(withdrawn);
    let (reply, fds) = next.await.unwrap();
    attachment(reply, fds);
    let (reply, mut fds) = run.call(&Request::Finalise, &[], SOON).await.unwrap();
    let Reply::Finalised { parts } = reply else {
        panic!("{reply:?}")
    };
    let parts: Vec<ReplyPart> = parts.unpack_json(&mut fds, 1 << 20).unwrap();
    assert_eq!(
        parts
            .iter()
            .filter(|p| matches!(p, ReplyPart::Attachment { .. }))
            .count(),
        place.shared.desk.shelf.count()
    );
    assert!(
        matches!(parts.last(), Some(ReplyPart::Attachment { name, .. }) if name == "small.txt")
    );
}

#[tokio::test]
async fn a_run_s_channel_without_a_scope_is_closed() {
    let place = place();
    let client = place.grant(Peer {
        role: Role::Run,
        run: None,
    });
    assert!(client.call(&Request::Finalise, &[], SOON).await.is_err());
}
