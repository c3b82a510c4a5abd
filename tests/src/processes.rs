//! The processes of a daemon as the kernel lists them, not as the daemon reports them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

/// One process, told apart from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// What the kernel calls it; for a worker, its role.
    pub name: String,
    parent: i32,
    started: u64,
}

impl Process {
    /// The process of this number; none when there is none or only its exit status is left.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, also brackets and spaces.
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Self {
            pid,
            name,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// True while this very process runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// Whether a text stands in what a process has in its memory and may change.
///
/// # Errors
/// When the kernel doesn't let us look.
pub fn remembers(pid: i32, text: &str) -> io::Result<bool> {
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let changes = words.next().is_some_and(|rights| rights.starts_with("rw"));
        let Some((from, to)) = range.filter(|_| changes) else {
            continue;
        };
        let address = |text| u64::from_str_radix(text, 16).map_err(io::Error::other);
        let (from, to) = (address(from)?, address(to)?);
        let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        // One that is gone again holds nothing.
        if memory.read_exact_at(&mut bytes, from).is_ok()
            && bytes.windows(text.len()).any(|w| w == text.as_bytes())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every process below this one, the process itself not included.
#[must_use]
pub fn below(root: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Process::of)
    {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// Waits until none of these runs any more; returns those that still do.
#[must_use]
pub fn outliving(processes: &[Process], within: Duration) -> Vec<Process> {
    let deadline = Instant::now() + within;
    loop {
        let alive: Vec<_> = processes.iter().filter(|p| p.is_alive()).cloned().collect();
        if alive.is_empty() || Instant::now() > deadline {
            return alive;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
