//! What the kernel says of a process: memory in use, its peak, open descriptors.

use std::io;
use std::path::PathBuf;

/// A process whose growth is watched.
#[derive(Debug)]
pub struct Process(PathBuf);

/// Where it stood.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Resident bytes.
    pub resident: u64,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Process {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self("/proc/self".into())
    }

    /// Another one of this user.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self(format!("/proc/{pid}").into())
    }

    fn status(&self, key: &str) -> io::Result<u64> {
        let text = std::fs::read_to_string(self.0.join("status"))?;
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kib| kib * 1024)
            .ok_or_else(|| io::Error::other(format!("no {key} in /proc/…/status")))
    }

    /// Open descriptors now.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn descriptors(&self) -> io::Result<usize> {
        Ok(std::fs::read_dir(self.0.join("fd"))?.count())
    }

    /// Bytes that are resident now. Also of a process whose descriptors nobody may list.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resident(&self) -> io::Result<u64> {
        self.status("VmRSS")
    }

    /// Remembers where the process stands, and starts its peak anew.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn mark(&self) -> io::Result<Mark> {
        // 5: the peak becomes what is resident now (proc_pid_clear_refs(5)).
        std::fs::write(self.0.join("clear_refs"), "5")?;
        Ok(Mark {
            resident: self.resident()?,
            descriptors: self.descriptors()?,
        })
    }

    /// Bytes that the peak since `mark` lies above it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn peak_growth(&self, mark: &Mark) -> io::Result<u64> {
        Ok(self.status("VmHWM")?.saturating_sub(mark.resident))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Process;

    #[test]
    fn growth_is_seen_even_when_it_is_given_back() {
        const BYTES: usize = 48 * 1024 * 1024;
        let own = Process::own();
        let mark = own.mark().unwrap();
        let bytes = std::hint::black_box(vec![1u8; BYTES]);
        drop(bytes);
        let peak = own.peak_growth(&mark).unwrap();
        assert!(peak >= BYTES as u64 / 2, "{peak}");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(own.descriptors().unwrap() > 0);
        drop(file);
    }
}
