//! The body of a request, checked and turned into a turn (facts 2.2).

use super::attachment;
use super::error::Refusal;
use super::fields::{self, Fields};
use ipc_proto::ConversationId;
use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::chat::Block;
use ipc_proto::edges::control::TurnInput;
use ipc_proto::rooms::{self, Reserved};
use ipc_proto::settings::WebhookEndpoint;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use url::Url;

/// Longest text, and bytes of a body beside its attachments (facts 2.2: 1 MB).
pub const MAX_TEXT: usize = 1024 * 1024;
/// Bytes of the caller's metadata as it came; it comes back with every answer.
const MAX_METADATA: usize = 16 * 1024;
/// Longest address of a callback in bytes.
const MAX_URL: usize = 2_048;
/// Longest name of a model in bytes.
const MAX_MODEL: usize = 320;
/// Words of `runtime.effort`.
const EFFORTS: [&str; 8] = [
    "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra",
];

/// What bounds a request beside its endpoint.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one attachment.
    pub attachment_bytes: u64,
    /// Where results may be sent.
    pub callback_hosts: CallbackHosts,
    /// Conversations that callers can't name.
    pub reserved: Reserved,
}

/// A request that can be served.
#[derive(Debug, PartialEq)]
pub struct Invocation {
    /// True: the caller waits for the answer.
    pub wait: bool,
    /// The conversation, if the caller or the endpoint names one.
    pub conversation: Option<ConversationId>,
    /// The caller's own words about the request; returned with it, and not shown to the agent.
    pub metadata: Map<String, Value>,
    /// Where the result is sent.
    pub callback: Option<Url>,
    /// The turn.
    pub input: TurnInput,
}

/// Checks a body.
///
/// # Errors
/// Naming the field that can't be served.
pub fn parse(
    body: &[u8],
    endpoint: &WebhookEndpoint,
    limits: &Limits,
) -> Result<Invocation, Refusal> {
    let body = Fields::of(body)?;
    let text = string(body.text, "text")?.unwrap_or_default();
    if text.trim().is_empty() {
        return Err(Refusal::invalid("\"text\" is required."));
    }
    if text.len() > MAX_TEXT {
        return Err(Refusal::too_large(format!(
            "\"text\" has more than {MAX_TEXT} bytes."
        )));
    }
    let metadata = metadata(body.metadata)?;
    let attached = attachment::read(body.attachments, limits.attachment_bytes)?;
    let text = match &endpoint.prompt {
        Some(prompt) => format!("{prompt}\n\n{text}"),
        None => text.into_owned(),
    };
    let mut content = vec![Block::Text { text }];
    content.extend(attached.images);
    Ok(Invocation {
        wait: wait(&body, endpoint)?,
        conversation: conversation(&body, endpoint, &limits.reserved)?,
        metadata,
        callback: callback(&body, endpoint, &limits.callback_hosts)?,
        input: TurnInput {
            content,
            model: model(&body)?.or_else(|| endpoint.model.clone()),
            effort: effort(&body)?.or_else(|| endpoint.effort.clone()),
            attachments: attached.files,
            ..TurnInput::default()
        },
    })
}

/// A member that is text; `null` and the empty text are none.
fn string<'a>(raw: Option<&'a RawValue>, key: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
    let wrong = || Refusal::invalid(format!("\"{key}\" must be text."));
    let text = raw.map(|raw| fields::text(raw).ok_or_else(wrong));
    Ok(text.transpose()?.filter(|text| !text.is_empty()))
}

fn metadata(raw: Option<&RawValue>) -> Result<Map<String, Value>, Refusal> {
    let Some(raw) = raw else {
        return Ok(Map::new());
    };
    if raw.get().len() > MAX_METADATA {
        return Err(Refusal::too_large(format!(
            "\"metadata\" has more than {MAX_METADATA} bytes."
        )));
    }
    serde_json::from_str(raw.get()).map_err(|_| Refusal::invalid("\"metadata\" must be an object."))
}

fn wait(body: &Fields<'_>, endpoint: &WebhookEndpoint) -> Result<bool, Refusal> {
    match string(body.mode, "mode")?.as_deref() {
        None => Ok(endpoint.wait),
        Some("sync") => Ok(true),
        Some("async") => Ok(false),
        Some(_) => Err(Refusal::invalid("\"mode\" must be \"sync\" or \"async\".")),
    }
}

