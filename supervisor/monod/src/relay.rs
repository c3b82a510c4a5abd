//! Workers' lines in the daemon's own log, so that a warning of theirs is a warning there and in
//! the journal.

use ipc_proto::Role;
use tracing::Level;

/// What a worker's logger begins its lines with.
const LEVELS: [(&str, Level); 5] = [
    ("ERROR", Level::ERROR),
    ("WARN", Level::WARN),
    ("INFO", Level::INFO),
    ("DEBUG", Level::DEBUG),
    ("TRACE", Level::TRACE),
];

/// Logs a line at the level that it names. A worker that was taken over may name any: it can raise
/// no alarm that its words alone could not, and hide nothing that it could not leave unsaid.
pub(crate) fn relay(role: Role, pid: i32, run: Option<&str>, text: &str) {
    let (level, said) = level_of(text);
    macro_rules! say {
        ($at:ident) => {
            tracing::$at!(role = %role, pid, run, "{said}")
        };
    }
    match level {
        Level::ERROR => say!(error),
        Level::WARN => say!(warn),
        Level::DEBUG => say!(debug),
        Level::TRACE => say!(trace),
        _ => say!(info),
    }
}

fn level_of(text: &str) -> (Level, &str) {
    let line = text.trim_start();
    let named = LEVELS.into_iter().find_map(|(word, level)| {
        let said = line.strip_prefix(word)?.strip_prefix(' ')?;
        Some((level, said))
    });
    named.unwrap_or((Level::INFO, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_level() {
        for (line, level, said) in [
            (" INFO inventory", Level::INFO, "inventory"),
            (" WARN slow", Level::WARN, "slow"),
            ("ERROR no space", Level::ERROR, "no space"),
            ("DEBUG x", Level::DEBUG, "x"),
            ("TRACE x", Level::TRACE, "x"),
            ("WARNING x", Level::INFO, "WARNING x"),
            (
                "thread 'main' panicked",
                Level::INFO,
                "thread 'main' panicked",
            ),
            ("", Level::INFO, ""),
            ("ERROR", Level::INFO, "ERROR"),
        ] {
            assert_eq!(level_of(line), (level, said), "{line:?}");
        }
    }
}
