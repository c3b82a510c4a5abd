//! An answer while it is written: what became of it so far, and the frames that tell it.
//!
//! Frames are numbered, so a page that comes late or again gets what it missed. The log is bounded:
//! who has fallen behind its beginning gets the whole state instead. No I/O; time is an argument.

use super::views::Views;
use crate::runs::{Early, Failure as RunFailure, Finished};
use ipc_proto::console::{
    Activity, ActivityKind, Failure, MAX_ACTIVITY, MAX_ACTIVITY_TEXT, MAX_TEXT, Message, Standing,
};
use ipc_proto::edges::egress::ProviderStage;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::operator_frames::{Frame, Step};
use ipc_proto::reply::{MAX_PARTS, ReplyPart};
use ipc_proto::request_context::ProgressState;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};

/// Bytes of frames that are kept for pages that come late.
const LOG_BYTES: usize = 2 << 20;
/// New bytes of a thought until it is told again.
const THOUGHT_STEP: usize = 512;
/// Longest name of a tool, title or code in bytes.
const MAX_NAME: usize = 256;
/// Calls that can be under way in one answer; a turn makes fewer in all.
const OPEN_CALLS: usize = 1_000;
/// Longest id of a call in bytes. What comes of a call beyond these bounds is not shown.
const MAX_CALL_ID: usize = 1_024;

/// A frame on its way to a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Absent where a page must not go on from: in the middle of a whole state.
    pub number: Option<u64>,
    /// The kind.
    pub name: &'static str,
    /// The data.
    pub data: String,
}

/// An answer while it is written.
#[derive(Debug)]
pub struct Live {
    message: Message,
    /// Call ids of the model, and under which id each is told.
    calls: HashMap<String, String>,
    steps: u64,
    /// Apps that are shown before the answer is whole.
    views: Views,
    /// The thought that goes on, and its length when it was last told.
    thought: Option<(String, usize)>,
    log: VecDeque<Numbered>,
    log_bytes: usize,
    last: u64,
    over: bool,
}

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME)].to_owned()
}

