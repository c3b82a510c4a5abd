//! What an app proposes to the person: a link, context for the model, a message. No server is
//! asked; what comes of it is the page's and the person's (spec s0, "MCP Apps").

use super::audit::{Method, Phase};
use super::authority::complete;
use super::desk::{Asked, Desk, locked};
use super::redact::redact;
use super::refusal::{Refusal, Stop};
use crate::limits::printable;
use crate::listing::size;
use crate::servers::{Servers, Starter};
use ipc_proto::apps::{MAX_MESSAGE_CHARS, MAX_PARAMS, MAX_REQUEST};
use ipc_proto::text::cut;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use url::Url;

/// Longest link in bytes (facts 0.2).
const MAX_LINK: usize = 8 << 10;
/// Longest preview in bytes (spec s0).
const MAX_PREVIEW: usize = 2 << 10;
/// Nesting and entries of one level that a preview shows.
const PREVIEW_DEPTH: usize = 6;
const PREVIEW_ITEMS: usize = 20;
/// Bytes of one text in a preview.
const PREVIEW_TEXT: usize = 512;
/// What holds for a view once context was allowed.
const CONTEXT_GRANT: &str = "ui/update-model-context";

pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new("app_request_invalid", message)
}

pub(super) fn within(asked: &Asked, most: usize) -> Result<(), Refusal> {
    if size(&asked.params) <= most {
        return Ok(());
    }
    let message = format!("The request has more than the {most} bytes that are taken.");
    Err(Refusal::new("app_request_too_large", message))
}

/// What a person sees of a value before deciding: without credentials, at most [`MAX_PREVIEW`]
/// bytes; true when that is not all.
#[must_use]
pub fn preview(value: Value) -> (String, bool) {
    let (value, _) = redact(value, true);
    let mut less = false;
    let text = match bounded(value, 0, &mut less) {
        Value::String(text) => text,
        value => serde_json::to_string_pretty(&value).unwrap_or_default(),
    };
    let kept = cut(&text, MAX_PREVIEW);
    (kept.to_owned(), less || kept.len() < text.len())
}

fn bounded(value: Value, depth: usize, less: &mut bool) -> Value {
    match value {
        Value::String(text) => {
            let kept = printable_lines(&text, PREVIEW_TEXT * if depth == 0 { 4 } else { 1 });
            *less |= kept.len() < text.len();
            kept.into()
        }
        Value::Array(_) | Value::Object(_) if depth == PREVIEW_DEPTH => {
            *less = true;
            "…".into()
        }
        Value::Array(items) => {
            *less |= items.len() > PREVIEW_ITEMS;
            let items = items.into_iter().take(PREVIEW_ITEMS);
            items.map(|item| bounded(item, depth + 1, less)).collect()
        }
        Value::Object(fields) => {
            *less |= fields.len() > PREVIEW_ITEMS;
            let fields = fields.into_iter().take(PREVIEW_ITEMS);
            let field = |(key, value): (String, Value)| {
                (printable(&key, 64), bounded(value, depth + 1, less))
            };
            Value::Object(fields.map(field).collect())
        }
        other => other,
    }
}

/// As [`printable`], with the line breaks kept.
fn printable_lines(text: &str, max: usize) -> String {
    let plain: String = cut(text, max)
        .chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect();
    cut(&plain, max).to_owned()
}

/// A link that may be opened: `https`, a host, nobody's name or password.
fn link(params: &Value) -> Result<Url, Refusal> {
    let refused = || {
        let message = "Only https addresses without a user are opened.";
        Refusal::new("app_open_link_forbidden", message)
    };
    let text = params
        .get("url")
        .and_then(Value::as_str)
        .ok_or_else(refused)?;
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    // Read as it is written: what the parser would mend is nothing that a person was shown.
    if text.len() > MAX_LINK || text.contains(odd) || !text.starts_with("https://") {
        return Err(refused());
    }
    let url = Url::parse(text).map_err(|_| refused())?;
    let plain = url.username().is_empty() && url.password().is_none();
    if url.scheme() == "https" && url.host_str().is_some_and(|h| !h.is_empty()) && plain {
        Ok(url)
    } else {
        Err(refused())
    }
}

/// The texts of content blocks.
fn texts(content: Option<&Value>) -> Result<Vec<&str>, Refusal> {
    let Some(content) = content.filter(|content| !content.is_null()) else {
        return Ok(Vec::new());
    };
    let blocks = content
        .as_array()
        .ok_or_else(|| invalid("Content is a list of blocks."))?;
    let text = |block: &'_ Value| {
        let kind = block.get("type").and_then(Value::as_str);
        kind.filter(|kind| *kind == "text")?;
        block.get("text").and_then(Value::as_str).map(str::to_owned)
    };
    // Borrowed again, so that a block of another kind is told before anything is taken.
    if blocks.iter().any(|block| text(block).is_none()) {
        return Err(invalid("Only blocks of text are taken."));
    }
    Ok(blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect())
}

/// What goes to the model.
fn context_text(params: &Value) -> Result<String, Refusal> {
    let mut text = texts(params.get("content"))?.join("\n");
    match params.get("structuredContent") {
        None | Some(Value::Null) => {}
        Some(structured @ Value::Object(_)) => {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&structured.to_string());
        }
        Some(_) => return Err(invalid("Structured content is an object.")),
    }
    Ok(text)
}

