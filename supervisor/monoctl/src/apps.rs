//! `monoctl apps` and `monoctl mcp`.

use crate::cli::{Apps, Mcp, Page};
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::table::{Rows, next_page};
use crate::terminal::{duration, size};
use ipc_proto::admin::Ask;
use ipc_proto::apps::Inspect;
use serde_json::Value;
use std::path::Path;

/// Tells a person what came.
type Show = fn(&Value, &mut Screen) -> Result<(), CtlError>;

/// `monoctl apps`.
pub(crate) async fn run(
    socket: Option<&Path>,
    command: Apps,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let (what, show): (Inspect, Show) = match command {
        Apps::List { page } => {
            let (limit, cursor) = (page.limit, page.cursor);
            let value = fetch(socket, Inspect::Apps { limit, cursor }, screen).await?;
            if !screen.is_json() {
                list(&value, Page::said(limit).as_deref(), screen)?;
            }
            return Ok(0);
        }
        Apps::Show { id } => (Inspect::App { id }, fields),
        Apps::Close { id } => (Inspect::CloseApp { id }, closed),
        Apps::Audit { id } => (Inspect::Audit { id }, audit),
    };
    ask(socket, what, show, screen).await?;
    Ok(0)
}

/// `monoctl mcp`.
pub(crate) async fn servers(
    socket: Option<&Path>,
    command: Mcp,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    match command {
        Mcp::List => ask(socket, Inspect::Servers, standing, screen).await?,
        Mcp::Stats => ask(socket, Inspect::Stats, stats, screen).await?,
        Mcp::Probe { server } => {
            let probed = ask(socket, Inspect::Probe { server }, probe, screen).await?;
            return Ok(u8::from(probed["ok"] != true));
        }
    };
    Ok(0)
}

async fn ask(
    socket: Option<&Path>,
    what: Inspect,
    show: Show,
    screen: &mut Screen,
) -> Result<Value, CtlError> {
    let value = fetch(socket, what, screen).await?;
    if !screen.is_json() {
        show(&value, screen)?;
    }
    Ok(value)
}

/// Asks, and prints the answer as it came where scripts read it.
async fn fetch(
    socket: Option<&Path>,
    what: Inspect,
    screen: &mut Screen,
) -> Result<Value, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    let (value, _) = daemon.ask::<Value>(&Ask::Inspect { what }, &[]).await?;
    if screen.is_json() {
        screen.json(&value)?;
    }
    Ok(value)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn yes(value: &Value) -> String {
    if value == true { "yes" } else { "no" }.to_owned()
}

fn at(value: &Value) -> String {
    let time = value
        .as_i64()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| text(value), |time| time.to_string())
}

fn list(page: &Value, limit: Option<&str>, screen: &mut Screen) -> Result<(), CtlError> {
    let apps = page["apps"].as_array().cloned().unwrap_or_default();
    if apps.is_empty() {
        screen.line("no apps")?;
    } else {
        let mut rows = Rows::new(&[
            "ID",
            "SERVER",
            "TOOL",
            "CONNECTED",
            "VIEWS",
            "CREATED",
            "RUN",
        ]);
        for app in &apps {
            rows.push([
                text(&app["id"]),
                text(&app["server"]),
                text(&app["tool"]),
                yes(&app["connected"]),
                text(&app["views"]),
                at(&app["createdAt"]),
                text(&app["run"]),
            ]);
        }
        screen.line(&rows.text())?;
    }
    if let Some(cursor) = page["nextCursor"].as_str() {
        screen.line(&next_page("apps list", &[("limit", limit)], cursor))?;
    }
    let usage = &page["usage"];
    let bytes = |key: &str| size(usage[key].as_u64().unwrap_or(0));
    screen.line(&format!(
        "kept: {} records, {} and {} of audit logs, of {}",
        text(&usage["records"]),
        bytes("payloadBytes"),
        bytes("auditBytes"),
        bytes("ceilingBytes"),
    ))?;
    match usage["quarantined"].as_u64() {
        None | Some(0) => Ok(()),
        Some(n) => screen.line(&format!(
            "{n} things in the folder are none of ours and are left alone; the log of the app-bridge names them"
        )),
    }
}

/// A value's fields, one a line, those of a field below it by both names; lists as JSON.
/// What isn't counted is off.
fn stats(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let mut told = serde_json::Map::new();
    let counted = value.as_object().into_iter().flatten();
    told.extend(
        counted
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    if !told.keys().any(|key| key != "gateway") {
        told.insert("apps".to_owned(), "off".into());
    }
    told.entry("gateway").or_insert_with(|| "off".into());
    fields(&Value::Object(told), screen)
}

fn fields(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let mut rows = Rows::new(&["FIELD", "VALUE"]);
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(below) if !below.is_empty() => {
                for (name, value) in below {
                    rows.push([format!("{key}.{name}"), text(value)]);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for item in items {
                    let members = item.as_object().into_iter().flatten();
                    let words: Vec<_> = members.map(|(_, value)| text(value)).collect();
                    rows.push([key.clone(), words.join(" ")]);
                }
            }
            _ => rows.push([key.clone(), field(key, value)]),
        }
    }
    screen.line(&rows.text())
}

fn field(key: &str, value: &Value) -> String {
    match key {
        "createdAt" | "expiresAt" => at(value),
        _ => text(value),
    }
}

fn closed(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    screen.line(&format!("closed: {}", text(&value["closed"])))
}

