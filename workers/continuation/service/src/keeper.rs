//! What the service needs of the store, whatever file system is below it.

use crate::error::Rejection;
use async_trait::async_trait;
use continuation_record::cursor::Cursor;
use continuation_record::health::Standing;
use continuation_record::{Record, Time};
use serde_json::Value;

/// What a decision sees and does. All that it puts is one change: it happens whole or not at all, and nothing
/// else is decided meanwhile.
pub trait Change {
    /// A record by its id.
    ///
    /// # Errors
    /// When the store fails.
    fn get(&mut self, id: &str) -> Result<Option<Record>, Rejection>;
    /// A record, a settled one too, by what was claimed.
    ///
    /// # Errors
    /// When the store fails.
    fn by_claim(
        &mut self,
        server: &str,
        run: &str,
        task: &str,
    ) -> Result<Option<Record>, Rejection>;
    /// Records that count against admission.
    fn active_count(&self) -> usize;
    /// Those of one claim fingerprint.
    fn active_of(&self, fingerprint: &str) -> usize;
    /// Stores a record; one that the reader would refuse is refused here.
    ///
    /// # Errors
    /// When it is not valid.
    fn put(&mut self, record: Record) -> Result<(), Rejection>;
    /// Stores a snapshot under its digest.
    ///
    /// # Errors
    /// When there is no room.
    fn put_blob(&mut self, digest: &str, canonical: &str) -> Result<(), Rejection>;
}

/// A decision: what it returns as an error undoes all that it put.
pub type Decision<'a> = Box<dyn FnOnce(&mut dyn Change) -> Result<(), Rejection> + Send + 'a>;

/// How much a change is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It may be refused while the store is behind: whoever asks for it will ask again.
    Refusable,
    /// What was accepted needs it.
    Owed,
}

/// How it stands with the store.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Counts by state and of missing histories.
    pub standing: Standing,
    /// Pending records that wait for no later time.
    pub due: usize,
    /// When the oldest pending one was claimed.
    pub oldest_pending: Option<Time>,
    /// Settled records without payload.
    pub compacted: usize,
    /// Captured texts that are kept.
    pub captured_text: usize,
    /// More of the store's own figures.
    pub more: serde_json::Map<String, Value>,
}

/// The store.
#[async_trait]
pub trait Keeper: Send + Sync + 'static {
    /// A record by its id.
    ///
    /// # Errors
    /// When the store fails.
    fn get(&self, id: &str) -> Result<Option<Record>, Rejection>;
    /// The active records of one origin.
    ///
    /// # Errors
    /// When the store fails.
    fn of_origin(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
    ) -> Result<Vec<Record>, Rejection>;
    /// What can be worked on at this time, oldest change first.
    fn due(&self, waiting: Time, count: usize) -> Vec<String>;
    /// Pending records whose deadline is not later than this.
    fn overdue(&self, now: Time, count: usize) -> Vec<String>;
    /// When something that is pending changed last. Asked once, by a start: it looks at all of them.
    fn newest(&self) -> Option<Time>;
    /// What a start finds leased, begun, with an origin that isn't settled, or waiting for longer than this.
    fn interrupted(&self, longest: Time) -> Vec<String>;
    /// Newest first, and whether there are more.
    ///
    /// # Errors
    /// When the store fails.
    fn page(&self, after: Option<&Cursor>, count: usize) -> Result<(Vec<Record>, bool), Rejection>;
    /// Counts.
    fn figures(&self, waiting: Time) -> Figures;
    /// A snapshot; `None` when it is missing, unreadable or not what its name says.
    ///
    /// # Errors
    /// When the store fails.
    fn blob(&self, digest: &str) -> Result<Option<Vec<u8>>, Rejection>;
    /// Lets a decision be made, and returns when what it saw and did is on the disk.
    ///
    /// # Errors
    /// The decision's own; `service_busy`; or that the store failed.
    async fn change<'a>(&'a self, need: Need, decision: Decision<'a>) -> Result<(), Rejection>;
    /// Pins every pending record of an origin that has its snapshot, in one commit point however large they are.
    ///
    /// # Errors
    /// When the store fails.
    async fn activate(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
        now: Time,
    ) -> Result<(), Rejection>;
    /// Removes what retention doesn't keep.
    ///
    /// # Errors
    /// When the store fails.
    async fn retain(&self, now: Time) -> Result<(), Rejection>;
    /// Whether the store failed, after which the process must end.
    fn is_failed(&self) -> bool;
}
