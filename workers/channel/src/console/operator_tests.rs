#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers with what it was asked, or as it is told to.
#[derive(Default)]
struct Scripted {
    looks: AtomicUsize,
    acts: Mutex<Vec<Act>>,
    fault: Option<&'static str>,
    silent: bool,
}

impl Scripted {
    fn answer(&self, value: Value) -> Result<Value, ControlError> {
        match self.fault {
            _ if self.silent => Err(ControlError::NoAnswer),
            Some(code) => Err(Fault::new(code, "it is so").into()),
            None => Ok(value),
        }
    }
}

impl Lookout for Scripted {
    fn look(&self, at: Look) -> BoxFuture<'_, Result<Value, ControlError>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            // Others come meanwhile.
            tokio::task::yield_now().await;
            self.answer(json!(format!("{at:?}")))
        })
    }

    fn act(&self, act: Act) -> BoxFuture<'_, Result<Value, ControlError>> {
        self.acts.lock().unwrap().push(act);
        Box::pin(async { self.answer(json!({ "state": "cancelled" })) })
    }
}

fn parts() -> Parts {
    let request = http::Request::get("/api/v1/operator").body(()).unwrap();
    request.into_parts().0
}

fn operator(scripted: Scripted) -> (Operator, Arc<Scripted>) {
    let scripted = Arc::new(scripted);
    (Operator::new(scripted.clone()), scripted)
}

const CANCEL: [&str; 3] = ["continuations", "c1", "cancel"];

#[tokio::test]
async fn a_change_is_made_once_and_answered_with_how_it_stands() {
    let (operator, scripted) = operator(Scripted::default());
    let stands = operator.change(&CANCEL, b"").await.unwrap();
    assert_eq!(stands["state"], "cancelled");
    let id = "c1".to_owned();
    let expected = [Act::CancelContinuation { id }];
    assert_eq!(*scripted.acts.lock().unwrap(), expected);
    // What can't be read reaches nobody.
    assert!(operator.change(&CANCEL, b"[").await.is_err());
    assert_eq!(scripted.acts.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn refusals_keep_their_code() {
    for (code, status) in [
        ("not_enabled", 404),
        ("not_found", 404),
        ("invalid_page_cursor", 400),
        ("invalid_resolution", 400),
        ("delivery_unknown", 409),
        ("already_terminal", 409),
        ("continuation_expired", 410),
        ("worker_unavailable", 503),
    ] {
        let fault = Some(code);
        let (operator, _) = operator(Scripted {
            fault,
            ..Scripted::default()
        });
        let seen = operator.show(&parts(), &["continuations"]).await;
        let changed = operator.change(&CANCEL, b"").await;
        for error in [seen.unwrap_err(), changed.unwrap_err()] {
            assert_eq!((error.status, &*error.code), (status, code));
        }
    }
}

#[tokio::test]
async fn a_change_that_nobody_answers_is_not_said_to_have_failed() {
    let (operator, _) = operator(Scripted {
        silent: true,
        ..Scripted::default()
    });
    let seen = operator.show(&parts(), &["config"]).await.unwrap_err();
    assert!(seen.message.contains("Try again"), "{seen:?}");
    let changed = operator.change(&CANCEL, b"").await.unwrap_err();
    assert_eq!(changed.status, 503);
    assert!(changed.message.contains("before you do it again"));
}

#[tokio::test(start_paused = true)]
async fn many_pages_are_one_look_at_the_status() {
    let (operator, scripted) = operator(Scripted::default());
    for _ in 0..3 {
        operator.show(&parts(), &["status"]).await.unwrap();
    }
    assert_eq!(scripted.looks.load(Ordering::Relaxed), 1);
    tokio::time::advance(STATUS_AGE).await;
    // At once, too: one of them looks, and the others have what it sees.
    let parts = parts();
    let all = (0..MAX_LOOKS).map(|_| operator.show(&parts, &["status"]));
    let seen = futures_util::future::join_all(all).await;
    assert!(seen.iter().all(Result::is_ok));
    assert_eq!(scripted.looks.load(Ordering::Relaxed), 2);
}
