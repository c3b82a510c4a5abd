//! Programs that are to end with the one that started them, also when that one is killed.

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel send SIGTERM to what `command` starts as soon as the thread that starts it ends, in
/// whatever way: so start it from one that lives as long as this process. A program that keeps its
/// rights at `exec` keeps this too.
///
/// `spawn` fails with `ESRCH` where this process has ended before the kernel was told.
pub fn ends_with_us(command: &mut Command) -> &mut Command {
    let us = Pid::this();
    let before_exec = move || -> io::Result<()> {
        set_pdeathsig(Signal::SIGTERM)?;
        // Who has ended by now sends nothing any more, and somebody else is the parent.
        if getppid() != us {
            return Err(Errno::ESRCH.into());
        }
        Ok(())
    };
    // SAFETY: between `fork` and `exec` this makes two system calls, and neither allocates nor takes a
    // lock: an error that is made of a number has no memory of its own.
    unsafe { command.pre_exec(before_exec) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    #[test]
    fn a_program_ends_with_the_thread_that_started_it_and_not_before() {
        let start = || {
            let mut command = Command::new("cat");
            // Its input stays open: it ends by a signal or not at all.
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            ends_with_us(&mut command).spawn().unwrap()
        };
        let mut ours = start();
        let mut theirs = std::thread::spawn(start).join().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = theirs.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
        assert!(ours.try_wait().unwrap().is_none());
        drop(ours.stdin.take());
        assert!(ours.wait().unwrap().success());
    }
}