impl Desk {
    pub(super) async fn link<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        let url = link(&asked.params)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        if !asked.confirmed {
            return Err(self
                .confirm(servers, asked, Method::Link, None, |question| {
                    question.host = Some(host);
                    question.url = Some(url.to_string());
                    (question.preview, question.truncated) = preview(url.to_string().into());
                })
                .await);
        }
        self.done(servers, asked, Method::Link, MAX_REQUEST)?;
        Ok(json!({ "url": url.to_string(), "host": host }))
    }

    pub(super) async fn context<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        within(asked, MAX_REQUEST)?;
        let text = context_text(&asked.params)?;
        let holds = locked(&self.views).holds(&asked.view, CONTEXT_GRANT);
        if !(asked.confirmed || holds) {
            let shown = text.clone();
            let grant = Some(CONTEXT_GRANT.to_owned());
            return Err(self
                .confirm(servers, asked, Method::Context, grant, |question| {
                    (question.preview, question.truncated) = preview(shown.into());
                })
                .await);
        }
        self.done(servers, asked, Method::Context, MAX_REQUEST)?;
        Ok(json!({ "kept": true, "text": text }))
    }

    pub(super) async fn message<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        if asked.params.get("role").and_then(Value::as_str) != Some("user") {
            return Err(invalid("A message is the user's.").into());
        }
        let text = texts(asked.params.get("content"))?.join("\n");
        if text.trim().is_empty() {
            return Err(invalid("The message is empty.").into());
        }
        if text.chars().count() > MAX_MESSAGE_CHARS {
            let message = format!("A message has at most {MAX_MESSAGE_CHARS} characters.");
            return Err(Refusal::new("app_request_too_large", message).into());
        }
        if !locked(&self.views).may_speak(&asked.view, Instant::now()) {
            let message = "The app may propose a message every three seconds.";
            return Err(Refusal::new("app_rate_limited", message).into());
        }
        self.done(servers, asked, Method::Message, MAX_PARAMS)?;
        Ok(json!({ "text": text }))
    }

    /// The rest of the checks, and the log: nothing more is done here.
    fn done<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
        method: Method,
        most: usize,
    ) -> Result<(), Refusal> {
        self.may_execute(&asked.manifest.connection)?;
        within(asked, most)?;
        let phase = match method {
            Method::Message => Phase::Requested,
            _ => Phase::Confirmed,
        };
        let ticket = self.begin(servers, &asked.manifest.id, method, phase)?;
        complete(ticket)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_https_links_without_a_user_are_opened() {
        assert!(link(&json!({ "url": "https://example.com/a?b=c#d" })).is_ok());
        assert!(link(&json!({ "url": "https://bücher.example/" })).is_ok());
        for url in [
            "http://example.com",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "blob:https://example.com/x",
            "//example.com",
            "https:example.com",
            "https:/example.com",
            "https://",
            "https://user@example.com",
            "https://user:pw@example.com",
            "https://@example.com",
            "https://example.com/\r\nx: y",
            " https://example.com",
            "https://exa mple.com",
            "https:\\\\example.com",
            "https://example.com\\@evil.example",
            "mailto:a@example.com",
            "",
        ] {
            let refusal = link(&json!({ "url": url })).map(|url| url.to_string());
            // An empty user is no user; the parser drops it.
            if url == "https://@example.com" {
                continue;
            }
            assert_eq!(
                refusal.unwrap_err().code,
                "app_open_link_forbidden",
                "{url}"
            );
        }
        let long = format!("https://example.com/{}", "x".repeat(MAX_LINK));
        assert!(link(&json!({ "url": long })).is_err());
        assert!(link(&json!({ "url": 1 })).is_err());
    }

    #[test]
    fn context_is_text_and_an_object() {
        let text = |t: &str| json!({ "type": "text", "text": t });
        for (params, expected) in [
            (json!({ "content": [text("a"), text("b")] }), Some("a\nb")),
            (
                json!({ "structuredContent": { "n": 1 } }),
                Some("{\"n\":1}"),
            ),
            (
                json!({ "content": [text("a")], "structuredContent": { "n": 1 } }),
                Some("a\n{\"n\":1}"),
            ),
            (json!({}), Some("")),
            (
                json!({ "content": [{ "type": "image", "data": "", "mimeType": "image/png" }] }),
                None,
            ),
            (json!({ "content": { "type": "text", "text": "a" } }), None),
            (json!({ "content": [text("a"), 7] }), None),
            (json!({ "structuredContent": [1] }), None),
        ] {
            assert_eq!(context_text(&params).ok().as_deref(), expected, "{params}");
        }
    }

    #[test]
    fn a_preview_is_small_and_without_credentials() {
        let (text, less) = preview(json!({ "password": "hunter2", "note": "hi" }));
        assert!(!text.contains("hunter2") && text.contains("hi") && !less);
        let (text, less) = preview(json!({ "rows": vec![json!({ "a": 1 }); 1000] }));
        assert!(text.len() <= MAX_PREVIEW && less);
        let (text, less) = preview(json!({ "a": "x".repeat(5000) }));
        assert!(text.len() <= MAX_PREVIEW && less);
        let mut deep = json!(1);
        for _ in 0..40 {
            deep = json!({ "a": deep });
        }
        assert!(preview(deep).1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_preview_fits_whatever_it_shows(text in "\\PC{0,900}", n in 0usize..40) {
            let (shown, _) = preview(json!({ "a": vec![text; n] }));
            prop_assert!(shown.len() <= MAX_PREVIEW);
        }
    }
}
