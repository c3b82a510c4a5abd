//! Apps of agents that are not ours, in the console and in a browser.

use super::apps::App;
use super::browser::{PATIENCE, tests_of_the_page};
use super::gateway::{fixture, servers_of, text};
use mono_tests::console::Browser as Console;
use mono_tests::daemon::{Daemon, Setup, wait_within};
use mono_tests::stub::Stub;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// The app part of the only thread of the console, with its thread.
pub(super) fn shown(console: &Console) -> (String, Value) {
    let threads = console.get("/threads").unwrap();
    let threads = threads["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "{threads:?}");
    let id = threads[0]["id"].as_str().unwrap().to_owned();
    let thread = console.get(&format!("/threads/{id}")).unwrap();
    let messages = thread["messages"].as_array().unwrap().clone();
    (id, messages.last().unwrap()["parts"][0].clone())
}

pub(super) fn marker_of(text: &str) -> &str {
    let begin = text
        .find("[mono-mcp-app:")
        .unwrap_or_else(|| panic!("{text}"));
    &text[begin + 14..begin + 46]
}

/// What looks at the thread's app in a browser; `steps` is where the page says what is to happen.
fn page(daemon: &Daemon, thread: &str, steps: Option<&Path>) -> Command {
    let mut command = tests_of_the_page(daemon, "test/live/gateway.test.ts");
    command.env("GATEWAY_THREAD", thread);
    if let Some(steps) = steps {
        command.env("GATEWAY_STEPS", steps);
    }
    command
}

fn passed(daemon: &Daemon, out: &Output) -> bool {
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stdout);
        println!("{said}\n{}", daemon.log());
    }
    out.status.success()
}

/// Looks at the thread's app in a browser, and has it call its server.
pub(super) fn works_in_a_browser(daemon: &Daemon, thread: &str) -> bool {
    let out = page(daemon, thread, None).output().unwrap();
    passed(daemon, &out)
}

fn dice() -> Daemon {
    let mut setup = fixture(Setup::new().unwrap(), "dice", &["dice"]).gateway();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup.start().unwrap()
}

#[test]
fn an_app_of_a_foreign_agent_is_marked_and_shown_in_the_console() {
    let daemon = dice();
    let mut stub = Stub::greet(&daemon.gateway(), "dice").unwrap();
    let listed = stub.ask("tools/list", &json!({})).unwrap();
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|t| t["name"].as_str().unwrap()).collect();
    let tool = tools
        .iter()
        .find(|t| t["_meta"]["ui"]["resourceUri"].is_string());
    let tool = tool.unwrap_or_else(|| panic!("{names:?}"))["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let answer = stub.call(&tool, &json!({ "count": 2 })).unwrap();
    let id = marker_of(text(&answer)).to_owned();
    assert!(
        answer["result"]["structuredContent"].is_object() || answer["result"]["content"].is_array()
    );

    let console = Console::log_in(&daemon).unwrap();
    let (thread, part) = shown(&console);
    assert_eq!(
        (&part["type"], &part["invocationId"]),
        (&json!("mcp_app"), &json!(id)),
        "{part}"
    );
    let app = part["app"]
        .as_str()
        .unwrap()
        .trim_start_matches("/api/v1")
        .to_owned();
    let record = console.get(&app).unwrap();
    assert_eq!(record["connected"], true, "{record}");
    assert_eq!(record["input"], json!({ "count": 2 }), "{record}");
    // What the agent saw has the marker; what the page gets has not.
    assert!(
        !record["result"].to_string().contains("mono-mcp-app"),
        "{record}"
    );

    // A second one goes to the same thread, another session's to another.
    stub.call(&tool, &json!({ "count": 3 })).unwrap();
    let messages = console.get(&format!("/threads/{thread}")).unwrap();
    assert_eq!(messages["messages"].as_array().unwrap().len(), 2);
    let mut other = Stub::greet(&daemon.gateway(), "dice").unwrap();
    other.call(&tool, &json!({ "count": 1 })).unwrap();
    let threads = console.get("/threads").unwrap();
    assert_eq!(threads["threads"].as_array().unwrap().len(), 2);

    // With its agent gone the app still shows, and may call for a while.
    assert_eq!(stub.close().unwrap(), 0);
    assert_eq!(console.get(&app).unwrap()["connected"], true);
    let told = daemon.json(&["mcp", "stats"]).unwrap();
    assert_eq!(told["gateway"]["apps"], 3, "{told}");
}

