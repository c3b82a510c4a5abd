//! The running service: the listener, the processing loop, and how both end.

use crate::desk::{Desk, Parts};
use crate::engine::{Answer, Engine, Job, Question, Step};
use crate::error::Rejection;
use crate::host::Host;
use crate::http::body::Patience;
use crate::http::router::{self, Surface};
use crate::intake::Intake;
use crate::operator::Operator;
use crate::origin::Origins;
use crate::settings::{Limits, SettingsError};
use continuation_record::backoff;
use continuation_record::event::Event;
use http::StatusCode;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use worker_web::listener::{self, Bounds};
use worker_web::origin::Admission;

/// Between two looks at what is due, where nothing wakes the loop before.
const TICK: Duration = Duration::from_secs(1);
/// Between two rounds of retention.
const RETENTION: Duration = Duration::from_secs(1);
/// Requests that are under way at a stop are waited for so long, then cut.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// Time for a host's answer that asks no model and sends nothing.
const SHORT_QUESTION: Duration = Duration::from_secs(30);
/// Connections at once.
const MAX_CONNECTIONS: usize = 1024;
/// Time for a request's head, which is also how long an idle connection is kept.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Pause before a store that is behind is asked again to keep an answer.
const BEHIND: Duration = Duration::from_millis(100);
/// Expiries of one round.
const EXPIRIES: usize = 256;

/// Why a service doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is out of its bounds.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The listener is not where it should be.
    #[error(
        "the listener is bound to {0}, which other machines reach or which is not the configured port"
    )]
    Bound(SocketAddr),
    /// The listener doesn't say where it is bound.
    #[error("the listener can't be used: {0}")]
    Listener(#[from] std::io::Error),
    /// Recovery failed.
    #[error("what was interrupted could not be settled: {0}")]
    Recovery(#[from] Rejection),
}

/// A service that runs until it is stopped.
#[derive(Debug)]
pub struct Service {
    desk: Arc<Desk>,
    serving: JoinHandle<()>,
    working: JoinHandle<()>,
    stop: watch::Sender<bool>,
    finish: watch::Sender<bool>,
    failed: watch::Receiver<bool>,
}

impl Service {
    /// Settles what a former process left, then serves and works. `listener` was bound by whoever starts this.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(listener: TcpListener, parts: Parts) -> Result<Self, StartError> {
        parts.settings.check()?;
        let bound = listener.local_addr()?;
        let admission = Admission::new(bound.ip());
        // The address that was really bound counts, not the name that was configured.
        if !admission.is_loopback() || bound.port() != parts.settings.port {
            return Err(StartError::Bound(bound));
        }
        let patience = Patience {
            stall: parts.settings.body_stall,
            total: parts.settings.body_total,
        };
        let desk = Desk::new(parts);
        recover(&desk).await?;
        let (stop, stopping) = watch::channel(false);
        let (finish, finishing) = watch::channel(false);
        let (fail, failed) = watch::channel(false);
        let surface = Surface {
            intake: Intake::new(desk.clone()),
            operator: Operator::new(desk.clone()),
            admission,
            patience,
            is_stopping: {
                let desk = desk.clone();
                Arc::new(move || desk.is_stopping())
            },
        };
        let bounds = Bounds {
            connections: MAX_CONNECTIONS,
            head: HEAD_TIME,
            stalled: Some(HEAD_TIME),
        };
        let router = router::router(surface);
        let serving = tokio::spawn(listener::serve_within(listener, router, stopping, bounds));
        let working = tokio::spawn(work(desk.clone(), finishing, fail));
        Ok(Self {
            desk,
            serving,
            working,
            stop,
            finish,
            failed,
        })
    }

    /// The host's side of turns.
    #[must_use]
    pub fn origins(&self) -> Origins {
        Origins::new(self.desk.clone())
    }

    /// The operator's calls.
    #[must_use]
    pub fn operator(&self) -> Operator {
        Operator::new(self.desk.clone())
    }

    /// Returns when the store has failed; the process must end then, and the next one replays.
    pub async fn failed(&self) {
        let mut failed = self.failed.clone();
        if failed.wait_for(|failed| *failed).await.is_err() {
            // The loop ended in order; nothing has failed.
            std::future::pending().await
        }
    }

    /// Admits nothing more and begins to work on nothing more, answers what is under way or cuts it after five
    /// seconds, abandons the origins that have no snapshot, and waits for what is being worked on, but not for a
    /// model or a channel that takes longer than [`Settings::drain`](crate::Settings): that is left to the next
    /// start, which takes it for interrupted.
    pub async fn stop(mut self) {
        self.desk.stop();
        self.stop.send_replace(true);
        // At once: whoever lets a request stand still must not have work begun that is cut.
        self.finish.send_replace(true);
        if tokio::time::timeout(LAST_REQUESTS, &mut self.serving)
            .await
            .is_err()
        {
            self.serving.abort();
        }
        let origins = Origins::new(self.desk.clone());
        for run in self.desk.bindings.stop().await {
            let reason = "the service stopped before the turn that asked was committed";
            if let Err(e) = origins.give_up(&run, reason).await {
                tracing::warn!("an origin is left to the next start: {e}");
            }
        }
        let drain = self.desk.settings.drain;
        match tokio::time::timeout(drain, &mut self.working).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::error!("the processing loop failed: {e}"),
            Err(_) => {
                tracing::warn!("continuations that are being worked on are left to the next start");
                self.working.abort();
            }
        }
    }
}

