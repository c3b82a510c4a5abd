//! Turns and services: what they ask, and what they were promised.

use super::World;
use super::disk::{BEARER, SERVICE};
use continuation_record::canonical::canonical;
use continuation_record::{Mode, Time};
use continuation_service::intake::Claimed;
use continuation_service::{Bound, ClaimBinding, Rejection};
use serde_json::{Value, json};

/// Turns and tasks that are remembered at most.
const MAX_TASKS: usize = 160;
const MAX_TURNS: usize = 12;

/// A turn that may claim.
#[derive(Debug)]
struct Turn {
    run: String,
    binding: ClaimBinding,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Closed,
    Finalized,
    Committed,
}

/// A claim that was promised.
#[derive(Debug, Clone)]
struct Task {
    id: String,
    token: String,
    /// What was claimed with what, to repeat it.
    bearer: Option<String>,
    body: Value,
    /// The result that was accepted.
    result: Option<Value>,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    turns: Vec<Turn>,
    tasks: Vec<Task>,
    next: usize,
}

impl Clients {
    /// After a restart no capability is valid any more.
    pub(super) fn forget_turns(&mut self) -> Vec<String> {
        self.turns.drain(..).map(|turn| turn.run).collect()
    }
}

fn code(rejection: &Rejection) -> &str {
    rejection.code
}

