//! The body of a chat completion request, checked and turned into a turn.

use super::conversation;
use super::error::ApiError;
use super::transcript;
use http::HeaderMap;
use ipc_proto::ConversationId;
use ipc_proto::edges::control::TurnInput;
use ipc_proto::rooms::Reserved;
use serde_json::{Map, Value};

/// Fields that ask for what the agent does its own way; refused rather than ignored, because a
/// client that sends them relies on them.
const REFUSED: [&str; 7] = [
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "response_format",
    "audio",
    "modalities",
];

/// Parameters that are accepted and have no effect; the run warns about them.
const IGNORED: [&str; 20] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_a",
    "n",
    "stop",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "verbosity",
    "prediction",
    "service_tier",
];

/// A request that can be served.
#[derive(Debug, PartialEq)]
pub struct ChatRequest {
    /// Answer as a stream of events.
    pub stream: bool,
    /// End the stream with a usage chunk.
    pub include_usage: bool,
    /// The conversation that it names.
    pub conversation: Option<ConversationId>,
    /// The turn.
    pub input: TurnInput,
}

/// Checks a body.
///
/// # Errors
/// Naming the field that can't be served.
pub fn parse(
    body: &[u8],
    headers: &HeaderMap,
    model_id: &str,
    reserved: &Reserved,
) -> Result<ChatRequest, ApiError> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|e| ApiError::unreadable(format!("The body is not valid JSON: {e}.")))?;
    let Value::Object(body) = body else {
        return Err(ApiError::unreadable("The body must be a JSON object."));
    };
    if body.get("model").and_then(Value::as_str) != Some(model_id) {
        return Err(ApiError::invalid(
            "model",
            format!("\"model\" must be \"{model_id}\"."),
        ));
    }
    if let Some(field) = REFUSED.iter().find(|field| is_set(&body, field)) {
        return Err(ApiError::invalid(
            *field,
            format!(
                "\"{field}\" is not supported: the agent uses its own tools and answers with text."
            ),
        ));
    }
    let stream = flag(&body, "stream", "stream")?;
    let include_usage = match body.get("stream_options") {
        None | Some(Value::Null) => false,
        Some(Value::Object(options)) => {
            flag(options, "include_usage", "stream_options.include_usage")?
        }
        Some(_) => {
            return Err(ApiError::invalid(
                "stream_options",
                "\"stream_options\" must be an object.",
            ));
        }
    };
    let conversation = conversation::resolve(&body, headers, reserved)?;
    let transcript = transcript::read(body.get("messages"))?;
    let mut warnings = transcript.warnings;
    let ignored: Vec<_> = IGNORED
        .into_iter()
        .filter(|field| is_set(&body, field))
        .collect();
    if !ignored.is_empty() {
        warnings.push(format!(
            "These parameters have no effect here: {}.",
            ignored.join(", ")
        ));
    }
    Ok(ChatRequest {
        stream,
        include_usage,
        conversation,
        input: TurnInput {
            content: transcript.content,
            preceding: transcript.preceding,
            guidance: transcript.guidance,
            warnings,
            ..TurnInput::default()
        },
    })
}

fn is_set(body: &Map<String, Value>, field: &str) -> bool {
    body.get(field).is_some_and(|value| !value.is_null())
}

fn flag(body: &Map<String, Value>, field: &str, param: &str) -> Result<bool, ApiError> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(ApiError::invalid(
            param,
            format!("\"{param}\" must be true or false."),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::chat::Block;
    use proptest::prelude::*;
    use serde_json::json;

    fn with(more: Value) -> Result<ChatRequest, ApiError> {
        let mut body = json!({"model": "agent", "messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        parse(
            body.to_string().as_bytes(),
            &HeaderMap::new(),
            "agent",
            &Reserved::default(),
        )
    }

    #[test]
    fn a_plain_request_is_a_turn() {
        let got =
            with(json!({"stream": null, "store": true, "metadata": {"chat_id": "c"}})).unwrap();
        assert!(!got.stream && !got.include_usage);
        assert_eq!(got.conversation.unwrap().as_str(), "c");
        assert_eq!(got.input.content, [Block::Text { text: "hi".into() }]);
        assert!(got.input.warnings.is_empty() && got.input.preceding.is_empty());
        let got = with(json!({"stream": true, "stream_options": {"include_usage": true}})).unwrap();
        assert!(got.stream && got.include_usage);
    }

    #[test]
    fn the_model_must_be_the_configured_one() {
        for model in [
            json!("gpt-4"),
            json!(""),
            json!("Agent"),
            json!(null),
            json!(1),
        ] {
            let error = with(json!({"model": model})).unwrap_err();
            assert_eq!(
                (error.status, error.code.as_str(), error.param.as_deref()),
                (400, "invalid_request", Some("model"))
            );
        }
    }

    #[test]
    fn every_refused_field_is_named_and_null_is_none() {
        for field in REFUSED {
            for value in [json!([]), json!({}), json!("auto"), json!(false)] {
                let error = with(json!({field: value})).unwrap_err();
                assert_eq!((error.status, error.param.as_deref()), (400, Some(field)));
            }
            assert!(with(json!({field: null})).is_ok());
        }
    }

    #[test]
    fn every_ignored_parameter_is_warned_about() {
        for field in IGNORED {
            let got = with(json!({field: 1})).unwrap();
            assert_eq!(
                got.input.warnings,
                [format!("These parameters have no effect here: {field}.")]
            );
        }
        let both = with(json!({"temperature": 0.5, "top_p": 1, "seed": null})).unwrap();
        assert_eq!(
            both.input.warnings,
            ["These parameters have no effect here: temperature, top_p."]
        );
    }

    #[test]
    fn other_shapes_are_refused() {
        for (body, param) in [
            (&b"{"[..], None),
            (b"[]", None),
            (b"\"x\"", None),
            (b"", None),
            (
                b"{\"model\":\"agent\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
                None,
            ),
        ] {
            let error = parse(body, &HeaderMap::new(), "agent", &Reserved::default()).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, param));
        }
        for (more, param) in [
            (json!({"stream": "yes"}), "stream"),
            (json!({"stream_options": 1}), "stream_options"),
            (
                json!({"stream_options": {"include_usage": 1}}),
                "stream_options.include_usage",
            ),
        ] {
            assert_eq!(with(more).unwrap_err().param.as_deref(), Some(param));
        }
        let deep = format!(
            "{{\"model\":\"agent\",\"metadata\":{}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(
            parse(
                deep.as_bytes(),
                &HeaderMap::new(),
                "agent",
                &Reserved::default()
            )
            .unwrap_err()
            .status,
            400
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &HeaderMap::new(), "agent", &Reserved::default());
        }

        #[test]
        fn no_json_panics(messages in arbitrary_json(), metadata in arbitrary_json()) {
            let _ = with(json!({"messages": messages, "metadata": metadata}));
        }
    }

    fn arbitrary_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z:;,/\\n]{0,12}".prop_map(Value::from),
            Just(json!("user")),
            Just(json!("image_url")),
        ];
        let key = prop_oneof![
            "[a-z]{1,3}",
            Just("role".into()),
            Just("content".into()),
            Just("type".into()),
            Just("image_url".into()),
            Just("url".into()),
            Just("text".into())
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }
}