fn audit(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let entries = value["entries"].as_array().cloned().unwrap_or_default();
    if entries.is_empty() {
        return screen.line("nothing was done in its name");
    }
    let mut rows = Rows::new(&["AT", "METHOD", "PHASE"]);
    for entry in &entries {
        let phase = text(&entry["details"]["phase"]);
        rows.push([text(&entry["at"]), text(&entry["method"]), phase]);
    }
    screen.line(&rows.text())
}

fn standing(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let servers = value["servers"].as_array().cloned().unwrap_or_default();
    if servers.is_empty() {
        return screen.line("no MCP servers are configured");
    }
    let mut rows = Rows::new(&[
        "SERVER",
        "TRANSPORT",
        "FOR",
        "CONNECTIONS",
        "FAILURES",
        "APPS",
    ]);
    for server in &servers {
        let whose = match (&server["shared"], &server["perRun"]) {
            (_, Value::Bool(true)) => "each run",
            (Value::Bool(true), _) => "all",
            _ => "each conversation",
        };
        rows.push([
            text(&server["name"]),
            text(&server["transport"]),
            whose.to_owned(),
            text(&server["connections"]),
            text(&server["failures"]),
            yes(&server["apps"]),
        ]);
    }
    screen.line(&rows.text())
}

fn probe(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let took = duration(value["millis"].as_u64().unwrap_or(0));
    let server = text(&value["server"]);
    if value["ok"] != true {
        return screen.line(&format!("{server}: {} ({took})", text(&value["error"])));
    }
    let revision = text(&value["revision"]);
    screen.line(&format!("{server}: revision {revision}, {took}"))?;
    let mut rows = Rows::new(&["TOOL", "MODEL", "APPS", "PAGE"]);
    for tool in value["tools"].as_array().into_iter().flatten() {
        rows.push([
            text(&tool["name"]),
            yes(&tool["model"]),
            yes(&tool["app"]),
            text(&tool["page"]),
        ]);
    }
    screen.line(&rows.text())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;
    use serde_json::json;

    fn shown(show: Show, value: Value) -> String {
        let (mut screen, out, _) = screen(false, false);
        show(&value, &mut screen).unwrap();
        out.text()
    }

    fn listed(page: Value) -> String {
        let (mut screen, out, _) = screen(false, false);
        list(&page, Some("1"), &mut screen).unwrap();
        out.text()
    }

    #[test]
    fn what_is_not_counted_is_off() {
        let off = shown(stats, json!({ "gateway": null }));
        let words: Vec<_> = off.split_whitespace().collect();
        assert_eq!(words, ["FIELD", "VALUE", "apps", "off", "gateway", "off"]);
        let on = shown(stats, json!({ "created": 0, "gateway": { "sessions": 1 } }));
        assert!(
            !on.contains("off") && on.contains("gateway.sessions"),
            "{on}"
        );
    }

    #[test]
    fn apps_and_what_they_take_are_listed() {
        let page = json!({ "apps": [{ "id": "a1", "server": "dice", "tool": "roll\u{1b}", "connected": true,
            "views": 2, "createdAt": 0, "run": "r" }], "nextCursor": "a1",
            "usage": { "records": 1, "payloadBytes": 2048, "auditBytes": 0, "ceilingBytes": 4096, "quarantined": 1 } });
        let text = listed(page);
        assert!(
            text.contains("a1") && text.contains("1970-01-01") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(
            text.contains("--limit 1 --cursor a1") && text.contains("left alone"),
            "{text}"
        );
        assert!(listed(json!({ "apps": [], "usage": {} })).starts_with("no apps"));
    }

    #[test]
    fn figures_stand_below_each_other_whoever_counts_them() {
        let value = json!({ "created": 2, "gateway": { "sessions": 1 }, "refused": [1], "csp": {},
            "denied": [{ "kind": "connect", "value": "https://a" }], "createdAt": 0 });
        let text = shown(fields, value);
        let rows: Vec<Vec<&str>> = (text.lines())
            .map(|line| line.split_whitespace().collect())
            .collect();
        for row in [
            ["created", "2"],
            ["gateway.sessions", "1"],
            ["refused", "[1]"],
            ["csp", "{}"],
        ] {
            assert!(rows.iter().any(|found| *found == row), "{row:?}: {text}");
        }
        assert!(text.contains("1970-01-01"), "{text}");
        assert!(text.contains("connect https://a"), "{text}");
    }

    #[test]
    fn a_probe_tells_who_may_call_what() {
        let value = json!({ "server": "dice", "ok": true, "millis": 3, "revision": "2025-11-25",
            "tools": [{ "name": "reroll", "model": false, "app": true, "page": null }] });
        let text = shown(probe, value);
        assert!(
            text.contains("2025-11-25") && text.contains("reroll"),
            "{text}"
        );
        let failed = json!({ "server": "x", "ok": false, "millis": 1, "error": "no such program" });
        assert!(shown(probe, failed).contains("no such program"));
    }

    #[test]
    fn an_audit_log_is_a_table() {
        let value = json!({ "entries": [{ "at": "t", "method": "tools/call",
            "details": { "phase": "confirmed" } }] });
        assert!(shown(audit, value).contains("confirmed"));
        assert!(shown(audit, json!({ "entries": [] })).contains("nothing"));
        let servers = json!({ "servers": [{ "name": "a", "transport": "stdio", "shared": false,
            "perRun": true, "connections": 0, "failures": 0, "apps": true }] });
        assert!(shown(standing, servers).contains("each run"));
    }
}
