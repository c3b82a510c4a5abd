//! What goes to the client: completions, stream chunks, extension events. Byte for byte, without
//! I/O and clock.

use crate::runs::Finished;
use bytes::Bytes;
use ipc_proto::chat::Usage;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::operator_events::told;
use ipc_proto::operator_frames::MAX_FRAME;
use ipc_proto::outcomes::{PartOutcome, of_parts};
use ipc_proto::text::pieces;
use serde::Serialize;
use serde_json::value::RawValue;

/// The end of every stream.
pub const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");
/// A comment that keeps idle proxies from closing a stream. Never the first line of one.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": working\n\n");
/// Longest text of one chunk in bytes.
const MAX_PIECE: usize = 32 * 1024;

/// What all chunks of a stream, and a completion, have in common.
#[derive(Debug, Clone)]
pub struct Head {
    /// `chatcmpl-<uuid>`.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The configured model id.
    pub model: String,
}

#[derive(Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [CompletionChoice<'a>; 1],
    usage: UsageShape,
    #[serde(skip_serializing_if = "Option::is_none")]
    mono_agent: Option<Extension<'a>>,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: u8,
    message: Message<'a>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [ChunkChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mono_agent: Option<Extension<'a>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u8,
    delta: Delta<'a>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

/// Fields beside OpenAI's; each is left out when it is empty.
#[derive(Serialize)]
struct Extension<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'a [Box<RawValue>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reply_part_outcomes: &'a [PartOutcome],
}

impl<'a> Extension<'a> {
    fn of(events: &'a [Box<RawValue>], reply_part_outcomes: &'a [PartOutcome]) -> Option<Self> {
        let empty = events.is_empty() && reply_part_outcomes.is_empty();
        (!empty).then_some(Self {
            events,
            reply_part_outcomes,
        })
    }
}

#[derive(Serialize)]
struct UsageShape {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokens,
}

#[derive(Serialize)]
struct PromptTokens {
    cached_tokens: u64,
}

impl From<&Usage> for UsageShape {
    fn from(usage: &Usage) -> Self {
        Self {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.input.saturating_add(usage.output),
            prompt_tokens_details: PromptTokens {
                cached_tokens: usage.cache_read,
            },
        }
    }
}

/// The whole answer of a request that did not ask for a stream.
#[must_use]
pub fn completion(head: &Head, done: &Finished, thoughts: &str, events: &[Box<RawValue>]) -> Bytes {
    let outcomes = of_parts(&done.parts);
    json(&Completion {
        id: &head.id,
        object: "chat.completion",
        created: head.created,
        model: &head.model,
        choices: [CompletionChoice {
            index: 0,
            message: Message {
                role: "assistant",
                content: &done.text,
                reasoning_content: thoughts,
            },
            finish_reason: "stop",
        }],
        usage: UsageShape::from(&done.usage),
        mono_agent: Extension::of(events, &outcomes),
    })
}

/// The first chunk of a stream.
#[must_use]
pub fn role(head: &Head) -> Bytes {
    delta(
        head,
        Delta {
            role: Some("assistant"),
            content: Some(""),
            ..Delta::default()
        },
        None,
    )
}

/// Text, cut at characters into chunks of at most 32 KiB.
pub fn content<'a>(head: &'a Head, text: &'a str) -> impl Iterator<Item = Bytes> + 'a {
    pieces(text, MAX_PIECE).map(|piece| {
        delta(
            head,
            Delta {
                content: Some(piece),
                ..Delta::default()
            },
            None,
        )
    })
}

/// Reasoning, cut likewise.
pub fn reasoning<'a>(head: &'a Head, text: &'a str) -> impl Iterator<Item = Bytes> + 'a {
    pieces(text, MAX_PIECE).map(|piece| {
        delta(
            head,
            Delta {
                reasoning_content: Some(piece),
                ..Delta::default()
            },
            None,
        )
    })
}

/// One extension event.
#[must_use]
pub fn event(head: &Head, event: Box<RawValue>) -> Bytes {
    metadata(head, &[event], &[])
}

