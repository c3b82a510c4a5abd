//! Servers of a daemon for agents that are not ours: real clients, a real foreign agent, and those
//! who have no business there.

use super::gateway_apps::{marker_of, shown, works_in_a_browser};
use ipc_proto::edges::continuation::Claim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::call::CallRequest;
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::{Servers, Started, Starter};
use mono_tests::console::Browser as Console;
use mono_tests::daemon::{Daemon, PATIENCE, Setup, programs, wait_for};
use mono_tests::model::{Model, call};
use mono_tests::node;
use mono_tests::stub::{Stub, command};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Starts the stub as a client starts any server.
#[derive(Clone)]
struct Stubs(PathBuf, Arc<Mutex<Vec<Child>>>);

impl Starter for Stubs {
    async fn start(
        &self,
        name: &str,
        _run: Option<&RunId>,
        _claim: Option<Claim>,
    ) -> Result<Started, String> {
        let mut child = command(&self.0, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut children = self.1.lock().unwrap();
        let started = Started {
            process: children.len() as u64,
            stdin: OwnedFd::from(child.stdin.take().unwrap()),
            stdout: OwnedFd::from(child.stdout.take().unwrap()),
            stderr: OwnedFd::from(child.stderr.take().unwrap()),
        };
        children.push(child);
        Ok(started)
    }

    async fn stop(&self, process: u64) {
        let mut children = self.1.lock().unwrap();
        let child = &mut children[usize::try_from(process).unwrap()];
        let _ = child.kill();
        child.wait().unwrap();
    }
}

pub(super) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

fn error(answer: &Value) -> &str {
    answer["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

pub(super) fn fixture(setup: Setup, name: &str, arguments: &[&str]) -> Setup {
    let program = programs().join("mcp-fixture");
    setup.server(name, &program, arguments, &[&programs()])
}

/// What a stub says that ends by itself: its client goes on waiting.
fn last_words(mut command: Command) -> (bool, String) {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _held = child.stdin.take();
    let out = child.wait_with_output().unwrap();
    (
        out.status.success(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

pub(super) fn servers_of(daemon: &Daemon) -> Vec<i32> {
    let status = daemon.status().unwrap();
    let all = status["workers"].as_array().cloned().unwrap_or_default();
    let servers = all
        .iter()
        .filter(|w| w["role"] == "mcp-server" && w["state"] != "ending");
    let pid = |w: &Value| i32::try_from(w["pid"].as_i64().unwrap()).unwrap();
    servers.map(pid).collect()
}

#[test]
fn the_reference_server_works_behind_the_stub_for_a_client_of_another_library() {
    let daemon = Setup::new()
        .unwrap()
        .everything("everything")
        .gateway()
        .start()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let settings = McpServerSettings {
            name: "everything".into(),
            transport: McpTransport::Stdio,
            shared: false,
            per_run: false,
            context: false,
            claims: false,
            apps: None,
        };
        let stubs = Stubs(daemon.gateway(), Arc::default());
        let servers = Arc::new(Servers::new(vec![settings], Limits::default(), stubs, None));
        let conversation = ConversationId::parse("c").unwrap();
        let scope = RunScope {
            run: RunId::new(),
            delivery: conversation.clone(),
            conversation,
        };
        servers.begin(&scope.run);
        let (tools, warnings) = servers.list_tools(&scope).await;
        assert!(warnings.is_empty() && tools.len() > 10, "{warnings:?}");
        let ask = |tool: &str, arguments: Value| {
            let (progress, reports) = mpsc::channel(32);
            let cancel = CancellationToken::new();
            let request = CallRequest {
                tool: tool.to_owned(),
                arguments: arguments.as_object().cloned().unwrap(),
                progress,
                cancel: cancel.clone(),
            };
            (request, reports, cancel)
        };
        let (request, ..) = ask("echo", json!({ "message": "ä\u{1F600}" }));
        let said = servers.call(&scope, "everything", request).await.unwrap();
        assert!(format!("{said:?}").contains("ä\u{1F600}"), "{said:?}");
        let long = "trigger-long-running-operation";
        let (request, mut reports, _) = ask(long, json!({ "duration": 1, "steps": 4 }));
        servers.call(&scope, "everything", request).await.unwrap();
        assert_eq!(reports.recv().await.unwrap().total, Some(4.0));
        let (request, mut reports, cancel) = ask(long, json!({ "duration": 60, "steps": 600 }));
        let cancelled = async {
            reports.recv().await.unwrap();
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(servers.call(&scope, "everything", request), cancelled);
        assert_eq!(ended.unwrap_err().code(), "mcp_call_cancelled");
        let (request, ..) = ask("get-sum", json!({ "a": 2, "b": 3 }));
        let said = servers.call(&scope, "everything", request).await.unwrap();
        assert!(format!("{said:?}").contains('5'), "{said:?}");
        servers.release(&scope.run).await;
        servers.close().await;
    });
    wait_for("the server ends with its stub", || {
        servers_of(&daemon).is_empty()
    })
    .unwrap();
}

#[test]
fn a_session_survives_its_server_its_bridge_and_its_daemon() {
    let mut daemon = fixture(Setup::new().unwrap(), "f", &[])
        .gateway()
        .start()
        .unwrap();
    let mut stub = Stub::greet(&daemon.gateway(), "f").unwrap();
    stub.ask("tools/list", &json!({})).unwrap();
    let slow = json!({ "name": "slow", "arguments": { "ms": 600_000 } });
    let echo = json!({ "message": "still here" });

    // The server.
    let under_way = stub.send("tools/call", &slow).unwrap();
    stub.call("echo", &echo).unwrap();
    daemon.kill(servers_of(&daemon)[0]).unwrap();
    let lost = stub.answer(under_way).unwrap();
    assert!(error(&lost).contains("not repeated"), "{lost}");
    assert_eq!(text(&stub.call("echo", &echo).unwrap()), "still here");

    // The bridge.
    let under_way = stub.send("tools/call", &slow).unwrap();
    stub.call("echo", &echo).unwrap();
    let bridge = daemon.worker("app-bridge").unwrap();
    daemon.kill(bridge).unwrap();
    let lost = stub.answer(under_way).unwrap();
    assert!(error(&lost).contains("not repeated"), "{lost}");
    assert_eq!(text(&stub.call("echo", &echo).unwrap()), "still here");
    daemon.wait_replaced("app-bridge", bridge).unwrap();

    // All of it.
    let under_way = stub.send("tools/call", &slow).unwrap();
    stub.call("echo", &echo).unwrap();
    daemon.kill_daemon().unwrap();
    let lost = stub.answer(under_way).unwrap();
    assert!(error(&lost).contains("not repeated"), "{lost}");
    let waits = stub
        .send("tools/call", &json!({ "name": "echo", "arguments": echo }))
        .unwrap();
    daemon.restart().unwrap();
    assert_eq!(text(&stub.answer(waits).unwrap()), "still here");
    assert_eq!(stub.close().unwrap(), 0);
}

#[test]
fn a_reload_hands_stubs_to_the_new_bridge() {
    let mut daemon = fixture(Setup::new().unwrap(), "f", &[])
        .gateway()
        .start()
        .unwrap();
    let mut stub = Stub::greet(&daemon.gateway(), "f").unwrap();
    let echo = json!({ "message": "x" });
    stub.call("echo", &echo).unwrap();
    let bridge = daemon.worker("app-bridge").unwrap();
    daemon.done(&["reload"]).unwrap();
    daemon.wait_replaced("app-bridge", bridge).unwrap();
    assert_eq!(text(&stub.call("echo", &echo).unwrap()), "x");
}

#[test]
fn stubs_share_a_server_only_where_that_is_declared() {
    for shared in [false, true] {
        let mut setup = fixture(Setup::new().unwrap(), "f", &[]).gateway();
        setup.config["tools"]["mcpServers"]["f"]["shared"] = json!(shared);
        let daemon = setup.start().unwrap();
        let mut stubs: Vec<Stub> = (0..3)
            .map(|_| Stub::greet(&daemon.gateway(), "f").unwrap())
            .collect();
        // Each waits under the same id.
        let asked: Vec<u64> = (stubs.iter_mut().enumerate())
            .map(|(n, stub)| {
                let arguments = json!({ "message": n.to_string() });
                stub.send(
                    "tools/call",
                    &json!({ "name": "echo", "arguments": arguments }),
                )
                .unwrap()
            })
            .collect();
        for (n, (stub, id)) in stubs.iter_mut().zip(asked).enumerate() {
            assert_eq!(text(&stub.answer(id).unwrap()), n.to_string());
        }
        assert_eq!(servers_of(&daemon).len(), if shared { 1 } else { 3 });
        let told = daemon.json(&["mcp", "stats"]).unwrap();
        assert_eq!(told["gateway"]["sessions"], 3, "{told}");
        drop(stubs.pop());
        assert_eq!(
            text(&stubs[0].call("echo", &json!({ "message": "a" })).unwrap()),
            "a"
        );
    }
}

/// What a shared process is started with comes from the configuration alone, so that two sessions
/// that have the same one have the same rights.
#[test]
fn nothing_of_a_stub_s_own_environment_reaches_its_server_and_a_reload_gives_nobody_an_older_one() {
    let mut setup = Setup::new().unwrap().everything("e").gateway();
    setup.config["tools"]["mcpServers"]["e"]["shared"] = json!(true);
    setup.config["tools"]["mcpServers"]["e"]["env"] = json!({ "DECLARED": "first-value" });
    let mut daemon = setup.start().unwrap();
    let mut stubs: Vec<Stub> = (0..2)
        .map(|n| {
            let mut command = command(&daemon.gateway(), "e");
            command
                .env("DECLARED", "of-the-client")
                .env("CLIENTS_OWN", n.to_string());
            Stub::greeting(command).unwrap()
        })
        .collect();
    let environment = |stub: &mut Stub| text(&stub.call("get-env", &json!({})).unwrap()).to_owned();
    for stub in &mut stubs {
        let seen = environment(stub);
        assert!(seen.contains("first-value"), "{seen}");
        assert!(
            !seen.contains("of-the-client") && !seen.contains("CLIENTS_OWN"),
            "{seen}"
        );
    }
    let earlier = servers_of(&daemon);
    assert_eq!(earlier.len(), 1);
    daemon
        .configure(|config| {
            config["tools"]["mcpServers"]["e"]["env"] = json!({ "DECLARED": "second-value" });
        })
        .unwrap();
    let bridge = daemon.worker("app-bridge").unwrap();
    daemon.done(&["reload"]).unwrap();
    daemon.wait_replaced("app-bridge", bridge).unwrap();
    for stub in &mut stubs {
        let seen = environment(stub);
        assert!(
            seen.contains("second-value") && !seen.contains("first-value"),
            "{seen}"
        );
    }
    wait_for("the older server is gone", || {
        let now = servers_of(&daemon);
        now.len() == 1 && now != earlier
    })
    .unwrap();
}

#[test]
fn a_server_that_a_reload_made_another_is_refused_until_the_client_begins_anew() {
    let mut daemon = fixture(Setup::new().unwrap(), "f", &[])
        .gateway()
        .start()
        .unwrap();
    let mut stub = Stub::greet(&daemon.gateway(), "f").unwrap();
    stub.ask("tools/list", &json!({})).unwrap();
    let echo = json!({ "message": "x" });
    stub.call("echo", &echo).unwrap();
    daemon
        .configure(|config| config["tools"]["mcpServers"]["f"]["args"] = json!(["dice"]))
        .unwrap();
    let bridge = daemon.worker("app-bridge").unwrap();
    daemon.done(&["reload"]).unwrap();
    daemon.wait_replaced("app-bridge", bridge).unwrap();
    let refused = stub.call("echo", &echo).unwrap();
    assert!(error(&refused).contains("echo (gone)"), "{refused}");
    daemon.await_logged(&["mcp-gateway.respawn-toolset"]);
    let mut anew = Stub::greet(&daemon.gateway(), "f").unwrap();
    let listed = anew.ask("tools/list", &json!({})).unwrap();
    assert!(listed.to_string().contains("roll_dice"), "{listed}");
}

#[test]
fn the_socket_is_the_own_users_and_others_are_turned_away() {
    let daemon = fixture(Setup::new().unwrap(), "f", &[])
        .gateway()
        .start()
        .unwrap();
    let path = daemon.gateway();
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    // A file with other rights would not let another user in either: the kernel says who connects.
    if !nix::unistd::geteuid().is_root() {
        return assert!(UnixStream::connect(&path).is_ok());
    }
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&path, 0o666);
    for folder in path
        .ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(daemon.folder()))
    {
        open(folder, 0o755);
    }
    let stub = programs().join("mono-mcp-stub");
    let copy = std::env::temp_dir().join(format!("mono-stub-{}", std::process::id()));
    std::fs::copy(&stub, &copy).unwrap();
    let mut other = Command::new(&copy);
    other.args([Path::new("--socket"), &path, Path::new("f")]);
    let (done, words) = last_words({
        other.uid(65_534).gid(65_534).current_dir("/");
        other
    });
    std::fs::remove_file(&copy).unwrap();
    assert!(!done, "{words}");
    assert!(
        words.contains("no gateway at") && words.contains("as this user"),
        "{words}"
    );
    daemon.await_logged(&["refused at the gateway: a process of user 65534"]);
    assert!(servers_of(&daemon).is_empty());
}

#[test]
fn hostile_connections_cost_the_others_nothing() {
    let daemon = fixture(Setup::new().unwrap(), "f", &[])
        .gateway()
        .start()
        .unwrap();
    let path = daemon.gateway();
    let mut good = Stub::greet(&path, "f").unwrap();
    let echo = json!({ "message": "x" });
    // Connects and says nothing, many times; says something else; says it without end.
    let silent: Vec<_> = (0..200)
        .filter_map(|_| UnixStream::connect(&path).ok())
        .collect();
    let mut endless = UnixStream::connect(&path).unwrap();
    endless
        .set_write_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let piece = vec![b'x'; 1 << 20];
    while endless.write_all(&piece).is_ok() {}
    let register = |session: &str| {
        let register = json!({ "version": 1, "server": "f", "session": session });
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(format!("#register {register}\n").as_bytes())
            .unwrap();
        stream
    };
    // A wrong token, and one message larger than any may be.
    let mut told = String::new();
    register("guessed").read_to_string(&mut told).unwrap();
    assert!(told.contains("session_refused"), "{told}");
    let mut large = register(&"0a".repeat(32));
    let mut written = 0;
    while written < (64 << 20) && large.write_all(&piece).is_ok() {
        written += piece.len();
    }
    assert!(written < (20 << 20), "{written}");
    // A flood of questions that nobody takes the answers of.
    let mut deaf = register(&"0b".repeat(32));
    deaf.set_write_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let big = json!({ "name": "big", "arguments": { "bytes": 1 << 20 } });
    for id in 0..300 {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": big });
        if deaf.write_all(format!("{line}\n").as_bytes()).is_err() {
            break;
        }
    }
    assert_eq!(text(&good.call("echo", &echo).unwrap()), "x");
    drop((silent, endless, large, deaf));
    wait_for("they are gone", || {
        let told = daemon.json(&["mcp", "stats"]).unwrap();
        told["gateway"]["sessions"] == 1
    })
    .unwrap();
    assert_eq!(text(&good.call("echo", &echo).unwrap()), "x");
}

#[test]
fn without_a_gateway_the_stub_says_what_is_missing() {
    let daemon = fixture(Setup::new().unwrap(), "f", &[]).start().unwrap();
    assert!(!daemon.gateway().exists());
    let (done, words) = last_words(command(&daemon.gateway(), "f"));
    assert!(!done && words.contains("tools.gateway.enabled"), "{words}");
    let with = fixture(Setup::new().unwrap(), "f", &[])
        .gateway()
        .start()
        .unwrap();
    let (done, words) = last_words(command(&with.gateway(), "other"));
    assert!(!done && words.contains("tools.mcpServers"), "{words}");
}

/// Runs `codex exec` with its servers behind the stub.
struct Codex {
    folder: tempfile::TempDir,
}

impl Codex {
    fn new(model: &Model, gateway: &Path, servers: &[&str]) -> Self {
        let folder = tempfile::TempDir::with_prefix("mono-codex-").unwrap();
        let stub = programs().join("mono-mcp-stub");
        let mut config = format!(
            "model = \"mock-1\"\nmodel_provider = \"mock\"\napproval_policy = \"never\"\n\
             [model_providers.mock]\nname = \"mock\"\nwire_api = \"responses\"\n\
             base_url = \"http://{}/v1\"\n",
            model.address()
        );
        for server in servers {
            config.push_str(&format!(
                "[mcp_servers.{server}]\ncommand = {stub:?}\nargs = [\"--socket\", {gateway:?}, \"{server}\"]\n\
                 startup_timeout_sec = 120\ntool_timeout_sec = 600\n"
            ));
        }
        std::fs::create_dir(folder.path().join("work")).unwrap();
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        Self { folder }
    }

    fn start(&self, prompt: &str) -> Child {
        Command::new(node::node())
            .arg(node::codex())
            .args(["exec", "--json", "--skip-git-repo-check", "-C"])
            .arg(self.folder.path().join("work"))
            .args(["--dangerously-bypass-approvals-and-sandbox", prompt])
            .env("CODEX_HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// What the agent did and said.
    fn ended(child: Child) -> (Vec<Value>, String) {
        let out = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success(),
            "{words}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let events = words
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let items: Vec<Value> = events
            .filter(|event| event["type"] == "item.completed")
            .map(|event| event["item"].clone())
            .collect();
        let calls = items
            .iter()
            .filter(|item| item["type"] == "mcp_tool_call")
            .cloned();
        let said = items
            .iter()
            .rev()
            .find(|item| item["type"] == "agent_message");
        let said = said.map(|item| item["text"].as_str().unwrap_or_default().to_owned());
        (calls.collect(), said.unwrap_or_else(|| panic!("{words}")))
    }

    fn run(&self, prompt: &str) -> (Vec<Value>, String) {
        Self::ended(self.start(prompt))
    }
}

#[test]
fn codex_uses_servers_behind_the_stub_and_survives_what_is_killed() {
    let model = Model::start().unwrap();
    let setup = Setup::new().unwrap().everything("everything");
    let mut setup = fixture(setup, "dice", &["dice"]).gateway();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let mut daemon = setup.start().unwrap();
    let codex = Codex::new(&model, &daemon.gateway(), &["everything", "dice"]);
    let echo = |message: &str| call("echo", &json!({ "message": message }));

    // Tools of two servers in one turn; the app is marked and shown.
    let roll = call("roll_dice", &json!({ "count": 2 }));
    let (calls, _) = codex.run(&format!("{} {roll} [[mock:echo]]", echo("from codex")));
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].to_string().contains("from codex"), "{calls:?}");
    // The program takes the marker; its model is shown the structured part of a result where there
    // is one.
    let rolled = calls[1]["result"]["content"][0]["text"].as_str();
    let id = marker_of(rolled.unwrap_or_else(|| panic!("{calls:?}"))).to_owned();
    let console = Console::log_in(&daemon).unwrap();
    let (thread, part) = shown(&console);
    assert_eq!(part["invocationId"], json!(id), "{part}");
    // The agent has ended; its app opens, and calls its server.
    assert!(
        works_in_a_browser(&daemon, &thread),
        "what the page said is above"
    );

    // A call is under way when its server, and then the whole bridge, is killed; the agent goes on
    // in the same session.
    let long = call(
        "trigger-long-running-operation".replace('-', "_").as_str(),
        &json!({ "duration": 600, "steps": 6000 }),
    );
    for what in ["server", "bridge"] {
        let before = model.stats().seen.len();
        let child = codex.start(&format!("{long} {} [[mock:echo]]", echo("after it")));
        wait_for("the call is under way", || {
            let told = daemon.json(&["mcp", "stats"]).unwrap();
            model.stats().seen.len() > before && told["gateway"]["outstanding"] == 1
        })
        .unwrap();
        if what == "server" {
            // One of an earlier agent may just have ended by itself.
            let killed = servers_of(&daemon).into_iter().map(|pid| daemon.kill(pid));
            assert!(killed.filter(Result::is_ok).count() > 0);
        } else {
            let bridge = daemon.worker("app-bridge").unwrap();
            daemon.kill(bridge).unwrap();
            daemon.wait_replaced("app-bridge", bridge).unwrap();
        }
        let (calls, said) = Codex::ended(child);
        assert_eq!(calls.len(), 2, "{what}: {calls:?}");
        assert!(
            calls[0].to_string().contains("not repeated"),
            "{what}: {calls:?}"
        );
        assert!(said.contains("after it"), "{what}: {said}");
    }
}
