//! The web console: login, guards, turns that outlive their tabs, files, search.

use mono_tests::console::{Browser, Event, header, link, send, split};
use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::model::{Model, bash, call};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn start(model: &Model) -> Daemon {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup.start().unwrap()
}

fn code(answer: &mono_tests::http::Answer) -> (u16, String) {
    let body = answer.json().unwrap_or_default();
    let code = body["error"]["code"].as_str().unwrap_or_default();
    (answer.status, code.to_owned())
}

#[test]
fn a_link_logs_one_browser_in_once() {
    let model = Model::start().unwrap();
    let daemon = start(&model);
    let (base, path) = split(&link(&daemon).unwrap()).unwrap();
    let host = format!("host: {}\r\n", &base[7..]);
    let ask =
        |line: &str, headers: &str| send(&base, line, &format!("{host}{headers}"), b"").unwrap();

    // Without a session there is a page that says how to get one, and no data.
    assert_eq!(ask("GET /", "").status, 401);
    assert_eq!(
        code(&ask("GET /api/v1/bootstrap", "")),
        (401, "login_required".into())
    );
    // Looking at a link doesn't use it up; another site's page can't use it.
    for _ in 0..2 {
        let page = ask(&format!("GET {path}"), "");
        assert_eq!(page.status, 200);
        assert!(!String::from_utf8_lossy(&page.body).contains("<script"));
    }
    let foreign = ask(&format!("POST {path}"), "origin: http://evil.example\r\n");
    assert_eq!(code(&foreign), (403, "foreign_origin".into()));
    let login = ask(&format!("POST {path}"), "sec-fetch-site: same-origin\r\n");
    assert_eq!((login.status, header(&login, "location")), (303, Some("/")));
    let cookie = header(&login, "set-cookie").unwrap().to_owned();
    for rule in ["httponly", "samesite=strict", "path=/", "max-age=2592000"] {
        assert!(cookie.contains(rule), "{cookie}");
    }
    assert!(!cookie.contains("secure"));
    assert_eq!(ask(&format!("POST {path}"), "").status, 410);
    assert_eq!(ask(&format!("GET {path}"), "").status, 410);
    assert_eq!(ask("POST /login/wrong", "").status, 410);

    let own = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    let boot = ask("GET /api/v1/bootstrap", &own);
    let boot = boot.json().unwrap();
    assert_eq!(boot["agent"]["model"], "test:mock-1");
    assert_eq!(boot["limits"]["attachmentBytes"], 20_971_520);
    let page = ask("GET /", &own);
    assert_eq!(page.status, 200);
    let policy = header(&page, "content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    // Neither the token nor the cookie's secret is in a log.
    let log = daemon.log();
    let secret = cookie.split(['=', ';']).nth(1).unwrap();
    assert!(!log.contains(secret) && !log.contains(&path[7..]));
}

#[test]
fn other_names_and_other_pages_are_refused() {
    let model = Model::start().unwrap();
    let daemon = start(&model);
    let browser = Browser::log_in(&daemon).unwrap();
    let base = browser.base();
    let cookie = browser.headers().lines().nth(1).unwrap().to_owned();
    let host = &base[7..];
    let ask = |line: &str, headers: &str| {
        code(&send(base, line, &format!("{cookie}\r\n{headers}"), b"{}").unwrap())
    };
    for name in [
        "evil.example",
        "localhost",
        &host.replace("127.0.0.1", "127.0.0.2"),
    ] {
        for line in [
            "GET /",
            "GET /healthz",
            "GET /api/v1/bootstrap",
            "POST /api/v1/threads",
        ] {
            let refused = ask(line, &format!("host: {name}\r\nx-mono-console: 1\r\n"));
            assert_eq!(refused, (421, "untrusted_host".into()), "{name} {line}");
        }
    }
    let own = format!("host: {host}\r\n");
    let change = "POST /api/v1/threads";
    let forbidden = (403, "foreign_origin".to_owned());
    for extra in [
        "",
        "x-mono-console: 1\r\norigin: http://evil.example\r\n",
        "x-mono-console: 1\r\norigin: null\r\n",
        "x-mono-console: 1\r\nsec-fetch-site: cross-site\r\n",
        "x-mono-console: 1\r\nsec-fetch-site: same-site\r\n",
    ] {
        assert_eq!(ask(change, &format!("{own}{extra}")), forbidden, "{extra}");
    }
    assert_eq!(
        ask(
            "GET /api/v1/threads",
            &format!("{own}sec-fetch-site: cross-site\r\n")
        ),
        forbidden
    );
    assert_eq!(browser.get("/threads").unwrap()["threads"], json!([]));
    let fine = format!(
        "{own}x-mono-console: 1\r\norigin: http://{host}\r\nsec-fetch-site: same-origin\r\n"
    );
    assert_eq!(ask(change, &fine).0, 201);
    // A body over the bound, and one that is none.
    let large = json!({ "title": "x".repeat(300 * 1024) });
    assert_eq!(
        code(&browser.change("PATCH", "/threads/x", &large).unwrap()),
        (413, "too_large".into())
    );
    assert_eq!(
        code(&browser.ask("PATCH /api/v1/threads/x", b"{").unwrap()),
        (400, "invalid_request".into())
    );
    assert_eq!(
        code(&browser.ask("GET /api/v1/nothing", b"").unwrap()),
        (404, "not_found".into())
    );
}

#[test]
fn a_turn_streams_to_late_pages_and_outlives_them() {
    let model = Model::start().unwrap();
    let daemon = start(&model);
    let browser = Browser::log_in(&daemon).unwrap();
    let mut one = browser.events("/events").unwrap();
    let mut two = browser.events("/events").unwrap();
    let thread = browser.thread().unwrap();
    // The answer stands still until it was looked at.
    let go = daemon.folder().join("go");
    let hold = format!("[[mock:hold 9 {}]]", go.display());
    let wish = json!({ "text": format!("{} [[mock:long 300]] {hold}", bash("echo hi")) });
    let reply = browser.turn(&thread, &wish).unwrap();
    // Two tabs are told.
    let ours = |event: &Event| event.name == "thread" && event.data["id"] == thread.as_str();
    one.until(ours).unwrap();
    two.until(ours).unwrap();
    // A page watches for a while and goes away.
    let mut frames = browser.frames(&thread, &reply, 0).unwrap();
    let seen = frames.until(|event| event.name == "append").unwrap();
    drop(frames);
    let mut text = seen.data["text"].as_str().unwrap().to_owned();
    let view = browser.get(&format!("/threads/{thread}")).unwrap();
    assert_eq!(
        (&view["thread"]["running"], &view["messages"][1]["status"]),
        (&json!(true), &json!("running"))
    );
    std::fs::write(&go, "").unwrap();
    // It comes back and gets exactly what it missed.
    let mut frames = browser
        .frames(&thread, &reply, seen.number.unwrap())
        .unwrap();
    let mut last = seen.number.unwrap();
    let finish = loop {
        let event = frames.following().unwrap().unwrap();
        let number = event.number.unwrap();
        assert_eq!(number, last + 1, "{event:?}");
        last = number;
        match event.name.as_str() {
            "append" => text.push_str(event.data["text"].as_str().unwrap()),
            "finish" => break event.data["message"].clone(),
            _ => {}
        }
    };
    assert_eq!(
        frames.following().unwrap(),
        None,
        "nothing comes after the end"
    );
    let whole = "word ".repeat(300);
    assert_eq!(
        (&*text, finish["text"].as_str().unwrap()),
        (whole.trim_end(), whole.trim_end())
    );
    assert_eq!(finish["status"], "succeeded");
    let step = &finish["activity"][0];
    assert_eq!(
        (&step["kind"], &step["name"]),
        (&json!("tool"), &json!("Bash"))
    );
    assert!(step["arguments"].as_str().unwrap().contains("echo hi"));
    assert!(step["result"].as_str().unwrap().contains("hi") && step["endedAt"].is_i64());
    // Whoever comes only now gets the end.
    assert_eq!(browser.finished(&thread, &reply).unwrap(), finish);
    let view = browser.get(&format!("/threads/{thread}")).unwrap();
    assert_eq!(view["messages"][1], finish);
    assert_eq!(view["thread"]["unread"], true);
    let run = finish["runId"].as_str().unwrap();
    let record = daemon.show(run).unwrap();
    assert_eq!(
        (&record["source"], &record["conversationId"]),
        (&json!("console"), &json!(format!("web:{thread}")))
    );
    // The operator's pages.
    let shown = browser.get(&format!("/operator/runs/{run}")).unwrap();
    assert_eq!(shown["text"], record["text"]);
    assert_eq!(
        browser.get("/operator/runs?limit=1").unwrap()["runs"][0]["runId"],
        run
    );
    let status = browser.get("/operator/status").unwrap();
    let roles: Vec<_> = status["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| &w["role"])
        .collect();
    assert!(
        status["ok"] == true && roles.contains(&&json!("channel-console")),
        "{status}"
    );
    assert!(browser.get("/operator/artifacts").unwrap()["artifacts"].is_array());
    let fields = browser.get("/operator/config").unwrap();
    let port = fields["fields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["key"] == "console.port");
    assert_eq!(port.unwrap()["value"], "0");
    let none = browser.ask("GET /api/v1/operator/runs/nope", b"").unwrap();
    assert_eq!(code(&none), (404, "not_found".into()));
}

#[test]
fn messages_wait_are_stopped_and_are_sent_again() {
    let model = Model::start().unwrap();
    let daemon = start(&model);
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let turn = |text: &str| browser.turn(&thread, &json!({ "text": text })).unwrap();
    let first = turn("first [[mock:text one]]");
    assert_eq!(browser.finished(&thread, &first).unwrap()["text"], "one");
    let hanging = turn("second [[mock:hang]]");
    browser
        .frames(&thread, &hanging, 0)
        .unwrap()
        .until(|e| e.data["state"] == "running")
        .unwrap();
    let waiting = turn("third [[mock:text three]]");
    let dropped = turn("fourth [[mock:text four]]");
    let standing = |id: &str| {
        let view = browser.get(&format!("/threads/{thread}")).unwrap();
        let messages = view["messages"].as_array().unwrap().clone();
        messages.into_iter().find(|m| m["id"] == id).unwrap()["status"].clone()
    };
    assert_eq!(
        (standing(&waiting), standing(&dropped)),
        (json!("queued"), json!("queued"))
    );
    // A thread under an answer is not removed, and nothing in it replaced.
    let removed = browser
        .ask(&format!("DELETE /api/v1/threads/{thread}"), b"")
        .unwrap();
    assert_eq!(code(&removed), (409, "running".into()));
    let stop = |body: Value| {
        browser
            .change("POST", &format!("/threads/{thread}/cancel"), &body)
            .unwrap()
            .status
    };
    assert_eq!(stop(json!({ "messageId": dropped })), 202);
    assert_eq!(standing(&dropped), "cancelled");
    assert_eq!(stop(json!({})), 202);
    assert_eq!(
        browser.finished(&thread, &hanging).unwrap()["status"],
        "cancelled"
    );
    assert_eq!(
        browser.finished(&thread, &waiting).unwrap()["text"],
        "three"
    );
    assert_eq!(stop(json!({})), 404);

    // Edited and resent: what followed is gone, also for the agent.
    let view = browser.get(&format!("/threads/{thread}")).unwrap();
    let second = view["messages"][2]["id"].as_str().unwrap();
    let wish = json!({ "text": "better [[mock:text new]]", "replaces": second });
    let again = browser.turn(&thread, &wish).unwrap();
    let done = browser.finished(&thread, &again).unwrap();
    assert_eq!(done["text"], "new");
    let view = browser.get(&format!("/threads/{thread}")).unwrap();
    let texts: Vec<_> = view["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        [
            "first [[mock:text one]]",
            "one",
            "better [[mock:text new]]",
            "new"
        ]
    );
    let asked = format!("{:?}", model.last().unwrap());
    assert!(
        asked.contains("first") && !asked.contains("third"),
        "{asked}"
    );
    let record = daemon.show(done["runId"].as_str().unwrap()).unwrap();
    assert_eq!(record["conversationId"], format!("web:{thread}:1"));
    // The title is the first message's until a person gives one.
    assert!(
        view["thread"]["title"]
            .as_str()
            .unwrap()
            .starts_with("first")
    );
    let rename = json!({ "title": "Mine", "archived": true, "read": true });
    let edited = browser
        .change("PATCH", &format!("/threads/{thread}"), &rename)
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(
        (&edited["title"], &edited["titleLocked"], &edited["unread"]),
        (&json!("Mine"), &json!(true), &json!(false))
    );
    assert_eq!(browser.get("/threads").unwrap()["threads"], json!([]));
    let archived = browser.get("/threads?state=archived").unwrap();
    assert_eq!(archived["threads"][0]["id"], thread.as_str());
    // Search, also for the beginning of a word.
    let hits = browser.get("/search?q=bett").unwrap();
    assert_eq!(hits["hits"][0]["threadId"], thread.as_str());
    let words: Vec<_> = hits["hits"][0]["snippet"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["hit"] == true)
        .collect();
    assert_eq!(words[0]["text"], "better");
    assert_eq!(browser.get("/search?q=third").unwrap()["hits"], json!([]));
    assert_eq!(
        browser
            .ask(&format!("DELETE /api/v1/threads/{thread}"), b"")
            .unwrap()
            .status,
        204
    );
    assert_eq!(browser.get("/search?q=bett").unwrap()["hits"], json!([]));
}

#[test]
fn files_go_in_and_come_out_verified() {
    let model = Model::start().unwrap();
    let mut daemon = start(&model);
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let content = b"a,b\n1,2\n";
    let wish = json!({ "name": "in.csv", "mediaType": "text/csv", "bytes": content.len() });
    let upload = browser.change("POST", "/uploads", &wish).unwrap();
    assert_eq!(upload.status, 201);
    let upload = upload.json().unwrap()["id"].as_str().unwrap().to_owned();
    let put = browser
        .ask(&format!("PUT /api/v1/uploads/{upload}/content"), content)
        .unwrap();
    let hash: String = Sha256::digest(content)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(put.json().unwrap()["sha256"], hash.as_str());
    let unknown = json!({ "text": "x", "attachments": ["nope"] });
    let refused = browser
        .change("POST", &format!("/threads/{thread}/turns"), &unknown)
        .unwrap();
    assert_eq!(code(&refused), (400, "upload_missing".into()));
    // The run finds the file and publishes a copy under a hostile name.
    let name = "<b>ä.csv";
    let steps = format!(
        "{} {} [[mock:text done]]",
        bash("cp $TMPDIR/attachments/1-in.csv out.csv"),
        call(
            "PublishReplyFile",
            &json!({ "path": "out.csv", "name": name })
        ),
    );
    let wish = json!({ "text": steps, "attachments": [upload] });
    let reply = browser.turn(&thread, &wish).unwrap();
    let done = browser.finished(&thread, &reply).unwrap();
    let part = &done["parts"][0];
    assert_eq!(
        (&part["type"], &part["sha256"]),
        (&json!("attachment"), &json!(hash)),
        "{done}"
    );
    assert!(part["expiresAt"].is_i64());
    let view = browser.get(&format!("/threads/{thread}")).unwrap();
    assert_eq!(view["messages"][0]["attachments"][0]["name"], "in.csv");

    let download = part["download"].as_str().unwrap().to_owned();
    let file = browser.ask(&format!("GET {download}"), b"").unwrap();
    assert_eq!((file.status, &*file.body), (200, &content[..]));
    for (header_name, expected) in [
        ("content-type", "application/octet-stream"),
        ("accept-ranges", "none"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "private, no-store"),
        ("cross-origin-resource-policy", "same-origin"),
        ("content-length", "8"),
        (
            "content-disposition",
            "attachment; filename*=utf-8''%3cb%3e%c3%a4.csv",
        ),
    ] {
        assert_eq!(header(&file, header_name), Some(expected), "{header_name}");
    }
    // Not one byte without the right session, message, part and hash.
    let (path, query) = download.split_once('?').unwrap();
    let other = browser
        .turn(
            &browser.thread().unwrap(),
            &json!({ "text": "[[mock:text x]]" }),
        )
        .unwrap();
    let id = part["id"].as_str().unwrap();
    let refusals = [
        (
            format!("{path}?integrity=sha256%3A00"),
            (409, "artifact_integrity_failed"),
        ),
        (path.to_owned(), (400, "invalid_request")),
        (
            format!("/api/v1/messages/{other}/attachments/{id}?{query}"),
            (404, "forbidden"),
        ),
        (
            format!("/api/v1/messages/nope/attachments/{id}?{query}"),
            (404, "artifact_missing"),
        ),
        (path.replace(id, "nope") + "?" + query, (404, "forbidden")),
    ];
    for (path, (status, expected)) in refusals {
        let refused = browser.ask(&format!("GET {path}"), b"").unwrap();
        assert_eq!(code(&refused), (status, expected.to_owned()), "{path}");
    }
    // The list of all files leads to the same bytes, under the same rules.
    let listed = browser.get("/operator/artifacts").unwrap()["artifacts"][0].clone();
    assert_eq!(
        listed["deliveryConversationId"],
        format!("web:{thread}"),
        "{listed}"
    );
    let text = |name: &str| listed[name].as_str().unwrap();
    let (file_id, run) = (text("id"), text("runId"));
    let kept = |thread: &str, file: &str, run: &str| {
        let path = format!("GET /api/v1/threads/{thread}/files/{file}?run={run}&{query}");
        browser.ask(&path, b"").unwrap()
    };
    let again = kept(&thread, file_id, run);
    assert_eq!((again.status, &*again.body), (200, &content[..]));
    let disposition = "content-disposition";
    assert_eq!(header(&again, disposition), header(&file, disposition));
    for (refused, expected) in [
        (kept("nope", file_id, run), (404, "artifact_missing")),
        (kept(&thread, "nope", run), (404, "artifact_missing")),
        (kept(&thread, file_id, "nope"), (404, "artifact_missing")),
        (
            kept(&thread, file_id, &format!("{run}&app=x")),
            (404, "artifact_missing"),
        ),
    ] {
        assert_eq!(code(&refused), (expected.0, expected.1.to_owned()));
    }
    let path = format!("GET /api/v1/threads/{thread}/files/{file_id}?run={run}");
    let refused = browser.ask(&path, b"").unwrap();
    assert_eq!(code(&refused), (400, "invalid_request".into()));
    let path = format!("{path}&integrity=sha256%3A00");
    let refused = browser.ask(&path, b"").unwrap();
    assert_eq!(code(&refused), (409, "artifact_integrity_failed".into()));
    let host = format!("host: {}\r\n", &browser.base()[7..]);
    let foreign = format!("{host}cookie: mono_session={}\r\n", "0".repeat(64));
    let refused = send(browser.base(), &format!("GET {download}"), &foreign, b"").unwrap();
    assert_eq!(code(&refused), (401, "login_required".into()));
    // The owner of the files is drained although the console holds a channel to it; the next one is
    // asked by a new channel.
    assert!(
        daemon
            .run(&["worker", "drain", "artifact"])
            .unwrap()
            .status
            .success()
    );
    let parked = |status: &Value| {
        let workers = status["workers"].as_array();
        workers
            .into_iter()
            .flatten()
            .any(|w| w["role"] == "artifact" && w["state"] == "parked")
    };
    daemon.wait_until("parked", parked).unwrap();
    assert!(
        daemon
            .run(&["worker", "unpark", "artifact"])
            .unwrap()
            .status
            .success()
    );
    daemon.wait_healthy().unwrap();
    let again = browser.ask(&format!("GET {download}"), b"").unwrap();
    assert_eq!((again.status, &*again.body), (200, &content[..]));
    // A changed file is told from the one that was published.
    let kept = walk(daemon.folder()).into_iter().find(|path| {
        path.ends_with("content") && std::fs::read(path).is_ok_and(|bytes| bytes == content)
    });
    std::fs::write(kept.unwrap(), b"a,b\n1,3\n").unwrap();
    let tampered = browser.ask(&format!("GET {download}"), b"").unwrap();
    assert_eq!(code(&tampered), (409, "artifact_integrity_failed".into()));
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => out.extend(walk(&path)),
            _ => out.push(path),
        }
    }
    out
}

