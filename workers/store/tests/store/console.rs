use crate::kit::*;
use ipc_proto::Until;
use ipc_proto::console::{
    Activity, ActivityKind, Ask, Attachment, Author, Begun, Failure, Found, MAX_SESSIONS, MAX_TEXT,
    Message, SearchPage, Session, Standing, Thread, ThreadPage, ThreadView,
};
use mono_store::{Limits, Store, StoreError, console};
use serde::de::DeserializeOwned;
use std::time::Duration;

fn message(id: &str, role: Author, text: &str, status: Standing) -> Message {
    Message {
        id: id.into(),
        role,
        created_at: 1,
        text: text.into(),
        status,
        run_id: None,
        attachments: vec![],
        parts: vec![],
        activity: vec![],
        failure: None,
        usage: None,
        truncated: false,
    }
}

pub(crate) fn person(id: &str, text: &str) -> Box<Message> {
    Box::new(message(id, Author::User, text, Standing::Succeeded))
}

pub(crate) fn reply(id: &str, text: &str, status: Standing) -> Box<Message> {
    Box::new(message(id, Author::Assistant, text, status))
}

pub(crate) fn tried<T: DeserializeOwned>(
    store: &mut Store,
    ask: Ask,
    now: i64,
) -> Result<T, StoreError> {
    let answer = store.console(ask, 7, now)?;
    Ok(serde_json::from_value(answer).unwrap())
}

pub(crate) fn asked<T: DeserializeOwned>(store: &mut Store, ask: Ask, now: i64) -> T {
    tried(store, ask, now).unwrap()
}

pub(crate) fn new(store: &mut Store, id: &str, now: i64) -> Thread {
    asked(store, Ask::NewThread { id: id.into() }, now)
}

pub(crate) fn begin(thread: &str, n: &str, text: &str, replaces: Option<&str>) -> Ask {
    Ask::Begin {
        thread: thread.into(),
        user: person(&format!("u{n}"), text),
        reply: reply(&format!("a{n}"), "", Standing::Queued),
        replaces: replaces.map(str::to_owned),
    }
}

pub(crate) fn save(n: &str, text: &str, status: Standing) -> Ask {
    Ask::Save {
        message: reply(&format!("a{n}"), text, status),
    }
}

pub(crate) fn show(store: &mut Store, thread: &str) -> ThreadView {
    let ask = Ask::ShowThread {
        id: thread.into(),
        before: None,
        limit: 100,
    };
    asked(store, ask, 0)
}

fn ids(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| &*message.id).collect()
}

fn list(store: &mut Store, archived: bool) -> Vec<String> {
    let ask = Ask::Threads {
        archived,
        limit: 100,
        cursor: None,
    };
    let page: ThreadPage = asked(store, ask, 0);
    page.threads.into_iter().map(|thread| thread.id).collect()
}

pub(crate) fn edit(
    id: &str,
    title: Option<&str>,
    archived: Option<bool>,
    read: Option<bool>,
) -> Ask {
    Ask::EditThread {
        id: id.into(),
        title: title.map(str::to_owned),
        archived,
        read,
    }
}

#[test]
fn a_thread_goes_from_empty_to_answered_and_read() {
    let dir = state();
    let mut store = open(dir.path());
    let made = new(&mut store, "t1", 10);
    assert_eq!(
        (&*made.title, made.running, made.created_at),
        ("", false, 10)
    );
    asked::<serde_json::Value>(&mut store, begin("t1", "1", " What is up?\nmore", None), 20);
    let view = show(&mut store, "t1");
    assert_eq!(view.thread.title, "What is up?");
    assert!(view.thread.running && !view.thread.unread && view.branch == 0);
    assert_eq!(ids(&view.messages), ["u1", "a1"]);

    let mut done = reply("a1", "All is well.", Standing::Succeeded);
    done.run_id = Some("r1".into());
    done.activity.push(Activity {
        id: "c1".into(),
        kind: ActivityKind::Tool,
        name: Some("Read".into()),
        title: None,
        arguments: Some("{}".into()),
        result: None,
        is_error: false,
        started_at: 1,
        ended_at: Some(2),
        truncated: true,
        text: None,
    });
    done.failure = Some(Failure {
        kind: "k".into(),
        message: "m".into(),
    });
    asked::<()>(
        &mut store,
        Ask::Save {
            message: done.clone(),
        },
        30,
    );
    let found: Found = asked(&mut store, Ask::ShowMessage { id: "a1".into() }, 0);
    assert_eq!((&*found.thread, &found.message), ("t1", &*done));
    let view = show(&mut store, "t1");
    assert!(view.thread.unread && !view.thread.running);
    assert_eq!(view.thread.updated_at, 30);

    let read: Thread = asked(&mut store, edit("t1", None, None, Some(true)), 40);
    assert!(!read.unread && !read.title_locked);
    // What is said again of an ended answer is no news.
    asked::<()>(
        &mut store,
        save("1", "All is well.", Standing::Succeeded),
        50,
    );
    assert!(!show(&mut store, "t1").thread.unread);
}

