//! The key table: every key, its type, default, bounds, variable and meaning.

mod agent;
mod channels;
mod services;

use crate::field::Field;

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
pub(crate) const RETIRED: &[(&str, &str)] = &[(
    "web",
    "remove it: the web console is started from the command line",
)];