/// Cut to the bound of an activity's text; true when something was lost.
fn bounded(text: &str) -> (String, bool) {
    let kept = &text[..text.floor_char_boundary(MAX_ACTIVITY_TEXT)];
    (kept.to_owned(), kept.len() < text.len())
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

impl Live {
    /// For an answer that waits or begins.
    #[must_use]
    pub fn new(message: Message) -> Self {
        let mut live = Self {
            message,
            calls: HashMap::new(),
            steps: 0,
            views: Views::default(),
            thought: None,
            log: VecDeque::new(),
            log_bytes: 0,
            last: 0,
            over: false,
        };
        live.tell_standing();
        live
    }

    /// The answer as it is now.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The answer as another worker of this console finds it while it is written here: with the apps
    /// that are there already, for its pages ask that one for them.
    #[must_use]
    pub fn noted(&self) -> Message {
        let mut message = self.message.clone();
        message.parts.extend(self.views.whole().cloned());
        message
    }

    /// Number of the latest frame.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// True when the last frame was told.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn tell(&mut self, frame: Frame) {
        for frame in frame.fit() {
            self.last += 1;
            let numbered = Numbered {
                number: Some(self.last),
                name: frame.name(),
                data: frame.data(),
            };
            self.log_bytes += numbered.data.len();
            self.log.push_back(numbered);
        }
        // The end is always kept.
        while self.log_bytes > LOG_BYTES && self.log.len() > 1 {
            if let Some(oldest) = self.log.pop_front() {
                self.log_bytes -= oldest.data.len();
            }
        }
    }

    fn tell_standing(&mut self) {
        let state = self.message.status.name().to_owned();
        self.tell(Frame::Status { state });
    }

    /// What a page doesn't have that has the frames up to `after`, at most `most` of them.
    #[must_use]
    pub fn since(&self, after: u64, most: usize) -> Vec<Numbered> {
        let first = self.log.front().and_then(|frame| frame.number);
        let first = first.unwrap_or(self.last + 1);
        if after.saturating_add(1) < first || after > self.last {
            return self.whole();
        }
        let known = self
            .log
            .partition_point(|frame| frame.number <= Some(after));
        self.log.iter().skip(known).take(most).cloned().collect()
    }

    /// Everything told so far, as the shortest way to the same state.
    fn whole(&self) -> Vec<Numbered> {
        let state = self.message.status.name().to_owned();
        let text = self.message.text.clone();
        let activity = self.message.activity.iter().cloned();
        let apps = self.views.frames(&self.message.id);
        let frames = [Frame::Status { state }, Frame::Replace { text }]
            .into_iter()
            .chain(activity.map(|activity| Frame::Event(Step::Activity(activity))))
            .chain(apps)
            .flat_map(Frame::fit);
        let mut out: Vec<Numbered> = frames
            .map(|frame| Numbered {
                number: None,
                name: frame.name(),
                data: frame.data(),
            })
            .collect();
        match self.log.back() {
            Some(end) if self.over => out.push(end.clone()),
            _ => {
                if let Some(last) = out.last_mut() {
                    last.number = Some(self.last);
                }
            }
        }
        out
    }

    /// The run works.
    pub fn begin(&mut self) {
        self.message.status = Standing::Running;
        self.tell_standing();
    }

    /// One event of the run.
    pub fn event(&mut self, event: RunEvent, now: i64) {
        if !matches!(
            event,
            RunEvent::Thought { .. } | RunEvent::UsageUpdate { .. }
        ) {
            self.end_thought(now);
        }
        match event {
            RunEvent::Started { run } => self.message.run_id = Some(run.to_string()),
            RunEvent::Append { text } => self.append(&text),
            RunEvent::Replace { text } => {
                self.message.text.clear();
                self.message.truncated = false;
                let kept = self.room(&text).to_owned();
                self.message.text.push_str(&kept);
                self.tell(Frame::Replace { text: kept });
            }
            RunEvent::Thought { text } => self.think(&text, now),
            RunEvent::ToolStarted {
                id,
                name,
                arguments,
            } => {
                let own = self.next_step("tool");
                // Some models use an id again: what it names from now on is this call.
                if self.calls.len() < OPEN_CALLS && id.len() <= MAX_CALL_ID {
                    self.calls.insert(id, own.clone());
                }
                let (arguments, truncated) = bounded(&arguments);
                self.step(Activity {
                    name: Some(short(&name)),
                    arguments: Some(arguments),
                    truncated,
                    ..activity(own, ActivityKind::Tool, now)
                });
            }
            RunEvent::ToolProgress {
                id,
                progress,
                total,
                message,
            } => {
                let so_far = match total {
                    Some(total) => format!("{progress} of {total}"),
                    None => progress.to_string(),
                };
                let title = message.map_or(so_far, |message| short(&message));
                self.change(&id, |call| call.title = Some(title));
            }
            RunEvent::ToolCompleted {
                id, ok, preview, ..
            } => {
                let (result, cut) = bounded(&preview);
                self.change(&id, |call| {
                    call.result = Some(result);
                    call.is_error = !ok;
                    call.truncated |= cut;
                    call.ended_at = Some(now);
                    call.title = None;
                });
                self.calls.remove(&id);
            }
            RunEvent::UsageUpdate { usage } => self.message.usage = Some(usage),
            RunEvent::ProviderStatus {
                stage,
                model,
                detail,
            } => {
                let name = match stage {
                    ProviderStage::RetryStarted => "retry_started",
                    ProviderStage::FailoverStarted => "failover_started",
                    // Requests that begin and end as they should are no news.
                    _ => return,
                };
                let own = self.next_step("status");
                self.step(Activity {
                    name: Some(name.to_owned()),
                    title: Some(short(&model)),
                    text: detail.map(|detail| bounded(&detail).0),
                    ended_at: Some(now),
                    ..activity(own, ActivityKind::Status, now)
                });
            }
            RunEvent::Warning { code, message } => {
                let own = self.next_step("warning");
                let (text, truncated) = bounded(&message);
                self.step(Activity {
                    name: Some(short(&code)),
                    text: Some(text),
                    truncated,
                    ended_at: Some(now),
                    ..activity(own, ActivityKind::Warning, now)
                });
            }
            RunEvent::Posted {
                server,
                key,
                message,
                state,
            } => self.posted(&server, &key, &message, state, now),
            RunEvent::Background { continuations } => {
                let own = self.next_step("status");
                let step = background(own, BackgroundWork::GoesOn, &continuations, now);
                self.step(step);
            }
            RunEvent::Part { .. }
            | RunEvent::AppDraft { .. }
            | RunEvent::AppInput { .. }
            | RunEvent::AppCalled { .. }
            | RunEvent::AppGone { .. }
            | RunEvent::Finish { .. }
            | RunEvent::Failed { .. } => {}
        }
    }

    /// Something of an app can be shown.
    pub fn app(&mut self, early: Early) {
        if !self.message.status.is_open() {
            return;
        }
        let outdated = match &early {
            Early::Input { id, .. } => self.views.told_input(id),
            _ => None,
        };
        let Some(frame) = self.views.take(early, &self.message.id) else {
            return;
        };
        // Of what was told as it came, the newest is enough for a page that comes late.
        if let Some(outdated) = outdated {
            self.forget(outdated);
        }
        let input = frame.input();
        self.tell(frame);
        if let Some(id) = input {
            self.views.tell_input(&id, self.last);
        }
    }

    fn forget(&mut self, number: u64) {
        let at = self
            .log
            .binary_search_by_key(&Some(number), |frame| frame.number);
        if let Some(frame) = at.ok().and_then(|at| self.log.remove(at)) {
            self.log_bytes -= frame.data.len();
        }
    }

    /// An app that the answer has, or will have.
    #[must_use]
    pub fn find_app(&self, id: &str) -> Option<&ReplyPart> {
        let mut parts = self.views.parts().chain(&self.message.parts);
        parts.find(|part| matches!(part, ReplyPart::McpApp { id: own, .. } if own == id))
    }

    /// A server tells of a piece of its work: a step of its own, which goes on with the same key.
    fn posted(&mut self, server: &str, key: &str, message: &str, state: ProgressState, now: i64) {
        // No id of a model's call has this form.
        let piece = format!("progress\0{server}\0{key}");
        let (text, truncated) = bounded(message);
        let change = |step: &mut Activity| {
            step.text = Some(text);
            step.truncated = truncated;
            step.is_error = state == ProgressState::Failed;
            step.ended_at = (state != ProgressState::Running).then_some(now);
        };
        if self.calls.contains_key(&piece) {
            return self.change(&piece, change);
        }
        let own = self.next_step("progress");
        if self.calls.len() < OPEN_CALLS {
            self.calls.insert(piece, own.clone());
        }
        let mut step = Activity {
            name: Some("server_progress".to_owned()),
            title: Some(short(server)),
            ..activity(own, ActivityKind::Status, now)
        };
        change(&mut step);
        self.step(step);
    }

    /// As much of a text as the message takes; marks it when that is not all.
    fn room<'a>(&mut self, text: &'a str) -> &'a str {
        let room = MAX_TEXT - self.message.text.len();
        let kept = &text[..text.floor_char_boundary(room)];
        self.message.truncated |= kept.len() < text.len();
        kept
    }

    fn append(&mut self, text: &str) {
        let kept = self.room(text).to_owned();
        if !kept.is_empty() {
            self.message.text.push_str(&kept);
            self.tell(Frame::Append { text: kept });
        }
    }

    fn next_step(&mut self, kind: &str) -> String {
        self.steps += 1;
        format!("{kind}-{}", self.steps)
    }

    /// A new step, at the cost of the oldest.
    fn step(&mut self, step: Activity) {
        if self.message.activity.len() >= MAX_ACTIVITY {
            self.message.activity.remove(0);
        }
        self.message.activity.push(step.clone());
        self.tell(Frame::Event(Step::Activity(step)));
    }

    /// A step of the model's call id goes on; one that was dropped meanwhile is no longer told.
    fn change(&mut self, call: &str, change: impl FnOnce(&mut Activity)) {
        let Some(own) = self.calls.get(call) else {
            return;
        };
        let mut steps = self.message.activity.iter_mut().rev();
        if let Some(step) = steps.find(|step| step.id == *own) {
            change(step);
            let step = step.clone();
            self.tell(Frame::Event(Step::Activity(step)));
        }
    }

    fn think(&mut self, text: &str, now: i64) {
        if self.thought.is_none() {
            let own = self.next_step("thought");
            self.thought = Some((own.clone(), 0));
            self.step(Activity {
                text: Some(String::new()),
                ..activity(own, ActivityKind::Thought, now)
            });
        }
        let Some((own, told)) = self.thought.clone() else {
            return;
        };
        let mut steps = self.message.activity.iter_mut().rev();
        let Some(step) = steps.find(|step| step.id == own) else {
            return;
        };
        let so_far = step.text.get_or_insert_default();
        let room = MAX_ACTIVITY_TEXT - so_far.len();
        let kept = &text[..text.floor_char_boundary(room)];
        so_far.push_str(kept);
        step.truncated |= kept.len() < text.len();
        // Told whole each time, so not with every word.
        let length = so_far.len();
        if length >= told + THOUGHT_STEP || (told == 0 && length > 0) {
            let step = step.clone();
            self.thought = Some((own, length));
            self.tell(Frame::Event(Step::Activity(step)));
        }
    }

    fn end_thought(&mut self, now: i64) {
        let Some((own, _)) = self.thought.take() else {
            return;
        };
        let mut steps = self.message.activity.iter_mut().rev();
        if let Some(step) = steps.find(|step| step.id == own) {
            step.ended_at = Some(now);
            let step = step.clone();
            self.tell(Frame::Event(Step::Activity(step)));
        }
    }

    fn end_steps(&mut self, now: i64) {
        self.end_thought(now);
        for step in &mut self.message.activity {
            step.ended_at.get_or_insert(now);
        }
    }

    /// The run was committed. The answer is whole; it is told with [`Live::close`].
    pub fn succeed(&mut self, done: Finished, now: i64) {
        self.end_steps(now);
        self.views.clear();
        let mut text = done.text;
        self.message.truncated = text.len() > MAX_TEXT;
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        self.message.text = text;
        let parts = done.parts.as_array().into_iter().flatten();
        self.message.parts = parts.take(MAX_PARTS).map(part).collect();
        self.message.usage = Some(done.usage);
        self.message.status = Standing::Succeeded;
        self.message.failure = None;
    }

    /// The run was not committed; what it had said stays.
    pub fn fail(&mut self, failure: RunFailure, now: i64) {
        self.end_steps(now);
        self.views.clear();
        self.message.status = if failure.cancelled {
            Standing::Cancelled
        } else {
            Standing::Failed
        };
        self.message.failure = Some(Failure {
            kind: short(&failure.kind),
            message: failure.message,
        });
    }

    /// Tells the end: `shown` is the message as pages see it.
    pub fn close(&mut self, shown: Value) {
        self.over = true;
        let message = object(shown);
        self.tell(Frame::Finish { message });
    }
}

