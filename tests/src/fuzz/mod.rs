//! Hostile packets by the million: through the decoder in this process, and over real sockets to
//! another one. Nothing may panic, hang, keep a descriptor or grow.

pub mod attack;
pub mod decoder;
pub mod direction;
pub mod measure;
pub mod packet;
pub mod peer;
pub mod random;
pub mod seat;

use anyhow::{Context, Result};
use attack::Attacked;
use decoder::Decoded;
use measure::Process;
use packet::Seeds;
use random::Random;
use serde::Serialize;
use std::cell::RefCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    /// The packet that this thread decodes, for the report of a panic.
    pub static LAST_PACKET: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Growth that the allocator's own habits explain: arenas, thread caches, a few large packets at
/// once. A leak of one byte a packet is above it after eight million.
pub const ALLOWED_GROWTH: u64 = 8 * 1024 * 1024;
/// Packets of each decoding thread until memory is called settled.
const WARM_UP: u64 = 20_000;

/// How long, or how much.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Decides everything that is sent.
    pub seed: u64,
    /// Stop after this long.
    pub time: Duration,
    /// Stop after so many packets through the decoder.
    pub packets: u64,
}

/// What may still be done; shared by threads.
#[derive(Debug)]
pub struct Budget {
    deadline: Instant,
    left: AtomicU64,
    stop: AtomicBool,
}

impl Budget {
    /// A budget of time and packets.
    #[must_use]
    pub fn new(deadline: Instant, packets: u64) -> Self {
        Self {
            deadline,
            left: packets.into(),
            stop: false.into(),
        }
    }

    /// Takes `n` packets; false when the budget is used up.
    pub fn take(&self, n: u64) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(n))
            })
            .unwrap_or(0);
        // The clock is asked now and then: it costs as much as a packet.
        let late = before % 256 < n && Instant::now() >= self.deadline;
        if before == 0 || late {
            self.stop.store(true, Ordering::Relaxed);
            return false;
        }
        true
    }
}

/// What a process grew by.
#[derive(Debug, Default, Clone, Copy)]
pub struct Growth {
    /// Peak of resident bytes above the start.
    pub bytes: u64,
    /// Open descriptors more than at the start.
    pub descriptors: i64,
}

/// The outcome of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Nothing died, nothing grew, and what was valid was taken.
    pub ok: bool,
    /// The seed to repeat it with.
    pub seed: u64,
    /// Hostile packets, both ways together.
    pub packets: u64,
    /// Of them through the decoder in this process.
    pub decoded: u64,
    /// Of those, how many were valid after all.
    pub accepted: u64,
    /// Of all packets over sockets to the other process.
    pub sent: u64,
    /// Descriptors sent with them.
    pub descriptors: u64,
    /// Channels that were opened for them.
    pub channels: u64,
    /// Channels that the other process ended because the protocol was broken.
    pub violations: u64,
    /// Wall time.
    pub seconds: f64,
    /// The larger of the two processes' growth in bytes, peak above the start.
    pub rss_growth_bytes: u64,
    /// The larger of the two processes' growth in open descriptors.
    pub fd_growth: i64,
}

