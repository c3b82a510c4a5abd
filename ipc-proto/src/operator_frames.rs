//! Frames in which an operator's clients follow a turn (facts 2.8, wire schema 1), and how each
//! kind is brought under the cap: what is lost, and how that is said, depends on the kind.
//!
//! A frame is one line of NDJSON, or one server-sent event that is called like its kind. The cap
//! holds after serialisation. No I/O.

use crate::console::{Activity, ActivityKind};
use crate::reply::{MAX_PARTS, failure_message};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Largest frame in bytes, serialised, without the line's end.
pub const MAX_FRAME: usize = 256 * 1024;
/// Largest frame in bytes that a reader takes: another release may have another cap.
pub const MAX_READ: usize = 8 * 1024 * 1024;

/// Id of the failure that stands for parts over the limit of a reply.
pub const OVER_LIMIT: &str = "wire-rich-parts-over-limit";
/// Id of the failure that stands for parts that don't fit into the frame.
pub const TRUNCATED: &str = "wire-rich-parts-truncated";
/// Its sentence.
const PARTS_TRUNCATED: &str = "Some parts of the reply do not fit into this message.";
/// Kind of the telemetry, or name of the activity, that stands for an event that can't be cut.
pub const OVERSIZED: &str = "oversized_event";

/// What goes to a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Frame {
    /// Where the turn stands.
    Status {
        /// `queued`, `running`, …
        state: String,
    },
    /// Text that goes on.
    Append {
        /// The piece.
        text: String,
    },
    /// What was appended until now is void; the text begins here.
    Replace {
        /// The text.
        text: String,
    },
    /// A step beside the text.
    Event(Step),
    /// A part that can be shown before the answer is whole; it comes again with the end.
    View {
        /// The part, as the surface shows it. Its `stage` is `draft` while the model still writes the
        /// arguments of its call, `called` until the call has a result, and then absent; `gone` when
        /// none came that it could show.
        part: Map<String, Value>,
    },
    /// What the arguments of a draft's call say so far.
    Input {
        /// The part's id.
        id: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// The whole answer. Last.
    Finish {
        /// `text`, `parts` and whatever the surface adds.
        message: Map<String, Value>,
    },
    /// No answer. Last.
    Error {
        /// `kind` and `message`.
        failure: Map<String, Value>,
    },
}

/// A step, as one surface or the other tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// An object with a `type` of facts 2.8, e.g. `tool_call_started`.
    Event(Map<String, Value>),
    /// As the console shows it.
    Activity(Activity),
}

impl Frame {
    /// The kind: the name of the server-sent event.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Append { .. } => "append",
            Self::Replace { .. } => "replace",
            Self::Event(_) => "event",
            Self::View { .. } => "view",
            Self::Input { .. } => "input",
            Self::Finish { .. } => "finish",
            Self::Error { .. } => "error",
        }
    }

    /// The part whose arguments this tells.
    #[must_use]
    pub fn input(&self) -> Option<String> {
        match self {
            Self::Input { id, .. } => Some(id.clone()),
            _ => None,
        }
    }

    /// The line of NDJSON, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        // Text keys and finite numbers: there is nothing that can't be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The data of the server-sent event: the line without its kind.
    #[must_use]
    pub fn data(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.remove("type");
        }
        value.to_string()
    }

    /// One or more frames that say the same, as far as the cap lets them.
    #[must_use]
    pub fn fit(self) -> Vec<Self> {
        self.fit_into(MAX_FRAME)
    }

    /// [`Frame::fit`] with another cap, at least 1 KiB.
    #[must_use]
    pub fn fit_into(self, cap: usize) -> Vec<Self> {
        match self {
            Self::Append { text } => pieces(&text, cap).map(append).collect(),
            Self::Replace { text } => {
                let mut pieces = pieces(&text, cap);
                let text = pieces.next().unwrap_or_default().to_owned();
                let first = Self::Replace { text };
                std::iter::once(first).chain(pieces.map(append)).collect()
            }
            Self::Event(step) => vec![Self::Event(fit_step(step, cap))],
            // Half a part is none, and the end tells of it.
            Self::View { .. } | Self::Input { .. } if size(&self) > cap => vec![],
            Self::View { .. } | Self::Input { .. } => vec![self],
            Self::Finish { message } => vec![fit_finish(message, cap)],
            Self::Error { failure } => vec![fit_error(failure, cap)],
            Self::Status { state } => {
                let state = prefix(&state, 64).to_owned();
                vec![Self::Status { state }]
            }
        }
    }
}

