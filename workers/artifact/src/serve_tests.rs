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

const SOON: Duration = Duration::from_secs(20);

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
    let fds = place.write("w/big.bin", &big);
    let wish = publish(Root::Workspace, "big.bin");
    let publishing = run.call(&wish, &fds, SOON);
    let supervisor = place.reader(Role::Monod);
    let list = Request::List {
        limit: 1,
        cursor: None,
    };
    let beats = async {
        let mut answered = 0u32;
        loop {
            supervisor.call(&list, &[], SOON).await.unwrap();
            answered += 1;
            tokio::task::yield_now().await;
            if place.shared.desk.shelf.count() > 0 {
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
    assert!(answered > 3, "{answered} answers while 20 MiB were copied");
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

const APP: &str = "0123456789abcdef0123456789abcdef";

fn keep(app: &str, name: &str, bytes: Vec<u8>) -> (Request, Vec<OwnedFd>) {
    let (content, fd) = Body::pack(bytes).unwrap();
    let request = Request::Keep {
        app: app.to_owned(),
        run: RunId::parse("run-1").unwrap(),
        conversation: conversation("logical"),
        delivery: conversation("physical"),
        name: name.to_owned(),
        media_type: Some("Text/CSV".to_owned()),
        content,
    };
    (request, fd.into_iter().collect())
}

async fn kept(bridge: &Client<Artifact>, app: &str, name: &str, bytes: &[u8]) -> (String, String) {
    let (request, fds) = keep(app, name, bytes.to_vec());
    let (reply, fds) = bridge.call(&request, &fds, SOON).await.unwrap();
    attachment(reply, fds)
}

async fn not_kept(bridge: &Client<Artifact>, (request, fds): (Request, Vec<OwnedFd>)) -> String {
    let (reply, _) = bridge.call(&request, &fds, SOON).await.unwrap();
    match reply {
        Reply::Refused { code, part: None } => code,
        other => panic!("{other:?}"),
    }
}

async fn listed(console: &Client<Artifact>, delivery: &str, run: &str) -> Vec<ArtifactRecord> {
    let request = Request::Kept {
        app: APP.to_owned(),
        delivery: conversation(delivery),
        run: RunId::parse(run).unwrap(),
    };
    let (reply, mut fds) = console.call(&request, &[], SOON).await.unwrap();
    let Reply::Artifacts { page } = reply else {
        panic!("{reply:?}")
    };
    let page: ArtifactPage = page.unpack_json(&mut fds, 1 << 20).unwrap();
    page.artifacts
}

#[tokio::test]
async fn a_file_of_an_app_is_kept_at_once_and_read_where_the_app_is_shown() {
    let place = place();
    let bridge = place.reader(Role::AppBridge);
    let console = place.reader(Role::ChannelConsole);
    let large = vec![7; 3 * 1024 * 1024];
    for (name, shown, bytes) in [
        ("a/b\u{202e}.csv", "a_b.csv", &b"a,b"[..]),
        ("", "file", b""),
        ("large.bin", "large.bin", &large),
    ] {
        let (id, integrity) = kept(&bridge, APP, name, bytes).await;
        assert_eq!(integrity, integrity_id(&Sha256::digest(bytes).into()));
        let wish = open(&id, Some(&integrity), Some("physical"));
        let (reply, mut fds) = console.call(&wish, &[], SOON).await.unwrap();
        let Reply::Opened { record } = reply else {
            panic!("{reply:?}")
        };
        let record: ArtifactRecord = record.unpack_json(&mut fds, 1 << 20).unwrap();
        assert_eq!(
            (&*record.name, &*record.media_type, record.app.as_deref()),
            (shown, "text/csv", Some(APP))
        );
        let mut read = Vec::new();
        File::from(fds.pop_front().unwrap())
            .read_to_end(&mut read)
            .unwrap();
        assert!(read == bytes);
        for foreign in [
            open(&id, Some(&integrity), Some("elsewhere")),
            open(&id, Some(&integrity_id(&[0; 32])), Some("physical")),
        ] {
            assert!(refusal(&console, &foreign).await.starts_with("artifact_"));
        }
    }
    let names = |records: Vec<ArtifactRecord>| -> Vec<String> {
        let mut names: Vec<_> = records.into_iter().map(|record| record.name).collect();
        names.sort();
        names
    };
    let all = listed(&console, "physical", "run-1").await;
    assert_eq!(names(all), ["a_b.csv", "file", "large.bin"]);
    assert!(listed(&console, "elsewhere", "run-1").await.is_empty());
    assert!(listed(&console, "physical", "run-2").await.is_empty());
    // Over a restart, too: a shelf that is opened anew has them.
    let used = place.shared.desk.shelf.used();
    let Place { temp, shared } = place;
    drop((bridge, console));
    let left = async {
        while Arc::strong_count(&shared.desk) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, left).await.unwrap();
    drop(shared);
    let again = Shelf::open(&dir(&temp.path().join("state")), CEILING, Timestamp::now()).unwrap();
    assert_eq!((again.count(), again.used()), (3, used));
}

#[tokio::test]
async fn an_app_s_files_are_bounded_and_the_same_file_is_kept_once() {
    let place = place();
    let bridge = place.reader(Role::AppBridge);
    let most = usize::try_from(crate::MAX_FILE).unwrap();
    let first = kept(&bridge, APP, "a", &vec![1; most]).await;
    assert_eq!(kept(&bridge, APP, "a", &vec![1; most]).await, first);
    assert_ne!(kept(&bridge, APP, "b", &vec![1; most]).await.0, first.0);
    for n in 2..ipc_proto::apps::MAX_KEPT {
        let bytes = n.to_string();
        kept(&bridge, APP, "a", bytes.as_bytes()).await;
    }
    let shelf = &place.shared.desk.shelf;
    let before = (shelf.count(), shelf.used());
    let more = not_kept(&bridge, keep(APP, "a", b"more".to_vec())).await;
    assert_eq!(more, "reply_part_too_large");
    assert_eq!(kept(&bridge, APP, "a", &vec![1; most]).await, first);
    let other = APP.replace('0', "f");
    let large = not_kept(&bridge, keep(&other, "a", vec![1; most + 1])).await;
    assert_eq!(large, "artifact_too_large");
    // What could still change is nobody's file.
    let (request, _) = keep(&other, "a", vec![0; 40_000]);
    let plain = File::open(place.temp.path().join("state")).unwrap();
    let unsealed = not_kept(&bridge, (request, vec![plain.into()])).await;
    assert_eq!(unsealed, "artifact_publish_failed");
    assert_eq!((shelf.count(), shelf.used()), before);
    kept(&bridge, &other, "a", b"theirs").await;
    // Where there is no room, nothing of it stays.
    let before = (shelf.count(), shelf.used());
    let rest = CEILING - before.1 - crate::quota::charge(0);
    shelf.index().quarantine(rest);
    let full = not_kept(&bridge, keep(&other, "b", b"x".to_vec())).await;
    assert_eq!(
        (full.as_str(), shelf.count()),
        ("artifact_publish_failed", before.0)
    );
    for name in ["not-an-app", "0123456789ABCDEF0123456789ABCDEF", ""] {
        let (request, fds) = keep(name, "a", b"x".to_vec());
        let fault = bridge.call(&request, &fds, SOON).await;
        assert!(matches!(fault, Err(CallError::Fault(f)) if f.code == "invalid_request"));
    }
}

#[tokio::test]
async fn a_file_of_an_app_that_nobody_waits_for_is_not_kept() {
    let place = place();
    let bridge = place.reader(Role::AppBridge);
    let busy = place.shared.keeping.clone().acquire_owned().await.unwrap();
    let (request, fds) = keep(APP, "a", b"a,b".to_vec());
    let given_up = bridge.call(&request, &fds, Duration::from_millis(50)).await;
    assert!(given_up.is_err());
    drop(busy);
    // Behind it, so that its turn has come.
    kept(&bridge, &APP.replace('0', "f"), "b", b"x").await;
    assert_eq!(place.shared.desk.shelf.count(), 1);
    let handed = |cancel: bool| {
        let (request, fds) = keep(APP, "a", vec![1; 200_000]);
        let flag = AtomicBool::new(cancel);
        super::kept(&place.shared.desk, request, &mut fds.into(), &flag).unwrap()
    };
    assert!(matches!(handed(true).0, Reply::Refused { .. }));
    assert_eq!(place.shared.desk.shelf.count(), 1);
    let new = handed(false).2.unwrap();
    // It is there, so that nothing of it is new.
    assert!(handed(false).2.is_none());
    place.shared.desk.take_back(new);
    assert_eq!(place.shared.desk.shelf.count(), 1);
}

#[tokio::test]
async fn nobody_but_the_app_bridge_has_files_kept_and_it_reads_none() {
    let place = place();
    let bridge = place.reader(Role::AppBridge);
    let (id, integrity) = kept(&bridge, APP, "a", b"a,b").await;
    for role in [Role::ChannelConsole, Role::Monod, Role::ChannelOpenai] {
        let (request, fds) = keep(APP, "b", b"x".to_vec());
        assert!(place.reader(role).call(&request, &fds, SOON).await.is_err());
    }
    let (request, fds) = keep(APP, "b", b"x".to_vec());
    assert!(place.run("c").call(&request, &fds, SOON).await.is_err());
    let wish = open(&id, Some(&integrity), Some("physical"));
    assert!(bridge.call(&wish, &[], SOON).await.is_err());
    assert_eq!(place.shared.desk.shelf.count(), 1);
}
