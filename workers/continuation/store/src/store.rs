//! The open store.

use crate::contexts::Digest;
use crate::error::{OpenError, StoreError, UpdateError};
use crate::fs::{Fs, RealFs};
use crate::index::Counts;
use crate::limits::{Limits, Retention};
use crate::meta::{Id, claim_key, fingerprint_key, origin_key};
use crate::open::{self, Opened};
use crate::secret::Secret;
use crate::shared::Shared;
use crate::txn::Txn;
use continuation_record::{Record, Time};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use tokio::sync::oneshot;

/// The records of all continuations, on one disk, owned by this process.
///
/// What is read is the newest accepted state, which may still be on its way to the disk. Whoever
/// promises something on the ground of it waits for an [`Update`], even an empty one.
pub struct Store<F: Fs = RealFs>(Arc<Handle<F>>);

struct Handle<F: Fs> {
    shared: Arc<Shared<F>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl<F: Fs> Drop for Handle<F> {
    fn drop(&mut self) {
        self.shared.shut();
        for thread in self.threads.drain(..) {
            // It ends by itself; a panic in it has stopped the store.
            let _ = thread.join();
        }
    }
}

impl<F: Fs> Clone for Store<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Fs> fmt::Debug for Store<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// A place in the list of all records: after this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// When it was claimed.
    pub created_at: Time,
    /// Its name.
    pub id: String,
}

/// A part of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Newest first, of the same time by name, descending.
    pub records: Vec<Arc<Record>>,
    /// Where it goes on, if it does.
    pub next: Option<Cursor>,
}

/// What is settled and kept beyond its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overdue {
    /// To be removed.
    pub remove: Vec<String>,
    /// To be kept without the text.
    pub strip: Vec<String>,
}

/// Figures of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Of records.
    pub counts: Counts,
    /// When the oldest was claimed that something is still to happen to.
    pub oldest_pending: Option<Time>,
    /// Snapshots.
    pub contexts: usize,
    /// Bytes of them.
    pub context_bytes: u64,
    /// Bytes of the log that are in use.
    pub log_used: u64,
    /// Bytes of the log.
    pub log_capacity: u64,
    /// Changed records that no checkpoint has yet.
    pub behind: usize,
}

impl<F: Fs> Store<F> {
    /// Opens the state folder, brings it up to date and goes on with what an earlier process left.
    /// Three threads then write, make checkpoints, and compare the records' files with the packs.
    ///
    /// # Errors
    /// When another process has the folder, something in it is not as it has to be, or the disk
    /// fails. The folder is left as it was.
    pub fn open(fs: F, limits: Limits) -> Result<(Self, Opened), OpenError> {
        let (shared, opened) = open::open(fs, limits)?;
        let threads = Shared::start(&shared).map_err(crate::error::io("starting a thread"))?;
        Ok((Self(Arc::new(Handle { shared, threads })), opened))
    }