#[test]
fn a_revoked_session_ends_with_its_streams() {
    let model = Model::start().unwrap();
    let daemon = start(&model);
    let (stays, goes) = (
        Browser::log_in(&daemon).unwrap(),
        Browser::log_in(&daemon).unwrap(),
    );
    let mut events = goes.events("/events").unwrap();
    let id = goes.get("/bootstrap").unwrap()["session"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let listed = daemon.json(&["console", "sessions"]).unwrap();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("hash"));
    assert!(
        daemon
            .run(&["console", "revoke", &id])
            .unwrap()
            .status
            .success()
    );
    assert!(
        !daemon
            .run(&["console", "revoke", &id])
            .unwrap()
            .status
            .success()
    );
    while events.following().unwrap().is_some() {}
    assert!(goes.get("/threads").is_err());
    let own = stays.get("/sessions").unwrap();
    assert_eq!(
        (
            own["sessions"].as_array().unwrap().len(),
            &own["sessions"][0]["current"]
        ),
        (1, &json!(true))
    );
    assert_eq!(
        stays.change("POST", "/logout", &json!({})).unwrap().status,
        204
    );
    assert!(stays.get("/threads").is_err());
    // Streams have a bound, and say so.
    let many = Browser::log_in(&daemon).unwrap();
    let open: Vec<_> = (0..64).map(|_| many.events("/events").unwrap()).collect();
    let refused = many.ask("GET /api/v1/events", b"").unwrap();
    assert_eq!(code(&refused), (503, "sse_capacity".into()));
    drop(open);
    wait_for("a stream is free again", || many.events("/events").is_ok()).unwrap();
}

