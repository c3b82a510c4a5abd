//! A provider's answer on each of the three wires, in pieces.
//!
//! The first byte picks the wire, the second the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_egress::wire::{
    AnswerParser, Api, Delta, MAX_ARGUMENTS, MAX_CALLS, MAX_NAME, MAX_STREAMED, MAX_TEXT,
};

fuzz_target!(|bytes: &[u8]| {
    let [wire, step, stream @ ..] = bytes else {
        return;
    };
    let api = [
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::AnthropicMessages,
    ];
    let parser = AnswerParser::new(api[usize::from(*wire) % api.len()]);
    let mut parser = parser.streaming(&["t".to_owned()]);
    let mut streamed = 0;
    let mut text = 0;
    for piece in stream.chunks(usize::from(*step).max(1)) {
        let Ok(deltas) = parser.push(piece) else {
            return;
        };
        for delta in deltas {
            match delta {
                Delta::Text(piece) | Delta::Thought(piece) => text += piece.len(),
                Delta::Arguments { text, .. } => streamed += text.len(),
            }
        }
    }
    assert!(text <= 2 * MAX_TEXT && streamed <= MAX_CALLS * MAX_STREAMED);
    if let Ok(end) = parser.end() {
        assert!(end.calls.len() <= MAX_CALLS);
        let arguments: usize = end.calls.iter().map(|call| call.arguments.len()).sum();
        assert!(arguments <= MAX_ARGUMENTS);
        for call in end.calls {
            assert!(!call.name.is_empty() && call.name.len() <= MAX_NAME);
        }
    }
});
