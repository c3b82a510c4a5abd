//! Work that is done a few pieces at a time.

use std::sync::{Mutex, PoisonError};

/// Does all of them on so many threads; the results come in the order in which they are done.
pub(super) fn run<T: Send>(threads: usize, jobs: Vec<impl FnOnce() -> T + Send>) -> Vec<T> {
    let next = Mutex::new(jobs.into_iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(job) = job else { return };
                    let result = job();
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(result);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn every_piece_is_done_once() {
        let jobs: Vec<_> = (0..50).map(|n| move || n).collect();
        let mut done = run(3, jobs);
        done.sort_unstable();
        assert_eq!(done, (0..50).collect::<Vec<_>>());
    }
}
