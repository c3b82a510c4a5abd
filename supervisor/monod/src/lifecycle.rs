//! One role's worker at an operator's word: started anew, left to finish, allowed again.

use crate::counters::Reason;
use crate::process::State;
use crate::slot::Slot;
use crate::supervisor::Supervisor;
use ipc_proto::edges::control::ToWorker;

impl Supervisor {
    /// Ends the worker of an always-on role; the next one starts at once, with a clean history.
    pub(crate) fn restart(&mut self, role: &str) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|s| s.role.name() == role) else {
            return false;
        };
        slot.forgive();
        match slot.process() {
            Some(id) => {
                self.counters.blame(id, Reason::Operator);
                self.end(id);
            }
            None => {
                slot.start_now();
                self.fill();
            }
        }
        true
    }

    /// Lets the worker of an always-on role finish what it does; then its slot is parked.
    pub(crate) fn drain(&mut self, role: &str) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|s| s.role.name() == role) else {
            return false;
        };
        let Some(id) = slot.process() else {
            return false;
        };
        slot.leave_empty();
        // Our own channels would keep it from ever having finished.
        let role = slot.role;
        self.part_from(role);
        let Some(process) = self.processes.get_mut(&id) else {
            return false;
        };
        let told = process.state == State::Serving && process.send(0, ToWorker::Drain, vec![]);
        if told {
            // No run gets a channel to it any more.
            process.state = State::Draining;
        } else {
            process.kill();
        }
        true
    }

    /// Lifts the parking of a role.
    pub(crate) fn unpark(&mut self, role: &str) -> bool {
        let slots = self
            .slots
            .iter_mut()
            .chain(std::iter::once(&mut self.pool_slot));
        let lifted = slots.filter(|s| s.role.name() == role).any(Slot::unpark);
        if lifted {
            self.fill();
        }
        lifted
    }
}
