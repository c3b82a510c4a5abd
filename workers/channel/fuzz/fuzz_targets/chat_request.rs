//! The body of a chat completion, and the header that may name its conversation.
//!
//! What stands before the first line feed is the header's value.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use mono_channel::openai::request::parse;

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|b| *b == b'\n').unwrap_or(0);
    let (value, body) = bytes.split_at(at);
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(value) {
        headers.insert(HeaderName::from_static("x-conversation-id"), value);
    }
    let reserved = ipc_proto::rooms::Reserved(vec!["deploys".to_owned()]);
    match parse(body, &headers, "agent", &reserved) {
        Ok(request) => assert!(!request.input.content.is_empty()),
        // An error is always JSON that a client can read.
        Err(error) => assert!(error.json().starts_with('{')),
    }
});
