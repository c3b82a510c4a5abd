//! A server whose tools the test changes while it runs, what apps of it are kept in, and somebody
//! who looks at them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use super::call_with;
use ipc_proto::apps::{Act, AppAnswer, AppAsk, Claim, Decision, Opened, Record};
use ipc_proto::edges::continuation::Claim as RunClaim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::{AppsSettings, McpServerSettings, McpTransport, ServerApps};
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::apps::capture::Shown;
use mono_app_bridge::apps::desk::{Answered, Desk};
use mono_app_bridge::apps::folder::Folder;
use mono_app_bridge::apps::quota::Bounds;
use mono_app_bridge::apps::vault::{Hook, Vault};
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::{Servers, Started, Starter};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

pub const PAGE: &str = "ui://stage/page";

/// What the server offers and what was asked of it.
#[derive(Default)]
pub struct Play {
    /// `_meta.ui` by tool.
    pub tools: Vec<(String, Value)>,
    pub calls: Vec<String>,
    pub lists: usize,
    pub cancelled: usize,
    /// `_meta.ui` of the page.
    pub page: Value,
    /// Bytes of the text that `big` answers.
    pub big: usize,
    running: HashMap<u64, CancellationToken>,
    next: u64,
}

#[derive(Clone, Default)]
pub struct Stage(Arc<Mutex<Play>>);

impl Stage {
    pub fn play(&self) -> MutexGuard<'_, Play> {
        self.0.lock().unwrap()
    }

    /// Ends every process as `kill -9` does.
    pub fn kill(&self) {
        for life in self.play().running.values() {
            life.cancel();
        }
    }
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    value.as_object().unwrap().clone()
}

impl ServerHandler for Stage {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(capabilities.enable_tools().enable_resources().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut play = self.play();
        play.lists += 1;
        let tool = |(name, ui): &(String, Value)| {
            let schema = object(json!({ "type": "object",
                "properties": { "n": { "type": "integer" } }, "additionalProperties": false }));
            let mut tool = Tool::new(name.clone(), "d", Arc::new(schema));
            tool.meta = serde_json::from_value(json!({ "ui": ui })).unwrap();
            tool
        };
        Ok(ListToolsResult::with_all_items(
            play.tools.iter().map(tool).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let big = {
            let mut play = self.play();
            play.calls.push(request.name.to_string());
            play.big
        };
        let text = match request.name.as_ref() {
            "slow" => {
                context.ct.cancelled().await;
                self.play().cancelled += 1;
                "cancelled".to_owned()
            }
            "refuse" => return Err(ErrorData::invalid_params("not today", None)),
            "big" => "x".repeat(big),
            "leak" => "key sk-live-abcdefghijklmnop1234".to_owned(),
            _ => "ok".to_owned(),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = json!([{ "uri": request.uri, "mimeType": "text/html;profile=mcp-app",
            "text": "<p>page", "_meta": { "ui": self.play().page } }]);
        Ok(ReadResourceResult::new(serde_json::from_value(contents).unwrap()).into())
    }
}

impl Starter for Stage {
    async fn start(
        &self,
        _name: &str,
        _run: Option<&RunId>,
        _claim: Option<RunClaim>,
    ) -> Result<Started, String> {
        let (process, life) = {
            let mut play = self.play();
            play.next += 1;
            let (process, life) = (play.next, CancellationToken::new());
            play.running.insert(process, life.clone());
            (process, life)
        };
        let pair = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let (stdin, ours_in): (OwnedFd, OwnedFd) = pair();
        let (ours_out, stdout) = pair();
        let (ours_err, stderr) = pair();
        let input = pipe::Receiver::from_owned_fd(stdin).unwrap();
        let output = pipe::Sender::from_owned_fd(stdout).unwrap();
        let stage = self.clone();
        tokio::spawn(async move {
            let (inner, mut outer) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                if let Ok(service) = stage.serve(inner).await {
                    let _ = service.waiting().await;
                }
            });
            let mut pipes = tokio::io::join(input, output);
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut pipes, &mut outer) => {}
                () = life.cancelled() => {}
            }
            drop(stderr);
        });
        Ok(Started {
            process,
            stdin: ours_in,
            stdout: ours_out,
            stderr: ours_err,
        })
    }

    async fn stop(&self, process: u64) {
        if let Some(life) = self.play().running.remove(&process) {
            life.cancel();
        }
    }
}

