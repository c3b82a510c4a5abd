//! From the result of a call to an app: its page is read through the very connection that the
//! result came from, and nothing else of the server is looked at (spec s0, "MCP Apps"; spec s2,
//! "Rendering and delivery").
//!
//! Whatever is wrong with an app, the result is delivered as it is.

use super::desk::{Desk, now_ms};
use super::drafts::Draft;
use super::manifest::{MAX_DESCRIPTION, MAX_STATE, MAX_TITLE, MAX_TOOLS, Manifest, SCHEMA, State};
use super::meta::{NotAPage, page, wishes};
use super::vault::{NewApp, VaultError, hash};
use super::views::new_name;
use crate::connection::Connection;
use crate::limits::printable;
use crate::listing::{Declared, size};
use crate::servers::place_of;
use crate::shelf::Key;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ipc_proto::apps::{AppTool, MAX_HTML, MEDIA_TYPE};
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::McpServerSettings;
use ipc_proto::text::cut;
use rmcp::model::{
    CallToolResult, ClientRequest, ListResourcesRequest, MetaObject, PaginatedRequestParams,
    ReadResourceRequest, ReadResourceRequestParams, ReadResourceResult, ResourceContents,
    ServerResult,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use uuid::Uuid;

/// Why a result has no app. None of these changes the result.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Another scheme.
    #[error(transparent)]
    Address(#[from] NotAPage),
    /// The page did not come in time.
    #[error("the page did not come within {0:?}")]
    Late(Duration),
    /// The server would not, or answered something else.
    #[error("the page can't be read: {0}")]
    Server(String),
    /// Nothing of the declared address came.
    #[error("the server answered with another page")]
    Other,
    /// Another media type.
    #[error("the page is {0}, not {MEDIA_TYPE}")]
    MediaType(String),
    /// Neither text nor base64 of UTF-8.
    #[error("the page is no text")]
    NoText,
    /// Over a bound.
    #[error("{0}")]
    TooLarge(String),
    /// It could not be kept.
    #[error("it can't be kept: {0}")]
    Vault(#[from] VaultError),
}

/// The digest of all that the authority of a record's connection depends on: the server as it is
/// configured, and whose connection it is.
#[must_use]
pub fn pool_digest(settings: &McpServerSettings, key: &Key) -> String {
    let mut digest = Sha256::new();
    let parts = [
        serde_json::to_vec(settings).unwrap_or_default(),
        format!("{:?}", key.scope).into_bytes(),
    ];
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    hex::encode(digest.finalize())
}

/// A capability that nobody guesses: 32 bytes.
fn new_capability() -> String {
    let halves = [Uuid::new_v4(), Uuid::new_v4()];
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.into_bytes()).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a tool is for people and pages.
pub(super) fn app_tool(tool: &Declared, with_schema: bool) -> AppTool {
    let text = |text: &str, most| Some(printable(text, most)).filter(|text| !text.is_empty());
    AppTool {
        name: tool.name.clone(),
        title: tool
            .title
            .as_deref()
            .and_then(|title| text(title, MAX_TITLE)),
        description: text(cut(&tool.description, MAX_DESCRIPTION), MAX_DESCRIPTION),
        input_schema: with_schema.then(|| tool.schema.clone()),
    }
}

/// A result that an app may show.
#[derive(Debug)]
pub struct Shown<'a> {
    /// Whose call it was.
    pub scope: &'a RunScope,
    /// The server.
    pub settings: &'a McpServerSettings,
    /// The tool.
    pub tool: &'a str,
    /// Its arguments.
    pub arguments: &'a Map<String, Value>,
    /// Where the result came from.
    pub connection: &'a Connection,
    /// The result.
    pub result: &'a CallToolResult,
}

/// What a page is read for.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) scope: &'a RunScope,
    pub(super) settings: &'a McpServerSettings,
    pub(super) tool: &'a str,
    pub(super) connection: &'a Connection,
}

