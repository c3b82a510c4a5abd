//! The webhook channel: asked over HTTP, answered there, by status, and by a signed callback.

use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::http::{self, Answer};
use mono_tests::model::{Model, bash, call};
use mono_tests::node;
use mono_tests::receiver::{Delivery, Receiver};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

const KEY: &str = "the-right-key";
/// A key of the Standard Webhooks form, as receivers hold it.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The channel with a key, beside a model; `webhook` are its further settings.
fn setup(model: &Model, webhook: Value) -> Setup {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["webhook"] = json!({ "enabled": true, "port": 0, "apiKeyFile": "hook.key" });
    for (key, value) in webhook.as_object().unwrap() {
        setup.config["webhook"][key] = value.clone();
    }
    setup.secret("hook.key", KEY).unwrap();
    setup.secret("sign.key", SECRET).unwrap();
    setup
}

/// Settings of callbacks to these receivers, with short waits.
fn callbacks(receivers: &[&Receiver]) -> Value {
    let hosts: Vec<_> = receivers.iter().map(|r| r.host()).collect();
    json!({ "privateHosts": hosts, "secretFile": "sign.key", "backoffMs": 20, "maxBackoffMs": 50 })
}

fn base(daemon: &Daemon) -> String {
    daemon.listener("channel-webhook").unwrap()
}

fn post_with(daemon: &Daemon, path: &str, headers: &str, body: &Value) -> Answer {
    let mut stream = http::connect(&base(daemon)).unwrap();
    let body = body.to_string();
    http::begin_post(&mut stream, path, headers, body.len() as u64).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    http::answer(&mut stream).unwrap()
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

fn invoke(daemon: &Daemon, body: &Value) -> (u16, Value) {
    let answer = post_with(daemon, "/webhook/invoke", &bearer(KEY), body);
    (answer.status, answer.json().unwrap())
}

fn status(daemon: &Daemon, path: &str) -> Value {
    let headers = format!("host: localhost\r\n{}", bearer(KEY));
    let answer = http::request(&base(daemon), &format!("GET {path}"), &headers).unwrap();
    answer.json().unwrap()
}

/// The status once the request has ended.
fn ended(daemon: &Daemon, path: &str) -> Value {
    wait_for("the request ends", || {
        !["accepted", "running"].contains(&status(daemon, path)["status"].as_str().unwrap())
    })
    .unwrap();
    status(daemon, path)
}

/// What the official client says of a delivery: its body, or nothing.
fn verified(delivery: &Delivery, secret: &str) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/verify-webhook.mjs");
    assert!(node::node_modules().is_dir());
    let body = String::from_utf8(delivery.body.clone()).unwrap();
    let delivery = json!({ "headers": delivery.headers, "body": body }).to_string();
    let mut command = Command::new(node::node());
    let output = command
        .arg(script)
        .args([secret, &delivery])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said.get("body").cloned()
}

fn publish(path: &str) -> String {
    call("PublishReplyFile", &json!({ "path": path }))
}

#[test]
fn a_caller_who_waits_gets_the_text_and_the_files_as_outcomes() {
    let model = Model::start().unwrap();
    let daemon = setup(&model, json!({})).start().unwrap();
    let text = "Two files: \u{1f4c4} **bold** \\u0041 <b> & \"quotes\"";
    let message = format!(
        "{} {} {} [[mock:text {text}]]",
        bash("echo a > a.txt"),
        publish("a.txt"),
        publish("nowhere.txt")
    );
    let asked = json!({ "text": message, "conversationId": "c", "metadata": { "ticket": 7 } });
    let (code, answer) = invoke(&daemon, &asked);
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["status"], "succeeded");
    assert_eq!(answer["text"], text);
    assert_eq!(answer["conversationId"], "c");
    let outcomes = answer["replyPartOutcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2, "{answer}");
    assert_eq!(
        outcomes[0],
        json!({ "partIndex": 0, "partType": "attachment", "status": "failed", "code": "unsupported_destination",
            "message": "Attachment reply parts are unsupported on this destination." })
    );
    assert_eq!(
        (&outcomes[1]["partType"], &outcomes[1]["code"]),
        (&json!("failure"), &json!("artifact_missing"))
    );
    for private in ["a.txt", "sha256:", "mono-agent-artifact", "nowhere"] {
        assert!(!answer["replyPartOutcomes"].to_string().contains(private));
    }
    // The run is on record under the channel's name, and the caller's metadata came back.
    assert_eq!(answer["metadata"]["ticket"], 7);
    let summary = &answer["metadata"]["summary"];
    assert_eq!(summary["model"], "test:mock-1");
    let run = daemon.show(summary["runId"].as_str().unwrap()).unwrap();
    assert_eq!(run["status"], "succeeded", "{run}");
    let path = format!(
        "/webhook/requests/{}",
        answer["requestId"].as_str().unwrap()
    );
    assert_eq!(status(&daemon, &path), answer);
    // The conversation goes on.
    invoke(
        &daemon,
        &json!({ "text": "and now? [[mock:text more]]", "conversationId": "c" }),
    );
    let body = model.last().unwrap().body.to_string();
    assert!(
        body.contains("Two files") && body.contains("and now?"),
        "{body}"
    );
}

