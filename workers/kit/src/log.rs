//! Logging: one line per event on standard error, which the supervisor reads and labels.

use tracing_subscriber::EnvFilter;

/// What is logged unless `MONO_LOG` says otherwise. rmcp writes whole messages of its peers at this
/// level, and they are not ours to keep.
const DEFAULT: &str = "info,rmcp=off";

/// Starts logging as `MONO_LOG` says.
pub(crate) fn init() {
    let filter = EnvFilter::try_from_env("MONO_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    // The supervisor adds time, role and process; colours would end up in the journal.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .try_init();
}
