//! What was promised, and whether it is held.

use super::World;
use continuation_record::{Payload, Record, State};
use continuation_store::fs::Folder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Every record as it was last seen durable, and what was done outside because of it.
#[derive(Debug, Default)]
pub(super) struct Truth {
    records: BTreeMap<String, Record>,
    /// What the step under way may have changed.
    touched: BTreeSet<String>,
    everything: bool,
    /// Times that a model may have been called.
    pub(super) asked: BTreeMap<String, usize>,
    /// Times that something may have been posted, and nobody has said that it was not.
    pub(super) posted: BTreeMap<String, usize>,
    /// The texts that models gave.
    pub(super) texts: BTreeMap<String, String>,
    /// Hashes of the payloads that were accepted.
    accepted: BTreeMap<String, String>,
    pub(super) counts: BTreeMap<String, usize>,
    pub(super) wrong: Vec<String>,
}

impl Truth {
    pub(super) fn say(&mut self, what: &str) {
        self.wrong.push(what.to_owned());
    }

    pub(super) fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn is_known(&self, id: &str) -> bool {
        self.records.contains_key(id)
    }

    /// Whether the name of what was claimed so belongs to another task.
    pub(super) fn is_another(&self, claim: &Value) -> bool {
        self.records.values().any(|record| {
            claim["taskKey"] == record.task_key.as_str()
                && claim["taskHash"] != record.task_hash.as_str()
        })
    }

    pub(super) fn record(&self, id: &str) -> Option<&Record> {
        self.records.get(id)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.records.keys().cloned().collect()
    }

    pub(super) fn begin(&mut self) {
        self.touched.clear();
        self.everything = false;
    }

    /// The step may change this one.
    pub(super) fn touch(&mut self, id: &str) {
        self.touched.insert(id.to_owned());
    }

    /// The step may change any.
    pub(super) fn touch_all(&mut self) {
        self.everything = true;
    }

    pub(super) fn accept(&mut self, id: &str, payload: &str) {
        self.count("results accepted");
        if let Ok(payload) = Payload::parse(payload) {
            self.accepted.insert(id.to_owned(), payload.hash());
        }
    }

    fn is_open(&self, id: &str) -> bool {
        self.everything || self.touched.contains(id)
    }

    /// Takes over what is there now.
    fn take(&mut self, id: &str, now: Option<Record>) {
        match now {
            Some(record) => {
                let before = self.records.get(id).map(|record| record.state);
                if before != Some(record.state) {
                    self.count(record.state.name());
                }
                self.check(&record);
                self.records.insert(id.to_owned(), record);
            }
            None => {
                if let Some(old) = self.records.remove(id)
                    && !old.state.is_settled()
                {
                    self.say("a record is gone that was not settled");
                }
                self.accepted.remove(id);
                self.asked.remove(id);
                self.posted.remove(id);
                self.texts.remove(id);
            }
        }
    }

    fn check(&mut self, record: &Record) {
        let id = &record.continuation_id;
        if let Some(hash) = self.accepted.get(id)
            && record.result_payload_hash.as_ref() != Some(hash)
        {
            self.say("an accepted result is another one now, or gone");
        }
        if let (Some(text), Some(there)) = (self.texts.get(id), &record.synthesized_text)
            && text != there
        {
            self.say("a text is another one now");
        }
        if record.state == State::Delivered
            && let Some(before) = self.records.get(id)
            && before.state == State::Delivered
            && before.receipt.as_ref().map(|r| (r.kind, &r.delivery_id))
                != record.receipt.as_ref().map(|r| (r.kind, &r.delivery_id))
        {
            self.say("a receipt is another one now");
        }
    }
}

impl World {
    /// What the step has done to it is durable.
    pub(super) fn refresh(&mut self, id: &str) {
        if self.machine.is_down() {
            return;
        }
        match self.machine.process().store.get(id) {
            Ok(now) => self.truth.take(id, now.map(Arc::unwrap_or_clone)),
            Err(e) => self.truth.say(&format!("a record can't be read: {e}")),
        }
    }

    fn of_run(&self, run: &str) -> Vec<String> {
        let records = self.truth.records.values();
        records
            .filter(|record| record.origin_run_id == run)
            .map(|record| record.continuation_id.clone())
            .collect()
    }

    pub(super) fn touch_run(&mut self, run: &str) {
        for id in self.of_run(run) {
            self.truth.touch(&id);
        }
    }

    pub(super) fn refresh_run(&mut self, run: &str) {
        for id in self.of_run(run) {
            self.refresh(&id);
        }
    }

    pub(super) fn refresh_all(&mut self) {
        for id in self.truth.ids() {
            self.refresh(&id);
        }
    }