/// One part as the run wrote it; what is none of ours becomes a failure of its own.
fn part(value: &Value) -> ReplyPart {
    serde_json::from_value(value.clone()).unwrap_or_else(|_| {
        let code = "unsupported_destination";
        ReplyPart::Failure {
            id: "unknown".to_owned(),
            code: code.to_owned(),
            message: ipc_proto::reply::failure_message(code).to_owned(),
            related_part_id: None,
        }
    })
}

fn activity(id: String, kind: ActivityKind, now: i64) -> Activity {
    Activity {
        id,
        kind,
        name: None,
        title: None,
        arguments: None,
        result: None,
        is_error: false,
        started_at: now,
        ended_at: None,
        truncated: false,
        text: None,
    }
}

/// What a message says of work in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackgroundWork {
    /// The turn began it; its answer comes later.
    GoesOn,
    /// The message is its answer.
    Ended,
}

/// A step about work in the background; the page finds the continuations by the ids in it.
#[must_use]
pub fn background(id: String, work: BackgroundWork, ids: &[String], now: i64) -> Activity {
    let (name, text) = match work {
        BackgroundWork::GoesOn => (
            "background_work",
            "Work goes on in the background. Its answer comes here, later.",
        ),
        BackgroundWork::Ended => ("background_task", "The background task has ended."),
    };
    let ids: Vec<String> = ids.iter().map(|id| short(id)).collect();
    Activity {
        name: Some(name.to_owned()),
        arguments: (!ids.is_empty()).then(|| json!(ids).to_string()),
        text: Some(text.to_owned()),
        ended_at: Some(now),
        ..activity(id, ActivityKind::Status, now)
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
