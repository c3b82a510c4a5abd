//! The fixed codes by which others learn why they got nothing.

use std::fmt;

/// A code of spec s0 and facts 5.2; the detail behind it goes to the log only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// `artifact_missing`: not there, or not the asker's: the two can't be told apart.
    Missing,
    /// `artifact_expired`.
    Expired,
    /// `artifact_integrity_failed`: manifest, size or hash don't agree.
    IntegrityFailed,
    /// `artifact_publish_failed`: refused source, changed source, no room, disk error.
    PublishFailed,
    /// `artifact_too_large`: over [`crate::MAX_FILE`].
    TooLarge,
    /// `reply_part_too_large`: the run's parts are used up.
    PartTooLarge,
}

impl Code {
    /// The code on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "artifact_missing",
            Self::Expired => "artifact_expired",
            Self::IntegrityFailed => "artifact_integrity_failed",
            Self::PublishFailed => "artifact_publish_failed",
            Self::TooLarge => "artifact_too_large",
            Self::PartTooLarge => "reply_part_too_large",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_is_one_of_the_wire_contract() {
        for code in [
            Code::Missing,
            Code::Expired,
            Code::IntegrityFailed,
            Code::PublishFailed,
            Code::TooLarge,
            Code::PartTooLarge,
        ] {
            assert!(
                ipc_proto::reply::FAILURE_CODES.contains(&code.as_str()),
                "{code}"
            );
        }
    }
}
