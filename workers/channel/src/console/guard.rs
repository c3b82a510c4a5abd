//! Who may ask at all: by which name, from which page.
//!
//! A browser sends a request of any page to any address. What it can't be made to do is to lie in
//! `Host`, `Origin` and `Sec-Fetch-Site`, and to send a header of ours from another site's page.

use super::error::ApiError;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Uri};
use std::net::SocketAddr;

/// A header that no form and no image can send.
pub const OWN_HEADER: HeaderName = HeaderName::from_static("x-mono-console");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a browser may call this server by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(Vec<String>);

/// One spelling of each name: lower case, without the port that browsers leave out.
fn spelled(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let bare = name.strip_suffix(":80").or(name.strip_suffix(":443"));
    bare.map_or_else(|| name.clone(), str::to_owned)
}

impl Names {
    /// The configured names, or the loopback ones with the bound port.
    ///
    /// # Errors
    /// A sentence for the operator, when other machines reach it and no name is configured.
    pub fn new(allowed: &[String], bound: SocketAddr) -> Result<Self, String> {
        if !allowed.is_empty() {
            return Ok(Self(allowed.iter().map(|name| spelled(name)).collect()));
        }
        if !bound.ip().to_canonical().is_loopback() {
            return Err(
                "console.allowedHosts is required on an address that other machines reach; set it \
                 to what browsers call the console, or bind console.host to 127.0.0.1"
                    .to_owned(),
            );
        }
        let port = bound.port();
        let own = bound.to_string();
        let names = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
        let names = names.iter().chain([&own]);
        Ok(Self(names.map(|name| spelled(name)).collect()))
    }

    fn has(&self, authority: &str) -> bool {
        // A user part is never sent by a browser, and would hide the host from a careless eye.
        !authority.contains('@') && self.0.contains(&spelled(authority))
    }

    /// Exactly one `Host`, and one of ours; a target in absolute form names it a second time.
    ///
    /// # Errors
    /// 421 `untrusted_host`.
    pub fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let target = uri.authority().map(Authority::as_str);
        let ours = host.is_some_and(|host| self.has(host)) && target.is_none_or(|t| self.has(t));
        if ours {
            return Ok(());
        }
        Err(ApiError::new(
            421,
            "untrusted_host",
            "This server is not called so. Open it by its own address, or add the name to \
             console.allowedHosts.",
        ))
    }

    /// A request that a page of ours sends, or no page at all.
    ///
    /// # Errors
    /// 403 `foreign_origin`.
    pub fn check_page(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let mut site = headers.get_all(FETCH_SITE).iter();
        // Another port of this machine is the same site and another page.
        let own_site = site.all(|value| matches!(value.as_bytes(), b"same-origin" | b"none"));
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let own_origin = headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().ok();
            let named = origin.and_then(|origin| {
                origin
                    .strip_prefix("http://")
                    .or(origin.strip_prefix("https://"))
            });
            named.is_some_and(|named| {
                self.has(named) && host.is_some_and(|host| spelled(host) == spelled(named))
            })
        });
        if own_site && own_origin {
            return Ok(());
        }
        Err(ApiError::new(
            403,
            "foreign_origin",
            "Requests from pages of other sites are refused.",
        ))
    }

    /// A request that changes something, as a script of our page sends it.
    ///
    /// # Errors
    /// 403 `foreign_origin`.
    pub fn check_change(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        self.check_page(headers)?;
        if headers.get(OWN_HEADER).is_some_and(|value| value == "1") {
            return Ok(());
        }
        Err(ApiError::new(
            403,
            "foreign_origin",
            "A change needs the header \"x-mono-console: 1\".",
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;

    fn names(allowed: &[&str], bound: &str) -> Names {
        let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        Names::new(&allowed, bound.parse().unwrap()).unwrap()
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn host(names: &Names, uri: &str, hosts: &[&str]) -> bool {
        let hosts: Vec<_> = hosts.iter().map(|&host| ("host", host)).collect();
        let result = names.check_host(&uri.parse().unwrap(), &headers(&hosts));
        assert!(
            result
                .as_ref()
                .err()
                .is_none_or(|e| e.status == 421 && e.code == "untrusted_host")
        );
        result.is_ok()
    }

    #[test]
    fn only_own_names_with_the_own_port_are_answered() {
        let own = names(&[], "127.0.0.1:5050");
        for good in [
            "localhost:5050",
            "LOCALHOST:5050",
            "127.0.0.1:5050",
            "[::1]:5050",
        ] {
            assert!(host(&own, "/", &[good]), "{good}");
        }
        for bad in [
            "localhost",
            "localhost:5051",
            "evil.example",
            "evil.example:5050",
            "localhost:5050.evil.example",
            "localhost.:5050",
            "127.0.0.2:5050",
            "127.1:5050",
            "a@localhost:5050",
            "localhost:05050",
            "",
            "0.0.0.0:5050",
        ] {
            assert!(!host(&own, "/", &[bad]), "{bad}");
        }
        assert!(!host(&own, "/", &[]));
        assert!(!host(&own, "/", &["localhost:5050", "localhost:5050"]));
        assert!(!host(&own, "http://evil.example/", &["localhost:5050"]));
        assert!(host(&own, "http://localhost:5050/", &["localhost:5050"]));
        let named = names(&["Agent.lan", "b:81"], "0.0.0.0:80");
        for good in ["agent.lan", "agent.lan:80", "b:81"] {
            assert!(host(&named, "/", &[good]), "{good}");
        }
        assert!(!host(&named, "/", &["localhost"]) && !host(&named, "/", &["b"]));
        assert!(host(&names(&[], "[::1]:7"), "/", &["[::1]:7"]));
        assert!(host(&names(&[], "127.0.0.53:80"), "/", &["127.0.0.53"]));
    }

    #[test]
    fn other_machines_are_served_by_configured_names_alone() {
        for bound in ["0.0.0.0:5050", "[::]:5050", "10.0.0.1:5050"] {
            assert!(Names::new(&[], bound.parse().unwrap()).is_err(), "{bound}");
        }
        assert!(Names::new(&[], "[::ffff:127.0.0.1]:5050".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_change_comes_from_our_own_page() {
        let own = names(&[], "127.0.0.1:5050");
        let check = |all: &[(&'static str, &str)]| {
            let mut all = all.to_vec();
            all.push(("host", "localhost:5050"));
            let result = own.check_change(&headers(&all));
            assert!(
                result
                    .as_ref()
                    .err()
                    .is_none_or(|e| e.status == 403 && e.code == "foreign_origin")
            );
            result.is_ok()
        };
        let mark = ("x-mono-console", "1");
        assert!(check(&[mark]));
        assert!(check(&[mark, ("origin", "http://localhost:5050")]));
        assert!(check(&[
            mark,
            ("origin", "http://localhost:5050"),
            ("sec-fetch-site", "same-origin")
        ]));
        assert!(!check(&[]));
        assert!(!check(&[("x-mono-console", "0")]));
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://localhost:3000",
            "http://127.0.0.1:5050",
            "ftp://localhost:5050",
            "http://localhost:5050/",
            "http://a@localhost:5050",
        ] {
            assert!(!check(&[mark, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "", "x"] {
            assert!(!check(&[mark, ("sec-fetch-site", site)]), "{site}");
        }
        let twice = [
            mark,
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ];
        assert!(!check(&twice));
    }
}
