//! Answers of the three wires, from streams in the shape that the services send.
#![allow(clippy::unwrap_used)]

use ipc_proto::chat::Usage;
use ipc_proto::edges::egress::FinishReason;
use mono_egress::failure::{ErrorClass, Failure};
use mono_egress::wire::{AnswerParser, Api, Delta, End, WireCall};
use proptest::prelude::*;

const FIXTURES: &[(Api, &str)] = &[
    (Api::OpenaiChat, include_str!("fixtures/chat_text.sse")),
    (Api::OpenaiChat, include_str!("fixtures/chat_tools.sse")),
    (
        Api::OpenaiChat,
        include_str!("fixtures/chat_whole_calls.sse"),
    ),
    (Api::OpenaiResponses, include_str!("fixtures/responses.sse")),
    (
        Api::AnthropicMessages,
        include_str!("fixtures/messages.sse"),
    ),
];

/// Everything that one stream gives: text, thoughts, and its end.
type Parsed = (String, String, Result<End, Failure>);

fn parse(api: Api, pieces: &[&[u8]]) -> Parsed {
    let mut parser = AnswerParser::new(api);
    let (mut text, mut thoughts) = (String::new(), String::new());
    for piece in pieces {
        match parser.push(piece) {
            Ok(deltas) => {
                for delta in deltas {
                    match delta {
                        Delta::Text(more) => text.push_str(&more),
                        Delta::Thought(more) => thoughts.push_str(&more),
                        Delta::Arguments { .. } => panic!("nobody asked for them"),
                    }
                }
            }
            Err(failure) => return (text, thoughts, Err(failure)),
        }
    }
    (text, thoughts, parser.end())
}

fn whole(api: Api, stream: &str) -> Parsed {
    parse(api, &[stream.as_bytes()])
}

fn call(id: &str, name: &str, arguments: &str) -> WireCall {
    WireCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    }
}

#[test]
fn chat_text() {
    let (text, thoughts, end) = whole(FIXTURES[0].0, FIXTURES[0].1);
    assert_eq!(
        (text.as_str(), thoughts.as_str()),
        ("Grüße 🦀\n", "Let me see.")
    );
    let usage = Usage {
        input: 100,
        output: 7,
        cache_read: 64,
        cache_creation: 0,
        cost_usd: Some(0.0125),
    };
    assert_eq!(
        end.unwrap(),
        End {
            finish: FinishReason::Stop,
            calls: vec![],
            usage: Some(usage)
        }
    );
}