pub fn server() -> McpServerSettings {
    McpServerSettings {
        name: "s".to_owned(),
        transport: McpTransport::Stdio,
        shared: false,
        per_run: false,
        context: false,
        claims: false,
        apps: Some(ServerApps {
            exact_results: false,
            webrtc: true,
        }),
    }
}

/// How a stage is set.
pub struct Setting {
    pub apps: AppsSettings,
    pub server: McpServerSettings,
    pub limits: Limits,
    pub bounds: Bounds,
    pub hook: Option<Hook>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            apps: AppsSettings {
                max_age_days: 1,
                clipboard: true,
                ..AppsSettings::default()
            },
            server: server(),
            limits: Limits::default(),
            bounds: Bounds::default(),
            hook: None,
        }
    }
}

pub struct Bench {
    pub temp: tempfile::TempDir,
    pub stage: Stage,
    pub servers: Arc<Servers<Stage>>,
    pub desk: Arc<Desk>,
}

/// What a message of this run says of a part.
pub fn claim_of(scope: &RunScope, part: &ReplyPart) -> Claim {
    let ReplyPart::McpApp { connection_id, .. } = part else {
        panic!("{part:?}")
    };
    Claim {
        invocation: part.id().to_owned(),
        connection: connection_id.clone(),
        delivery: scope.delivery.as_str().to_owned(),
        run: scope.run.as_str().to_owned(),
    }
}

pub fn bench() -> Bench {
    Bench::set(Setting::default())
}

/// An app and a view of it.
pub struct Watched<'a> {
    pub bench: &'a Bench,
    pub claim: Claim,
    pub view: String,
    pub capability: String,
}

impl Bench {
    pub fn set(setting: Setting) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let folder = std::fs::File::open(temp.path()).unwrap();
        let folder = Folder::from_fd(folder.into()).unwrap();
        let now = jiff::Timestamp::now().as_millisecond();
        let vault = Vault::with(folder, now, setting.bounds, setting.hook).unwrap();
        let desk = Arc::new(Desk::new(vault, setting.apps));
        let stage = Stage::default();
        let both = json!(["model", "app"]);
        stage.play().tools = vec![
            ("show".into(), json!({ "resourceUri": PAGE })),
            ("plain".into(), Value::Null),
            ("app_only".into(), json!({ "visibility": ["app"] })),
            ("model_only".into(), json!({ "visibility": ["model"] })),
            ("nobody".into(), json!({ "visibility": [] })),
            ("odd".into(), json!({ "visibility": ["app", "x"] })),
            ("slow".into(), json!({ "visibility": both })),
            ("refuse".into(), Value::Null),
            ("big".into(), Value::Null),
            ("leak".into(), Value::Null),
        ];
        let servers = Servers::new(vec![setting.server], setting.limits, stage.clone(), None);
        servers.show_apps(desk.clone());
        Self {
            temp,
            stage,
            servers: Arc::new(servers),
            desk,
        }
    }

    pub fn run(&self, conversation: &str) -> RunScope {
        let conversation = ConversationId::parse(conversation).unwrap();
        let scope = RunScope {
            run: RunId::new(),
            delivery: conversation.clone(),
            conversation,
        };
        self.servers.begin(&scope.run);
        scope
    }

    /// The part of a call's result in this run.
    pub async fn capture(&self, scope: &RunScope, tool: &str) -> Option<ReplyPart> {
        self.capture_drafted(scope, tool, None).await
    }

    /// The same, of a call that has a draft.
    pub async fn capture_drafted(
        &self,
        scope: &RunScope,
        tool: &str,
        draft: Option<&str>,
    ) -> Option<ReplyPart> {
        let (request, ..) = call_with(tool, json!({ "n": 1 }));
        let arguments = request.arguments.clone();
        let called = self.servers.call_raw(scope, "s", request).await;
        let (connection, result) = called.unwrap();
        let shown = Shown {
            scope,
            settings: self.servers.settings("s").unwrap(),
            tool,
            arguments: &arguments,
            connection: &connection,
            result: &result,
        };
        let run = scope.run.as_str();
        let draft = draft.and_then(|draft| self.desk.find_draft(run, draft));
        let part = self.desk.capture_drafted(shown, draft).await;
        part.map(|part| *part)
    }

    /// An app of a run that was committed.
    pub async fn app(&self, conversation: &str) -> Claim {
        let scope = self.run(conversation);
        let Some(ReplyPart::McpApp {
            invocation_id,
            connection_id,
            ..
        }) = self.capture(&scope, "show").await
        else {
            panic!("no app");
        };
        let keep = [invocation_id.clone()];
        self.desk.vault().keep(scope.run.as_str(), &keep).unwrap();
        self.servers.release(&scope.run).await;
        Claim {
            invocation: invocation_id,
            connection: connection_id,
            delivery: conversation.to_owned(),
            run: scope.run.as_str().to_owned(),
        }
    }

    pub async fn watched(&self) -> Watched<'_> {
        let claim = self.app("web:t").await;
        self.view(claim).await
    }

    pub async fn view(&self, claim: Claim) -> Watched<'_> {
        let opened: Opened = done(self.act(&claim, Act::Open).await);
        self.stage.play().calls.clear();
        Watched {
            bench: self,
            claim,
            view: opened.view,
            capability: opened.capability,
        }
    }

    pub async fn act(&self, claim: &Claim, act: Act) -> AppAnswer {
        self.act_until(claim, act, CancellationToken::new()).await
    }

    pub async fn act_until(&self, claim: &Claim, act: Act, gone: CancellationToken) -> AppAnswer {
        let claim = claim.clone();
        let ask = AppAsk { claim, act };
        match self.desk.answer(&self.servers, ask, None, gone).await {
            Answered::Json(answer) => answer,
            Answered::Page(page) => AppAnswer::Done {
                result: String::from_utf8(page).unwrap().into(),
            },
        }
    }

    pub async fn record(&self, claim: &Claim) -> Record {
        done(self.act(claim, Act::Show).await)
    }

    pub fn calls(&self) -> Vec<String> {
        self.stage.play().calls.clone()
    }
}