fn append(text: &str) -> Frame {
    let text = text.to_owned();
    Frame::Append { text }
}

/// Bytes of a character in a JSON string, as serde_json writes it.
fn escaped(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// The longest prefix whose JSON has at most `room` bytes, without the quotes.
fn escaped_prefix(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += escaped(c);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// The longest prefix of at most `most` bytes.
fn prefix(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The text in pieces that each fit into a frame. Nothing is lost.
fn pieces(text: &str, cap: usize) -> impl Iterator<Item = &str> {
    // `{"type":"replace","text":""}`, the longer of the two.
    let room = cap.saturating_sub(28).max(6);
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let piece = escaped_prefix(text, room);
        let left = &text[piece.len()..];
        rest = (!left.is_empty()).then_some(left);
        Some(piece)
    })
}

fn size<T: Serialize>(value: &T) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}

/// The largest `n` up to `most` for which `fits(n)`; `None` when not even 0 does. What fits with
/// more fits with less.
fn largest(most: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    if !fits(0) {
        return None;
    }
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(good)
}

fn fit_step(step: Step, cap: usize) -> Step {
    let fits = |step: &Step| size(&Frame::Event(step.clone())) <= cap;
    if fits(&step) {
        return step;
    }
    let longest = payloads(&step).map(str::len).max();
    let kept = longest.and_then(|longest| largest(longest, |n| fits(&cut(&step, n))));
    match kept {
        Some(kept) => cut(&step, kept),
        None => oversized(&step),
    }
}

/// Members of an event that hold what a model or a tool said.
const PAYLOADS: [&str; 5] = ["text", "arguments", "result", "preview", "message"];

/// Texts that may be cut: those of thoughts and tool calls.
fn payloads(step: &Step) -> impl Iterator<Item = &str> {
    let (event, activity) = match step {
        Step::Event(event) => (Some(event), None),
        Step::Activity(activity) => (None, Some(activity)),
    };
    let event = event.filter(|event| {
        let kind = event.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind == "assistant_thought" || kind.starts_with("tool_call_"))
    });
    let of_event = event
        .into_iter()
        .flat_map(|event| PAYLOADS.iter().filter_map(|key| event.get(*key)?.as_str()));
    let cuttable = |a: &&Activity| matches!(a.kind, ActivityKind::Tool | ActivityKind::Thought);
    let of_activity = activity
        .filter(cuttable)
        .into_iter()
        .flat_map(|a| [&a.arguments, &a.result, &a.text])
        .filter_map(Option::as_deref);
    of_event.chain(of_activity)
}

/// The step with every payload cut to `most` bytes, and marked.
fn cut(step: &Step, most: usize) -> Step {
    let mut step = step.clone();
    match &mut step {
        Step::Event(event) => {
            for key in PAYLOADS {
                if let Some(Value::String(text)) = event.get_mut(key) {
                    text.truncate(text.floor_char_boundary(most));
                }
            }
            let metadata = event.entry("metadata").or_insert_with(|| json!({}));
            match metadata.as_object_mut() {
                Some(metadata) => {
                    metadata.insert("truncated".to_owned(), true.into());
                }
                None => *metadata = json!({ "truncated": true }),
            }
        }
        Step::Activity(activity) => {
            let texts = [
                &mut activity.arguments,
                &mut activity.result,
                &mut activity.text,
            ];
            for text in texts.into_iter().flatten() {
                text.truncate(text.floor_char_boundary(most));
            }
            activity.truncated = true;
        }
    }
    step
}

/// What stands for a step that can't be cut.
fn oversized(step: &Step) -> Step {
    match step {
        Step::Event(event) => {
            let kind = event.get("type").and_then(Value::as_str).unwrap_or("");
            let telemetry = json!({
                "type": "runtime_telemetry",
                "kind": OVERSIZED,
                "metadata": { "originalType": prefix(kind, 64), "bytes": size(event) },
            });
            match telemetry {
                Value::Object(telemetry) => Step::Event(telemetry),
                _ => Step::Event(Map::new()),
            }
        }
        Step::Activity(activity) => Step::Activity(Activity {
            id: prefix(&activity.id, 64).to_owned(),
            kind: ActivityKind::Status,
            name: Some(OVERSIZED.to_owned()),
            title: None,
            arguments: None,
            result: None,
            is_error: false,
            started_at: activity.started_at,
            ended_at: activity.ended_at,
            truncated: true,
            text: None,
        }),
    }
}

