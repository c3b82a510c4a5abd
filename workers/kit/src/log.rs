//! Logging: one line per event on standard error, which the supervisor reads and labels.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// What is logged unless `MONO_LOG` says otherwise. rmcp writes whole messages of its peers at this
/// level, and they are not ours to keep.
const DEFAULT: &str = "info,rmcp=off";

/// Starts logging as `MONO_LOG` says.
pub(crate) fn init() {
    let said = std::env::var("MONO_LOG").unwrap_or_default();
    let said = Some(said.as_str()).filter(|said| !said.is_empty());
    let filter = said.and_then(|said| said.parse::<Targets>().ok());
    // The supervisor adds time, role and process; colours would end up in the journal.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false);
    let _ = tracing_subscriber::registry()
        .with(filter.or_else(|| DEFAULT.parse().ok()))
        .with(lines)
        .try_init();
}
