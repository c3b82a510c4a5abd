#![allow(clippy::unwrap_used)]

use super::super::shown::shown;
use super::*;
use crate::runs::tests::app;
use ipc_proto::RunId;
use ipc_proto::chat::Usage;
use ipc_proto::console::Author;
use proptest::prelude::*;

fn live() -> Live {
    Live::new(Message {
        id: "m".into(),
        role: Author::Assistant,
        created_at: 0,
        text: String::new(),
        status: Standing::Queued,
        run_id: None,
        attachments: vec![],
        parts: vec![],
        activity: vec![],
        failure: None,
        usage: None,
        truncated: false,
    })
}

fn say(live: &mut Live, text: &str) {
    live.event(RunEvent::Append { text: text.into() }, 1);
}

fn thought(live: &mut Live, text: &str) {
    live.event(RunEvent::Thought { text: text.into() }, 1);
}

fn start(live: &mut Live, id: &str) {
    let started = RunEvent::ToolStarted {
        id: id.into(),
        name: "Read".into(),
        arguments: "{}".into(),
    };
    live.event(started, 1);
}

fn end(live: &mut Live, id: &str, preview: &str, ok: bool) {
    let completed = RunEvent::ToolCompleted {
        id: id.into(),
        name: "Read".into(),
        ok,
        preview: preview.into(),
        duration_ms: 1,
    };
    live.event(completed, 2);
}

/// What a page makes of frames.
#[derive(Default, Debug, PartialEq)]
struct Page {
    state: String,
    text: String,
    steps: Vec<Value>,
    apps: Vec<Value>,
    inputs: Vec<Value>,
    end: Option<Value>,
    seen: u64,
}

impl Page {
    fn read(&mut self, frames: Vec<Numbered>) {
        for frame in frames {
            let data: Value = serde_json::from_str(&frame.data).unwrap();
            let text = || data["text"].as_str().unwrap().to_owned();
            match frame.name {
                "status" => self.state = data["state"].as_str().unwrap().to_owned(),
                "append" => self.text.push_str(&text()),
                "replace" => self.text = text(),
                "event" => {
                    let step = &data["activity"];
                    match self.steps.iter_mut().find(|own| own["id"] == step["id"]) {
                        Some(own) => *own = step.clone(),
                        None => self.steps.push(step.clone()),
                    }
                }
                "view" => {
                    if !self.apps.contains(&data["part"]) {
                        self.apps.push(data["part"].clone());
                    }
                }
                "input" => self.inputs.push(data["arguments"].clone()),
                "finish" => self.end = Some(data["message"].clone()),
                other => panic!("{other}"),
            }
            self.seen = frame.number.unwrap_or(self.seen);
        }
    }

    fn follow(&mut self, live: &Live) {
        loop {
            let frames = live.since(self.seen, 3);
            if frames.is_empty() {
                return;
            }
            self.read(frames);
        }
    }
}

fn page(live: &Live) -> Page {
    let mut page = Page::default();
    page.follow(live);
    page
}

#[test]
fn what_a_server_says_of_its_work_is_one_step_for_each_key() {
    let mut live = live();
    live.begin();
    let mut post = |key: &str, message: &str, state, now| {
        let (server, key, message) = ("work".into(), key.into(), message.into());
        let event = RunEvent::Posted {
            server,
            key,
            message,
            state,
        };
        live.event(event, now);
        page(&live).steps
    };
    post("a", "1 of 2", ProgressState::Running, 1);
    post("b", "begun", ProgressState::Running, 2);
    let steps = post("a", "2 of 2", ProgressState::Completed, 3);
    assert_eq!(steps.len(), 2);
    assert_eq!(
        [
            &steps[0]["name"],
            &steps[0]["title"],
            &steps[0]["text"],
            &steps[0]["endedAt"]
        ],
        [
            &json!("server_progress"),
            &json!("work"),
            &json!("2 of 2"),
            &json!(3)
        ]
    );
    assert_eq!(steps[1]["endedAt"], Value::Null);
    let steps = post("b", "no disk", ProgressState::Failed, 4);
    assert_eq!(
        (&steps[1]["isError"], &steps[1]["endedAt"]),
        (&json!(true), &json!(4))
    );
}

