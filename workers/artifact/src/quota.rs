//! Room for durable bytes: reserved before the first byte is copied, given back when it goes.
//!
//! Spec s0, "Lifetime and limits"; facts 5.3. Every artifact is charged its size and a whole
//! manifest's bound all its life, so an inventory after a restart arrives at the same sum.

use crate::manifest::MAX_MANIFEST;

/// All durable bytes of reply files and apps together.
pub const CEILING: u64 = ipc_proto::reply::DURABLE_CEILING;

/// What an artifact of `size` content bytes is charged.
#[must_use]
pub const fn charge(size: u64) -> u64 {
    size.saturating_add(MAX_MANIFEST as u64)
}

/// Why nothing more fits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{wanted} bytes more than the {used} used would pass the {allowed} that files may have beside apps; remove artifacts or shorten artifacts.retention"
)]
pub struct NoRoom {
    /// Bytes asked for.
    pub wanted: u64,
    /// Bytes charged now.
    pub used: u64,
    /// What files may have now.
    pub allowed: u64,
}

/// The account. Owners of a charge are kept by the caller: each charge is released once.
#[derive(Debug)]
pub struct Quota {
    used: u64,
    ceiling: u64,
    allowed: u64,
}

impl Quota {
    /// An empty account, all of whose ceiling may be used.
    #[must_use]
    pub const fn new(ceiling: u64) -> Self {
        Self {
            used: 0,
            ceiling,
            allowed: ceiling,
        }
    }

    /// The part of the ceiling that may be used from now on.
    pub const fn allow(&mut self, bytes: u64) {
        self.allowed = if bytes < self.ceiling {
            bytes
        } else {
            self.ceiling
        };
    }

    /// The part of the ceiling that may be used.
    #[must_use]
    pub const fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Bytes charged now; may be over the ceiling after an inventory found more.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// The bound.
    #[must_use]
    pub const fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Charges a new artifact of `size` bytes.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing is charged then.
    pub const fn reserve(&mut self, size: u64) -> Result<(), NoRoom> {
        let wanted = charge(size);
        let after = self.used.saturating_add(wanted);
        if after > self.allowed {
            return Err(NoRoom {
                wanted,
                used: self.used,
                allowed: self.allowed,
            });
        }
        self.used = after;
        Ok(())
    }

    /// Charges what is on the disk already, room or not: it can't be argued away.
    pub const fn found(&mut self, size: u64) {
        self.used = self.used.saturating_add(charge(size));
    }

    /// Gives the charge of `size` content bytes back.
    pub const fn release(&mut self, size: u64) {
        debug_assert!(self.used >= charge(size));
        self.used = self.used.saturating_sub(charge(size));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exactly_the_ceiling_fits_and_one_byte_more_does_not() {
        let mut quota = Quota::new(charge(100) + charge(50));
        quota.reserve(100).unwrap();
        assert_eq!(
            quota.reserve(51),
            Err(NoRoom {
                wanted: charge(51),
                used: charge(100),
                allowed: charge(100) + charge(50)
            })
        );
        quota.reserve(50).unwrap();
        assert!(quota.reserve(0).is_err());
        quota.release(100);
        assert_eq!(quota.used(), charge(50));
    }

    #[test]
    fn a_found_excess_blocks_until_it_is_gone() {
        let mut quota = Quota::new(charge(10));
        quota.found(10);
        quota.found(u64::MAX);
        assert_eq!(quota.used(), u64::MAX);
        assert!(quota.reserve(0).is_err());
    }

    proptest! {
        #[test]
        fn the_account_is_the_sum_of_what_is_held(steps in prop::collection::vec((any::<bool>(), 0u64..5_000_000), 0..60)) {
            let mut quota = Quota::new(20_000_000);
            let mut held: Vec<u64> = Vec::new();
            for (take, size) in steps {
                if take {
                    let fits = quota.used() + charge(size) <= 20_000_000;
                    prop_assert_eq!(quota.reserve(size).is_ok(), fits);
                    if fits { held.push(size); }
                } else if let Some(size) = held.pop() {
                    quota.release(size);
                }
                prop_assert_eq!(quota.used(), held.iter().copied().map(charge).sum::<u64>());
            }
        }
    }
}
