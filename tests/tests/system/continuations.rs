//! Durable continuations: work that a server goes on with after the turn, and whose answer comes
//! later, once, in the same conversation.

use mono_tests::console::{Browser, Event};
use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash, call};
use mono_tests::receiver::Receiver;
use mono_tests::work::{self, Listening};
use serde_json::{Value, json};
use std::io::Write as _;
use tempfile::TempDir;

/// What stands in place of an answer when the turn that asked was not committed (spec s1).
const LOST: &str = "The background task finished, but I could not safely restore the original conversation context. Please ask me to check the result again.";

/// A daemon's settings with the service over HTTP, which may claim.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) model: Model,
    pub(super) service: Listening,
    /// Where the service keeps its claims.
    pub(super) claims: TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let model = Model::start().unwrap();
        let claims = TempDir::with_prefix("mono-work-").unwrap();
        let service = Listening::start(claims.path(), None).unwrap();
        let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
        setup.config["tools"]["mcpServers"]["work"] = json!({ "url": service.url });
        work::let_claim(&mut setup, &["work"]).unwrap();
        Self {
            setup,
            model,
            service,
            claims,
        }
    }
}

/// Makes the model say this.
pub(super) fn say(text: &str) -> String {
    format!("[[mock:text {text}]]")
}

pub(super) fn start(task: &str) -> String {
    call("start_background_work", &json!({ "task": task }))
}

/// A directive by which a turn goes on until a file is there.
pub(super) fn hold() -> String {
    bash("touch working; until [ -e go ]; do sleep 0.02; done")
}

pub(super) fn id(claim: &Value) -> &str {
    claim["continuationId"].as_str().unwrap()
}

/// All that was claimed is in nobody's log and on no operator's screen.
fn stays_secret(daemon: &Daemon, claim: &Value, text: &str) {
    let token = claim["token"].as_str().unwrap();
    let log = daemon.log();
    assert!(!log.contains(token) && !log.contains(text), "{log}");
    let id = id(claim);
    for arguments in [
        &["status"][..],
        &["continuations", "health"],
        &["continuations", "list"],
        &["continuations", "show", id],
        &["logs"],
    ] {
        for output in [
            daemon.run(arguments).unwrap(),
            daemon
                .monoctl()
                .args(arguments)
                .arg("--json")
                .output()
                .unwrap(),
        ] {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(!said.contains(token) && !said.contains(text), "{said}");
        }
    }
}

#[test]
fn a_result_over_http_or_stdio_is_answered_after_the_turn() {
    let World {
        mut setup,
        model,
        service,
        claims,
    } = World::new();
    setup.config["tools"]["mcpServers"]["work"]["headers"] =
        json!({ "x-mono-agent-continuation-claim-token": "forged" });
    work::stdio(&mut setup, "near").unwrap();
    let near = work::folder(&setup.workspace());
    setup.config["tools"]["mcpServers"]["near"]["env"] =
        json!({ "MONO_AGENT_CONTINUATION_CLAIM_TOKEN": "forged" });
    setup.config["tools"]["continuationServers"] = json!(["work", "near"]);
    let daemon = setup.start().unwrap();
    for (tool, folder) in [
        ("mcp__work__start_background_work", claims.path().to_owned()),
        ("mcp__near__start_background_work", near),
    ] {
        let conversation = tool;
        let ask = call(tool, &json!({ "task": tool }));
        let sent = daemon
            .send(conversation, &format!("{ask} [[mock:text begun]]"))
            .unwrap();
        assert_eq!((sent.text(), sent.code), ("begun", 0), "{sent:?}");
        assert!(sent.preview(tool).unwrap().starts_with("Accepted as "));
        let claim = work::kept(&folder, tool).unwrap();
        let record = daemon.continuation(id(&claim)).unwrap();
        assert_eq!(
            (&record["state"], &record["originContext"]["state"]),
            (&json!("claimed"), &json!("pinned")),
            "{record}"
        );
        assert_eq!(daemon.letters(conversation).unwrap(), [] as [Value; 0]);
        let taken = work::finish(&folder, tool, &say("forty-two, at last")).unwrap();
        assert_eq!(taken["accepted"], true, "{taken}");
        let record = daemon.continuation_recorded(id(&claim)).unwrap();
        assert_eq!(
            (
                &record["attempts"]["delivery"],
                &record["receipt"]["historyRecorded"]
            ),
            (&json!(1), &json!(true)),
            "{record}"
        );
        assert_eq!(work::status(&folder, tool).unwrap()["state"], "delivered");
        // The tools of the turn are not on offer where its result is put into words.
        let words = model.last().unwrap();
        assert!(words.tools.is_empty(), "{words:?}");
        // Said again, it is the same result.
        work::finish(&folder, tool, &say("forty-two, at last")).unwrap();
        let letters = daemon.letters(conversation).unwrap();
        let texts: Vec<_> = letters.iter().map(|l| &l["letter"]["text"]).collect();
        assert_eq!(texts, ["forty-two, at last"]);
        // The next turn knows of it.
        daemon
            .answered(conversation, "[[mock:text yes]] and?")
            .unwrap();
        let body = model.last().unwrap().body.to_string();
        assert!(body.contains("forty-two, at last"), "{body}");
        stays_secret(&daemon, &claim, "forty-two");
    }
    drop(service);
}

