//! Where a channel's results may be sent: the hosts that the configuration declares.
//!
//! The channel asks before it takes a request, so that the caller hears it at once; `egress` asks
//! its own copy again and believes nobody.

use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// Largest body of one delivery in bytes: an answer, escaped as JSON.
pub const MAX_DELIVERY: usize = 32 * 1024 * 1024;

/// The declared hosts, each `host` for every port or `host:port` for one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackHosts {
    /// Reached by https, at public addresses only.
    pub public: Vec<String>,
    /// Reached by http too, whatever their addresses.
    pub private: Vec<String>,
}

/// How a declared host may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// At public addresses.
    Public,
    /// At any address.
    Any,
}

/// Why nothing may be sent to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotDeclared {
    /// It stands in neither list.
    #[error("the host is not among the declared callback hosts")]
    Host,
    /// A result is not sent through the open network in the clear.
    #[error("a callback must be https, except to hosts that are declared as private")]
    Insecure,
}

impl CallbackHosts {
    /// True when nothing may be sent anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.public.is_empty() && self.private.is_empty()
    }

    /// How to reach a host as the URL parser writes it (IPv6 addresses in brackets).
    ///
    /// # Errors
    /// [`NotDeclared`].
    pub fn reach(&self, https: bool, host: &str, port: u16) -> Result<Reach, NotDeclared> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if lists(&self.private, &host, port) {
            return Ok(Reach::Any);
        }
        match (lists(&self.public, &host, port), https) {
            (true, true) => Ok(Reach::Public),
            (true, false) => Err(NotDeclared::Insecure),
            (false, _) => Err(NotDeclared::Host),
        }
    }
}

fn lists(entries: &[String], host: &str, port: u16) -> bool {
    entries.iter().any(|entry| {
        let entry = entry.trim().to_ascii_lowercase();
        let entry = match entry.parse::<Ipv6Addr>() {
            Ok(bare) => format!("[{bare}]"),
            Err(_) => entry,
        };
        let rest = entry.strip_prefix(host);
        rest.is_some_and(|rest| rest.is_empty() || *rest == *format!(":{port}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_declared_hosts_are_reached_and_in_the_clear_only_private_ones() {
        let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        let hosts = CallbackHosts {
            public: text(&["hooks.example", "API.example:8443", "both.example"]),
            private: text(&[
                "127.0.0.1:9000",
                "::1",
                "[fd00::1]:80",
                "intern",
                "both.example:80",
            ]),
        };
        for (https, host, port, expected) in [
            (true, "hooks.example", 443, Ok(Reach::Public)),
            (true, "hooks.example", 9999, Ok(Reach::Public)),
            (true, "hooks.example.", 443, Ok(Reach::Public)),
            (false, "hooks.example", 80, Err(NotDeclared::Insecure)),
            (true, "api.example", 8443, Ok(Reach::Public)),
            (true, "api.example", 443, Err(NotDeclared::Host)),
            (true, "a.hooks.example", 443, Err(NotDeclared::Host)),
            (true, "hooks.example.evil", 443, Err(NotDeclared::Host)),
            (true, "hooks.exampl", 443, Err(NotDeclared::Host)),
            (true, "", 443, Err(NotDeclared::Host)),
            (false, "127.0.0.1", 9000, Ok(Reach::Any)),
            (true, "127.0.0.1", 9000, Ok(Reach::Any)),
            (false, "127.0.0.1", 9001, Err(NotDeclared::Host)),
            (false, "127.0.0.1", 900, Err(NotDeclared::Host)),
            (false, "[::1]", 1, Ok(Reach::Any)),
            (false, "[fd00::1]", 80, Ok(Reach::Any)),
            (false, "[fd00::1]", 81, Err(NotDeclared::Host)),
            (false, "intern", 1, Ok(Reach::Any)),
            (false, "both.example", 80, Ok(Reach::Any)),
            (true, "both.example", 443, Ok(Reach::Public)),
            (false, "both.example", 81, Err(NotDeclared::Insecure)),
        ] {
            assert_eq!(hosts.reach(https, host, port), expected, "{host}:{port}");
        }
        let nobody = CallbackHosts::default();
        assert!(nobody.is_empty() && !hosts.is_empty());
        assert_eq!(
            nobody.reach(true, "hooks.example", 443),
            Err(NotDeclared::Host)
        );
    }
}
