//! No system call is read on this architecture yet: a run says so and fails.

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::unistd::Pid;

pub(super) fn call(_: Pid) -> nix::Result<(i64, [u64; 6])> {
    Err(Errno::ENOSYS)
}

pub(super) fn skip(_: Pid) -> Result<()> {
    bail!("system calls are counted on x86-64 only")
}

pub(super) fn fail(_: Pid, _: Errno) -> Result<()> {
    bail!("system calls are counted on x86-64 only")
}
