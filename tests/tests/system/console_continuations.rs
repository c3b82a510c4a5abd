//! Durable continuations as operators see and settle them in the console: over HTTP, and in a browser.

use super::browser::{PATIENCE, tests_of_the_page};
use super::continuations::{World, id, invoke, say, start, webhook};
use mono_tests::console::{self, Browser};
use mono_tests::daemon::{Daemon, Setup, wait_for, wait_within};
use mono_tests::http::{self, Answer};
use mono_tests::model::Model;
use mono_tests::receiver::Receiver;
use mono_tests::work::{self, Listening};
use serde_json::{Value, json};
use std::io::Write as _;
use std::sync::mpsc::channel;
use tempfile::TempDir;

/// Of the detached service.
const BEARER: &str = "a-bearer-of-a-detached-service";
/// A text that stands in payloads and answers, and must stand nowhere else.
const SECRET: &str = "the contents of the vault";

/// A daemon with the console, the webhook whose receiver is ours, and a route that keeps texts.
struct Stage {
    daemon: Daemon,
    browser: Browser,
    receiver: Receiver,
    claims: TempDir,
    /// Where continuations are claimed.
    base: String,
    /// Both end with the stage.
    _beside: (Listening, Model),
}

impl Stage {
    fn new() -> Self {
        let receiver = Receiver::start().unwrap();
        let mut world = World::new();
        webhook(&mut world.setup, &receiver, "UTC");
        let World {
            mut setup,
            claims,
            service,
            model,
        } = world;
        setup.config["console"] = json!({ "enabled": true, "port": 0 });
        let continuations = &mut setup.config["continuations"];
        continuations["limits"] = json!({ "operatorPageSize": 2 });
        continuations["namedRoutes"] =
            json!({ "verify": { "mode": "capture", "conversationId": "web:board" } });
        continuations["detachedServices"] =
            json!([{ "name": "checker", "tokenEnv": "MONO_TEST_CHECKER_TOKEN" }]);
        let base = format!("http://127.0.0.1:{}", continuations["port"]);
        let setup = setup.environment("MONO_TEST_CHECKER_TOKEN", BEARER);
        let daemon = setup.start().unwrap();
        let browser = Browser::log_in(&daemon).unwrap();
        Self {
            daemon,
            browser,
            receiver,
            claims,
            base,
            _beside: (service, model),
        }
    }

    fn claim(&self, task: &str) -> String {
        let claim = work::kept(self.claims.path(), task).unwrap();
        id(&claim).to_owned()
    }

    /// A continuation of which nobody knows whether it was posted: its receiver had it, and the
    /// channel died before the receiver answered.
    fn unknown(&mut self, task: &str) -> String {
        let delivered = || {
            self.daemon
                .log()
                .matches("the result was delivered")
                .count()
        };
        let before = delivered();
        invoke(
            &self.daemon,
            &format!("{} [[mock:text begun]]", start(task)),
        );
        // That is the turn's own answer. Once it is answered itself, nothing but ours is held.
        self.receiver.next().unwrap();
        wait_for("the turn's own answer has arrived", || delivered() > before).unwrap();
        let id = self.claim(task);
        let (word, held) = channel();
        self.receiver.hold(held);
        work::finish(self.claims.path(), task, &say(SECRET)).unwrap();
        assert_eq!(self.receiver.next().unwrap().target, "POST /later");
        let channel = self.daemon.worker("channel-webhook").unwrap();
        self.daemon.kill(channel).unwrap();
        self.daemon
            .continuation_in(&id, "delivery_unknown")
            .unwrap();
        drop(word);
        self.daemon
            .wait_replaced("channel-webhook", channel)
            .unwrap();
        id
    }

    fn change(&self, id: &str, verb: &str, body: &Value) -> Answer {
        let path = format!("/operator/continuations/{id}/{verb}");
        self.browser.change("POST", &path, body).unwrap()
    }

    fn done(&self, id: &str, verb: &str, body: &Value) -> Value {
        let answer = self.change(id, verb, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json().unwrap()
    }

    fn show(&self, id: &str) -> Value {
        let path = format!("/operator/continuations/{id}");
        self.browser.get(&path).unwrap()
    }

    fn post(&self, path: &str, bearer: &str, body: &Value) -> Value {
        let mut stream = http::connect(&self.base).unwrap();
        let body = body.to_string();
        let headers =
            format!("authorization: Bearer {bearer}\r\nx-mono-agent-service-name: checker\r\n");
        http::begin_post(&mut stream, path, &headers, body.len() as u64).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let answer = http::answer(&mut stream).unwrap();
        assert!((200..300).contains(&answer.status), "{answer:?}");
        answer.json().unwrap()
    }

    /// A text that is kept for who verifies.
    fn capture(&self, task: &str) -> String {
        let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
        let wish = json!({
            "route": "verify", "taskKey": task, "taskHash": "1", "deadline": deadline.to_string()
        });
        let claim = self.post("/v1/continuations/detached/claim", BEARER, &wish);
        let url = claim["resultUrl"].as_str().unwrap();
        let path = url.strip_prefix(&self.base).unwrap();
        let result = json!({ "idempotencyKey": "1", "payload": { "summary": say(SECRET) } });
        self.post(path, claim["token"].as_str().unwrap(), &result);
        let id = id(&claim).to_owned();
        self.daemon.continuation_in(&id, "delivered").unwrap();
        id
    }
}

fn refused(answer: &Answer, status: u16, code: &str) {
    let error = answer.json().unwrap();
    let got = (answer.status, error["error"]["code"].as_str());
    assert_eq!(got, (status, Some(code)), "{error}");
    // Somebody reads it.
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.ends_with('.'), "{message}");
}

