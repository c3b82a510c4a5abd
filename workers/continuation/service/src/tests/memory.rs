//! A store in memory with the same answers. What it can't show, crashes and disks, is the real store's to test.

use crate::error::Rejection;
use crate::keeper::{Change, Decision, Figures, Keeper, Need};
use async_trait::async_trait;
use continuation_record::cursor::Cursor;
use continuation_record::event::{Event, Outcome};
use continuation_record::health::Standing;
use continuation_record::validate::{decode, encode};
use continuation_record::{Record, State, Time, state};
use std::collections::BTreeMap;
use std::sync::Mutex;

#[derive(Default, Clone)]
struct Kept {
    /// As it stands on a disk, so that each record passes writer and reader.
    records: BTreeMap<String, Vec<u8>>,
    blobs: BTreeMap<String, String>,
}

#[derive(Default)]
pub(crate) struct Memory {
    kept: Mutex<Kept>,
    /// Refuses the next changes.
    pub(crate) refuse: Mutex<Option<Rejection>>,
}

struct Draft<'a>(&'a mut Kept);

impl Kept {
    fn read(&self, id: &str) -> Option<Record> {
        self.records.get(id).map(|bytes| decode(bytes).unwrap())
    }

    fn all(&self) -> Vec<Record> {
        self.records
            .values()
            .map(|bytes| decode(bytes).unwrap())
            .collect()
    }
}

impl Change for Draft<'_> {
    fn get(&mut self, id: &str) -> Result<Option<Record>, Rejection> {
        Ok(self.0.read(id))
    }

    fn by_claim(
        &mut self,
        server: &str,
        run: &str,
        task: &str,
    ) -> Result<Option<Record>, Rejection> {
        Ok(self.0.all().into_iter().find(|record| {
            record.server_name == server && record.origin_run_id == run && record.task_key == task
        }))
    }

    fn active_count(&self) -> usize {
        self.0
            .all()
            .iter()
            .filter(|record| !record.state.is_settled())
            .count()
    }

    fn active_of(&self, fingerprint: &str) -> usize {
        let of = |record: &&Record| {
            !record.state.is_settled() && record.claim_fingerprint == fingerprint
        };
        self.0.all().iter().filter(of).count()
    }

    fn put(&mut self, record: Record) -> Result<(), Rejection> {
        let bytes = encode(&record).map_err(|_| Rejection::internal())?;
        self.0.records.insert(record.continuation_id, bytes);
        Ok(())
    }

    fn put_blob(&mut self, digest: &str, canonical: &str) -> Result<(), Rejection> {
        self.0.blobs.insert(digest.to_owned(), canonical.to_owned());
        Ok(())
    }
}

impl Memory {
    pub(crate) fn record(&self, id: &str) -> Record {
        self.kept.lock().unwrap().read(id).unwrap()
    }

    pub(crate) fn count(&self) -> usize {
        self.kept.lock().unwrap().records.len()
    }

    /// Changes a record behind the service's back.
    pub(crate) fn tamper(&self, id: &str, change: impl FnOnce(&mut Record)) {
        let mut record = self.record(id);
        change(&mut record);
        let bytes = encode(&record).unwrap();
        self.kept
            .lock()
            .unwrap()
            .records
            .insert(id.to_owned(), bytes);
    }

    pub(crate) fn tamper_blobs(&self, change: impl Fn(&str) -> Option<String>) {
        let mut kept = self.kept.lock().unwrap();
        kept.blobs = std::mem::take(&mut kept.blobs)
            .into_iter()
            .filter_map(|(digest, text)| Some((digest, change(&text)?)))
            .collect();
    }

    fn pending(&self) -> Vec<Record> {
        let mut records = self.kept.lock().unwrap().all();
        records.retain(|record| record.state.is_pending());
        records.sort_by_key(|record| (record.updated_at, record.continuation_id.clone()));
        records
    }
}

#[async_trait]
impl Keeper for Memory {
    fn get(&self, id: &str) -> Result<Option<Record>, Rejection> {
        Ok(self.kept.lock().unwrap().read(id))
    }

