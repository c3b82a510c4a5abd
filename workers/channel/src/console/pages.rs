//! What a browser is given to show: the built page, and a few plain ones that need no script.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    REFERRER_POLICY, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::borrow::Cow;
use std::io::{self, Read as _};

mod built {
    /// Name, whether it is compressed, content.
    type Built = (&'static str, bool, &'static [u8]);

    include!(concat!(env!("OUT_DIR"), "/console_files.rs"));
}

/// The page's own policy: nothing from elsewhere, no script in the page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob: data:; connect-src 'self'; font-src 'self'; frame-src 'self'; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Of pages without script.
const PLAIN_POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";
/// The style of the plain pages.
const STYLE: &str = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;\
    max-width:34rem;margin:15vh auto;padding:0 1rem}code{font-family:ui-monospace,monospace}\
    button{font:inherit;padding:.6rem 1.2rem;min-height:44px;cursor:pointer}";
/// Where it is.
const STYLE_PATH: &str = "plain.css";

/// A built file.
struct File {
    gzip: bool,
    content: &'static [u8],
}

impl File {
    /// As it was before it was compressed. Every browser takes it compressed, so this is kept nowhere.
    fn plain(&self) -> io::Result<Cow<'static, [u8]>> {
        if !self.gzip {
            return Ok(self.content.into());
        }
        let mut plain = Vec::new();
        GzDecoder::new(self.content).read_to_end(&mut plain)?;
        Ok(plain.into())
    }
}

fn file(name: &str) -> Option<File> {
    let mut files = built::FILES.iter();
    files.find_map(|&(own, gzip, content)| (own == name).then_some(File { gzip, content }))
}

/// True when a client takes gzip. A weight of zero refuses it.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter();
    let mut codings = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip")
            && weight.is_none_or(|weight| weight.is_ok_and(|weight| weight > 0.0))
    })
}

