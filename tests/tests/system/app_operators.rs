//! What an operator sees and does of apps and servers, by `monoctl` and a whole daemon.

use super::gateway::fixture;
use super::gateway_apps::marker_of;
use mono_tests::daemon::{Daemon, Setup};
use mono_tests::stub::Stub;
use serde_json::{Value, json};
use std::process::Output;

/// No app has it.
const NONE: &str = "00000000000000000000000000000000";

fn words(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The exit code and all that was said.
fn said(daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    let output = daemon.run(arguments).unwrap();
    (output.status.code().unwrap(), words(&output))
}

#[test]
fn operators_see_apps_and_servers_and_end_what_an_app_does() {
    let setup = fixture(Setup::new().unwrap(), "dice", &["dice"]);
    // A program may open its own pipes anew, whatever user it has.
    let words = "echo opened again > /proc/self/fd/2; exit 3";
    let mut setup = setup
        .server("gone", "/bin/sh".as_ref(), &["-c", words], &[])
        .gateway();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let daemon = setup.start().unwrap();
    let (code, text) = said(&daemon, &["apps", "list"]);
    assert!(code == 0 && text.contains("no apps"), "{text}");
    let mut stub = Stub::greet(&daemon.gateway(), "dice").unwrap();
    stub.ask("tools/list", &json!({})).unwrap();
    let ids: Vec<String> = (1..=2)
        .map(|count| {
            let answer = stub.call("roll_dice", &json!({ "count": count })).unwrap();
            marker_of(super::gateway::text(&answer)).to_owned()
        })
        .collect();
    let id = ids[1].as_str();

    // As text and as JSON, page by page.
    let (code, text) = said(&daemon, &["apps", "list", "--limit", "1"]);
    assert!(
        code == 0 && text.contains(id) && text.contains("--cursor"),
        "{text}"
    );
    let page = daemon.json(&["apps", "list", "--limit", "1"]).unwrap();
    assert_eq!(page["apps"][0]["id"], *id, "{page}");
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = daemon.json(&["apps", "list", "--cursor", cursor]).unwrap();
    assert_eq!(rest["apps"].as_array().unwrap().len(), 1, "{rest}");
    assert_eq!(rest["apps"][0]["id"], *ids[0], "{rest}");
    let shown = daemon.json(&["apps", "show", id]).unwrap();
    assert_eq!(
        (&shown["server"], &shown["tool"], &shown["connected"]),
        (&json!("dice"), &json!("roll_dice"), &json!(true)),
        "{shown}"
    );
    let (code, text) = said(&daemon, &["apps", "show", id]);
    assert!(code == 0 && text.contains("roll_dice"), "{text}");
    let (code, text) = said(&daemon, &["apps", "audit", id]);
    assert!(code == 0 && text.contains("nothing was done"), "{text}");
    let closed = daemon.json(&["apps", "close", id]).unwrap();
    assert_eq!(closed["closed"], *id, "{closed}");

    // Servers: what there is, whether it can be used, and what was counted.
    let listed = daemon.json(&["mcp", "list"]).unwrap();
    let names: Vec<&Value> = listed["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["name"])
        .collect();
    assert_eq!(names, ["dice", "gone"], "{listed}");
    let (code, text) = said(&daemon, &["mcp", "list"]);
    assert!(code == 0 && text.contains("each conversation"), "{text}");
    let probed = daemon.json(&["mcp", "probe", "dice"]).unwrap();
    let tools: Vec<&Value> = probed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert_eq!(tools, ["roll_dice", "reroll", "dice_odds"], "{probed}");
    let (code, text) = said(&daemon, &["mcp", "probe", "gone"]);
    assert!(
        code == 1 && text.contains("gone: ") && text.contains("opened again"),
        "{text}"
    );
    let told = daemon.json(&["mcp", "stats"]).unwrap();
    assert_eq!(
        (&told["gateway"]["sessions"], &told["gateway"]["apps"]),
        (&json!(1), &json!(2)),
        "{told}"
    );
    let (code, text) = said(&daemon, &["mcp", "stats"]);
    assert!(code == 0 && text.contains("gateway.sessions"), "{text}");

    // What there is none of, and what nobody can mean.
    for arguments in [
        ["apps", "show"],
        ["apps", "close"],
        ["apps", "audit"],
        ["mcp", "probe"],
    ] {
        let [noun, verb] = arguments;
        let (code, text) = said(&daemon, &[noun, verb, NONE]);
        assert!(
            code == 1 && !text.trim().is_empty(),
            "{noun} {verb}: {code} {text}"
        );
        let (code, text) = said(&daemon, &[noun, verb]);
        assert!(
            code == 2 && text.contains("Usage"),
            "{noun} {verb}: {code} {text}"
        );
        let (code, text) = said(&daemon, &[noun, verb, "--help"]);
        assert!(
            code == 0 && text.contains("Example"),
            "{noun} {verb}: {text}"
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        let (code, text) = said(&daemon, &["completions", shell]);
        let all = ["audit", "probe", "stats"]
            .iter()
            .all(|word| text.contains(word));
        assert!(code == 0 && all, "{shell}");
    }
    let pages = daemon.folder().join("pages");
    assert_eq!(said(&daemon, &["man", pages.to_str().unwrap()]).0, 0);
    for page in [
        "apps-list",
        "apps-show",
        "apps-close",
        "apps-audit",
        "mcp-list",
        "mcp-probe",
        "mcp-stats",
    ] {
        let path = pages.join(format!("monoctl-{page}.1"));
        assert!(
            std::fs::read_to_string(&path).unwrap().contains("NAME"),
            "{page}"
        );
    }
}
