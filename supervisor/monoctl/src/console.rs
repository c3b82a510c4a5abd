//! `monoctl console`: logins of the web console.

use crate::cli::Console;
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::table::Rows;
use crate::terminal::safe_line;
use ipc_proto::admin::Ask;
use ipc_proto::console::Order;
use serde::Deserialize;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longest link that is printed, in characters.
const MAX_URL: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    id: String,
    created_at: i64,
    last_seen_at: i64,
    user_agent: String,
}

pub(crate) async fn run(
    socket: Option<&Path>,
    command: Console,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let (order, print) = match command {
        Console::Open { print } => (Order::Link, print),
        Console::Sessions => (Order::Sessions, true),
        Console::Revoke { id } => (Order::Revoke { id }, true),
    };
    let daemon = Daemon::connect(socket).await?;
    let ask = Ask::Console {
        order: order.clone(),
    };
    let (value, _) = daemon.ask::<Value>(&ask, &[]).await?;
    if screen.is_json() {
        screen.json(&value)?;
        return Ok(0);
    }
    match order {
        Order::Link => link(&value, print, screen)?,
        Order::Sessions => list(&value, screen)?,
        Order::Revoke { .. } => screen.line("logged out")?,
    }
    Ok(0)
}

fn link(value: &Value, print: bool, screen: &mut Screen) -> Result<(), CtlError> {
    let url = value["url"].as_str().unwrap_or_default();
    screen.line(&safe_line(url, MAX_URL))?;
    if print || !std::io::stdout().is_terminal() {
        return Ok(());
    }
    match show(url) {
        Ok(true) => screen.aside("opening it in a browser; it works once, for ten minutes"),
        Ok(false) => screen.aside("open it in a browser; it works once, for ten minutes"),
        Err(e) => screen.aside(&format!(
            "no browser could be opened ({e}): open it yourself"
        )),
    }
}

/// Opens the link on a desktop. A program's arguments are no secret on a machine, so it goes through
/// a file that only this user reads.
fn show(url: &str) -> std::io::Result<bool> {
    let desktop = ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let Some(folder) = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| desktop) else {
        return Ok(false);
    };
    let path = PathBuf::from(folder).join("mono-console-login.html");
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(redirect(url).as_bytes())?;
    let mut child = Command::new("xdg-open")
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    child.wait().map(|status| status.success())
}

fn redirect(url: &str) -> String {
    let mut quoted = String::with_capacity(url.len());
    for c in url.chars() {
        match c {
            '&' => quoted.push_str("&amp;"),
            '"' => quoted.push_str("&quot;"),
            '<' => quoted.push_str("&lt;"),
            c => quoted.push(c),
        }
    }
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>mono</title>\
         <meta http-equiv=\"refresh\" content=\"0; url={quoted}\">\n"
    )
}

fn list(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let sessions: Vec<Session> = serde_json::from_value(value["sessions"].clone())
        .map_err(|e| CtlError::NoAnswer(e.to_string()))?;
    if sessions.is_empty() {
        return screen.line("nobody is logged in");
    }
    let time = |ms| {
        jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |t| t.to_string())
    };
    let mut rows = Rows::new(&["SESSION", "SINCE", "SEEN", "BROWSER"]);
    for session in sessions {
        rows.push([
            session.id,
            time(session.created_at),
            time(session.last_seen_at),
            session.user_agent,
        ]);
    }
    screen.line(&rows.text())
}

#[cfg(test)]
mod tests {
    use super::redirect;

    #[test]
    fn a_link_stays_inside_its_attribute() {
        let page = redirect("http://a/\"><script>&x");
        assert!(
            page.contains("url=http://a/&quot;>&lt;script>&amp;x\""),
            "{page}"
        );
    }
}
