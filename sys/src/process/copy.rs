//! A copy of the calling process in namespaces of its own, as a child of the same parent.

use super::fork::fork;
use super::{Child, Namespaces};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

/// Says that the process has one thread, and so that a copy of it can do whatever it could: a
/// second thread might hold a lock at that moment, for ever. (A copy may start threads.)
#[derive(Debug)]
pub struct Alone(PhantomData<*const ()>);

/// Which of the two goes on.
#[derive(Debug)]
pub enum Side {
    /// The process that was copied; the copy, whose parent is this one's.
    Original(Child),
    /// The copy: its memory and its descriptors are its own, its signal handlers are the default
    /// ones, and it dies with nobody yet.
    Copy,
}

impl Alone {
    /// Looks how many threads there are. Who has this starts none.
    ///
    /// # Errors
    /// `EBUSY` with more than one thread; what reading `/proc` says.
    pub fn new() -> io::Result<Self> {
        if std::fs::read_dir("/proc/self/task")?.count() > 1 {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        Ok(Self(PhantomData))
    }

    /// Copies the process. The copy is a sibling: it is the parent that is told of its end and
    /// reaps it.
    ///
    /// # Errors
    /// What `clone3` says: also where a namespace is refused.
    pub fn sibling(
        &self,
        namespaces: Namespaces,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> io::Result<Side> {
        let flags = libc::CLONE_PARENT as u64 | namespaces.bits();
        // The exit signal is this process's own, as always with CLONE_PARENT.
        // SAFETY: there is one thread: `new` has looked, and the holder starts none.
        let original = unsafe { fork(flags, 0, cgroup) }?;
        Ok(original.map_or(Side::Copy, Side::Original))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_process_with_more_threads_is_not_alone() {
        let (wait, waited) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || waited.recv());
        let error = Alone::new().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        drop(wait);
        assert!(second.join().unwrap().is_err());
    }
}
