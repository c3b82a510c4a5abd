//! The requests that are under way or were answered lately. In memory only: after a restart of the
//! worker nobody knows them.

use super::record::{Record, Settlement};
use ipc_proto::ConversationId;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Bytes of all records together; above it the oldest answers are forgotten before their time.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How much is kept, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// `webhook.retentionMs`, from the end of a request.
    pub retention: Duration,
    /// `webhook.maxStoredRequests`.
    pub most: usize,
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Its conversation has one under way at this endpoint.
    Busy,
    /// As many as are stored are under way.
    TooMany,
}

/// The store. Time comes from outside.
#[derive(Debug)]
pub struct Requests {
    bounds: Bounds,
    all: HashMap<Uuid, Record>,
    /// Ended ones, the oldest first.
    ended: VecDeque<(Instant, Uuid)>,
    busy: HashSet<(usize, ConversationId)>,
    bytes: usize,
}

impl Requests {
    /// An empty store.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            all: HashMap::new(),
            ended: VecDeque::new(),
            busy: HashSet::new(),
            bytes: 0,
        }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// [`Full`]; nothing is stored then.
    pub fn admit(&mut self, record: Record, now: Instant) -> Result<(), Full> {
        self.forget(now);
        let key = (record.endpoint, record.conversation_id.clone());
        if self.busy.contains(&key) {
            return Err(Full::Busy);
        }
        if self.all.len() >= self.bounds.most && !self.drop_oldest() {
            return Err(Full::TooMany);
        }
        self.busy.insert(key);
        self.bytes += record.size();
        self.all.insert(record.request_id, record);
        Ok(())
    }

    /// Its run works.
    pub fn start(&mut self, id: Uuid, at: Timestamp) {
        if let Some(record) = self.all.get_mut(&id) {
            record.start(at);
        }
    }

    /// Ends a request; returns the record as it is told. `None` for one that has ended before.
    pub fn settle(
        &mut self,
        id: Uuid,
        settlement: Settlement,
        at: Timestamp,
        now: Instant,
    ) -> Option<Record> {
        let record = self.all.get_mut(&id)?;
        let before = record.size();
        if !record.settle(settlement, at) {
            return None;
        }
        let told = record.clone();
        self.bytes = self.bytes - before + told.size();
        self.busy
            .remove(&(told.endpoint, told.conversation_id.clone()));
        self.ended.push_back((now, id));
        while self.bytes > MAX_BYTES && self.drop_oldest() {}
        Some(told)
    }

    /// Takes back a request whose run was refused.
    pub fn withdraw(&mut self, id: Uuid) {
        if let Some(record) = self.all.remove(&id) {
            self.bytes -= record.size();
            self.busy.remove(&(record.endpoint, record.conversation_id));
        }
    }

    /// A copy of a record that is still kept.
    pub fn read(&mut self, id: Uuid, now: Instant) -> Option<Record> {
        self.forget(now);
        self.all.get(&id).cloned()
    }

    fn forget(&mut self, now: Instant) {
        let retention = self.bounds.retention;
        while let Some((at, _)) = self.ended.front()
            && now.duration_since(*at) >= retention
        {
            self.drop_oldest();
        }
    }

    /// Forgets the request that ended first. False when none has ended.
    fn drop_oldest(&mut self) -> bool {
        let Some((_, id)) = self.ended.pop_front() else {
            return false;
        };
        if let Some(record) = self.all.remove(&id) {
            self.bytes -= record.size();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::record::Status;
    use super::super::record::tests::{failed, record, succeeded};
    use super::*;
    use proptest::prelude::*;

    const RETENTION: Duration = Duration::from_secs(300);

    fn requests(most: usize) -> Requests {
        Requests::new(Bounds {
            retention: RETENTION,
            most,
        })
    }

    fn one(n: u128, endpoint: usize, conversation: &str) -> Record {
        Record {
            request_id: Uuid::from_u128(n),
            ..record(endpoint, conversation)
        }
    }

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    #[test]
    fn one_conversation_is_busy_at_one_endpoint_until_its_request_ends() {
        let (mut requests, now) = (requests(10), Instant::now());
        requests.admit(one(1, 0, "c"), now).unwrap();
        assert_eq!(requests.admit(one(2, 0, "c"), now), Err(Full::Busy));
        assert_eq!(requests.read(id(2), now), None, "not stored");
        requests.admit(one(3, 1, "c"), now).unwrap();
        requests.admit(one(4, 0, "d"), now).unwrap();
        requests
            .settle(id(1), failed("x"), Timestamp::now(), now)
            .unwrap();
        requests.admit(one(5, 0, "c"), now).unwrap();
        requests.withdraw(id(5));
        assert_eq!(requests.read(id(5), now), None);
        requests.admit(one(6, 0, "c"), now).unwrap();
    }

    #[test]
    fn what_ended_is_kept_for_its_time_and_what_works_for_longer() {
        let (mut requests, now) = (requests(10), Instant::now());
        requests.admit(one(1, 0, "a"), now).unwrap();
        requests.admit(one(2, 0, "b"), now).unwrap();
        requests
            .settle(id(1), succeeded("t"), Timestamp::now(), now)
            .unwrap();
        let almost = now + RETENTION - Duration::from_millis(1);
        assert_eq!(
            requests.read(id(1), almost).unwrap().status,
            Status::Succeeded
        );
        assert_eq!(requests.read(id(1), now + RETENTION), None);
        assert_eq!(
            requests.read(id(2), now + 9 * RETENTION).unwrap().status,
            Status::Accepted
        );
    }

    #[test]
    fn the_oldest_answer_makes_room_and_work_does_not() {
        let (mut requests, now) = (requests(2), Instant::now());
        requests.admit(one(1, 0, "a"), now).unwrap();
        requests.admit(one(2, 0, "b"), now).unwrap();
        assert_eq!(requests.admit(one(3, 0, "c"), now), Err(Full::TooMany));
        requests
            .settle(id(2), failed("x"), Timestamp::now(), now)
            .unwrap();
        requests.admit(one(3, 0, "c"), now).unwrap();
        assert_eq!(requests.read(id(2), now), None);
        assert!(requests.read(id(1), now).is_some() && requests.read(id(3), now).is_some());
    }

    #[test]
    fn a_late_settlement_is_dropped() {
        let (mut requests, now) = (requests(2), Instant::now());
        requests.admit(one(1, 0, "a"), now).unwrap();
        requests
            .settle(id(1), failed("timeout"), Timestamp::now(), now)
            .unwrap();
        assert_eq!(
            requests.settle(id(1), succeeded("late"), Timestamp::now(), now),
            None
        );
        let kept = requests.read(id(1), now).unwrap();
        assert_eq!((kept.status, kept.text), (Status::Failed, None));
        assert_eq!(
            requests.settle(id(9), succeeded(""), Timestamp::now(), now),
            None
        );
    }

    #[test]
    fn answers_are_bounded_in_bytes_together() {
        let (mut requests, now) = (requests(100), Instant::now());
        let large = "x".repeat(16 * 1024 * 1024);
        for n in 1..=5 {
            requests.admit(one(n, 0, &n.to_string()), now).unwrap();
            let told = requests.settle(id(n), succeeded(&large), Timestamp::now(), now);
            assert_eq!(told.unwrap().text.unwrap().len(), large.len());
        }
        let kept = (1..=5).filter(|n| requests.read(id(*n), now).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [3, 4, 5]);
    }

    proptest! {
        #[test]
        fn the_count_of_bytes_and_of_records_is_right(
            steps in proptest::collection::vec((0..5u8, 0..6u128, 0..400u64), 0..60)
        ) {
            let (mut requests, mut now) = (requests(3), Instant::now());
            for (what, n, seconds) in steps {
                match what {
                    0 | 1 if !requests.all.contains_key(&id(n)) => {
                        let _ = requests.admit(one(n, 0, &n.to_string()), now);
                    }
                    2 => { requests.settle(id(n), succeeded("text"), Timestamp::now(), now); }
                    3 if requests.all.get(&id(n)).is_some_and(|r| !r.status.is_final()) => requests.withdraw(id(n)),
                    _ => now += Duration::from_secs(seconds),
                }
                let sizes: usize = requests.all.values().map(Record::size).sum();
                prop_assert_eq!(requests.bytes, sizes);
                prop_assert!(requests.all.len() <= 3);
                let working = requests.all.values().filter(|r| !r.status.is_final()).count();
                prop_assert_eq!(requests.busy.len(), working);
                prop_assert_eq!(requests.ended.len(), requests.all.len() - working);
            }
        }
    }
}
