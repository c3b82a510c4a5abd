//! The turns of every thread: one is answered, the others wait. A turn belongs to nobody's tab:
//! it goes on when all of them are closed.

use super::error::ApiError;
use super::hints::{Hint, Hints};
use super::input::{NewTurn, input, pairs};
use super::keeper::Keeper;
use super::live::Live;
use super::shown::shown;
use super::turn::{Turn, message, now};
use super::uploads::Uploads;
use crate::runs::{ActiveRun, Early, Failure, Runs, StartError, Step, Wish};
use ipc_proto::chat::ChatMessage;
use ipc_proto::console::{
    Ask, Attachment, Author, Begun, MAX_QUEUED, Message, Standing, ThreadView,
};
use ipc_proto::edges::control::{Trigger, TurnInput};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::{ConversationId, RunId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;

/// How long a stopped run may take to say how it ended.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
/// How often an answer's end is offered to the store, which may be starting anew, before pages are
/// told what can't be kept yet.
const SAVE_ATTEMPTS: u32 = 5;
/// How often it is offered after that, until it is taken: a disk may have room again.
const SAVE_AGAIN: Duration = Duration::from_secs(10);
/// All turns.
pub struct Turns {
    keeper: Arc<Keeper>,
    runs: Arc<dyn Runs>,
    hints: Arc<Hints>,
    /// The first of each is being answered.
    queues: Mutex<HashMap<String, VecDeque<Arc<Turn>>>>,
    /// Entering a turn asks the store; the order there is to be the order here.
    entering: AsyncMutex<()>,
    /// With its files as text, a message takes three times their size until its run has it.
    starting: AsyncMutex<()>,
    at_work: watch::Sender<usize>,
    /// Another worker takes over; what is under way here ends here.
    leaving: AtomicBool,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    /// None yet.
    #[must_use]
    pub fn new(keeper: Arc<Keeper>, runs: Arc<dyn Runs>, hints: Arc<Hints>) -> Arc<Self> {
        Arc::new(Self {
            keeper,
            runs,
            hints,
            queues: Mutex::default(),
            entering: AsyncMutex::default(),
            starting: AsyncMutex::default(),
            at_work: watch::Sender::new(0),
            leaving: AtomicBool::new(false),
        })
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<String, VecDeque<Arc<Turn>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no turn waits or is answered.
    pub async fn all_over(&self) {
        // It ends with this very struct.
        let _ = self.at_work.subscribe().wait_for(|n| *n == 0).await;
    }

    /// The turn that writes an answer.
    #[must_use]
    pub fn of_reply(&self, reply: &str) -> Option<Arc<Turn>> {
        let queues = self.queues();
        let mut turns = queues.values().flatten();
        turns.find(|turn| turn.reply == reply).cloned()
    }

    /// Enters a turn; gives the person's message and the answer to come. `uploads` are told once
    /// the message has its files.
    ///
    /// # Errors
    /// 409 `queue_full`, and what the store refuses.
    pub async fn start(
        self: &Arc<Self>,
        thread: String,
        new: NewTurn,
        uploads: Arc<Mutex<Uploads>>,
    ) -> Result<(Message, Message), ApiError> {
        // A page that leaves meanwhile must not leave an answer that nobody writes.
        let turns = self.clone();
        let entered = tokio::spawn(async move { turns.enter(thread, new, &uploads).await });
        entered
            .await
            .unwrap_or_else(|_| Err(ApiError::new(500, "internal", "The message was not taken.")))
    }

    async fn enter(
        self: &Arc<Self>,
        thread: String,
        mut new: NewTurn,
        uploads: &Mutex<Uploads>,
    ) -> Result<(Message, Message), ApiError> {
        let _one_at_a_time = self.entering.lock().await;
        let before = self.queues().get(&thread).map_or(0, VecDeque::len);
        if before > MAX_QUEUED {
            let message = "20 messages wait in this thread already. Wait for an answer.";
            return Err(ApiError::new(409, "queue_full", message));
        }
        let attachments = new.files.iter().map(|(about, _)| about.clone());
        let attachments: Vec<Attachment> = attachments.collect();
        let ids: Vec<String> = attachments.iter().map(|file| file.id.clone()).collect();
        let user = Message {
            attachments,
            ..message(Author::User, new.text.clone(), Standing::Succeeded)
        };
        let standing = match before {
            0 => Standing::Running,
            _ => Standing::Queued,
        };
        let reply = message(Author::Assistant, String::new(), standing);
        let begun: Begun = self
            .keeper
            .ask(&Ask::Begin {
                thread: thread.clone(),
                user: Box::new(user.clone()),
                reply: Box::new(reply.clone()),
                replaces: new.replaces.take(),
            })
            .await?;
        uploads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .used(&ids);
        let turn = Turn::new(thread.clone(), &user, reply.clone(), begun.branch, new);
        let first = {
            let mut queues = self.queues();
            let queue = queues.entry(thread.clone()).or_default();
            queue.push_back(Arc::new(turn));
            queue.len() == 1
        };
        self.at_work.send_modify(|n| *n += 1);
        if first {
            tokio::spawn(self.clone().work(thread.clone()));
        }
        self.tell(&thread);
        Ok((user, reply))
    }

    fn tell(&self, thread: &str) {
        self.hints.tell(&Hint::Thread(thread.to_owned()));
        self.hints.tell(&Hint::Threads);
        self.hints.tell(&Hint::Runs);
        self.hints.tell(&Hint::Status);
    }

    /// Stops the answer that is written, or takes one back that waits. False when there is none.
    pub async fn stop(&self, thread: &str, reply: Option<&str>) -> bool {
        let waited = {
            let mut queues = self.queues();
            let Some(queue) = queues.get_mut(thread) else {
                return false;
            };
            let at = match reply {
                Some(reply) => queue.iter().position(|turn| turn.reply == reply),
                None => Some(0),
            };
            match at {
                None => return false,
                Some(0) => {
                    if let Some(turn) = queue.front() {
                        turn.stop.send_replace(true);
                    }
                    None
                }
                Some(at) => queue.remove(at),
            }
        };
        if let Some(turn) = waited {
            turn.change(take_back);
            self.settle(&turn).await;
            self.at_work.send_modify(|n| *n -= 1);
        }
        true
    }

    /// Stops an answer that another worker of this console still writes, or takes back one that
    /// waits there. False when there is none.
    ///
    /// # Errors
    /// 409 while its run has no name yet; what the store refuses.
    pub async fn stop_elsewhere(
        &self,
        thread: &str,
        reply: Option<&str>,
    ) -> Result<bool, ApiError> {
        let ask = Ask::ShowThread {
            id: thread.to_owned(),
            before: None,
            limit: 100,
        };
        let view: ThreadView = self.keeper.ask(&ask).await?;
        let mut open = view.messages.into_iter().filter(|m| m.status.is_open());
        let found = match reply {
            Some(reply) => open.find(|message| message.id == reply),
            None => open.find(|message| message.status == Standing::Running),
        };
        let Some(mut message) = found else {
            return Ok(false);
        };
        if message.status == Standing::Queued {
            // Its worker finds it so before it begins.
            message.status = Standing::Cancelled;
            message.failure = Some(taken_back());
            let message = Box::new(message);
            self.keeper.ask::<()>(&Ask::Save { message }).await?;
            self.tell(thread);
            return Ok(true);
        }
        let run = message.run_id.and_then(|run| RunId::parse(&run).ok());
        let early = || {
            let message = "The answer has not begun yet. Try again.";
            ApiError::new(409, "running", message)
        };
        let run = run.ok_or_else(early)?;
        self.runs.cancel(run, "stopped in the console");
        Ok(true)
    }

    /// Another worker takes over: what it needs to stop an answer of this one is noted with it.
    pub async fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        let turns: Vec<Arc<Turn>> = self.queues().values().flatten().cloned().collect();
        for turn in turns {
            self.note(&turn).await;
        }
    }

    async fn note(&self, turn: &Turn) {
        let settling = turn.settling.lock().await;
        let message = Box::new(turn.live().noted());
        if *settling || message.run_id.is_none() || !message.status.is_open() {
            return;
        }
        if let Err(e) = self.keeper.ask::<()>(&Ask::Save { message }).await {
            tracing::warn!("where an answer stands is not kept: {}", e.message);
        }
    }

    /// Answers the turns of a thread, one after the other, until none waits.
    async fn work(self: Arc<Self>, thread: String) {
        loop {
            let Some(turn) = self.queues().get(&thread).and_then(|q| q.front().cloned()) else {
                return;
            };
            self.answer(&turn).await;
            self.settle(&turn).await;
            {
                let mut queues = self.queues();
                if let Some(queue) = queues.get_mut(&thread) {
                    queue.pop_front();
                    if queue.is_empty() {
                        queues.remove(&thread);
                    }
                }
            }
            self.at_work.send_modify(|n| *n -= 1);
        }
    }

    async fn answer(&self, turn: &Turn) {
        let waited = turn.standing() == Standing::Queued;
        turn.change(Live::begin);
        if waited {
            let message = Box::new(turn.live().message().clone());
            // Only where it stands: the end is what has to be kept.
            match self.keeper.ask::<()>(&Ask::Save { message }).await {
                Ok(()) => {}
                // By a page of the worker that takes over.
                Err(e) if e.status == 409 => return turn.change(take_back),
                Err(e) => tracing::warn!("an answer's beginning is not kept: {}", e.message),
            }
            self.tell(&turn.thread);
        }
        match self.begin(turn).await {
            Ok(run) => self.follow(turn, run).await,
            Err(failure) => turn.change(|live| live.fail(failure, now())),
        }
    }

    async fn begin(&self, turn: &Turn) -> Result<ActiveRun, Failure> {
        let name = match turn.branch {
            0 => format!("web:{}", turn.thread),
            branch => format!("web:{}:{branch}", turn.thread),
        };
        let parse = |name: &str| {
            ConversationId::parse(name).map_err(|e| Failure::new("invalid_request", e.to_string()))
        };
        let (conversation, delivery) = (parse(&name)?, parse(&format!("web:{}", turn.thread))?);
        let preceding = match turn.branch {
            0 => vec![],
            _ => self.preceding(turn).await,
        };
        let _one_at_a_time = self.starting.lock().await;
        let sent = turn.take_sent();
        let sent = sent.ok_or_else(|| Failure::new("internal", "The message is gone."))?;
        let wish = Wish {
            conversation,
            delivery: Some(delivery),
            trigger: Trigger {
                source: "console".to_owned(),
                detail: None,
            },
            input: TurnInput {
                preceding,
                ..input(sent)
            },
        };
        let started = ActiveRun::start(self.runs.clone(), wish).await;
        started.map_err(|error| match error {
            StartError::Refused { code, message } => Failure::new(&code, message),
            StartError::Unavailable(e) => {
                tracing::warn!("a run was not started: {e}");
                Failure::new("unavailable", "The daemon did not start the run.")
            }
        })
    }

    /// What stands before a resent message: the agent's own history knows what was replaced.
    async fn preceding(&self, turn: &Turn) -> Vec<ChatMessage> {
        let ask = Ask::ShowThread {
            id: turn.thread.clone(),
            before: None,
            limit: 100,
        };
        let view: ThreadView = match self.keeper.ask(&ask).await {
            Ok(view) => view,
            Err(e) => {
                tracing::warn!("what precedes a message is not there: {}", e.message);
                return vec![];
            }
        };
        let before = view.messages.into_iter();
        pairs(before.take_while(|message| message.id != turn.user))
    }

    async fn follow(&self, turn: &Turn, mut run: ActiveRun) {
        let id = run.id().clone();
        let mut stop = turn.stop.subscribe();
        let mut late: Option<Instant> = None;
        loop {
            let step = {
                let next = run.next();
                tokio::pin!(next);
                loop {
                    let until = late.unwrap_or_else(Instant::now);
                    tokio::select! {
                        step = &mut next => break Some(step),
                        _ = stop.wait_for(|stop| *stop), if late.is_none() => {
                            late = Some(Instant::now() + STOPPED_WITHIN);
                            self.runs.cancel(id.clone(), "stopped in the console");
                        }
                        () = tokio::time::sleep_until(until), if late.is_some() => break None,
                    }
                }
            };
            match step {
                Some(Step::Event(event)) => {
                    let began = matches!(event, RunEvent::Started { .. });
                    turn.change(|live| live.event(event, now()));
                    if began && self.leaving.load(Ordering::Relaxed) {
                        self.note(turn).await;
                    }
                }
                Some(Step::App(early)) => {
                    let whole = matches!(early, Early::Whole(_));
                    turn.change(|live| live.app(early));
                    if whole && self.leaving.load(Ordering::Relaxed) {
                        self.note(turn).await;
                    }
                }
                Some(Step::Finished(done)) => {
                    return turn.change(|live| live.succeed(done, now()));
                }
                Some(Step::Failed(failure)) => {
                    return turn.change(|live| live.fail(failure, now()));
                }
                None => {
                    let failure = cancelled("Stopped.");
                    return turn.change(|live| live.fail(failure, now()));
                }
            }
        }
    }

    /// Keeps an answer that has ended, then tells its end: who reads it again finds it. One that the
    /// store does not take is told nevertheless, and offered until it is taken.
    async fn settle(&self, turn: &Turn) {
        *turn.settling.lock().await = true;
        // Nobody is told any more.
        drop(turn.take_sent());
        let mut message = turn.live().message().clone();
        let mut attempt = 1;
        let mut told = false;
        let tell = |message: &Message| {
            turn.change(|live| live.close(shown(message)));
            self.tell(&turn.thread);
        };
        loop {
            let ask = Ask::Save {
                message: Box::new(message.clone()),
            };
            let error = match self.keeper.ask::<()>(&ask).await {
                Ok(()) => break,
                Err(e) => e,
            };
            match after_refusal(error.status, !message.activity.is_empty(), attempt) {
                Next::Wait(time) => {
                    if attempt >= SAVE_ATTEMPTS && !told {
                        tracing::error!("an answer is not kept yet: {}", error.message);
                        tell(&message);
                        told = true;
                    }
                    tokio::time::sleep(time).await;
                    attempt += 1;
                }
                Next::WithoutSteps => {
                    tracing::warn!("the steps of an answer are not kept: {}", error.message);
                    message.activity.clear();
                    message.truncated = true;
                }
                Next::GiveUp => {
                    tracing::error!("an answer could not be kept: {}", error.message);
                    break;
                }
            }
        }
        if told {
            self.tell(&turn.thread);
        } else {
            tell(&message);
        }
    }
}

/// What comes of an answer that the store did not take.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It is offered again after this time.
    Wait(Duration),
    /// It is offered again at once, without its steps.
    WithoutSteps,
    /// Nobody wants it any more.
    GiveUp,
}

