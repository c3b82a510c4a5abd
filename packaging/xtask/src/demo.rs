//! `cargo xtask demo`: everything, rootless, with the embedded demo model.

use crate::build;
use crate::interrupt::Interrupt;
use crate::node;
use anyhow::{Context, Result, bail};
use mono_sys::process::ends_with_us;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run one scripted turn and exit.
    #[arg(long)]
    once: bool,
    /// Use the release profile: slower to build, faster to run.
    #[arg(long)]
    release: bool,
    /// Where the demo keeps its files [default: target/demo]. Emptied at the start.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Port of the OpenAI-compatible API; 0 takes a free one.
    #[arg(long, default_value_t = 8642)]
    port: u16,
    /// Port of the web console; 0 takes a free one.
    #[arg(long, default_value_t = 5050)]
    console_port: u16,
    /// Port of durable continuations; 0 takes a free one.
    #[arg(long, default_value_t = 4319)]
    continuations_port: u16,
}

/// The scripted turn: the demo model writes a file, calls a tool, publishes the file.
const PROMPT: &str = "demo";
/// The turn whose answer comes later.
const WORK: &str = "start background work: count the files";
/// Where that is asked.
const WORK_CONVERSATION: &str = "demo:work";
/// How long background work takes.
const WORK_TAKES_MS: &str = "2000";
/// From its result to the answer, on a slow machine.
const LATER_WITHIN: Duration = Duration::from_secs(30);
/// Start to ready, on a slow machine with a cold disk.
const READY_WITHIN: Duration = Duration::from_secs(60);

const IDENTITY: &str = "You are the demo agent of mono. You are friendly and brief, and you say \
when something is only a demonstration.\n";

