//! The baseline: writers that append as many bytes to one preallocated file, whoever comes first
//! writes and syncs for all that wait.

use anyhow::Result;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the file; it is begun anew when it is full.
const FILE: u64 = 64 * 1024 * 1024;

#[derive(Default)]
struct Queue {
    waiting: Vec<u8>,
    /// Of those that wait.
    number: u64,
    done: u64,
    busy: bool,
    at: u64,
}

/// So many appends of so many bytes per second.
pub(super) fn rate(folder: &Path, writers: usize, bytes: usize, time: Duration) -> Result<f64> {
    let path = folder.join("appends");
    let file = File::create(&path)?;
    let zeros = vec![0; 1024 * 1024];
    for at in (0..FILE).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    let queue = Mutex::new(Queue::default());
    let woken = Condvar::new();
    let start = Instant::now();
    let total = std::thread::scope(|scope| {
        let all: Vec<_> = (0..writers)
            .map(|_| scope.spawn(|| write(&file, &queue, &woken, bytes, start + time)))
            .collect();
        all.into_iter()
            .map(|writer| writer.join().unwrap_or(Ok(0)))
            .sum::<Result<u64, std::io::Error>>()
    })?;
    let took = start.elapsed();
    std::fs::remove_file(path)?;
    Ok(total as f64 / took.as_secs_f64())
}

fn write(
    file: &File,
    queue: &Mutex<Queue>,
    woken: &Condvar,
    bytes: usize,
    until: Instant,
) -> Result<u64, std::io::Error> {
    let record = vec![7; bytes];
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let mut count = 0;
    while Instant::now() < until {
        let mut all = lock();
        all.waiting.extend(&record);
        all.number += 1;
        let mine = all.number;
        while all.done < mine {
            if all.busy {
                all = woken.wait(all).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            all.busy = true;
            let (batch, last) = (std::mem::take(&mut all.waiting), all.number);
            if all.at + batch.len() as u64 > FILE {
                all.at = 0;
            }
            let at = all.at;
            all.at += batch.len() as u64;
            drop(all);
            file.write_all_at(&batch, at)?;
            file.sync_data()?;
            all = lock();
            all.busy = false;
            all.done = last;
            woken.notify_all();
        }
        count += 1;
    }
    Ok(count)
}
