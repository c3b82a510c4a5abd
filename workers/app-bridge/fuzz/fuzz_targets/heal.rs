//! Arguments of a tool call while a model still writes them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_app_bridge::apps::heal::{MAX_PARTIAL, Tail, heal};
use serde_json::{Map, Value};

fuzz_target!(|text: &str| {
    for tail in [Tail::Characters, Tail::Words] {
        let healed = heal(text, tail);
        assert!(healed.is_none() || text.len() <= MAX_PARTIAL);
        // What is whole is not changed.
        if let (Some(healed), Ok(whole)) =
            (healed, serde_json::from_str::<Map<String, Value>>(text))
        {
            assert_eq!(healed, whole);
        }
    }
});
