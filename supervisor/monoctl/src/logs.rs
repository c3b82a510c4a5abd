//! `monoctl logs`: what the workers said lately, and what they say now.

use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::send::INTERRUPTED;
use crate::terminal::safe_line;
use ipc_proto::admin::Ask;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Between two looks for new lines.
const LOOK: Duration = Duration::from_millis(300);
/// An answer with as many lines as this may not be the last one.
const FULL: usize = 500;
/// Longest line that is shown, in characters; the daemon keeps no longer ones.
const MAX_LINE: usize = 2_000;

/// Whose lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) role: Option<String>,
    pub(crate) run: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Page {
    entries: Vec<Entry>,
    /// Where to go on.
    last: u64,
    /// Lines that the daemon dropped before they were asked for.
    #[serde(default)]
    missed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    seq: u64,
    at_ms: i64,
    role: String,
    pid: i32,
    run: Option<String>,
    text: String,
}

/// Shows the newest lines; with `follow`, goes on until it is interrupted, which is its good end.
pub(crate) async fn run(
    socket: Option<&Path>,
    wanted: Wanted,
    follow: bool,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut after = 0;
    loop {
        let ask = Ask::Logs {
            role: wanted.role.clone(),
            run: wanted.run.clone(),
            after,
        };
        let page = tokio::select! {
            page = daemon.ask::<Page>(&ask, &[]) => page?.0,
            _ = interrupt.recv() => return Ok(stopped(follow)),
        };
        show(&page, screen)?;
        if !follow {
            return Ok(0);
        }
        let full = page.entries.len() >= FULL && page.last > after;
        after = page.last;
        if !full {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = interrupt.recv() => return Ok(stopped(follow)),
            }
        }
    }
}

/// The exit status after an interrupt: who follows ends so, who waited for an answer has none.
fn stopped(follow: bool) -> u8 {
    if follow { 0 } else { INTERRUPTED }
}

fn show(page: &Page, screen: &mut Screen) -> Result<(), CtlError> {
    if page.missed > 0 {
        let missed = page.missed;
        if screen.is_json() {
            screen.json(&json!({ "missed": missed }))?;
        } else {
            screen.aside(&format!(
                "monoctl: {missed} lines of all workers came too fast and are gone from the daemon's memory"
            ))?;
        }
    }
    for entry in &page.entries {
        if screen.is_json() {
            screen.json(entry)?;
        } else {
            screen.line(&line(entry))?;
        }
    }
    Ok(())
}

fn line(entry: &Entry) -> String {
    let at = Timestamp::from_millisecond(entry.at_ms)
        .map_or_else(|_| "?".to_owned(), |at| format!("{at:.3}"));
    format!(
        "{at} {}[{}] {}",
        safe_line(&entry.role, 40),
        entry.pid,
        safe_line(entry.text.trim_start(), MAX_LINE)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;

    fn page() -> Page {
        serde_json::from_value(json!({
            "entries": [
                {"seq": 7, "at_ms": 1_767_323_045_006_i64, "role": "run", "pid": 9, "run": "r1",
                 "text": "a tool said \u{1b}[2J"},
                {"seq": 8, "at_ms": i64::MAX, "role": "store", "pid": 4, "run": null, "text": "swept"}
            ],
            "last": 8, "missed": 3
        }))
        .unwrap()
    }

    #[test]
    fn a_line_has_its_time_and_its_worker_and_obeys_nobody() {
        let (mut screen, out, err) = screen(false, false);
        show(&page(), &mut screen).unwrap();
        assert_eq!(
            out.text(),
            "2026-01-02T03:04:05.006Z run[9] a tool said \\u{1b}[2J\n? store[4] swept\n"
        );
        assert!(err.text().contains("3 lines"), "{}", err.text());
    }

    #[test]
    fn a_script_gets_objects_also_for_what_is_missing() {
        let (mut screen, out, _) = screen(true, false);
        show(&page(), &mut screen).unwrap();
        let lines: Vec<serde_json::Value> = out
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0], json!({"missed": 3}));
        assert_eq!(
            (lines[1]["seq"].as_u64(), lines[1]["run"].as_str()),
            (Some(7), Some("r1"))
        );
        assert_eq!(lines.len(), 3);
    }
}
