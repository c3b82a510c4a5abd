//! MCP Apps over a whole daemon: from a tool's result to a person's answer, by the console's wire.

use mono_tests::console::{Browser, Event, header, send};
use mono_tests::daemon::{Daemon, Setup, programs};
use mono_tests::http::Answer;
use mono_tests::model::{Model, call};
use serde_json::{Value, json};

const PAGE: &str = "ui://mono-mcp-fixture/dice.html";

pub(crate) fn start(model: &Model, apps: Value) -> Daemon {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup.config["apps"] = apps;
    let fixture = programs().join("mcp-fixture");
    setup = setup.server("dice", &fixture, &["dice"], &[&programs()]);
    setup.start().unwrap()
}

/// An app in a message, and a view of it.
pub(crate) struct App {
    pub(crate) browser: Browser,
    thread: String,
    pub(crate) part: Value,
    pub(crate) place: String,
    pub(crate) view: String,
    capability: String,
}

pub(crate) fn code(answer: &Answer) -> (u16, String) {
    let body = answer.json().unwrap_or_default();
    let code = body["error"]["code"].as_str().unwrap_or_default();
    (answer.status, code.to_owned())
}

/// The parts of an answer to this message.
pub(crate) fn parts(browser: &Browser, thread: &str, text: &str) -> Vec<Value> {
    let reply = browser.turn(thread, &json!({ "text": text })).unwrap();
    let message = browser.finished(thread, &reply).unwrap();
    assert_eq!(message["status"], "succeeded", "{message}");
    message["parts"].as_array().unwrap().clone()
}

pub(crate) fn rolled(browser: &Browser, thread: &str) -> Value {
    let roll = call("roll_dice", &json!({ "count": 3 }));
    let parts = parts(browser, thread, &roll);
    let [part] = parts.as_slice() else {
        panic!("{parts:?}")
    };
    part.clone()
}

impl App {
    pub(crate) fn open(daemon: &Daemon) -> Self {
        let browser = Browser::log_in(daemon).unwrap();
        let thread = browser.thread().unwrap();
        let part = rolled(&browser, &thread);
        Self::of(browser, thread, part)
    }

    /// Opens a view of an app that is there.
    pub(crate) fn of(browser: Browser, thread: String, part: Value) -> Self {
        let place = part["app"].as_str().unwrap();
        let place = place.strip_prefix("/api/v1").unwrap().to_owned();
        let opened = browser
            .change("POST", &format!("{place}/views"), &json!({}))
            .unwrap();
        assert_eq!(opened.status, 201);
        let opened = opened.json().unwrap();
        let text = |key: &str| opened[key].as_str().unwrap().to_owned();
        Self {
            view: text("view"),
            capability: text("capability"),
            browser,
            thread,
            part,
            place,
        }
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        let place = format!("/api/v1{}/views/{}/{path}", self.place, self.view);
        let headers = format!(
            "{}x-mono-app-capability: {}\r\ncontent-type: application/json\r\n",
            self.browser.headers(),
            self.capability
        );
        let line = format!("POST {place}");
        send(
            self.browser.base(),
            &line,
            &headers,
            body.to_string().as_bytes(),
        )
        .unwrap()
    }

    /// The bytes of a file that the person wants.
    pub(crate) fn hand(&self, file: &str, bytes: &[u8]) -> Answer {
        let line = format!("PUT /api/v1{}/views/{}/files/{file}", self.place, self.view);
        let headers = format!(
            "{}x-mono-app-capability: {}\r\n",
            self.browser.headers(),
            self.capability
        );
        send(self.browser.base(), &line, &headers, bytes).unwrap()
    }

    pub(crate) fn ask(&self, method: &str, params: Value) -> Answer {
        self.post("requests", &json!({ "method": method, "params": params }))
    }

    /// The question that a request comes to.
    pub(crate) fn question(&self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert_eq!(code(&answer), (409, "app_confirmation_required".into()));
        answer.json().unwrap()["confirmation"].clone()
    }

    pub(crate) fn decide(&self, question: &Value, decision: &str) -> Answer {
        let id = question["id"].as_str().unwrap();
        self.post(
            &format!("confirmations/{id}"),
            &json!({ "decision": decision }),
        )
    }
}

