//! System-call filters: from the data files under `syscalls/` to a program for the kernel.
//!
//! One decision a call: a hostile call ends the process, a call as the lists allow it passes, a
//! listed call with other arguments gets its error, and everything else gets `ENOSYS`, for which
//! libc and language runtimes have fall-backs.
//!
//! The kernel would end a process without telling anybody what it had called. So it holds a
//! hostile call instead and tells the supervisor, who ends the process (`crate::violation`). Of
//! the answers of several filters the kernel takes the strictest, and an error is stricter than
//! holding: the second filter leaves to the first what that one holds.

mod assemble;
mod constants;
#[cfg(test)]
mod evaluate;
mod names;
mod sets;
#[cfg(test)]
mod tests;

pub use names::name_of;
pub use sets::{SetError, set_names};

pub(crate) use assemble::{AUDIT_ARCH, X32};
pub(crate) use constants::errno_of;

use std::collections::BTreeMap;

/// What becomes of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Allow,
    /// It is not made and returns this error number.
    Errno(u16),
    /// It is not made: it is held, and whoever listens ends the process. If nobody does, it
    /// returns `ENOSYS`.
    Kill,
    /// The filter before this one, which holds the call, decides.
    Before,
}

impl Action {
    /// The value that a filter program returns for it.
    pub const fn value(self) -> u32 {
        match self {
            Action::Allow | Action::Before => libc::SECCOMP_RET_ALLOW,
            Action::Errno(number) => libc::SECCOMP_RET_ERRNO | number as u32,
            Action::Kill => libc::SECCOMP_RET_USER_NOTIF,
        }
    }
}

/// A test of one argument: `argument & mask` is `value`, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, 0 to 5.
    pub argument: u8,
    /// The bits that are looked at. Most arguments are 32 bits wide and the kernel ignores the
    /// upper half, so the upper half is only looked at where the data says that it counts.
    pub mask: u64,
    /// What the bits are compared with.
    pub value: u64,
    /// True when they must be equal, false when they must differ.
    pub equal: bool,
}

/// One way for a call to get an action: all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Empty means always.
    pub conditions: Vec<Condition>,
    /// What then becomes of it.
    pub action: Action,
}

/// All that is decided about one call: the first rule that holds, else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// In order.
    pub rules: Vec<Rule>,
    /// When none holds.
    pub otherwise: Action,
}

impl Decision {
    /// The action when it doesn't depend on arguments.
    pub fn constant(&self) -> Option<Action> {
        match self.rules.first() {
            None => Some(self.otherwise),
            Some(rule) if rule.conditions.is_empty() => Some(rule.action),
            Some(_) => None,
        }
    }
}

/// A filter before it is a program: decisions by system call number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Listed calls.
    pub calls: BTreeMap<u32, Decision>,
    /// For calls that no list names: [`UNLISTED`], or allowed in a filter that comes on top of one
    /// that says so already.
    pub unlisted: Action,
    /// For calls of other tables: x32, and those of another architecture.
    pub foreign: Action,
}

/// For calls that no list names.
pub const UNLISTED: Action = Action::Errno(libc::ENOSYS as u16);

/// One instruction of a filter program, as the kernel reads it.
pub type Instruction = seccompiler::sock_filter;

impl Filter {
    /// Builds a filter from sets: what the `allow` sets list passes unless a `kill` set lists it.
    ///
    /// # Errors
    /// [`SetError`] for a set, call or value that doesn't exist.
    pub fn from_sets(allow: &[&str], kill: &[&str]) -> Result<Self, SetError> {
        sets::combine(allow, kill)
    }

    /// The same filter with every unlisted call allowed.
    pub(crate) fn rest_allowed(mut self) -> Self {
        self.unlisted = Action::Allow;
        self
    }

    /// The same filter on top of `first`, with what that one holds left to it.
    pub(crate) fn after(mut self, first: &Filter) -> Self {
        self.foreign = Action::Before;
        for (number, decision) in &first.calls {
            let held = decision.rules.iter().filter(|r| r.action == Action::Kill);
            let mut rules: Vec<Rule> = held
                .map(|rule| Rule {
                    conditions: rule.conditions.clone(),
                    action: Action::Before,
                })
                .collect();
            let left = self.unlisted == Action::Allow && !self.calls.contains_key(number);
            if rules.is_empty() || left {
                continue;
            }
            let own = self.calls.entry(*number).or_insert(Decision {
                rules: Vec::new(),
                otherwise: self.unlisted,
            });
            rules.append(&mut own.rules);
            own.rules = rules;
            sets::simplify(own);
        }
        self
    }

    /// The program for this machine.
    pub fn assemble(&self) -> Vec<Instruction> {
        assemble::assemble(self)
    }
}

/// A program as bytes, in this machine's order.
pub fn to_bytes(program: &[Instruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend(instruction.code.to_ne_bytes());
        bytes.extend([instruction.jt, instruction.jf]);
        bytes.extend(instruction.k.to_ne_bytes());
    }
    bytes
}

/// The program that [`to_bytes`] has written; `None` for bytes of another length.
pub fn from_bytes(bytes: &[u8]) -> Option<Vec<Instruction>> {
    let (instructions, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| {
        let read = |&[c0, c1, jt, jf, k0, k1, k2, k3]: &[u8; 8]| Instruction {
            code: u16::from_ne_bytes([c0, c1]),
            jt,
            jf,
            k: u32::from_ne_bytes([k0, k1, k2, k3]),
        };
        instructions.iter().map(read).collect()
    })
}
