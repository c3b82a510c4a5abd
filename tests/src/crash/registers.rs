//! The registers of a stopped thread that say which system call it makes.

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::ptrace::{getregs, setregs};
use nix::unistd::Pid;

/// Number and arguments, at entry or exit.
pub(super) fn call(thread: Pid) -> nix::Result<(i64, [u64; 6])> {
    let r = getregs(thread)?;
    Ok((
        r.orig_rax.cast_signed(),
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
    ))
}

/// At entry: the kernel is to find no such call.
pub(super) fn skip(thread: Pid) -> Result<()> {
    let mut registers = getregs(thread)?;
    registers.orig_rax = u64::MAX;
    Ok(setregs(thread, registers)?)
}

/// At exit: what the caller sees.
pub(super) fn fail(thread: Pid, error: Errno) -> Result<()> {
    let mut registers = getregs(thread)?;
    registers.rax = (-(error as i64)).cast_unsigned();
    Ok(setregs(thread, registers)?)
}
