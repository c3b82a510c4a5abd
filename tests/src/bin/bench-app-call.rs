//! `bench-app-call`: what an app asks of its server after the person allowed it for the view, from
//! the console's question to its answer: whose it is, a fresh listing, the schema, the rules, the
//! audit, the call. Beside the bare call on the same connection.
//!
//! The console's wire is not in it, nor is the page. The server is our own fixture, a process with
//! pipes, which answers at once: what is measured is what we add.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, bail};
use ipc_proto::apps::{Act, AppAnswer, AppAsk, Claim, Decision, Opened};
use ipc_proto::edges::continuation::Claim as RunClaim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::{AppsSettings, McpServerSettings, McpTransport, ServerApps};
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::apps::capture::Shown;
use mono_app_bridge::apps::desk::{Answered, Desk};
use mono_app_bridge::apps::folder::Folder;
use mono_app_bridge::apps::vault::Vault;
use mono_app_bridge::call::CallRequest;
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::{Servers, Started, Starter};
use mono_tests::bench::{Figure, Samples, report};
use mono_tests::daemon::programs;
use serde_json::{Map, Value, json};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Connections; an app may ask sixty times a minute of each.
const CONNECTIONS: usize = 8;
/// Calls of each that count.
const ROUNDS: usize = 50;
/// Calls before.
const WARM_UP: usize = 5;
const SERVER: &str = "dice";

/// Starts the fixture, and ends all of it with the measurement.
#[derive(Default)]
struct Processes(Mutex<Vec<Child>>);

impl Starter for Processes {
    async fn start(
        &self,
        _name: &str,
        _run: Option<&RunId>,
        _claim: Option<RunClaim>,
    ) -> Result<Started, String> {
        let mut child = Command::new(programs().join("mcp-fixture"))
            .arg("dice")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let lost = || "a pipe is missing".to_owned();
        let started = Started {
            process: u64::from(child.id()),
            stdin: child.stdin.take().ok_or_else(lost)?.into(),
            stdout: child.stdout.take().ok_or_else(lost)?.into(),
            stderr: child.stderr.take().ok_or_else(lost)?.into(),
        };
        self.0.lock().map_err(|e| e.to_string())?.push(child);
        Ok(started)
    }

    async fn stop(&self, _process: u64) {}
}

impl Drop for Processes {
    fn drop(&mut self) {
        let children = self.0.get_mut().map(std::mem::take).unwrap_or_default();
        for mut child in children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn main() -> ExitCode {
    report(measure())
}

fn measure() -> Result<Figure> {
    let temp = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut asked, mut bare) = (Samples::new(), Samples::new());
    runtime.block_on(async {
        let folder = Folder::from_fd(std::fs::File::open(temp.path())?.into())?;
        let now = jiff::Timestamp::now().as_millisecond();
        let settings = AppsSettings {
            max_age_days: 1,
            ..AppsSettings::default()
        };
        let desk = Arc::new(Desk::new(Vault::open(folder, now)?, settings));
        let server = McpServerSettings {
            name: SERVER.to_owned(),
            transport: McpTransport::Stdio,
            shared: false,
            per_run: false,
            context: false,
            claims: false,
            apps: Some(ServerApps {
                exact_results: false,
                webrtc: true,
            }),
        };
        let servers = Servers::new(vec![server], Limits::default(), Processes::default(), None);
        let servers = Arc::new(servers);
        servers.show_apps(desk.clone());
        for number in 0..CONNECTIONS {
            let app = App::open(&servers, &desk, number).await?;
            let unused = &mut Samples::new();
            for round in 0..WARM_UP + ROUNDS {
                let counts = round >= WARM_UP;
                let samples = if counts { &mut asked } else { &mut *unused };
                let start = std::time::Instant::now();
                app.ask().await?;
                samples.push(start.elapsed());
                let samples = if counts { &mut bare } else { &mut *unused };
                let start = std::time::Instant::now();
                app.bare().await?;
                samples.push(start.elapsed());
            }
        }
        anyhow::Ok(())
    })?;
    Ok(Figure::of("ms", 1e3, &asked, &bare).with(
        "measured_through",
        "the app-bridge's own library and a stdio server",
    ))
}

struct App<'a> {
    servers: &'a Arc<Servers<Processes>>,
    desk: &'a Desk,
    claim: Claim,
    opened: Opened,
}

