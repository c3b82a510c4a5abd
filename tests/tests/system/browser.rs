//! The console's page in a Chromium, served by a whole daemon.

use mono_tests::console::{link, split};
use mono_tests::daemon::{Daemon, Setup, wait_within};
use mono_tests::model::Model;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a browser may take until it shows what is waited for: it has to be started first.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// The tests are the page's own (`test/live`): it finds its things by role and name there.
pub(super) fn tests_of_the_page(daemon: &Daemon, file: &str) -> Command {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workers/channel/console-ui");
    assert!(
        page.join("node_modules/tsx").is_dir(),
        "the page's tools are missing; `cargo xtask console` installs them"
    );
    let (base, path) = split(&link(daemon).unwrap()).unwrap();
    let mut command = Command::new("node");
    command
        .args(["--import", "tsx", "--test", file])
        .current_dir(&page)
        .env("CONSOLE_URL", base)
        .env("CONSOLE_LOGIN", path);
    command
}

#[test]
fn the_console_page_works_in_a_browser() {
    let mut setup = Setup::new().unwrap();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let daemon = setup.start().unwrap();
    let out = tests_of_the_page(&daemon, "test/live/live.test.ts")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", daemon.log());
}

#[test]
fn a_browser_sees_a_worker_die_in_mid_stream() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let daemon = setup.start().unwrap();
    let streaming = daemon.folder().join("streaming");
    let mut command = tests_of_the_page(&daemon, "test/live/killed.test.ts");
    command
        .env("CONSOLE_STREAMING", &streaming)
        .env("CONSOLE_MESSAGE", "[[mock:long 9000]] [[mock:gap 200]]");
    let testing = std::thread::spawn(move || command.output().unwrap());
    wait_within("words on the page", PATIENCE, || {
        streaming.exists() || testing.is_finished()
    })
    .unwrap();
    let working = daemon.workers("run", "serving").unwrap();
    let pids: Vec<i32> = working
        .iter()
        .filter_map(|worker| i32::try_from(worker["pid"].as_i64()?).ok())
        .collect();
    for pid in &pids {
        daemon.kill(*pid).unwrap();
    }
    let out = testing.join().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(pids.len(), 1, "{said}");
    assert!(out.status.success(), "{said}\n{}", daemon.log());
}