#[test]
fn a_persons_title_stays() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    let named: Thread = asked(&mut store, edit("t1", Some(" My  title\n"), None, None), 2);
    assert_eq!((&*named.title, named.title_locked), ("My title", true));
    asked::<serde_json::Value>(&mut store, begin("t1", "1", "other", None), 3);
    assert_eq!(show(&mut store, "t1").thread.title, "My title");
    assert!(tried::<Thread>(&mut store, edit("t1", Some(" "), None, None), 4).is_err());
    let long: Thread = asked(
        &mut store,
        edit("t1", Some(&"x".repeat(500)), None, None),
        5,
    );
    assert_eq!(long.title.chars().count(), 80);
    // A message that is a file alone is called like the file.
    new(&mut store, "t2", 6);
    let mut user = person("u2", "");
    user.attachments.push(Attachment {
        id: "f".into(),
        name: "a.csv".into(),
        media_type: "text/csv".into(),
        bytes: 3,
    });
    let reply = reply("a2", "", Standing::Running);
    let ask = Ask::Begin {
        thread: "t2".into(),
        user,
        reply,
        replaces: None,
    };
    asked::<serde_json::Value>(&mut store, ask, 7);
    assert_eq!(show(&mut store, "t2").thread.title, "a.csv");
}

#[test]
fn lists_are_in_order_of_activity_and_paged() {
    let dir = state();
    let mut store = open(dir.path());
    for n in 0..7 {
        // Two of the same moment, to be told apart by their order.
        new(&mut store, &format!("t{n}"), n / 2);
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let ask = Ask::Threads {
            archived: false,
            limit: 3,
            cursor,
        };
        let page: ThreadPage = asked(&mut store, ask, 0);
        seen.extend(page.threads.into_iter().map(|thread| thread.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]);
    asked::<Thread>(&mut store, edit("t3", None, Some(true), None), 8);
    assert_eq!(list(&mut store, true), ["t3"]);
    // What is written in takes a thread out again, to the front.
    asked::<serde_json::Value>(&mut store, begin("t3", "1", "hi", None), 9);
    assert_eq!(list(&mut store, false)[0], "t3");
    for cursor in ["", "t", "m1", "t1", "t1-2-3", "t01-2", "r1", "tzz-1"] {
        let ask = Ask::Threads {
            archived: false,
            limit: 3,
            cursor: Some(cursor.into()),
        };
        assert!(tried::<ThreadPage>(&mut store, ask, 0).is_err(), "{cursor}");
    }
    for limit in [0, 101] {
        let ask = Ask::Threads {
            archived: false,
            limit,
            cursor: None,
        };
        assert!(tried::<ThreadPage>(&mut store, ask, 0).is_err(), "{limit}");
    }
}

#[test]
fn messages_are_paged_from_the_latest() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    for n in 1..=4 {
        let n = n.to_string();
        asked::<serde_json::Value>(&mut store, begin("t1", &n, "q", None), 2);
        asked::<()>(&mut store, save(&n, "a", Standing::Succeeded), 3);
    }
    let page = |store: &mut Store, before: Option<String>| -> ThreadView {
        asked(
            store,
            Ask::ShowThread {
                id: "t1".into(),
                before,
                limit: 3,
            },
            0,
        )
    };
    let last = page(&mut store, None);
    assert_eq!(ids(&last.messages), ["a3", "u4", "a4"]);
    let middle = page(&mut store, last.previous);
    assert_eq!(ids(&middle.messages), ["u2", "a2", "u3"]);
    let first = page(&mut store, middle.previous);
    assert_eq!(ids(&first.messages), ["u1", "a1"]);
    assert_eq!(first.previous, None);
}