#[test]
fn a_result_before_the_end_of_the_turn_waits_for_it() {
    let world = World::new();
    let World { setup, claims, .. } = world;
    let daemon = setup.start().unwrap();
    let ask = call(
        "start_background_work",
        &json!({ "task": "t", "early": true }),
    );
    let sending = daemon
        .start_send("c", &format!("{ask} {} [[mock:text begun]]", hold()))
        .unwrap();
    wait_for("the turn goes on", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let claim = work::kept(claims.path(), "t").unwrap();
    let record = daemon.continuation(id(&claim)).unwrap();
    assert_eq!(
        (&record["state"], &record["originContext"]["state"]),
        (&json!("result_received"), &json!("pending")),
        "{record}"
    );
    assert_eq!(record["attempts"], json!({ "synthesis": 0, "delivery": 0 }));
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    assert_eq!(sending.finish().unwrap().text(), "begun");
    let record = daemon.continuation_recorded(id(&claim)).unwrap();
    assert_eq!(record["completionKind"], "synthesized", "{record}");
    assert_eq!(daemon.letters("c").unwrap().len(), 1);
}

#[test]
fn what_was_claimed_outlives_a_restart_of_everything() {
    let world = World::new();
    let World {
        setup,
        claims,
        service,
        ..
    } = world;
    let mut daemon = setup.start().unwrap();
    daemon
        .answered("c", &format!("{} [[mock:text begun]]", start("t")))
        .unwrap();
    let claim = work::kept(claims.path(), "t").unwrap();
    daemon.kill_daemon().unwrap();
    drop(service);
    daemon.restart().unwrap();
    assert_eq!(daemon.continuation(id(&claim)).unwrap()["state"], "claimed");
    work::finish(claims.path(), "t", &say("after all")).unwrap();
    daemon.continuation_recorded(id(&claim)).unwrap();
    // Another restart posts nothing again.
    daemon.kill_daemon().unwrap();
    daemon.restart().unwrap();
    daemon.continuation_recorded(id(&claim)).unwrap();
    let letters = daemon.letters("c").unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["letter"]["text"], "after all");
}

