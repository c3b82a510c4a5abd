//! Capability sets of the calling thread. The `caps` crate has no way to set the three sets in
//! one step, and between two steps a thread is neither what it was nor what it will be.

use std::io;

const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn get() -> io::Result<[Word; 2]> {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut words = [Word::default(); 2];
    // SAFETY: version 3 reads one header and fills two words; both live on this stack.
    let result = unsafe { libc::syscall(libc::SYS_capget, &mut header, words.as_mut_ptr()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(words)
    }
}

fn set(words: [Word; 2]) -> io::Result<()> {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // SAFETY: version 3 reads one header and two words; both live on this stack.
    let result = unsafe { libc::syscall(libc::SYS_capset, &mut header, words.as_ptr()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Adds capabilities (a bit set of the first 32) to the inheritable set. Async-signal-safe.
///
/// # Errors
/// `EPERM` when they are not permitted.
pub(crate) fn make_inheritable(capabilities: u32) -> io::Result<()> {
    let mut words = get()?;
    words[0].inheritable |= capabilities;
    set(words)
}

/// The capabilities in force now.
///
/// # Errors
/// None in practice; the kernel's answer is passed on.
pub fn effective() -> io::Result<u64> {
    let [low, high] = get()?;
    Ok(u64::from(low.effective) | u64::from(high.effective) << 32)
}

/// The number of the highest capability that any kernel has had room for.
const LAST: libc::c_ulong = 63;

/// Everything that lets root or an exec regain a capability, off and locked: no root, no
/// keep-caps, no fix-up by uid changes, no ambient capabilities.
const SECUREBITS_LOCKED: libc::c_ulong = 0xef;

/// Gives up the means to ever regain a capability: ambient set, bounding set, securebits.
///
/// Needs `CAP_SETPCAP`, so it comes before a change of user; [`clear`] comes after it.
///
/// # Errors
/// `EPERM` without `CAP_SETPCAP`.
pub fn renounce() -> io::Result<()> {
    prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
    )?;
    for capability in 0..=LAST {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            // The first number that this kernel doesn't know.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            other => other?,
        }
    }
    prctl(libc::PR_SET_SECUREBITS, SECUREBITS_LOCKED)
}

/// Empties the effective, permitted and inheritable sets.
///
/// # Errors
/// None in practice; the kernel's answer is passed on.
pub fn clear() -> io::Result<()> {
    set([Word::default(); 2])
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: all options used here take integers only.
    let result = unsafe {
        libc::prctl(
            option,
            argument,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Asks for every capability in the effective and permitted sets, which nobody who lost them
/// gets: for the attack suite.
///
/// # Errors
/// `EPERM`.
pub fn raise() -> io::Result<()> {
    let mut words = get()?;
    // CAP_NET_RAW and CAP_SYS_ADMIN: what root without a sandbox has.
    let wanted = 1 << 13 | 1 << 21;
    words[0].effective |= wanted;
    words[0].permitted |= wanted;
    set(words)
}
