//! Version 1 is frozen: these bytes never change. A change of a message is a new version.
#![allow(clippy::unwrap_used)]

use crate::chat::{Failover, Usage};
use crate::console::{Act, Look, Order};
use crate::edges::control::{
    EdgeName, FromWorker, Peer, Probe, Refusal, RunScope, RunStatus, SandboxReport, StartRun,
    ToWorker, Trigger,
};
use crate::edges::egress::{FinishReason, ProviderStage};
use crate::edges::events::RunEvent;
use crate::edges::{app_bridge, artifact, bench, continuation, delivery, egress, store};
use crate::message::Message;
use crate::request_context::{
    AttachedFile, ProgressAccess, ProgressState, ProgressToken, RequestContext,
};
use crate::table::{RULES, find};
use crate::{Body, ConversationId, MAGIC, Role, RunId, Until};
use std::collections::BTreeMap;

mod changed;

const FROZEN: &str = include_str!("../golden/v1.txt");

fn scope() -> RunScope {
    RunScope {
        run: RunId::parse("0190-run").unwrap(),
        conversation: ConversationId::parse("slack:C1#2026-01-02").unwrap(),
        delivery: ConversationId::parse("slack:C1").unwrap(),
    }
}

fn body() -> Body {
    Body::Inline(b"{}".to_vec())
}

/// The moment 0x0506.
fn until() -> Until {
    serde_json::from_str("1286").unwrap()
}

fn usage() -> Usage {
    Usage {
        input: 1,
        output: 2,
        cache_read: 3,
        cache_creation: 4,
        cost_usd: Some(0.5),
    }
}

fn failovers() -> Vec<Failover> {
    vec![Failover {
        model: "a:b".into(),
        failure_kind: "timeout".into(),
        attempts: 2,
    }]
}

fn text(s: &str) -> String {
    s.to_owned()
}

struct Vectors(Vec<(String, Vec<u8>)>, BTreeMap<u16, Vec<u8>>);

impl Vectors {
    fn add<M: Message + PartialEq>(&mut self, samples: Vec<M>) {
        for message in samples {
            let rule = find(message.kind()).unwrap();
            let name = format!("{:04x} {}", rule.kind, rule.name);
            let bytes = message.encode().unwrap();
            assert_eq!(M::decode(&bytes).unwrap(), message, "{name}");
            self.1.insert(rule.kind, bytes.clone());
            self.0.push((name, bytes));
        }
    }
}