#[test]
fn a_turn_that_ends_badly_leaves_a_fixed_answer() {
    let world = World::new();
    let World {
        setup,
        model,
        claims,
        ..
    } = world;
    let daemon = setup.start().unwrap();
    let mut sending = daemon
        .start_send("cancelled", &format!("{} {}", start("one"), hold()))
        .unwrap();
    sending.until("started").unwrap();
    wait_for("the turn goes on", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    sending.interrupt().unwrap();
    assert_ne!(sending.finish().unwrap().code, 0);
    let claim = work::kept(claims.path(), "one").unwrap();
    wait_for("the origin is given up", || {
        let record = daemon.continuation(id(&claim)).unwrap();
        record["originContext"]["state"] == "abandoned"
    })
    .unwrap();
    let asked = model.stats().seen.len();
    work::finish(claims.path(), "one", &say("never said")).unwrap();
    let record = daemon.continuation_recorded(id(&claim)).unwrap();
    assert_eq!(record["completionKind"], "origin_context_unavailable");
    assert_eq!(model.stats().seen.len(), asked, "no model was asked");
    let letters = daemon.letters("cancelled").unwrap();
    assert_eq!(letters[0]["letter"]["text"], LOST);
}

#[test]
fn an_answer_comes_to_the_thread_in_the_console() {
    let mut world = World::new();
    world.setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let World { setup, claims, .. } = world;
    let mut daemon = setup.start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let wish = json!({ "text": format!("{} [[mock:text begun]]", start("t")) });
    let reply = browser.turn(&thread, &wish).unwrap();
    assert_eq!(browser.finished(&thread, &reply).unwrap()["text"], "begun");
    let mut hints = browser.events("/events").unwrap();
    let claim = work::kept(claims.path(), "t").unwrap();
    work::finish(claims.path(), "t", &say("and **here** it is")).unwrap();
    // An open page is told, and finds it when it looks.
    let ours = |event: &Event| event.name == "thread" && event.data["id"] == thread.as_str();
    hints.until(ours).unwrap();
    let view = browser.get(&format!("/threads/{thread}")).unwrap();
    let messages = view["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3, "{view}");
    assert_eq!(
        (
            &messages[2]["role"],
            &messages[2]["text"],
            &messages[2]["status"]
        ),
        (
            &json!("assistant"),
            &json!("and **here** it is"),
            &json!("succeeded")
        )
    );
    assert_eq!(view["thread"]["unread"], true);
    // Whoever reads it finds the way from what began the work to its answer, and back.
    let ids = json!([id(&claim)]).to_string();
    for (message, name) in [(1, "background_work"), (2, "background_task")] {
        let steps = messages[message]["activity"].as_array().unwrap();
        let step = steps.iter().find(|step| step["name"] == name);
        assert_eq!(step.unwrap()["arguments"], ids.as_str(), "{view}");
    }
    let record = daemon.continuation_recorded(id(&claim)).unwrap();
    assert_eq!(record["receipt"]["historyRecorded"], true, "{record}");
    // An operator sees what `monoctl` shows.
    let listed = browser.get("/operator/continuations?limit=1").unwrap();
    assert_eq!(listed["continuations"][0]["continuationId"], id(&claim));
    let health = browser.get("/operator/continuation-health").unwrap();
    assert_eq!(health["counts"]["delivered"], 1, "{health}");
    // It is where the thread is kept.
    daemon.kill_daemon().unwrap();
    daemon.restart().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let again = browser.get(&format!("/threads/{thread}")).unwrap();
    assert_eq!(again["messages"][2], messages[2]);
}

/// The webhook at an endpoint with a callback of its own, and days that begin in this zone.
pub(super) fn webhook(setup: &mut Setup, receiver: &Receiver, zone: &str) {
    setup.config["runtime"]["session"] = json!({ "rollover": "daily", "rolloverTimezone": zone });
    setup.config["webhook"] = json!({
        "enabled": true, "port": 0, "apiKeyFile": "hook.key",
        "callback": { "privateHosts": [receiver.host()], "secretFile": "sign.key", "backoffMs": 20 },
        "endpoints": [{ "name": "jobs", "path": "/jobs", "callbackUrl": format!("http://{}/later", receiver.host()) }],
    });
    setup.secret("hook.key", "the-right-key").unwrap();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    setup.secret("sign.key", secret).unwrap();
}

pub(super) fn invoke(daemon: &Daemon, text: &str) {
    let base = daemon.listener("channel-webhook").unwrap();
    let mut stream = http::connect(&base).unwrap();
    let body = json!({ "text": text, "conversationId": "c", "mode": "sync" }).to_string();
    let key = "authorization: Bearer the-right-key\r\n";
    http::begin_post(&mut stream, "/jobs", key, body.len() as u64).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let answer = http::answer(&mut stream).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn an_answer_belongs_to_the_day_of_its_question_and_is_called_back() {
    let receiver = Receiver::start().unwrap();
    let mut world = World::new();
    // Twenty-six hours behind the zone below: it is another day there at any time.
    webhook(&mut world.setup, &receiver, "Etc/GMT+12");
    let World {
        setup,
        model,
        claims,
        ..
    } = world;
    let mut daemon = setup.start().unwrap();
    invoke(&daemon, &format!("{} [[mock:text begun]]", start("t")));
    let claim = work::kept(claims.path(), "t").unwrap();
    let told = receiver.next().unwrap();
    assert!(String::from_utf8_lossy(&told.body).contains("begun"));
    let zone = |daemon: &mut Daemon, from: &str, to: &str| {
        daemon.stop().unwrap();
        let file = daemon.folder().join("mono-agent.config.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(from, to)).unwrap();
        daemon.restart().unwrap();
    };
    zone(&mut daemon, "Etc/GMT+12", "Etc/GMT-14");
    // A receiver that is busy gets the same call again.
    receiver.answer(503, "");
    work::finish(claims.path(), "t", &say("of another day")).unwrap();
    let (first, second) = (receiver.next().unwrap(), receiver.next().unwrap());
    assert_eq!(first.target, "POST /later");
    assert_eq!(first.headers["webhook-id"], second.headers["webhook-id"]);
    let body: Value = serde_json::from_slice(&second.body).unwrap();
    assert_eq!(
        (
            &body["text"],
            &body["conversationId"],
            &body["continuation"]
        ),
        (&json!("of another day"), &json!("c"), &json!(true))
    );
    let record = daemon.continuation_recorded(id(&claim)).unwrap();
    assert_eq!(record["receipt"]["historyRecorded"], true, "{record}");
    assert_eq!(
        record["receipt"]["deliveryId"],
        second.headers["webhook-id"].as_str()
    );
    // Today's history begins anew; that of the question has its answer.
    invoke(&daemon, "[[mock:text today]]");
    assert!(
        !model
            .last()
            .unwrap()
            .body
            .to_string()
            .contains("of another day")
    );
    zone(&mut daemon, "Etc/GMT-14", "Etc/GMT+12");
    invoke(&daemon, "[[mock:text yesterday]]");
    assert!(
        model
            .last()
            .unwrap()
            .body
            .to_string()
            .contains("of another day")
    );
}

#[test]
fn a_channel_without_a_place_is_no_reason_to_try_for_ever() {
    let world = World::new();
    let World { setup, claims, .. } = world;
    let daemon = setup.start().unwrap();
    let ask = format!("{} [[mock:text begun]]", start("t"));
    let answer = http::complete(&daemon.api().unwrap(), "c", &ask).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let claim = work::kept(claims.path(), "t").unwrap();
    work::finish(claims.path(), "t", &say("for nobody")).unwrap();
    let id = id(&claim);
    let record = daemon.continuation_in(id, "dead_lettered").unwrap();
    let error = &record["lastError"];
    assert_eq!(error["code"], "destination_refused", "{record}");
    let reason = error["reason"].as_str().unwrap();
    assert!(reason.starts_with("unsupported_destination"), "{reason}");
    let health = daemon.json(&["continuations", "health"]).unwrap();
    assert_eq!(health["status"], "unhealthy", "{health}");
    wait_for("the daemon knows", || {
        let status = daemon.run(&["status"]).unwrap();
        String::from_utf8_lossy(&status.stdout).contains("continuations: UNHEALTHY, 0 pending")
    })
    .unwrap();
}

#[test]
fn operators_page_and_settle_them() {
    let world = World::new();
    let World { setup, claims, .. } = world;
    let daemon = setup.start().unwrap();
    let tasks = ["one", "two", "three"];
    let asks: Vec<_> = tasks.map(start).to_vec();
    daemon
        .answered("c", &format!("{} [[mock:text begun]]", asks.join(" ")))
        .unwrap();
    let mut all: Vec<_> = tasks
        .map(|task| id(&work::kept(claims.path(), task).unwrap()).to_owned())
        .to_vec();
    // Page after page, by the command that each page prints.
    let mut seen = vec![];
    let mut command = vec![
        "continuations".to_owned(),
        "list".into(),
        "--limit".into(),
        "2".into(),
    ];
    loop {
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        let page = daemon.json(&words).unwrap();
        let records = page["continuations"].as_array().unwrap();
        seen.extend(records.iter().map(|r| id(r).to_owned()));
        let shown = daemon.run(&words).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let next = shown
            .lines()
            .find_map(|line| line.strip_prefix("more: monoctl "));
        assert_eq!(next.is_some(), page["nextCursor"].is_string());
        let Some(next) = next else { break };
        command = next.split(' ').map(str::to_owned).collect();
    }
    all.sort();
    seen.sort();
    assert_eq!(seen, all);
    // Cancelled, it takes no result and posts nothing.
    let code = |arguments: &[&str]| daemon.run(arguments).unwrap().status.code();
    let first = &id(&work::kept(claims.path(), "one").unwrap()).to_owned();
    assert_eq!(code(&["continuations", "cancel", first]), Some(0));
    // Twice is as good as once.
    assert_eq!(code(&["continuations", "cancel", first]), Some(0));
    assert_eq!(daemon.continuation(first).unwrap()["state"], "cancelled");
    let refused = work::finish(claims.path(), "one", "late").unwrap_err();
    assert!(refused.to_string().contains("refused"), "{refused}");
    for refused in [
        &["continuations", "retry", first][..],
        &["continuations", "resolve", first, "not-delivered"],
        &["continuations", "show", "no-such-continuation"],
        &["continuations", "list", "--cursor", "forged"],
    ] {
        assert_eq!(code(refused), Some(1), "{refused:?}");
    }
    assert_eq!(daemon.letters("c").unwrap().len(), 0);
}

#[test]
fn nobody_claims_who_was_not_chosen() {
    let forged = |name: &str| format!("MONO_AGENT_CONTINUATION_CLAIM_{name}");
    for enabled in [true, false] {
        let mut setup = World::new();
        let config = &mut setup.setup.config;
        // Chosen is another server, or nobody has authority at all.
        config["continuations"]["enabled"] = json!(enabled);
        work::stdio(&mut setup.setup, "near").unwrap();
        let config = &mut setup.setup.config;
        config["tools"]["mcpServers"]["near"]["env"] = json!({
            forged("URL"): "http://127.0.0.1:1/claim", forged("TOKEN"): "forged",
            forged("FINGERPRINT"): "forged", forged("MODE"): "interactive",
        });
        let tool = if enabled { "near" } else { "work" };
        let headers = json!({
            "x-mono-agent-continuation-claim-url": "http://127.0.0.1:1/claim",
            "x-mono-agent-continuation-claim-token": "forged",
            "x-mono-agent-continuation-claim-fingerprint": "forged",
        });
        config["tools"]["mcpServers"]["work"]["headers"] = headers;
        let daemon = setup.setup.start().unwrap();
        let tool = format!("mcp__{tool}__start_background_work");
        let ask = call(&tool, &json!({ "task": "t" }));
        let sent = daemon
            .send("c", &format!("{ask} [[mock:text no]]"))
            .unwrap();
        let said = sent.preview(&tool).unwrap();
        assert!(said.contains("without a claim capability"), "{said}");
        let health = daemon.run(&["continuations", "health"]).unwrap();
        assert_eq!(health.status.code(), Some(i32::from(!enabled)));
    }
}

#[test]
fn who_may_claim_is_checked_before_anything_starts() {
    let cases = [
        (json!(["nobody"]), json!({}), "nobody"),
        (
            json!(["far"]),
            json!({ "far": { "url": "https://example.com/mcp" } }),
            "far",
        ),
        (
            json!(["old"]),
            json!({ "old": { "type": "sse", "url": "http://127.0.0.1:9/sse" } }),
            "old",
        ),
    ];
    for (chosen, servers, named) in cases {
        let mut setup = Setup::new().unwrap();
        setup.config["tools"] = json!({ "mcpServers": servers, "continuationServers": chosen });
        let (code, said) = setup.refused().unwrap();
        assert_ne!(code, 0);
        assert!(
            said.contains("continuationServers") && said.contains(named),
            "{said}"
        );
    }
    let mut setup = Setup::new().unwrap();
    setup.config["continuations"] = json!({
        "namedRoutes": { "ops": { "mode": "silent" } },
        "detachedServices": [{ "name": "ci", "tokenEnv": "MONO_TEST_CI_TOKEN" }],
    });
    let (code, said) = setup.refused().unwrap();
    assert_ne!(code, 0);
    assert!(said.contains("MONO_TEST_CI_TOKEN"), "{said}");
}

/// The worker's process is replaced, and what it knew is not lost.
#[test]
fn a_killed_worker_is_replaced_and_knows_what_it_knew() {
    let world = World::new();
    let World { setup, claims, .. } = world;
    let mut daemon = setup.start().unwrap();
    daemon
        .answered("c", &format!("{} [[mock:text begun]]", start("t")))
        .unwrap();
    let old = daemon.worker("continuation").unwrap();
    daemon.kill(old).unwrap();
    daemon.wait_replaced("continuation", old).unwrap();
    let claim = work::kept(claims.path(), "t").unwrap();
    work::finish(claims.path(), "t", &say("still here")).unwrap();
    daemon.continuation_recorded(id(&claim)).unwrap();
    // A run that begins now has its claims from the new one.
    let sent = daemon
        .send("c", &format!("{} [[mock:text begun]]", start("u")))
        .unwrap();
    assert!(
        sent.preview("start_background_work")
            .unwrap()
            .starts_with("Accepted")
    );
}
