//! Fetches against local servers: what is refused, what is followed, what is cut.
#![allow(clippy::unwrap_used)]

use mono_egress::fetch::{Fetcher, MAX_REDIRECTS, Page};
use mono_egress::http_client::Tls;
use mono_egress::resolver::PrivateHosts;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that answers by path and repeats the request's head in its body.
///
/// `/to/URL` redirects to URL; `/hops/N` redirects N times; `/big` is 6 MiB; `/404` is one;
/// `/silent` never answers.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap().to_owned();
                if path == "/silent" {
                    std::future::pending::<()>().await;
                }
                let redirect = path.strip_prefix("/to/").map(str::to_owned).or_else(|| {
                    let hops: u32 = path.strip_prefix("/hops/")?.parse().unwrap();
                    Some(if hops > 1 {
                        format!("/hops/{}", hops - 1)
                    } else {
                        "/end".into()
                    })
                });
                let answer = match (&redirect, path.as_str()) {
                    (Some(to), _) => format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
                    (None, "/big") => format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(6 << 20)),
                    (None, "/404") => "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\nconnection: close\r\n\r\nnone".into(),
                    (None, _) => format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{head}", head.len()),
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

fn fetcher(allowed: &[String]) -> Fetcher {
    let tls = Tls::from_system();
    Fetcher::new(&tls, PrivateHosts::new(allowed), Duration::from_secs(10)).unwrap()
}

async fn fetch(fetcher: &Fetcher, url: &str) -> Result<Page, &'static str> {
    fetcher.fetch(url, &[], 1 << 20).await.map_err(|e| e.code())
}

#[tokio::test]
async fn the_own_machine_is_refused_unless_it_is_listed() {
    let address = server().await;
    let (port, closed) = (address.port(), fetcher(&[]));
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "2130706433",
    ] {
        let url = format!("http://{host}:{port}/");
        assert_eq!(fetch(&closed, &url).await, Err("private_address"), "{url}");
    }
    let open = fetcher(&[address.to_string()]);
    let page = fetch(&open, &format!("http://{address}/a?b#c"))
        .await
        .unwrap();
    assert_eq!(page.status, 200);
    assert_eq!(page.url, format!("http://{address}/a?b"));
    assert_eq!(
        page.content_type.as_deref(),
        Some("text/plain; charset=utf-8")
    );
    let head = String::from_utf8(page.body).unwrap().to_ascii_lowercase();
    assert!(
        head.starts_with("get /a?b http/1.1\r\n") && head.contains("accept-encoding: identity")
    );
    assert!(head.contains("user-agent: mono/") && !head.contains("referer"));
    let other = server().await;
    assert_eq!(
        fetch(&open, &format!("http://{other}/")).await,
        Err("private_address")
    );
}

#[tokio::test]
async fn a_listed_name_is_reached_through_its_port_only() {
    let address = server().await;
    let listed = fetcher(&[format!("localhost:{}", address.port())]);
    let url = format!("http://localhost:{}/", address.port());
    assert_eq!(fetch(&listed, &url).await.unwrap().status, 200);
    let other = server().await;
    let url = format!("http://localhost:{}/", other.port());
    assert_eq!(fetch(&listed, &url).await, Err("private_address"));
}

#[tokio::test]
async fn a_redirect_inside_is_refused() {
    let (front, inside) = (server().await, server().await);
    let fetcher = fetcher(&[front.to_string()]);
    for target in [
        format!("http://{inside}/"),
        format!("http://localhost:{}/", inside.port()),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://[fd00::1]/".into(),
    ] {
        let url = format!("http://{front}/to/{target}");
        assert_eq!(
            fetch(&fetcher, &url).await,
            Err("private_address"),
            "{target}"
        );
    }
    for target in [
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://u:p@example.com/",
    ] {
        let url = format!("http://{front}/to/{target}");
        assert_eq!(fetch(&fetcher, &url).await, Err("invalid_url"), "{target}");
    }
}

#[tokio::test]
async fn redirects_are_followed_up_to_their_bound() {
    let address = server().await;
    let fetcher = fetcher(&[address.to_string()]);
    let page = fetch(&fetcher, &format!("http://{address}/hops/{MAX_REDIRECTS}"))
        .await
        .unwrap();
    assert_eq!(page.url, format!("http://{address}/end"));
    let url = format!("http://{address}/hops/{}", MAX_REDIRECTS + 1);
    assert_eq!(fetch(&fetcher, &url).await, Err("too_many_redirects"));
}

#[tokio::test]
async fn credentials_do_not_follow_to_another_origin() {
    let (first, second) = (server().await, server().await);
    let fetcher = fetcher(&[first.to_string(), second.to_string()]);
    let headers = [
        ("Authorization", "Bearer t"),
        ("X-Token", "t"),
        ("Accept", "text/x"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let head_at = async |url: String| {
        let page = fetcher.fetch(&url, &headers, 1 << 20).await.unwrap();
        String::from_utf8(page.body).unwrap().to_ascii_lowercase()
    };
    let same = head_at(format!("http://{first}/to/http://{first}/x")).await;
    assert!(same.contains("authorization: bearer t") && same.contains("x-token: t"));
    let other = head_at(format!("http://{first}/to/http://{second}/x")).await;
    assert!(
        !other.contains("authorization") && !other.contains("x-token"),
        "{other}"
    );
    assert!(other.contains("accept: text/x"));
}

#[tokio::test]
async fn bodies_are_cut_at_their_bound() {
    let address = server().await;
    let fetcher = fetcher(&[address.to_string()]);
    let url = format!("http://{address}/big");
    let page = fetcher.fetch(&url, &[], 1000).await.unwrap();
    assert_eq!((page.body.len(), page.truncated), (1000, true));
    let page = fetcher.fetch(&url, &[], u64::MAX).await.unwrap();
    assert_eq!((page.body.len(), page.truncated), (5 << 20, true));
    let page = fetcher
        .fetch(&format!("http://{address}/404"), &[], 4)
        .await
        .unwrap();
    assert_eq!(
        (page.status, page.body.as_slice(), page.truncated),
        (404, &b"none"[..], false)
    );
}

#[tokio::test]
async fn silence_ends_the_fetch() {
    let address = server().await;
    let tls = Tls::from_system();
    let allowed = PrivateHosts::new(&[address.to_string()]);
    let fetcher = Fetcher::new(&tls, allowed, Duration::from_millis(100)).unwrap();
    assert_eq!(
        fetch(&fetcher, &format!("http://{address}/silent")).await,
        Err("timeout")
    );
}

#[tokio::test]
async fn a_name_that_nobody_has_is_said_so() {
    assert_eq!(
        fetch(&fetcher(&[]), "http://no-such-host.invalid/").await,
        Err("dns")
    );
}