    fn of_origin(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
    ) -> Result<Vec<Record>, Rejection> {
        let mut records = self.pending();
        records.retain(|record| {
            record.origin_run_id == run
                && record.origin_conversation_id == conversation
                && record.history_boundary.as_deref() == Some(boundary)
        });
        Ok(records)
    }

    fn due(&self, waiting: Time, count: usize) -> Vec<String> {
        let due = |record: &Record| {
            let later = record.next_attempt_at.is_some_and(|next| next > waiting);
            let candidate = matches!(
                record.state,
                State::ResultReceived | State::DeliveryRetry | State::ReadyToDeliver
            );
            candidate && !later && !state::is_in_flight(record)
        };
        let records = self.pending().into_iter().filter(due);
        records
            .map(|record| record.continuation_id)
            .take(count)
            .collect()
    }

    fn overdue(&self, now: Time, count: usize) -> Vec<String> {
        let records = self
            .pending()
            .into_iter()
            .filter(|record| record.deadline <= now);
        records
            .map(|record| record.continuation_id)
            .take(count)
            .collect()
    }

    fn interrupted(&self) -> Vec<String> {
        self.pending()
            .into_iter()
            .map(|record| record.continuation_id)
            .collect()
    }

    fn page(&self, after: Option<&Cursor>, count: usize) -> Result<(Vec<Record>, bool), Rejection> {
        let mut records = self.kept.lock().unwrap().all();
        let key = |record: &Record| (record.created_at, record.continuation_id.clone());
        records.sort_by_key(|record| std::cmp::Reverse(key(record)));
        if let Some(after) = after {
            let after = (after.created_at, after.continuation_id.clone());
            records.retain(|record| key(record) < after);
        }
        let more = records.len() > count;
        records.truncate(count);
        Ok((records, more))
    }

    fn figures(&self, waiting: Time) -> Figures {
        let records = self.kept.lock().unwrap().all();
        let mut standing = Standing::default();
        for record in &records {
            let place = State::ALL.iter().position(|state| *state == record.state);
            standing.by_state[place.unwrap()] += 1;
            let missing = record
                .receipt
                .as_ref()
                .and_then(|receipt| receipt.history_recorded);
            standing.history_degraded += usize::from(missing == Some(false));
        }
        let pending = self.pending();
        let later = |record: &&Record| record.next_attempt_at.is_none_or(|next| next <= waiting);
        Figures {
            standing,
            due: pending.iter().filter(later).count(),
            oldest_pending: pending.iter().map(|record| record.created_at).min(),
            compacted: records
                .iter()
                .filter(|record| record.compacted_at.is_some())
                .count(),
            captured_text: records
                .iter()
                .filter(|r| r.state.is_settled() && r.synthesized_text.is_some())
                .count(),
            more: serde_json::Map::new(),
        }
    }

    fn blob(&self, digest: &str) -> Result<Option<Vec<u8>>, Rejection> {
        let kept = self.kept.lock().unwrap();
        Ok(kept.blobs.get(digest).map(|text| text.clone().into_bytes()))
    }

    async fn change<'a>(&'a self, _: Need, decision: Decision<'a>) -> Result<(), Rejection> {
        if let Some(refused) = self.refuse.lock().unwrap().clone() {
            return Err(refused);
        }
        let mut kept = self.kept.lock().unwrap();
        let mut draft = kept.clone();
        decision(&mut Draft(&mut draft))?;
        *kept = draft;
        Ok(())
    }

    async fn activate(
        &self,
        run: &str,
        conversation: &str,
        boundary: &str,
        now: Time,
    ) -> Result<(), Rejection> {
        for record in self.of_origin(run, conversation, boundary)? {
            let outcome = state::apply(&record, Event::Activate, now);
            if let Outcome::Changed(next, _) = outcome {
                self.tamper(&record.continuation_id, |record| *record = *next);
            }
        }
        Ok(())
    }

    async fn retain(&self, _now: Time) -> Result<(), Rejection> {
        Ok(())
    }

    fn is_failed(&self) -> bool {
        false
    }
}
