//! The profile's system calls are enough for the work, and what a tool needs is not among those
//! that it refuses. The filter binds a process for good, so a child of its own goes into it.
#![allow(clippy::unwrap_used)]

use ipc_proto::Role;
use ipc_proto::reply::ReplyPart;
use mono_run::owners::{Artifacts, Denied, Fetch, Fetched, Handover, Lost, Publication};
use mono_run::process::Runner;
use mono_run::tools::path::Places;
use mono_run::tools::{Builtin, ToolState, Workshop};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tokio_util::sync::CancellationToken;

const CHILD: &str = "MONO_RUN_CONFINED_CHILD";
const NAME: &str = "under_its_filter_every_tool_works";

#[test]
fn under_its_filter_every_tool_works() {
    if let Ok(dir) = std::env::var(CHILD) {
        child(Path::new(&dir));
        // Past the harness, whose own end may need more than a worker may do.
        std::process::exit(0);
    }
    for degraded in ["isolated", "degraded"] {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(CHILD, dir.path())
            .env("MONO_RUN_CONFINED_VARIANT", degraded)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // The child's word for it, so that a child which did nothing is no success.
        assert!(
            output.status.success() && said.contains("all done"),
            "{degraded}: {output:?}"
        );
    }
}

struct Outside;

impl Fetch for Outside {
    async fn fetch(
        &self,
        _: &str,
        _: Vec<(String, String)>,
        _: u64,
    ) -> Result<Result<Fetched, Denied>, Lost> {
        let (url, body) = (String::new(), b"<p>page".to_vec());
        Ok(Ok(Fetched {
            status: 200,
            url,
            content_type: Some("text/html".into()),
            truncated: false,
            body,
        }))
    }
}

impl Artifacts for Outside {
    async fn publish(&self, handover: Handover) -> Result<Publication, Lost> {
        let part = ReplyPart::Failure {
            id: handover.path,
            code: String::new(),
            message: String::new(),
            related_part_id: None,
        };
        Ok(Publication::Published(part))
    }
    async fn finalise(&self) -> Result<Vec<ReplyPart>, Lost> {
        Ok(vec![])
    }
    async fn discard(&self) -> Result<(), Lost> {
        Ok(())
    }
}

fn child(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let runner = Runner::new(dir, std::env::vars_os()).unwrap();
    let degraded = std::env::var("MONO_RUN_CONFINED_VARIANT").unwrap() == "degraded";
    let variant = policy::Variant {
        degraded,
        network: false,
    };
    nix::sys::prctl::set_no_new_privs().unwrap();
    // Both, as the launcher and the worker install them: the second only takes away from the first.
    let profile = policy::Profile::of(Role::Run).unwrap();
    let first = profile.stage1_filter(variant).unwrap();
    let second = profile.stage2_filter(variant).unwrap().unwrap();
    for filter in [first, second] {
        seccompiler::apply_filter_all_threads(&filter.assemble()).unwrap();
    }
    refused();
    runtime.block_on(work(dir, &runner));
    println!("all done");
}

/// The filters are in force, or all that works below would say nothing.
fn refused() {
    use mono_sys::attempt::{Hopeless, execute_descriptor, hopeless};
    let first = hopeless(Hopeless::Clone3).raw_os_error();
    assert_eq!(first, Some(nix::libc::ENOSYS));
    let second = execute_descriptor().raw_os_error();
    assert_eq!(second, Some(nix::libc::EACCES));
}

async fn work(dir: &Path, runner: &Runner) {
    let places = Places::new(dir, dir);
    let cancel = CancellationToken::new();
    let workshop = Workshop {
        places: &places,
        runner,
        fetch: &Outside,
        artifacts: &Outside,
        cancel: &cancel,
    };
    let table: [(Builtin, Value, ToolState, &str); 14] = [
        (
            Builtin::Write,
            json!({"file_path": "a/b.txt", "content": "one\ntwo\n"}),
            ToolState::Success,
            "Created",
        ),
        (
            Builtin::Write,
            json!({"file_path": "a/b.txt", "content": "one\ntwo\n"}),
            ToolState::Success,
            "Replaced",
        ),
        (
            Builtin::Edit,
            json!({"file_path": "a/b.txt", "old_string": "two", "new_string": "2"}),
            ToolState::Success,
            "once",
        ),
        (
            Builtin::Read,
            json!({"file_path": "a/b.txt"}),
            ToolState::Success,
            "one\n2\n",
        ),
        (
            Builtin::Glob,
            json!({"pattern": "**/*.txt"}),
            ToolState::Success,
            "a/b.txt",
        ),
        (
            Builtin::Grep,
            json!({"pattern": "one"}),
            ToolState::Success,
            "a/b.txt",
        ),
        (
            Builtin::Bash,
            json!({"command": "echo $((6*7)) | cat; ls a"}),
            ToolState::Success,
            "42\nb.txt",
        ),
        (
            Builtin::Bash,
            json!({"command": "setsid sh -c 'setsid sleep 4343 &'; exit 3"}),
            ToolState::ExitNonzero,
            "were ended",
        ),
        (
            Builtin::Bash,
            json!({"command": "sleep 4343", "timeout_ms": 50}),
            ToolState::Timeout,
            "time was over",
        ),
        (
            Builtin::Bash,
            json!({"command": "sleep 4343", "background": true}),
            ToolState::Success,
            "number",
        ),
        (
            Builtin::Exec,
            json!({"executable": "env"}),
            ToolState::Success,
            "BASH_ENV=/dev/null",
        ),
        (
            Builtin::Bash,
            json!({"command": "yes | head -c 30000"}),
            ToolState::Success,
            "left out; all of it is in",
        ),
        (
            Builtin::WebFetch,
            json!({"url": "https://example.com/"}),
            ToolState::Success,
            "page",
        ),
        (
            Builtin::PublishReplyFile,
            json!({"path": "a/b.txt"}),
            ToolState::Error,
            "artifact_publish_failed",
        ),
    ];
    for (tool, arguments, state, part) in table {
        let called = workshop.call(tool, arguments.clone()).await.unwrap();
        assert!(
            called.output.state == state && called.output.text.contains(part),
            "{arguments}: {:?}",
            called.output
        );
        if tool == Builtin::PublishReplyFile {
            // It was opened and handed over: the stub gives a part that is no attachment.
            assert!(called.part.is_some());
        }
    }
    assert_eq!(runner.shut_down().await.left, 0);
}