impl World {
    pub(super) fn begin_turn(&mut self) -> &'static str {
        self.truth.begin();
        if self.clients.turns.len() >= MAX_TURNS {
            return self.settle();
        }
        self.clients.next += 1;
        let run = format!("run-{}", self.clients.next);
        let conversation = format!("slack:D{}:1.1#2026-11-30", self.chance.below(3));
        let mode = match self.chance.below(4) {
            0 => Mode::Capture,
            1 => Mode::NotifyIfActionable,
            _ => Mode::Reply,
        };
        let bound = Bound {
            run: run.clone(),
            server: "control".to_owned(),
            reply_to: Some("slack:D1:1.1".to_owned()),
            conversation,
            boundary: None,
            mode,
        };
        if let Ok(binding) = self.machine.process().origins.issue(bound) {
            self.machine.host.set_running(&run, true);
            self.clients.turns.push(Turn {
                run,
                binding,
                stage: Stage::Open,
            });
        }
        "a turn begins"
    }

    fn task_body(&mut self, task: usize) -> Value {
        let seconds = 60 + self.chance.below(40_000);
        let ms = i64::try_from(seconds).unwrap_or(0) * 1_000;
        let deadline = self.machine.now().plus_ms(ms);
        json!({ "taskKey": format!("task-{task}"), "taskHash": format!("hash-{task}"), "deadline": deadline })
    }

    pub(super) fn claim(&mut self) -> &'static str {
        self.truth.begin();
        if self.chance.once_in(3) && !self.clients.tasks.is_empty() {
            return self.repeat_claim();
        }
        let open: Vec<_> = (0..self.clients.turns.len())
            .filter(|at| self.clients.turns[*at].stage == Stage::Open)
            .collect();
        let Some(&at) = open.get(self.chance.below(open.len())) else {
            return "no turn claims";
        };
        self.clients.next += 1;
        let body = self.task_body(self.clients.next);
        let bearer = self.clients.turns[at].binding.token.as_str().to_owned();
        let text = body.to_string();
        let process = self.machine.process();
        let told = self
            .machine
            .run(process.intake.claim_with(&bearer, text.as_bytes()));
        self.claimed(told, Some(bearer), body);
        "a claim"
    }

    pub(super) fn claim_detached(&mut self) -> &'static str {
        self.truth.begin();
        self.clients.next += 1;
        let mut body = self.task_body(self.clients.next);
        body["route"] = json!(["attention", "capture", "index"][self.chance.below(3)]);
        let text = body.to_string();
        let process = self.machine.process();
        let told = self.machine.run(
            process
                .intake
                .detached_with(SERVICE, BEARER, text.as_bytes()),
        );
        self.claimed(told, None, body);
        "a detached claim"
    }

    fn claimed(&mut self, told: Result<Claimed, Rejection>, bearer: Option<String>, body: Value) {
        match told {
            Ok(claimed) => {
                if claimed.replayed {
                    self.truth.say("a new task was answered as a repeat");
                }
                self.truth.touch(&claimed.continuation_id);
                self.refresh(&claimed.continuation_id);
                self.clients.tasks.push(Task {
                    id: claimed.continuation_id,
                    token: claimed.token,
                    bearer,
                    body,
                    result: None,
                });
                if self.clients.tasks.len() > MAX_TASKS {
                    self.clients.tasks.remove(0);
                }
            }
            Err(rejection) => self.expect(
                &rejection,
                &[
                    "active_continuation_limit",
                    "active_origin_limit",
                    "service_busy",
                ],
            ),
        }
    }

    fn repeat_claim(&mut self) -> &'static str {
        let at = self.chance.below(self.clients.tasks.len());
        let task = self.clients.tasks[at].clone();
        let mut body = task.body.clone();
        let other = self.chance.once_in(3);
        if other {
            self.clients.next += 1;
            body["taskHash"] = json!(format!("hash-{}", self.clients.next));
        }
        let text = body.to_string();
        let process = self.machine.process();
        let told = match &task.bearer {
            Some(bearer) => self
                .machine
                .run(process.intake.claim_with(bearer, text.as_bytes())),
            None => self.machine.run(process.intake.detached_with(
                SERVICE,
                BEARER,
                text.as_bytes(),
            )),
        };
        match told {
            Ok(again) if other && again.continuation_id == task.id => {
                self.truth.say("another task was taken for the same");
            }
            Ok(again) if again.replayed => {
                // Another name: the tombstone went, and a crash kept the answer from its client.
                let known = self.truth.is_known(&task.id);
                if known && (&again.continuation_id, &again.token) != (&task.id, &task.token) {
                    self.truth.say("a repeated claim got another answer");
                }
            }
            // Its tombstone is gone, so it is a new one.
            Ok(again) => {
                if self.truth.is_known(&task.id) {
                    self.truth.say("a repeated claim was taken for a new one");
                }
                self.clients.tasks.remove(at);
                let bearer = task.bearer.clone();
                self.claimed(
                    Ok(Claimed {
                        replayed: false,
                        ..again
                    }),
                    bearer,
                    body,
                );
            }
            Err(rejection)
                if !other
                    && self.truth.is_known(&task.id)
                    && matches!(code(&rejection), "invalid_deadline" | "deadline_too_far") =>
            {
                self.truth.say("a repeated claim was refused for its time");
            }
            // Without its tombstone the name is free: another task may have it, and a crash kept the
            // answer from its client.
            Err(rejection)
                if code(&rejection) == "claim_conflict"
                    && !other
                    && !self.truth.is_another(&body) =>
            {
                self.truth
                    .say("a repeated claim is in conflict with itself");
            }
            Err(rejection) => self.expect(
                &rejection,
                &[
                    "claim_conflict",
                    "invalid_claim_capability",
                    "invalid_deadline",
                    "deadline_too_far",
                    "active_continuation_limit",
                    "active_origin_limit",
                    "service_busy",
                ],
            ),
        }
        "a repeated claim"
    }

    /// A turn goes one step on: closed, bound, committed, activated; or it fails.
    pub(super) fn settle(&mut self) -> &'static str {
        self.truth.begin();
        if self.clients.turns.is_empty() {
            return "no turn settles";
        }
        let at = self.chance.below(self.clients.turns.len());
        let run = self.clients.turns[at].run.clone();
        let stage = self.clients.turns[at].stage;
        let origins = self.machine.process().origins.clone();
        self.touch_run(&run);
        if stage != Stage::Committed && self.chance.once_in(6) {
            self.machine.host.set_running(&run, false);
            let told = self.machine.run(origins.abandon(&run, "the turn failed"));
            if told.is_ok() {
                self.clients.turns.remove(at);
                self.refresh_run(&run);
            }
            return "a turn fails";
        }
        let (told, next) = match stage {
            Stage::Open => (
                self.machine.run(origins.close(&run)).map(|_| ()),
                Some(Stage::Closed),
            ),
            Stage::Closed => (
                self.machine
                    .run(origins.finalize(&run, "the question", "the answer", &[])),
                Some(Stage::Finalized),
            ),
            Stage::Finalized => {
                self.machine.host.commit(&run);
                self.machine.host.set_running(&run, false);
                (Ok(()), Some(Stage::Committed))
            }
            Stage::Committed => (self.machine.run(origins.activate(&run)), None),
        };
        match (told, next) {
            (Ok(()), Some(next)) => self.clients.turns[at].stage = next,
            (Ok(()), None) => {
                self.clients.turns.remove(at);
            }
            // No room for the snapshot, or the disk failed: the turn fails with it.
            (Err(_), _) if stage == Stage::Closed && !self.machine.is_down() => {
                self.machine.host.set_running(&run, false);
                if self.machine.run(origins.abandon(&run, "no room")).is_ok() {
                    self.clients.turns.remove(at);
                }
            }
            (Err(_), _) => {}
        }
        if !self.machine.is_down() {
            self.refresh_run(&run);
        }
        "a turn settles"
    }

    pub(super) fn submit(&mut self) -> &'static str {
        self.truth.begin();
        if self.clients.tasks.is_empty() {
            return "nobody submits";
        }
        let at = self.chance.below(self.clients.tasks.len());
        let task = self.clients.tasks[at].clone();
        let payload = match self.chance.below(8) {
            0 => json!({ "actionable": false }),
            1 => json!({ "status": " Nothing_To_Report " }),
            2 => json!("x".repeat(self.chance.below(6_000))),
            3 => Value::Null,
            n => json!({ "summary": format!("result {n}"), "values": [1.5, -0.0, 1e21] }),
        };
        let repeat = task.result.is_some() && !self.chance.once_in(3);
        let body = match &task.result {
            Some(result) if repeat => result.clone(),
            _ => {
                json!({ "idempotencyKey": format!("key-{}", self.chance.below(4)), "payload": payload })
            }
        };
        self.truth.touch(&task.id);
        let process = self.machine.process();
        let text = body.to_string();
        let told = self.machine.run(
            process
                .intake
                .submit(&task.id, &task.token, text.as_bytes()),
        );
        match told {
            Ok(_) => {
                if let Some(result) = &task.result
                    && canonical(&result.to_string()) != canonical(&text)
                {
                    self.truth.say("two different results were accepted");
                }
                self.clients.tasks[at].result = Some(body.clone());
                self.truth.accept(&task.id, &body["payload"].to_string());
            }
            Err(rejection) => {
                if repeat && code(&rejection) != "invalid_result_capability" {
                    let allowed = ["service_busy", "internal_error"];
                    if !allowed.contains(&code(&rejection)) {
                        self.truth
                            .say("an accepted result was refused when it was repeated");
                    }
                }
                if code(&rejection) == "invalid_result_capability" && self.truth.is_known(&task.id)
                {
                    self.truth.say("a token is right no more");
                }
                self.expect(
                    &rejection,
                    &[
                        "result_conflict",
                        "result_not_accepted",
                        "continuation_expired",
                        "invalid_result_capability",
                        "service_busy",
                    ],
                );
            }
        }
        self.refresh(&task.id);
        "a result"
    }

    /// Somebody who has no right to it.
    pub(super) fn hostile(&mut self) -> &'static str {
        self.truth.begin();
        if self.clients.tasks.is_empty() {
            return "nobody to attack";
        }
        let first = self.clients.tasks[self.chance.below(self.clients.tasks.len())].clone();
        let second = self.clients.tasks[self.chance.below(self.clients.tasks.len())].clone();
        let body = json!({ "idempotencyKey": "stolen", "payload": 1 }).to_string();
        let process = self.machine.process();
        if first.id != second.id {
            let told = self.machine.run(process.intake.submit(
                &first.id,
                &second.token,
                body.as_bytes(),
            ));
            if told.is_ok() {
                self.truth
                    .say("a token of another continuation was accepted");
            }
        }
        let claim = json!({ "taskKey": "stolen", "taskHash": "h", "deadline": Time::MAX });
        let told = self.machine.run(
            process
                .intake
                .claim_with(&first.token, claim.to_string().as_bytes()),
        );
        if told.is_ok() {
            self.truth.say("a result's token could claim");
        }
        "somebody without rights"
    }

    fn expect(&mut self, rejection: &Rejection, codes: &[&str]) {
        // A disk that fails is looked at when it is opened anew.
        if !self.machine.is_down() && !codes.contains(&code(rejection)) {
            let code = code(rejection).to_owned();
            self.truth
                .say(&format!("an answer that nobody expects: {code}"));
        }
    }
}
