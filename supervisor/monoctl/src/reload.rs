//! `monoctl reload`.

use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::status::Status;
use crate::terminal::{safe, safe_line};
use crate::worker::{SERVES_WITHIN, Successor, serving, successor};
use ipc_proto::admin::Ask;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// What the daemon did.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Report {
    replaced: Vec<String>,
    failed: Vec<Failed>,
    needs_restart: Vec<Fixed>,
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Failed {
    role: String,
    problem: String,
}

/// A setting that stays as it is until the daemon is started anew.
#[derive(Debug, Deserialize)]
struct Fixed {
    key: String,
    running: String,
    configured: String,
}

/// Run workers have no single one to wait for: idle ones are renewed, working ones finish.
const RUN: &str = "run";

/// Exit status 0 when every worker that was to be replaced is; 1 when it was refused or one isn't.
pub(crate) async fn run(socket: Option<&Path>, screen: &mut Screen) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    let (before, _) = Status::ask(&daemon).await?;
    let (mut value, _) = daemon
        .ask::<Value>(&Ask::Reload, &[])
        .await
        .map_err(unchanged)?;
    let mut report: Report =
        serde_json::from_value(value.clone()).map_err(|e| CtlError::NoAnswer(e.to_string()))?;
    for role in report.replaced.iter().filter(|role| *role != RUN) {
        let old = serving(&before, role);
        let problem = match successor(&daemon, role, old, SERVES_WITHIN).await? {
            Successor::Serves(_) => continue,
            Successor::Parked(last) => format!("is parked: {last}"),
            Successor::Ended => {
                format!("the new worker can't serve, the old one stays; see `monoctl logs {role}`")
            }
            Successor::Late => format!("no new worker serves yet; see `monoctl logs {role}`"),
        };
        report.failed.push(Failed {
            role: role.clone(),
            problem,
        });
    }
    let ok = report.failed.is_empty();
    if screen.is_json() {
        value["ok"] = json!(ok);
        let failed = report.failed.iter();
        value["failed"] = failed
            .map(|f| json!({ "role": f.role, "problem": f.problem }))
            .collect();
        screen.json(&value)?;
    } else {
        show(&report, screen)?;
    }
    Ok(u8::from(!ok))
}

/// A refused reload leaves everything as it was, which is worth saying.
fn unchanged(error: CtlError) -> CtlError {
    match error {
        CtlError::Refused { code, message } if code == "config_invalid" => CtlError::Refused {
            code,
            message: format!(
                "nothing was changed, the configuration has errors:\n{}\n",
                message.trim_end()
            ),
        },
        other => other,
    }
}

fn show(report: &Report, screen: &mut Screen) -> Result<(), CtlError> {
    if report.replaced.is_empty() {
        screen.line("no worker had to be replaced")?;
    } else {
        let names: Vec<_> = report.replaced.iter().map(|r| safe_line(r, 40)).collect();
        screen.line(&format!("replaced: {}", names.join(", ")))?;
    }
    for Fixed {
        key,
        running,
        configured,
    } in &report.needs_restart
    {
        screen.line(&format!(
            "{} stays {} until the daemon is restarted; the configuration says {}",
            safe_line(key, 100),
            safe_line(running, 200),
            safe_line(configured, 200),
        ))?;
    }
    for warning in &report.warnings {
        screen.aside(&safe(warning))?;
    }
    for Failed { role, problem } in &report.failed {
        screen.aside(&format!("monoctl: {role}: {problem}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;

    fn shown(value: Value) -> (String, String) {
        let (mut screen, out, err) = screen(false, false);
        show(&serde_json::from_value(value).unwrap(), &mut screen).unwrap();
        (out.text(), err.text())
    }

    #[test]
    fn both_values_are_named() {
        let (out, err) = shown(json!({
            "replaced": ["egress", "run"],
            "needsRestart": [{"key": "openaiApi.port", "running": "8000", "configured": "9000"}],
            "warnings": ["tools: none is allowed"]
        }));
        assert_eq!(
            out,
            "replaced: egress, run\nopenaiApi.port stays 8000 until the daemon is restarted; \
             the configuration says 9000\n"
        );
        assert_eq!(err, "tools: none is allowed\n");
    }

    #[test]
    fn nothing_to_do_is_said_and_a_failure_is_named() {
        assert_eq!(shown(json!({})).0, "no worker had to be replaced\n");
        let (_, err) = shown(json!({"failed": [{"role": "egress", "problem": "no key"}]}));
        assert_eq!(err, "monoctl: egress: no key\n");
    }
}
