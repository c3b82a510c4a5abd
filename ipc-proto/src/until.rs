//! A moment after which a request must not be begun any more.
//!
//! A duration counts from where it is read, and a packet lies in a socket for as long as its reader
//! is stopped or behind. So what must not be done late carries the moment itself, on the one clock
//! of the machine that no process and no operator sets.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Such a moment. Of use within one boot of one machine, and in no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Until(
    /// Milliseconds of the monotonic clock.
    u64,
);

impl Until {
    /// So long from now.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self(now().saturating_add(ms))
    }

    /// How long it is still to go; nothing when it is over.
    #[must_use]
    pub fn left(self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now()))
    }

    /// Whether it is too late.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// A clock that can't be read lets nothing begin.
fn now() -> u64 {
    let read = clock_gettime(ClockId::CLOCK_MONOTONIC).ok();
    let ms = read.and_then(|time| u64::try_from(Duration::from(time).as_millis()).ok());
    ms.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_is_over_when_its_time_is() {
        assert!(Until::after(Duration::ZERO).is_over());
        let begun = std::time::Instant::now();
        let soon = Until::after(Duration::from_millis(30));
        while !soon.is_over() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        // Both count in the same clock, this one in whole milliseconds.
        assert!(begun.elapsed() >= Duration::from_millis(29));
        let later = Until::after(Duration::from_secs(60));
        assert!(!later.is_over() && later > soon);
        assert!(later.left() <= Duration::from_secs(60));
        assert!(later.left() > Duration::from_secs(30));
    }

    #[test]
    fn no_number_from_another_process_overflows() {
        let read = |text: &str| serde_json::from_str::<Until>(text).unwrap();
        assert!(read("0").is_over());
        let never = read(&u64::MAX.to_string());
        assert!(!never.is_over());
        assert!(Until::after(Duration::MAX) <= never);
    }
}
