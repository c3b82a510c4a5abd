//! One's own process: more of it, more for it, out of the supervisor's hands.

use super::{Action, action};
use crate::attack::outcome::Outcome;
use mono_sys::capability;
use mono_sys::hostile::{self, Attribute, Trace};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Pid, Uid, setgroups, setpgid, setresgid, setresuid, setsid};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// More than any profile allows.
const MANY: usize = 600;

pub(super) const ACTIONS: &[Action] = &[
    action("start-process", |_| Outcome::of(hostile::clone_with(0))),
    action("start-process-by-clone3", |_| {
        Outcome::of(hostile::clone3_with(0))
    }),
    action("start-program-by-libc", |_| {
        // libc asks for clone3 first and must do without it.
        Outcome::of(std::process::Command::new("/bin/true").status())
    }),
    action("start-thread-by-libc", |_| {
        Outcome::of(
            thread::Builder::new()
                .spawn(|| ())
                .map(|t| t.join().is_ok()),
        )
    }),
    action("fork-bomb", |_| Outcome::of(hostile::fork_bomb(MANY))),
    action("thread-bomb", |_| thread_bomb()),
    action("leave-an-orphan", |_| Outcome::of(hostile::orphan())),
    action("become-reaper", |_| attribute(Attribute::Reaper)),
    action("outlive-parent", |_| attribute(Attribute::Independent)),
    action("become-debuggable", |_| attribute(Attribute::Dumpable)),
    action("be-debugged", |_| Outcome::of(hostile::trace(Trace::Me, 0))),
    action("keep-capabilities", |_| {
        attribute(Attribute::KeepCapabilities)
    }),
    action("change-securebits", |_| attribute(Attribute::Securebits)),
    action("raise-ambient-capability", |_| {
        attribute(Attribute::Ambient)
    }),
    action("raise-capabilities", |_| Outcome::of(capability::raise())),
    action("become-root", |_| {
        let root = Uid::from_raw(0);
        Outcome::of(setresuid(root, root, root))
    }),
    action("join-group-of-root", |_| {
        let root = Gid::from_raw(0);
        Outcome::of(setresgid(root, root, root))
    }),
    action("set-groups", |_| {
        Outcome::of(setgroups(&[Gid::from_raw(0)]))
    }),
    action("raise-open-files", |_| raise(Resource::RLIMIT_NOFILE)),
    action("raise-processes", |_| raise(Resource::RLIMIT_NPROC)),
    action("raise-file-size", |_| raise(Resource::RLIMIT_FSIZE)),
    action("allow-core-dumps", |_| raise(Resource::RLIMIT_CORE)),
    action("raise-priority", |_| Outcome::of(hostile::raise_priority())),
    action("schedule-in-real-time", |_| {
        Outcome::of(hostile::schedule_in_real_time())
    }),
    action("own-process-group", |_| {
        Outcome::of(setpgid(Pid::from_raw(0), Pid::from_raw(0)))
    }),
    action("own-session", |_| Outcome::of(setsid())),
];

fn attribute(which: Attribute) -> Outcome {
    Outcome::of(hostile::set_attribute(which))
}

/// One more than the hard limit, or everything.
fn raise(resource: Resource) -> Outcome {
    const NO_LIMIT: u64 = u64::MAX;
    let raised = getrlimit(resource).and_then(|(_, hard)| {
        let more = match (resource, hard) {
            // The kernel has a highest number of descriptors for everybody.
            (Resource::RLIMIT_NOFILE, hard) => hard.saturating_add(1).min(1 << 20),
            _ => NO_LIMIT,
        };
        setrlimit(resource, more, more)
    });
    Outcome::of(raised)
}

fn thread_bomb() -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    let mut outcome = Outcome::Done;
    for _ in 0..MANY {
        let stop = Arc::clone(&stop);
        let waits = move || {
            while !stop.load(Ordering::Relaxed) {
                thread::park();
            }
        };
        match thread::Builder::new().stack_size(32 * 1024).spawn(waits) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                outcome = Outcome::from(io::Error::from_raw_os_error(
                    error.raw_os_error().unwrap_or_default(),
                ));
                break;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.thread().unpark();
        let _ = thread.join();
    }
    outcome
}