#[test]
fn a_turn_is_told_from_waiting_to_its_end() {
    let mut live = live();
    assert_eq!(page(&live).state, "queued");
    live.begin();
    let run = RunId::parse("r1").unwrap();
    live.event(RunEvent::Started { run }, 1);
    thought(&mut live, "Hm.");
    start(&mut live, "c1");
    let progress = RunEvent::ToolProgress {
        id: "c1".into(),
        progress: 1.0,
        total: Some(2.0),
        message: None,
    };
    live.event(progress, 1);
    assert_eq!(page(&live).steps[1]["title"], "1 of 2");
    end(&mut live, "c1", "done", false);
    say(&mut live, "Hel");
    live.event(RunEvent::Replace { text: "A".into() }, 1);
    say(&mut live, "nswer");
    let mut early = page(&live);
    assert_eq!((&*early.state, &*early.text), ("running", "Answer"));
    let [thought, call] = &early.steps[..] else {
        panic!("{early:?}")
    };
    assert_eq!(
        (&thought["text"], &thought["endedAt"]),
        (&json!("Hm."), &json!(1))
    );
    assert_eq!(
        (&call["result"], &call["isError"], &call["endedAt"]),
        (&json!("done"), &json!(true), &json!(2))
    );
    let done = Finished {
        text: "Answer".into(),
        parts: json!([{ "type": "unknown" }, {
            "type": "attachment", "id": "p", "name": "a b.csv", "mediaType": "text/csv", "sizeBytes": 3,
            "reference": { "scheme": "mono-agent-artifact", "id": "x" },
            "integrityId": "sha256:00", "expiresAt": "1970-01-01T00:00:01Z",
        }]),
        usage: Usage::default(),
        model: "m".into(),
    };
    live.succeed(done, 3);
    let message = shown(live.message());
    live.close(message.clone());
    early.follow(&live);
    assert_eq!(early.end.as_ref(), Some(&message));
    assert_eq!(page(&live).end, Some(message.clone()));
    assert_eq!(
        (&message["status"], &message["runId"]),
        (&json!("succeeded"), &json!("r1"))
    );
    assert_eq!(message["parts"][0]["code"], "unsupported_destination");
    assert_eq!(
        message["parts"][1],
        json!({
            "type": "attachment", "messageId": "m", "id": "p", "name": "a b.csv",
            "mediaType": "text/csv", "bytes": 3, "sha256": "00", "integrityId": "sha256:00",
            "expiresAt": 1000, "download": "/api/v1/messages/m/attachments/p?integrity=sha256%3A00",
        })
    );
}

#[test]
fn an_app_is_told_as_soon_as_it_is_there_and_again_to_a_page_that_comes_late() {
    for committed in [true, false] {
        let mut live = live();
        live.begin();
        assert!(live.find_app("a").is_none());
        let apps = [app("a"), app("b")];
        for part in apps.iter().chain([&apps[0]]) {
            live.app(Early::Whole(part.clone()));
        }
        let mut early = page(&live);
        assert_eq!(early.apps.len(), 2, "{early:?}");
        assert_eq!(early.apps[0]["app"], "/api/v1/messages/m/apps/a");
        assert_eq!(live.find_app("b"), Some(&apps[1]));
        // Nothing of it is kept with an answer that is not whole.
        assert!(live.message().parts.is_empty());
        // But where another worker takes over meanwhile, it finds them.
        assert_eq!(live.noted().parts, apps);
        let piece = "x".repeat(64 << 10);
        for _ in 0..=LOG_BYTES / piece.len() {
            live.event(
                RunEvent::Replace {
                    text: piece.clone(),
                },
                1,
            );
        }
        assert_eq!(page(&live).apps, early.apps, "by the whole state");
        if committed {
            let done = Finished {
                parts: serde_json::to_value(&apps).unwrap(),
                ..Finished::default()
            };
            live.succeed(done, 3);
        } else {
            live.fail(RunFailure::new("worker_lost", "Gone."), 3);
        }
        let message = shown(live.message());
        let parts = message["parts"].as_array().unwrap();
        assert_eq!(live.find_app("a").is_some(), committed);
        if committed {
            assert_eq!(*parts, early.apps, "the same ones, in the same order");
        } else {
            assert!(parts.is_empty());
        }
        live.app(Early::Whole(app("c")));
        assert!(live.find_app("c").is_none(), "too late");
        live.close(message.clone());
        early.follow(&live);
        assert_eq!(early.end, Some(message));
    }
}

