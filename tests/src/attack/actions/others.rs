//! Other processes: signals, debuggers, memory, `/proc`.

use super::aliases::{by_processes, processes};
use super::files::read;
use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;
use mono_sys::hostile::{self, Meddle, Trace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use std::fs::{self, OpenOptions};
use std::path::Path;

pub(super) const ACTIONS: &[Action] = &[
    action("signal-victim", |f| signal(f.victim)),
    action("signal-group-of-victim", |f| signal(-f.victim)),
    action("signal-parent", |_| match getppid().as_raw() {
        // The parent is in another namespace and has no number here.
        0 => Outcome::Nothing,
        parent => signal(parent),
    }),
    action("signal-everybody", |_| {
        // No signal, only whether one could be sent to anybody at all.
        Outcome::of(kill(Pid::from_raw(-1), None))
    }),
    action("signal-any-other", |_| {
        by_processes(|process| signal(number(process)))
    }),
    action("signal-with-payload", |f| meddle(Meddle::Queue, f)),
    action("signal-thread", |f| meddle(Meddle::Thread, f)),
    action("signal-thread-of-victim", |f| {
        meddle(Meddle::ThreadOfProcess, f)
    }),
    action("signal-by-descriptor", |f| meddle(Meddle::ByDescriptor, f)),
    action("signal-by-file-owner", |f| {
        Outcome::of(std::io::pipe().and_then(|(reader, _)| hostile::set_owner(&reader, f.victim)))
    }),
    action("name-victim-by-descriptor", |f| {
        Outcome::of(hostile::pidfd_open(f.victim))
    }),
    action("take-descriptor-of-victim", |f| {
        Outcome::of(hostile::pidfd_getfd(f.victim, 0))
    }),
    action("debug-victim", |f| {
        Outcome::of(hostile::trace(Trace::Attach, f.victim))
    }),
    action("seize-victim", |f| {
        Outcome::of(hostile::trace(Trace::Seize, f.victim))
    }),
    action("read-memory-of-victim", |f| {
        Outcome::of(hostile::read_memory(f.victim, f.victim_address))
    }),
    action("write-memory-of-victim", |f| {
        Outcome::of(hostile::write_memory(f.victim, f.victim_address))
    }),
    action("compare-with-victim", |f| meddle(Meddle::Compare, f)),
    action("locks-of-victim", |f| meddle(Meddle::RobustList, f)),
    action("ask-limit-of-victim", |f| meddle(Meddle::AskLimit, f)),
    action("set-limit-of-victim", |f| meddle(Meddle::SetLimit, f)),
    action("pin-victim", |f| meddle(Meddle::Affinity, f)),
    action("slow-victim-down", |f| meddle(Meddle::Priority, f)),
    action("slow-disk-of-victim-down", |f| {
        meddle(Meddle::IoPriority, f)
    }),
    action("find-pages-of-victim", |f| meddle(Meddle::Pages, f)),
    action("advise-memory-of-victim", |f| meddle(Meddle::Advise, f)),
    action("read-memory-file-of-victim", |f| file_of(f, "mem")),
    action("read-environment-of-victim", |f| file_of(f, "environ")),
    action("read-map-of-victim", |f| file_of(f, "maps")),
    action("read-command-of-victim", |f| file_of(f, "cmdline")),
    action("list-descriptors-of-victim", |f| {
        Outcome::of(fs::read_dir(format!("/proc/{}/fd", f.victim)))
    }),
    action("read-descriptor-of-victim", |f| {
        Outcome::of(fs::metadata(format!("/proc/{}/fd/0", f.victim)))
    }),
    action("see-other-processes", |_| match processes().next() {
        Some(_) => Outcome::Done,
        None => Outcome::Nothing,
    }),
    action("write-memory-file-of-any-other", |_| {
        by_processes(|process| {
            let path = Path::new(process).join("mem");
            Outcome::of(OpenOptions::new().write(true).open(path))
        })
    }),
    action("read-environment-of-any-other", |_| {
        by_processes(|process| read(&Path::new(process).join("environ")))
    }),
    action("read-map-of-any-other", |_| {
        by_processes(|process| read(&Path::new(process).join("maps")))
    }),
    action("list-descriptors-of-any-other", |_| {
        by_processes(|process| Outcome::of(fs::read_dir(Path::new(process).join("fd"))))
    }),
];

fn signal(pid: i32) -> Outcome {
    // Ignored by whoever doesn't ask for it.
    Outcome::of(kill(Pid::from_raw(pid), Signal::SIGURG))
}

fn number(process: &str) -> i32 {
    process
        .trim_start_matches("/proc/")
        .parse()
        .unwrap_or(i32::MAX)
}

fn meddle(what: Meddle, f: &Facts) -> Outcome {
    Outcome::of(hostile::meddle(what, f.victim))
}

fn file_of(f: &Facts, name: &str) -> Outcome {
    let path = format!("/proc/{}/{name}", f.victim);
    if name == "mem" {
        // Its first page is never there; being let in is enough.
        return Outcome::of(fs::File::open(path));
    }
    read(path.as_ref())
}
