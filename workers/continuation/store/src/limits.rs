//! Bounds of the store.

/// Sizes and thresholds. The defaults are those of the product; tests use smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the log, a multiple of 4096, at least 64 KiB.
    pub log_bytes: u64,
    /// Bytes of all snapshots together.
    pub context_bytes: u64,
    /// Bytes at which a pack is full and another begins.
    pub pack_bytes: u64,
    /// Changed records, snapshots and deletions that one checkpoint takes.
    pub checkpoint_items: usize,
    /// Longest body of an unsettled record that also stands in a pack, in bytes; longer ones stand
    /// in their file alone.
    pub packed_body: usize,
    /// Bytes of records that are kept in memory until a checkpoint has them.
    pub held_bytes: usize,
    /// Bytes of members above which a group is activated by a marker and not by one frame.
    pub group_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            log_bytes: 64 * 1024 * 1024,
            context_bytes: 256 * 1024 * 1024,
            pack_bytes: 16 * 1024 * 1024,
            checkpoint_items: 4096,
            packed_body: 4 * 1024,
            held_bytes: 8 * 1024 * 1024,
            group_bytes: 8 * 1024 * 1024,
        }
    }
}

/// How long what is settled is kept (spec s1, `retention`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Settled records.
    pub terminal_max_records: usize,
    /// Their age, in milliseconds since their last change.
    pub terminal_max_age_ms: i64,
    /// Settled records that still have their text.
    pub captured_text_max_records: usize,
    /// Their age, likewise.
    pub captured_text_max_age_ms: i64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            terminal_max_records: 50_000,
            terminal_max_age_ms: 365 * 24 * 3_600_000,
            captured_text_max_records: 1_000,
            captured_text_max_age_ms: 30 * 24 * 3_600_000,
        }
    }
}