#[test]
fn an_app_is_told_stage_by_stage_and_of_its_input_the_newest_to_a_page_that_comes_late() {
    let mut live = live();
    live.begin();
    let input = |live: &mut Live, id: &str, n: u32| {
        live.app(Early::Input {
            id: id.into(),
            arguments: object(json!({ "n": n })),
        });
    };
    input(&mut live, "a", 0);
    live.app(Early::Draft(app("a")));
    live.app(Early::Draft(app("b")));
    let mut early = page(&live);
    assert!(live.find_app("a").is_some() && early.inputs.is_empty());
    for n in 1..=3 {
        input(&mut live, "a", n);
        input(&mut live, "b", 10 * n);
        say(&mut live, "x");
        early.follow(&live);
    }
    assert_eq!(early.inputs.len(), 6);
    let told = |live: &Live| page(live).inputs;
    assert_eq!(told(&live), [json!({ "n": 3 }), json!({ "n": 30 })]);
    let stages = |page: &Page| -> Vec<Value> {
        page.apps.iter().map(|part| part["stage"].clone()).collect()
    };
    live.app(Early::Called { id: "a".into() });
    input(&mut live, "a", 9);
    live.app(Early::Gone { id: "b".into() });
    early.follow(&live);
    assert_eq!(early.inputs.len(), 6, "none after the call");
    live.app(Early::Whole(app("a")));
    live.app(Early::Gone { id: "a".into() });
    live.app(Early::Whole(app("a")));
    early.follow(&live);
    let all = [
        json!("draft"),
        json!("draft"),
        json!("called"),
        json!("gone"),
        Value::Null,
    ];
    assert_eq!(stages(&early), all);
    assert!(live.find_app("b").is_none());
    // By the whole state: only what is there.
    let piece = "x".repeat(64 << 10);
    live.app(Early::Draft(app("c")));
    input(&mut live, "c", 5);
    for _ in 0..=LOG_BYTES / piece.len() {
        live.event(
            RunEvent::Replace {
                text: piece.clone(),
            },
            1,
        );
    }
    let late = page(&live);
    assert_eq!(stages(&late), [Value::Null, json!("draft")]);
    assert_eq!(late.inputs, [json!({ "n": 5 })]);
}

#[test]
fn no_more_apps_are_told_early_than_an_answer_can_have() {
    let mut live = live();
    live.begin();
    for n in 0..=MAX_PARTS {
        live.app(Early::Whole(app(&n.to_string())));
    }
    assert_eq!(page(&live).apps.len(), MAX_PARTS);
}

#[test]
fn a_failure_keeps_what_was_said() {
    for (cancelled, status) in [(false, "failed"), (true, "cancelled")] {
        let mut live = live();
        say(&mut live, "half");
        start(&mut live, "c1");
        let failure = RunFailure {
            cancelled,
            ..RunFailure::new("worker_lost", "Gone.")
        };
        live.fail(failure, 9);
        let message = shown(live.message());
        assert_eq!(
            (&message["text"], &message["status"]),
            (&json!("half"), &json!(status))
        );
        assert_eq!(
            message["failure"],
            json!({ "kind": "worker_lost", "message": "Gone." })
        );
        assert_eq!(message["activity"][0]["endedAt"], 9);
    }
}

#[test]
fn a_call_id_that_is_used_again_is_another_call() {
    let mut live = live();
    for result in ["one", "two"] {
        start(&mut live, "c");
        end(&mut live, "c", result, true);
    }
    end(&mut live, "never", "x", true);
    let results: Vec<_> = live
        .message()
        .activity
        .iter()
        .map(|step| step.result.clone())
        .collect();
    assert_eq!(results, [Some("one".into()), Some("two".into())]);
}

