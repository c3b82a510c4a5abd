//! The store's one lock, its threads, and who waits for whom.

use crate::checkpoint::Checkpointer;
use crate::error::{StoreError, UpdateError};
use crate::fs::Fs;
use crate::log::Book;
use crate::secret::Secret;
use crate::state::{Draft, State};
use crate::store::Update;
use crate::txn::Txn;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest time for which a change is in the log alone while nothing else happens.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Shared<F: Fs> {
    state: Mutex<State<F>>,
    /// Something is to be written.
    work: Condvar,
    /// A checkpoint is due.
    due: Condvar,
    checkpointer: Mutex<Checkpointer>,
    pub(crate) secret: Secret,
    pub(crate) fs: Arc<F>,
    /// No thread writes; whoever stages does. So it is while the store is opened.
    manual: AtomicBool,
    held: AtomicBool,
    shut: AtomicBool,
    _owner: Box<dyn Any + Send + Sync>,
}

/// A poisoned lock: a thread panicked with it, and what it left may be half of a change. The store
/// is stopped, so nothing is done with it but to say so.
fn lock<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, bool) {
    match mutex.lock() {
        Ok(guard) => (guard, false),
        Err(poisoned) => (poisoned.into_inner(), true),
    }
}

impl<F: Fs> Shared<F> {
    pub(crate) fn new(
        state: State<F>,
        checkpointer: Checkpointer,
        secret: Secret,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            fs: Arc::clone(&state.fs),
            state: Mutex::new(state),
            work: Condvar::new(),
            due: Condvar::new(),
            checkpointer: Mutex::new(checkpointer),
            secret,
            manual: AtomicBool::new(true),
            held: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            _owner: owner,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<F>> {
        let (mut state, poisoned) = lock(&self.state);
        if poisoned && !state.stopped {
            state.stop();
        }
        state
    }

    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&State<F>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.state();
        if state.stopped {
            return Err(StoreError::Stopped);
        }
        read(&state).inspect_err(|error| {
            tracing::error!(%error, "the store stops");
            state.stop();
        })
    }

