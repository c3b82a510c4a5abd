//! The JSON that an operator's command sends, and the turn inside it.
#![no_main]

use ipc_proto::admin::{Answer, Ask};
use ipc_proto::edges::control::TurnInput;
use ipc_proto::message::Message;
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ask) = Ask::decode(bytes) {
        let again = ask.encode().and_then(|bytes| Ask::decode(&bytes));
        assert_eq!(again.ok().as_ref(), Some(&ask));
        if let Ask::Send { input, .. } = ask {
            // A body in a memfd without one must be an error.
            let _ = input.unpack::<TurnInput>(&mut VecDeque::new(), 1 << 20);
        }
    }
    if let Ok(answer) = Answer::decode(bytes) {
        let again = answer.encode().and_then(|bytes| Answer::decode(&bytes));
        assert_eq!(again.ok(), Some(answer));
    }
    let _ = serde_json::from_slice::<TurnInput>(bytes);
});
