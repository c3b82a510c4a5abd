//! The key table: every key, its type, default, bounds, variable and meaning.

mod agent;
mod channels;
mod services;

use crate::field::Field;

/// One hour and one day in milliseconds.
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Bytes of memory that a run or a server must at least be given: less than this, and programs of
/// an agent's daily use don't start.
const MEMORY_MIN: i64 = 64 << 20;
/// Bytes of memory that it gets where nothing is configured.
pub(crate) const MEMORY_DEFAULT: i64 = 4 << 30;
/// Bytes of memory that can be configured at most: more than any machine has.
const MEMORY_MAX: i64 = 64 << 40;

/// All rows, in the order in which the handbook shows them.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    [agent::FIELDS, services::FIELDS, channels::FIELDS]
        .into_iter()
        .flatten()
}

/// The row of exactly this key pattern.
pub fn field(key: &str) -> Option<&'static Field> {
    fields().find(|row| row.key == key)
}

/// Keys that once were, or that belong elsewhere, and what to do instead.
///
/// Recognised by name, so that an old file gets its repair text and not "unknown key".
pub(crate) const RETIRED: &[(&str, &str)] =
    &[("web", "the web console is configured in `console`")];
