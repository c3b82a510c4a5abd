#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn call(id: u32) -> Vec<u8> {
    request(&id.to_string(), "tools/call", Some("{}")).into_bytes()
}

fn result(id: &str) -> Vec<u8> {
    answer(id, Outcome::Result("{}")).into_bytes()
}

/// A relay whose client has shaken hands.
fn greeted() -> (Instant, Relay) {
    let t = Instant::now();
    let mut relay = Relay::new(t);
    let hello = request("0", "initialize", Some(r#"{"v":1}"#)).into_bytes();
    assert_eq!(relay.connected(t), []);
    assert_eq!(relay.client(t, hello.clone()), [Do::Gateway(hello)]);
    assert_eq!(relay.gateway(t, result("0")), [Do::Client(result("0"))]);
    (t, relay)
}

fn error_of(todo: &[Do]) -> Vec<String> {
    let text = |todo: &Do| match todo {
        Do::Client(line) => String::from_utf8(line.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    todo.iter().map(text).collect()
}

#[test]
fn what_comes_before_the_gateway_waits_for_it() {
    let t = Instant::now();
    let mut relay = Relay::new(t);
    assert_eq!(relay.client(t, call(1)), []);
    assert_eq!(relay.connected(t + S), [Do::Gateway(call(1))]);
    assert_eq!(relay.gateway(t + S, result("1")), [Do::Client(result("1"))]);
    assert!(relay.is_idle());
}

#[test]
fn the_handshake_is_replayed_and_the_client_sees_nothing_of_it() {
    let (t, mut relay) = greeted();
    assert_eq!(relay.lost(t), []);
    assert_eq!(relay.client(t, call(1)), []);
    let replay = request(REPLAY, "initialize", Some(r#"{"v":1}"#)).into_bytes();
    assert_eq!(relay.connected(t), [Do::Gateway(replay)]);
    assert_eq!(relay.client(t, call(2)), [], "not before the handshake");
    let ready = notification("notifications/initialized", None).into_bytes();
    let sent = [ready, call(1), call(2)].map(Do::Gateway);
    assert_eq!(relay.gateway(t, result(REPLAY)), sent);
}

#[test]
fn a_refused_replay_answers_what_waits_and_only_that() {
    let (t, mut relay) = greeted();
    relay.lost(t);
    relay.client(t, call(1));
    relay.connected(t);
    let error = r#"{"code":-32603,"message":"other tools"}"#;
    let refused = answer(REPLAY, Outcome::Error(error)).into_bytes();
    let told = error_of(&relay.gateway(t, refused));
    assert_eq!(told, [answer("1", Outcome::Error(error))]);
}

#[test]
fn what_was_under_way_is_told_and_not_repeated_unless_it_only_reads() {
    let (t, mut relay) = greeted();
    let list = request("2", "tools/list", None).into_bytes();
    relay.client(t, call(1));
    relay.client(t, list.clone());
    let told = error_of(&relay.lost(t));
    assert!(
        told.len() == 1 && told[0].contains("not repeated"),
        "{told:?}"
    );
    relay.connected(t);
    let sent = relay.gateway(t, result(REPLAY));
    assert_eq!(sent[1..], [Do::Gateway(list)]);
}

#[test]
fn what_waits_too_long_fails_after_thirty_seconds_and_not_before() {
    let (t, mut relay) = greeted();
    relay.lost(t);
    relay.client(t, call(1));
    assert_eq!(relay.next_tick(), Some(t + 30 * S));
    assert_eq!(relay.tick(t + 29 * S), []);
    let told = error_of(&relay.tick(t + 30 * S));
    assert!(told[0].contains("-32603") && told[0].contains("30 seconds"));
    assert!(relay.is_idle());
}

#[test]
fn too_much_does_not_wait() {
    let (t, mut relay) = greeted();
    relay.lost(t);
    for id in 0..MAX_HELD as u32 {
        assert_eq!(relay.client(t, call(id)), []);
    }
    assert!(error_of(&relay.client(t, call(9999)))[0].contains("not sent"));
    let (t, mut relay) = greeted();
    relay.lost(t);
    let large = request(
        "1",
        "m",
        Some(&format!("\"{}\"", "x".repeat(MAX_HELD_BYTES))),
    )
    .into_bytes();
    assert!(error_of(&relay.client(t, large))[0].contains("not sent"));
}

#[test]
fn a_thousand_and_twenty_four_requests_are_under_way_at_most() {
    let (t, mut relay) = greeted();
    for id in 1..=1024 {
        assert_eq!(relay.client(t, call(id)), [Do::Gateway(call(id))]);
    }
    let told = error_of(&relay.client(t, call(2000)));
    assert!(
        told[0].contains("-32600") && told[0].contains("too many"),
        "{told:?}"
    );
    // An answer makes room, and so does who waits no longer.
    assert_eq!(relay.gateway(t, result("7")), [Do::Client(result("7"))]);
    assert_eq!(relay.client(t, call(2000)), [Do::Gateway(call(2000))]);
    assert_eq!(error_of(&relay.client(t, call(2001))).len(), 1);
    let cancel = notification("notifications/cancelled", Some(r#"{"requestId":8}"#));
    relay.client(t, cancel.into_bytes());
    assert_eq!(relay.client(t, call(2001)), [Do::Gateway(call(2001))]);
    // What was refused was not sent under its id.
    let twice = error_of(&relay.client(t, call(9)));
    assert!(twice[0].contains("in use"), "{twice:?}");
}

#[test]
fn silence_is_asked_about_only_while_something_is_outstanding() {
    let (t, mut relay) = greeted();
    assert_eq!(relay.next_tick(), None);
    assert_eq!(relay.tick(t + 1000 * S), []);
    let t = t + 1000 * S;
    relay.client(t, call(1));
    let ping = [Do::Gateway(bytes("#ping"))];
    for n in 1..=3u32 {
        assert_eq!(relay.next_tick(), Some(t + 10 * n * S));
        assert_eq!(relay.tick(t + 10 * n * S), ping);
    }
    assert_eq!(relay.tick(t + 40 * S), [Do::Reconnect]);
    relay.gateway(t + 40 * S, bytes("#pong"));
    assert_eq!(relay.tick(t + 41 * S), []);
}

#[test]
fn answers_of_a_gateway_that_is_gone_are_dropped() {
    let (t, mut relay) = greeted();
    let asked = request("7", "sampling/createMessage", None).into_bytes();
    assert_eq!(relay.gateway(t, asked.clone()), [Do::Client(asked)]);
    relay.lost(t);
    relay.connected(t);
    relay.gateway(t, result(REPLAY));
    assert_eq!(
        relay.client(t, result("7")),
        [],
        "the one who asked is gone"
    );
    assert_eq!(relay.gateway(t, result("99")), [], "nobody asked");
}

#[test]
fn a_refusal_stands_until_the_client_begins_anew() {
    let (t, mut relay) = greeted();
    relay.client(t, call(1));
    let refused = Control::Refused(crate::wire::Refused {
        code: "tools_changed".into(),
        message: "other tools".into(),
        retry: false,
    });
    let told = error_of(&relay.gateway(t, refused.to_line().into_bytes()));
    assert!(told.len() == 1 && told[0].contains("other tools"));
    assert!(error_of(&relay.client(t, call(2)))[0].contains("other tools"));
    let hello = request("9", "initialize", None).into_bytes();
    assert_eq!(relay.client(t, hello.clone()), [Do::Gateway(hello)]);
}

#[test]
fn the_latest_anchor_is_kept_for_the_next_registration() {
    let (t, mut relay) = greeted();
    assert_eq!(relay.gateway(t, bytes("#anchor {\"a\":\"1\"}")), []);
    relay.gateway(t, bytes("#anchor {\"a\":\"2\"}"));
    relay.lost(t);
    assert_eq!(relay.anchor(), Some("{\"a\":\"2\"}"));
}

#[test]
fn a_gateway_that_talks_nonsense_is_left() {
    for line in ["#what", "{}", "x", "#refused {}"] {
        let (t, mut relay) = greeted();
        assert_eq!(relay.gateway(t, bytes(line)), [Do::Reconnect], "{line}");
    }
}

#[test]
fn a_client_that_talks_nonsense_is_told() {
    let (t, mut relay) = greeted();
    assert!(error_of(&relay.client(t, bytes("x")))[0].contains("-32600"));
    relay.client(t, call(1));
    assert!(error_of(&relay.client(t, call(1)))[0].contains("in use"));
}

#[test]
fn what_is_cancelled_is_waited_for_no_longer() {
    let cancel = |id: u32| {
        let params = format!(r#"{{"requestId":{id},"reason":"r"}}"#);
        notification("notifications/cancelled", Some(&params)).into_bytes()
    };
    let (t, mut relay) = greeted();
    relay.client(t, call(1));
    assert_eq!(relay.client(t, cancel(1)), [Do::Gateway(cancel(1))]);
    assert!(relay.is_idle() && relay.next_tick().is_none());
    assert_eq!(relay.gateway(t, result("1")), [], "late");
    relay.lost(t);
    relay.client(t, call(2));
    assert_eq!(relay.client(t, cancel(2)), [], "it was never sent");
    assert!(relay.is_idle());
    relay.connected(t);
    assert_eq!(relay.gateway(t, result(REPLAY)).len(), 1);
}

proptest! {
    /// Whatever happens in whatever order, each request is answered at most once, and once the
    /// gateway stays away long enough, exactly once.
    #[test]
    fn each_request_is_answered_once(steps in proptest::collection::vec(0u8..6, 0..60)) {
        let (mut t, mut relay) = greeted();
        let mut next = 10u32;
        let mut up = true;
        let (mut asked, mut answers) = (vec![], vec![]);
        let mut note = |todo: Vec<Do>| for todo in todo {
            if let Do::Client(line) = todo
                && let Ok(Frame::Answer { id: Some(id), .. }) = Frame::parse(&line) {
                answers.push(id.to_owned());
            }
        };
        for step in steps {
            t += S;
            match step {
                0 | 1 => {
                    let method = if step == 0 { "tools/call" } else { "tools/list" };
                    asked.push(next.to_string());
                    note(relay.client(t, request(&next.to_string(), method, None).into_bytes()));
                    next += 1;
                }
                2 if up => { up = false; note(relay.lost(t)); }
                3 if !up => {
                    up = true;
                    note(relay.connected(t));
                    note(relay.gateway(t, result(REPLAY)));
                }
                4 => if let Some(id) = asked.last() {
                    let line = result(id);
                    if up { note(relay.gateway(t, line)); }
                },
                _ => note(relay.tick(t)),
            }
        }
        if up { note(relay.lost(t)); }
        note(relay.tick(t + 31 * S));
        prop_assert!(relay.is_idle());
        answers.sort();
        asked.sort();
        prop_assert_eq!(answers, asked);
    }
}