/// What ends a stream well: the outcomes of the parts if there are any, the finish reason, the
/// usage if it was asked for, and the mark.
#[must_use]
pub fn ending(head: &Head, done: &Finished, include_usage: bool) -> Vec<Bytes> {
    let mut out = Vec::new();
    let outcomes = of_parts(&done.parts);
    if !outcomes.is_empty() {
        out.push(metadata(head, &[], &outcomes));
    }
    out.push(delta(head, Delta::default(), Some("stop")));
    if include_usage {
        out.push(sse(&Chunk {
            usage: Some(UsageShape::from(&done.usage)),
            ..chunk(head, &[])
        }));
    }
    out.push(DONE);
    out
}

/// What ends a stream that failed; `error` is the error's JSON.
#[must_use]
pub fn failed_ending(error: &str) -> Vec<Bytes> {
    vec![Bytes::from(format!("data: {error}\n\n")), DONE]
}

fn chunk<'a>(head: &'a Head, choices: &'a [ChunkChoice<'a>]) -> Chunk<'a> {
    Chunk {
        id: &head.id,
        object: "chat.completion.chunk",
        created: head.created,
        model: &head.model,
        choices,
        usage: None,
        mono_agent: None,
    }
}

fn delta(head: &Head, delta: Delta<'_>, finish_reason: Option<&'static str>) -> Bytes {
    sse(&chunk(
        head,
        &[ChunkChoice {
            index: 0,
            delta,
            finish_reason,
        }],
    ))
}

/// Carries a choice with an empty delta, since many clients read `choices[0]` unasked.
fn metadata(head: &Head, events: &[Box<RawValue>], outcomes: &[PartOutcome]) -> Bytes {
    let choices = [ChunkChoice {
        index: 0,
        delta: Delta::default(),
        finish_reason: None,
    }];
    sse(&Chunk {
        mono_agent: Extension::of(events, outcomes),
        ..chunk(head, &choices)
    })
}

