//! The console's page in a Chromium, served by a whole daemon.

use mono_tests::console::{link, split};
use mono_tests::daemon::Setup;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// The tests are the page's own (`test/live`): it finds its things by role and name there.
#[test]
fn the_console_page_works_in_a_browser() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workers/channel/console-ui");
    assert!(
        page.join("node_modules/tsx").is_dir(),
        "the page's tools are missing; `cargo xtask console` installs them"
    );
    let mut setup = Setup::new().unwrap();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let daemon = setup.start().unwrap();
    let (base, path) = split(&link(&daemon).unwrap()).unwrap();
    let out = Command::new("node")
        .args(["--import", "tsx", "--test", "test/live/live.test.ts"])
        .current_dir(&page)
        .env("CONSOLE_URL", base)
        .env("CONSOLE_LOGIN", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", daemon.log());
}