fn call(tool: &str) -> CallRequest {
    let mut arguments = Map::new();
    arguments.insert("count".to_owned(), json!(2));
    CallRequest {
        tool: tool.to_owned(),
        arguments,
        progress: mpsc::channel(1).0,
        cancel: CancellationToken::new(),
    }
}

impl<'a> App<'a> {
    async fn open(
        servers: &'a Arc<Servers<Processes>>,
        desk: &'a Desk,
        number: usize,
    ) -> Result<Self> {
        let conversation = ConversationId::parse(&format!("bench:{number}"))?;
        let scope = RunScope {
            run: RunId::new(),
            delivery: conversation.clone(),
            conversation,
        };
        servers.begin(&scope.run);
        let request = call("roll_dice");
        let arguments = request.arguments.clone();
        let (connection, result) = servers.call_raw(&scope, SERVER, request).await?;
        let shown = Shown {
            scope: &scope,
            settings: servers.settings(SERVER).context("no server")?,
            tool: "roll_dice",
            arguments: &arguments,
            connection: &connection,
            result: &result,
        };
        let part = desk.capture(shown).await.context("no app")?;
        let ReplyPart::McpApp {
            invocation_id,
            connection_id,
            ..
        } = *part
        else {
            bail!("no app");
        };
        desk.vault()
            .keep(scope.run.as_str(), std::slice::from_ref(&invocation_id))?;
        let claim = Claim {
            invocation: invocation_id,
            connection: connection_id,
            delivery: scope.delivery.as_str().to_owned(),
            run: scope.run.as_str().to_owned(),
        };
        let opened = done(answer(servers, desk, &claim, Act::Open).await)?;
        let app = Self {
            servers,
            desk,
            claim,
            opened: serde_json::from_value(opened)?,
        };
        let AppAnswer::Confirm { confirmation } = app.answer(app.request()).await else {
            bail!("nobody was asked");
        };
        let yes = Act::Decide {
            view: app.opened.view.clone(),
            capability: app.opened.capability.clone(),
            confirmation: confirmation.id,
            decision: Decision::View,
        };
        done(app.answer(yes).await)?;
        Ok(app)
    }

    fn request(&self) -> Act {
        Act::Request {
            view: self.opened.view.clone(),
            capability: self.opened.capability.clone(),
            method: "tools/call".to_owned(),
            params: json!({ "name": "reroll", "arguments": { "count": 2 } }),
        }
    }

    async fn answer(&self, act: Act) -> AppAnswer {
        answer(self.servers, self.desk, &self.claim, act).await
    }

    async fn ask(&self) -> Result<()> {
        done(self.answer(self.request()).await).map(|_| ())
    }

    async fn bare(&self) -> Result<()> {
        let lease = self.servers.lease(&self.claim.connection);
        let lease = lease.context("the connection is gone")?;
        lease.connection.call(call("reroll")).await?;
        Ok(())
    }
}

async fn answer(
    servers: &Arc<Servers<Processes>>,
    desk: &Desk,
    claim: &Claim,
    act: Act,
) -> AppAnswer {
    let claim = claim.clone();
    match desk
        .answer(
            servers,
            AppAsk { claim, act },
            None,
            CancellationToken::new(),
        )
        .await
    {
        Answered::Json(answer) => answer,
        Answered::Page(_) => AppAnswer::Done {
            result: Value::Null,
        },
    }
}

fn done(answer: AppAnswer) -> Result<Value> {
    match answer {
        AppAnswer::Done { result } => Ok(result),
        other => bail!("not done: {other:?}"),
    }
}
