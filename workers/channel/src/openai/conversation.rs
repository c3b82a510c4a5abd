//! Which conversation a request belongs to (facts of the channel: the order is fixed).

use super::error::ApiError;
use http::HeaderMap;
use ipc_proto::ConversationId;
use ipc_proto::rooms::{OPENAI, Reserved};
use serde_json::{Map, Value};

/// Names looked for in `metadata` and then at the top level.
const NAMES: [&str; 4] = ["conversation_id", "conversationId", "chat_id", "chatId"];
/// Headers looked at last, in order.
const HEADERS: [&str; 2] = ["x-openwebui-chat-id", "x-conversation-id"];

/// The conversation that the request names, if it names one: `metadata`, then the top level (where
/// `user` counts too), then the headers. Empty text and `null` name nothing.
///
/// # Errors
/// When the first name found holds no valid id, or one that is not for this channel's clients: to
/// go on would put the message elsewhere.
pub fn resolve(
    body: &Map<String, Value>,
    headers: &HeaderMap,
    reserved: &Reserved,
) -> Result<Option<ConversationId>, ApiError> {
    let metadata = match body.get("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => Some(map),
        Some(_) => {
            return Err(ApiError::invalid(
                "metadata",
                "\"metadata\" must be an object.",
            ));
        }
    };
    let in_metadata = NAMES.iter().map(|name| {
        (
            metadata.and_then(|m| m.get(*name)),
            format!("metadata.{name}"),
        )
    });
    let at_top = NAMES
        .iter()
        .chain([&"user"])
        .map(|name| (body.get(*name), (*name).to_owned()));
    for (value, param) in in_metadata.chain(at_top) {
        match value {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(Value::String(text)) => return parse(text, &param, reserved).map(Some),
            Some(_) => {
                return Err(ApiError::invalid(
                    &*param,
                    format!("\"{param}\" must be text."),
                ));
            }
        }
    }
    for name in HEADERS {
        let Some(value) = headers.get(name) else {
            continue;
        };
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| ApiError::invalid(name, format!("The header {name} must be UTF-8.")))?;
        if !text.is_empty() {
            return parse(text, name, reserved).map(Some);
        }
    }
    Ok(None)
}

fn parse(text: &str, param: &str, reserved: &Reserved) -> Result<ConversationId, ApiError> {
    if !reserved.may_name(OPENAI, text) {
        let message = format!("\"{param}\" is a conversation of another channel. Choose another.");
        return Err(ApiError::invalid(param, message));
    }
    ConversationId::parse(text).map_err(|e| ApiError::invalid(param, format!("\"{param}\": {e}.")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::json;

    fn found(body: Value, headers: &[(&'static str, &str)]) -> Result<Option<String>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        resolve(
            body.as_object().unwrap(),
            &map,
            &Reserved(vec!["deploys".into()]),
        )
        .map(|id| id.map(|id| id.to_string()))
        .map_err(|e| e.param.unwrap())
    }

    /// Every place, from the strongest.
    fn place(n: usize, body: &mut Value, headers: &mut Vec<(&'static str, &str)>) {
        match n {
            0..4 => body["metadata"][NAMES[n]] = json!(format!("p{n}")),
            4..8 => body[NAMES[n - 4]] = json!(format!("p{n}")),
            8 => body["user"] = json!("p8"),
            9 => headers.push(("x-openwebui-chat-id", "p9")),
            _ => headers.push(("x-conversation-id", "p10")),
        }
    }

    proptest! {
        #[test]
        fn the_strongest_place_wins(places in proptest::collection::btree_set(0usize..11, 0..11)) {
            let (mut body, mut headers) = (json!({"metadata": {}}), Vec::new());
            for n in &places {
                place(*n, &mut body, &mut headers);
            }
            let expected = places.first().map(|n| format!("p{n}"));
            prop_assert_eq!(found(body, &headers).unwrap(), expected);
        }
    }

    #[test]
    fn empty_names_are_passed_over_and_bad_ones_are_refused() {
        assert_eq!(
            found(
                json!({"metadata": null, "user": "", "chat_id": null}),
                &[("x-conversation-id", "h")]
            ),
            Ok(Some("h".into()))
        );
        assert_eq!(
            found(
                json!({}),
                &[("x-openwebui-chat-id", ""), ("x-conversation-id", "é")]
            ),
            Ok(Some("é".into()))
        );
        for (body, param) in [
            (json!({"metadata": []}), "metadata"),
            (
                json!({"metadata": {"chat_id": 7}, "user": "u"}),
                "metadata.chat_id",
            ),
            (json!({"user": {}}), "user"),
            (json!({"conversation_id": "a\nb"}), "conversation_id"),
            (json!({"chatId": "x".repeat(513)}), "chatId"),
        ] {
            assert_eq!(found(body, &[]), Err(param.to_owned()));
        }
        assert_eq!(
            found(json!({"chatId": "x".repeat(512)}), &[]),
            Ok(Some("x".repeat(512)))
        );
    }
    #[test]
    fn nobody_goes_on_in_another_channels_conversation() {
        for taken in ["web:t", "webhook:x", "terminal", "deploys"] {
            let refused = Err("metadata.chat_id".to_owned());
            assert_eq!(found(json!({"metadata": {"chat_id": taken}}), &[]), refused);
            let refused = Err("x-conversation-id".to_owned());
            assert_eq!(found(json!({}), &[("x-conversation-id", taken)]), refused);
        }
        for own in ["openai-api:x", "website"] {
            assert_eq!(found(json!({"user": own}), &[]), Ok(Some(own.to_owned())));
        }
    }
}