#[test]
fn who_has_no_key_comes_by_another_name_or_says_too_much_is_refused() {
    let model = Model::start().unwrap();
    let mut setup = setup(
        &model,
        json!({ "endpoints": [{ "name": "own", "path": "/hooks/own", "apiKeyFile": "own.key" }] }),
    );
    setup.config["webhook"]["maxAttachmentBytes"] = json!(0);
    setup.secret("own.key", "the-other-key").unwrap();
    let daemon = setup.start().unwrap();
    let hello = json!({ "text": "hello" });
    for (path, key, expected) in [
        ("/webhook/invoke", "", 401),
        ("/webhook/invoke", "wrong", 401),
        ("/webhook/invoke", "the-other-key", 401),
        ("/hooks/own", KEY, 401),
        ("/hooks/own", "the-other-key", 200),
        ("/webhook/invoke", KEY, 200),
        ("/webhook/nothing", KEY, 404),
    ] {
        let headers = if key.is_empty() {
            String::new()
        } else {
            bearer(key)
        };
        let answer = post_with(&daemon, path, &headers, &hello);
        assert_eq!(answer.status, expected, "{path} {key}");
        let answer = answer.json().unwrap().to_string();
        assert!(!answer.contains("the-"), "{answer}");
    }
    // What one key started, the other does not read.
    let answer = post_with(&daemon, "/hooks/own", &bearer("the-other-key"), &hello);
    let id = answer.json().unwrap()["requestId"]
        .as_str()
        .unwrap()
        .to_owned();
    let read = |path: String, key: &str| {
        let headers = format!("host: localhost\r\n{}", bearer(key));
        http::request(&base(&daemon), &format!("GET {path}"), &headers).unwrap()
    };
    assert_eq!(
        read(format!("/hooks/requests/{id}"), "the-other-key").status,
        200
    );
    assert_eq!(read(format!("/hooks/requests/{id}"), KEY).status, 401);
    assert_eq!(read(format!("/webhook/requests/{id}"), KEY).status, 404);
    let unknown = read(format!("/webhook/requests/{}", "0".repeat(36)), KEY);
    assert_eq!(
        (unknown.status, &unknown.json().unwrap()["status"]),
        (404, &json!("not_found"))
    );
    assert_eq!(read("/webhook/invoke".to_owned(), KEY).status, 405);

    let evil = "host: evil.example\r\n";
    let evil = http::request(&base(&daemon), "GET /healthz", evil).unwrap();
    assert_eq!(evil.status, 403);
    let page = format!("{}origin: https://evil.example\r\n", bearer(KEY));
    assert_eq!(
        post_with(&daemon, "/webhook/invoke", &page, &hello).status,
        403
    );
    for (body, expected) in [
        (json!({}), 400),
        (json!({ "text": "hi", "mode": "later" }), 400),
        (json!({ "text": "x".repeat(1 << 20) }), 413),
        (
            json!({ "text": "hi", "callbackUrl": "http://127.0.0.1:1/" }),
            400,
        ),
    ] {
        let (code, answer) = invoke(&daemon, &body);
        assert_eq!(
            (code, &answer["status"]),
            (expected, &json!("rejected")),
            "{answer}"
        );
    }
}

