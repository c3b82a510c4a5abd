//! The document between the page and an app: the same for every app, and without an origin.
//!
//! It says nothing of what it will show. Its own policy takes its origin away, so that it is as
//! harmless opened bare as in the page's frame; who may frame it is this console alone. What an app
//! may load stands in the app's own document: any directive for loading in here would be inherited
//! and cut off every app (spec s0, "MCP Apps").

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};

const DOCUMENT: &str = include_str!("../../console-ui/src/apps/proxy.html");
const POLICY: &str = "sandbox allow-scripts; script-src 'unsafe-inline'; object-src 'none'; \
    worker-src 'none'; manifest-src 'none'; form-action 'none'; frame-ancestors 'self'";

/// Each app has a process of its own, where the browser knows this header: an app that never rests
/// holds up no other, and none reads another's memory.
const ISOLATION: (&str, &str) = ("document-isolation-policy", "isolate-and-credentialless");

/// `GET /api/v1/mcp-app-proxy`.
#[must_use]
pub fn document() -> Response {
    let mut response = DOCUMENT.into_response();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    let (name, value) = ISOLATION;
    let headers = response.headers_mut();
    headers.insert(
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directives() -> Vec<&'static str> {
        POLICY.split("; ").map(str::trim).collect()
    }

    #[test]
    fn the_proxy_has_no_origin_and_is_framed_by_this_console_alone() {
        let all = directives();
        assert!(all.contains(&"sandbox allow-scripts"));
        assert!(all.contains(&"frame-ancestors 'self'"));
        assert!(all.contains(&"form-action 'none'") && all.contains(&"object-src 'none'"));
        let response = document();
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], POLICY);
        assert_eq!(response.headers()[ISOLATION.0], ISOLATION.1);
    }

    #[test]
    fn what_an_app_would_inherit_clips_no_app() {
        for name in [
            "default-src",
            "connect-src",
            "style-src",
            "img-src",
            "font-src",
            "media-src",
            "frame-src",
            "child-src",
            "base-uri",
        ] {
            assert!(
                !directives().iter().any(|one| one.starts_with(name)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_document_is_whole_in_itself_and_sandboxes_what_it_shows() {
        for foreign in [
            " src=",
            " href=",
            "allow-same-origin",
            "allow-popups",
            "allow-top",
        ] {
            assert!(!DOCUMENT.contains(foreign), "{foreign}");
        }
        // Its own policy is the header's; the one that its script writes is the app's.
        let (markup, _script) = DOCUMENT.split_once("<script").unwrap_or_default();
        assert!(!markup.is_empty() && !markup.contains("http-equiv"));
        assert!(DOCUMENT.contains(r#"setAttribute("sandbox", "allow-scripts")"#));
        // The policy on the frame's own navigation stands before there is a frame.
        let policy = DOCUMENT.find("frame-src ${").unwrap_or(usize::MAX);
        let frame = DOCUMENT.find(r#"createElement("iframe")"#).unwrap_or(0);
        assert!(policy < frame);
    }
}