    pub(crate) fn update<T, E>(
        &self,
        admission: bool,
        change: impl FnOnce(&mut Txn<'_, F>) -> Result<T, E>,
    ) -> Update<T, E> {
        let mut state = self.state();
        if state.stopped {
            return Update::new(Err(UpdateError::Stopped), None);
        }
        let mut txn = Txn::new(&state);
        let answer = change(&mut txn);
        let (draft, failed) = (std::mem::take(&mut txn.draft), txn.failed.take());
        if let Some(error) = failed {
            tracing::error!(%error, "the store stops");
            state.stop();
            return Update::new(Err(UpdateError::Stopped), None);
        }
        match answer {
            Err(refusal) => Update::new(Err(UpdateError::Refused(refusal)), None),
            Ok(answer) => self.stage(state, draft, admission, answer),
        }
    }

    pub(crate) fn stage<T, E>(
        &self,
        mut state: MutexGuard<'_, State<F>>,
        draft: Draft,
        admission: bool,
        answer: T,
    ) -> Update<T, E> {
        if let Err(error) = state.stage(draft, admission) {
            if matches!(error, UpdateError::Busy) {
                self.due.notify_one();
            }
            return Update::new(Err(error), None);
        }
        if state.durable >= state.end {
            return Update::new(Ok(answer), None);
        }
        let (sender, receiver) = oneshot::channel();
        let end = state.end;
        state.waiters.push_back((end, sender));
        if wants_checkpoint(&state) {
            self.due.notify_one();
        }
        if self.manual.load(Ordering::Relaxed) {
            drop(state);
            if !self.held.load(Ordering::Relaxed) {
                // What goes wrong, who waits is told.
                let _ = self.flush();
            }
        } else {
            self.work.notify_one();
        }
        Update::new(Ok(answer), Some(receiver))
    }

    /// Writes what is staged: all of it, then one sync.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.stopped {
            return Err(StoreError::Stopped);
        }
        let groups: Vec<_> = state.groups.drain(..).map(Arc::new).collect();
        if groups.is_empty() {
            return Ok(());
        }
        state.flying.clone_from(&groups);
        let log = state.log.clone();
        let end = state.end;
        drop(state);
        let written = groups
            .iter()
            .try_for_each(|group| log.write(group.at, &group.bytes))
            .and_then(|()| log.sync());
        let mut state = self.state();
        state.flying.clear();
        if let Err(error) = written {
            self.fail(&mut state, &error);
            return Err(error);
        }
        if state.stopped {
            return Err(StoreError::Stopped);
        }
        state.reaches(end);
        while let Some((at, _)) = state.waiters.front()
            && *at <= end
        {
            if let Some((_, waiter)) = state.waiters.pop_front() {
                // Nobody may be waiting any more.
                let _ = waiter.send(());
            }
        }
        Ok(())
    }

    /// Writes what is staged, if no thread does.
    pub(crate) fn flush_by_hand(&self) -> Result<(), StoreError> {
        if self.manual.load(Ordering::Relaxed) {
            self.flush()
        } else {
            self.wait_durable()
        }
    }

    fn fail(&self, state: &mut State<F>, error: &StoreError) {
        tracing::error!(%error, "the store stops");
        state.stop();
        self.work.notify_all();
        self.due.notify_all();
    }

    /// A checkpoint, if there is something to put in its place; true if there is more.
    pub(crate) fn checkpoint(&self) -> Result<bool, StoreError> {
        let (mut checkpointer, poisoned) = lock(&self.checkpointer);
        if poisoned || self.state().stopped {
            return Err(StoreError::Stopped);
        }
        let done = checkpointer.run(self);
        if let Err(error) = &done {
            self.fail(&mut self.state(), error);
        }
        done
    }

    /// The head of the log, to look at or to change.
    pub(crate) fn book<T>(&self, use_: impl FnOnce(&mut Book) -> T) -> Result<T, StoreError> {
        let (mut checkpointer, poisoned) = lock(&self.checkpointer);
        if poisoned {
            return Err(StoreError::Stopped);
        }
        Ok(use_(&mut checkpointer.book))
    }

    /// Everything is in its place.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.flush_by_hand()?;
        while self.checkpoint()? {}
        Ok(())
    }

    fn wait_durable(&self) -> Result<(), StoreError> {
        let update: Update<(), ()> = self.update(false, |_| Ok(()));
        update.wait().map_err(|_| StoreError::Stopped)
    }

    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    pub(crate) fn shut(&self) {
        // With the lock, so that no thread is between looking and waiting.
        let state = self.state();
        self.shut.store(true, Ordering::Relaxed);
        self.work.notify_all();
        self.due.notify_all();
        drop(state);
    }

    fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }

    pub(crate) fn start(this: &Arc<Self>) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
        this.manual.store(false, Ordering::Relaxed);
        let thread = |name: &str, body: fn(&Self)| {
            let this = Arc::clone(this);
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || body(&this))
        };
        Ok(vec![
            thread("log", Self::write)?,
            thread("checkpoint", Self::keep_up)?,
            thread("verify", |this| {
                // It has said so itself.
                let _ = this.verify();
            })?,
        ])
    }

    fn write(&self) {
        loop {
            let mut state = self.state();
            while state.groups.is_empty() && !state.stopped {
                if self.is_shut() {
                    return;
                }
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            if self.flush().is_err() {
                return;
            }
        }
    }

    fn keep_up(&self) {
        loop {
            let mut state = self.state();
            loop {
                if self.is_shut() || state.stopped {
                    return;
                }
                if wants_checkpoint(&state) {
                    break;
                }
                let (next, waited) = self
                    .due
                    .wait_timeout(state, CHECKPOINT_EVERY)
                    .unwrap_or_else(PoisonError::into_inner);
                state = next;
                let idle = waited.timed_out();
                if idle && (!state.dirty.is_empty() || !state.contexts.swept.is_empty()) {
                    break;
                }
            }
            drop(state);
            if self.checkpoint().is_err() {
                return;
            }
        }
    }

    /// Compares the files of records with the packs.
    pub(crate) fn verify(&self) -> Result<(), StoreError> {
        let mut ids: Vec<_> = {
            let state = self.state();
            let filed = state.index.slots().filter(|slot| slot.filed);
            filed.map(|slot| slot.meta.id.clone()).collect()
        };
        // Of several that differ the same one is told each time.
        ids.sort();
        for id in ids {
            if self.is_shut() {
                return Ok(());
            }
            let found = crate::verify::one(self, &id);
            if let Err(error) = found {
                self.fail(&mut self.state(), &error);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A quarter of the log, or a whole checkpoint's worth, waits.
fn wants_checkpoint<F: Fs>(state: &State<F>) -> bool {
    let durable = state
        .dirty
        .first_key_value()
        .map_or(state.tail < state.durable, |((frame, _), _)| {
            *frame < state.durable
        });
    durable
        && (state.end - state.tail > state.log.capacity / 4
            || state.dirty.len() >= state.limits.checkpoint_items)
}