impl Desk {
    /// The app of a result, if it has one and it could be kept.
    pub async fn capture(&self, shown: Shown<'_>) -> Option<Box<ReplyPart>> {
        self.capture_drafted(shown, None).await
    }

    /// As [`Desk::capture`], of a call that has a draft.
    pub async fn capture_drafted(
        &self,
        shown: Shown<'_>,
        draft: Option<Draft>,
    ) -> Option<Box<ReplyPart>> {
        if shown.settings.apps.is_none() || shown.result.is_error == Some(true) {
            return None;
        }
        match self.try_capture(&shown, draft).await {
            Ok(Some(manifest)) => {
                self.count(|stats| stats.captured += 1);
                let (app, server) = (&manifest.id, &manifest.server);
                tracing::info!(app, server, run = %shown.scope.run, "an app was captured");
                Some(Box::new(manifest.part()))
            }
            Ok(None) => None,
            Err(error) => {
                self.count(|stats| stats.not_captured += 1);
                let server = &shown.settings.name;
                tracing::warn!(server, run = %shown.scope.run, "a result goes without its app: {error}");
                None
            }
        }
    }

    async fn try_capture(
        &self,
        shown: &Shown<'_>,
        draft: Option<Draft>,
    ) -> Result<Option<Manifest>, CaptureError> {
        let about = Read {
            scope: shown.scope,
            settings: shown.settings,
            tool: shown.tool,
            connection: shown.connection,
        };
        let own = page(meta(shown.result.meta.as_ref()))?;
        let Some((mut manifest, html)) = self.read_for(&about, own).await? else {
            return Ok(None);
        };
        let state = state(shown)?;
        if let Some(draft) = draft.filter(|draft| draft.becomes(&manifest)) {
            manifest.id.clone_from(&draft.manifest.id);
            manifest.capability.clone_from(&draft.manifest.capability);
        }
        let created_at = manifest.created_at;
        let new = NewApp {
            manifest,
            html,
            state,
        };
        let vault = self.vault.clone();
        let published = tokio::task::spawn_blocking(move || {
            vault.publish(&new, created_at).map(|()| new.manifest)
        });
        let lost = |_| CaptureError::Server("its writer was lost".to_owned());
        Ok(Some(published.await.map_err(lost)??))
    }

    /// The page that shows a tool's results, which is `own` where a result names it, and what is
    /// written down of it.
    pub(super) async fn read_for(
        &self,
        about: &Read<'_>,
        own: Option<String>,
    ) -> Result<Option<(Manifest, String)>, CaptureError> {
        let connection = about.connection;
        let within = connection.limits.page;
        let reading = async {
            let known = connection.known_tools(within).await.unwrap_or_default();
            let declared = known.iter().find(|tool| tool.name == about.tool);
            let listed = || declared.and_then(|tool| tool.page.clone());
            let Some(uri) = own.or_else(listed) else {
                return Ok::<_, CaptureError>(None);
            };
            let (html, wishes) = read_page(connection, &uri, within).await?;
            let tool = match declared {
                Some(tool) => app_tool(tool, true),
                None => AppTool {
                    name: about.tool.to_owned(),
                    title: None,
                    description: None,
                    input_schema: None,
                },
            };
            let visible = known.iter().filter(|tool| tool.visibility.app);
            let tools = visible.take(MAX_TOOLS).map(|tool| app_tool(tool, false));
            Ok(Some((uri, html, wishes, tool, tools.collect::<Vec<_>>())))
        };
        let read = tokio::time::timeout(within, reading).await;
        let Some((uri, html, wishes, tool, tools)) =
            read.map_err(|_| CaptureError::Late(within))??
        else {
            return Ok(None);
        };
        let (run, conversation) = (about.scope.run.as_str(), about.scope.conversation.as_str());
        let key = place_of(about.settings, run, conversation);
        let created_at = now_ms();
        let mut manifest = Manifest {
            schema: SCHEMA,
            id: new_name(),
            connection: connection.id().to_owned(),
            pool: pool_digest(about.settings, &key),
            capability: new_capability(),
            server: about.settings.name.clone(),
            tool,
            tools,
            uri,
            run: run.to_owned(),
            conversation: conversation.to_owned(),
            delivery: about.scope.delivery.as_str().to_owned(),
            created_at,
            expires_at: created_at + self.keeps_ms(),
            html_bytes: html.len(),
            html_hash: hash(html.as_bytes()),
            wishes,
        };
        slim(&mut manifest);
        Ok(Some((manifest, html)))
    }
}

