//! The hostile program: it stands where a worker's code would, after both stages of the worker's
//! confinement, and does what it is ordered.
//!
//! On standard input: eight digits with a length, one [`Order`] of that length, and then nothing
//! for as long as it is to live. On standard output: `>NAME` before each attempt and `=NAME OUTCOME`
//! after it, so that a process that is ended leaves the name of what ended it.

use crate::attack::actions;
use crate::attack::facts::Order;
use crate::attack::outcome::RAN;
use anyhow::{Context, Result};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{IoSliceMut, Read as _};
use std::os::fd::RawFd;

/// Digits of the order's length.
pub const DIGITS: usize = 8;
/// Where a worker has its control channel.
const CONTROL: RawFd = 3;

/// Does what standard input says; the process's exit status.
///
/// # Errors
/// When the order can't be read or the confinement can't be applied.
pub fn obey() -> Result<i32> {
    let mut input = std::io::stdin();
    let mut length = [0; DIGITS];
    input.read_exact(&mut length)?;
    let length: usize = std::str::from_utf8(&length)?.parse()?;
    let mut order = vec![0; length];
    input.read_exact(&mut order)?;
    let mut order: Order = serde_json::from_slice(&order)?;

    if !order.handed.is_empty() {
        let numbers = receive(order.handed.len())?;
        order.facts.handed = order.handed.iter().cloned().zip(numbers).collect();
    }
    if let Some(role) = order.confine {
        // As the workers' kit does, before the first hostile byte.
        nix::sys::prctl::set_dumpable(false)?;
        policy::stage2::apply(role)?;
    } else if nix::unistd::geteuid().is_root() {
        // Outside a sandbox: in copies of the namespaces that an attempt changes for everybody.
        // They forbid nothing.
        use nix::sched::{CloneFlags, unshare};
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?;
        mono_sys::mount::make_private()?;
    }
    for name in &order.actions {
        let action = actions::find(name).with_context(|| format!("there is no action {name}"))?;
        println!(">{name}");
        println!("={name} {}", (action.run)(&order.facts));
    }
    Ok(0)
}

fn receive(count: usize) -> Result<Vec<RawFd>> {
    let mut space = nix::cmsg_space!([RawFd; 8]);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(CONTROL, &mut parts, Some(&mut space), flags)?;
    let mut numbers = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(list) = part {
            numbers.extend(list);
        }
    }
    anyhow::ensure!(numbers.len() == count, "{count} descriptors were announced");
    Ok(numbers)
}

/// Says that this code ran where it was not to run.
#[must_use]
pub fn ran() -> i32 {
    RAN
}

/// A process to attack: tells where a byte of its is, and waits for the end of its input.
///
/// # Errors
/// When standard input can't be read.
pub fn be_victim() -> Result<i32> {
    let byte = Box::leak(Box::new(0_u8));
    println!("{}", std::ptr::from_mut(byte) as usize);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(0)
}
