//! What the host says to a server about itself, and how it answers a server's own requests.

use crate::limits::{PROGRESS_TEXT_MAX, printable};
use crate::watch::Stamp;
use ipc_proto::apps::{EXTENSION, MEDIA_TYPE};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, InputRequest, ProgressNotificationParam,
    ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RoleClient};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Mutex, mpsc};

/// The name under which servers see us.
pub const CLIENT_NAME: &str = "mono";

/// What we declare. Minimal on purpose: neither sampling nor elicitation nor roots, so a server
/// has nothing to ask for. MCP Apps are announced where they are shown; newer servers are told with
/// each request.
fn client_config(apps: bool) -> ClientConfig {
    let mut capabilities = ClientCapabilities::default();
    if apps {
        let about = json!({ "mimeTypes": [MEDIA_TYPE] });
        let about = about.as_object().cloned().unwrap_or_default();
        capabilities.extensions = Some([(EXTENSION.to_owned(), about)].into());
    }
    ClientConfig::new(
        capabilities,
        Implementation::new(CLIENT_NAME, env!("CARGO_PKG_VERSION")),
    )
    .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// One progress report of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub progress: f64,
    pub total: Option<f64>,
    /// Printable, at most [`PROGRESS_TEXT_MAX`] bytes.
    pub message: Option<String>,
}

/// Where the progress of one call goes.
#[derive(Debug, Clone)]
pub struct Route {
    /// Marked by every report, also by those that a slow reader misses.
    pub active: Stamp,
    pub reports: mpsc::Sender<Progress>,
}

/// The calls in flight, by progress token.
///
/// An asynchronous lock, held while a request is handed to rmcp: its token is known only then,
/// and a report that overtakes the registration has to wait for it.
pub type Routes = Arc<Mutex<HashMap<ProgressToken, Route>>>;

/// The client side of one connection.
#[derive(Debug, Clone)]
pub struct Host {
    pub routes: Routes,
    /// Set when the server says that its tools changed.
    pub tools_changed: Arc<AtomicBool>,
    /// Its apps are shown.
    pub apps: bool,
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        client_config(self.apps)
    }

    /// A report for a token that is not (or no longer) known is late: it is dropped.
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let route = self
            .routes
            .lock()
            .await
            .get(&params.progress_token)
            .cloned();
        if let Some(route) = route {
            route.active.mark();
            // A full queue means a slow reader; it misses this report and the call goes on.
            let _ = route.reports.try_send(Progress {
                progress: params.progress,
                total: params.total,
                message: params
                    .message
                    .map(|text| printable(&text, PROGRESS_TEXT_MAX)),
            });
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed.store(true, Ordering::Relaxed);
    }
}

/// Our answer to a question that a server asks in place of a result (protocol 2026-07-28).
/// `None` when there is no way to decline it: the call then fails.
pub fn decline(request: &InputRequest) -> Option<Value> {
    match request {
        InputRequest::Elicitation(_) => Some(json!({ "action": "decline" })),
        InputRequest::ListRoots(_) => Some(json!({ "roots": [] })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_server_learns_our_name_and_of_apps_where_they_are_shown() {
        let config = serde_json::to_value(client_config(false)).unwrap();
        assert_eq!(config["clientInfo"]["name"], "mono");
        assert_eq!(config["capabilities"], json!({}));
        let apps = serde_json::to_value(client_config(true)).unwrap();
        assert_eq!(
            apps["capabilities"],
            json!({ "extensions": { "io.modelcontextprotocol/ui":
                { "mimeTypes": ["text/html;profile=mcp-app"] } } })
        );
        assert_eq!(config["protocolVersion"], "2025-11-25");
    }

    #[test]
    fn questions_are_declined_and_sampling_is_not_answered() {
        let ask = |method: &str, params: Value| -> InputRequest {
            serde_json::from_value(json!({ "method": method, "params": params })).unwrap()
        };
        let form = json!({
            "mode": "form",
            "message": "which account?",
            "requestedSchema": { "type": "object", "properties": {} }
        });
        assert_eq!(
            decline(&ask("elicitation/create", form)),
            Some(json!({ "action": "decline" }))
        );
        let sample = json!({ "messages": [], "maxTokens": 5 });
        assert_eq!(decline(&ask("sampling/createMessage", sample)), None);
    }
}