/// An endpoint's own conversation can't be left: to go on in it would put the message elsewhere
/// than the caller said. Nor can another's be entered.
fn conversation(
    body: &Fields<'_>,
    endpoint: &WebhookEndpoint,
    reserved: &Reserved,
) -> Result<Option<ConversationId>, Refusal> {
    let named = string(body.conversation_id, "conversationId")?;
    let chosen = match (&endpoint.conversation, named) {
        (Some(own), Some(other)) if *own != other => {
            return Err(Refusal::invalid(
                "\"conversationId\" can't be chosen at this endpoint.",
            ));
        }
        (Some(own), _) => Some(Cow::Borrowed(own.as_str())),
        (None, Some(named)) if !reserved.may_name(rooms::WEBHOOK, &named) => {
            return Err(Refusal::invalid(
                "\"conversationId\" is one of another channel or endpoint. Choose another.",
            ));
        }
        (None, named) => named,
    };
    chosen
        .map(|id| ConversationId::parse(&id))
        .transpose()
        .map_err(|e| Refusal::invalid(format!("\"conversationId\": {e}.")))
}

fn model(body: &Fields<'_>) -> Result<Option<String>, Refusal> {
    let model = string(body.model, "model")?;
    let is_none = |model: &str| model.len() > MAX_MODEL || !model.contains(':');
    if model.as_deref().is_some_and(is_none) {
        return Err(Refusal::invalid("\"model\" must be PROVIDER:MODEL."));
    }
    Ok(model.map(Cow::into_owned))
}

fn effort(body: &Fields<'_>) -> Result<Option<String>, Refusal> {
    let effort = string(body.effort, "effort")?;
    let is_none = |effort: &str| !EFFORTS.contains(&effort);
    if effort.as_deref().is_some_and(is_none) {
        return Err(Refusal::invalid(format!(
            "\"effort\" must be one of {}.",
            EFFORTS.join(", ")
        )));
    }
    Ok(effort.map(Cow::into_owned))
}