#[test]
fn an_app_comes_with_a_result_and_calls_its_server_when_the_person_allows() {
    let model = Model::start().unwrap();
    let daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let boot = app.browser.get("/bootstrap").unwrap();
    let apps = &boot["capabilities"]["mcpApps"];
    assert_eq!(apps["versions"], json!(["2026-01-26", "2025-11-21"]));
    // The part names the app and gives no right.
    assert_eq!(app.part["type"], "mcp_app");
    assert_eq!(app.part["resourceUri"], PAGE);
    assert!(app.part["expiresAt"].is_i64());
    assert!(!app.part.to_string().contains(&app.capability));
    let record = app.browser.get(&app.place).unwrap();
    assert_eq!(record["connected"], true);
    assert_eq!(record["input"], json!({ "count": 3 }));
    let rolls = record["result"]["structuredContent"]["rolls"]
        .as_array()
        .unwrap();
    assert_eq!(rolls.len(), 3);
    assert_eq!(record["permissions"], json!({ "clipboardWrite": {} }));
    assert_eq!(record["refused"][0]["value"], "https://dice.example");
    // The page is a text that no browser takes for a page of the console.
    let line = format!("GET {}", record["html"].as_str().unwrap());
    let page = app.browser.ask(&line, b"").unwrap();
    assert_eq!(
        header(&page, "content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(
        header(&page, "content-security-policy"),
        Some("sandbox; default-src 'none'")
    );
    assert_eq!(header(&page, "x-content-type-options"), Some("nosniff"));
    assert_eq!(
        page.body.len() as u64,
        record["htmlBytes"].as_u64().unwrap()
    );

    let params = json!({ "name": "reroll", "arguments": { "count": 5 } });
    let question = app.question("tools/call", params.clone());
    assert_eq!(
        (&question["tool"], &question["server"]),
        (&json!("reroll"), &json!("dice"))
    );
    let result = app.decide(&question, "view").json().unwrap();
    let rolls = result["result"]["structuredContent"]["rolls"]
        .as_array()
        .unwrap();
    assert_eq!(rolls.len(), 5);
    assert_eq!(app.ask("tools/call", params).status, 200);
    let own = app.ask("resources/read", json!({ "uri": PAGE }));
    assert_eq!(own.status, 200);
    // What operators see.
    let id = app.part["invocationId"].as_str().unwrap();
    let audit = daemon.json(&["apps", "audit", id]).unwrap();
    let phases: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["details"]["phase"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        phases,
        [
            "requested",
            "confirmed",
            "completed",
            "confirmed",
            "completed",
            "requested",
            "completed"
        ]
    );
    assert!(!audit.to_string().contains("reroll"));
    let listed = daemon.json(&["apps", "list"]).unwrap();
    assert_eq!(
        (&listed["apps"][0]["id"], &listed["apps"][0]["views"]),
        (&json!(id), &json!(1))
    );
    let probed = daemon.json(&["mcp", "probe", "dice"]).unwrap();
    assert_eq!(probed["ok"], true);
    // Decisions are security events; no capability is in a log.
    daemon.await_logged(&[
        "operation=\"mcp-apps.call\" method=\"tools/call\" decision=\"allow\"",
        "operation=\"claim\" method=\"\" decision=\"allow\"",
    ]);
    assert!(!daemon.log().contains(&app.capability));
    daemon.json(&["apps", "close", id]).unwrap();
    assert_eq!(
        code(&app.ask("tools/list", json!({}))),
        (404, "app_forbidden".into())
    );
}

#[test]
fn refusals_have_their_codes_on_the_wire() {
    let model = Model::start().unwrap();
    let rules = json!([{ "tool": "@dice/roll_*", "decision": "deny" }]);
    let daemon = start(&model, json!({ "rules": rules }));
    let app = App::open(&daemon);
    let call = |tool: &str| app.ask("tools/call", json!({ "name": tool, "arguments": {} }));
    for (answer, expected) in [
        (call("dice_odds"), (403, "app_tool_forbidden")),
        (call("roll_dice"), (403, "app_tool_forbidden")),
        (call("none"), (403, "app_tool_forbidden")),
        (
            app.ask(
                "tools/call",
                json!({ "name": "reroll", "arguments": { "count": 0 } }),
            ),
            (400, "app_arguments_invalid"),
        ),
        (
            app.ask("resources/read", json!({ "uri": "ui://other" })),
            (403, "app_resource_forbidden"),
        ),
        (
            app.ask("ui/open-link", json!({ "url": "javascript:alert(1)" })),
            (403, "app_open_link_forbidden"),
        ),
        (
            app.ask("sampling/createMessage", json!({})),
            (400, "app_request_invalid"),
        ),
        (
            app.ask("tools/list", json!({ "pad": "x".repeat(70_000) })),
            (413, "app_request_too_large"),
        ),
        (
            app.post("confirmations/none", &json!({ "decision": "once" })),
            (400, "app_request_invalid"),
        ),
        (
            app.post("requests", &json!({ "params": {} })),
            (400, "app_request_invalid"),
        ),
    ] {
        assert_eq!(code(&answer), (expected.0, expected.1.to_owned()));
    }
    let question = app.question("tools/call", json!({ "name": "reroll" }));
    assert_eq!(
        code(&app.decide(&question, "deny")),
        (403, "app_declined".into())
    );
    // Each refusal is a security event with its code, a rule's own among them; no tool is named.
    for (method, code) in [
        ("tools/call", "app_tool_forbidden"),
        ("tools/call", "app_arguments_invalid"),
        ("tools/call", "app_declined"),
        ("resources/read", "app_resource_forbidden"),
        ("ui/open-link", "app_open_link_forbidden"),
        ("tools/list", "app_request_too_large"),
    ] {
        let event = format!(
            "operation=\"mcp-apps.call\" method=\"{method}\" decision=\"deny\" code=\"{code}\""
        );
        daemon.await_logged(&[&event]);
    }
    let log = daemon.log();
    let mut events = log.lines().filter(|line| line.contains("security event"));
    assert!(events.all(|line| !line.contains("reroll") && !line.contains("javascript")));
    // Without the capability, from another page, for another message, and logged out.
    let place = format!("/api/v1{}/views/{}/requests", app.place, app.view);
    let body = json!({ "method": "tools/list" }).to_string();
    let line = format!("POST {place}");
    let own = app.browser.headers();
    let session = own.replace("x-mono-console: 1\r\n", "");
    let ask =
        |headers: &str| code(&send(app.browser.base(), &line, headers, body.as_bytes()).unwrap());
    assert_eq!(ask(&own), (404, "app_forbidden".into()));
    let right = format!("x-mono-app-capability: {}\r\n", app.capability);
    assert_eq!(
        ask(&format!("{session}{right}")),
        (403, "foreign_origin".into())
    );
    let host = own.lines().next().unwrap();
    let logged_out = ask(&format!("{host}\r\nx-mono-console: 1\r\n{right}"));
    assert_eq!(logged_out, (401, "login_required".into()));
    let other = app.browser.thread().unwrap();
    let other = rolled(&app.browser, &other);
    let mixed = app.place.replace(
        app.part["messageId"].as_str().unwrap(),
        other["messageId"].as_str().unwrap(),
    );
    let answer = app
        .browser
        .ask(&format!("GET /api/v1{mixed}"), b"")
        .unwrap();
    assert_eq!(code(&answer), (404, "app_missing".into()));
}

#[test]
fn context_goes_with_the_message_that_shows_it_and_once() {
    let model = Model::start().unwrap();
    let daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let context = json!({ "content": [{ "type": "text", "text": "The dice show 6, 6." }] });
    let question = app.question("ui/update-model-context", context);
    let kept = app.decide(&question, "view").json().unwrap();
    assert_eq!(kept["result"]["text"], "The dice show 6, 6.");
    let send = |body: Value| {
        let reply = app.browser.turn(&app.thread, &body).unwrap();
        app.browser.finished(&app.thread, &reply).unwrap();
        model.last().unwrap().body.to_string()
    };
    // Not with a message whose composer didn't show it.
    assert!(!send(json!({ "text": "one" })).contains("6, 6"));
    let seen = send(json!({ "text": "two", "apps": [app.view] }));
    assert!(
        seen.contains("6, 6") && seen.contains("dice/roll_dice"),
        "{seen}"
    );
    let again = rolled(&app.browser, &app.browser.thread().unwrap());
    assert_eq!(again["type"], "mcp_app");
}

#[test]
fn apps_survive_a_restart_without_their_connection() {
    let model = Model::start().unwrap();
    let mut daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let mut events = app.browser.events("/events").unwrap();
    let old = daemon.worker("app-bridge").unwrap();
    daemon.kill(old).unwrap();
    daemon.wait_replaced("app-bridge", old).unwrap();
    let record = app.browser.get(&app.place).unwrap();
    assert_eq!(
        (&record["connected"], &record["input"]["count"]),
        (&json!(false), &json!(3))
    );
    // Views were the old worker's. A new one is not connected, and says so.
    let gone = app.ask("tools/list", json!({}));
    assert_eq!(code(&gone), (404, "app_forbidden".into()));
    let opened = app
        .browser
        .change("POST", &format!("{}/views", app.place), &json!({}))
        .unwrap();
    let opened = opened.json().unwrap();
    assert_eq!(opened["connected"], false);
    let app = App {
        view: opened["view"].as_str().unwrap().to_owned(),
        ..app
    };
    let closed = app.ask("tools/list", json!({}));
    assert_eq!(code(&closed), (410, "app_connection_closed".into()));
    let told = |event: &Event| event.name == "app" && event.data["id"] == app.part["id"];
    events.until(told).unwrap();
}

#[test]
fn with_apps_off_the_tool_is_an_ordinary_one_and_app_tools_stay_hidden() {
    let model = Model::start().unwrap();
    let daemon = start(&model, json!({ "enabled": false }));
    let browser = Browser::log_in(&daemon).unwrap();
    assert_eq!(
        browser.get("/bootstrap").unwrap()["capabilities"]["mcpApps"],
        false
    );
    let thread = browser.thread().unwrap();
    let roll = call("roll_dice", &json!({ "count": 3 }));
    assert!(parts(&browser, &thread, &roll).is_empty());
    let offered = model.last().unwrap().body.to_string();
    assert!(offered.contains("roll_dice") && offered.contains("dice_odds"));
    assert!(!offered.contains("reroll"));
    let probed = daemon.json(&["mcp", "probe", "dice"]).unwrap();
    assert_eq!(probed["apps"], false);
}