/// What a former process left: origins by the word of the history's owner, then everything that was begun.
///
/// # Errors
/// When the store fails.
pub async fn recover(desk: &Arc<Desk>) -> Result<(), Rejection> {
    // For all of them together: what nobody says now is asked again when a result is there.
    let until = Instant::now() + SHORT_QUESTION;
    let longest = desk.now().plus_ms(backoff::LONGEST_MS);
    for id in desk.keeper.interrupted(longest) {
        let Some(record) = desk.get(&id)? else {
            continue;
        };
        if record.origin_context_state == continuation_record::OriginContextState::Pending {
            let boundary = record.history_boundary.as_deref().unwrap_or_default();
            let (run, conversation) = (&record.origin_run_id, &record.origin_conversation_id);
            let asked = desk.host.run_committed(run, conversation, boundary);
            let told = tokio::time::timeout_at(until, asked)
                .await
                .unwrap_or(crate::host::Commitment::Unknown);
            desk.settle_origin(&id, told).await?;
        }
        desk.apply(&id, Event::Recover).await?;
    }
    Ok(())
}

/// Works on what is due until it is told to finish.
async fn work(desk: Arc<Desk>, mut finishing: watch::Receiver<bool>, fail: watch::Sender<bool>) {
    let engine = Engine::new(desk.clone());
    let mut jobs: JoinSet<String> = JoinSet::new();
    let mut busy: HashSet<String> = HashSet::new();
    let mut retained = Instant::now();
    let most = desk.settings.limits.max_concurrent;
    loop {
        if desk.keeper.is_failed() {
            fail.send_replace(true);
        } else if let Err(e) = expire(&desk, &busy).await {
            tracing::warn!("expired continuations are still to be settled: {e}");
        }
        // One more than those that are worked on, so that a busy one never hides a free one.
        let free = most.saturating_sub(jobs.len());
        if free > 0 {
            let due = desk.due(busy.len() + free);
            for id in due
                .into_iter()
                .filter(|id| !busy.contains(id))
                .take(free)
                .collect::<Vec<_>>()
            {
                busy.insert(id.clone());
                jobs.spawn(process(desk.clone(), engine.clone(), id));
            }
        }
        if retained.elapsed() >= RETENTION {
            retained = Instant::now();
            if let Err(e) = desk.keeper.retain(desk.now()).await {
                tracing::warn!("retention is put off: {e}");
            }
        }
        tokio::select! {
            biased;
            _ = finishing.wait_for(|finish| *finish) => break,
            Some(ended) = jobs.join_next() => done(&mut busy, ended),
            () = desk.woken() => {}
            () = tokio::time::sleep(TICK) => {}
        }
        while let Some(ended) = jobs.try_join_next() {
            done(&mut busy, ended);
        }
    }
    while let Some(ended) = jobs.join_next().await {
        done(&mut busy, ended);
    }
}