fn parts_failure(id: &str, message: &str) -> Value {
    json!({ "type": "failure", "id": id, "code": "reply_part_too_large", "message": message })
}

fn finish_size(message: &Map<String, Value>) -> usize {
    size(&json!({ "type": "finish", "message": message }))
}

/// Parts first, then text; steps, which the client has seen, go before either.
fn fit_finish(mut message: Map<String, Value>, cap: usize) -> Frame {
    if let Some(Value::Array(parts)) = message.get_mut("parts")
        && parts.len() > MAX_PARTS
    {
        parts.truncate(MAX_PARTS - 1);
        let sentence = failure_message("reply_part_too_large");
        parts.push(parts_failure(OVER_LIMIT, sentence));
    }
    if finish_size(&message) <= cap {
        return Frame::Finish { message };
    }
    message.insert("truncated".to_owned(), true.into());
    if message.contains_key("activity") {
        message.insert("activity".to_owned(), json!([]));
    }
    let text = match message.insert("text".to_owned(), "".into()) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let parts = message.remove("parts");
    if finish_size(&message) > cap / 2 {
        // Something else is large that nobody bounded.
        let known = ["id", "role", "status", "text", "truncated"];
        message.retain(|key, value| known.contains(&key.as_str()) && size(value) < 64);
    }
    message.extend(parts.map(|parts| ("parts".to_owned(), parts)));
    if finish_size(&message) > cap {
        keep_parts_that_fit(&mut message, cap);
    }
    let room = cap.saturating_sub(finish_size(&message));
    let text = escaped_prefix(&text, room);
    message.insert("text".to_owned(), text.into());
    Frame::Finish { message }
}

fn keep_parts_that_fit(message: &mut Map<String, Value>, cap: usize) {
    let Some(Value::Array(parts)) = message.get("parts").cloned() else {
        return;
    };
    let with = |kept: usize| {
        let mut parts = parts[..kept].to_vec();
        parts.push(parts_failure(TRUNCATED, PARTS_TRUNCATED));
        let mut message = message.clone();
        message.insert("parts".to_owned(), parts.into());
        message
    };
    let most = parts.len().saturating_sub(1);
    let kept = largest(most, |kept| finish_size(&with(kept)) <= cap);
    *message = with(kept.unwrap_or(0));
}