/// What people read may make a manifest too large; what decides never does.
fn slim(manifest: &mut Manifest) {
    use super::manifest::MAX_MANIFEST;
    let over = |manifest: &Manifest| size(manifest) > MAX_MANIFEST;
    if over(manifest) {
        manifest.tool.input_schema = None;
    }
    if over(manifest) {
        for tool in &mut manifest.tools {
            tool.description = None;
        }
    }
    if over(manifest) {
        manifest.tools.clear();
    }
}

fn state(shown: &Shown<'_>) -> Result<State, CaptureError> {
    let result =
        serde_json::to_value(shown.result).map_err(|e| CaptureError::Server(e.to_string()))?;
    let state = State {
        input: Value::Object(shown.arguments.clone()),
        result,
    };
    for (what, value) in [("input", &state.input), ("result", &state.result)] {
        let bytes = size(value);
        if bytes > MAX_STATE / 2 {
            let most = MAX_STATE / 2;
            let text = format!("its {what} has {bytes} bytes, more than the {most} that are kept");
            return Err(CaptureError::TooLarge(text));
        }
    }
    Ok(state)
}

pub(super) fn meta(meta: Option<&MetaObject>) -> Option<&Map<String, Value>> {
    meta.map(|meta| &meta.0)
}

async fn read_page(
    connection: &Connection,
    uri: &str,
    within: Duration,
) -> Result<(String, super::meta::Wishes), CaptureError> {
    let result = connection.read_resource(uri, within).await?;
    let item = result
        .contents
        .into_iter()
        .find(|item| address(item) == Some(uri));
    let (html, own) = html(item.ok_or(CaptureError::Other)?)?;
    let has_own = own.as_ref().is_some_and(|meta| meta.0.contains_key("ui"));
    let listing = match has_own {
        true => None,
        false => connection.resource_meta(uri, within).await,
    };
    let wishes = wishes(meta(own.as_ref()), meta(listing.as_ref()));
    Ok((html, wishes))
}

fn address(item: &ResourceContents) -> Option<&str> {
    match item {
        ResourceContents::TextResourceContents { uri, .. }
        | ResourceContents::BlobResourceContents { uri, .. } => Some(uri),
        _ => None,
    }
}

/// The page of a content item: text, or base64 of UTF-8.
fn html(item: ResourceContents) -> Result<(String, Option<MetaObject>), CaptureError> {
    let (kind, text, meta) = match item {
        ResourceContents::TextResourceContents {
            mime_type,
            text,
            meta,
            ..
        } => (mime_type, Ok(text), meta),
        ResourceContents::BlobResourceContents {
            mime_type,
            blob,
            meta,
            ..
        } => (mime_type, Err(blob), meta),
        _ => return Err(CaptureError::NoText),
    };
    if kind.as_deref() != Some(MEDIA_TYPE) {
        let told = printable(kind.as_deref().unwrap_or("of no type"), 100);
        return Err(CaptureError::MediaType(told));
    }
    let too_large = |bytes: usize| {
        CaptureError::TooLarge(format!("the page has {bytes} bytes, more than {MAX_HTML}"))
    };
    let text = match text {
        Ok(text) => text,
        Err(blob) if blob.len() / 4 * 3 > MAX_HTML + 3 => {
            return Err(too_large(blob.len() / 4 * 3));
        }
        Err(blob) => {
            let bytes = STANDARD.decode(blob).map_err(|_| CaptureError::NoText)?;
            String::from_utf8(bytes).map_err(|_| CaptureError::NoText)?
        }
    };
    if text.len() > MAX_HTML {
        return Err(too_large(text.len()));
    }
    Ok((text, meta))
}

