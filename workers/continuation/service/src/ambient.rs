//! Time and chance, which come in from outside so that tests can set them.

use continuation_record::Time;
use std::time::{Duration, Instant};

/// Two clocks and random bytes.
pub trait Ambient: Send + Sync + 'static {
    /// The clock on the wall, which may be set.
    fn wall(&self) -> Time;
    /// Time since some start, which only moves on.
    fn elapsed(&self) -> Duration;
    /// Fills with bytes that nobody can guess.
    fn fill(&self, bytes: &mut [u8]);

    /// A uniformly drawn number.
    fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The machine's.
#[derive(Debug)]
pub struct Machine {
    start: Instant,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Ambient for Machine {
    fn wall(&self) -> Time {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH);
        Time::from_ms(since.map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        }))
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        // Version 4 has 122 random bits from the system; the fixed ones are left out by hashing two.
        use sha2::{Digest, Sha256};
        for chunk in bytes.chunks_mut(16) {
            let mut hash = Sha256::new();
            hash.update(uuid::Uuid::new_v4().as_bytes());
            hash.update(uuid::Uuid::new_v4().as_bytes());
            chunk.copy_from_slice(&hash.finalize()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_fill_every_length() {
        let machine = Machine::default();
        let mut one = [0; 40];
        let mut two = [0; 40];
        machine.fill(&mut one);
        machine.fill(&mut two);
        assert_ne!(one, two);
        assert_ne!(one[..16], one[16..32]);
        assert_ne!(one[32..], [0; 8]);
        assert_ne!(machine.number(), machine.number());
    }

    #[test]
    fn the_clocks_run() {
        let machine = Machine::default();
        assert!(machine.wall() > Time::from_ms(1_600_000_000_000));
        assert!(machine.elapsed() < Duration::from_secs(60));
    }
}