/// A running daemon, ended when dropped.
struct Daemon {
    child: Child,
    socket: PathBuf,
    programs: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let deadline = Instant::now() + Duration::from_secs(15);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service outside of the daemon whose work outlives the call, ended when dropped.
struct Work {
    child: Child,
    /// Where its tools are.
    url: String,
}

impl Work {
    fn start(programs: &Path, folder: &Path) -> Result<Self> {
        let claims = folder.join("claims");
        std::fs::create_dir_all(&claims)?;
        let mut command = Command::new(programs.join("work-service"));
        command
            .arg("--folder")
            .arg(&claims)
            .args(["http", "--finish-after-ms", WORK_TAKES_MS])
            .stdout(Stdio::piped());
        let mut child = ends_with_us(&mut command)
            .spawn()
            .context("the service for background work can't be started")?;
        let stdout = child.stdout.take().context("no output")?;
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim_end().to_owned();
        Ok(Self { child, url })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn monoctl(&self) -> Command {
        let mut command = Command::new(self.programs.join("monoctl"));
        command.arg("--socket").arg(&self.socket);
        command
    }

    /// A link that logs one browser in to the console.
    fn login_link(&self) -> Result<String> {
        let out = self
            .monoctl()
            .args(["console", "open", "--print"])
            .output()?;
        if !out.status.success() {
            bail!(
                "monoctl console open: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    }

    fn status(&self) -> Result<Value> {
        let out = self.monoctl().args(["status", "--json"]).output()?;
        serde_json::from_slice(&out.stdout).with_context(|| {
            format!(
                "monoctl status: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            )
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let programs = build::build(build::Programs::Product, arguments.release)?;
    let folder = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => build::root().join("target/demo"),
    };
    let port = if arguments.once { 0 } else { arguments.port };
    let console = if arguments.once {
        0
    } else {
        arguments.console_port
    };
    // Addresses that were given out outlive a restart, so that "any" is none for the daemon.
    let continuations = match arguments.continuations_port {
        port if port != 0 && !arguments.once => port,
        _ => TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
    };
    let config = prepare(&folder, &programs)?;
    // It keeps the signals as it finds them; the daemon takes them whatever it finds.
    let work = Work::start(&programs, &folder)?;
    let interrupt = Interrupt::watch()?;
    configure(&config, |config| {
        config["openaiApi"]["port"] = json!(port);
        config["console"]["port"] = json!(console);
        config["continuations"]["port"] = json!(continuations);
        config["tools"]["mcpServers"]["work"] = json!({ "url": work.url });
        config["tools"]["continuationServers"] = json!(["work"]);
    })?;
    let daemon = start(&programs, &config, &folder, &interrupt)?;
    if arguments.once {
        return once(&daemon, &folder);
    }
    serve(daemon)
}

/// Writes the demo's folder: a workspace, an identity, a configuration.
fn prepare(folder: &Path, programs: &Path) -> Result<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("can't empty {}", folder.display()))?;
    }
    let workspace = folder.join("workspace");
    std::fs::create_dir_all(&workspace)?;
    // Started as root, the daemon runs agents as the owner of the workspace, which must not be root.
    if Path::new("/proc/self")
        .metadata()
        .is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
    {
        chown(&workspace, Some(RUN_UID), Some(RUN_UID))?;
        std::fs::set_permissions(&workspace, PermissionsExt::from_mode(0o2770))?;
    }
    std::fs::write(folder.join("IDENTITY.md"), IDENTITY)?;
    let (name, server) = match node::server_everything() {
        Some(found) => (
            "everything",
            json!({
                "command": found.node, "args": [found.script, "stdio"],
                "sandbox": { "readableRoots": [found.folder, found.node.parent()] },
            }),
        ),
        None => {
            let fixture = programs.join("mcp-fixture");
            (
                "fixture",
                json!({ "command": fixture, "sandbox": { "readableRoots": [programs] } }),
            )
        }
    };
    let mut servers = serde_json::Map::new();
    servers.insert(name.to_owned(), server);
    // The one with an app; it needs no Node.
    let dice = programs.join("mcp-fixture");
    servers.insert(
        "dice".to_owned(),
        json!({ "command": dice, "args": ["dice"], "sandbox": { "readableRoots": [programs] } }),
    );
    let config = json!({
        "runtime": { "model": "demo:scripted", "workspace": "workspace" },
        "context": { "identityPath": "IDENTITY.md" },
        "tools": { "mcpServers": servers },
        "openaiApi": { "enabled": true, "modelId": "agent" },
        "console": { "enabled": true },
    });
    let path = folder.join("mono-agent.config.json");
    std::fs::write(&path, serde_json::to_string_pretty(&config)?)?;
    Ok(path)
}

/// Changes the configuration.
fn configure(path: &Path, change: impl FnOnce(&mut Value)) -> Result<()> {
    let mut config = serde_json::from_slice(&std::fs::read(path)?)?;
    change(&mut config);
    std::fs::write(path, serde_json::to_string_pretty(&config)?)?;
    Ok(())
}

/// The user that runs of the demo have when the demo is started by root.
const RUN_UID: u32 = 61_013;

fn start(programs: &Path, config: &Path, folder: &Path, interrupt: &Interrupt) -> Result<Daemon> {
    let socket = folder.join("monod.sock");
    let log = std::fs::File::create(folder.join("monod.log"))?;
    let mut command = Command::new(programs.join("monod"));
    command
        .arg("--config")
        .arg(config)
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let child = ends_with_us(&mut command)
        .spawn()
        .context("monod can't be started")?;
    interrupt.ends(&child);
    let mut daemon = Daemon {
        child,
        socket,
        programs: programs.to_owned(),
    };
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if let Some(status) = daemon.child.try_wait()? {
            bail!("monod ended with {status}:\n{}", log_tail(folder));
        }
        if daemon.socket.exists() {
            let out = daemon.monoctl().args(["status", "--json"]).output()?;
            if out.status.success() {
                return Ok(daemon);
            }
        }
        if Instant::now() > deadline {
            let status = daemon.status().unwrap_or(Value::Null);
            bail!(
                "monod was not healthy in time: {status}\n{}",
                log_tail(folder)
            );
        }
        std::thread::sleep(Duration::from_millis(25));
    }
}

fn log_tail(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("monod.log")).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

fn serve(mut daemon: Daemon) -> Result<bool> {
    let status = daemon.status()?;
    let workers = status["workers"].as_array().map_or(0, Vec::len);
    let monoctl = daemon.programs.join("monoctl");
    let socket = daemon.socket.display().to_string();
    let log = daemon.socket.with_file_name("monod.log");
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let api = text
        .lines()
        .filter(|l| l.contains("role=channel-openai"))
        .filter_map(|l| l.split("listening on ").nth(1)?.split_whitespace().next())
        .next_back()
        .unwrap_or("(see the log)")
        .to_owned();
    let link = daemon.login_link()?;
    println!(
        "\nmono is up: {workers} confined workers, the demo model, no key and no network needed.\n\n  \
         export MONO_SOCKET={socket}\n  {m} send \"demo\"\n  {m} send \"echo hello\"\n  {m} status\n  {m} send --follow \"start background work\"   (the answer comes later; also in the console)\n\n  \
         console: {link}\n  (works once; another: {m} console open)\n  OpenAI-compatible: base URL {api}/v1, model `agent`, any key\n  log: {log}\n\nCtrl-C stops it.",
        m = monoctl.display(),
        log = log.display(),
    );
    // A terminal sends Ctrl-C to the daemon too, `kill` of this program only reaches us: either way
    // it stops in order and we follow. Where we are killed, the kernel asks it to stop.
    let status = daemon.child.wait()?;
    Ok(status.success())
}

fn once(daemon: &Daemon, folder: &Path) -> Result<bool> {
    let mut child = daemon
        .monoctl()
        .args(["send", "--json", "--conversation", "demo:once", PROMPT])
        .stdout(Stdio::piped())
        .spawn()?;
    let lines: Vec<Value> = child
        .stdout
        .take()
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
        .filter_map(|l| serde_json::from_str(&l).ok())
        .collect();
    let sent = child.wait()?;
    let last = lines.last().cloned().unwrap_or(Value::Null);
    let finish = &last["message"];
    let mut problems = Vec::new();
    if !sent.success() || finish["ok"] != true {
        problems.push(format!("the turn failed: {last}"));
    }
    let attachment = check_attachment(daemon, folder, finish, &mut problems);
    let app = check_app(daemon, finish, &mut problems);
    let tool = mcp_call(&lines, &mut problems);
    let continuation = continuation(daemon, &mut problems)?;
    let status = daemon.status()?;
    check_workers(&status, &mut problems);
    let ok = problems.is_empty();
    if !ok {
        eprintln!("{}", log_tail(folder));
    }
    let result = json!({
        "ok": ok,
        "problems": problems,
        "reply": finish["text"],
        "parts": finish["parts"],
        "attachment": attachment,
        "app": app,
        "mcp": tool,
        "continuation": continuation,
        "workers": status["workers"],
    });
    println!("{result}");
    Ok(ok)
}

/// Has work begun whose result comes after its turn, and waits for the one answer to that.
fn continuation(daemon: &Daemon, problems: &mut Vec<String>) -> Result<Value> {
    let ask = |arguments: &[&str]| -> Result<Vec<Value>> {
        let out = daemon.monoctl().args(arguments).arg("--json").output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines = text.lines().filter_map(|l| serde_json::from_str(l).ok());
        Ok(lines.collect())
    };
    let sent = ask(&["send", "--conversation", WORK_CONVERSATION, WORK])?;
    let said = sent.last().map(|last| last["message"]["text"].clone());
    let newest = || -> Result<Value> {
        let page = ask(&["continuations", "list", "--limit", "1"])?;
        Ok(page
            .first()
            .map_or(Value::Null, |page| page["continuations"][0].clone()))
    };
    let claimed = newest()?;
    let deadline = Instant::now() + LATER_WITHIN;
    let mut record = claimed.clone();
    while !claimed.is_null()
        && record["receipt"]["historyRecorded"] != true
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(50));
        record = newest()?;
    }
    let letters = ask(&["letters", "--conversation", WORK_CONVERSATION])?;
    let fine = record["state"] == "delivered" && letters.len() == 1;
    if !fine {
        problems.push(format!(
            "background work has {} answers: {record}",
            letters.len()
        ));
    }
    Ok(json!({
        "turn": said,
        "claimed": claimed["state"],
        "state": record["state"],
        "receipt": record["receipt"],
        "answers": letters.iter().map(|l| &l["letter"]["text"]).collect::<Vec<_>>(),
    }))
}

/// Fetches the one attachment and hashes what came, with a program that isn't ours.
fn check_attachment(
    daemon: &Daemon,
    folder: &Path,
    finish: &Value,
    problems: &mut Vec<String>,
) -> Value {
    let parts = finish["parts"].as_array().cloned().unwrap_or_default();
    let files: Vec<&Value> = (parts.iter())
        .filter(|part| part["type"] == "attachment")
        .collect();
    let [part] = files.as_slice() else {
        problems.push(format!("expected one file, got {}", files.len()));
        return Value::Null;
    };
    let id = part["reference"]["id"].as_str().unwrap_or_default();
    let target = folder.join("attachment");
    let got = daemon
        .monoctl()
        .args(["artifacts", "get", id, "-o"])
        .arg(&target)
        .output();
    let hash = Command::new("sha256sum")
        .arg(&target)
        .output()
        .ok()
        .and_then(|out| {
            Some(
                String::from_utf8_lossy(&out.stdout)
                    .split_whitespace()
                    .next()?
                    .to_owned(),
            )
        });
    let matches = hash.is_some_and(|h| part["integrityId"] == format!("sha256:{h}"));
    if !matches {
        let why = got.map_or_else(
            |e| e.to_string(),
            |o| String::from_utf8_lossy(&o.stderr).into_owned(),
        );
        problems.push(format!("the attachment does not match its hash: {why}"));
    }
    json!({ "name": part["name"], "sizeBytes": part["sizeBytes"], "integrityId": part["integrityId"], "verified": matches })
}

/// The one app among the parts, as the app-bridge has it.
fn check_app(daemon: &Daemon, finish: &Value, problems: &mut Vec<String>) -> Value {
    let parts = finish["parts"].as_array().cloned().unwrap_or_default();
    let app = parts.iter().find(|part| part["type"] == "mcp_app");
    let Some(app) = app else {
        problems.push("no app is among the parts".to_owned());
        return Value::Null;
    };
    let id = app["invocationId"].as_str().unwrap_or_default();
    let shown = daemon
        .monoctl()
        .args(["apps", "show", id, "--json"])
        .output();
    let shown = shown
        .ok()
        .and_then(|out| serde_json::from_slice::<Value>(&out.stdout).ok());
    match shown {
        Some(shown) if shown["connected"] == true && shown["page"] == app["resourceUri"] => shown,
        other => {
            problems.push(format!("the app is not kept as it should be: {other:?}"));
            Value::Null
        }
    }
}

fn mcp_call(lines: &[Value], problems: &mut Vec<String>) -> Value {
    let mut events = lines.iter().map(|line| &line["event"]);
    let call = events.find(|l| {
        l["type"] == "tool_call_completed" && l["name"].as_str().is_some_and(|n| n.contains("echo"))
    });
    match call {
        Some(call) if call["ok"] == true => call.clone(),
        other => {
            problems.push(format!("no MCP tool was called well: {other:?}"));
            Value::Null
        }
    }
}

/// Every worker: filters, no new privileges, Landlock, no root, and every probe refused.
fn check_workers(status: &Value, problems: &mut Vec<String>) {
    let workers = status["workers"].as_array().cloned().unwrap_or_default();
    if status["ok"] != true || workers.len() < 5 {
        problems.push("the daemon is not healthy".to_owned());
    }
    for worker in &workers {
        let s = &worker["sandbox"];
        let role = worker["role"].as_str().unwrap_or("?");
        // A server program of somebody else makes no report of its own; the kernel's does.
        let probes = s["probes"].as_object().cloned().unwrap_or_default();
        let probed = role == "mcp-server"
            || worker["state"] == "starting"
            || (!probes.is_empty() && probes.values().all(|p| p == "refused"));
        let confined = s["seccomp"] == 2
            && s["no_new_privs"] == true
            && s["landlock_abi"].as_u64().unwrap_or(0) > 0
            && s["uid"] != 0
            && s["capabilities"] == 0;
        if !(probed && confined) {
            problems.push(format!("{role} is not confined as it should be: {s}"));
        }
    }
}