#[test]
fn a_page_of_large_messages_is_bounded() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    let large = "x".repeat(MAX_TEXT);
    for n in 0..20 {
        let n = n.to_string();
        asked::<serde_json::Value>(&mut store, begin("t1", &n, "q", None), 2);
        asked::<()>(&mut store, save(&n, &large, Standing::Succeeded), 3);
    }
    let view = show(&mut store, "t1");
    let bytes: usize = view.messages.iter().map(|message| message.text.len()).sum();
    assert!(bytes <= 16 << 20 && view.previous.is_some(), "{bytes}");
    assert_eq!(view.messages.last().unwrap().id, "a19");
}

#[test]
fn an_edited_message_replaces_what_followed() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    for n in ["1", "2", "3"] {
        asked::<serde_json::Value>(&mut store, begin("t1", n, "forgotten", None), 2);
        if n == "3" {
            // Not while an answer is written.
            let edited =
                tried::<serde_json::Value>(&mut store, begin("t1", "4", "x", Some("u2")), 3);
            assert!(matches!(edited, Err(StoreError::ReplyOpen)), "{edited:?}");
        }
        asked::<()>(&mut store, save(n, "answer", Standing::Succeeded), 3);
    }
    let begun: Begun = asked(&mut store, begin("t1", "4", "better", Some("u2")), 4);
    assert_eq!(begun.branch, 1);
    assert_eq!(
        ids(&show(&mut store, "t1").messages),
        ["u1", "a1", "u4", "a4"]
    );
    // Only a person's message of the same thread can be replaced.
    asked::<()>(&mut store, save("4", "", Standing::Cancelled), 5);
    new(&mut store, "t2", 5);
    for (thread, replaced) in [("t1", "a1"), ("t1", "u3"), ("t2", "u1")] {
        let other =
            tried::<serde_json::Value>(&mut store, begin(thread, "5", "x", Some(replaced)), 6);
        assert!(
            matches!(other, Err(StoreError::NotThere("message"))),
            "{other:?}"
        );
    }
    assert_eq!(found(&mut store, "forgotten"), ["t1", "u1"]);
}

fn found(store: &mut Store, query: &str) -> Vec<String> {
    let ask = Ask::Search {
        query: query.into(),
        limit: 50,
        cursor: None,
    };
    let page: SearchPage = asked(store, ask, 0);
    let name = |hit: ipc_proto::console::Hit| hit.message_id.unwrap_or(hit.thread_id);
    page.hits.into_iter().map(name).collect()
}

#[test]
fn search_finds_titles_and_texts_and_forgets_what_is_gone() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    new(&mut store, "t2", 1);
    asked::<serde_json::Value>(&mut store, begin("t1", "1", "Café prices", None), 2);
    asked::<()>(
        &mut store,
        save("1", "The cafe asks for 3 € each.", Standing::Succeeded),
        3,
    );
    asked::<serde_json::Value>(&mut store, begin("t2", "2", "unrelated", None), 2);
    asked::<()>(&mut store, save("2", "nothing", Standing::Succeeded), 3);
    // The title first; accents and case don't matter; the last word may be unfinished.
    let hits = found(&mut store, "CAFE");
    assert_eq!((hits[0].as_str(), hits.len()), ("t1", 3), "{hits:?}");
    assert_eq!(found(&mut store, "asks eac"), ["a1"]);
    assert_eq!(found(&mut store, "cafe OR nothing"), Vec::<String>::new());
    assert_eq!(found(&mut store, "\" ( *"), Vec::<String>::new());
    let ask = Ask::Search {
        query: "prices".into(),
        limit: 1,
        cursor: None,
    };
    let page: SearchPage = asked(&mut store, ask, 0);
    let pieces: Vec<_> = page.hits[0]
        .snippet
        .iter()
        .map(|s| (&*s.text, s.hit))
        .collect();
    assert_eq!(pieces, [("Café ", false), ("prices", true)]);
    let ask = Ask::Search {
        query: "prices".into(),
        limit: 1,
        cursor: page.next,
    };
    let page: SearchPage = asked(&mut store, ask, 0);
    assert_eq!((page.hits.len(), page.next), (1, None));

    asked::<Thread>(&mut store, edit("t2", Some("renamed"), None, None), 4);
    assert_eq!(found(&mut store, "unrelated"), ["u2"]);
    asked::<()>(&mut store, Ask::RemoveThread { id: "t1".into() }, 5);
    assert_eq!(found(&mut store, "cafe"), Vec::<String>::new());
    let long = Ask::Search {
        query: "x".repeat(1025),
        limit: 1,
        cursor: None,
    };
    assert!(tried::<SearchPage>(&mut store, long, 0).is_err());
    drop(store);
    let db = raw(dir.path());
    for index in ["console_texts", "console_titles"] {
        let check = format!("INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)");
        db.execute(&check, []).unwrap();
    }
}

