//! The profile is enough for the work: its Landlock rights to the state directory alone, and the
//! second filter. Both bind a process for good, so a child of its own goes into them.

use crate::kit::*;
use ipc_proto::edges::control::Peer;
use ipc_proto::edges::store::{Reply, Request};
use ipc_proto::{Body, Client, Role};
use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use mono_store::serve::{Desk, serve};
use mono_store::{Limits, Query, Store};
use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const CHILD: &str = "MONO_STORE_CONFINED_CHILD";
const NAME: &str = "confined::under_its_profile_the_worker_does_all_its_work";

#[test]
fn under_its_profile_the_worker_does_all_its_work() {
    if let Ok(dir) = env::var(CHILD) {
        child(Path::new(&dir));
        // Past the harness, whose own end needs more than a worker may do.
        std::process::exit(0);
    }
    let dir = state();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // The child's word for it, so that a child which did nothing is no success.
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("all done"),
        "{output:?}"
    );
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["store.sqlite"], "the child's end folded its log");
    let shown = open(dir.path()).show_run(&run("wire")).unwrap().unwrap();
    assert_eq!(shown.status, "succeeded");
}

fn child(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let rights =
        BitFlags::<AccessFs>::from_bits(policy::rights::of(policy::Access::Write, true)).unwrap();
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(policy::rights::handled())
        .unwrap()
        .create()
        .unwrap()
        .add_rule(PathBeneath::new(PathFd::new(dir).unwrap(), rights))
        .unwrap()
        .restrict_self()
        .unwrap();
    assert_eq!(status.ruleset, RulesetStatus::FullyEnforced);
    assert!(std::fs::read_dir("/").is_err());
    let mut store = Store::open(
        dir,
        Limits {
            conversations: 40,
            ..Limits::default()
        },
    )
    .unwrap();
    store.sweep(1000).unwrap();
    // As in the worker: what is looked up in /proc is looked up before. Landlock hides /proc here,
    // so the filter is installed without reading it back.
    let profile = policy::Profile::of(Role::Store).unwrap();
    let filter = profile
        .stage2_filter(policy::Variant::default())
        .unwrap()
        .unwrap();
    seccompiler::apply_filter_all_threads(&filter.assemble()).unwrap();
    assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
    work(&mut store);
    runtime.block_on(wire(store));
    drop(runtime);
    println!("all done");
}

/// Every operation, enough of them for checkpoints and evictions.
fn work(store: &mut Store) {
    for i in 0..60 {
        let (id, of) = (format!("r{i}"), format!("c{i}"));
        store.begin_run(&scope(&id, &of), &start(), 1000).unwrap();
        store
            .tool_started(&run(&id), "t", "Read", "{}", 1000)
            .unwrap();
        store
            .tool_ended(&run(&id), "t", "success", "x", 1000)
            .unwrap();
        let messages = (0..8).flat_map(|_| pair(&"x".repeat(20_000))).collect();
        store
            .commit_run(&run(&id), &commit(messages), 1000)
            .unwrap();
    }
    store
        .begin_run(&scope("bad", "c1"), &start(), 1000)
        .unwrap();
    store.fail_run(&run("bad"), &failure(false), 1000).unwrap();
    store
        .append_history(&conversation("c2"), "k", &pair("x"), 1000)
        .unwrap();
    store.latest_history(&conversation("c59")).unwrap();
    let query = Query {
        conversation: None,
        status: None,
        limit: 100,
        cursor: None,
    };
    assert_eq!(store.list_runs(&query).unwrap().runs.len(), 61);
    store.commitment(&run("r1")).unwrap();
}

/// Over a channel, with a body that is a memfd in both directions.
async fn wire(store: Store) {
    let (desk, _damage) = Desk::new(store);
    let (ours, theirs) = ipc_proto::link::pair().unwrap();
    let (_revoke, revoked) = tokio::sync::oneshot::channel();
    let peer = Peer {
        role: Role::Run,
        run: Some(scope("wire", "c59")),
    };
    let served = tokio::spawn(async move { serve(&desk, ours, peer, revoked).await });
    let client: Client<ipc_proto::edges::store::Store> = Client::new(theirs, Role::Store).unwrap();
    let wait = Duration::from_secs(30);
    let begin = Request::BeginRun {
        source: "terminal".into(),
        source_detail: None,
        model: "demo:scripted".into(),
        user_text: String::new(),
    };
    let (reply, fds) = client.call(&begin, &[], wait).await.unwrap();
    assert!(
        matches!(
            reply,
            Reply::Began {
                history: Body::Sealed(_)
            }
        ) && fds.len() == 1
    );
    let (body, fd) = Body::pack_json(&commit(pair(&"y".repeat(40_000)))).unwrap();
    let fds: Vec<_> = fd.into_iter().collect();
    client
        .call(&Request::CommitRun { commit: body }, &fds, wait)
        .await
        .unwrap();
    drop(client);
    served.await.unwrap();
}
