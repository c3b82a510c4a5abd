//! Files of apps.

use super::*;

const APP: &str = "0123456789abcdef0123456789abcdef";

fn keep(app: &str, name: &str, bytes: Vec<u8>) -> (Request, Vec<OwnedFd>) {
    let (content, fd) = Body::pack(bytes).unwrap();
    let request = Request::Keep {
        app: app.to_owned(),
        run: RunId::parse("run-1").unwrap(),
        conversation: conversation("logical"),
        delivery: conversation("web:physical"),
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
        let wish = open(&id, Some(&integrity), Some("web:physical"));
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
            open(&id, Some(&integrity), Some("web:elsewhere")),
            open(&id, Some(&integrity_id(&[0; 32])), Some("web:physical")),
        ] {
            assert!(refusal(&console, &foreign).await.starts_with("artifact_"));
        }
    }
    let names = |records: Vec<ArtifactRecord>| -> Vec<String> {
        let mut names: Vec<_> = records.into_iter().map(|record| record.name).collect();
        names.sort();
        names
    };
    let all = listed(&console, "web:physical", "run-1").await;
    assert_eq!(names(all), ["a_b.csv", "file", "large.bin"]);
    assert!(listed(&console, "web:elsewhere", "run-1").await.is_empty());
    assert!(listed(&console, "web:physical", "run-2").await.is_empty());
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
        super::readers::kept(&place.shared.desk, request, &mut fds.into(), &flag).unwrap()
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
    let wish = open(&id, Some(&integrity), Some("web:physical"));
    assert!(bridge.call(&wish, &[], SOON).await.is_err());
    assert_eq!(place.shared.desk.shelf.count(), 1);
}