#[test]
fn what_nobody_will_finish_is_interrupted_with_a_sentence() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    asked::<serde_json::Value>(&mut store, begin("t1", "1", "q", None), 2);
    store.console(begin("t1", "2", "q", None), 8, 2).unwrap();
    assert_eq!(store.interrupt_replies(Some(8)).unwrap(), 1);
    let standing = |store: &mut Store| -> Vec<Standing> {
        show(store, "t1")
            .messages
            .into_iter()
            .map(|m| m.status)
            .collect()
    };
    let told = Standing::Succeeded;
    assert_eq!(
        standing(&mut store),
        [told, Standing::Queued, told, Standing::Interrupted]
    );
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(store.interrupt_replies(None).unwrap(), 1);
    assert_eq!(standing(&mut store)[1], Standing::Interrupted);
    let failure = show(&mut store, "t1").messages[1].failure.clone().unwrap();
    assert_eq!(
        (&*failure.kind, &*failure.message),
        ("interrupted", console::INTERRUPTED)
    );
    assert!(!show(&mut store, "t1").thread.running);
    // Who was still writing it may say so.
    asked::<()>(&mut store, save("1", "whole", Standing::Succeeded), 9);
    assert_eq!(standing(&mut store)[1], Standing::Succeeded);
    // A thread is not removed under an answer.
    asked::<serde_json::Value>(&mut store, begin("t1", "3", "q", None), 10);
    let removed = tried::<()>(&mut store, Ask::RemoveThread { id: "t1".into() }, 11);
    assert!(matches!(removed, Err(StoreError::ReplyOpen)));
}

fn session(n: usize) -> Session {
    Session {
        id: format!("s{n}"),
        hash: format!("{n:064x}"),
        created_at: 100 + n as i64,
        last_seen_at: 100 + n as i64,
        expires_at: 10_000,
        user_agent: "browser".into(),
    }
}

#[test]
fn an_answer_that_is_interrupted_has_none_of_the_apps_that_it_had_so_far() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    store.console(begin("t1", "1", "q", None), 7, 2).unwrap();
    let app: ipc_proto::reply::ReplyPart = serde_json::from_value(serde_json::json!({
        "type": "mcp_app", "id": "p", "invocationId": "i", "connectionId": "c", "serverName": "s",
        "toolName": "t", "resourceUri": "ui://s/t", "mediaType": "text/html;profile=mcp-app",
        "protocolVersion": "2026-01-26",
    }))
    .unwrap();
    let mut half = reply("a1", "half", Standing::Running);
    half.parts = vec![app.clone()];
    store.console(Ask::Save { message: half }, 7, 3).unwrap();
    let parts = |store: &mut Store| show(store, "t1").messages[1].parts.clone();
    assert_eq!(parts(&mut store), [app]);
    assert_eq!(store.interrupt_replies(Some(7)).unwrap(), 1);
    assert!(parts(&mut store).is_empty());
    assert!(show(&mut store, "t1").messages[1].failure.is_some());
}

#[test]
fn who_saves_an_answer_holds_it() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    store.console(begin("t1", "1", "q", None), 7, 2).unwrap();
    store
        .console(save("1", "half", Standing::Running), 8, 3)
        .unwrap();
    // The channel that it was begun on means nothing any more.
    assert_eq!(store.interrupt_replies(Some(7)).unwrap(), 0);
    assert_eq!(store.interrupt_replies(Some(8)).unwrap(), 1);
}

