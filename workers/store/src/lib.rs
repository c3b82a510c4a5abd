//! The store: conversations, runs and tool lifecycles in one SQLite database with one owner.
//!
//! Below [`serve`] nothing knows of processes; time comes in as an argument (milliseconds
//! since 1970), so that every rule about age is tested with a table.
#![forbid(unsafe_code)]

pub mod account;
pub mod console;
mod conversation;
pub mod db;
pub mod error;
pub mod history;
pub mod letters;
pub mod listing;
pub mod migrate;
pub mod place;
pub mod record;
pub mod redact;
pub mod retention;
pub mod serve;
pub mod text;
mod tools;
mod turn;

pub use db::Store;
pub use error::StoreError;
pub use listing::Query;
pub use record::{Commitment, Committed, Start, Status};
pub use retention::Limits;
pub use turn::PROCESS_DEATH;
