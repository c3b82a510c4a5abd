//! What a filter program would answer, computed without the kernel: for tests over every rule.

use super::Instruction;
use super::assemble::{ARCHITECTURE, ARGUMENTS, AUDIT_ARCH, NUMBER};

/// A system call as a filter sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// Its number.
    pub(super) number: u32,
    /// The architecture whose numbers these are.
    pub(super) architecture: u32,
    /// Its arguments.
    pub(super) arguments: [u64; 6],
}

impl Call {
    /// A call of this machine's own architecture.
    pub(super) const fn native(number: u32, arguments: [u64; 6]) -> Self {
        Self {
            number,
            architecture: AUDIT_ARCH,
            arguments,
        }
    }

    fn load(&self, offset: u32) -> Option<u32> {
        match offset {
            NUMBER => return Some(self.number),
            ARCHITECTURE => return Some(self.architecture),
            _ => {}
        }
        let at = offset.checked_sub(ARGUMENTS)?;
        let argument = *self.arguments.get(usize::try_from(at / 8).ok()?)?;
        let upper = (at % 8 == 4) == cfg!(target_endian = "little");
        match at % 8 {
            0 | 4 => Some(if upper {
                (argument >> 32) as u32
            } else {
                argument as u32
            }),
            _ => None,
        }
    }
}

/// Runs a program; the value that it returns, e.g. [`super::Action::value`]. `None` for a program
/// that the kernel would refuse.
pub(super) fn run(program: &[Instruction], call: &Call) -> Option<u32> {
    let mut accumulator = 0_u32;
    let mut at = 0_usize;
    loop {
        let instruction = program.get(at)?;
        at += 1;
        let k = instruction.k;
        let mut branch = |holds: bool| {
            at += usize::from(if holds {
                instruction.jt
            } else {
                instruction.jf
            });
        };
        match instruction.code {
            0x20 => accumulator = call.load(k)?,
            0x54 => accumulator &= k,
            0x05 => at += usize::try_from(k).ok()?,
            0x15 => branch(accumulator == k),
            0x25 => branch(accumulator > k),
            0x35 => branch(accumulator >= k),
            0x06 => return Some(k),
            _ => return None,
        }
    }
}

/// What the kernel does when both filters have answered, the second one installed later: of two
/// answers the stricter, of two equal ones the later filter's. `None` as for [`run`].
pub(super) fn run_both(
    first: &[Instruction],
    second: &[Instruction],
    call: &Call,
) -> Option<Answer> {
    // The upper half is the action, in the kernel's order when it is read as a signed number.
    let strictness = |value: u32| (value & libc::SECCOMP_RET_ACTION_FULL).cast_signed();
    let (first, second) = (run(first, call)?, run(second, call)?);
    Some(if strictness(first) < strictness(second) {
        Answer {
            value: first,
            of_first: true,
        }
    } else {
        Answer {
            value: second,
            of_first: false,
        }
    })
}

/// The answer that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// E.g. [`super::Action::value`].
    pub(super) value: u32,
    /// It is the first filter's. A call that another one holds has nobody who listens.
    pub(super) of_first: bool,
}