/// Runs both ways at once and judges.
///
/// # Errors
/// When the peer process dies or hangs, or the kernel refuses what the test itself needs.
///
/// # Panics
/// When the decoder does; that is the failure looked for.
pub fn run(options: Options) -> Result<Report> {
    report_panics(options.seed);
    let start = Instant::now();
    let seeds = Seeds::load();
    let threads = std::thread::available_parallelism()
        .map_or(1, |n| n.get().saturating_sub(1))
        .max(1);
    let deadline = start + options.time;
    // In channels: opening one and seeing its end takes as long as decoding some two hundred packets.
    let sending = Budget::new(deadline, options.packets / 200);
    let decoding = Budget::new(deadline, options.packets);
    let warming: Vec<_> = (0..threads)
        .map(|_| Budget::new(deadline, WARM_UP))
        .collect();
    let own = Process::own();

    let begin = Barrier::new(threads + 1);
    let mut decoded = Decoded::default();
    let (mark, attacked) = std::thread::scope(|scope| -> Result<_> {
        let (warm, warmed) = std::sync::mpsc::channel();
        let (begin, decoding, seeds) = (&begin, &decoding, &seeds);
        let decoders: Vec<_> = warming
            .iter()
            .zip(1..)
            .map(|(warming, part)| {
                let warm = warm.clone();
                scope.spawn(move || {
                    let mut random = Random::part(options.seed, part);
                    let first = decoder::decode(seeds, &mut random, warming);
                    let _ = warm.send(());
                    begin.wait();
                    let rest = decoder::decode(seeds, &mut random, decoding);
                    Decoded {
                        packets: first.packets + rest.packets,
                        accepted: first.accepted + rest.accepted,
                    }
                })
            })
            .collect();
        for _ in 0..threads {
            warmed.recv().context("a decoder ended early")?;
        }
        let mark = own.mark();
        begin.wait();
        let attacked = attack::attack(seeds, &mut Random::part(options.seed, 0), &sending);
        for thread in decoders {
            let part = thread.join().map_err(|_| {
                anyhow::anyhow!("the decoder panicked; repeat with --seed {}", options.seed)
            })?;
            decoded.packets += part.packets;
            decoded.accepted += part.accepted;
        }
        Ok((mark?, attacked?))
    })?;
    let own = Growth {
        bytes: own.peak_growth(&mark)?,
        descriptors: own.descriptors()? as i64 - mark.descriptors as i64,
    };
    Ok(judge(options.seed, start.elapsed(), decoded, attacked, own))
}

fn judge(seed: u64, time: Duration, decoded: Decoded, attacked: Attacked, own: Growth) -> Report {
    let rss_growth_bytes = own.bytes.max(attacked.growth.bytes);
    let fd_growth = own.descriptors.max(attacked.growth.descriptors);
    // A generator that makes nothing valid, or nothing invalid, tests only the door.
    let both = |some: u64, all: u64| some > 0 && some < all;
    Report {
        ok: rss_growth_bytes <= ALLOWED_GROWTH
            && fd_growth <= 0
            && both(decoded.accepted, decoded.packets)
            && both(attacked.violations, attacked.channels),
        seed,
        packets: decoded.packets + attacked.packets,
        decoded: decoded.packets,
        accepted: decoded.accepted,
        sent: attacked.packets,
        descriptors: attacked.descriptors,
        channels: attacked.channels,
        violations: attacked.violations,
        seconds: time.as_secs_f64(),
        rss_growth_bytes,
        fd_growth,
    }
}

/// Says with a panic which packet it was, since a release build ends right after.
fn report_panics(seed: u64) {
    std::panic::set_hook(Box::new(move |info| {
        let packet = LAST_PACKET.with(|packet| {
            packet.try_borrow().map_or_else(
                |_| "unknown".to_owned(),
                |bytes| bytes.iter().map(|b| format!("{b:02x}")).collect(),
            )
        });
        eprintln!("{info}\nseed {seed}, packet {packet}");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(decoded: (u64, u64), violations: u64, growth: Growth) -> bool {
        let decoded = Decoded {
            packets: decoded.0,
            accepted: decoded.1,
        };
        let attacked = Attacked {
            packets: 10,
            channels: 5,
            violations,
            growth,
            ..Attacked::default()
        };
        judge(
            1,
            Duration::from_secs(1),
            decoded,
            attacked,
            Growth::default(),
        )
        .ok
    }

    #[test]
    fn growth_and_a_blunt_generator_are_failures() {
        let flat = Growth::default();
        assert!(report((100, 10), 4, flat));
        let grown = |bytes, descriptors| Growth { bytes, descriptors };
        assert!(!report((100, 10), 4, grown(ALLOWED_GROWTH + 1, 0)));
        assert!(!report((100, 10), 4, grown(0, 1)));
        assert!(!report((100, 0), 4, flat));
        assert!(!report((100, 100), 4, flat));
        assert!(!report((100, 10), 0, flat));
        assert!(!report((100, 10), 5, flat));
    }

    #[test]
    fn a_budget_ends_by_count_and_by_time() {
        let later = Instant::now() + Duration::from_secs(600);
        let budget = Budget::new(later, 20);
        assert_eq!((0..9).filter(|_| budget.take(8)).count(), 3);
        assert!(!Budget::new(Instant::now(), 1024).take(1));
    }
}
