//! A request's run, followed to its one settlement.

use super::record::{Problem, Settlement};
use crate::runs::{ActiveRun, Failure, Finished, Step};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::outcomes::of_parts;
use serde_json::json;
use std::future::Future;
use std::time::Duration;

/// Follows a run until it ends, `abort` says that nobody wants it, or its time is over. What the
/// run would still say after that is never read: dropping it ends it.
pub async fn follow(
    mut run: ActiveRun,
    bound: Option<Duration>,
    abort: impl Future<Output = ()>,
    mut started: impl FnMut(),
) -> Settlement {
    let mut name = None;
    let end = async {
        loop {
            match run.next().await {
                Step::Event(RunEvent::Started { run }) => {
                    name = Some(run);
                    started();
                }
                Step::Event(_) | Step::App(_) => {}
                Step::Finished(done) => break Ok(done),
                Step::Failed(failure) => break Err(failure),
            }
        }
    };
    let time = async {
        match bound {
            Some(bound) => tokio::time::sleep(bound).await,
            None => std::future::pending().await,
        }
    };
    let end = tokio::select! {
        // An answer that comes together with the caller's leaving is one that nobody gets.
        biased;
        () = abort => {
            let message = "The caller went away before the answer was there.";
            return Settlement::Cancelled(problem("cancelled", message));
        }
        end = end => end,
        () = time => {
            let message = "The run was not done in time (webhook.maxRunMs).";
            return Settlement::Failed(problem("timeout", message));
        }
    };
    match end {
        Ok(Finished {
            text,
            parts,
            usage,
            model,
        }) => Settlement::Succeeded {
            text,
            outcomes: of_parts(&parts),
            summary: json!({"runId": name, "model": model, "usage": usage}),
        },
        Err(Failure {
            cancelled,
            kind,
            message,
        }) => {
            let problem = Problem {
                code: kind,
                message,
            };
            if cancelled {
                Settlement::Cancelled(problem)
            } else {
                Settlement::Failed(problem)
            }
        }
    }
}

fn problem(code: &str, message: &str) -> Problem {
    Problem {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runs::tests::{Fake, wish};
    use ipc_proto::chat::Usage;
    use ipc_proto::{Body, RunId};
    use std::future::{pending, ready};

    fn finish(text: &str) -> RunEvent {
        RunEvent::Finish {
            text: Body::Inline(text.as_bytes().to_vec()),
            parts: br#"[{"type":"attachment"},null]"#.to_vec(),
            usage: Usage::default(),
            model: "demo:scripted".into(),
        }
    }

    #[tokio::test]
    async fn a_run_settles_with_its_text_and_its_outcomes() {
        let (fake, mut wishes) = Fake::new();
        let run = ActiveRun::start(fake, wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        let run_id = RunId::parse("run-1").unwrap();
        assert!(events.send(&RunEvent::Started { run: run_id }, &[]).await);
        assert!(events.send(&finish("Hi\r\n"), &[]).await);
        let mut starts = 0;
        let got = follow(run, None, pending(), || starts += 1).await;
        let Settlement::Succeeded {
            text,
            outcomes,
            summary,
        } = got
        else {
            panic!("{got:?}")
        };
        assert_eq!((starts, &*text, outcomes.len()), (1, "Hi\r\n", 2));
        assert_eq!(
            (&summary["runId"], &summary["model"]),
            (&json!("run-1"), &json!("demo:scripted"))
        );
    }

    #[tokio::test]
    async fn a_failure_and_a_cancellation_are_told_apart() {
        for cancelled in [false, true] {
            let (fake, mut wishes) = Fake::new();
            let run = ActiveRun::start(fake, wish()).await.unwrap();
            let (_, events) = wishes.recv().await.unwrap();
            let failed = RunEvent::Failed {
                cancelled,
                kind: "provider_auth".into(),
                message: "m".into(),
            };
            assert!(events.send(&failed, &[]).await);
            let got = follow(run, None, pending(), || {}).await;
            let expected = problem("provider_auth", "m");
            assert_eq!(
                got,
                if cancelled {
                    Settlement::Cancelled(expected)
                } else {
                    Settlement::Failed(expected)
                }
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_over_its_time_fails_and_is_ended() {
        let (fake, mut wishes) = Fake::new();
        let run = ActiveRun::start(fake.clone(), wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        let got = follow(run, Some(Duration::from_secs(9)), pending(), || {}).await;
        assert!(matches!(got, Settlement::Failed(p) if p.code == "timeout"));
        assert_eq!(fake.cancelled().await.as_str(), "run-1");
        // What it says now reaches nobody.
        events.closed().await;
        assert!(!events.send(&finish("late"), &[]).await);
    }

    #[tokio::test]
    async fn an_aborted_run_is_cancelled_also_when_its_answer_is_there() {
        let (fake, mut wishes) = Fake::new();
        let run = ActiveRun::start(fake.clone(), wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        assert!(events.send(&finish("late"), &[]).await);
        let got = follow(run, None, ready(()), || {}).await;
        assert!(matches!(got, Settlement::Cancelled(p) if p.code == "cancelled"));
        assert_eq!(fake.cancelled().await.as_str(), "run-1");
    }
}
