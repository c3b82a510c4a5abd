//! A provider's answer on each of the three wires, in pieces.
//!
//! The first byte picks the wire, the second the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_egress::wire::{AnswerParser, Api, Delta, MAX_ARGUMENTS, MAX_CALLS, MAX_NAME, MAX_TEXT};

fuzz_target!(|bytes: &[u8]| {
    let [wire, step, stream @ ..] = bytes else {
        return;
    };
    let api = [
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::AnthropicMessages,
    ];
    let mut parser = AnswerParser::new(api[usize::from(*wire) % api.len()]);
    let mut text = 0;
    for piece in stream.chunks(usize::from(*step).max(1)) {
        let Ok(deltas) = parser.push(piece) else {
            return;
        };
        for delta in deltas {
            let (Delta::Text(piece) | Delta::Thought(piece)) = delta;
            text += piece.len();
        }
    }
    assert!(text <= 2 * MAX_TEXT);
    if let Ok(end) = parser.end() {
        assert!(end.calls.len() <= MAX_CALLS);
        let arguments: usize = end.calls.iter().map(|call| call.arguments.len()).sum();
        assert!(arguments <= MAX_ARGUMENTS);
        for call in end.calls {
            assert!(!call.name.is_empty() && call.name.len() <= MAX_NAME);
        }
    }
});
