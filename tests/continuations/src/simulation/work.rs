//! What the service does with what it has, and what the rest of the host answers.

use super::World;
use continuation_record::{LastError, State};
use continuation_service::Verdict;
use continuation_service::engine::{Answer, Job, Question, Step};
use continuation_service::host::{Commitment, Delivery, Readiness, Synthesis};
use continuation_service::keeper::Keeper as _;
use std::collections::BTreeSet;
use std::time::Duration;

/// The answer where the conversation could not be restored (spec s1).
const FIXED: &str = "The background task finished, but I could not safely restore the original conversation context. Please ask me to check the result again.";
/// Worked on at once.
const MAX_JOBS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Work {
    jobs: Vec<(Box<Job>, Question)>,
    /// Runs that were under way when the service went down.
    lingering: Vec<String>,
}

impl World {
    fn busy(&self) -> BTreeSet<String> {
        self.work
            .jobs
            .iter()
            .map(|(job, _)| job.id().to_owned())
            .collect()
    }

    /// The loop takes what is due.
    pub(super) fn work(&mut self) -> &'static str {
        self.truth.begin();
        if self.work.jobs.len() >= MAX_JOBS {
            return "nothing more at once";
        }
        let busy = self.busy();
        let due = self.machine.process().engine.due(busy.len() + 1);
        let Some(id) = due.into_iter().find(|id| !busy.contains(id)) else {
            return "nothing is due";
        };
        self.start(&id);
        "work begins"
    }

    fn start(&mut self, id: &str) {
        self.truth.touch(id);
        self.touch_siblings(id);
        let engine = self.machine.process().engine.clone();
        let step = self.machine.run(engine.start(id));
        self.stepped(id, step);
    }

    /// The turn's other claims may be settled with this one.
    fn touch_siblings(&mut self, id: &str) {
        if let Some(record) = self.truth.record(id) {
            let run = record.origin_run_id.clone();
            self.touch_run(&run);
        }
    }

    fn stepped(&mut self, id: &str, step: Result<Step, continuation_service::Rejection>) {
        if self.machine.is_down() {
            return;
        }
        if let Some(record) = self.truth.record(id) {
            let run = record.origin_run_id.clone();
            self.refresh_run(&run);
        }
        self.refresh(id);
        match step {
            Ok(Step::Ask(job, question)) => {
                self.asked(id, &question);
                self.work.jobs.push((job, question));
            }
            Ok(Step::Done) => {}
            Err(rejection) if rejection.code == "service_busy" => {}
            Err(rejection) => self.truth.say(&format!("work stopped: {rejection}")),
        }
    }

    /// A question goes out: from here on it may have happened.
    fn asked(&mut self, id: &str, question: &Question) {
        match question {
            Question::Synthesize(request) => {
                let calls = self.truth.asked.entry(id.to_owned()).or_default();
                *calls += 1;
                if *calls > 1 {
                    self.truth.say("a model is asked twice");
                }
                self.truth.count("models asked");
                if request.continuation_id != id {
                    self.truth.say("a model is asked for another continuation");
                }
            }
            Question::Deliver(request) => {
                let posts = self.truth.posted.entry(id.to_owned()).or_default();
                *posts += 1;
                if *posts > 1 {
                    self.truth.say("a text is posted twice");
                }
                self.truth.count("texts sent");
                if request.key != format!("continuation:{id}") {
                    self.truth.say("a delivery has another key");
                }
                let text = self.truth.texts.get(id).map_or(FIXED, String::as_str);
                if request.text != text {
                    self.truth.say("another text is posted");
                }
                let begun = self
                    .truth
                    .record(id)
                    .is_some_and(|record| record.delivery_started_at.is_some());
                if !begun {
                    self.truth
                        .say("a delivery is not on record before it begins");
                }
            }
            _ => {}
        }
    }

    /// The host answers one of its questions.
    pub(super) fn answer(&mut self) -> &'static str {
        self.truth.begin();
        if self.work.jobs.is_empty() {
            return self.work();
        }
        let at = self.chance.below(self.work.jobs.len());
        let (job, question) = self.work.jobs.swap_remove(at);
        let id = job.id().to_owned();
        let answer = self.choose(&id, &question);
        self.truth.touch(&id);
        self.touch_siblings(&id);
        let engine = self.machine.process().engine.clone();
        let step = self.machine.run(engine.advance(job, answer));
        self.stepped(&id, step);
        "the host answers"
    }

    fn choose(&mut self, id: &str, question: &Question) -> Answer {
        if self.chance.once_in(40) {
            return Answer::TimedOut;
        }
        let retry_after = self
            .chance
            .once_in(3)
            .then(|| Duration::from_millis(self.chance.below(100_000) as u64));
        let (code, reason) = ("simulated".to_owned(), "it is simulated".to_owned());
        match question {
            Question::Committed { run, .. } => {
                Answer::Committed(match self.machine.host.commitment(run) {
                    // It is not always known at once.
                    Commitment::Committed if self.chance.once_in(4) => Commitment::Unknown,
                    told => told,
                })
            }
            Question::Ready { .. } => Answer::Ready(match self.chance.below(20) {
                0 => Readiness::Refused { reason },
                1 | 2 => Readiness::Later { retry_after },
                _ => Readiness::Ready,
            }),
            Question::History { .. } => Answer::History(match self.chance.below(5) {
                0 => Err(reason),
                _ => Ok(Vec::new()),
            }),
            Question::Synthesize(_) => Answer::Synthesis(match self.chance.below(12) {
                0 => Synthesis::Failed { code, reason },
                1 | 2 => {
                    self.truth.asked.insert(id.to_owned(), 0);
                    Synthesis::Unavailable {
                        retry_after,
                        reason,
                    }
                }
                _ => {
                    let text = format!(
                        "the answer to {id} {}",
                        "-".repeat(self.chance.below(2_500))
                    );
                    let text = text.trim().to_owned();
                    self.truth.texts.insert(id.to_owned(), text.clone());
                    Synthesis::Text(text)
                }
            }),
            Question::Deliver(_) => Answer::Delivery(match self.chance.below(12) {
                0 => Delivery::Unknown { code, reason },
                1 => {
                    self.truth.posted.insert(id.to_owned(), 0);
                    Delivery::Permanent { code, reason }
                }
                2..=4 => {
                    self.truth.posted.insert(id.to_owned(), 0);
                    Delivery::Retryable {
                        retry_after,
                        code,
                        reason,
                    }
                }
                n => Delivery::Delivered {
                    delivery_id: Some(format!("post-{n}")),
                    channel_id: None,
                    history: match n {
                        5 => Some(Err("history_failed".to_owned())),
                        6 => Some(Ok(())),
                        _ => None,
                    },
                },
            }),
            Question::Enter { .. } => Answer::Entered(match self.chance.below(6) {
                0 => Err("history_failed".to_owned()),
                _ => Ok(()),
            }),
        }
    }

    pub(super) fn operate(&mut self) -> &'static str {
        self.truth.begin();
        let ids = self.truth.ids();
        let Some(id) = ids.get(self.chance.below(ids.len())).cloned() else {
            return "nothing to operate";
        };
        self.truth.touch(&id);
        let operator = self.machine.process().operator.clone();
        // Also when an operator has left it so.
        let unknown = self.truth.record(&id).is_some_and(|record| {
            let left = |e: &LastError| e.code == "operator_dead_lettered";
            record.state == State::DeliveryUnknown || record.last_error.as_ref().is_some_and(left)
        });
        let (told, kind, again) = match self.chance.below(6) {
            0 | 1 => {
                let allow = self.chance.once_in(2);
                let told = self.machine.run(operator.retry(&id, allow));
                // A dead letter that an operator sends again is the operator's word too.
                (told, "a retry", !unknown || allow)
            }
            2 => (
                self.machine.run(operator.cancel(&id)),
                "a cancellation",
                false,
            ),
            3 => {
                let delivery_id = Some("seen".to_owned());
                let verdict = Verdict::Delivered { delivery_id };
                (
                    self.machine.run(operator.resolve(&id, verdict)),
                    "a resolution",
                    false,
                )
            }
            4 => {
                let told = self
                    .machine
                    .run(operator.resolve(&id, Verdict::NotDelivered));
                (told, "a resolution", true)
            }
            _ => {
                let told = self
                    .machine
                    .run(operator.resolve(&id, Verdict::DeadLettered));
                (told, "a resolution", false)
            }
        };
        if self.machine.is_down() {
            // Who asked may have been heard.
            if again {
                self.truth.posted.insert(id, 0);
            }
            return kind;
        }
        match told {
            Ok(_) if again => {
                self.truth.posted.insert(id.clone(), 0);
            }
            Ok(_) => {}
            Err(rejection) => {
                let expected = [
                    "delivery_unknown",
                    "not_retryable",
                    "synthesis_not_retryable",
                    "already_terminal",
                    "continuation_in_flight",
                    "not_delivery_unknown",
                    "resolution_in_progress",
                    "service_busy",
                    "active_continuation_limit",
                    "active_origin_limit",
                ];
                if !expected.contains(&rejection.code) {
                    let what = format!("an operator was told {}", rejection.code);
                    self.truth.say(&what);
                }
            }
        }
        self.refresh(&id);
        kind
    }

    pub(super) fn expire(&mut self) -> &'static str {
        self.truth.begin();
        let busy = self.busy();
        let over = self.machine.process().engine.overdue(8);
        for id in over.into_iter().filter(|id| !busy.contains(id)) {
            self.start(&id);
            if self.machine.is_down() {
                break;
            }
        }
        "what is late expires"
    }

    pub(super) fn checkpoint(&mut self) -> &'static str {
        self.truth.begin();
        // If the disk fails, it is opened anew.
        let _ = self.machine.process().store.checkpoint();
        self.linger();
        "a checkpoint"
    }

    pub(super) fn retain(&mut self) -> &'static str {
        self.truth.begin();
        self.truth.touch_all();
        let now = self.machine.now();
        let kept = self.machine.process().kept.clone();
        let told = self.machine.run(kept.retain(now));
        if self.machine.is_down() {
            return "retention";
        }
        if let Err(rejection) = told
            && rejection.code != "service_busy"
        {
            self.truth.say("retention failed");
        }
        self.refresh_all();
        self.truth.begin();
        let settled = self.machine.process().store.stats().counts.settled();
        if settled > super::disk::RETENTION.terminal_max_records {
            self.truth.say("more tombstones are kept than may be");
        }
        "retention"
    }

    /// Nobody waits for the answers any more.
    pub(super) fn drop_jobs(&mut self) {
        self.work.jobs.clear();
    }

    /// The turns go on without the service, or end with it.
    pub(super) fn lose_turns(&mut self) {
        for run in self.clients.forget_turns() {
            if self.machine.host.is_committed(&run) {
                continue;
            }
            match self.chance.below(3) {
                0 => self.work.lingering.push(run),
                _ => self.machine.host.set_running(&run, false),
            }
        }
    }

    /// A turn that went on ends.
    fn linger(&mut self) {
        if let Some(run) = self.work.lingering.pop() {
            self.machine.host.set_running(&run, false);
        }
    }
}
