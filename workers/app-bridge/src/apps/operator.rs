//! What an operator sees of apps and servers, and may do about them: `monoctl apps`, `monoctl mcp`.

use super::desk::{Desk, locked, now_ms};
use super::security::security;
use super::vault::{Card, VaultError};
use crate::connection::Connection;
use crate::limits::printable;
use crate::servers::{Servers, Starter};
use ipc_proto::apps::Inspect;
use ipc_proto::channel::Fault;
use ipc_proto::edges::control::RunScope;
use ipc_proto::{ConversationId, RunId};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Entries of a page at most.
const MAX_PAGE: usize = 100;

fn fault(error: &VaultError) -> Fault {
    match error {
        VaultError::Missing | VaultError::Expired => {
            Fault::new("not_found", "there is no app with this id")
        }
        other => Fault::new("internal", other.to_string()),
    }
}

/// Answers an operator.
///
/// # Errors
/// `not_found`, `not_enabled`, `invalid_cursor` or `internal`.
pub async fn inspect<S: Starter>(servers: &Arc<Servers<S>>, ask: Inspect) -> Result<Value, Fault> {
    match ask {
        Inspect::Servers => Ok(json!({ "servers": servers.standing() })),
        Inspect::Probe { server } => probe(servers, &server).await,
        Inspect::Stats => {
            let mut told = match servers.desk().cloned() {
                Some(desk) => {
                    let lost = |_| Fault::new("internal", "the app-bridge could not do this");
                    let asked = tokio::task::spawn_blocking(move || desk.figures());
                    asked.await.map_err(lost)?
                }
                None => json!({}),
            };
            told["gateway"] = servers.gateway_figures();
            Ok(told)
        }
        other => {
            let disabled = "apps are not shown here: they need an MCP server, console.enabled and apps.enabled";
            let desk = servers
                .stand()
                .soon()
                .await
                .ok_or_else(|| Fault::new("not_enabled", disabled))?
                .clone();
            let live = servers.live();
            let asked = move || match other {
                Inspect::Apps { limit, cursor } => {
                    desk.page_of_apps(&live, limit, cursor.as_deref())
                }
                Inspect::App { id } => desk.show_app(&live, &id),
                Inspect::CloseApp { id } => desk.close_app(&id),
                Inspect::Audit { id } => {
                    let entries = desk.vault.log(&id).map_err(|e| fault(&e))?;
                    Ok(json!({ "entries": entries }))
                }
                Inspect::Servers | Inspect::Probe { .. } | Inspect::Stats => Ok(Value::Null),
            };
            let lost = |_| Fault::new("internal", "the app-bridge could not do this");
            tokio::task::spawn_blocking(asked).await.map_err(lost)?
        }
    }
}

/// A connection as a run would get it, and the tools that it lists; ended with that.
async fn probe<S: Starter>(servers: &Arc<Servers<S>>, server: &str) -> Result<Value, Fault> {
    if servers.settings(server).is_none() {
        return Err(Fault::new(
            "not_found",
            "no server of this name is configured",
        ));
    }
    // A conversation of its own: what is warm stays as it is.
    let run = RunId::new();
    let conversation = ConversationId::parse(&format!("probe:{}", run.as_str()));
    let conversation = conversation.map_err(|e| Fault::new("internal", e.to_string()))?;
    let scope = RunScope {
        run: run.clone(),
        delivery: conversation.clone(),
        conversation,
    };
    let begin = Instant::now();
    servers.begin(&run);
    let probed = servers.probe(&scope, server).await;
    servers.release(&run).await;
    let took = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(match probed {
        Ok((connection, tools)) => json!({ "server": server, "ok": true, "millis": took,
            "revision": connection.revision(), "tools": shown(&tools), "apps": connection.announces_apps() }),
        Err(error) => json!({ "server": server, "ok": false, "millis": took,
            "error": printable(&error, 512) }),
    })
}