/// Where the result goes. A host that nobody declared is told at once; `egress` would refuse it.
fn callback(
    body: &Fields<'_>,
    endpoint: &WebhookEndpoint,
    hosts: &CallbackHosts,
) -> Result<Option<Url>, Refusal> {
    let own = endpoint.callback_url.as_deref().map(Cow::Borrowed);
    let Some(text) = string(body.callback_url, "callbackUrl")?.or(own) else {
        return Ok(None);
    };
    let wrong =
        || Refusal::invalid("\"callbackUrl\" must be an http or https address without user.");
    if text.len() > MAX_URL {
        return Err(wrong());
    }
    let mut url = Url::parse(&text).map_err(|_| wrong())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none();
    let (true, Some(host), Some(port)) = (plain, url.host_str(), url.port_or_known_default())
    else {
        return Err(wrong());
    };
    hosts
        .reach(url.scheme() == "https", host, port)
        .map_err(|e| Refusal::callback(format!("\"callbackUrl\": {e}.")))?;
    url.set_fragment(None);
    Ok(Some(url))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn endpoint() -> WebhookEndpoint {
        WebhookEndpoint {
            name: "e".into(),
            path: "/e".into(),
            bearer: false,
            secret: false,
            wait: true,
            conversation: None,
            model: None,
            effort: None,
            prompt: None,
            callback_url: None,
        }
    }

    fn limits() -> Limits {
        Limits {
            attachment_bytes: 100,
            callback_hosts: CallbackHosts {
                public: vec!["hooks.example".into()],
                private: vec!["127.0.0.1:9000".into()],
            },
            reserved: Reserved(vec!["deploys".into()]),
        }
    }

    fn at(endpoint: &WebhookEndpoint, body: Value) -> Result<Invocation, (u16, String)> {
        parse(body.to_string().as_bytes(), endpoint, &limits()).map_err(|r| (r.status, r.code))
    }

    fn with(more: Value) -> Result<Invocation, (u16, String)> {
        let mut body = json!({"text": "hi"});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        at(&endpoint(), body)
    }

    #[test]
    fn a_plain_request_is_a_turn() {
        let got = with(json!({"surprise": 1, "mode": null, "model": null})).unwrap();
        assert!(got.wait && got.conversation.is_none() && got.callback.is_none());
        assert_eq!(got.input.content, [Block::Text { text: "hi".into() }]);
        assert!(got.metadata.is_empty() && got.input.attachments.is_empty());
        let got = with(json!({
            "conversationId": "c", "mode": "async", "model": "p:m", "effort": "low",
            "metadata": {"ticket": 7}, "callbackUrl": "https://hooks.example/x#y",
            "attachments": [{"name": "a.txt", "mediaType": "text/plain", "data": "YQ=="},
                            {"name": "a.png", "mediaType": "image/png", "data": "YQ=="}],
        }))
        .unwrap();
        assert!(!got.wait);
        assert_eq!(got.conversation.unwrap().as_str(), "c");
        assert_eq!(json!(got.metadata), json!({"ticket": 7}));
        assert_eq!(got.callback.unwrap().as_str(), "https://hooks.example/x");
        assert_eq!(
            (got.input.content.len(), got.input.attachments.len()),
            (2, 1)
        );
        assert_eq!(got.input.model.as_deref(), Some("p:m"));
        assert_eq!(got.input.effort.as_deref(), Some("low"));
    }

    #[test]
    fn an_endpoint_has_settings_of_its_own() {
        let own = WebhookEndpoint {
            wait: false,
            conversation: Some("webhook:deploys".into()),
            model: Some("p:own".into()),
            effort: Some("high".into()),
            prompt: Some("Judge.".into()),
            callback_url: Some("http://127.0.0.1:9000/done".into()),
            ..endpoint()
        };
        let got = at(&own, json!({"text": "hi"})).unwrap();
        assert!(!got.wait);
        assert_eq!(got.conversation.unwrap().as_str(), "webhook:deploys");
        assert_eq!(got.input.model.as_deref(), Some("p:own"));
        assert_eq!(got.input.effort.as_deref(), Some("high"));
        assert_eq!(got.callback.unwrap().as_str(), "http://127.0.0.1:9000/done");
        let text = "Judge.\n\nhi".to_owned();
        assert_eq!(got.input.content, [Block::Text { text }]);
        let more = json!({"text": "hi", "mode": "sync", "model": "p:m", "effort": "low",
            "callbackUrl": "https://hooks.example/", "conversationId": "webhook:deploys"});
        let got = at(&own, more).unwrap();
        assert!(got.wait);
        assert_eq!(got.input.model.as_deref(), Some("p:m"));
        assert_eq!(got.callback.unwrap().host_str(), Some("hooks.example"));
        let other = at(&own, json!({"text": "hi", "conversationId": "c"}));
        assert_eq!(other.unwrap_err().0, 400);
    }

    #[test]
    fn what_can_not_be_served_is_refused() {
        for more in [
            json!({"text": null}),
            json!({"text": ""}),
            json!({"text": " \n"}),
            json!({"text": 7}),
            json!({"text": ["hi"]}),
            json!({"conversationId": 7}),
            json!({"conversationId": "a\nb"}),
            json!({"conversationId": "x".repeat(513)}),
            json!({"mode": "later"}),
            json!({"mode": true}),
            json!({"model": "m"}),
            json!({"model": format!("p:{}", "x".repeat(MAX_MODEL))}),
            json!({"effort": "huge"}),
            json!({"metadata": []}),
            json!({"attachments": {}}),
            json!({"callbackUrl": 7}),
            json!({"callbackUrl": "hooks.example"}),
            json!({"callbackUrl": "ftp://hooks.example/"}),
            json!({"callbackUrl": "https://u:p@hooks.example/"}),
            json!({"callbackUrl": format!("https://hooks.example/{}", "x".repeat(MAX_URL))}),
        ] {
            let error = with(more.clone()).unwrap_err();
            assert_eq!(error, (400, "invalid_request".to_owned()), "{more}");
        }
        for url in [
            "https://evil.example/",
            "https://hooks.example.evil/",
            "http://hooks.example/",
            "http://127.0.0.1:9001/",
            "http://127.1:9001/",
            "https://[::1]/",
            "http://169.254.169.254/",
        ] {
            let error = with(json!({"callbackUrl": url})).unwrap_err();
            assert_eq!(error, (400, "callback_forbidden".to_owned()), "{url}");
        }
        for body in ["", "[]", "\"hi\"", "{", "{\"text\":\"hi\"} x"] {
            let refusal = parse(body.as_bytes(), &endpoint(), &limits()).unwrap_err();
            assert_eq!(refusal.status, 400, "{body}");
        }
    }

    #[test]
    fn nobody_goes_on_in_a_conversation_of_another_channel_or_endpoint() {
        for taken in ["web:t", "openai-api:x", "terminal", "cron:job:1", "deploys"] {
            let error = with(json!({"conversationId": taken})).unwrap_err();
            assert_eq!(error, (400, "invalid_request".to_owned()), "{taken}");
        }
        for own in ["webhook:x", "website", "Deploys"] {
            let got = with(json!({"conversationId": own})).unwrap();
            assert_eq!(got.conversation.unwrap().as_str(), own);
        }
        // The endpoint that it is given to stays in it.
        let keeper = WebhookEndpoint {
            conversation: Some("deploys".into()),
            ..endpoint()
        };
        for body in [
            json!({"text": "hi"}),
            json!({"text": "hi", "conversationId": "deploys"}),
        ] {
            let got = at(&keeper, body).unwrap();
            assert_eq!(got.conversation.unwrap().as_str(), "deploys");
        }
    }

    #[test]
    fn text_and_metadata_are_bounded() {
        assert!(with(json!({"text": "x".repeat(MAX_TEXT)})).is_ok());
        let error = with(json!({"text": "x".repeat(MAX_TEXT + 1)})).unwrap_err();
        assert_eq!(error.0, 413);
        let metadata = |n: usize| with(json!({"metadata": {"x": "y".repeat(n)}}));
        assert!(metadata(MAX_METADATA - 8).is_ok());
        assert_eq!(metadata(MAX_METADATA - 7).unwrap_err().0, 413);
    }

    proptest! {
        #[test]
        fn any_body_is_served_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &endpoint(), &limits());
        }
    }
}