/// A server tells what an app does from what its agent does, and of sessions that share it no app has another's
/// name.
#[test]
fn a_server_knows_an_app_of_a_foreign_agent_from_the_agent() {
    for shared in [false, true] {
        let mut setup = fixture(Setup::new().unwrap(), "dice", &["dice"]).gateway();
        setup.config["console"] = json!({ "enabled": true, "port": 0 });
        setup.config["tools"]["mcpServers"]["dice"]["shared"] = json!(shared);
        let daemon = setup.start().unwrap();
        let mut stub = Stub::greet(&daemon.gateway(), "dice").unwrap();
        let answer = stub.call("roll_dice", &json!({ "count": 2 })).unwrap();
        let caller = |result: &Value| result["_meta"]["mono-agent/caller"].clone();
        let agent = caller(&answer["result"]);
        assert_eq!(agent["kind"], "gateway", "{answer}");
        let session = agent["session"].as_str().unwrap();
        assert_eq!(session.len(), 16);
        let console = Console::log_in(&daemon).unwrap();
        let (thread, part) = shown(&console);
        let app = App::of(console, thread, part);
        let params = json!({ "name": "reroll", "arguments": { "count": 1 } });
        let question = app.question("tools/call", params);
        let rolled = app.decide(&question, "once").json().unwrap();
        let expected = match shared {
            false => json!({ "session": session, "kind": "mcp-app" }),
            true => json!({ "kind": "mcp-app" }),
        };
        assert_eq!(caller(&rolled["result"]), expected, "{rolled}");
    }
}

/// The switch, and where nobody could see an app: results go on as they are, and what is for apps
/// alone stays hidden.
#[test]
fn where_apps_are_not_shown_a_foreign_agent_gets_its_results_as_they_are() {
    let off = [
        json!({ "apps": { "enabled": false }, "console": { "enabled": true, "port": 0 } }),
        json!({}),
    ];
    for config in off {
        let mut setup = fixture(Setup::new().unwrap(), "dice", &["dice"]).gateway();
        for (key, value) in config.as_object().unwrap() {
            setup.config[key] = value.clone();
        }
        let daemon = setup.start().unwrap();
        let mut stub = Stub::greet(&daemon.gateway(), "dice").unwrap();
        let listed = stub.ask("tools/list", &json!({})).unwrap().to_string();
        assert!(
            listed.contains("roll_dice") && !listed.contains("reroll"),
            "{listed}"
        );
        let answer = stub.call("roll_dice", &json!({ "count": 2 })).unwrap();
        let text = text(&answer);
        assert!(
            text.starts_with("The dice show") && !text.contains("mcp-app"),
            "{text}"
        );
        let told = daemon.json(&["mcp", "stats"]).unwrap();
        assert_eq!(told["gateway"]["apps"], 0, "{told}");
        if config.get("console").is_some() {
            let console = Console::log_in(&daemon).unwrap();
            assert_eq!(console.get("/threads").unwrap()["threads"], json!([]));
        }
    }
}

/// Does what the page asks for, until it has all been asked.
fn attend(daemon: &mut Daemon, stub: &mut Stub, steps: &Path, over: &dyn Fn() -> bool) {
    let mut dice = 2;
    for what in ["server", "bridge"] {
        let asked = |name: &str| {
            wait_within(name, PATIENCE, || steps.join(name).exists() || over()).unwrap();
        };
        let done = |name: &str| std::fs::write(steps.join(format!("{name}.done")), "").unwrap();
        let ended = format!("ended-{what}");
        asked(&ended);
        if over() {
            return;
        }
        if what == "server" {
            for pid in servers_of(daemon) {
                daemon.kill(pid).unwrap();
            }
        } else {
            let bridge = daemon.worker("app-bridge").unwrap();
            daemon.kill(bridge).unwrap();
            daemon.wait_replaced("app-bridge", bridge).unwrap();
        }
        done(&ended);
        let again = format!("again-{ended}");
        asked(&again);
        if over() {
            return;
        }
        dice += 1;
        let answer = stub.call("roll_dice", &json!({ "count": dice })).unwrap();
        marker_of(text(&answer));
        done(&again);
    }
}

#[test]
fn a_browser_shows_a_foreign_agent_s_app_whose_server_and_bridge_are_killed() {
    let mut daemon = dice();
    let mut stub = Stub::greet(&daemon.gateway(), "dice").unwrap();
    stub.ask("tools/list", &json!({})).unwrap();
    stub.call("roll_dice", &json!({ "count": 2 })).unwrap();
    let (thread, _) = shown(&Console::log_in(&daemon).unwrap());
    let steps = daemon.folder().join("steps");
    std::fs::create_dir(&steps).unwrap();
    let mut page = page(&daemon, &thread, Some(&steps));
    let testing = std::thread::spawn(move || page.output().unwrap());
    attend(&mut daemon, &mut stub, &steps, &|| testing.is_finished());
    let out = testing.join().unwrap();
    assert!(passed(&daemon, &out), "what the page said is above");
    // Three calls of one session: one thread, and each result claimed once.
    let told = daemon.json(&["mcp", "stats"]).unwrap();
    assert_eq!(told["gateway"]["sessions"], 1, "{told}");
    assert_eq!(
        daemon.json(&["apps", "list"]).unwrap()["apps"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}
