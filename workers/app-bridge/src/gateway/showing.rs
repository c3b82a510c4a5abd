//! Apps of results that went through the gateway: captured through a connection of ours to the very
//! process, claimed by the session that called, shown in the console (spec s2, "Render handoff").
//!
//! Whatever fails, the caller gets the result as it is.

use super::backend::{Backend, Caller};
use super::broker::{Broker, count};
use super::job::{Job, Show};
use super::ledger::CallerId;
use super::outbox::{Inbox, Outbox};
use crate::apps::capture::Shown;
use crate::connection::{Carrier, Connection, Era};
use crate::pipes::{Overflow, transport};
use crate::servers::{Starter, place_of};
use ipc_proto::edges::control::RunScope;
use ipc_proto::edges::delivery::{Reply, Request};
use ipc_proto::reply::ReplyPart;
use ipc_proto::rooms::CONSOLE;
use ipc_proto::settings::McpServerSettings;
use ipc_proto::{Body, ConversationId, RunId};
use mono_mcp_stub::frame::{Frame, Outcome, answer};
use mono_mcp_stub::lines::Lines;
use rmcp::model::CallToolResult;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// How long the console may take to show an app: its store may have a slow disk.
const SHOWN_WITHIN: Duration = Duration::from_secs(15);
/// Bytes between our own connection and the process's callers.
const PIPE: usize = 64 << 10;

/// The console's thread for the apps of a session: known to whoever knows the session's name.
#[must_use]
pub fn thread_of(session: &str) -> String {
    let bytes = <sha2::Sha256 as sha2::Digest>::digest(format!("gateway-thread:{session}"));
    let mut id = [0u8; 16];
    id.copy_from_slice(&bytes[..16]);
    uuid::Builder::from_custom_bytes(id).into_uuid().to_string()
}

impl<S: Starter> Broker<S> {
    /// What makes apps of a server's results; none where none are shown.
    pub(super) fn shows(&self, settings: &McpServerSettings) -> Option<Show> {
        let shown = self.servers.limits().apps && settings.apps.is_some();
        let shown = shown && self.servers.stand().shows() && self.limits.shows_apps;
        let this = self.weak().filter(|_| shown)?;
        Some(Arc::new(move |job: Job| {
            let Some(broker) = this.upgrade() else {
                return job.deliver(None);
            };
            // Others of its caller don't wait for it.
            tokio::spawn(async move {
                let app = broker.app_of(&job).await;
                if app.is_some() {
                    count(&broker.counters.apps, 1);
                }
                job.deliver(app.as_deref());
            });
        }))
    }

    /// The record of a result's app, once the session has claimed it and the console shows it.
    async fn app_of(&self, job: &Job) -> Option<String> {
        let desk = self.servers.stand().soon().await?.clone();
        let settings = &job.backend.settings;
        let result: CallToolResult = serde_json::from_str(&job.result).ok()?;
        if result.is_error == Some(true) {
            return None;
        }
        let arguments = serde_json::from_str(&job.arguments).ok()?;
        let session = &job.caller.session;
        let thread = thread_of(session);
        // A run of its own: nothing else can claim what comes of this call.
        let scope = RunScope {
            run: RunId::new(),
            conversation: job.caller.conversation.clone(),
            delivery: ConversationId::parse(&format!("{CONSOLE}{thread}")).ok()?,
        };
        let connection = self.own_connection(&job.backend, &job.caller).await?;
        let part = desk
            .capture(Shown {
                scope: &scope,
                settings,
                tool: &job.tool,
                arguments: &arguments,
                connection: &connection,
                result: &result,
            })
            .await?;
        let ReplyPart::McpApp { invocation_id, .. } = &*part else {
            return None;
        };
        let id = invocation_id.clone();
        job.backend.has_apps.store(true, Ordering::Relaxed);
        let vault = desk.vault().clone();
        let (run, claimed) = (scope.run.as_str().to_owned(), vec![id.clone()]);
        let kept = tokio::task::spawn_blocking(move || vault.keep(&run, &claimed)).await;
        let shown = match kept {
            Ok(Ok(())) => self.present(&scope, &settings.name, session, &part).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("its writer was lost".to_owned()),
        };
        match shown {
            Ok(()) => {
                tracing::info!(target: "security", operation = "mcp-gateway.app", decision = "allow", app = id, server = settings.name, session = &**session, "mcp gateway");
                Some(id)
            }
            Err(why) => {
                tracing::warn!(
                    server = settings.name,
                    "a result goes without its app: {why}"
                );
                // Nothing names it, so it would take its room until it expires.
                let vault = desk.vault().clone();
                let _ = tokio::task::spawn_blocking(move || vault.give_up(&id)).await;
                None
            }
        }
    }