#[test]
fn a_caller_who_does_not_wait_reads_the_status_and_gets_a_signed_callback() {
    let (model, receiver) = (Model::start().unwrap(), Receiver::start().unwrap());
    let webhook = json!({ "defaultMode": "async", "callback": callbacks(&[&receiver]) });
    let mut daemon = setup(&model, webhook).start().unwrap();
    receiver.answer(503, "");
    receiver.answer(429, "retry-after: 0\r\n");
    let message = format!(
        "{} {} [[mock:text done]]",
        bash("touch working; echo a > a.txt; until [ -e go ]; do sleep 0.02; done"),
        publish("a.txt")
    );
    let url = format!("http://{}/done?job=7", receiver.host());
    let (code, taken) = invoke(&daemon, &json!({ "text": message, "callbackUrl": url }));
    assert_eq!(
        (code, &taken["status"]),
        (202, &json!("accepted")),
        "{taken}"
    );
    let id = taken["requestId"].as_str().unwrap();
    let path = taken["statusUrl"].as_str().unwrap();
    assert_eq!(taken["conversationId"], format!("webhook:{id}"));
    assert_eq!(path, format!("/webhook/requests/{id}"));
    wait_for("the turn works", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let record = status(&daemon, path);
    assert_eq!(record["status"], "running", "{record}");
    assert_eq!(record["receivedAt"], taken["receivedAt"]);
    assert!(record.get("text").is_none() && record.get("completedAt").is_none());
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    let record = ended(&daemon, path);
    assert_eq!(
        (&record["status"], &record["text"]),
        (&json!("succeeded"), &json!("done"))
    );
    assert_eq!(record["replyPartOutcomes"].as_array().unwrap().len(), 1);

    // Twice not taken, then taken: one id, the same body, each signed, and never again.
    let deliveries: Vec<_> = (0..3).map(|_| receiver.next().unwrap()).collect();
    for delivery in &deliveries {
        assert_eq!(delivery.target, "POST /done?job=7");
        assert_eq!(delivery.headers["webhook-id"], id);
        assert_eq!(delivery.headers["content-type"], "application/json");
        let told = verified(delivery, SECRET).expect("the official client accepts the signature");
        assert_eq!(told, record);
    }
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    assert_eq!(verified(&deliveries[0], other), None);
    let changed = Delivery {
        target: String::new(),
        headers: deliveries[0].headers.clone(),
        body: [&deliveries[0].body[..], b" "].concat(),
    };
    assert_eq!(verified(&changed, SECRET), None);
    wait_for("the delivery is logged", || {
        daemon.log().contains("the result was delivered")
    })
    .unwrap();
    assert_eq!(receiver.waiting(), 0);
    assert!(!daemon.log().contains("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));

    // The way out comes again after the death of egress.
    let egress = daemon.worker("egress").unwrap();
    daemon.kill(egress).unwrap();
    daemon.wait_replaced("egress", egress).unwrap();
    daemon.wait_healthy().unwrap();
    invoke(
        &daemon,
        &json!({ "text": "hi [[mock:text again]]", "callbackUrl": url, "mode": "sync" }),
    );
    let told = verified(&receiver.next().unwrap(), SECRET).unwrap();
    assert_eq!(told["text"], "again");
}

/// The last turn's result is sent before the workers end.
#[test]
fn a_turn_that_ends_with_the_daemon_is_called_back() {
    let (model, receiver) = (Model::start().unwrap(), Receiver::start().unwrap());
    let webhook = json!({ "callback": callbacks(&[&receiver]) });
    let mut daemon = setup(&model, webhook).start().unwrap();
    let message = format!(
        "{} [[mock:text done]]",
        bash("touch working; until [ -e go ]; do sleep 0.02; done")
    );
    let url = format!("http://{}/", receiver.host());
    let asked = json!({ "text": message, "mode": "async", "callbackUrl": url });
    assert_eq!(invoke(&daemon, &asked).0, 202);
    wait_for("the turn works", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    daemon.terminate().unwrap();
    wait_for("the stop begins", || daemon.log().contains("stopping")).unwrap();
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    assert_eq!(daemon.wait_end().unwrap(), 0);
    let told = verified(&receiver.next().unwrap(), SECRET).unwrap();
    assert_eq!(
        (&told["status"], &told["text"]),
        (&json!("succeeded"), &json!("done"))
    );
}

/// Its channel to the webhooks doesn't keep egress from having finished.
#[test]
fn egress_drains_although_results_could_be_sent() {
    let (model, receiver) = (Model::start().unwrap(), Receiver::start().unwrap());
    let webhook = json!({ "callback": callbacks(&[&receiver]) });
    let mut daemon = setup(&model, webhook).start().unwrap();
    daemon.done(&["worker", "drain", "egress"]).unwrap();
    daemon
        .wait_until("drained", |status| {
            let workers = status["workers"].as_array();
            let egress = |w: &&Value| w["role"] == "egress";
            workers
                .into_iter()
                .flatten()
                .filter(egress)
                .all(|w| w["state"] == "parked")
        })
        .unwrap();
    daemon.done(&["worker", "unpark", "egress"]).unwrap();
    daemon.wait_healthy().unwrap();
    let url = format!("http://{}/", receiver.host());
    let (code, answer) = invoke(
        &daemon,
        &json!({ "text": "hi [[mock:text x]]", "callbackUrl": url }),
    );
    assert_eq!(code, 200, "{answer}");
    assert!(verified(&receiver.next().unwrap(), SECRET).is_some());
}

#[test]
fn a_callback_goes_to_declared_hosts_only_and_follows_nobody() {
    let model = Model::start().unwrap();
    let (declared, other) = (Receiver::start().unwrap(), Receiver::start().unwrap());
    let webhook = json!({ "callback": callbacks(&[&declared]) });
    let daemon = setup(&model, webhook).start().unwrap();
    for url in [
        format!("http://{}/", other.host()),
        format!(
            "http://localhost:{}/",
            declared.host().rsplit_once(':').unwrap().1
        ),
        "https://example.com/".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ] {
        let (code, answer) = invoke(&daemon, &json!({ "text": "hi", "callbackUrl": url }));
        assert_eq!(
            (code, &answer["error"]["code"]),
            (400, &json!("callback_forbidden")),
            "{url}"
        );
    }
    declared.answer(307, &format!("location: http://{}/\r\n", other.host()));
    let url = format!("http://{}/", declared.host());
    let (code, answer) = invoke(
        &daemon,
        &json!({ "text": "hi [[mock:text x]]", "callbackUrl": url }),
    );
    // That it is not delivered changes nothing for the caller.
    assert_eq!((code, &answer["text"]), (200, &json!("x")));
    wait_for("it is given up", || {
        daemon
            .log()
            .contains("the result was not delivered: HTTP status 307")
    })
    .unwrap();
    assert_eq!((declared.waiting(), other.waiting()), (1, 0));
}

#[test]
fn a_busy_conversation_is_refused_and_a_run_over_its_time_fails_for_good() {
    let model = Model::start().unwrap();
    let webhook = json!({ "maxRunMs": 20_000, "defaultMode": "async" });
    let daemon = setup(&model, webhook).start().unwrap();
    // It answers after its time.
    let message = format!(
        "{} [[mock:text late]]",
        bash("touch working; trap '' TERM; until [ -e go ]; do sleep 0.02; done")
    );
    let asked = json!({ "text": message, "conversationId": "c" });
    let (code, taken) = invoke(&daemon, &asked);
    assert_eq!(code, 202, "{taken}");
    let (code, busy) = invoke(&daemon, &asked);
    assert_eq!((code, &busy["status"]), (409, &json!("busy")), "{busy}");
    assert!(busy.get("requestId").is_none());
    let other = json!({ "text": "hi [[mock:text other]]", "conversationId": "d", "mode": "sync" });
    assert_eq!(invoke(&daemon, &other).0, 200);
    let path = taken["statusUrl"].as_str().unwrap();
    let record = ended(&daemon, path);
    assert_eq!(
        (&record["status"], &record["error"]["code"]),
        (&json!("failed"), &json!("timeout")),
        "{record}"
    );
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    // The run was ended with it, and whatever it said is not in the answer.
    let runs = daemon
        .json(&["runs", "list", "--conversation", "c"])
        .unwrap();
    let run = runs["runs"][0]["runId"].as_str().unwrap().to_owned();
    let run = daemon.settled(&run).unwrap();
    assert_eq!(run["status"], "cancelled", "{run}");
    assert_eq!(status(&daemon, path), record);
    // The conversation is free, and knows what happened.
    let next = json!({ "text": "hi [[mock:text next]]", "conversationId": "c", "mode": "sync" });
    let (code, answer) = invoke(&daemon, &next);
    assert_eq!((code, &answer["text"]), (200, &json!("next")), "{answer}");
}

#[test]
fn a_caller_who_leaves_ends_the_run() {
    let model = Model::start().unwrap();
    let daemon = setup(&model, json!({})).start().unwrap();
    let message = bash("touch working; until [ -e go ]; do sleep 0.02; done");
    let body = json!({ "text": message, "conversationId": "c" }).to_string();
    let mut stream = http::connect(&base(&daemon)).unwrap();
    http::begin_post(
        &mut stream,
        "/webhook/invoke",
        &bearer(KEY),
        body.len() as u64,
    )
    .unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    wait_for("the turn works", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    drop(stream);
    let runs = daemon
        .json(&["runs", "list", "--conversation", "c"])
        .unwrap();
    let run = runs["runs"][0]["runId"].as_str().unwrap().to_owned();
    assert_eq!(daemon.settled(&run).unwrap()["status"], "cancelled");
}

#[test]
fn attachments_come_to_the_model_and_into_the_runs_folder() {
    let model = Model::start().unwrap();
    let daemon = setup(&model, json!({ "maxAttachmentBytes": 2_000_000 }))
        .start()
        .unwrap();
    // "a,b\n1,2\n" and a picture of one pixel.
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let asked = json!({
        "text": format!("look {} [[mock:echo]]", bash("cat $TMPDIR/attachments/1-table.csv; wc -c < $TMPDIR/attachments/2-large.bin")),
        "attachments": [
            { "name": "table.csv", "mediaType": "text/csv", "data": "YSxiCjEsMgo=" },
            { "name": "pixel.png", "mediaType": "image/png", "data": picture },
            { "name": "large.bin", "data": "AAAA".repeat(500_000) },
        ],
    });
    let (code, answer) = invoke(&daemon, &asked);
    assert_eq!(code, 200, "{answer}");
    let text = answer["text"].as_str().unwrap();
    assert!(
        text.contains("a,b\n1,2") && text.contains("1500000"),
        "{text}"
    );
    let body = model.last().unwrap().body.to_string();
    assert!(body.contains(picture));
    assert!(
        body.contains("attachments/1-table.csv (text/csv, 8 bytes)"),
        "{body}"
    );
    let large =
        json!({ "text": "hi", "attachments": [{ "name": "a", "data": "AAAA".repeat(700_000) }] });
    assert_eq!(invoke(&daemon, &large).0, 413);
}

#[test]
fn an_endpoint_has_settings_and_keys_of_its_own() {
    let (model, receiver) = (Model::start().unwrap(), Receiver::start().unwrap());
    let webhook = json!({
        "callback": callbacks(&[&receiver]),
        "endpoints": [{
            "name": "deploys", "path": "/webhook/deploys", "conversationId": "webhook:deploys",
            "mode": "async", "model": "test:mock-2", "effort": "low",
            "prompt": "Judge whether a person must know.",
            "callbackUrl": format!("http://{}/deploys", receiver.host()),
            "callbackSecretFile": "own.key",
        }],
    });
    let setup = setup(&model, webhook);
    setup.secret("own.key", "a-raw-secret-of-its-own").unwrap();
    let daemon = setup.start().unwrap();
    let asked = json!({ "text": "v2 is out [[mock:text quiet]]" });
    let answer = post_with(&daemon, "/webhook/deploys", &bearer(KEY), &asked);
    assert_eq!(answer.status, 202);
    assert_eq!(answer.json().unwrap()["conversationId"], "webhook:deploys");
    let delivery = receiver.next().unwrap();
    assert_eq!(delivery.target, "POST /deploys");
    assert_eq!(verified(&delivery, SECRET), None);
    let told = verified(&delivery, "a-raw-secret-of-its-own").unwrap();
    assert_eq!(
        (&told["status"], &told["text"]),
        (&json!("succeeded"), &json!("quiet"))
    );
    let body = &model.last().unwrap().body;
    assert_eq!(body["model"], "mock-2", "{body}");
    let body = body.to_string();
    assert!(
        body.contains("Judge whether a person must know.\\n\\nv2 is out"),
        "{body}"
    );
    let elsewhere = json!({ "text": "hi", "conversationId": "c" });
    assert_eq!(
        post_with(&daemon, "/webhook/deploys", &bearer(KEY), &elsewhere).status,
        400
    );
    // A reload with a new key takes effect, on the same address.
    let (at, old) = (base(&daemon), daemon.worker("channel-webhook").unwrap());
    std::fs::write(daemon.folder().join("hook.key"), "a-newer-key\n").unwrap();
    daemon.done(&["reload"]).unwrap();
    let mut daemon = daemon;
    daemon.wait_replaced("channel-webhook", old).unwrap();
    let path = "/webhook/invoke";
    let hello = json!({ "text": "hi [[mock:text x]]", "callbackUrl": format!("http://{}/", receiver.host()) });
    assert_eq!(base(&daemon), at);
    assert_eq!(post_with(&daemon, path, &bearer(KEY), &hello).status, 401);
    assert_eq!(
        post_with(&daemon, path, &bearer("a-newer-key"), &hello).status,
        200
    );
    assert!(verified(&receiver.next().unwrap(), SECRET).is_some());
}

/// A name that no channel makes belongs to who first uses it: another key of whatever channel gets no
/// answer that could tell what was said there.
#[test]
fn a_conversation_goes_on_for_its_own_client_and_the_operator_alone() {
    let model = Model::start().unwrap();
    let webhook =
        json!({ "endpoints": [{ "name": "ci", "path": "/webhook/ci", "apiKeyFile": "own.key" }] });
    let setup = setup(&model, webhook);
    setup.secret("own.key", "a-key-of-its-own").unwrap();
    let daemon = setup.start().unwrap();
    let api = |conversation: &str| {
        let text = "the-word-is-teapot [[mock:text yes]]";
        http::complete(&daemon.api().unwrap(), conversation, text).unwrap()
    };
    let asked = |conversation: &str| json!({ "text": "what is the word? [[mock:text no]]", "conversationId": conversation, "mode": "sync" });
    let hook = |conversation: &str| invoke(&daemon, &asked(conversation));
    let ci = |conversation: &str| {
        let headers = bearer("a-key-of-its-own");
        let answer = post_with(&daemon, "/webhook/ci", &headers, &asked(conversation));
        (answer.status, answer.json().unwrap())
    };
    // Whose each is.
    assert_eq!(api("chat").status, 200);
    assert_eq!(hook("hook").0, 200);
    assert_eq!(ci("ci").0, 200);
    assert_eq!(
        daemon.send("plan", "hello [[mock:text x]]").unwrap().code,
        0
    );
    let requests = model.stats().requests;
    for foreign in ["hook", "ci", "plan"] {
        let refused = api(foreign);
        assert_eq!(refused.status, 400, "{foreign}");
        let error = &refused.json().unwrap()["error"];
        assert_eq!(error["code"], "conversation_taken", "{foreign} {error}");
    }
    let refusals = [
        hook("chat"),
        hook("ci"),
        hook("plan"),
        ci("chat"),
        ci("hook"),
    ];
    for (status, refused) in refusals {
        assert_eq!(status, 500, "{refused}");
        assert_eq!(refused["error"]["code"], "conversation_taken", "{refused}");
    }
    assert_eq!(model.stats().requests, requests, "no model was asked");
    // They go on where they were, and the operator anywhere.
    assert_eq!(api("chat").status, 200);
    assert_eq!((hook("hook").0, ci("ci").0), (200, 200));
    assert_eq!(daemon.send("chat", "and? [[mock:text x]]").unwrap().code, 0);
    let told = model.last().unwrap().body.to_string();
    assert!(told.contains("teapot"), "{told}");
    assert_eq!(api("chat").status, 200);
}

#[test]
fn off_loopback_the_channel_needs_a_key() {
    let mut setup = Setup::new().unwrap();
    setup.config["webhook"] =
        json!({ "enabled": true, "host": "0.0.0.0", "allowNonLoopback": true });
    let (code, said) = setup.refused().unwrap();
    assert!(code != 0 && said.contains("webhook.apiKey"), "{said}");
}
