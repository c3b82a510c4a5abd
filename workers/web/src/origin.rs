//! Which `Host` and `Origin` a web client may present.
//!
//! A page on a foreign site can make a browser send requests to a loopback port, either directly
//! (it can't read the answer, but a turn would run) or after pointing its own name at 127.0.0.1
//! (DNS rebinding, where it can read it too). The first shows in `Origin`, the second in `Host`.

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};
use std::net::IpAddr;

/// Why a request was refused before anything was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No `Host`, several, or none that can be read.
    #[error("the request needs exactly one valid Host header")]
    NoHost,
    /// Bound to loopback and addressed by another name.
    #[error(
        "this server is bound to loopback and answers to localhost, 127.0.0.1, [::1] and its own address only"
    )]
    Host,
    /// A web page of another site.
    #[error("requests from web pages of other sites are refused")]
    Origin,
}

/// What the address that the listener is really bound to means for admission.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    bound: IpAddr,
}

impl Admission {
    /// For a listener bound to this address.
    #[must_use]
    pub fn new(bound: IpAddr) -> Self {
        Self {
            bound: bound.to_canonical(),
        }
    }

    /// True when only processes of this machine reach the listener.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.bound.is_loopback()
    }

    /// Checks a request's target and headers.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok().and_then(|h| h.parse::<Authority>().ok()),
            _ => None,
        }
        .ok_or(Refused::NoHost)?;
        // A target in absolute form names the host a second time.
        let named = uri.authority().into_iter().chain([&host]);
        if self.is_loopback() && !named.clone().all(|a| self.is_ours(a.host())) {
            return Err(Refused::Host);
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().ok().and_then(|o| o.parse::<Uri>().ok());
            let authority = origin
                .as_ref()
                .and_then(Uri::authority)
                .ok_or(Refused::Origin)?;
            let same_site = if self.is_loopback() {
                self.is_ours(authority.host())
            } else {
                authority.as_str().eq_ignore_ascii_case(host.as_str())
            };
            if !same_site {
                return Err(Refused::Origin);
            }
        }
        Ok(())
    }

    fn is_ours(&self, host: &str) -> bool {
        let bare = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        host.eq_ignore_ascii_case("localhost")
            || matches!(bare, "127.0.0.1" | "::1")
            || bare
                .parse::<IpAddr>()
                .is_ok_and(|ip| ip.to_canonical() == self.bound)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;

    fn check(bound: &str, uri: &str, headers: &[(&'static str, &str)]) -> Result<(), Refused> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        Admission::new(bound.parse().unwrap()).check(&uri.parse().unwrap(), &map)
    }

    #[test]
    fn a_loopback_listener_answers_to_loopback_names_only() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "[::1]",
        ] {
            assert_eq!(
                check("127.0.0.1", "/v1", &[("host", host)]),
                Ok(()),
                "{host}"
            );
        }
        assert_eq!(
            check("127.0.0.53", "/", &[("host", "127.0.0.53:80")]),
            Ok(())
        );
        for host in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.2",
            "127.1",
            "0.0.0.0",
            "[::]",
            "[::2]",
            "2130706433",
            "evil.example:127.0.0.1",
        ] {
            assert!(
                check("127.0.0.1", "/v1", &[("host", host)]).is_err(),
                "{host}"
            );
        }
        assert_eq!(
            check(
                "127.0.0.1",
                "http://evil.example/v1",
                &[("host", "localhost")]
            ),
            Err(Refused::Host)
        );
        assert_eq!(
            check("127.0.0.1", "http://localhost/v1", &[("host", "localhost")]),
            Ok(())
        );
    }

    #[test]
    fn exactly_one_host_is_needed() {
        assert_eq!(check("127.0.0.1", "/", &[]), Err(Refused::NoHost));
        assert_eq!(check("10.0.0.1", "/", &[]), Err(Refused::NoHost));
        assert_eq!(
            check(
                "127.0.0.1",
                "/",
                &[("host", "localhost"), ("host", "localhost")]
            ),
            Err(Refused::NoHost)
        );
        assert_eq!(
            check("127.0.0.1", "/", &[("host", "a b")]),
            Err(Refused::NoHost)
        );
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let at = |bound, host, origin| check(bound, "/v1", &[("host", host), ("origin", origin)]);
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "https://[::1]:1",
        ] {
            assert_eq!(at("127.0.0.1", "localhost:80", origin), Ok(()), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "null",
            "",
            "file://",
            "http://localhost.evil.example",
        ] {
            assert_eq!(
                at("127.0.0.1", "localhost:80", origin),
                Err(Refused::Origin),
                "{origin}"
            );
        }
        assert_eq!(
            at("10.0.0.1", "agent.lan:80", "http://agent.lan:80"),
            Ok(())
        );
        assert_eq!(
            at("10.0.0.1", "agent.lan:80", "http://agent.lan:81"),
            Err(Refused::Origin)
        );
        assert_eq!(
            at("0.0.0.0", "agent.lan", "https://evil.example"),
            Err(Refused::Origin)
        );
    }

    #[test]
    fn every_local_address_is_loopback_and_the_rest_is_not() {
        for (address, loopback) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(
                Admission::new(address.parse().unwrap()).is_loopback(),
                loopback,
                "{address}"
            );
        }
    }
}