#[test]
fn chat_calls_are_assembled_by_index() {
    let (_, _, end) = whole(FIXTURES[1].0, FIXTURES[1].1);
    let end = end.unwrap();
    assert_eq!(end.finish, FinishReason::ToolUse);
    assert_eq!(
        end.calls,
        [
            call("call_a", "Read", r#"{"file_path":"é"}"#),
            call("call_b", "echo", r#"{"message":"x"}"#),
            call("call_c", "now", "{}"),
        ]
    );
    assert_eq!(end.usage, None);
}

#[test]
fn chat_calls_of_servers_that_do_not_count() {
    let (_, _, end) = whole(FIXTURES[2].0, FIXTURES[2].1);
    let end = end.unwrap();
    assert_eq!(
        end.finish,
        FinishReason::ToolUse,
        "`stop` after calls means the calls"
    );
    assert_eq!(
        end.calls,
        [
            call("w1", "a", r#"{"n":1}"#),
            call("w2", "b", r#"{"n":2}"#),
            call("w3", "c", r#"{"n":3}"#)
        ]
    );
}

#[test]
fn responses() {
    let (text, thoughts, end) = whole(FIXTURES[3].0, FIXTURES[3].1);
    assert_eq!(
        (text.as_str(), thoughts.as_str()),
        ("Hello ✓", "First.\n\nSecond.")
    );
    let end = end.unwrap();
    assert_eq!(end.finish, FinishReason::ToolUse);
    assert_eq!(end.calls, [call("call_1", "get-sum", r#"{"a":1,"b":2}"#)]);
    let usage = Usage {
        input: 30,
        output: 9,
        cache_read: 10,
        ..Usage::default()
    };
    assert_eq!(end.usage, Some(usage));
}

#[test]
fn messages() {
    let (text, thoughts, end) = whole(FIXTURES[4].0, FIXTURES[4].1);
    assert_eq!((text.as_str(), thoughts.as_str()), ("I will call.", "Hmm…"));
    let end = end.unwrap();
    assert_eq!(end.finish, FinishReason::ToolUse);
    assert_eq!(
        end.calls,
        [
            call("toolu_1", "echo", r#"{"message": "über"}"#),
            call("toolu_2", "now", "{}")
        ]
    );
    let usage = Usage {
        input: 1112,
        output: 42,
        cache_read: 1000,
        cache_creation: 100,
        cost_usd: None,
    };
    assert_eq!(end.usage, Some(usage));
}

#[test]
fn finish_reasons() {
    use FinishReason as F;
    let chat = |reason: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n"
        )
    };
    let responses = |kind: &str, rest: &str| {
        format!("data: {{\"type\":\"response.{kind}\",\"response\":{{{rest}}}}}\n\n")
    };
    let messages = |reason: &str| {
        format!(
            "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}\n\n"
        )
    };
    let incomplete = |reason: &str| {
        format!("\"status\":\"incomplete\",\"incomplete_details\":{{\"reason\":\"{reason}\"}}")
    };
    let cases = [
        (Api::OpenaiChat, chat("stop"), F::Stop),
        (Api::OpenaiChat, chat("eos"), F::Stop),
        (Api::OpenaiChat, chat("tool_calls"), F::Stop), // without any call it is no tool turn
        (Api::OpenaiChat, chat("length"), F::Length),
        (Api::OpenaiChat, chat("content_filter"), F::ContentFilter),
        (
            Api::OpenaiResponses,
            responses("completed", "\"status\":\"completed\""),
            F::Stop,
        ),
        (
            Api::OpenaiResponses,
            responses("incomplete", &incomplete("max_output_tokens")),
            F::Length,
        ),
        (
            Api::OpenaiResponses,
            responses("incomplete", &incomplete("content_filter")),
            F::ContentFilter,
        ),
        (Api::AnthropicMessages, messages("end_turn"), F::Stop),
        (Api::AnthropicMessages, messages("stop_sequence"), F::Stop),
        (Api::AnthropicMessages, messages("max_tokens"), F::Length),
        (
            Api::AnthropicMessages,
            messages("refusal"),
            F::ContentFilter,
        ),
    ];
    for (api, stream, finish) in cases {
        assert_eq!(whole(api, &stream).2.unwrap().finish, finish, "{stream}");
    }
}

#[test]
fn errors_in_a_stream_end_it() {
    use ErrorClass as C;
    let cases = [
        (
            Api::OpenaiChat,
            r#"{"error":{"message":"m","type":"server_error","code":null}}"#,
            C::ServerError,
        ),
        (
            Api::OpenaiChat,
            r#"{"error":{"message":"m","code":429}}"#,
            C::RateLimited,
        ),
        (
            Api::OpenaiChat,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#,
            C::ServerError,
        ),
        (Api::OpenaiChat, "{not json", C::ServerError),
        (
            Api::OpenaiResponses,
            r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"m"}}}"#,
            C::RateLimited,
        ),
        (
            Api::OpenaiResponses,
            r#"{"type":"error","code":"context_length_exceeded","message":"m","param":null}"#,
            C::ContextLimit,
        ),
        (
            Api::AnthropicMessages,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            C::Overloaded,
        ),
        (Api::AnthropicMessages, "[DONE]", C::ServerError),
    ];
    for (api, data, class) in cases {
        let failure = whole(api, &format!("data: {data}\n\n")).2.unwrap_err();
        assert_eq!(failure.class, class, "{data}");
    }
}

/// A tool call is never given out of a stream that did not reach its finish reason.
#[test]
fn a_stream_cut_anywhere_before_its_finish_is_no_answer() {
    for (api, stream) in FIXTURES {
        let finish = [
            "\"finish_reason\":\"stop\"",
            "\"finish_reason\":\"tool_calls\"",
            "response.completed\"",
            "\"stop_reason\":\"tool_use\"",
        ]
        .iter()
        .filter_map(|mark| stream.find(mark))
        .min()
        .unwrap();
        for cut in 0..finish {
            let end = parse(*api, &[&stream.as_bytes()[..cut]]).2;
            assert_eq!(
                end.unwrap_err().class,
                ErrorClass::StreamCut,
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn bytes_after_the_last_event_do_not_matter() {
    for (api, stream) in FIXTURES {
        let expected = whole(*api, stream);
        let mut parser = AnswerParser::new(*api);
        parser.push(stream.as_bytes()).unwrap();
        if parser.is_complete() {
            assert!(parser.push(b"data: {not json\n\n").unwrap().is_empty());
        }
        assert_eq!(parser.end(), expected.2);
    }
}

#[test]
fn a_call_without_a_name_is_no_call() {
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\"}]},\"finish_reason\":\"tool_calls\"}]}\n\n";
    assert_eq!(
        whole(Api::OpenaiChat, stream).2.unwrap_err().class,
        ErrorClass::ServerError
    );
}

#[test]
fn arguments_over_their_bound_fail_with_a_clear_word() {
    let piece = "x".repeat(1 << 20);
    let delta = |piece: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"a\",\"function\":{{\"name\":\"t\",\"arguments\":\"{piece}\"}}}}]}}}}]}}\n\n"
        )
    };
    let mut parser = AnswerParser::new(Api::OpenaiChat);
    for _ in 0..8 {
        parser.push(delta(&piece).as_bytes()).unwrap();
    }
    let failure = parser.push(delta("x").as_bytes()).unwrap_err();
    assert_eq!(failure.class, ErrorClass::AnswerTooLarge);
    assert!(failure.message.contains("8388608"), "{failure}");
}

proptest! {
    #[test]
    fn cutting_the_stream_into_pieces_changes_nothing(
        which in 0..FIXTURES.len(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (api, stream) = FIXTURES[which];
        let bytes = stream.as_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|i| i.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        prop_assert_eq!(parse(api, &pieces), whole(api, stream));
    }

    #[test]
    fn hostile_events_end_in_an_answer_or_a_failure(
        which in 0..FIXTURES.len(),
        at in any::<prop::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let (api, stream) = FIXTURES[which];
        let mut bytes = stream.as_bytes().to_vec();
        let at = at.index(bytes.len());
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        let _ = parse(api, &[&bytes]);
    }
}

#[test]
fn every_single_byte_boundary_gives_the_same() {
    for (api, stream) in FIXTURES {
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(parse(*api, &bytes), whole(*api, stream));
    }
}

/// What a stream tells of the arguments of these tools before they are whole, by call.
fn told(api: Api, stream: &str, tools: &[&str], step: usize) -> Vec<(u32, String, String)> {
    let tools: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
    let mut parser = AnswerParser::new(api).streaming(&tools);
    let mut told: Vec<(u32, String, String)> = Vec::new();
    for piece in stream.as_bytes().chunks(step) {
        for delta in parser.push(piece).unwrap() {
            let Delta::Arguments { call, name, text } = delta else {
                continue;
            };
            match told.iter_mut().find(|(own, ..)| *own == call) {
                Some((_, own, before)) => {
                    assert_eq!(*own, name);
                    before.push_str(&text);
                }
                None => told.push((call, name, text)),
            }
        }
    }
    told
}

#[test]
fn arguments_are_told_as_they_come_wherever_the_stream_is_cut_and_of_wanted_tools_alone() {
    let mut streamed = 0;
    for (api, stream) in FIXTURES {
        let (.., end) = whole(*api, stream);
        let calls = end.unwrap().calls;
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        assert!(told(*api, stream, &[], 7).is_empty());
        assert!(told(*api, stream, &["another"], 7).is_empty());
        for step in [1, 7, stream.len()] {
            let told = told(*api, stream, &names, step);
            for (call, name, text) in &told {
                let whole = &calls[usize::try_from(*call).unwrap()];
                assert_eq!((name, text), (&whole.name, &whole.arguments), "{api:?}");
            }
            streamed += told.len();
        }
    }
    assert!(streamed >= 9, "all three have calls: {streamed}");
}