impl Watched<'_> {
    pub fn request(&self, method: &str, params: Value) -> Act {
        Act::Request {
            view: self.view.clone(),
            capability: self.capability.clone(),
            method: method.to_owned(),
            params,
        }
    }

    pub async fn ask(&self, method: &str, params: Value) -> AppAnswer {
        let act = self.request(method, params);
        self.bench.act(&self.claim, act).await
    }

    pub async fn call(&self, tool: &str) -> AppAnswer {
        self.ask("tools/call", json!({ "name": tool })).await
    }

    pub async fn decide(&self, confirmation: &str, decision: Decision) -> AppAnswer {
        let act = Act::Decide {
            view: self.view.clone(),
            capability: self.capability.clone(),
            confirmation: confirmation.to_owned(),
            decision,
        };
        self.bench.act(&self.claim, act).await
    }

    /// Asks, and says yes to the question that comes.
    pub async fn allowed(&self, method: &str, params: Value, decision: Decision) -> AppAnswer {
        match self.ask(method, params).await {
            AppAnswer::Confirm { confirmation } => self.decide(&confirmation.id, decision).await,
            other => other,
        }
    }

    /// Phases of the log, in order.
    pub fn phases(&self) -> Vec<String> {
        let log = self.bench.desk.vault().log(&self.claim.invocation).unwrap();
        let phase = |entry: &Value| entry["details"]["phase"].as_str().unwrap().to_owned();
        log.iter().map(phase).collect()
    }
}

pub fn done<T: serde::de::DeserializeOwned>(answer: AppAnswer) -> T {
    match answer {
        AppAnswer::Done { result } => serde_json::from_value(result).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub fn code(answer: &AppAnswer) -> &str {
    match answer {
        AppAnswer::Refused { code, .. } => code,
        AppAnswer::Confirm { .. } => "confirm",
        AppAnswer::Done { .. } => "done",
    }
}

/// Waits until the server has seen something.
pub async fn until(stage: &Stage, seen: impl Fn(&Play) -> bool) {
    for _ in 0..2000 {
        if seen(&stage.play()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the server never saw it");
}