#[test]
fn operators_settle_in_the_console_what_monoctl_settles() {
    let mut stage = Stage::new();
    let (one, two, three) = (
        stage.unknown("one"),
        stage.unknown("two"),
        stage.unknown("three"),
    );
    let health = stage.browser.get("/operator/continuation-health").unwrap();
    assert_eq!(
        (&health["status"], &health["counts"]["delivery_unknown"]),
        (&json!("unhealthy"), &json!(3)),
        "{health}"
    );
    // As `monoctl` says it.
    let seen = stage.show(&one);
    assert_eq!(seen, stage.daemon.continuation(&one).unwrap());
    assert_eq!(seen["state"], "delivery_unknown");
    // Without an explicit word nothing is posted again.
    refused(
        &stage.change(&one, "retry", &json!({})),
        409,
        "delivery_unknown",
    );
    refused(
        &stage.change(&one, "cancel", &json!({})),
        409,
        "already_terminal",
    );
    for wrong in [
        json!({ "kind": "posted" }),
        json!({ "kind": "not_delivered", "deliveryId": "m" }),
        json!({ "kind": "delivered", "deliveryId": "x".repeat(257) }),
    ] {
        refused(
            &stage.change(&one, "resolve", &wrong),
            400,
            "invalid_resolution",
        );
    }
    // No destination can be named here either.
    let elsewhere = json!({ "kind": "not_delivered", "conversationId": "web:1" });
    refused(
        &stage.change(&one, "resolve", &elsewhere),
        400,
        "invalid_request",
    );
    let nobody = stage.change("no-such-continuation", "cancel", &json!({}));
    refused(&nobody, 404, "not_found");
    assert_eq!(
        stage.receiver.waiting(),
        0,
        "nothing was posted by any of it"
    );

    // It is there: it enters the history, and nothing is posted.
    let settled = stage.done(
        &one,
        "resolve",
        &json!({ "kind": "delivered", "deliveryId": "seen-17" }),
    );
    assert_eq!(
        (
            &settled["state"],
            &settled["receipt"]["deliveryId"],
            &settled["receipt"]["historyRecorded"]
        ),
        (&json!("delivered"), &json!("seen-17"), &json!(true)),
        "{settled}"
    );
    assert_eq!(stage.receiver.waiting(), 0);
    refused(
        &stage.change(&one, "resolve", &json!({ "kind": "delivered" })),
        409,
        "not_delivery_unknown",
    );
    // It is not there: it is sent, once.
    stage.done(&two, "resolve", &json!({ "kind": "not_delivered" }));
    assert_eq!(stage.receiver.next().unwrap().target, "POST /later");
    stage.daemon.continuation_in(&two, "delivered").unwrap();
    // Left, and then sent after all by an explicit word.
    let left = stage.done(&three, "resolve", &json!({ "kind": "dead_lettered" }));
    assert_eq!(left["state"], "dead_lettered");
    refused(
        &stage.change(&three, "retry", &json!({})),
        409,
        "delivery_unknown",
    );
    stage.done(&three, "retry", &json!({ "allowUnknown": true }));
    assert_eq!(stage.receiver.next().unwrap().target, "POST /later");
    stage.daemon.continuation_in(&three, "delivered").unwrap();
    assert_eq!(stage.receiver.waiting(), 0);
    stage.daemon.await_logged(&[&format!(
        "an operator of the console resolves the continuation {one} as delivered"
    )]);
    let log = stage.daemon.log();
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn the_console_pages_shows_and_cancels_and_tells_no_secret() {
    let stage = Stage::new();
    let tasks = ["one", "two", "three"];
    let asks = tasks.map(start).join(" ");
    stage
        .daemon
        .answered("c", &format!("{asks} [[mock:text begun]]"))
        .unwrap();
    let captured = stage.capture("check");
    let mut all: Vec<String> = tasks.map(|task| stage.claim(task)).to_vec();
    all.push(captured.clone());
    // Page after page, each of the configured size.
    let mut seen = vec![];
    let mut cursor: Option<String> = None;
    loop {
        let query = cursor
            .as_deref()
            .map(|cursor| format!("?cursor={cursor}"))
            .unwrap_or_default();
        let path = format!("/operator/continuations{query}");
        let page = stage.browser.get(&path).unwrap();
        assert!(!page.to_string().contains(SECRET), "{page}");
        let records = page["continuations"].as_array().unwrap();
        assert!(records.len() <= 2, "{page}");
        seen.extend(records.iter().map(|record| id(record).to_owned()));
        let Some(next) = page["nextCursor"].as_str() else {
            break;
        };
        cursor = Some(next.to_owned());
    }
    assert_eq!(seen.first(), Some(&captured), "the newest is the first");
    seen.sort();
    all.sort();
    assert_eq!(seen, all);
    for (query, code) in [
        ("?limit=3", "invalid_page_limit"),
        ("?limit=0", "invalid_page_limit"),
        ("?limit=all", "invalid_page_limit"),
        ("?cursor=forged", "invalid_page_cursor"),
    ] {
        let line = format!("GET /api/v1/operator/continuations{query}");
        refused(&stage.browser.ask(&line, b"").unwrap(), 400, code);
    }
    // What was captured is told when it is asked for, and of nothing else.
    let record = stage.show(&captured);
    assert_eq!(record["receipt"]["kind"], "captured", "{record}");
    assert!(!record.to_string().contains(SECRET), "{record}");
    let path = format!("/operator/continuations/{captured}/captured");
    let text = stage.browser.get(&path).unwrap();
    assert_eq!(text, json!({ "continuationId": captured, "text": SECRET }));
    let first = stage.claim("one");
    let line = format!("GET /api/v1/operator/continuations/{first}/captured");
    refused(&stage.browser.ask(&line, b"").unwrap(), 404, "not_found");
    // Cancelled twice is as good as once, and it takes no result.
    for _ in 0..2 {
        let stands = stage.done(&first, "cancel", &json!({}));
        assert_eq!(stands["state"], "cancelled");
    }
    assert!(work::finish(stage.claims.path(), "one", "late").is_err());
    // Only a page of the console itself, with a session, may change anything.
    let base = stage.browser.base();
    let path = format!(
        "/api/v1/operator/continuations/{}/cancel",
        stage.claim("two")
    );
    let line = format!("POST {path}");
    let headers = stage.browser.headers();
    for (without, status, code) in [
        ("x-mono-console: 1\r\n", 403, "foreign_origin"),
        ("cookie", 401, "login_required"),
    ] {
        let mut kept: Vec<&str> = headers.split_inclusive("\r\n").collect();
        kept.retain(|line| !line.starts_with(without));
        let answer = console::send(base, &line, &kept.concat(), b"{}").unwrap();
        refused(&answer, status, code);
    }
    let foreign = format!("{headers}origin: http://evil.example\r\n");
    let answer = console::send(base, &line, &foreign, b"{}").unwrap();
    refused(&answer, 403, "foreign_origin");
    assert_eq!(stage.show(&stage.claim("two"))["state"], "claimed");
    let large = console::send(base, &line, &headers, &vec![b' '; 5_000]).unwrap();
    refused(&large, 413, "too_large");
}

#[test]
fn a_console_without_continuations_says_so() {
    let mut setup = Setup::new().unwrap();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let daemon = setup.start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    for path in [
        "continuation-health",
        "continuations",
        "continuations/c1",
        "continuations/c1/captured",
    ] {
        let line = format!("GET /api/v1/operator/{path}");
        refused(&browser.ask(&line, b"").unwrap(), 404, "not_enabled");
    }
    let path = "/operator/continuations/c1/cancel";
    let answer = browser.change("POST", path, &json!({})).unwrap();
    refused(&answer, 404, "not_enabled");
}

/// Tests with a browser, which run one at a time.
mod browser {
    use super::*;

    #[test]
    fn an_operator_settles_what_is_unknown_and_a_person_sees_work_go_on() {
        let mut stage = Stage::new();
        let unknown = stage.unknown("one");
        stage.capture("check");
        let waits = stage.daemon.folder().join("waits");
        let mut command = tests_of_the_page(&stage.daemon, "test/live/continuations.test.ts");
        command
            .env("CONSOLE_UNKNOWN", &unknown)
            .env(
                "CONSOLE_MESSAGE",
                format!("{} [[mock:text I have begun.]]", start("long")),
            )
            .env("CONSOLE_CAPTURED", SECRET)
            .env("CONSOLE_WAITS", &waits);
        let testing = std::thread::spawn(move || command.output().unwrap());
        wait_within("the page shows that work goes on", PATIENCE, || {
            waits.exists() || testing.is_finished()
        })
        .unwrap();
        if waits.exists() {
            work::finish(stage.claims.path(), "long", &say("All **42** are there.")).unwrap();
        }
        let out = testing.join().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{said}\n{}", stage.daemon.log());
        let record = stage.daemon.continuation(&unknown).unwrap();
        assert_eq!(record["receipt"]["deliveryId"], "seen-17", "{record}");
        assert_eq!(stage.receiver.waiting(), 0, "nothing was posted again");
    }
}