    /// Asks the console to show an app in the session's thread.
    async fn present(
        &self,
        scope: &RunScope,
        server: &str,
        session: &str,
        part: &ReplyPart,
    ) -> Result<(), String> {
        let console = self.console.line(SHOWN_WITHIN).client().await;
        let console = console.map_err(|_| "there is no console")?;
        let (body, fd) = Body::pack_json(part).map_err(|e| e.to_string())?;
        let request = Request::Present {
            destination: scope.delivery.clone(),
            run: scope.run.clone(),
            title: format!("{server} · {}", &session[..8.min(session.len())]),
            part: body,
        };
        let fds: Vec<_> = fd.into_iter().collect();
        let call = console.call(&request, &fds, SHOWN_WITHIN);
        match call.await {
            Ok((Reply::Delivered { .. }, _)) => Ok(()),
            Ok((Reply::NotDelivered { message, .. }, _)) => Err(message),
            Ok(_) => Err("the console answered something else".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Our own connection to a process, beside those of its callers: made once.
    async fn own_connection(
        &self,
        backend: &Arc<Backend>,
        caller: &Caller,
    ) -> Option<Arc<Connection>> {
        let mut place = backend.own.lock().await;
        if let Some(connection) = place.as_ref().filter(|connection| connection.is_usable()) {
            return Some(connection.clone());
        }
        let opened = self.open_own(backend, caller).await;
        let opened = opened.inspect_err(|why| {
            let server = &backend.settings.name;
            tracing::warn!(
                server,
                "no connection of our own to a server of the gateway: {why}"
            );
        });
        let connection = Arc::new(opened.ok()?);
        let key = place_of(&backend.settings, "", caller.conversation.as_str());
        self.servers.adopt(&connection, key);
        Some(place.insert(connection).clone())
    }

    async fn open_own(
        &self,
        backend: &Arc<Backend>,
        caller: &Caller,
    ) -> Result<Connection, String> {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let (out, inbox) = Outbox::new(self.limits.bytes, backend.dead.child_token());
        let own = backend.attach(Caller {
            out: out.clone(),
            internal: true,
            session: caller.session.clone(),
            conversation: caller.conversation.clone(),
            anchor: Arc::new(Mutex::new(None)),
        });
        tokio::spawn(relay(backend.clone(), own, theirs, (out, inbox)));
        let era = match backend.greeted().await {
            Some(_) => Era::Handshake,
            None => Era::Unknown,
        };
        let carrier = Carrier {
            last_line: backend.last_line.clone(),
            overflow: Overflow::default(),
            end: None,
        };
        let limits = Arc::new(self.servers.limits().clone());
        let (reader, writer) = tokio::io::split(ours);
        let transport = transport(reader, writer, limits.message, &carrier.overflow);
        let name = &backend.settings.name;
        let opened = Connection::open(name, transport, carrier, era, limits).await;
        opened.map_err(|failed| failed.error.to_string())
    }
}

/// Between our own connection and the process, until either ends.
async fn relay(
    backend: Arc<Backend>,
    own: CallerId,
    stream: DuplexStream,
    (out, mut inbox): (Outbox, Inbox),
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut lines = Lines::new(backend.message_bound());
    let mut buffer = vec![0u8; 16 << 10];
    let gone = out.gone.clone();
    'all: loop {
        tokio::select! {
            biased;
            () = gone.cancelled() => break,
            line = inbox.next() => {
                let Some(line) = line else { break };
                // Only MCP: what the gateway itself says is for stubs.
                if writer.write_all(&line).await.is_err() {
                    break;
                }
            }
            read = reader.read(&mut buffer) => {
                match read {
                    Ok(0) | Err(_) => break,
                    Ok(read) => lines.push(&buffer[..read]),
                }
                loop {
                    match lines.next_line() {
                        Ok(Some(line)) => pass(&backend, own, &out, &line).await,
                        Ok(None) => break,
                        Err(_) => break 'all,
                    }
                }
            }
        }
    }
    backend.detach(own).await;
}

async fn pass(backend: &Arc<Backend>, own: CallerId, out: &Outbox, line: &[u8]) {
    let Ok(frame) = Frame::parse(line) else {
        return;
    };
    if let Frame::Request { id, method, .. } = &frame
        && method == "initialize"
        && let Some(greeting) = backend.greeted().await
    {
        // Hands were shaken for everybody.
        return out.send(answer(id, Outcome::Result(&greeting)));
    }
    if let Err(line) = backend.from_caller(own, frame).await {
        out.send(line);
    }
}