#[test]
fn an_answer_that_was_taken_back_is_not_begun_by_who_did_not_know() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t", 1);
    for (n, end) in [
        ("1", Standing::Cancelled),
        ("2", Standing::Failed),
        ("3", Standing::Succeeded),
    ] {
        asked::<Begun>(&mut store, begin("t", n, "ask", None), 2);
        asked::<()>(&mut store, save(n, "", end), 3);
        let again = tried::<()>(&mut store, save(n, "", Standing::Running), 4);
        assert!(matches!(again, Err(StoreError::Conflict(_))), "{end:?}");
        // Its end may be told again.
        asked::<()>(&mut store, save(n, "x", end), 5);
    }
    // What the store itself ended, at a start, goes on with who writes it.
    asked::<Begun>(&mut store, begin("t", "4", "ask", None), 6);
    assert_eq!(store.interrupt_replies(None).unwrap(), 1);
    asked::<()>(&mut store, save("4", "", Standing::Running), 7);
}

#[test]
fn sessions_are_kept_seen_and_forgotten() {
    let dir = state();
    let mut store = open(dir.path());
    let all = |store: &mut Store| asked::<Vec<Session>>(store, Ask::Sessions, 0);
    for n in 0..MAX_SESSIONS + 2 {
        asked::<()>(
            &mut store,
            Ask::KeepSession {
                session: session(n),
            },
            5,
        );
    }
    // The two that were longest not seen are gone.
    let kept = all(&mut store);
    assert_eq!(kept.len(), MAX_SESSIONS);
    assert!(!kept.iter().any(|s| s.id == "s0" || s.id == "s1"));
    let seen = Session {
        last_seen_at: 9_000,
        hash: "f".repeat(64),
        ..session(9)
    };
    asked::<()>(
        &mut store,
        Ask::KeepSession {
            session: seen.clone(),
        },
        5,
    );
    let nine = all(&mut store).into_iter().find(|s| s.id == "s9").unwrap();
    // What the secret is doesn't change.
    assert_eq!((nine.last_seen_at, nine.hash), (9_000, session(9).hash));
    asked::<()>(&mut store, Ask::RemoveSession { id: "s9".into() }, 5);
    assert_eq!(all(&mut store).len(), MAX_SESSIONS - 1);
    // News that come after the end bring nothing back.
    asked::<()>(&mut store, Ask::KeepSession { session: seen }, 5);
    assert!(!all(&mut store).iter().any(|s| s.id == "s9"));
    let mut later = session(500);
    later.expires_at = 20_000;
    asked::<()>(&mut store, Ask::KeepSession { session: later }, 10_000);
    assert_eq!(all(&mut store).len(), 1);
    for hash in ["", "zz", &"g".repeat(64)] {
        let session = Session {
            hash: hash.into(),
            ..session(1)
        };
        assert!(
            tried::<()>(&mut store, Ask::KeepSession { session }, 5).is_err(),
            "{hash}"
        );
    }
    drop(store);
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    assert_eq!(all(&mut store).len(), 1);
}

#[test]
fn a_later_answer_stands_behind_the_rest_once_and_is_news() {
    let dir = state();
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    new(&mut store, "t", 1);
    let _: Begun = asked(&mut store, begin("t", "1", "go", None), 2);
    let deliver = |id: &str, thread: &str, text: &str, status| Ask::Deliver {
        thread: thread.into(),
        message: reply(id, text, status),
        until: Until::after(Duration::from_secs(60)),
    };
    let whole = Standing::Succeeded;
    // Also while another answer is being written.
    let () = asked(&mut store, deliver("d1", "t", "later", whole), 3);
    let () = asked(&mut store, deliver("d1", "t", "later", whole), 4);
    let view = show(&mut store, "t");
    assert_eq!(ids(&view.messages), ["u1", "a1", "d1"]);
    assert!(view.thread.unread && view.thread.updated_at == 3);
    new(&mut store, "u", 5);
    for (ask, conflict) in [
        (deliver("d1", "t", "other", whole), true),
        (deliver("d1", "u", "later", whole), true),
        (deliver("d2", "none", "x", whole), false),
        (deliver("d2", "t", "x", Standing::Running), false),
    ] {
        let refused = tried::<()>(&mut store, ask, 6).unwrap_err();
        assert_eq!(matches!(refused, StoreError::Conflict(_)), conflict);
    }
    // It belongs to no channel: none that ends marks it.
    store.interrupt_replies(None).unwrap();
    let view = show(&mut store, "t");
    assert_eq!(view.messages[2].status, whole);
}
