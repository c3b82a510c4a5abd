//! System calls with much of the kernel behind them.

use super::{Action, action};
use crate::attack::outcome::Outcome;
use mono_sys::attempt::{Hopeless, hopeless};
use mono_sys::hostile::{self, Key};

pub(super) const ACTIONS: &[Action] = &[
    action("find-keyring", |_| Outcome::of(hostile::key(Key::Find))),
    action("add-key", |_| Outcome::of(hostile::key(Key::Add))),
    action("request-key", |_| {
        // That nobody has it is an answer.
        match Outcome::of(hostile::key(Key::Request)) {
            Outcome::Refused(libc) if libc == nix::errno::Errno::ENOKEY as i32 => Outcome::Reached,
            other => other,
        }
    }),
    action("make-bpf-map", |_| Outcome::of(hostile::bpf_map())),
    action("count-events", |_| Outcome::of(hostile::perf_event())),
    action(
        "handle-page-faults",
        |_| Outcome::of(hostile::userfaultfd()),
    ),
    action("make-io-ring", |_| Outcome::of(hostile::io_uring())),
    action("ask-io-ring-enter", |_| asked(Hopeless::IoUringEnter)),
    action("ask-io-ring-register", |_| asked(Hopeless::IoUringRegister)),
    action("make-secret-memory", |_| {
        Outcome::of(hostile::secret_memory())
    }),
    action("watch-everything", |_| {
        Outcome::of(hostile::watch_everything())
    }),
    action("read-kernel-log", |_| Outcome::of(hostile::kernel_log())),
    action("load-module", |_| asked(Hopeless::InitModule)),
    action("load-module-from-file", |_| asked(Hopeless::FinitModule)),
    action("unload-module", |_| asked(Hopeless::DeleteModule)),
    action("load-kernel", |_| asked(Hopeless::KexecLoad)),
    action("restart-machine", |_| asked(Hopeless::Reboot)),
    action("add-swap", |_| asked(Hopeless::Swapon)),
    action("remove-swap", |_| asked(Hopeless::Swapoff)),
    action("account-processes", |_| asked(Hopeless::Acct)),
    action("set-quota", |_| asked(Hopeless::Quotactl)),
    action("set-time", |_| asked(Hopeless::Settimeofday)),
    action("set-clock", |_| asked(Hopeless::ClockSettime)),
    action("adjust-clock", |_| asked(Hopeless::Adjtimex)),
    action("set-host-name", |_| {
        // To what it is.
        let name = nix::unistd::gethostname().unwrap_or_default();
        Outcome::of(nix::unistd::sethostname(name))
    }),
    action("set-domain-name", |_| asked(Hopeless::Setdomainname)),
    action("move-pages-between-nodes", |_| {
        asked(Hopeless::MigratePages)
    }),
    action("reap-memory-of-others", |_| {
        asked(Hopeless::ProcessMrelease)
    }),
    action("personality-of-old-programs", |_| {
        // READ_IMPLIES_EXEC: everything readable becomes executable.
        Outcome::of(hostile::personality(0x040_0000))
    }),
    action("personality-without-randomness", |_| {
        Outcome::of(hostile::personality(0x004_0000))
    }),
    action("unknown-call", |_| Outcome::of(hostile::unknown_call())),
    action("clone3-without-flags", |_| {
        Outcome::of(hostile::clone3_with(0))
    }),
    #[cfg(target_arch = "x86_64")]
    action("segments-of-old-programs", |_| {
        Outcome::of(hostile::local_segments())
    }),
    #[cfg(target_arch = "x86_64")]
    action("call-by-x32-number", |_| Outcome::of(hostile::x32())),
    #[cfg(target_arch = "x86_64")]
    action("call-by-32-bit-gate", |_| Outcome::of(hostile::int80())),
];

fn asked(call: Hopeless) -> Outcome {
    Outcome::of_hopeless(hopeless(call))
}
