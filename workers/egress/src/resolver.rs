//! Names to addresses for fetches, private ones refused.

use crate::address::is_public;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

/// Why a name gives no address to connect to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name is not known.
    #[error("the name {0} can't be resolved")]
    Unknown(String),
    /// The host is, or resolves to, an address that is not public.
    #[error(
        "{host} is at {address}, which is not a public address: \
         put the host into tools.web.fetch.allowPrivateHosts if tools may reach it"
    )]
    Private {
        /// The host in the URL.
        host: String,
        /// The address found.
        address: IpAddr,
    },
}

/// Hosts that fetches may reach although their address is private: `host` for every port,
/// `host:port` for one.
#[derive(Debug, Clone, Default)]
pub struct PrivateHosts(Arc<HashSet<String>>);

impl PrivateHosts {
    /// From the configuration's words.
    #[must_use]
    pub fn new(hosts: &[String]) -> Self {
        Self(Arc::new(
            hosts
                .iter()
                .map(|h| h.trim().to_ascii_lowercase())
                .collect(),
        ))
    }

    fn allows(&self, host: &str, port: u16) -> bool {
        self.0.contains(host) || self.0.contains(&format!("{host}:{port}"))
    }

    /// True when a name stands here with or without a port. The resolver isn't told the port;
    /// [`check_url`] has refused the wrong one before.
    fn mentions(&self, host: &str) -> bool {
        self.0.iter().any(|entry| {
            entry
                .strip_prefix(host)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    }
}

/// Checks the part of a hop that needs no resolution: a literal address, and the port of an allowed
/// private host.
///
/// # Errors
/// [`ResolveError::Private`] when the host is a literal address that is not public and not allowed.
pub fn check_url(url: &Url, allowed: &PrivateHosts) -> Result<HostCheck, ResolveError> {
    let port = url.port_or_known_default().unwrap_or(0);
    let (host, literal) = match url.host() {
        None => return Err(ResolveError::Unknown(String::new())),
        Some(Host::Domain(name)) => (name.trim_end_matches('.').to_ascii_lowercase(), None),
        Some(Host::Ipv4(ip)) => (ip.to_string(), Some(IpAddr::V4(ip))),
        Some(Host::Ipv6(ip)) => (format!("[{ip}]"), Some(IpAddr::V6(ip))),
    };
    if allowed.allows(&host, port) {
        return Ok(HostCheck::Allowed);
    }
    match literal {
        Some(address) if !is_public(address) => Err(ResolveError::Private { host, address }),
        Some(_) => Ok(HostCheck::PublicLiteral),
        None => Ok(HostCheck::Resolve),
    }
}

/// What [`check_url`] found.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostCheck {
    /// The configuration allows this host on this port, whatever its address.
    Allowed,
    /// A literal public address.
    PublicLiteral,
    /// A name: its addresses must all be public.
    Resolve,
}

/// Resolves through the system and refuses a name with any address that is not public.
///
/// One bad address spoils the name: which of several the connection would use is not ours to say,
/// and an honest public name has no private one.
#[derive(Debug, Clone)]
pub struct CheckedResolver {
    /// True: names of the allowed private hosts only, unchecked. False: every name, checked.
    allowed: Option<PrivateHosts>,
}

impl CheckedResolver {
    /// For hosts that are not on the list.
    #[must_use]
    pub fn public_only() -> Self {
        Self { allowed: None }
    }

    /// For hosts on the list and nothing else.
    #[must_use]
    pub fn listed_only(allowed: PrivateHosts) -> Self {
        Self {
            allowed: Some(allowed),
        }
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.allowed.clone();
        Box::pin(async move {
            let host = name.as_str().trim_end_matches('.').to_ascii_lowercase();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(|_| ResolveError::Unknown(host.clone()))?
                .collect();
            let found = match allowed {
                Some(list) if list.mentions(&host) => found,
                Some(_) => return Err(ResolveError::Unknown(host).into()),
                None => all_public(&host, found)?,
            };
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Passes the addresses on when every one of them is public.
///
/// # Errors
/// [`ResolveError`] for no address at all or the first that is not public.
fn all_public(host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, ResolveError> {
    if found.is_empty() {
        return Err(ResolveError::Unknown(host.to_owned()));
    }
    match found.iter().find(|a| !is_public(a.ip())) {
        Some(bad) => Err(ResolveError::Private {
            host: host.to_owned(),
            address: bad.ip(),
        }),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(url: &str, allowed: &[&str]) -> Option<HostCheck> {
        let list: Vec<String> = allowed.iter().map(|s| (*s).to_owned()).collect();
        check_url(&Url::parse(url).unwrap(), &PrivateHosts::new(&list)).ok()
    }

    #[test]
    fn literal_addresses_are_checked_in_every_spelling() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://169.254.169.254/latest/",
            "http://１２７.0.0.1/",
            "http://[64:ff9b::7f00:1]/",
            "http://10.0.0.1:8080/",
        ] {
            assert_eq!(check(url, &[]), None, "{url}");
        }
        assert_eq!(
            check("https://1.1.1.1/", &[]),
            Some(HostCheck::PublicLiteral)
        );
        assert_eq!(check("https://example.com/", &[]), Some(HostCheck::Resolve));
    }

    #[test]
    fn the_list_opens_a_host_or_one_of_its_ports() {
        let list = ["127.0.0.1:8080", "Intranet.Example", "[::1]"];
        assert_eq!(
            check("http://127.0.0.1:8080/", &list),
            Some(HostCheck::Allowed)
        );
        assert_eq!(check("http://127.0.0.1:8081/", &list), None);
        assert_eq!(
            check("http://intranet.example./x", &list),
            Some(HostCheck::Allowed)
        );
        assert_eq!(
            check("https://INTRANET.example:99/", &list),
            Some(HostCheck::Allowed)
        );
        assert_eq!(
            check("https://a.intranet.example/", &list),
            Some(HostCheck::Resolve)
        );
        assert_eq!(check("http://[::1]:3000/", &list), Some(HostCheck::Allowed));
        assert_eq!(check("http://[::2]/", &list), None);
    }

    #[test]
    fn one_private_address_spoils_a_name() {
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
        assert_eq!(
            all_public("a", vec![at("8.8.8.8"), at("1.1.1.1")])
                .unwrap()
                .len(),
            2
        );
        assert_eq!(
            all_public("a", vec![at("8.8.8.8"), at("::1")]),
            Err(ResolveError::Private {
                host: "a".into(),
                address: "::1".parse().unwrap()
            })
        );
        assert_eq!(
            all_public("a", vec![]),
            Err(ResolveError::Unknown("a".into()))
        );
    }

    #[tokio::test]
    async fn localhost_is_refused_after_resolution() {
        let resolver = CheckedResolver::public_only();
        let error = resolver
            .resolve("localhost".parse().unwrap())
            .await
            .err()
            .unwrap();
        assert!(matches!(
            error.downcast_ref::<ResolveError>(),
            Some(ResolveError::Private { .. })
        ));
        let listed = PrivateHosts::new(&["localhost:80".to_owned()]);
        let resolver = CheckedResolver::listed_only(listed);
        assert!(resolver.resolve("localhost".parse().unwrap()).await.is_ok());
        assert!(
            resolver
                .resolve("other.example".parse().unwrap())
                .await
                .is_err()
        );
    }
}