fn fit_error(mut failure: Map<String, Value>, cap: usize) -> Frame {
    if size(&json!({ "type": "error", "failure": failure })) > cap {
        let text = |key: &str| failure.get(key).and_then(Value::as_str).unwrap_or("");
        let kind = prefix(text("kind"), 64).to_owned();
        let message = escaped_prefix(text("message"), cap.saturating_sub(512)).to_owned();
        failure = Map::new();
        failure.insert("kind".to_owned(), kind.into());
        failure.insert("message".to_owned(), message.into());
    }
    Frame::Error { failure }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn event(value: Value) -> Frame {
        Frame::Event(Step::Event(object(value)))
    }

    fn finish(value: Value) -> Frame {
        Frame::Finish {
            message: object(value),
        }
    }

    fn fitted(frame: Frame) -> Value {
        let [one] = <[Frame; 1]>::try_from(frame.fit()).unwrap();
        assert!(one.line().len() <= MAX_FRAME, "{}", one.line().len());
        serde_json::from_str(&one.line()).unwrap()
    }

    fn attachment(n: usize, name: &str) -> Value {
        json!({ "type": "attachment", "id": format!("p{n}"), "name": name })
    }

    #[test]
    fn a_small_frame_stays_as_it_is() {
        for (frame, line) in [
            (
                Frame::Status {
                    state: "running".into(),
                },
                r#"{"type":"status","state":"running"}"#,
            ),
            (
                Frame::Append { text: "a\n".into() },
                r#"{"type":"append","text":"a\n"}"#,
            ),
            (
                Frame::Replace {
                    text: String::new(),
                },
                r#"{"type":"replace","text":""}"#,
            ),
            (
                event(json!({ "type": "usage_update" })),
                r#"{"type":"event","event":{"type":"usage_update"}}"#,
            ),
            (
                finish(json!({ "text": "t", "parts": [] })),
                r#"{"type":"finish","message":{"parts":[],"text":"t"}}"#,
            ),
            (
                Frame::Error {
                    failure: object(json!({ "kind": "k" })),
                },
                r#"{"type":"error","failure":{"kind":"k"}}"#,
            ),
        ] {
            assert_eq!(frame.line(), line);
            assert_eq!(frame.clone().fit(), std::slice::from_ref(&frame));
            let mut whole: Map<String, Value> = serde_json::from_str(line).unwrap();
            assert_eq!(whole.remove("type").unwrap(), frame.name());
            let data: Map<String, Value> = serde_json::from_str(&frame.data()).unwrap();
            assert_eq!(data, whole);
        }
    }

    #[test]
    fn thoughts_and_tool_calls_are_cut_and_marked() {
        let large = "ä\n".repeat(MAX_FRAME);
        for kind in [
            "assistant_thought",
            "tool_call_started",
            "tool_call_completed",
        ] {
            let got = fitted(event(json!({
                "type": kind, "id": "c1", "text": large, "result": large, "arguments": "{}",
            })));
            let got = &got["event"];
            assert_eq!(got["metadata"]["truncated"], true);
            assert_eq!(
                (&got["arguments"], &got["id"]),
                (&json!("{}"), &json!("c1"))
            );
            // Nearly all of the room is used.
            let kept = got["text"].as_str().unwrap();
            assert!(
                large.starts_with(kept) && kept.len() > MAX_FRAME / 3,
                "{}",
                kept.len()
            );
        }
    }

    #[test]
    fn an_event_that_cannot_be_cut_becomes_telemetry() {
        let large = "x".repeat(MAX_FRAME);
        for value in [
            json!({ "type": "usage_update", "text": large }),
            json!({ "type": "tool_call_started", "name": large }),
            json!({ "type": large }),
        ] {
            let got = fitted(event(value));
            assert_eq!(got["event"]["type"], "runtime_telemetry");
            assert_eq!(got["event"]["kind"], OVERSIZED);
            assert!(got["event"]["metadata"]["bytes"].as_u64().unwrap() >= MAX_FRAME as u64);
        }
    }

    #[test]
    fn an_activity_is_cut_like_the_event_it_tells_of() {
        let large = "\u{1}".repeat(MAX_FRAME);
        let activity = |kind, name: &str| Activity {
            id: "c".into(),
            kind,
            name: Some(name.into()),
            title: None,
            arguments: Some(large.clone()),
            result: None,
            is_error: false,
            started_at: 7,
            ended_at: None,
            truncated: false,
            text: None,
        };
        let step = |kind, name: &str| Frame::Event(Step::Activity(activity(kind, name)));
        let got = fitted(step(ActivityKind::Tool, "Read"));
        assert_eq!(got["activity"]["truncated"], true);
        assert!(got["activity"]["arguments"].as_str().unwrap().len() > MAX_FRAME / 7);
        for frame in [
            step(ActivityKind::Warning, "w"),
            step(ActivityKind::Tool, &large),
        ] {
            let got = fitted(frame);
            assert_eq!(got["activity"]["name"], OVERSIZED);
            assert_eq!(
                (&got["activity"]["id"], &got["activity"]["startedAt"]),
                (&json!("c"), &json!(7))
            );
        }
    }

    #[test]
    fn a_finish_with_too_many_parts_says_so_once() {
        let parts: Vec<_> = (0..25).map(|n| attachment(n, "a")).collect();
        let got = fitted(finish(json!({ "text": "t", "parts": parts })));
        let got = got["message"]["parts"].as_array().unwrap();
        assert_eq!(got.len(), 20);
        assert_eq!(got[..19], parts[..19]);
        assert_eq!(got[19]["id"], OVER_LIMIT);
        let exactly = json!({ "text": "t", "parts": parts[..20] });
        assert_eq!(fitted(finish(exactly.clone()))["message"], exactly);
    }

    #[test]
    fn a_finish_keeps_its_parts_and_loses_text() {
        let parts: Vec<_> = (0..20).map(|n| attachment(n, &"n".repeat(1000))).collect();
        let text = "\"é".repeat(MAX_FRAME);
        let steps = json!([{ "id": "x".repeat(5000) }]);
        let got = fitted(finish(
            json!({ "id": "m", "text": text, "parts": parts, "activity": steps }),
        ));
        let got = &got["message"];
        assert_eq!(got["parts"], json!(parts));
        assert_eq!(
            (&got["truncated"], &got["activity"]),
            (&json!(true), &json!([]))
        );
        let kept = got["text"].as_str().unwrap();
        assert!(
            text.starts_with(kept) && kept.len() > MAX_FRAME / 2,
            "{}",
            kept.len()
        );
    }

    #[test]
    fn parts_that_do_not_fit_are_told_of() {
        let parts: Vec<_> = (0..20)
            .map(|n| attachment(n, &"n".repeat(20_000)))
            .collect();
        let got = fitted(finish(json!({ "text": "text", "parts": parts })));
        let got = &got["message"];
        let kept = got["parts"].as_array().unwrap();
        assert_eq!(kept.len(), 14);
        assert_eq!(kept[..13], parts[..13]);
        assert_eq!(kept[13]["id"], TRUNCATED);
        assert_eq!(got["text"], "text");
        // One part that alone is too large.
        let one = json!({ "text": "t", "parts": [attachment(0, &"n".repeat(MAX_FRAME))] });
        let got = fitted(finish(one));
        assert_eq!(got["message"]["parts"][0]["id"], TRUNCATED);
        assert_eq!(got["message"]["text"], "t");
    }

    #[test]
    fn what_nobody_bounded_goes() {
        let large = "x".repeat(MAX_FRAME);
        let got = fitted(finish(
            json!({ "id": "m", "text": "t", "parts": [], "other": large }),
        ));
        assert_eq!(
            got["message"],
            json!({ "id": "m", "text": "t", "parts": [], "truncated": true })
        );
        let failure = object(json!({ "kind": large, "message": large, "more": large }));
        let got = fitted(Frame::Error { failure });
        assert_eq!(got["failure"]["kind"].as_str().unwrap().len(), 64);
        assert!(got["failure"]["message"].as_str().unwrap().len() > MAX_FRAME / 2);
    }

    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-z ]{0,40}",
            Just("\u{0}\u{1f}\n\"\\".to_owned()),
            Just("😀é\u{7f}\u{2028}\u{fffd}".to_owned()),
        ];
        proptest::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn text_is_split_at_characters_without_loss(text in hostile(), cap in 1024_usize..2048, void: bool) {
            let frame = if void {
                Frame::Replace { text: text.clone() }
            } else {
                Frame::Append { text: text.clone() }
            };
            let frames = frame.clone().fit_into(cap);
            prop_assert_eq!(frames[0].name(), frame.name());
            let mut joined = String::new();
            for (at, frame) in frames.iter().enumerate() {
                prop_assert!(frame.line().len() <= cap);
                match frame {
                    Frame::Replace { text } if at == 0 => joined.push_str(text),
                    Frame::Append { text } => joined.push_str(text),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn every_step_fits(
            kind in prop_oneof![Just("assistant_thought"), Just("tool_call_progress"), Just("usage_update"), Just("")],
            texts in proptest::collection::vec((prop_oneof![Just("text"), Just("result"), Just("metadata"), Just("name")], hostile()), 0..5),
            cap in 1024_usize..2048,
        ) {
            let mut value = object(json!({ "type": kind }));
            for (key, text) in texts {
                value.insert(key.to_owned(), text.into());
            }
            let whole = Frame::Event(Step::Event(value));
            let fitted = whole.clone().fit_into(cap);
            prop_assert_eq!(fitted.len(), 1);
            prop_assert!(fitted[0].line().len() <= cap);
            prop_assert_eq!(fitted[0] == whole, whole.line().len() <= cap);
        }

        #[test]
        fn every_finish_fits_and_keeps_the_beginning(
            text in hostile(), names in proptest::collection::vec(hostile(), 0..24), cap in 1024_usize..4096,
        ) {
            let parts: Vec<_> = names.iter().enumerate().map(|(n, name)| attachment(n, name)).collect();
            let frames = finish(json!({ "id": "m", "text": text, "parts": parts })).fit_into(cap);
            prop_assert_eq!(frames.len(), 1);
            prop_assert!(frames[0].line().len() <= cap);
            let Frame::Finish { message } = &frames[0] else { panic!("finish") };
            let kept = message["text"].as_str().unwrap();
            prop_assert!(text.starts_with(kept));
            let got = message["parts"].as_array().unwrap();
            prop_assert!(got.len() <= MAX_PARTS);
            let told = got.iter().filter(|part| part["type"] == "failure").count();
            let own = &got[..got.len() - told];
            prop_assert_eq!(own, &parts[..own.len()]);
            prop_assert_eq!(told == 0, own.len() == parts.len());
            // Text is lost only when the frame is full.
            if kept != text {
                prop_assert!(frames[0].line().len() + 6 > cap);
            }
        }
    }
}
