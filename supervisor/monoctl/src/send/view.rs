//! How a run's events are shown: frames of the operator's protocol for scripts, or the answer with
//! its activity.

use crate::error::CtlError;
use crate::screen::{Colour, Screen};
use crate::terminal::{duration, safe_line, shell_word, size};
use ipc_proto::Body;
use ipc_proto::edges::egress::ProviderStage;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::operator_events::{event_frame, frame};
use ipc_proto::operator_frames::Frame;
use ipc_proto::reply::ReplyPart;
use ipc_proto::request_context::ProgressState;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Largest answer in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// Largest reply part in bytes of JSON.
const MAX_PART: usize = 64 * 1024;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    Failed,
}

/// Shows one run.
pub(crate) struct View<'a> {
    run: String,
    raw: bool,
    screen: &'a mut Screen,
    /// The text that was shown or told, and counts.
    shown: String,
    /// A part of the answer that was shown is void: the whole comes at the end.
    broken: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(run: String, raw: bool, screen: &'a mut Screen) -> Self {
        Self {
            run,
            raw,
            screen,
            shown: String::new(),
            broken: false,
        }
    }

    /// Shows an event; `Some` for the last one.
    pub(crate) fn event(
        &mut self,
        event: RunEvent,
        mut fds: VecDeque<OwnedFd>,
    ) -> Result<Option<End>, CtlError> {
        match event {
            RunEvent::Finish {
                text,
                parts,
                usage,
                model,
            } => {
                let text = text.unpack_text(&mut fds, MAX_ANSWER);
                let parts = serde_json::from_slice::<Vec<ReplyPart>>(&parts);
                let (text, parts) = match (text, parts) {
                    (Ok(text), Ok(parts)) => (text, parts),
                    (Err(e), _) => {
                        return self
                            .lost(&format!("the answer can't be read: {e}"))
                            .map(Some);
                    }
                    (_, Err(e)) => {
                        return self
                            .lost(&format!("the parts can't be read: {e}"))
                            .map(Some);
                    }
                };
                if self.screen.is_json() {
                    let whole = json!({
                        "ok": true, "run": self.run, "text": text, "parts": parts,
                        "usage": usage, "model": model,
                    });
                    self.tell_finish(text, whole)?;
                } else {
                    self.finish(&text)?;
                    for part in &parts {
                        self.screen.aside(&part_line(part))?;
                    }
                }
                Ok(Some(End::Committed))
            }
            RunEvent::Failed {
                cancelled,
                kind,
                message,
            } => {
                self.failed(cancelled, &kind, &message)?;
                Ok(Some(End::Failed))
            }
            RunEvent::Part { part } => {
                // The parts come again, complete and in order, with the end.
                if self.screen.is_json() {
                    let part = part_of(part, &mut fds);
                    let told = event_frame(json!({ "type": "part", "part": part }));
                    self.tell_all(told)?;
                }
                Ok(None)
            }
            other if self.screen.is_json() => {
                match &other {
                    RunEvent::Append { text } => self.shown.push_str(text),
                    RunEvent::Replace { text } => self.shown.clone_from(text),
                    _ => {}
                }
                self.tell_all(frame(other)).map(|()| None)
            }
            other => self.show(other).map(|()| None),
        }
    }

    fn tell_all(&mut self, frames: impl IntoIterator<Item = Frame>) -> Result<(), CtlError> {
        for frame in frames.into_iter().flat_map(Frame::fit) {
            self.screen.json(&frame)?;
        }
        Ok(())
    }

    /// The last frame may have to lose text: what was told before it is then the whole of it.
    fn tell_finish(&mut self, text: String, whole: Value) -> Result<(), CtlError> {
        let message = object(whole);
        let last = Frame::Finish { message }.fit();
        let is_cut = |frame: &Frame| matches!(frame, Frame::Finish { message } if message.contains_key("truncated"));
        if last.iter().any(is_cut) && self.shown != text {
            self.tell_all([Frame::Replace { text }])?;
        }
        self.tell_all(last)
    }

    /// The run's process or its channel is gone.
    pub(crate) fn lost(&mut self, message: &str) -> Result<End, CtlError> {
        self.failed(false, "worker_lost", message)?;
        Ok(End::Failed)
    }

    /// The operator pressed Ctrl-C.
    pub(crate) fn interrupted(&mut self) -> Result<(), CtlError> {
        self.failed(true, "cancelled", "interrupted")
    }

    fn failed(&mut self, cancelled: bool, kind: &str, message: &str) -> Result<(), CtlError> {
        if self.screen.is_json() {
            let failure = object(json!({
                "kind": kind, "message": message, "cancelled": cancelled, "run": self.run,
            }));
            return self.tell_all([Frame::Error { failure }]);
        }
        self.screen.end_line()?;
        let word = self
            .screen
            .paint(if cancelled { "cancelled" } else { "failed" }, Colour::Bad);
        // The colour is ours: only what came from outside is made safe.
        let (message, kind) = (safe_line(message, 1_000), safe_line(kind, 100));
        self.screen
            .aside_trusted(&format!("{word}: {message} ({kind})"))
    }

    fn show(&mut self, event: RunEvent) -> Result<(), CtlError> {
        match event {
            RunEvent::Append { text } => {
                self.shown.push_str(&text);
                if self.broken {
                    Ok(())
                } else {
                    self.screen.answer(&text, self.raw)
                }
            }
            RunEvent::Replace { text } => self.replace(text),
            RunEvent::ToolStarted {
                name, arguments, ..
            } => self.screen.aside(&format!(
                "> {} {}",
                safe_line(&name, 64),
                safe_line(&arguments, 120)
            )),
            RunEvent::ToolProgress {
                progress,
                total,
                message,
                ..
            } => {
                let of = total
                    .map(|total| format!(" of {total}"))
                    .unwrap_or_default();
                let message = safe_line(&message.unwrap_or_default(), 120);
                self.screen
                    .aside(format!("  {progress}{of} {message}").trim_end())
            }
            RunEvent::ToolCompleted {
                name,
                ok,
                preview,
                duration_ms,
                ..
            } => {
                let (name, took) = (safe_line(&name, 64), duration(duration_ms));
                if ok {
                    self.screen.aside(&format!("< {name} ({took})"))
                } else {
                    self.screen.aside(&format!(
                        "< {name} FAILED ({took}): {}",
                        safe_line(&preview, 200)
                    ))
                }
            }
            RunEvent::ProviderStatus {
                stage,
                model,
                detail,
            } => {
                let what = match stage {
                    ProviderStage::RetryStarted => "is tried again",
                    ProviderStage::FailoverStarted => "is tried instead",
                    ProviderStage::FailoverCompleted => "answered instead",
                    ProviderStage::RequestStarted | ProviderStage::RequestCompleted => {
                        return Ok(());
                    }
                };
                let detail = detail
                    .map(|d| format!(": {}", safe_line(&d, 200)))
                    .unwrap_or_default();
                self.screen
                    .aside(&format!("! {} {what}{detail}", safe_line(&model, 100)))
            }
            RunEvent::Warning { code, message } => self.screen.aside(&format!(
                "! {} ({})",
                safe_line(&message, 400),
                safe_line(&code, 100)
            )),
            RunEvent::Background { continuations } => self.background(&continuations),
            RunEvent::Posted {
                server,
                message,
                state,
                ..
            } => {
                let standing = match state {
                    ProgressState::Running => "",
                    ProgressState::Completed => " (completed)",
                    ProgressState::Failed => " (FAILED)",
                };
                let (server, message) = (safe_line(&server, 64), safe_line(&message, 200));
                self.screen
                    .aside(&format!("  {server}: {message}{standing}"))
            }
            RunEvent::Started { .. }
            | RunEvent::Thought { .. }
            | RunEvent::UsageUpdate { .. }
            | RunEvent::Part { .. }
            | RunEvent::AppDraft { .. }
            | RunEvent::AppInput { .. }
            | RunEvent::AppCalled { .. }
            | RunEvent::AppGone { .. }
            | RunEvent::Finish { .. }
            | RunEvent::Failed { .. } => Ok(()),
        }
    }

    /// Work goes on, and its answer comes later: how to see where it stands.
    fn background(&mut self, continuations: &[String]) -> Result<(), CtlError> {
        for id in continuations {
            let id = shell_word(&safe_line(id, 256));
            self.screen.aside(&format!(
                "~ background work goes on; `monoctl continuations show {id}` tells how it stands"
            ))?;
        }
        Ok(())
    }

    /// What was shown can't be unshown. When the new text goes on where the old one ended, so does
    /// the screen; else the answer is shown whole when it is committed.
    fn replace(&mut self, text: String) -> Result<(), CtlError> {
        let before = std::mem::replace(&mut self.shown, text);
        if self.broken {
            return Ok(());
        }
        if let Some(new) = self.shown.strip_prefix(&before) {
            return self.screen.answer(new, self.raw);
        }
        self.broken = true;
        self.screen.end_line()?;
        self.screen
            .aside("! the model began its answer anew; the whole answer follows at the end")
    }

    fn finish(&mut self, text: &str) -> Result<(), CtlError> {
        match text.strip_prefix(&self.shown).filter(|_| !self.broken) {
            Some(rest) => self.screen.answer(rest, self.raw)?,
            None => {
                self.screen.end_line()?;
                self.screen.answer(text, self.raw)?;
            }
        }
        self.screen.end_line()
    }
}