#[test]
fn the_page_comes_compressed_to_those_who_take_it() {
    let daemon = start(&Model::start().unwrap());
    let browser = Browser::log_in(&daemon).unwrap();
    let page = browser.ask("GET /", b"").unwrap();
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let script = page.split("src=\"").nth(1).unwrap();
    let script = script.split('"').next().unwrap();
    let plain = browser.ask(&format!("GET {script}"), b"").unwrap();
    let headers = browser.headers() + "accept-encoding: gzip, br\r\n";
    let small = send(browser.base(), &format!("GET {script}"), &headers, b"").unwrap();
    assert_eq!((plain.status, small.status), (200, 200));
    assert_eq!(header(&small, "content-encoding"), Some("gzip"));
    assert_eq!(header(&plain, "content-encoding"), None);
    for answer in [&plain, &small] {
        assert_eq!(header(answer, "vary"), Some("accept-encoding"));
    }
    assert!(small.body.starts_with(b"\x1f\x8b") && small.body.len() * 2 < plain.body.len());
}

#[test]
fn a_console_for_other_machines_needs_names_and_a_disabled_one_has_no_links() {
    let mut setup = Setup::new().unwrap();
    setup.config["console"] = json!({ "enabled": true, "port": 0, "host": "0.0.0.0" });
    let (status, words) = setup.refused().unwrap();
    assert!(
        status != 0 && words.contains("console.allowedHosts"),
        "{words}"
    );
    let daemon = Setup::new().unwrap().start().unwrap();
    let out = daemon.run(&["console", "open"]).unwrap();
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && words.contains("console.enabled"),
        "{words}"
    );
}
