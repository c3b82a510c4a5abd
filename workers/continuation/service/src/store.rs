//! The store behind [`Keeper`], on whatever file system it runs.

use crate::error::Rejection;
use crate::keeper::{Change, Decision, Figures, Keeper, Need};
use async_trait::async_trait;
use continuation_record::cursor::Cursor;
use continuation_record::health::Standing;
use continuation_record::token::Secret;
use continuation_record::{Record, Time};
use continuation_store::fs::Fs;
use continuation_store::{Origin, Retention, Store, StoreError, Txn, UpdateError};
use http::StatusCode;
use std::convert::Infallible;
use std::sync::Arc;

/// Records that one round of retention changes.
const ROUND: usize = 256;
/// Rounds of retention at once; what is left is the next call's.
const ROUNDS: usize = 16;

/// An open store and how long it keeps what is settled.
#[derive(Debug)]
pub struct Kept<F: Fs> {
    store: Store<F>,
    retention: Retention,
}

impl<F: Fs> Kept<F> {
    /// Of an open store.
    #[must_use]
    pub const fn new(store: Store<F>, retention: Retention) -> Self {
        Self { store, retention }
    }

    /// The store's secret, from which tokens and seals are derived.
    #[must_use]
    pub fn secret(&self) -> Secret {
        Secret::new(*self.store.secret().bytes())
    }
}

/// What a decision sees of the store.
struct Draft<'a, 'b, F: Fs>(&'a mut Txn<'b, F>);

impl<F: Fs> Change for Draft<'_, '_, F> {
    // A read that failed makes the whole change fail, whatever is decided without it.
    fn get(&mut self, id: &str) -> Result<Option<Record>, Rejection> {
        Ok(self.0.get(id).map(Arc::unwrap_or_clone))
    }

    fn by_claim(
        &mut self,
        server: &str,
        run: &str,
        task: &str,
    ) -> Result<Option<Record>, Rejection> {
        match self.0.by_claim(server, run, task) {
            Some(id) => self.get(&id),
            None => Ok(None),
        }
    }

    fn active_count(&self) -> usize {
        self.0.active_count()
    }

    fn active_of(&self, fingerprint: &str) -> usize {
        self.0.active_of(fingerprint)
    }

    fn put(&mut self, record: Record) -> Result<(), Rejection> {
        self.0.put(record);
        Ok(())
    }

    fn put_blob(&mut self, digest: &str, canonical: &str) -> Result<(), Rejection> {
        // Both sides make the name of a snapshot from its text; they must agree on it.
        if self.0.put_blob(canonical.to_owned()) == digest {
            Ok(())
        } else {
            Err(Rejection::internal())
        }
    }
}

#[async_trait]
impl<F: Fs> Keeper for Kept<F> {
    fn get(&self, id: &str) -> Result<Option<Record>, Rejection> {
        let record = self.store.get(id).map_err(failed)?;
        Ok(record.map(Arc::unwrap_or_clone))
    }

    fn of_origin(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
    ) -> Result<Vec<Record>, Rejection> {
        let ids = self.store.members(&origin(run, conversation, boundary));
        let records = ids.iter().map(|id| self.get(id));
        records.filter_map(Result::transpose).collect()
    }

    fn due(&self, waiting: Time, count: usize) -> Vec<String> {
        self.store.due(waiting, count)
    }

    fn overdue(&self, now: Time, count: usize) -> Vec<String> {
        self.store.past_deadline(now, count)
    }

    fn newest(&self) -> Option<Time> {
        self.store.newest_pending()
    }

    fn interrupted(&self, longest: Time) -> Vec<String> {
        self.store.interrupted(longest)
    }

    fn page(&self, after: Option<&Cursor>, count: usize) -> Result<(Vec<Record>, bool), Rejection> {
        let after = after.map(|cursor| continuation_store::Cursor {
            created_at: cursor.created_at,
            id: cursor.continuation_id.clone(),
        });
        let page = self.store.page(after.as_ref(), count).map_err(failed)?;
        let records = page.records.into_iter().map(Arc::unwrap_or_clone);
        Ok((records.collect(), page.next.is_some()))
    }

    fn figures(&self, waiting: Time) -> Figures {
        let stats = self.store.stats();
        let mut more = serde_json::Map::new();
        for (key, figure) in [
            ("originContexts", stats.contexts as u64),
            ("originContextBytes", stats.context_bytes),
            ("logUsedBytes", stats.log_used),
            ("logBytes", stats.log_capacity),
        ] {
            more.insert(key.to_owned(), figure.into());
        }
        Figures {
            standing: Standing {
                by_state: stats.counts.states,
                history_degraded: stats.counts.history_degraded,
                clock_held: false,
            },
            due: self.store.due_count(waiting),
            oldest_pending: stats.oldest_pending,
            compacted: stats.counts.compacted,
            captured_text: stats.counts.captured_text,
            more,
        }
    }

    fn blob(&self, digest: &str) -> Result<Option<Vec<u8>>, Rejection> {
        let text = self.store.blob(digest).map_err(failed)?;
        Ok(text.map(String::into_bytes))
    }

    async fn change<'a>(&'a self, need: Need, decision: Decision<'a>) -> Result<(), Rejection> {
        let decide = |txn: &mut Txn<'_, F>| decision(&mut Draft(txn));
        let update = match need {
            Need::Refusable => self.store.admit(decide),
            Need::Owed => self.store.update(decide),
        };
        update.await.map_err(refused)
    }

    async fn activate(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
        now: Time,
    ) -> Result<(), Rejection> {
        let update = self
            .store
            .activate(&origin(run, conversation, boundary), now);
        update.await.map_err(unmade)?;
        Ok(())
    }

    async fn retain(&self, now: Time) -> Result<(), Rejection> {
        for _ in 0..ROUNDS {
            let over = self.store.overdue(now, &self.retention, ROUND);
            if over.remove.is_empty() && over.strip.is_empty() {
                return Ok(());
            }
            let update = self.store.update(|txn| {
                for id in &over.remove {
                    txn.delete(id);
                }
                for id in over.strip.iter().filter(|id| !over.remove.contains(id)) {
                    if let Some(record) = txn.get(id) {
                        let mut record = Arc::unwrap_or_clone(record);
                        record.synthesized_text = None;
                        txn.put(record);
                    }
                }
                Ok::<(), Infallible>(())
            });
            update.await.map_err(unmade)?;
        }
        Ok(())
    }

    fn is_failed(&self) -> bool {
        self.store.is_stopped()
    }
}

fn origin(run: &str, conversation: &str, boundary: &str) -> Origin {
    Origin {
        run: run.to_owned(),
        conversation: conversation.to_owned(),
        boundary: boundary.to_owned(),
    }
}

fn failed(e: StoreError) -> Rejection {
    tracing::error!("the store failed: {e}");
    Rejection::internal()
}

fn broken<E: std::fmt::Debug>(e: &UpdateError<E>) -> Rejection {
    tracing::error!("a change was not made: {e}");
    Rejection::internal()
}

/// Of a change that nothing refuses.
fn unmade(e: UpdateError<Infallible>) -> Rejection {
    match e {
        UpdateError::Refused(never) => match never {},
        UpdateError::Busy => Rejection::busy(),
        other => broken(&other),
    }
}

fn refused(e: UpdateError<Rejection>) -> Rejection {
    match e {
        UpdateError::Refused(rejection) => rejection,
        UpdateError::Busy => Rejection::busy(),
        UpdateError::Quota => Rejection::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "origin_context_quota",
            "the snapshots of conversations have no room left",
        ),
        other => broken(&other),
    }
}