#[test]
fn five_thousand_steps_and_ten_megabytes_stay_bounded() {
    let mut live = live();
    let mut slow = page(&live);
    for n in 0..5_000 {
        start(&mut live, &n.to_string());
        end(&mut live, &n.to_string(), &"x".repeat(20_000), true);
    }
    for _ in 0..400 {
        say(&mut live, &"y".repeat(32 * 1024));
    }
    thought(&mut live, &"z".repeat(100_000));
    assert!(
        live.log_bytes <= LOG_BYTES + 256 * 1024,
        "{}",
        live.log_bytes
    );
    let message = live.message();
    assert_eq!(
        (message.activity.len(), message.text.len()),
        (MAX_ACTIVITY, MAX_TEXT)
    );
    assert!(message.truncated && message.activity.last().unwrap().truncated);
    // Who fell behind gets the state, and goes on from there.
    slow.follow(&live);
    assert_eq!((&slow.text, slow.seen), (&message.text, live.last()));
    assert_eq!(
        slow.steps.last(),
        Some(&serde_json::to_value(message.activity.last()).unwrap())
    );
    live.fail(RunFailure::new("k", "m"), 1);
    live.close(shown(live.message()));
    slow.follow(&live);
    let end = slow.end.unwrap();
    assert!(end["truncated"] == true && end["activity"] == json!([]));
    assert!(page(&live).end.is_some());
}

#[test]
fn a_number_of_another_life_starts_over() {
    let mut live = live();
    say(&mut live, "text");
    let mut page = Page {
        seen: 99,
        ..Page::default()
    };
    page.read(live.since(99, 10));
    assert_eq!((&*page.text, page.seen), ("text", live.last()));
}

proptest! {
    #[test]
    fn whoever_follows_ends_with_the_same_page(
        events in proptest::collection::vec((0..6_u8, "[a-z\"\n]{0,40}", 0..3_u8), 0..60),
        looks in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let mut live = live();
        let mut follower = Page::default();
        for ((kind, text, id), looks) in events.into_iter().zip(looks) {
            let id = format!("c{id}");
            match kind {
                0 => say(&mut live, &text),
                1 => thought(&mut live, &text),
                2 => live.event(RunEvent::Replace { text }, 1),
                3 => start(&mut live, &id),
                4 => end(&mut live, &id, &text, true),
                _ => live.event(RunEvent::Warning { code: id, message: text }, 1),
            }
            if looks {
                follower.follow(&live);
            }
        }
        live.fail(RunFailure::new("k", "m"), 7);
        live.close(shown(live.message()));
        follower.follow(&live);
        prop_assert_eq!(&follower, &page(&live));
        let mut whole = Page::default();
        whole.read(live.whole());
        prop_assert_eq!(&whole.text, &live.message().text);
        prop_assert_eq!(&whole.end, &follower.end);
        prop_assert_eq!(&follower.text, &live.message().text);
    }
}

#[test]
fn calls_that_never_end_are_remembered_up_to_a_bound() {
    let mut live = live();
    start(&mut live, &"x".repeat(MAX_CALL_ID + 1));
    assert!(live.calls.is_empty());
    for n in 0..OPEN_CALLS + 50 {
        start(&mut live, &format!("c{n}"));
    }
    assert_eq!(live.calls.len(), OPEN_CALLS);
    // One that is over makes room; the end of one that is not known changes nothing.
    end(&mut live, "c0", "done", true);
    end(&mut live, &format!("c{}", OPEN_CALLS + 1), "done", true);
    assert_eq!(live.calls.len(), OPEN_CALLS - 1);
}

#[test]
fn work_that_goes_on_is_a_step_with_the_ids_of_its_continuations() {
    let mut live = live();
    let continuations = vec!["c1".to_owned(), "x".repeat(1_000)];
    live.event(RunEvent::Background { continuations }, 7);
    let step = &live.message().activity[0];
    assert_eq!(step.name.as_deref(), Some("background_work"));
    assert_eq!(step.ended_at, Some(7));
    let ids: Vec<String> = serde_json::from_str(step.arguments.as_deref().unwrap()).unwrap();
    assert_eq!(ids, ["c1".to_owned(), "x".repeat(MAX_NAME)]);
}