    fn all(&mut self) -> BTreeMap<String, Record> {
        match self.machine.process().store.page(None, 100_000) {
            Ok(page) => page
                .records
                .into_iter()
                .map(|record| (record.continuation_id.clone(), Arc::unwrap_or_clone(record)))
                .collect(),
            Err(e) => {
                self.truth.say(&format!("the records can't be read: {e}"));
                BTreeMap::new()
            }
        }
    }

    /// Everything that is held against everything that was promised.
    pub(super) fn compare(&mut self, violations: &mut Vec<String>) {
        if self.machine.is_down() {
            return;
        }
        let there = self.all();
        self.differences(&there);
        let stats = self.machine.process().store.stats();
        for state in State::ALL {
            let count = there.values().filter(|r| r.state == state).count();
            if stats.counts.of(state) != count {
                self.truth
                    .say(&format!("{} are counted wrong", state.name()));
            }
        }
        let references: HashSet<_> = there
            .values()
            .filter_map(|record| record.origin_context_ref.as_ref())
            .map(|reference| (reference.digest.clone(), reference.bytes))
            .collect();
        let bytes: u64 = references.iter().map(|(_, bytes)| bytes).sum();
        if (stats.contexts, stats.context_bytes) != (references.len(), bytes) {
            self.truth.say("snapshots are counted wrong");
        }
        violations.append(&mut self.truth.wrong);
    }

    fn differences(&mut self, there: &BTreeMap<String, Record>) {
        let mut wrong = Vec::new();
        for (id, was) in &self.truth.records {
            if self.truth.is_open(id) {
                continue;
            }
            match there.get(id) {
                Some(is) if is == was => {}
                Some(is) => wrong.push(format!(
                    "{id} was {} and is {}",
                    was.state.name(),
                    is.state.name()
                )),
                None => wrong.push(format!("{id} was {} and is gone", was.state.name())),
            }
        }
        self.truth.wrong.extend(wrong);
    }

    /// The machine went down: what it left, what a start makes of it, and whether that may be.
    pub(super) fn restart(&mut self, violations: &mut Vec<String>) {
        self.lose_turns();
        self.drop_jobs();
        for _ in 0..10 {
            if let Err(e) = self.machine.reopen(&mut self.chance) {
                self.truth.say(&format!("{e:#}"));
                violations.append(&mut self.truth.wrong);
                return;
            }
            let there = self.all();
            self.differences(&there);
            // What the step under way may have removed.
            for id in self.truth.ids() {
                if self.truth.is_open(&id) && !there.contains_key(&id) {
                    self.truth.take(&id, None);
                }
            }
            // A claim that nobody was told of may be there, or not.
            for (id, record) in there {
                if !self.truth.is_known(&id) || self.truth.is_open(&id) {
                    self.truth.take(&id, Some(record));
                }
            }
            self.truth.begin();
            self.truth.touch_all();
            if self.chance.once_in(5) {
                self.machine.arm(&mut self.chance);
            }
            if self.machine.recover() && !self.machine.is_down() {
                break;
            }
        }
        self.refresh_all();
        self.truth.begin();
        self.settled();
        self.orphans();
        violations.append(&mut self.truth.wrong);
    }

    /// After a start nothing is under way.
    fn settled(&mut self) {
        let wrong: Vec<_> = self
            .truth
            .records
            .values()
            .filter(|record| {
                record.state == State::Synthesizing
                    || record.lease_owner.is_some()
                    || (record.state.is_pending() && record.delivery_started_at.is_some())
            })
            .map(|record| format!("{} is under way after a start", record.continuation_id))
            .collect();
        self.truth.wrong.extend(wrong);
    }

    /// No snapshot and no unfinished file is left that nobody needs.
    fn orphans(&mut self) {
        if self.machine.is_down() {
            return;
        }
        if let Err(e) = self.machine.process().store.close() {
            if !self.machine.is_down() {
                self.truth.say(&format!("no checkpoint can be made: {e}"));
            }
            return;
        }
        let world = self.machine.world();
        let files = world.names(Folder::Contexts).len();
        let contexts = self.machine.process().store.stats().contexts;
        if files > contexts {
            self.truth.say("a snapshot has a file that nobody needs");
        }
        for folder in Folder::ALL {
            if world
                .names(folder)
                .iter()
                .any(|name| name.ends_with(".tmp"))
            {
                self.truth.say("an unfinished file is left");
            }
        }
        if let Err(e) = self.machine.process().store.verify()
            && !self.machine.is_down()
        {
            self.truth.say(&format!("files and packs differ: {e}"));
        }
    }
}