/// An attachment with the command that fetches it, or a failure.
pub(crate) fn part_line(part: &ReplyPart) -> String {
    match part {
        ReplyPart::Attachment {
            reference,
            name,
            media_type,
            size_bytes,
            ..
        } => format!(
            "[file] {} ({}, {}) — monoctl artifacts get {} -o {}",
            safe_line(name, 240),
            size(*size_bytes),
            safe_line(media_type, 127),
            shell_word(&reference.id),
            shell_word(&name.replace('/', "_")),
        ),
        ReplyPart::McpApp {
            invocation_id,
            server_name,
            tool_name,
            title,
            ..
        } => format!(
            "[app] {} ({} of {}) — it opens in the web console; monoctl apps show {}",
            safe_line(title.as_deref().unwrap_or(tool_name), 240),
            safe_line(tool_name, 128),
            safe_line(server_name, 64),
            shell_word(invocation_id),
        ),
        ReplyPart::Failure { code, message, .. } => {
            format!(
                "[failed] {} ({})",
                safe_line(message, 400),
                safe_line(code, 100)
            )
        }
    }
}

fn part_of(part: Body, fds: &mut VecDeque<OwnedFd>) -> Option<ReplyPart> {
    part.unpack_json(fds, MAX_PART).ok()
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;
    use ipc_proto::RunId;
    use ipc_proto::chat::Usage;
    use ipc_proto::reply::ArtifactReference;

    fn s(text: &str) -> String {
        text.to_owned()
    }

    fn append(text: &str) -> RunEvent {
        RunEvent::Append { text: s(text) }
    }

    fn attachment(name: &str) -> ReplyPart {
        ReplyPart::Attachment {
            id: s("part"),
            reference: ArtifactReference {
                scheme: s("mono-agent-artifact"),
                id: s("opaque1"),
            },
            name: s(name),
            media_type: s("text/csv"),
            size_bytes: 2048,
            integrity_id: s("sha256:00"),
            expires_at: None,
        }
    }

    fn finish(text: &str, parts: &[ReplyPart]) -> RunEvent {
        RunEvent::Finish {
            text: Body::Inline(text.as_bytes().to_vec()),
            parts: serde_json::to_vec(parts).unwrap(),
            usage: Usage {
                input: 3,
                output: 2,
                ..Usage::default()
            },
            model: s("demo:scripted"),
        }
    }

    fn play(json: bool, terminal: bool, events: Vec<RunEvent>) -> (String, String, Option<End>) {
        let (mut screen, out, err) = screen(json, terminal);
        let mut view = View::new(s("run-1"), false, &mut screen);
        let mut end = None;
        for event in events {
            end = view.event(event, VecDeque::new()).unwrap();
        }
        (out.text(), err.text(), end)
    }

    #[test]
    fn a_turn_on_a_pipe() {
        let events = vec![
            RunEvent::Started {
                run: RunId::parse("run-1").unwrap(),
            },
            append("Let me "),
            RunEvent::ToolStarted {
                id: s("1"),
                name: s("echo"),
                arguments: s("{\"m\":\n\"\u{1b}\"}"),
            },
            RunEvent::ToolProgress {
                id: s("1"),
                progress: 1.0,
                total: Some(4.0),
                message: None,
            },
            RunEvent::ToolCompleted {
                id: s("1"),
                name: s("echo"),
                ok: true,
                preview: s("x"),
                duration_ms: 12,
            },
            RunEvent::ToolCompleted {
                id: s("2"),
                name: s("Bash"),
                ok: false,
                preview: s("exit 1"),
                duration_ms: 1_500,
            },
            RunEvent::Warning {
                code: s("w"),
                message: s("careful"),
            },
            RunEvent::Thought { text: s("hidden") },
            append("see.\u{1b}[1m"),
            finish("Let me see.\u{1b}[1m", &[attachment("my report.csv")]),
        ];
        let (out, err, end) = play(false, false, events);
        assert_eq!(out, "Let me see.\u{1b}[1m\n");
        assert_eq!(
            err,
            "> echo {\"m\": \"\\u{1b}\"}\n  1 of 4\n< echo (12 ms)\n< Bash FAILED (1.5 s): exit 1\n! careful (w)\n\
             [file] my report.csv (2.0 KiB, text/csv) — monoctl artifacts get opaque1 -o 'my report.csv'\n"
        );
        assert_eq!(end, Some(End::Committed));
    }

    #[test]
    fn what_a_server_says_of_its_work_is_told() {
        let posted = |message: &str, state| RunEvent::Posted {
            server: s("work"),
            key: s("k"),
            message: s(message),
            state,
        };
        let events = vec![
            posted("1 of 2\u{1b}[1m\n", ProgressState::Running),
            posted("2 of 2", ProgressState::Completed),
            posted("no disk", ProgressState::Failed),
            finish("", &[]),
        ];
        let (_, err, _) = play(false, false, events);
        assert_eq!(
            err,
            "  work: 1 of 2\\u{1b}[1m \n  work: 2 of 2 (completed)\n  work: no disk (FAILED)\n"
        );
    }

    #[test]
    fn work_that_goes_on_is_told_with_the_command_that_shows_it() {
        let background = RunEvent::Background {
            continuations: vec![s("0190-c1"), s("c\u{1b}2;ls")],
        };
        let events = vec![append("begun"), background, finish("begun", &[])];
        let (out, err, end) = play(false, false, events);
        assert_eq!((out.as_str(), end), ("begun\n", Some(End::Committed)));
        let lines: Vec<&str> = err.lines().collect();
        assert_eq!(
            lines[0],
            "~ background work goes on; `monoctl continuations show 0190-c1` tells how it stands"
        );
        // What is no word of a shell stays one, and no terminal obeys it.
        assert!(
            lines[1].contains("show '") && !err.contains('\u{1b}'),
            "{err}"
        );
    }

    #[test]
    fn a_turn_as_lines_of_json() {
        let events = vec![
            RunEvent::Started {
                run: RunId::parse("run-1").unwrap(),
            },
            append("hi"),
            RunEvent::Part {
                part: Body::Inline(serde_json::to_vec(&attachment("a.csv")).unwrap()),
            },
            finish("hi", &[attachment("a.csv")]),
        ];
        let (out, err, end) = play(true, false, events);
        let lines: Vec<Value> = out
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let started = json!({"type": "runtime_telemetry", "kind": "run_started", "run": "run-1"});
        assert_eq!(lines[0], json!({"type": "event", "event": started}));
        assert_eq!(lines[1], json!({"type": "append", "text": "hi"}));
        assert_eq!(lines[2]["event"]["part"]["reference"]["id"], "opaque1");
        let message = json!({
            "ok": true, "run": "run-1", "text": "hi", "parts": [attachment("a.csv")],
            "usage": Usage { input: 3, output: 2, ..Usage::default() }, "model": "demo:scripted",
        });
        assert_eq!(lines[3], json!({"type": "finish", "message": message}));
        assert!(err.is_empty() && lines.len() == 4 && end == Some(End::Committed));
    }

    /// The text that a reader of the frames has in the end.
    fn read_whole(out: &str) -> String {
        let mut text = String::new();
        for line in out.lines() {
            assert!(line.len() <= ipc_proto::operator_frames::MAX_FRAME);
            let frame: Value = serde_json::from_str(line).unwrap();
            let piece = frame["text"].as_str().unwrap_or_default();
            match frame["type"].as_str().unwrap() {
                "append" => text += piece,
                "replace" => text = s(piece),
                "finish" if frame["message"]["truncated"] != true => {
                    text = s(frame["message"]["text"].as_str().unwrap());
                }
                _ => {}
            }
        }
        text
    }

    #[test]
    fn a_long_answer_is_told_whole_in_frames_within_the_cap() {
        let long = "é\n".repeat(400_000);
        let half = &long[..600_000];
        for before in [
            vec![],
            vec![append(half)],
            vec![append(half), append(&long[600_000..])],
        ] {
            let events = before.into_iter().chain([finish(&long, &[])]).collect();
            let (out, _, end) = play(true, false, events);
            assert!(read_whole(&out) == long && end == Some(End::Committed));
        }
    }

    #[test]
    fn a_failed_run_says_why() {
        let failed = || RunEvent::Failed {
            cancelled: false,
            kind: s("provider_auth"),
            message: s("No.\u{1b}c"),
        };
        let (out, err, end) = play(false, false, vec![append("half"), failed()]);
        assert_eq!(
            (out.as_str(), err.as_str()),
            ("half\n", "failed: No.\\u{1b}c (provider_auth)\n")
        );
        assert_eq!(end, Some(End::Failed));
        let (out, ..) = play(true, false, vec![failed()]);
        assert_eq!(
            serde_json::from_str::<Value>(&out).unwrap(),
            json!({"type": "error", "failure": {
                "kind": "provider_auth", "message": "No.\u{1b}c", "cancelled": false, "run": "run-1",
            }})
        );
    }

    #[test]
    fn an_answer_begun_anew_goes_on_or_follows_whole() {
        let again = |text: &str| RunEvent::Replace { text: s(text) };
        let (out, err, _) = play(
            false,
            false,
            vec![
                append("Hel"),
                again("Hello"),
                append("!"),
                finish("Hello!", &[]),
            ],
        );
        assert_eq!((out.as_str(), err.as_str()), ("Hello!\n", ""));
        let events = vec![
            append("Bad"),
            again(""),
            append("Go"),
            append("od"),
            finish("Good", &[]),
        ];
        let (out, err, _) = play(false, false, events);
        assert_eq!(out, "Bad\nGood\n");
        assert!(err.contains("anew"));
    }

    #[test]
    fn what_can_not_be_read_is_a_failure() {
        for (text, parts) in [(vec![0xff], "[]"), (vec![], "nothing")] {
            let finish = RunEvent::Finish {
                text: Body::Inline(text),
                parts: parts.as_bytes().to_vec(),
                usage: Usage::default(),
                model: s("m"),
            };
            assert_eq!(play(false, false, vec![finish]).2, Some(End::Failed));
        }
    }

    #[test]
    fn a_parts_line_can_not_be_turned_into_another_command() {
        let line = part_line(&attachment("x'; rm -rf ~ #\n\u{1b}]0;a\u{7}/../..csv"));
        assert!(!line.contains(['\n', '\u{1b}', '\u{7}']));
        assert!(
            line.ends_with("-o 'x'\\''; rm -rf ~ # \\u{1b}]0;a\\u{7}_.._..csv'"),
            "{line}"
        );
        let failure = ReplyPart::Failure {
            id: s("f"),
            code: s("artifact_too_large"),
            message: s("The file is larger than the limit."),
            related_part_id: None,
        };
        assert_eq!(
            part_line(&failure),
            "[failed] The file is larger than the limit. (artifact_too_large)"
        );
    }
}
