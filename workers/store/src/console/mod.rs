//! What the web console keeps: threads with their messages, search, logins (facts 2.9).
//!
//! These rows are what a person wrote and was shown. What an agent remembers of a conversation is
//! its history, which only runs change.

mod messages;
mod search;
mod sessions;
mod threads;

use crate::db::Store;
use crate::error::StoreError;
use ipc_proto::console::Ask;
use serde_json::Value;

pub use messages::INTERRUPTED;

/// Threads. Refused above it.
pub const THREADS: u64 = 5_000;
/// Bytes of all messages of all threads. Refused above it: what people wrote is never dropped by
/// itself.
pub const BYTES: u64 = 128 << 20;
/// Messages of one thread. Refused above it.
pub const THREAD_MESSAGES: u64 = 10_000;
/// Longest id in bytes.
const ID: usize = 64;

impl Store {
    /// Does what the console asks. `lease` is its channel: answers that it begins are interrupted
    /// when that ends.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn console(&mut self, ask: Ask, lease: i64, now: i64) -> Result<Value, StoreError> {
        Ok(match ask {
            Ask::Threads {
                archived,
                limit,
                cursor,
            } => json(&self.threads(archived, limit, cursor.as_deref())?),
            Ask::NewThread { id } => json(&self.new_thread(&id, now)?),
            Ask::ShowThread { id, before, limit } => {
                json(&self.show_thread(&id, before.as_deref(), limit)?)
            }
            Ask::EditThread {
                id,
                title,
                archived,
                read,
            } => json(&self.edit_thread(&id, title.as_deref(), archived, read)?),
            Ask::RemoveThread { id } => json(&self.remove_thread(&id)?),
            Ask::Begin {
                thread,
                user,
                reply,
                replaces,
            } => json(&self.begin_reply(
                &thread,
                (&user, &reply),
                replaces.as_deref(),
                lease,
                now,
            )?),
            Ask::Save { message } => json(&self.save_reply(&message, lease, now)?),
            Ask::Deliver {
                thread, message, ..
            } => json(&self.deliver(&thread, &message, now)?),
            Ask::ShowMessage { id } => json(&self.show_message(&id)?),
            Ask::Search {
                query,
                limit,
                cursor,
            } => json(&self.search(&query, limit, cursor.as_deref())?),
            Ask::Sessions => json(&self.sessions()?),
            Ask::KeepSession { session } => json(&self.keep_session(&session, now)?),
            Ask::RemoveSession { id } => json(&self.remove_session(&id)?),
        })
    }
}

fn json<T: serde::Serialize>(value: &T) -> Value {
    // Our own shapes: text keys and finite numbers.
    serde_json::to_value(value).unwrap_or(Value::Null)
}

fn id(field: &'static str, text: &str) -> Result<(), StoreError> {
    crate::record::at_most(field, text.len(), ID)?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if text.is_empty() || !text.bytes().all(plain) {
        return Err(StoreError::Invalid {
            field,
            reason: "it is no id",
        });
    }
    Ok(())
}

fn page(limit: u32, most: u32) -> Result<u32, StoreError> {
    if limit == 0 {
        return Err(StoreError::Invalid {
            field: "limit",
            reason: "it is 0",
        });
    }
    crate::record::at_most("limit", limit as usize, most as usize)?;
    Ok(limit)
}

/// A cursor of ours: a letter for the listing, then hexadecimal numbers.
fn cursor(letter: char, numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|n| format!("{n:x}")).collect();
    format!("{letter}{}", numbers.join("-"))
}

fn read_cursor<const N: usize>(letter: char, text: &str) -> Result<[i64; N], StoreError> {
    let read = || {
        let mut out = [0; N];
        let mut parts = text.strip_prefix(letter)?.split('-');
        for number in &mut out {
            *number = i64::from_str_radix(parts.next()?, 16).ok()?;
        }
        // One spelling only, so that nothing else is taken for a cursor.
        (parts.next().is_none() && cursor(letter, &out) == text).then_some(out)
    };
    read().ok_or(StoreError::Invalid {
        field: "cursor",
        reason: "it is not from a page of this listing",
    })
}
