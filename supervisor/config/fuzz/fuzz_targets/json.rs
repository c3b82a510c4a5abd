//! The parser with positions: it takes what `serde_json` takes, within its own bound of depth.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_config::json;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let theirs = serde_json::from_str::<Value>(text);
    match json::parse(text) {
        Ok((node, duplicates)) => {
            assert_eq!(Some(node.to_value()), theirs.ok());
            let lines = text.lines().count().max(1);
            for duplicate in duplicates {
                assert!(duplicate.first < duplicate.at);
                assert!(duplicate.at.line as usize <= lines);
            }
        }
        Err(error) => {
            assert!(error.at.line >= 1 && error.at.column >= 1);
            // The only texts that it alone refuses nest too deep.
            let depth = text.bytes().filter(|b| matches!(b, b'[' | b'{')).count();
            assert!(theirs.is_err() || depth > json::MAX_DEPTH, "{error}");
        }
    }
});