fn shown(tools: &[crate::listing::Declared]) -> Vec<Value> {
    let tool = |tool: &crate::listing::Declared| {
        json!({ "name": tool.name, "page": tool.page, "model": tool.visibility.model,
            "app": tool.visibility.app })
    };
    tools.iter().map(tool).collect()
}

impl Connection {
    /// The server was told that apps are shown.
    fn announces_apps(&self) -> bool {
        self.limits.apps
    }
}

impl Desk {
    fn about(&self, live: &std::collections::HashSet<String>, card: &Card) -> Value {
        json!({
            "id": card.id, "server": card.server, "tool": card.tool, "title": card.title,
            "run": card.run, "conversation": card.delivery, "createdAt": card.created_at,
            "expiresAt": card.expires_at, "bytes": card.bytes, "closed": card.closed,
            "connected": !card.closed && live.contains(&card.connection),
            "views": locked(&self.views).count(&card.id),
        })
    }

    fn page_of_apps(
        &self,
        live: &std::collections::HashSet<String>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Value, Fault> {
        let cards = self.vault.cards();
        let start = match cursor {
            None => 0,
            Some(id) => {
                let at = cards.iter().position(|card| card.id == id);
                at.map(|at| at + 1)
                    .ok_or_else(|| Fault::new("invalid_cursor", "not a cursor of this list"))?
            }
        };
        let limit = usize::try_from(limit)
            .unwrap_or(MAX_PAGE)
            .clamp(1, MAX_PAGE);
        let page: Vec<&Card> = cards.iter().skip(start).take(limit).collect();
        let more = start + page.len() < cards.len();
        let next = page.last().filter(|_| more).map(|card| card.id.clone());
        let apps: Vec<Value> = page.iter().map(|card| self.about(live, card)).collect();
        let mut page = json!({ "apps": apps, "usage": self.usage() });
        // As every list of an operator: none after the last page.
        if let Some(next) = next {
            page["nextCursor"] = next.into();
        }
        Ok(page)
    }

    fn show_app(&self, live: &std::collections::HashSet<String>, id: &str) -> Result<Value, Fault> {
        let card = self
            .vault
            .card(id)
            .ok_or(VaultError::Missing)
            .map_err(|e| fault(&e))?;
        let manifest = self.vault.manifest(id, now_ms()).map_err(|e| fault(&e))?;
        let grant = self.granted(&manifest);
        let mut about = self.about(live, &card);
        about["page"] = manifest.uri.clone().into();
        about["htmlBytes"] = manifest.html_bytes.into();
        about["connection"] = manifest.connection.clone().into();
        about["csp"] = serde_json::to_value(&grant.origins).unwrap_or_default();
        about["permissions"] = grant.permissions();
        about["refused"] = serde_json::to_value(&grant.withheld).unwrap_or_default();
        let names: Vec<&str> = manifest
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect();
        about["tools"] = json!(names);
        Ok(about)
    }

    fn close_app(&self, id: &str) -> Result<Value, Fault> {
        let card = self
            .vault
            .card(id)
            .ok_or(VaultError::Missing)
            .map_err(|e| fault(&e))?;
        // First what could begin, then what is under way: nothing begins in between. The latter also
        // where the former can't be written down.
        let closed = self.vault.close(id);
        locked(&self.views).close_all(id);
        closed.map_err(|e| fault(&e))?;
        security(&card, "stand-down", "allow", "");
        Ok(json!({ "closed": id }))
    }

    fn usage(&self) -> Value {
        let usage = self.vault.usage();
        json!({ "records": usage.records, "payloadBytes": usage.payload,
            "auditBytes": usage.audit, "ceilingBytes": usage.ceiling,
            "reserveBytes": usage.reserve, "quarantined": usage.quarantined })
    }

    fn figures(&self) -> Value {
        json!({ "apps": self.stats(), "usage": self.usage() })
    }
}
