//! The store on a simulated disk, and what a test does to it behind the service's back.

use super::stage::secret;
use crate::error::Rejection;
use crate::keeper::{Decision, Figures, Keeper, Need};
use crate::store::Kept;
use async_trait::async_trait;
use continuation_record::cursor::Cursor;
use continuation_record::{Record, Time};
use continuation_store::fs::{Folder, SimFs, World};
use continuation_store::{Limits, Retention, Store};
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Spoil = Box<dyn Fn(&str) -> Option<String> + Send>;

pub(crate) struct Memory {
    disk: SimFs,
    store: Store<SimFs>,
    kept: Kept<SimFs>,
    changes: AtomicUsize,
    /// Refuses the next changes.
    pub(crate) refuse: Mutex<Option<Rejection>>,
    spoil: Mutex<Option<Spoil>>,
}

/// How long tests keep what is settled.
pub(crate) const RETENTION: Retention = Retention {
    terminal_max_records: 20,
    terminal_max_age_ms: 365 * 24 * 3_600_000,
    captured_text_max_records: 3,
    captured_text_max_age_ms: 30 * 24 * 3_600_000,
};

impl Default for Memory {
    fn default() -> Self {
        let mut world = World::new();
        let text = secret().text();
        world.place(Folder::Root, "continuation-secret", text.as_bytes());
        Self::of(world)
    }
}

impl Memory {
    fn of(world: World) -> Self {
        let disk = SimFs::new(world);
        let limits = Limits {
            log_bytes: 16 * 1024 * 1024,
            ..Limits::default()
        };
        let (store, _) = Store::open_manual(disk.clone(), limits).unwrap();
        Self {
            disk,
            kept: Kept::new(store.clone(), RETENTION),
            store,
            changes: AtomicUsize::new(0),
            refuse: Mutex::default(),
            spoil: Mutex::default(),
        }
    }

    /// What the next process finds when this one is killed now.
    pub(crate) fn reopened(&self) -> Self {
        Self::of(self.disk.world().killed())
    }

    pub(crate) fn record(&self, id: &str) -> Record {
        self.kept.get(id).unwrap().unwrap()
    }

    pub(crate) fn count(&self) -> usize {
        self.store.stats().counts.records()
    }

    /// Puts records that wait, behind the service's back: into the log alone, which has room for ten thousand.
    pub(crate) async fn fill(&self, records: impl Iterator<Item = Record>) {
        let records: Vec<_> = records.collect();
        for some in records.chunks(500) {
            let put = self.store.update(|txn| {
                some.iter().cloned().for_each(|record| txn.put(record));
                Ok::<(), Infallible>(())
            });
            put.await.unwrap();
        }
    }

    /// Changes a record behind the service's back.
    pub(crate) fn tamper(&self, id: &str, change: impl FnOnce(&mut Record)) {
        let mut record = self.record(id);
        change(&mut record);
        let put = self.store.update(|txn| {
            txn.put(record);
            Ok::<(), Infallible>(())
        });
        put.wait().unwrap();
    }

    /// What is read of snapshots from now on.
    pub(crate) fn tamper_blobs(&self, change: impl Fn(&str) -> Option<String> + Send + 'static) {
        *self.spoil.lock().unwrap() = Some(Box::new(change));
    }
}

#[async_trait]
impl Keeper for Memory {
    fn get(&self, id: &str) -> Result<Option<Record>, Rejection> {
        self.kept.get(id)
    }

    fn of_origin(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
    ) -> Result<Vec<Record>, Rejection> {
        self.kept.of_origin(run, conversation, boundary)
    }

    fn due(&self, waiting: Time, count: usize) -> Vec<String> {
        self.kept.due(waiting, count)
    }

    fn overdue(&self, now: Time, count: usize) -> Vec<String> {
        self.kept.overdue(now, count)
    }

    fn newest(&self) -> Option<Time> {
        self.kept.newest()
    }

    fn interrupted(&self, longest: Time) -> Vec<String> {
        self.kept.interrupted(longest)
    }

    fn page(&self, after: Option<&Cursor>, count: usize) -> Result<(Vec<Record>, bool), Rejection> {
        self.kept.page(after, count)
    }

    fn figures(&self, waiting: Time) -> Figures {
        self.kept.figures(waiting)
    }

    fn blob(&self, digest: &str) -> Result<Option<Vec<u8>>, Rejection> {
        let blob = self.kept.blob(digest)?;
        let spoil = self.spoil.lock().unwrap();
        Ok(match (blob, &*spoil) {
            (Some(blob), Some(spoil)) => {
                spoil(std::str::from_utf8(&blob).unwrap()).map(String::into_bytes)
            }
            (blob, _) => blob,
        })
    }

    async fn change<'a>(&'a self, need: Need, decision: Decision<'a>) -> Result<(), Rejection> {
        if let Some(refused) = self.refuse.lock().unwrap().clone() {
            return Err(refused);
        }
        if self.changes.fetch_add(1, Ordering::SeqCst) % 16 == 15 {
            while self.store.checkpoint().unwrap() {}
        }
        self.kept.change(need, decision).await
    }

    async fn activate(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
        now: Time,
    ) -> Result<(), Rejection> {
        self.kept.activate(run, conversation, boundary, now).await
    }

    async fn retain(&self, now: Time) -> Result<(), Rejection> {
        self.kept.retain(now).await
    }

    fn is_failed(&self) -> bool {
        self.kept.is_failed()
    }
}
