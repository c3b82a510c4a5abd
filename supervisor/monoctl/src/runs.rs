//! `monoctl runs`.

use crate::cli::{Page, Runs};
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::send::part_line;
use crate::table::{Rows, next_page};
use crate::terminal::{duration, safe_line};
use ipc_proto::admin::Ask;
use ipc_proto::edges::store::{RunPage, RunRecord};
use serde_json::Value;
use std::path::Path;

pub(crate) async fn run(
    socket: Option<&Path>,
    command: Runs,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let ask = match command {
        Runs::List {
            conversation,
            status,
            page,
        } => Ask::ListRuns {
            conversation,
            status,
            limit: page.limit,
            cursor: page.cursor,
        },
        Runs::Show { run } => Ask::ShowRun { run },
        Runs::Cancel { run } => Ask::CancelRun { run },
    };
    let daemon = Daemon::connect(socket).await?;
    let (value, _) = daemon.ask::<Value>(&ask, &[]).await?;
    if screen.is_json() {
        screen.json(&value)?;
        return Ok(0);
    }
    let unreadable = |e: serde_json::Error| CtlError::NoAnswer(e.to_string());
    match ask {
        Ask::ListRuns {
            ref conversation,
            ref status,
            limit,
            ..
        } => {
            let page: RunPage = serde_json::from_value(value).map_err(unreadable)?;
            let limit = Page::said(limit);
            let options = [
                ("conversation", conversation.as_deref()),
                ("status", status.as_deref()),
                ("limit", limit.as_deref()),
            ];
            list(&page, &options, screen)?;
        }
        Ask::ShowRun { .. } => show(&serde_json::from_value(value).map_err(unreadable)?, screen)?,
        _ => screen.line("the run is being ended")?,
    }
    Ok(0)
}

fn list(
    page: &RunPage,
    options: &[(&str, Option<&str>)],
    screen: &mut Screen,
) -> Result<(), CtlError> {
    if page.runs.is_empty() {
        return screen.line("no runs");
    }
    let mut rows = Rows::new(&[
        "RUN",
        "STATUS",
        "STARTED",
        "TOOK",
        "SOURCE",
        "CONVERSATION",
        "MODEL",
        "FAILURE",
    ]);
    for run in &page.runs {
        rows.push([
            run.run_id.as_str(),
            &run.status,
            &run.started_at,
            &run.duration_ms.map(duration).unwrap_or_default(),
            &run.source,
            &run.conversation_id,
            run.model.as_deref().unwrap_or_default(),
            run.failure_kind.as_deref().unwrap_or_default(),
        ]);
    }
    screen.line(&rows.text())?;
    match &page.next_cursor {
        Some(cursor) => screen.line(&next_page("runs list", options, cursor)),
        None => Ok(()),
    }
}

fn show(run: &RunRecord, screen: &mut Screen) -> Result<(), CtlError> {
    let mut fields = vec![
        ("run", run.run_id.clone()),
        ("status", run.status.clone()),
        ("conversation", run.conversation_id.clone()),
        ("source", run.source.clone()),
        ("started", run.started_at.clone()),
    ];
    let optional = [
        ("detail", run.source_detail.clone()),
        ("ended", run.ended_at.clone()),
        ("took", run.duration_ms.map(duration)),
        ("model", run.model.clone()),
        ("failure", run.failure_kind.clone()),
        ("error", run.error.clone()),
        ("cost", run.usage.cost_usd.map(|usd| format!("${usd:.4}"))),
    ];
    fields.extend(
        optional
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let usage = &run.usage;
    fields.push((
        "tokens",
        format!(
            "{} in, {} out, {} from cache",
            usage.input, usage.output, usage.cache_read
        ),
    ));
    for (name, value) in fields {
        screen.line(&format!("{name:<13}{}", safe_line(&value, 600)))?;
    }
    for step in &run.failover_history {
        let model = safe_line(&step.model, 100);
        screen.line(&format!(
            "{:<13}{model}: {} after {} attempts",
            "failover",
            safe_line(&step.failure_kind, 100),
            step.attempts
        ))?;
    }
    if !run.tools.is_empty() {
        let mut rows = Rows::new(&["TOOL", "STATE", "TOOK"]);
        for tool in &run.tools {
            rows.push([
                tool.name.as_str(),
                &tool.state,
                &tool.duration_ms.map(duration).unwrap_or_default(),
            ]);
        }
        screen.line(&format!("\n{}", rows.text()))?;
    }
    if let Some(text) = run.text.as_deref().filter(|text| !text.is_empty()) {
        screen.line("")?;
        screen.answer(text, false)?;
        screen.end_line()?;
    }
    for part in &run.parts {
        screen.line(&part_line(part))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;
    use serde_json::json;

    fn record() -> Value {
        json!({
            "runId": "r1", "conversationId": "terminal", "status": "failed", "source": "terminal",
            "sourceDetail": null, "model": "demo:scripted", "startedAt": "2026-01-02T03:04:05Z",
            "endedAt": null, "durationMs": 1500, "failureKind": "provider_auth", "error": "no\u{1b}[2J",
            "text": "half\u{7}", "usage": {"input": 3, "output": 2, "cacheRead": 1, "cacheCreation": 0, "costUsd": 0.5},
            "failoverHistory": [{"model": "a:b", "failureKind": "timeout", "attempts": 3}],
            "tools": [{"id": "t", "name": "echo", "state": "success", "durationMs": 7}]
        })
    }

    #[test]
    fn a_page_of_runs() {
        let page = json!({"runs": [record()], "nextCursor": "c 1"});
        let (mut screen, out, _) = screen(false, true);
        list(&serde_json::from_value(page).unwrap(), &[], &mut screen).unwrap();
        assert_eq!(
            out.text(),
            " RUN  STATUS  STARTED               TOOK   SOURCE    CONVERSATION  MODEL          FAILURE\n \
             r1   failed  2026-01-02T03:04:05Z  1.5 s  terminal  terminal      demo:scripted  provider_auth\n\
             more: monoctl runs list --cursor 'c 1'\n"
        );
    }

    #[test]
    fn one_run() {
        let (mut screen, out, _) = screen(false, true);
        show(&serde_json::from_value(record()).unwrap(), &mut screen).unwrap();
        assert_eq!(
            out.text(),
            "run          r1\nstatus       failed\nconversation terminal\nsource       terminal\n\
             started      2026-01-02T03:04:05Z\ntook         1.5 s\nmodel        demo:scripted\n\
             failure      provider_auth\nerror        no\\u{1b}[2J\ncost         $0.5000\n\
             tokens       3 in, 2 out, 1 from cache\nfailover     a:b: timeout after 3 attempts\n\n \
             TOOL  STATE    TOOK\n echo  success  7 ms\n\nhalf\\u{7}\n"
        );
    }
}