/// As the client takes it.
fn as_taken(
    file: &File,
    headers: &HeaderMap,
    kind: &'static str,
    policy: &'static str,
    cache: &'static str,
) -> Response {
    let packed = file.gzip && takes_gzip(headers);
    let content = if packed {
        Ok(file.content.into())
    } else {
        file.plain()
    };
    let body = match content {
        Ok(content) => Body::from(content),
        Err(e) => {
            tracing::error!("a file of the page can't be unpacked: {e}");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let mut response = answer(StatusCode::OK, kind, policy, cache, body);
    let told = response.headers_mut();
    if packed {
        told.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if file.gzip {
        told.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    response
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "json" | "map" | "webmanifest" => "application/json",
        _ => "application/octet-stream",
    }
}

fn answer(
    status: StatusCode,
    kind: &'static str,
    policy: &'static str,
    cache: &'static str,
    body: Body,
) -> Response {
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, policy),
        (CACHE_CONTROL, cache),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The built page, for every address that it has a view for.
#[must_use]
pub fn shell(headers: &HeaderMap) -> Response {
    let html = "text/html; charset=utf-8";
    match file("index.html") {
        Some(page) => as_taken(&page, headers, html, POLICY, "no-store"),
        None => plain(
            StatusCode::OK,
            "No page in this build",
            "<p>This build has no console page. Make it with <code>cargo xtask console</code> and \
             build again. The same can be done with <code>monoctl</code> in a terminal.</p>",
        ),
    }
}

/// A file of the page. Their names have their content's hash in them.
#[must_use]
pub fn asset(name: &str, headers: &HeaderMap) -> Option<Response> {
    if name == STYLE_PATH {
        let body = Body::from(STYLE);
        return Some(answer(
            StatusCode::OK,
            media_type(name),
            PLAIN_POLICY,
            "no-cache",
            body,
        ));
    }
    let found = file(&format!("assets/{name}"))?;
    let cache = "public, max-age=31536000, immutable";
    Some(as_taken(
        &found,
        headers,
        media_type(name),
        PLAIN_POLICY,
        cache,
    ))
}

/// A page without script. `body` is ours alone: nothing that came with a request is in it.
fn plain(status: StatusCode, title: &str, body: &str) -> Response {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><link rel=\"stylesheet\" href=\"/assets/{STYLE_PATH}\">\
         <main><h1>{title}</h1>{body}</main></html>"
    );
    let html = "text/html; charset=utf-8";
    answer(status, html, PLAIN_POLICY, "no-store", Body::from(text))
}

/// For somebody who is not logged in.
#[must_use]
pub fn who_are_you() -> Response {
    plain(
        StatusCode::UNAUTHORIZED,
        "Log in",
        "<p>Run <code>monoctl console open</code> on the machine that the agent runs on, and open \
         the link that it prints.</p>",
    )
}

/// A link that may be used: by a button, so that nothing that only looks at links uses it up.
#[must_use]
pub fn welcome() -> Response {
    let mut response = plain(
        StatusCode::OK,
        "Log in",
        "<p>This link works once. Log in with it in this browser?</p>\
         <form method=\"post\"><button type=\"submit\">Log in</button></form>",
    );
    // The form of a page that never says where it stands comes with `Origin: null`, as another
    // site's would.
    let own = HeaderValue::from_static("same-origin");
    response.headers_mut().insert(REFERRER_POLICY, own);
    response
}

/// A link that was used or is over its time.
#[must_use]
pub fn stale_link() -> Response {
    plain(
        StatusCode::GONE,
        "This link is used up",
        "<p>A login link works once and for ten minutes. Run <code>monoctl console open</code> \
         again.</p>",
    )
}

/// Nothing is here.
#[must_use]
pub fn nothing() -> Response {
    plain(
        StatusCode::NOT_FOUND,
        "Nothing here",
        "<p><a href=\"/\">To the console</a></p>",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_page_has_no_script_of_its_own_and_all_its_files() {
        let Some(page) = file("index.html") else {
            assert!(built::FILES.is_empty());
            return;
        };
        let page = page.plain().unwrap_or_default();
        assert!(!page.is_empty());
        let page = String::from_utf8_lossy(&page);
        for script in page.split("<script").skip(1) {
            let (head, body) = script.split_once('>').unwrap_or_default();
            assert!(head.contains("src=\"/assets/"), "{head}");
            assert!(body.starts_with("</script>"), "{body}");
        }
        assert!(!page.contains("<style"));
        for link in page.split("\"/assets/").skip(1) {
            let name = link.split('"').next().unwrap_or_default();
            assert!(asset(name, &HeaderMap::new()).is_some(), "{name}");
        }
    }

    /// What an app needs stands in the app's own document (spec s0, "MCP Apps").
    #[test]
    fn the_page_runs_its_own_script_alone_whatever_apps_need() {
        let sources = |name: &str| {
            let mut all = POLICY.split("; ").map(str::trim);
            all.find_map(|one| one.strip_prefix(name)?.strip_prefix(' '))
        };
        for (name, expected) in [
            ("default-src", "'none'"),
            ("script-src", "'self'"),
            ("connect-src", "'self'"),
            ("frame-src", "'self'"),
            ("base-uri", "'none'"),
            ("frame-ancestors", "'none'"),
        ] {
            assert_eq!(sources(name), Some(expected), "{name}");
        }
        assert!(!POLICY.contains("unsafe") && !POLICY.contains("//"));
        let told = shell(&HeaderMap::new());
        let expected = match file("index.html") {
            Some(_) => POLICY,
            None => PLAIN_POLICY,
        };
        assert_eq!(told.headers()[CONTENT_SECURITY_POLICY], expected);
    }

    #[test]
    fn only_files_of_the_page_are_served() {
        for name in [
            "../index.html",
            "index.html",
            "",
            "../../Cargo.toml",
            "/etc/passwd",
        ] {
            assert!(asset(name, &HeaderMap::new()).is_none(), "{name}");
        }
        assert!(asset(STYLE_PATH, &HeaderMap::new()).is_some());
    }

    fn taking(codings: &str) -> HeaderMap {
        let value = HeaderValue::from_str(codings).unwrap_or(HeaderValue::from_static(""));
        HeaderMap::from_iter([(ACCEPT_ENCODING, value)])
    }

    #[test]
    fn gzip_is_for_those_who_take_it() {
        for (codings, takes) in [
            ("gzip", true),
            ("deflate, gzip;q=1.0, br", true),
            ("br;q=1, GZIP ; q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("gzip;q=x", false),
            ("xgzip, br", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(&taking(codings)), takes, "{codings}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn what_is_compressed_is_the_same_file() {
        let mut saved = 0;
        for (name, gzip, content) in built::FILES {
            let Some(asset_name) = name.strip_prefix("assets/").filter(|_| *gzip) else {
                continue;
            };
            let mut plain = Vec::new();
            let read = GzDecoder::new(*content).read_to_end(&mut plain);
            assert!(read.is_ok_and(|read| read > content.len()), "{name}");
            for (headers, encoding) in [(taking("gzip"), Some("gzip")), (taking("br"), None)] {
                let (told, body) = asset(asset_name, &headers).unwrap_or_default().into_parts();
                let own = told.headers.get(CONTENT_ENCODING);
                let own = own.and_then(|value| value.to_str().ok());
                let varies = told.headers.contains_key(VARY);
                assert_eq!((own, varies), (encoding, true), "{name}");
                let body = axum::body::to_bytes(body, usize::MAX).await;
                let body = body.unwrap_or_default();
                let expected = if encoding.is_some() { content } else { &*plain };
                assert!(body == expected, "{name}");
            }
            saved += plain.len() - content.len();
        }
        assert!(saved > 500_000 || built::FILES.is_empty(), "{saved}");
    }
}
