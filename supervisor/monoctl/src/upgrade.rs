//! `monoctl reload --exec`.

use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::status::Status;
use crate::terminal::safe_line;
use crate::worker::SERVES_WITHIN;
use ipc_proto::admin::Ask;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The daemon checks the new program before it answers; then it lets go of everything.
const LETS_GO_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks at the status.
const LOOK: Duration = Duration::from_millis(50);

/// What is seen of the daemon after the change.
#[derive(Debug, Default, PartialEq, Eq)]
struct After {
    version: String,
    /// Roles whose worker still has the earlier program and is to be replaced at once.
    missing: Vec<String>,
    /// Roles whose worker keeps the earlier program until no turn is at work.
    later: Vec<String>,
}

impl After {
    fn of(status: &Status) -> Self {
        let mut after = Self {
            version: status.version.clone(),
            ..Self::default()
        };
        for worker in status.workers.iter().filter(|w| w.outdated) {
            let list = if worker.state == "serving" && worker.waits_for_quiet() {
                &mut after.later
            } else {
                &mut after.missing
            };
            list.push(worker.role.clone());
        }
        after
    }
}

/// Exit status 0 when the new program is in charge and its workers serve; 1 when it was refused or
/// a worker isn't replaced.
pub(crate) async fn run(socket: Option<&Path>, screen: &mut Screen) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    let (before, _) = Status::ask(&daemon).await?;
    daemon
        .ask::<Value>(&Ask::Upgrade, &[])
        .await
        .map_err(unchanged)?;
    if !daemon.closed(LETS_GO_WITHIN).await {
        let message = "the daemon took the new program and doesn't let go; see its log";
        return Err(CtlError::NoAnswer(message.to_owned()));
    }
    let deadline = Instant::now() + SERVES_WITHIN;
    let after = loop {
        let daemon = Daemon::connect(socket).await?;
        let (status, _) = Status::ask(&daemon).await?;
        let after = After::of(&status);
        if after.missing.is_empty() || Instant::now() > deadline {
            break after;
        }
        tokio::time::sleep(LOOK).await;
    };
    let ok = after.missing.is_empty();
    if screen.is_json() {
        screen.json(&json!({
            "ok": ok,
            "from": before.version,
            "to": after.version,
            "failed": after.missing,
            "later": after.later,
        }))?;
    } else {
        show(&before.version, &after, screen)?;
    }
    Ok(u8::from(!ok))
}

fn show(from: &str, after: &After, screen: &mut Screen) -> Result<(), CtlError> {
    let names = |roles: &[String]| {
        let all: Vec<_> = roles.iter().map(|role| safe_line(role, 40)).collect();
        all.join(", ")
    };
    screen.line(&format!(
        "the program was replaced: version {} took over from {}",
        safe_line(&after.version, 40),
        safe_line(from, 40)
    ))?;
    if !after.later.is_empty() {
        screen.line(&format!(
            "when no turn is at work, new programs come for: {}",
            names(&after.later)
        ))?;
    }
    if !after.missing.is_empty() {
        screen.aside(&format!(
            "monoctl: the earlier program still serves: {}; see `monoctl logs`",
            names(&after.missing)
        ))?;
    }
    Ok(())
}

/// A refused program leaves everything as it was, which is worth saying.
fn unchanged(error: CtlError) -> CtlError {
    match error {
        CtlError::Refused { code, message } => CtlError::Refused {
            code,
            message: format!("nothing was changed: {message}"),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn who_waits_and_who_fails_are_told_apart() {
        let status: Status = serde_json::from_value(json!({
            "version": "2.0.0",
            "workers": [
                {"role": "store", "state": "serving", "outdated": true},
                {"role": "egress", "state": "serving", "outdated": true},
                {"role": "run", "state": "serving"},
            ]
        }))
        .unwrap();
        let after = After::of(&status);
        assert_eq!(after.later, ["store"]);
        assert_eq!(after.missing, ["egress"]);
        let (mut screen, out, err) = screen(false, false);
        show("1.0.0", &after, &mut screen).unwrap();
        assert!(out.text().contains("version 2.0.0 took over from 1.0.0\n"));
        assert!(out.text().ends_with("new programs come for: store\n"));
        assert!(err.text().contains("still serves: egress;"));
    }
}
