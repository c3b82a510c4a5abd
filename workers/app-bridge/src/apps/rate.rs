//! How often something may happen within a minute: a sliding window. Pure.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Counts by key; what is over is not counted.
#[derive(Debug)]
pub struct Rate {
    most: usize,
    seen: HashMap<String, VecDeque<Instant>>,
}

impl Rate {
    /// At most `most` within [`WINDOW`].
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            seen: HashMap::new(),
        }
    }

    /// Counts one more of `key`, if there is room for it.
    pub fn admit(&mut self, key: &str, now: Instant) -> bool {
        self.seen.retain(|_, times| {
            while times
                .front()
                .is_some_and(|at| now.saturating_duration_since(*at) >= WINDOW)
            {
                times.pop_front();
            }
            !times.is_empty()
        });
        let times = self.seen.entry(key.to_owned()).or_default();
        if times.len() >= self.most {
            return false;
        }
        times.push_back(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_in_any_minute_and_each_key_for_itself() {
        let t = Instant::now();
        let mut rate = Rate::new(60);
        for n in 0..60 {
            assert!(rate.admit("a", t + Duration::from_millis(n * 100)));
        }
        let late = t + Duration::from_millis(59_999);
        assert!(!rate.admit("a", late) && rate.admit("b", late));
        // The first has left the window, the second has not.
        assert!(rate.admit("a", t + WINDOW) && !rate.admit("a", t + WINDOW));
        assert!(rate.admit("a", t + 3 * WINDOW));
        assert_eq!(rate.seen.len(), 1);
    }
}
