//! Which run may start now: a pure queue (facts 3.3).
//!
//! Each channel has a limiter of its own (`concurrency.maxConcurrentRuns`). Turns of one
//! conversation go one after the other; one that waits for its conversation holds no slot.

use ipc_proto::{ConversationId, Role, RunId};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};

/// The two bounds; `None` is no bound.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Runs of one channel at once.
    pub(crate) concurrent: Option<u32>,
    /// Runs of one channel that wait.
    pub(crate) pending: Option<u32>,
}

/// A run in the queue or at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    run: RunId,
    channel: String,
    conversation: ConversationId,
}

/// What becomes of a new run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// It has its slot.
    Admitted,
    /// It waits; [`Queue::finished`] will name it.
    Queued,
    /// `maxPendingRuns` are waiting already.
    Refused,
}

/// The queue.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    #[serde(skip)]
    limits: Limits,
    running: HashMap<RunId, Entry>,
    waiting: VecDeque<Entry>,
}

impl Queue {
    /// An empty queue.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// New bounds, for runs that come from now on; what runs or waits stays.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    fn at_work(&self, channel: &str) -> usize {
        self.running
            .values()
            .filter(|e| e.channel == channel)
            .count()
    }

    fn has_slot(&self, channel: &str) -> bool {
        // Answers to be put into words are bounded where they come from
        // (`continuations.limits.maxConcurrent`).
        if channel == Role::Continuation.name() {
            return true;
        }
        self.limits
            .concurrent
            .is_none_or(|most| self.at_work(channel) < most as usize)
    }

    fn conversation_is_free(&self, conversation: &ConversationId) -> bool {
        !self
            .running
            .values()
            .any(|e| e.conversation == *conversation)
    }

    /// Takes a new run.
    pub(crate) fn request(
        &mut self,
        run: RunId,
        channel: &str,
        conversation: ConversationId,
    ) -> Outcome {
        let entry = Entry {
            run,
            channel: channel.to_owned(),
            conversation,
        };
        let first_of_conversation = !self
            .waiting
            .iter()
            .any(|e| e.conversation == entry.conversation);
        if first_of_conversation
            && self.conversation_is_free(&entry.conversation)
            && self.has_slot(channel)
        {
            self.running.insert(entry.run.clone(), entry);
            return Outcome::Admitted;
        }
        let waiting = self.waiting.iter().filter(|e| e.channel == channel).count();
        if self
            .limits
            .pending
            .is_some_and(|most| waiting >= most as usize)
        {
            return Outcome::Refused;
        }
        self.waiting.push_back(entry);
        Outcome::Queued
    }

    /// A run ended, or left the queue; returns the runs that have their slots now, oldest first.
    #[must_use]
    pub(crate) fn finished(&mut self, run: &RunId) -> Vec<RunId> {
        self.running.remove(run);
        self.waiting.retain(|e| e.run != *run);
        let mut admitted = Vec::new();
        let mut passed: HashSet<ConversationId> = HashSet::new();
        let mut index = 0;
        while let Some(entry) = self.waiting.get(index).cloned() {
            // A later turn never overtakes an earlier one of its conversation.
            let free = !passed.contains(&entry.conversation)
                && self.conversation_is_free(&entry.conversation)
                && self.has_slot(&entry.channel);
            if free {
                self.waiting.remove(index);
                admitted.push(entry.run.clone());
                self.running.insert(entry.run.clone(), entry);
            } else {
                passed.insert(entry.conversation);
                index += 1;
            }
        }
        admitted
    }

    #[cfg(test)]
    fn is_waiting(&self, run: &RunId) -> bool {
        self.waiting.iter().any(|e| e.run == *run)
    }

    /// Runs of one channel that are at work, and that wait.
    pub(crate) fn counts_of(&self, channel: &str) -> (usize, usize) {
        let waiting = self.waiting.iter().filter(|e| e.channel == channel);
        (self.at_work(channel), waiting.count())
    }

    /// Runs at work and runs that wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn run(n: u32) -> RunId {
        RunId::parse(&format!("r{n}")).unwrap()
    }

    fn conversation(n: u32) -> ConversationId {
        ConversationId::parse(&format!("c{n}")).unwrap()
    }

    #[test]
    fn a_limit_is_per_channel() {
        let mut queue = Queue::new(Limits {
            concurrent: Some(1),
            pending: Some(1),
        });
        assert_eq!(
            queue.request(run(1), "openai", conversation(1)),
            Outcome::Admitted
        );
        assert_eq!(
            queue.request(run(2), "terminal", conversation(2)),
            Outcome::Admitted
        );
        assert_eq!(
            queue.request(run(3), "openai", conversation(3)),
            Outcome::Queued
        );
        assert_eq!(
            queue.request(run(4), "openai", conversation(4)),
            Outcome::Refused
        );
        assert_eq!(queue.finished(&run(1)), vec![run(3)]);
    }

    #[test]
    fn turns_of_one_conversation_queue_and_hold_no_slot() {
        let mut queue = Queue::new(Limits {
            concurrent: Some(2),
            pending: None,
        });
        assert_eq!(
            queue.request(run(1), "x", conversation(1)),
            Outcome::Admitted
        );
        assert_eq!(queue.request(run(2), "x", conversation(1)), Outcome::Queued);
        assert_eq!(
            queue.request(run(3), "x", conversation(2)),
            Outcome::Admitted
        );
        assert_eq!(queue.finished(&run(3)), vec![]);
        assert_eq!(queue.finished(&run(1)), vec![run(2)]);
    }

    #[test]
    fn a_waiting_run_can_leave() {
        let mut queue = Queue::new(Limits::default());
        let _ = queue.request(run(1), "x", conversation(1));
        let _ = queue.request(run(2), "x", conversation(1));
        assert!(queue.is_waiting(&run(2)));
        assert_eq!(queue.finished(&run(2)), vec![]);
        assert_eq!(queue.finished(&run(1)), vec![]);
        assert_eq!(queue.counts(), (0, 0));
    }

    #[test]
    fn no_bound_means_no_bound() {
        let mut queue = Queue::new(Limits::default());
        for n in 0..500 {
            assert_eq!(
                queue.request(run(n), "x", conversation(n)),
                Outcome::Admitted
            );
        }
    }

    proptest! {
        #[test]
        fn bounds_hold_order_holds_and_nobody_starves(
            steps in proptest::collection::vec((0u32..4, 0u32..3, any::<bool>()), 1..200),
            concurrent in 1u32..4,
        ) {
            let mut queue = Queue::new(Limits { concurrent: Some(concurrent), pending: None });
            let mut running: Vec<(u32, u32, u32)> = vec![];
            let mut asked: Vec<(u32, u32, u32)> = vec![];
            let mut started: Vec<u32> = vec![];
            let mut next = 0;
            let finish = |queue: &mut Queue, running: &mut Vec<(u32, u32, u32)>, asked: &[(u32, u32, u32)], started: &mut Vec<u32>| {
                let (n, ..) = running.remove(0);
                for admitted in queue.finished(&run(n)) {
                    let entry = asked.iter().find(|(n, ..)| run(*n) == admitted).unwrap();
                    running.push(*entry);
                    started.push(entry.0);
                }
            };
            for (c, ch, end) in steps {
                if end && !running.is_empty() {
                    finish(&mut queue, &mut running, &asked, &mut started);
                } else {
                    let entry = (next, c, ch);
                    asked.push(entry);
                    if queue.request(run(next), &format!("ch{ch}"), conversation(c)) == Outcome::Admitted {
                        running.push(entry);
                        started.push(next);
                    }
                    next += 1;
                }
                for ch in 0..3 {
                    prop_assert!(running.iter().filter(|(_, _, x)| *x == ch).count() <= concurrent as usize);
                }
                for c in 0..4 {
                    prop_assert!(running.iter().filter(|(_, x, _)| *x == c).count() <= 1);
                }
            }
            while !running.is_empty() {
                finish(&mut queue, &mut running, &asked, &mut started);
            }
            prop_assert_eq!(started.len(), asked.len());
            for c in 0..4 {
                let order: Vec<_> = started.iter().filter(|n| asked[**n as usize].1 == c).collect();
                prop_assert!(order.windows(2).all(|w| w[0] < w[1]));
            }
        }
    }
}