fn json(value: &impl Serialize) -> Bytes {
    // Strings, numbers and checked JSON always serialise.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// JSON holds no line break outside strings and escapes those inside, so one line is one event.
fn sse(value: &impl Serialize) -> Bytes {
    [b"data: ", &json(value)[..], b"\n\n"].concat().into()
}

/// The extension event of a run's event, of at most [`MAX_FRAME`] bytes (facts 2.3); `None` for what
/// travels as text or reasoning, and for what is not for clients.
#[must_use]
pub fn extension(event: RunEvent) -> Option<Box<RawValue>> {
    let event = serde_json::value::to_raw_value(&told(event)?).ok()?;
    // Whoever sends one cuts its texts far below that. What is longer is of a run that was taken over.
    (event.get().len() <= MAX_FRAME).then_some(event)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::reply::{ArtifactReference, ReplyPart};
    use proptest::prelude::*;

    fn head() -> Head {
        Head {
            id: "chatcmpl-1".into(),
            created: 7,
            model: "agent".into(),
        }
    }

    fn attachment() -> ReplyPart {
        ReplyPart::Attachment {
            id: "part".into(),
            reference: ArtifactReference {
                scheme: "mono-agent-artifact".into(),
                id: "opaque".into(),
            },
            name: "weekly.csv".into(),
            media_type: "text/csv".into(),
            size_bytes: 3,
            integrity_id: "sha256:00".into(),
            expires_at: None,
        }
    }

    fn done(parts: Vec<ReplyPart>) -> Finished {
        let usage = Usage {
            input: 5,
            output: 2,
            cache_read: 1,
            ..Usage::default()
        };
        Finished {
            text: "hi \u{1F642}\n".into(),
            parts: serde_json::to_value(parts).unwrap(),
            usage,
            model: "demo:scripted".into(),
        }
    }

    const OUTCOME: &str = r#"[{"partIndex":0,"partType":"attachment","status":"failed","code":"unsupported_destination","message":"Attachment reply parts are unsupported on this destination."}]"#;

    #[test]
    fn a_completion_is_exact() {
        let bytes = completion(&head(), &done(vec![]), "", &[]);
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            r#"{"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"agent","choices":[{"index":0,"message":{"role":"assistant","content":"hi 🙂\n"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1}}}"#
        );
    }

    #[test]
    fn an_event_of_256_kibibytes_is_told_and_a_byte_more_is_not() {
        let of = |bytes: usize| {
            extension(RunEvent::ToolCompleted {
                id: "i".into(),
                name: "n".into(),
                ok: true,
                preview: "p".repeat(bytes),
                duration_ms: 1,
            })
        };
        let room = 256 * 1024 - of(0).unwrap().get().len();
        assert_eq!(of(room).unwrap().get().len(), 256 * 1024);
        assert!(of(room + 1).is_none());
    }

    #[test]
    fn outcomes_and_events_stand_beside_the_unchanged_text() {
        let events = [extension(RunEvent::Warning {
            code: "c".into(),
            message: "m".into(),
        })
        .unwrap()];
        let bytes = completion(&head(), &done(vec![attachment()]), "hmm", &events);
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.contains(r#""content":"hi 🙂\n","reasoning_content":"hmm"}"#));
        assert!(text.ends_with(&format!(
            r#","mono_agent":{{"events":[{{"type":"runtime_warning","code":"c","message":"m"}}],"reply_part_outcomes":{OUTCOME}}}}}"#
        )));
        for private in ["weekly.csv", "opaque", "sha256", "demo:scripted"] {
            assert!(!text.contains(private), "{private}");
        }
    }

    /// A part that can't be read is told as one, in both forms, and takes nothing else away.
    #[test]
    fn hostile_parts_are_outcomes_of_their_own() {
        let mut hostile = done(vec![attachment()]);
        for part in ["null", "7", r#"{"type":"video","name":"secret"}"#] {
            let part = serde_json::from_str(part).unwrap();
            hostile.parts.as_array_mut().unwrap().push(part);
        }
        let expected = serde_json::to_string(&of_parts(&hostile.parts)).unwrap();
        assert_eq!(expected.matches("partIndex").count(), 4);
        let whole = completion(&head(), &hostile, "", &[]);
        let chunk = &ending(&head(), &hostile, false)[0];
        for bytes in [&whole, chunk] {
            let text = std::str::from_utf8(bytes).unwrap();
            assert!(
                text.contains(&format!("\"reply_part_outcomes\":{expected}")),
                "{text}"
            );
            assert!(!text.contains("secret"));
        }
        for nothing in ["null", "[]", "{}", "7"] {
            hostile.parts = serde_json::from_str(nothing).unwrap();
            let whole = completion(&head(), &hostile, "", &[]);
            assert!(!std::str::from_utf8(&whole).unwrap().contains("mono_agent"));
            assert_eq!(ending(&head(), &hostile, false).len(), 2);
        }
    }

    #[test]
    fn every_chunk_is_exact() {
        let head = head();
        let start = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"agent","#;
        let choice = |delta: &str, reason: &str| {
            format!(
                "{start}\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n"
            )
        };
        assert_eq!(
            role(&head),
            choice(r#"{"role":"assistant","content":""}"#, "null")
        );
        assert_eq!(
            content(&head, "a\r\n\"").collect::<Vec<_>>(),
            [choice(r#"{"content":"a\r\n\""}"#, "null")]
        );
        assert_eq!(
            reasoning(&head, "b").collect::<Vec<_>>(),
            [choice(r#"{"reasoning_content":"b"}"#, "null")]
        );
        assert_eq!(
            ending(&head, &done(vec![]), false),
            [Bytes::from(choice("{}", r#""stop""#)), DONE]
        );
        let all = ending(&head, &done(vec![attachment()]), true);
        assert_eq!(
            all[0],
            format!(
                "{start}\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":null}}],\"mono_agent\":{{\"reply_part_outcomes\":{OUTCOME}}}}}\n\n"
            )
        );
        assert_eq!(all[1], choice("{}", r#""stop""#));
        assert_eq!(
            all[2],
            format!(
                "{start}\"choices\":[],\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7,\"prompt_tokens_details\":{{\"cached_tokens\":1}}}}}}\n\n"
            )
        );
        assert_eq!(all[3], DONE);
        assert_eq!(failed_ending("{}"), ["data: {}\n\n", "data: [DONE]\n\n"]);
    }

    proptest! {
        #[test]
        fn cutting_loses_nothing_and_keeps_every_event_on_one_line(text in "\\PC{0,40}|[\\n\\r\u{2028}é🙂]{0,40}", times in 1usize..2_000) {
            let text = text.repeat(times);
            prop_assert_eq!(pieces(&text, MAX_PIECE).collect::<String>(), text.clone());
            for chunk in content(&head(), &text) {
                let line = std::str::from_utf8(&chunk).unwrap().strip_suffix("\n\n").unwrap();
                prop_assert!(!line.contains(['\n', '\r']));
                prop_assert!(pieces(&text, MAX_PIECE).all(|p| p.len() <= MAX_PIECE && !p.is_empty()));
            }
        }
    }
}
