//! How much may be kept, and what of the audit logs makes room for new entries. Pure.
//!
//! Spec s0, "Lifetime and limits": payloads and audit files stay within one ceiling, of which a
//! reserve belongs to the audit alone. When it fills, rotated history goes first, of whoever has
//! most; then, as a last resort, current logs of those that are neither live nor protected. When
//! that can't make enough room, nothing is removed at all.

/// Bytes of everything that is kept.
pub const CEILING: u64 = ipc_proto::reply::DURABLE_CEILING;
/// Bytes of them that belong to audit logs.
pub const RESERVE: u64 = ipc_proto::reply::AUDIT_RESERVE;
/// Bytes of one log file.
pub const MAX_SEGMENT: u64 = 256 << 10;
/// Log files of one app: the current one and two older ones.
pub const SEGMENTS: usize = 3;
/// What something that can't be inspected is charged with: more than any app may have.
pub const QUARANTINE_CHARGE: u64 = 10 << 20;
/// Bytes that all of those are charged with at most.
pub const QUARANTINE_MOST: u64 = 128 << 20;

/// A log file as the plan sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its size.
    pub bytes: u64,
    /// Larger is younger.
    pub age: u64,
}

/// The bounds of one vault; others than the usual ones are for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// [`CEILING`].
    pub ceiling: u64,
    /// [`RESERVE`].
    pub reserve: u64,
    /// [`MAX_SEGMENT`].
    pub segment: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ceiling: CEILING,
            reserve: RESERVE,
            segment: MAX_SEGMENT,
        }
    }
}

/// What one app has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Which.
    pub owner: String,
    /// The current log, then the older ones.
    pub segments: [Option<Segment>; SEGMENTS],
    /// Its connection is there, a person looks at it, or something of it is under way.
    pub protected: bool,
}

impl Share {
    fn bytes(&self) -> u64 {
        self.segments
            .iter()
            .flatten()
            .map(|segment| segment.bytes)
            .sum()
    }
}

/// A log file that has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Whose.
    pub owner: String,
    /// Which: 0 is the current one.
    pub segment: usize,
    /// How much that frees.
    pub bytes: u64,
}

/// What has to go so that `missing` bytes become free; none when that much can't.
#[must_use]
pub fn reclaim(mut shares: Vec<Share>, missing: u64) -> Option<Vec<Removal>> {
    let mut out = Vec::new();
    let mut freed = 0;
    while freed < missing {
        let rotated = shares
            .iter()
            .enumerate()
            .filter(|(_, share)| share.segments[1..].iter().any(Option::is_some))
            .max_by_key(|(_, share)| share.bytes())
            .map(|(at, _)| at);
        let at = rotated.or_else(|| {
            shares
                .iter()
                .enumerate()
                .filter(|(_, share)| !share.protected)
                .filter_map(|(at, share)| Some((at, share.segments[0]?.age)))
                .min_by_key(|(_, age)| *age)
                .map(|(at, _)| at)
        })?;
        let share = &mut shares[at];
        // The oldest is the last; of what is current only that is left.
        let segment = (0..SEGMENTS).rev().find(|n| share.segments[*n].is_some())?;
        let bytes = share.segments[segment].take()?.bytes;
        freed += bytes;
        out.push(Removal {
            owner: share.owner.clone(),
            segment,
            bytes,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn share(owner: &str, sizes: [u64; SEGMENTS], age: u64, protected: bool) -> Share {
        Share {
            owner: owner.to_owned(),
            segments: sizes.map(|bytes| (bytes > 0).then_some(Segment { bytes, age })),
            protected,
        }
    }

    fn names(plan: &[Removal]) -> Vec<(&str, usize)> {
        plan.iter().map(|r| (&*r.owner, r.segment)).collect()
    }

    #[test]
    fn the_bounds_are_256_mebibytes_with_one_for_audits_and_256_kibibytes_a_log() {
        let bounds = Bounds {
            ceiling: 256 << 20,
            reserve: 1 << 20,
            segment: 256 << 10,
        };
        assert_eq!((Bounds::default(), SEGMENTS), (bounds, 3));
    }

    #[test]
    fn the_oldest_history_of_the_largest_goes_first() {
        let shares = vec![
            share("small", [50, 10, 10], 1, false),
            share("large", [100, 100, 100], 9, true),
        ];
        let plan = reclaim(shares.clone(), 150).unwrap();
        assert_eq!(names(&plan), [("large", 2), ("large", 1)]);
        let plan = reclaim(shares, 210).unwrap();
        assert_eq!(names(&plan), [("large", 2), ("large", 1), ("small", 2)]);
    }

    #[test]
    fn current_logs_are_the_last_resort_oldest_first_and_never_protected_ones() {
        let shares = vec![
            share("old", [10, 0, 0], 1, false),
            share("new", [10, 0, 0], 2, false),
            share("seen", [100, 5, 0], 0, true),
        ];
        let plan = reclaim(shares.clone(), 16).unwrap();
        assert_eq!(names(&plan), [("seen", 1), ("old", 0), ("new", 0)]);
        // What is protected stays, and then nothing is planned at all.
        assert_eq!(reclaim(shares, 26), None);
        assert_eq!(reclaim(Vec::new(), 1), None);
        assert_eq!(reclaim(Vec::new(), 0), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn a_plan_frees_enough_and_touches_no_protected_current_log(
            sizes in prop::collection::vec((0u64..50, 0u64..50, 0u64..50, any::<bool>()), 0..8),
            missing in 0u64..300,
        ) {
            let shares: Vec<Share> = sizes.iter().enumerate()
                .map(|(n, (a, b, c, p))| share(&n.to_string(), [*a, *b, *c], n as u64, *p))
                .collect();
            let free_able: u64 = shares.iter().map(|s| {
                let own = s.segments[0].map_or(0, |seg| seg.bytes);
                s.bytes() - if s.protected { own } else { 0 }
            }).sum();
            match reclaim(shares.clone(), missing) {
                None => prop_assert!(free_able < missing),
                Some(plan) => {
                    prop_assert!(plan.iter().map(|r| r.bytes).sum::<u64>() >= missing);
                    for removal in &plan {
                        let owner = shares.iter().find(|s| s.owner == removal.owner).unwrap();
                        prop_assert!(removal.segment > 0 || !owner.protected);
                    }
                }
            }
        }
    }
}
