//! `monoctl stop`.

use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use ipc_proto::admin::Ask;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// How long an orderly stop may take, running turns included.
const STOP_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(socket: Option<&Path>, screen: &mut Screen) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    daemon.ask::<Value>(&Ask::Stop, &[]).await?;
    let stopped = daemon.closed(STOP_WITHIN).await;
    if screen.is_json() {
        screen.json(&json!({ "stopped": stopped }))?;
    } else if stopped {
        screen.line("stopped")?;
    } else {
        let most = STOP_WITHIN.as_secs();
        screen.aside(&format!(
            "monoctl: the daemon is still stopping after {most} s"
        ))?;
    }
    Ok(u8::from(!stopped))
}
