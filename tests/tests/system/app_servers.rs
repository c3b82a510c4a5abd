//! Servers with MCP Apps, of other makes: each app opened in a Chromium by a call of its tool.

use super::browser::tests_of_the_page;
use mono_tests::daemon::{Setup, programs};
use mono_tests::model::Model;
use mono_tests::node;
use serde_json::json;
use std::path::Path;

/// What is behind `@modelcontextprotocol/server-`; `test/live/fixtures.ts` of the page knows the
/// tools and what each app does.
const SERVERS: [&str; 20] = [
    "basic-vanillajs",
    "basic-react",
    "basic-vue",
    "basic-preact",
    "basic-solid",
    "basic-svelte",
    "budget-allocator",
    "system-monitor",
    "cohort-heatmap",
    "customer-segmentation",
    "scenario-modeler",
    "debug",
    "sheet-music",
    "transcript",
    "shadertoy",
    "threejs",
    "video-resource",
    "wiki-explorer",
    "map",
    "pdf",
];
/// Servers of one daemon: a conversation starts all that there are.
const AT_ONCE: usize = 4;

fn open_all(servers: &[&str]) {
    let modules = node::app_servers();
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    for name in servers {
        let script = modules.join(format!("@modelcontextprotocol/server-{name}/dist/index.js"));
        assert!(script.is_file(), "{}", script.display());
        let script = script.to_string_lossy();
        // Of the local files, the server for PDF shows those that it is started with.
        let files = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../workers/channel/console-ui/test/live")
            .canonicalize()
            .unwrap();
        let file = files.join("fixture.pdf");
        let file = file.to_string_lossy();
        let arguments: &[&str] = match *name {
            "pdf" => &[&script, "--stdio", &file],
            _ => &[&script, "--stdio"],
        };
        let readable: [&Path; 3] = [node::node_modules(), &modules, &files];
        setup = setup.server(name, &node::node(), arguments, &readable);
    }
    let setup = setup.everything("everything");
    let daemon = setup.start().unwrap();
    let out = tests_of_the_page(&daemon, "test/live/fixtures.test.ts")
        .env("FIXTURES", servers.join(" "))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    // The runner may put a sign of its own before what a test prints.
    let rows = said.lines().map(|line| line.trim_start_matches("# "));
    for row in rows.filter(|row| row.starts_with("| ")) {
        println!("{row}");
    }
    assert!(out.status.success(), "{said}\n{}", daemon.log());
}

#[test]
fn apps_of_small_servers_open_in_a_browser() {
    SERVERS[..8].chunks(AT_ONCE).for_each(open_all);
}

#[test]
fn apps_that_ask_for_much_open_in_a_browser() {
    SERVERS[8..16].chunks(AT_ONCE).for_each(open_all);
}

#[test]
fn apps_that_need_what_is_not_given_say_so_in_a_browser() {
    SERVERS[16..].chunks(AT_ONCE).for_each(open_all);
}

#[test]
fn what_an_app_may_do_is_decided_in_a_browser() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let fixture = programs().join("mcp-fixture");
    let setup = setup.server("dice", &fixture, &["dice"], &[&programs()]);
    let daemon = setup.start().unwrap();
    let out = tests_of_the_page(&daemon, "test/live/apps.test.ts")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", daemon.log());
}