    /// The same without threads: each update is written before it returns, and
    /// [`Store::checkpoint`] is called by hand. So a test can repeat what happens.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_manual(fs: F, limits: Limits) -> Result<(Self, Opened), OpenError> {
        let (shared, opened) = open::open(fs, limits)?;
        let threads = Vec::new();
        Ok((Self(Arc::new(Handle { shared, threads })), opened))
    }

    fn shared(&self) -> &Shared<F> {
        &self.0.shared
    }

    /// The secret that tokens and MACs are derived from.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.shared().secret
    }

    /// A record.
    ///
    /// # Errors
    /// When it can't be read, or the store stopped.
    pub fn get(&self, id: &str) -> Result<Option<Arc<Record>>, StoreError> {
        self.shared().read(|state| state.record(&Id::new(id)))
    }

    /// The continuation of this claim.
    #[must_use]
    pub fn by_claim(&self, server: &str, run: &str, task_key: &str) -> Option<String> {
        let state = self.shared().state();
        let id = state.index.claim(&claim_key(server, run, task_key))?;
        Some(id.to_string())
    }

    /// Records that count against admission: pending, and `delivery_unknown`.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.shared().state().index.counts.active()
    }

    /// The same of one claim fingerprint.
    #[must_use]
    pub fn active_of(&self, fingerprint: &str) -> usize {
        let key = fingerprint_key(fingerprint);
        self.shared().state().index.active_of(&key)
    }

    /// What can be worked on at this time, at most `count`, oldest change first: results received
    /// and deliveries to be tried again whose time has come, and all that is ready; nothing that is
    /// leased.
    #[must_use]
    pub fn due(&self, now: Time, count: usize) -> Vec<String> {
        texts(&self.shared().state().index.due(now, count))
    }

    /// The earliest time that something waits for.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.shared().state().index.next_due()
    }

    /// Pending records that wait for no later time than this.
    #[must_use]
    pub fn due_count(&self, now: Time) -> usize {
        self.shared().state().index.due_count(now)
    }

    /// Pending records whose deadline has passed, at most `count`, earliest first.
    #[must_use]
    pub fn past_deadline(&self, now: Time, count: usize) -> Vec<String> {
        texts(&self.shared().state().index.past_deadline(now, count))
    }

    /// When a pending record changed last. Looks at all of them.
    #[must_use]
    pub fn newest_pending(&self) -> Option<Time> {
        self.shared().state().index.newest_pending()
    }

    /// Pending records that an earlier process had under way: leased, synthesizing, given to a
    /// channel, or their turn not committed; and those that are to wait for longer than this.
    #[must_use]
    pub fn interrupted(&self, longest: Time) -> Vec<String> {
        texts(&self.shared().state().index.interrupted(longest))
    }

    /// Pending records of a turn, whatever is known of its context.
    #[must_use]
    pub fn members(&self, origin: &crate::Origin) -> Vec<String> {
        let key = origin_key(&origin.run, &origin.conversation, &origin.boundary);
        texts(&self.shared().state().index.members(key))
    }

    /// A part of the list of all records.
    ///
    /// # Errors
    /// When a record can't be read, or the store stopped.
    pub fn page(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, StoreError> {
        self.shared().read(|state| {
            let after = after.map(|cursor| (cursor.created_at, Id::new(&cursor.id)));
            let mut ids = state.index.page(after, limit.saturating_add(1));
            let more = ids.len() > limit;
            ids.truncate(limit);
            let mut records = Vec::with_capacity(ids.len());
            for id in &ids {
                records.extend(state.record(id)?);
            }
            let last = records.last().filter(|_| more);
            let next = last.map(|record| Cursor {
                created_at: record.created_at,
                id: record.continuation_id.clone(),
            });
            Ok(Page { records, next })
        })
    }

    /// Figures; takes no longer with more records.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.shared().state();
        Stats {
            counts: state.index.counts,
            oldest_pending: state.index.oldest_pending(),
            contexts: state.contexts.all.len(),
            context_bytes: state.contexts.bytes,
            log_used: state.end - state.tail,
            log_capacity: state.log.capacity,
            behind: state.dirty.len(),
        }
    }

    /// What is settled and beyond these bounds, oldest first, at most `count` of each. Records go
    /// by count and age, texts likewise; the change itself is the caller's.
    #[must_use]
    pub fn overdue(&self, now: Time, keep: &Retention, count: usize) -> Overdue {
        let state = self.shared().state();
        let before = |age: i64| now.plus_ms(age.saturating_neg());
        let remove = state.index.to_remove(
            keep.terminal_max_records,
            before(keep.terminal_max_age_ms),
            count,
        );
        let strip = state.index.to_strip(
            keep.captured_text_max_records,
            before(keep.captured_text_max_age_ms),
            count,
        );
        Overdue {
            remove: texts(&remove),
            strip: texts(&strip),
        }
    }

    /// The canonical text of a snapshot. `None` if it is not there, or not what it was: then the
    /// fixed answer takes the place of a synthesis.
    ///
    /// # Errors
    /// When the log can't be read, or the store stopped.
    pub fn blob(&self, digest: &str) -> Result<Option<String>, StoreError> {
        let digest: Option<Digest> = hex::decode(digest).ok().and_then(|d| d.try_into().ok());
        let Some(digest) = digest else {
            return Ok(None);
        };
        self.shared().read(|state| state.context(&digest))
    }

    /// Makes a change, whole or not at all. It is staged when this returns, so that what comes
    /// later sees it, and durable when the [`Update`] resolves. A change that writes nothing
    /// resolves when all that it could have seen is durable.
    ///
    /// The closure must not use the store, only what it is given.
    pub fn update<T, E>(
        &self,
        change: impl FnOnce(&mut Txn<'_, F>) -> Result<T, E>,
    ) -> Update<T, E> {
        self.shared().update(false, change)
    }

    /// The same for what can be refused without harm, a claim or a result: it is refused with
    /// [`UpdateError::Busy`] already when three quarters of the log are waiting for a checkpoint.
    pub fn admit<T, E>(
        &self,
        change: impl FnOnce(&mut Txn<'_, F>) -> Result<T, E>,
    ) -> Update<T, E> {
        self.shared().update(true, change)
    }

    /// The turn was committed: all of its pending records that have a snapshot are pinned to it, at
    /// once. Blocks for as long as a disk needs when they are very large.
    pub fn activate(
        &self,
        origin: &crate::Origin,
        at: Time,
    ) -> Update<usize, std::convert::Infallible> {
        self.shared().activate(origin, at)
    }

    /// Puts what has changed into files and packs, at most so much as [`Limits`] allow at once, and
    /// says whether there is more.
    ///
    /// # Errors
    /// When the disk fails; the store stops then.
    pub fn checkpoint(&self) -> Result<bool, StoreError> {
        self.shared().checkpoint()
    }

    /// Writes what is staged, without threads.
    ///
    /// # Errors
    /// When the disk fails; the store stops then.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.shared().flush_by_hand()
    }

    /// Without threads: updates wait for [`Store::flush`] from now on, or no longer.
    pub fn hold(&self, held: bool) {
        self.shared().hold(held);
    }

    /// Compares all files of records with what the packs say. With threads this is done by itself
    /// after opening.
    ///
    /// # Errors
    /// When one differs or can't be read; the store stops then.
    pub fn verify(&self) -> Result<(), StoreError> {
        self.shared().verify()
    }

    /// A write or a sync failed, or something was damaged: nothing more is accepted.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared().state().stopped
    }

    /// Writes everything into its place. Updates may still come, and are in the log.
    ///
    /// # Errors
    /// When the disk fails; what was accepted is in the log then.
    pub fn close(&self) -> Result<(), StoreError> {
        self.shared().settle()
    }
}

fn texts(ids: &[Id]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// A change under way.
#[must_use = "a change is durable only when this has resolved"]
#[derive(Debug)]
pub struct Update<T, E> {
    outcome: Option<Result<T, UpdateError<E>>>,
    done: Option<oneshot::Receiver<()>>,
}

impl<T, E> Update<T, E> {
    pub(crate) const fn new(
        outcome: Result<T, UpdateError<E>>,
        done: Option<oneshot::Receiver<()>>,
    ) -> Self {
        Self {
            outcome: Some(outcome),
            done,
        }
    }

    /// Waits for it, by blocking the thread.
    ///
    /// # Errors
    /// Why the change was not made, or can't be told to be durable.
    pub fn wait(mut self) -> Result<T, UpdateError<E>> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => thread::park(),
            }
        }
    }
}

// Nothing in it is pinned.
impl<T, E> Unpin for Update<T, E> {}

impl<T, E> Future for Update<T, E> {
    type Output = Result<T, UpdateError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(done) = &mut self.done {
            match Pin::new(done).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => self.done = None,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(UpdateError::Stopped)),
            }
        }
        Poll::Ready(self.outcome.take().unwrap_or(Err(UpdateError::Stopped)))
    }
}