fn vectors() -> Vectors {
    let mut all = Vectors(Vec::new(), BTreeMap::new());
    let trigger = || Trigger {
        source: text("openai"),
        detail: Some(text("127.0.0.1")),
    };
    all.add(vec![
        ToWorker::Welcome {
            version: 1,
            settings: body(),
            descriptors: vec![text("state")],
        },
        ToWorker::Grant {
            channel: 7,
            edge: EdgeName::Store,
            peer: Peer {
                role: Role::Run,
                run: Some(scope()),
            },
        },
        ToWorker::Revoke { channel: 7 },
        ToWorker::Ping { seq: 9 },
        ToWorker::Assign {
            scope: scope(),
            trigger: trigger(),
            reader: Role::ChannelOpenai,
            input: body(),
            edges: vec![EdgeName::Store, EdgeName::Events],
        },
        ToWorker::CancelRun { reason: text("r") },
        ToWorker::Drain,
        ToWorker::Shutdown,
        ToWorker::ServerExited {
            server: 3,
            status: text("exited with 1"),
        },
        ToWorker::RunStarted { run: scope().run },
        ToWorker::RunRefused {
            refusal: Refusal {
                code: text("queue_full"),
                message: text("later"),
            },
        },
        ToWorker::ServerStarted { server: 3 },
        ToWorker::ServerFailed { message: text("m") },
        ToWorker::Done,
    ]);
    all.add(vec![
        FromWorker::Hello {
            magic: MAGIC,
            version_min: 1,
            version_max: 1,
            role: Role::Store,
            build: text("0.1.0"),
        },
        FromWorker::Ready {
            sandbox: SandboxReport {
                seccomp: 2,
                seccomp_filters: 4,
                no_new_privs: true,
                landlock_abi: 6,
                uid: 61001,
                capabilities: 0,
                probes: vec![Probe {
                    name: text("open:/etc/shadow"),
                    refused: true,
                    detail: text("EACCES"),
                }],
            },
        },
        FromWorker::Failed { message: text("m") },
        FromWorker::Pong { seq: 9 },
        FromWorker::StartRun {
            start: StartRun {
                conversation: scope().conversation,
                delivery: scope().delivery,
                trigger: trigger(),
                input: body(),
            },
        },
        FromWorker::CancelRun {
            run: scope().run,
            reason: text("r"),
        },
        FromWorker::StartServer {
            name: text("everything"),
            run: Some(scope().run),
        },
        FromWorker::StopServer { server: 3 },
        FromWorker::RunDone {
            status: RunStatus::Failed,
            failure_kind: Some(text("timeout")),
        },
    ]);
    all.add(vec![
        store::Request::BeginRun {
            source: text("openai"),
            source_detail: None,
            model: text("demo:scripted"),
            user_text: text("hello"),
        },
        store::Request::ToolStarted {
            id: text("c1"),
            name: text("Read"),
            arguments: text("{}"),
        },
        store::Request::ToolEnded {
            id: text("c1"),
            state: text("success"),
            preview: text("p"),
        },
        store::Request::CommitRun { commit: body() },
        store::Request::FailRun {
            failure: Body::Sealed(40_000),
        },
        store::Request::ListRuns {
            conversation: Some(scope().conversation),
            status: Some(text("failed")),
            limit: 20,
            cursor: None,
        },
        store::Request::ShowRun { run: scope().run },
        store::Request::RunCommitted { run: scope().run },
        store::Request::Interrupt {
            run: scope().run,
            failure_kind: text("worker_lost"),
        },
        store::Request::LatestHistory {
            conversation: scope().conversation,
        },
        store::Request::AppendHistory {
            conversation: scope().conversation,
            key: text("delivery-1"),
            messages: body(),
        },
    ]);
    all.add(vec![
        store::Reply::Began { history: body() },
        store::Reply::Recorded,
        store::Reply::Committed { revision: 5 },
        store::Reply::Runs { page: body() },
        store::Reply::Run { record: None },
        store::Reply::Committedness {
            state: text("committed"),
        },
    ]);
    all.add(vec![
        artifact::Request::Publish {
            root: artifact::Root::Workspace,
            path: text("a/b.csv"),
            name: Some(text("b.csv")),
            media_type: None,
        },
        artifact::Request::Finalise,
        artifact::Request::Discard,
        artifact::Request::Open {
            id: text("id"),
            integrity_id: Some(text("sha256:00")),
            delivery: Some(scope().delivery),
            run: Some(scope().run),
        },
        artifact::Request::List {
            limit: 20,
            cursor: Some(text("c")),
        },
        artifact::Request::Enter { part: body() },
    ]);
    all.add(vec![
        artifact::Reply::Published { part: body() },
        artifact::Reply::Refused {
            code: text("artifact_missing"),
            part: None,
        },
        artifact::Reply::Finalised { parts: body() },
        artifact::Reply::Discarded,
        artifact::Reply::Opened { record: body() },
        artifact::Reply::Artifacts { page: body() },
    ]);
    all.add(vec![
        egress::Request::Complete { request: body() },
        egress::Request::Fetch {
            url: text("https://example.com/"),
            headers: vec![(text("accept"), text("text/html"))],
            max_bytes: 1024,
        },
    ]);
    all.add(vec![
        egress::Reply::TextDelta { text: text("hi") },
        egress::Reply::ThoughtDelta { text: text("hm") },
        egress::Reply::ToolCall {
            id: text("c1"),
            name: text("Read"),
            arguments: body(),
        },
        egress::Reply::Usage { usage: usage() },
        egress::Reply::Status {
            stage: ProviderStage::RetryStarted,
            model: text("a:b"),
            detail: None,
        },
        egress::Reply::Restart {
            reason: text("timeout"),
        },
        egress::Reply::Done {
            finish: FinishReason::ToolUse,
            model: text("a:b"),
            failovers: failovers(),
        },
        egress::Reply::ModelFailed {
            kind: text("provider_auth"),
            message: text("m"),
            failovers: vec![],
        },
        egress::Reply::Fetched {
            status: 200,
            url: text("https://example.com/"),
            content_type: Some(text("text/html")),
            truncated: false,
            body: body(),
        },
        egress::Reply::FetchFailed {
            code: text("dns"),
            message: text("m"),
        },
    ]);
    all.add(vec![
        app_bridge::Request::ListTools,
        app_bridge::Request::CallTool {
            server: text("everything"),
            tool: text("echo"),
            arguments: body(),
        },
        app_bridge::Request::App { ask: body() },
        app_bridge::Request::Inspect { ask: body() },
        app_bridge::Request::KeepApps {
            invocations: vec![text("i")],
        },
    ]);
    all.add(vec![
        app_bridge::Reply::Tools { listing: body() },
        app_bridge::Reply::Progress {
            progress: 0.5,
            total: Some(1.0),
            message: None,
        },
        app_bridge::Reply::Result { result: body() },
        app_bridge::Reply::Failed {
            code: text("mcp_server_gone"),
            message: text("m"),
        },
        app_bridge::Reply::App { answer: body() },
        app_bridge::Reply::Inspected { answer: body() },
        app_bridge::Reply::AppsKept,
        app_bridge::Reply::Page { page: body() },
    ]);
    all.add(vec![
        RunEvent::Started { run: scope().run },
        RunEvent::Append { text: text("hi") },
        RunEvent::Replace { text: text("") },
        RunEvent::Thought { text: text("hm") },
        RunEvent::ToolStarted {
            id: text("c1"),
            name: text("Read"),
            arguments: text("{}"),
        },
        RunEvent::ToolProgress {
            id: text("c1"),
            progress: 1.0,
            total: None,
            message: None,
        },
        RunEvent::ToolCompleted {
            id: text("c1"),
            name: text("Read"),
            ok: true,
            preview: text("p"),
            duration_ms: 3,
        },
        RunEvent::UsageUpdate { usage: usage() },
        RunEvent::ProviderStatus {
            stage: ProviderStage::RequestStarted,
            model: text("a:b"),
            detail: None,
        },
        RunEvent::Warning {
            code: text("mcp_init_failed"),
            message: text("m"),
        },
        RunEvent::Part { part: body() },
        RunEvent::Finish {
            text: body(),
            parts: b"[]".to_vec(),
            usage: usage(),
            model: text("a:b"),
        },
        RunEvent::Failed {
            cancelled: true,
            kind: text("cancelled"),
            message: text("m"),
        },
    ]);
    all.add(vec![bench::Request::Echo { bytes: vec![1, 2] }]);
    all.add(vec![bench::Reply::Echoed { bytes: vec![1, 2] }]);
    // Appended, so that what stands above keeps its bytes.
    all.add(vec![ToWorker::Figures { body: body() }]);
    all.add(vec![FromWorker::Figures]);
    all.add(vec![egress::Request::Deliver {
        url: text("https://hooks.example/"),
        id: text("m1"),
        timestamp: 7,
        signature: text("v1,AA=="),
        body: body(),
        until: until(),
    }]);
    all.add(vec![
        egress::Reply::Delivered {
            status: 503,
            retry_after: Some(2),
        },
        egress::Reply::DeliveryFailed {
            code: text("timeout"),
            message: text("m"),
        },
    ]);
    let refusal = || Refusal {
        code: text("not_found"),
        message: text("m"),
    };
    all.add(vec![
        ToWorker::Operate {
            order: Order::Revoke { id: text("s1") },
        },
        ToWorker::Seen { body: body() },
        ToWorker::NotSeen { refusal: refusal() },
    ]);
    all.add(vec![ToWorker::Room { granted: 1 << 20 }]);
    all.add(vec![FromWorker::Room {
        held: 20,
        wanted: 1 << 20,
    }]);
    all.add(vec![
        FromWorker::Operated { body: body() },
        FromWorker::NotOperated { refusal: refusal() },
        FromWorker::Look {
            at: Look::Runs {
                status: Some(text("failed")),
                limit: 20,
                cursor: None,
            },
        },
    ]);
    all.add(vec![store::Request::Console { ask: body() }]);
    all.add(vec![store::Reply::Console { answer: body() }]);
    let claim = || continuation::Claim {
        url: text("http://127.0.0.1:4319/v1/continuations/claim"),
        token: continuation::ClaimToken(text("t")),
        fingerprint: text("f"),
        mode: text("reply"),
    };
    all.add(vec![
        FromWorker::StartClaimingServer {
            name: text("work"),
            run: scope().run,
            claim: claim(),
        },
        FromWorker::Health { health: body() },
        FromWorker::Look {
            at: Look::Continuations {
                limit: Some(20),
                cursor: None,
            },
        },
    ]);
    all.add(vec![
        store::Request::LeaveLetter {
            conversation: scope().delivery,
            key: text("continuation:c"),
            text: body(),
            until: until(),
        },
        store::Request::Letters {
            conversation: None,
            after: 7,
            limit: 20,
        },
    ]);
    all.add(vec![store::Reply::Letters { page: body() }]);
    all.add(vec![
        continuation::Request::Issue {
            server: text("work"),
        },
        continuation::Request::Close,
        continuation::Request::Pin {
            origin: Body::Sealed(40_000),
        },
        continuation::Request::Activate,
        continuation::Request::Abandon,
        continuation::Request::Operate { order: body() },
    ]);
    all.add(vec![
        continuation::Reply::Issued { claim: claim() },
        continuation::Reply::Closed { active: 2 },
        continuation::Reply::Settled,
        continuation::Reply::Operated { result: body() },
    ]);
    all.add(vec![
        delivery::Request::Reach {
            destination: scope().delivery,
        },
        delivery::Request::Deliver {
            destination: scope().delivery,
            key: text("continuation:c"),
            text: body(),
            until: until(),
        },
    ]);
    all.add(vec![
        delivery::Reply::Reachable,
        delivery::Reply::NotDelivered {
            obstacle: delivery::Obstacle::Ever,
            code: text("unsupported_destination"),
            message: text("m"),
            retry_after_ms: Some(5),
        },
        delivery::Reply::Delivered {
            pieces: 1,
            receipts: vec![delivery::Receipt {
                id: Some(text("m1")),
            }],
        },
    ]);
    all.add(vec![ToWorker::Stub {
        pid: 4711,
        started: 99,
    }]);
    all.add(vec![delivery::Request::Present {
        destination: scope().delivery,
        run: scope().run,
        title: text("t"),
        part: body(),
    }]);
    all.add(vec![
        FromWorker::Look {
            at: Look::CapturedText { id: text("c") },
        },
        FromWorker::Act {
            act: Act::ResolveContinuation {
                id: text("c"),
                kind: text("delivered"),
                delivery_id: Some(text("m1")),
            },
        },
    ]);
    all.add(vec![RunEvent::Background {
        continuations: vec![text("c")],
    }]);
    all.add(vec![continuation::Reply::Activated {
        continuations: vec![text("c")],
    }]);
    all.add(vec![
        artifact::Request::Keep {
            app: text("0a"),
            run: scope().run,
            conversation: scope().conversation,
            delivery: scope().delivery,
            name: text("b.csv"),
            media_type: Some(text("text/csv")),
            content: body(),
        },
        artifact::Request::Kept {
            app: text("0a"),
            delivery: scope().delivery,
            run: scope().run,
        },
    ]);
    all.add(vec![app_bridge::Request::Hand {
        ask: body(),
        content: body(),
    }]);
    all.add(vec![FromWorker::StartServerOfRequest {
        name: text("work"),
        run: scope().run,
        context: RequestContext {
            attachments: vec![AttachedFile {
                name: text("1-a.png"),
                dev: 2049,
                ino: 7,
            }],
            progress: Some(ProgressAccess {
                url: text("http://127.0.0.1:4711/v1/progress"),
                token: ProgressToken(text("t")),
            }),
        },
        claim: Some(claim()),
    }]);
    all.add(vec![app_bridge::Request::Accompany {
        attachments: vec![AttachedFile {
            name: text("1-a.png"),
            dev: 2049,
            ino: 7,
        }],
    }]);
    all.add(vec![app_bridge::Reply::Posted {
        server: text("work"),
        key: text("k"),
        message: text("m"),
        state: ProgressState::Running,
    }]);
    all.add(vec![RunEvent::Posted {
        server: text("work"),
        key: text("k"),
        message: text("m"),
        state: ProgressState::Failed,
    }]);
    all.add(vec![
        app_bridge::Request::DraftApp {
            server: text("s"),
            tool: text("t"),
        },
        app_bridge::Request::DraftInput {
            draft: text("0a"),
            text: body(),
        },
        app_bridge::Request::CallDrafted {
            draft: text("0a"),
            server: text("s"),
            tool: text("t"),
            arguments: body(),
        },
    ]);
    all.add(vec![
        app_bridge::Reply::Draft { part: body() },
        app_bridge::Reply::DraftInput { arguments: body() },
    ]);
    all.add(vec![egress::Reply::ArgumentsDelta {
        call: 1,
        name: text("t"),
        text: text("{"),
    }]);
    all.add(vec![
        RunEvent::AppDraft { part: body() },
        RunEvent::AppInput {
            id: text("0a"),
            arguments: body(),
        },
        RunEvent::AppCalled { id: text("0a") },
        RunEvent::AppGone { id: text("0a") },
    ]);
    all
}

#[test]
fn version_1_is_frozen() {
    let now: String = vectors()
        .0
        .iter()
        .map(|(name, bytes)| format!("{name} {}\n", hex::encode(bytes)))
        .collect();
    if std::env::var_os("MONO_PRINT_GOLDEN").is_some() {
        println!("{now}");
    }
    assert_eq!(
        now, FROZEN,
        "the bytes of a frozen version changed: define a new version instead"
    );
}

#[test]
fn every_message_of_the_table_has_a_vector() {
    let known = vectors().1;
    let json = 0x0800..0x0900;
    for rule in RULES
        .iter()
        .filter(|r| r.kind > 0x00ff && !json.contains(&r.kind))
    {
        assert!(
            known.contains_key(&rule.kind),
            "{:04x} {}",
            rule.kind,
            rule.name
        );
    }
}