/// After the refusal of the `attempt`-th offer.
fn after_refusal(status: u16, has_steps: bool, attempt: u32) -> Next {
    match status {
        // Its thread is gone.
        404 => Next::GiveUp,
        503 if attempt < SAVE_ATTEMPTS => Next::Wait(Duration::from_secs(u64::from(attempt))),
        // The steps may be what is too much; the answer is what counts.
        _ if has_steps => Next::WithoutSteps,
        _ if attempt < SAVE_ATTEMPTS => Next::Wait(Duration::from_secs(u64::from(attempt))),
        _ => Next::Wait(SAVE_AGAIN),
    }
}

fn take_back(live: &mut Live) {
    live.fail(cancelled(TAKEN_BACK), now());
}

/// What a person reads of an answer that was taken back.
const TAKEN_BACK: &str = "Taken back before it began.";

fn taken_back() -> ipc_proto::console::Failure {
    ipc_proto::console::Failure {
        kind: "cancelled".to_owned(),
        message: TAKEN_BACK.to_owned(),
    }
}

fn cancelled(message: &str) -> Failure {
    Failure {
        cancelled: true,
        ..Failure::new("cancelled", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_taken_loses_its_steps_and_is_offered_until_it_is() {
        let secs = |n| Next::Wait(Duration::from_secs(n));
        for (status, has_steps, attempt, expected) in [
            (404, true, 1, Next::GiveUp),
            (404, false, SAVE_ATTEMPTS, Next::GiveUp),
            (503, true, 1, secs(1)),
            (503, true, SAVE_ATTEMPTS - 1, secs(4)),
            (503, true, SAVE_ATTEMPTS, Next::WithoutSteps),
            (507, true, 1, Next::WithoutSteps),
            (507, false, 1, secs(1)),
            (507, false, SAVE_ATTEMPTS, Next::Wait(SAVE_AGAIN)),
            (503, false, 1_000, Next::Wait(SAVE_AGAIN)),
            (400, false, SAVE_ATTEMPTS, Next::Wait(SAVE_AGAIN)),
        ] {
            let got = after_refusal(status, has_steps, attempt);
            assert_eq!(got, expected, "{status} {has_steps} {attempt}");
        }
    }
}
