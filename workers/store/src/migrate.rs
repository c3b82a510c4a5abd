//! Numbered schema steps, each applied once, each in a transaction of its own.

use rusqlite::{Connection, TransactionBehavior};

/// "mnst" in the header of every database of ours.
pub const APPLICATION_ID: i32 = 0x6d6e_7374;

/// Every step in order; the number of a step is its position plus one, and a released step is
/// never edited.
pub const STEPS: [&str; 8] = [
    include_str!("../migrations/0001_conversations_and_runs.sql"),
    include_str!("../migrations/0002_tool_calls.sql"),
    include_str!("../migrations/0003_provider_sessions.sql"),
    include_str!("../migrations/0004_console.sql"),
    include_str!("../migrations/0005_letters.sql"),
    include_str!("../migrations/0006_console_weights.sql"),
    include_str!("../migrations/0007_owners.sql"),
    include_str!("../migrations/0008_console_sums.sql"),
];

/// The schema number of this build.
#[must_use]
pub fn latest() -> u32 {
    STEPS.len() as u32
}

/// The schema number in the database; 0 for a new one.
///
/// # Errors
/// When the database can't be read.
pub fn current(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Applies the steps after `current` up to `target`.
///
/// # Errors
/// When a step fails; the database then stays at the step before.
pub fn up_to(db: &mut Connection, target: u32) -> rusqlite::Result<()> {
    for (number, step) in (1..).zip(STEPS).take(target as usize) {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read again inside the transaction: only one process may take the step.
        if current(&tx)? >= number {
            continue;
        }
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", number)?;
        tx.commit()?;
    }
    Ok(())
}
