//! The always-on roles: which process serves each, and when a new one is due.

use crate::input::ProcessId;
use crate::restart::{self, Decision, Ending, History, Policy};
use ipc_proto::Role;
use std::time::Instant;

/// Where a slot stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A process fills it.
    Filled(ProcessId),
    /// The next process starts at this time.
    Waiting(Instant),
    /// Nothing starts until an operator says so.
    Parked,
}

/// One always-on role.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) role: Role,
    pub(crate) occupant: Occupant,
    pub(crate) restarts: u32,
    /// The last line that the last process logged, and how it ended.
    pub(crate) last_words: String,
    history: History,
    /// An operator wants it to stay empty once its process has ended.
    draining: bool,
    /// When it was parked as an operator wanted it.
    emptied: Option<Instant>,
    /// The process that takes over when it is ready.
    pub(crate) successor: Option<ProcessId>,
    /// Its process has settings, or a program, of before a reload, because no successor has taken
    /// over yet.
    pub(crate) outdated: bool,
}

impl Slot {
    /// A slot whose first process is due now.
    pub(crate) fn new(role: Role) -> Self {
        Self {
            role,
            occupant: Occupant::Waiting(Instant::now()),
            restarts: 0,
            last_words: String::new(),
            history: History::default(),
            draining: false,
            emptied: None,
            successor: None,
            outdated: false,
        }
    }

    /// Forgets earlier endings, and a wish to leave it empty: an operator starts it anew.
    pub(crate) fn forgive(&mut self) {
        self.history = History::default();
        self.draining = false;
    }

    /// Parks the slot when its process has ended.
    pub(crate) fn leave_empty(&mut self) {
        self.draining = true;
    }

    /// True when it stays empty once its process has ended.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// The process that fills it.
    pub(crate) fn process(&self) -> Option<ProcessId> {
        match self.occupant {
            Occupant::Filled(id) => Some(id),
            _ => None,
        }
    }

    /// Its process ended: decides when the next one starts.
    pub(crate) fn vacate(&mut self, ending: Ending, now: Instant, jitter: f64) -> Decision {
        self.emptied = None;
        if std::mem::take(&mut self.draining) {
            self.occupant = Occupant::Parked;
            self.emptied = Some(now);
            return Decision::Park;
        }
        let (decision, history) = restart::decide(self.history, ending, &Policy::DEFAULT, jitter);
        self.history = history;
        self.occupant = match decision {
            Decision::After(delay) => Occupant::Waiting(now + delay),
            Decision::Park => Occupant::Parked,
        };
        decision
    }

    /// Its next process is due now, whatever it waited for.
    pub(crate) fn start_now(&mut self) {
        self.occupant = Occupant::Waiting(Instant::now());
    }

    /// True when nobody need wait for it who waits since then: only an operator starts a parked worker
    /// again. Whoever came while it was being drained keeps the time that he has.
    pub(crate) fn is_hopeless(&self, since: Instant) -> bool {
        self.occupant == Occupant::Parked && self.emptied.is_none_or(|at| at <= since)
    }

    /// Lifts the parking. False when it was not parked.
    pub(crate) fn unpark(&mut self) -> bool {
        let parked = self.occupant == Occupant::Parked;
        if parked {
            self.history = History::default();
            self.occupant = Occupant::Waiting(Instant::now());
        }
        parked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_came_before_a_drain_had_ended_is_not_given_up_and_all_others_are() {
        let now = Instant::now();
        let (before, later) = (now - Duration::from_secs(1), now + Duration::from_secs(1));
        let mut slot = Slot::new(Role::Egress);
        assert!(!slot.is_hopeless(before));
        slot.leave_empty();
        let _ = slot.vacate(Ending::InService(Duration::ZERO), now, 0.0);
        let hopeless = [before, now, later].map(|since| slot.is_hopeless(since));
        assert_eq!(hopeless, [false, true, true]);
        assert!(slot.unpark() && !slot.is_hopeless(later));
        // Parked because it can't work, nobody waits, whenever he came.
        while slot.vacate(Ending::Unfit, now, 0.0) != Decision::Park {}
        assert!(slot.is_hopeless(before));
    }
}