impl Connection {
    /// Reads one resource.
    ///
    /// # Errors
    /// [`CaptureError::Server`].
    pub(super) async fn read_resource(
        &self,
        uri: &str,
        within: Duration,
    ) -> Result<ReadResourceResult, CaptureError> {
        let params = ReadResourceRequestParams::new(uri);
        let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params));
        let answer = self.ask_within(request, within).await;
        match answer {
            Ok(ServerResult::ReadResourceResult(result)) => Ok(result),
            Ok(_) => Err(CaptureError::Server(
                "not the content of a resource".to_owned(),
            )),
            Err(error) => Err(CaptureError::Server(self.list_error(error).to_string())),
        }
    }

    async fn ask_within(
        &self,
        request: ClientRequest,
        within: Duration,
    ) -> Result<ServerResult, ServiceError> {
        let options = PeerRequestOptions::with_timeout(within);
        let handle = self.peer.send_request_with_option(request, options).await?;
        handle.await_response().await
    }

    /// The metadata of a resource's entry in the listing, on whatever page it is. A server that
    /// does not list it, or not well, has said nothing.
    async fn resource_meta(&self, uri: &str, within: Duration) -> Option<MetaObject> {
        let mut cursor = None;
        let mut seen = std::collections::BTreeSet::new();
        for _page in 0..self.limits.pages {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = ListResourcesRequest::with_param(params);
            let request = ClientRequest::ListResourcesRequest(request);
            let Ok(ServerResult::ListResourcesResult(page)) =
                self.ask_within(request, within).await
            else {
                return None;
            };
            if let Some(entry) = page.resources.into_iter().find(|entry| entry.uri == uri) {
                return entry.meta;
            }
            let next = page.next_cursor?;
            if !seen.insert(next.clone()) {
                return None;
            }
            cursor = Some(next);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn item(value: Value) -> ResourceContents {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_page_is_text_or_base64_of_exactly_one_media_type() {
        let page = "<p>ä</p>";
        let blob = STANDARD.encode(page);
        for (value, ok) in [
            (
                json!({ "uri": "ui://a", "mimeType": MEDIA_TYPE, "text": page }),
                true,
            ),
            (
                json!({ "uri": "ui://a", "mimeType": MEDIA_TYPE, "blob": blob }),
                true,
            ),
            (
                json!({ "uri": "ui://a", "mimeType": MEDIA_TYPE, "blob": "%%" }),
                false,
            ),
            (
                json!({ "uri": "ui://a", "mimeType": MEDIA_TYPE, "blob": STANDARD.encode([0xff]) }),
                false,
            ),
            (
                json!({ "uri": "ui://a", "mimeType": "text/html", "text": page }),
                false,
            ),
            (
                json!({ "uri": "ui://a", "mimeType": "text/html+mcp", "text": page }),
                false,
            ),
            (
                json!({ "uri": "ui://a", "mimeType": "text/html; profile=mcp-app", "text": page }),
                false,
            ),
            (json!({ "uri": "ui://a", "text": page }), false),
        ] {
            let shown = value.to_string();
            let read = html(item(value)).map(|(html, _)| html);
            assert_eq!(read.ok().as_deref(), ok.then_some(page), "{shown}");
        }
    }

    #[test]
    fn a_page_has_eight_mebibytes_at_most_in_either_form() {
        for (bytes, fits) in [(MAX_HTML, true), (MAX_HTML + 1, false)] {
            let page = "x".repeat(bytes);
            let blob = STANDARD.encode(&page);
            for value in [
                json!({ "uri": "ui://a", "mimeType": MEDIA_TYPE, "text": page }),
                json!({ "uri": "ui://a", "mimeType": MEDIA_TYPE, "blob": blob }),
            ] {
                assert_eq!(html(item(value)).is_ok(), fits, "{bytes}");
            }
        }
    }

    #[test]
    fn a_capability_is_long_and_never_the_same() {
        let (one, two) = (new_capability(), new_capability());
        assert!(one != two && one.len() == 43);
    }
}