fn done(busy: &mut HashSet<String>, ended: Result<String, tokio::task::JoinError>) {
    match ended {
        Ok(id) => {
            busy.remove(&id);
        }
        // Its id stays among the busy ones: what broke once is left to the next start.
        Err(e) => tracing::error!("the processing of a continuation broke off: {e}"),
    }
}

async fn expire(desk: &Desk, busy: &HashSet<String>) -> Result<(), Rejection> {
    for id in desk.keeper.overdue(desk.now(), EXPIRIES + busy.len()) {
        if !busy.contains(&id) {
            desk.apply(&id, Event::Expire).await?;
        }
    }
    Ok(())
}

/// One continuation, as far as it goes now.
async fn process(desk: Arc<Desk>, engine: Engine, id: String) -> String {
    let mut step = engine.start(&id).await;
    loop {
        match step {
            Ok(Step::Ask(job, question)) => {
                let answer = put(&*desk.host, question, &desk.settings.limits).await;
                step = go_on(&desk, &engine, job, answer).await;
            }
            Ok(Step::Done) => break,
            Err(e) => {
                tracing::warn!(continuation = %id, "the processing stopped: {e}");
                // Not at once again: a store that is behind needs the time.
                tokio::time::sleep(TICK).await;
                break;
            }
        }
    }
    id
}

/// What the host answered is worth waiting for: a model is not asked again, and a post not made again, because
/// the store was behind for a moment.
async fn go_on(
    desk: &Desk,
    engine: &Engine,
    job: Box<Job>,
    answer: Answer,
) -> Result<Step, Rejection> {
    loop {
        let step = engine.advance(job.clone(), answer.clone()).await;
        let is_behind = step
            .as_ref()
            .is_err_and(|e| e.status == StatusCode::SERVICE_UNAVAILABLE);
        if !is_behind || desk.keeper.is_failed() {
            return step;
        }
        tokio::time::sleep(BEHIND).await;
    }
}

/// Puts a question to the host, in its time.
pub async fn put(host: &dyn Host, question: Question, limits: &Limits) -> Answer {
    let short = SHORT_QUESTION.min(limits.synthesis_timeout);
    match question {
        Question::Committed {
            run,
            conversation,
            boundary,
        } => {
            let asked = host.run_committed(&run, &conversation, &boundary);
            within(short, asked)
                .await
                .map_or(Answer::TimedOut, Answer::Committed)
        }
        Question::Ready { target } => {
            let asked = host.preflight(&target);
            within(short, asked)
                .await
                .map_or(Answer::TimedOut, Answer::Ready)
        }
        Question::History { conversation } => {
            let asked = host.latest_history(&conversation);
            within(short, asked)
                .await
                .map_or(Answer::TimedOut, Answer::History)
        }
        Question::Synthesize(request) => {
            let asked = host.synthesize(*request);
            within(limits.synthesis_timeout, asked)
                .await
                .map_or(Answer::TimedOut, Answer::Synthesis)
        }
        Question::Deliver(request) => {
            let asked = host.deliver(request);
            within(limits.delivery_timeout, asked)
                .await
                .map_or(Answer::TimedOut, Answer::Delivery)
        }
        Question::Enter {
            conversation,
            key,
            text,
        } => {
            let asked = host.commit_history(&conversation, &key, &text);
            within(SHORT_QUESTION, asked)
                .await
                .map_or(Answer::TimedOut, Answer::Entered)
        }
    }
}

async fn within<T>(time: Duration, asked: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, asked).await.ok()
}
