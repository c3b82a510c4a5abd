//! The address that is the permission.

use std::fmt;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// The path of one endpoint: whoever knows it may call. It names no run, no conversation and no
/// file (spec s0, "Publishing a reply file").
#[derive(Clone)]
pub(crate) struct CapabilityPath(String);

impl CapabilityPath {
    /// A new one, with 122 random bits of the kernel.
    pub(crate) fn random() -> Self {
        Self(format!("/mcp/{}", Uuid::new_v4()))
    }

    /// Compares in a time that says nothing about how far a guess was right.
    pub(crate) fn is(&self, path: &str) -> bool {
        self.0.as_bytes().ct_eq(path.as_bytes()).into()
    }

    /// The whole address on this port of 127.0.0.1.
    pub(crate) fn on(&self, port: u16) -> CapabilityUrl {
        CapabilityUrl(format!("http://127.0.0.1:{port}{}", self.0))
    }
}

/// Where a client finds the tools. It is the permission to use them: `Debug` doesn't show it, and
/// it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct CapabilityUrl(String);

impl CapabilityUrl {
    /// The text, for the one who is meant to call. It must not go into a log or a record.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part that can't be guessed.
    #[must_use]
    pub fn secret(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Debug for CapabilityUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CapabilityUrl(withheld)")
    }
}

impl fmt::Debug for CapabilityPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CapabilityPath(withheld)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_and_none_shows_itself() {
        let (one, two) = (CapabilityPath::random(), CapabilityPath::random());
        assert!(one.is(&one.0) && !one.is(&two.0));
        for wrong in [
            "",
            "/",
            "/mcp",
            "/mcp/",
            &one.0[..one.0.len() - 1],
            &format!("{}/", one.0),
        ] {
            assert!(!one.is(wrong), "{wrong}");
        }
        let url = one.on(7);
        assert_eq!(url.reveal(), format!("http://127.0.0.1:7{}", one.0));
        assert_eq!(url.secret().len(), 36);
        let shown = format!("{url:?} {one:?}");
        assert!(!shown.contains(url.secret()), "{shown}");
    }
}
