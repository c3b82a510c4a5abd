//! The end of a turn whose servers may claim continuations (spec s1, "Origin settlement lifecycle").

use super::*;

fn claiming(answers: impl IntoIterator<Item = Vec<Step>>, active: u32) -> (Bench, Fake) {
    let mut bench = Bench::new();
    bench.claim_servers = vec!["work".into()];
    let fake = Fake::answering(answers);
    fake.tools.borrow_mut().push(echo_tool("work"));
    fake.active_claims.set(active);
    (bench, fake)
}

fn calling() -> [Vec<Step>; 2] {
    [
        vec![call("1", "echo", json!({})), wants()],
        vec![text("It is on its way."), done()],
    ]
}

fn settled(fake: &Fake) -> Vec<String> {
    let about = [
        "close_claims",
        "finalise",
        "pin",
        "commit",
        "activate",
        "abandon",
        "discard",
        "fail",
        "event Background",
        "event Finish",
        "event Failed",
    ];
    let log = fake.log().into_iter();
    log.filter(|line| about.contains(&line.as_str())).collect()
}

#[tokio::test]
async fn claims_are_closed_pinned_committed_and_activated_in_this_order() {
    let (bench, fake) = claiming(calling(), 2);
    fake.history.borrow_mut().extend([
        ChatMessage::text(ChatRole::User, "earlier"),
        ChatMessage::text(ChatRole::Assistant, "said"),
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(
        settled(&fake),
        [
            "close_claims",
            "finalise",
            "pin",
            "commit",
            "activate",
            "event Background",
            "event Finish"
        ]
    );
    let told = fake.events.borrow().iter().find_map(|event| match event {
        RunEvent::Background { continuations } => Some(continuations.clone()),
        _ => None,
    });
    assert_eq!(told.unwrap(), ["c0", "c1"]);
    let pinned = &fake.pinned.borrow()[0];
    let history: Vec<_> = pinned.history.iter().map(|m| m.text.as_str()).collect();
    assert_eq!(history, ["earlier", "said"]);
    assert_eq!(
        (pinned.user.as_str(), pinned.assistant.as_str()),
        ("do it", "It is on its way.")
    );
}

#[tokio::test]
async fn the_callers_transcript_is_pinned_where_there_is_no_history() {
    let (mut bench, fake) = claiming(calling(), 1);
    bench.preceding = 2;
    bench.run(&fake).await;
    let pinned = &fake.pinned.borrow()[0];
    let history: Vec<_> = pinned.history.iter().map(|m| m.text.as_str()).collect();
    assert_eq!(history, ["before 0", "before 1"]);
    assert_eq!(fake.commit().messages.len(), 4);
}

#[tokio::test]
async fn without_an_active_claim_nothing_is_pinned() {
    let (bench, fake) = claiming(calling(), 0);
    bench.run(&fake).await;
    let expected = ["close_claims", "finalise", "commit", "event Finish"];
    assert_eq!(settled(&fake), expected);
    // And where no server may claim, nobody is asked.
    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.active_claims.set(1);
    Bench::new().run(&fake).await;
    assert_eq!(settled(&fake), ["finalise", "commit", "event Finish"]);
}

#[tokio::test]
async fn what_fails_before_the_commit_abandons_the_claims() {
    for (lost_at, kind) in [
        ("pin", "worker_lost"),
        ("finalise", "worker_lost"),
        ("close_claims", "worker_lost"),
    ] {
        let (bench, fake) = claiming(calling(), 1);
        *fake.lose.borrow_mut() = Some((lost_at, "artifact"));
        let outcome = bench.run(&fake).await;
        assert_eq!(outcome.failure_kind.as_deref(), Some(kind), "{lost_at}");
        assert!(fake.commits.borrow().is_empty(), "{lost_at}");
        assert!(fake.logged("abandon") < fake.logged("fail"), "{lost_at}");
    }
    let (bench, fake) = claiming(calling(), 1);
    fake.cancel_at("pin", bench.cancel.clone());
    assert_eq!(bench.run(&fake).await.status, RunStatus::Cancelled);
    assert!(settled(&fake).contains(&"abandon".to_owned()));
    let (bench, fake) = claiming([vec![failed("provider_auth")]], 1);
    bench.run(&fake).await;
    assert_eq!(
        settled(&fake),
        ["abandon", "discard", "fail", "event Failed"]
    );
}

#[tokio::test]
async fn a_commit_whose_answer_never_came_is_left_to_the_store() {
    let (bench, fake) = claiming(calling(), 1);
    *fake.lose.borrow_mut() = Some(("commit", "store"));
    bench.run(&fake).await;
    let log = settled(&fake);
    assert!(!log.contains(&"abandon".to_owned()) && !log.contains(&"activate".to_owned()));
}

#[tokio::test]
async fn a_lost_continuation_worker_fails_only_a_turn_that_may_have_claimed() {
    let (bench, fake) = claiming(calling(), 1);
    *fake.lose.borrow_mut() = Some(("close_claims", "continuation"));
    let outcome = bench.run(&fake).await;
    assert_eq!(outcome.failure_kind.as_deref(), Some("worker_lost"));
    let (bench, fake) = claiming([vec![text("x"), done()]], 1);
    *fake.lose.borrow_mut() = Some(("close_claims", "continuation"));
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    // After the commit it comes too late to take anything back.
    let (bench, fake) = claiming(calling(), 1);
    *fake.lose.borrow_mut() = Some(("activate", "continuation"));
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert!(settled(&fake).ends_with(&["activate".to_owned(), "event Finish".to_owned()]));
}
