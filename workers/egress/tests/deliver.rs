//! Deliveries as the webhook channel asks for them: declared hosts only, once, without redirects.
#![allow(clippy::unwrap_used)]

use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::edges::egress::{Egress, Reply, Request};
use ipc_proto::settings::EgressSettings;
use ipc_proto::{Body, Client, Role, Server, Until};
use mono_egress::complete::Completer;
use mono_egress::deliver::Deliverer;
use mono_egress::fetch::Fetcher;
use mono_egress::http_client::Tls;
use mono_egress::resolver::PrivateHosts;
use mono_egress::serve::{Egresses, serve};
use mono_tests::receiver::Receiver;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);

/// Of one attempt.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Of one attempt that is to come to nothing.
const SHORT: Duration = Duration::from_millis(500);

type Serving = JoinHandle<Result<(), ipc_proto::LinkError>>;

/// Nobody asks to leave.
fn stay() -> watch::Receiver<bool> {
    watch::channel(false).1
}

/// A peer's end of a channel to an egress that may deliver to these hosts.
fn channel(peer: Role, public: &[&str], private: &[&str]) -> (Client<Egress>, Serving) {
    serving(peer, public, private, TIMEOUT, stay())
}

fn serving(
    peer: Role,
    public: &[&str],
    private: &[&str],
    timeout: Duration,
    leave: watch::Receiver<bool>,
) -> (Client<Egress>, Serving) {
    let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    let hosts = CallbackHosts {
        public: text(public),
        private: text(private),
    };
    let settings = EgressSettings {
        providers: BTreeMap::new(),
        chain: vec![],
        offered: vec![],
        backoff_ms: 1,
        max_backoff_ms: 1,
        max_retry_delay_ms: 1,
        idle_timeout_ms: 20_000,
        allow_private_hosts: vec![],
        callback_hosts: CallbackHosts::default(),
    };
    let tls = Tls::from_system();
    let everywhere = PrivateHosts::new(&["127.0.0.1".to_owned()]);
    let out = Egresses {
        completer: Completer::new(tls.model_client().unwrap(), &settings, |_| None).unwrap(),
        fetcher: Fetcher::new(&tls, everywhere, PATIENCE).unwrap(),
        deliverer: Deliverer::new(&tls, hosts, timeout).unwrap(),
    };
    let (ours, theirs) = ipc_proto::link::pair().unwrap();
    let server = Server::new(theirs, peer).unwrap();
    let serving = tokio::spawn(serve(server, Arc::new(out), leave));
    (Client::new(ours, Role::Egress).unwrap(), serving)
}

/// A worker that drains closes the channel of a channel worker once nothing is under way on it.
#[tokio::test]
async fn a_channel_is_left_between_deliveries() {
    let receiver = Receiver::start().unwrap();
    let host = receiver.host();
    let (leave, leaving) = watch::channel(false);
    let (client, serving) = serving(Role::ChannelWebhook, &[], &[&host], TIMEOUT, leaving);
    let url = format!("http://{host}/");
    let (held, holding) = std::sync::mpsc::channel();
    receiver.hold(holding);
    let sending = {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move { deliver(&client, &url, b"{}").await })
    };
    let arrived = tokio::task::spawn_blocking(move || (receiver.next().unwrap(), receiver));
    let (_, receiver) = arrived.await.unwrap();
    leave.send_replace(true);
    tokio::task::yield_now().await;
    assert!(!serving.is_finished());
    held.send(()).unwrap();
    assert_eq!(sending.await.unwrap(), Ok((204, None)));
    serving.await.unwrap().unwrap();
    let (asked, fds) = request(&url, b"{}");
    assert!(client.call(&asked, &fds, PATIENCE).await.is_err());
    assert_eq!(receiver.waiting(), 0);
}

fn request(url: &str, body: &[u8]) -> (Request, Vec<OwnedFd>) {
    request_until(url, body, Until::after(PATIENCE))
}

fn request_until(url: &str, body: &[u8], until: Until) -> (Request, Vec<OwnedFd>) {
    let (body, fd) = Body::pack(body.to_vec()).unwrap();
    let request = Request::Deliver {
        url: url.to_owned(),
        id: "m1".to_owned(),
        timestamp: 7,
        signature: "v1,AA==".to_owned(),
        body,
        until,
    };
    (request, fd.into_iter().collect())
}

async fn deliver(
    client: &Client<Egress>,
    url: &str,
    body: &[u8],
) -> Result<(u16, Option<u32>), String> {
    ask(client, request(url, body)).await
}

async fn ask(
    client: &Client<Egress>,
    (request, fds): (Request, Vec<OwnedFd>),
) -> Result<(u16, Option<u32>), String> {
    match client.call(&request, &fds, PATIENCE).await.unwrap().0 {
        Reply::Delivered {
            status,
            retry_after,
        } => Ok((status, retry_after)),
        Reply::DeliveryFailed { code, message } => {
            assert!(!message.is_empty());
            Err(code)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_delivery_is_one_post_with_its_three_headers() {
    let receiver = Receiver::start().unwrap();
    let (client, _serving) = channel(Role::ChannelWebhook, &[], &[&receiver.host()]);
    let large = vec![b'x'; 100_000];
    for (body, status, retry_after) in [(&b"{}"[..], 202, None), (&large, 503, Some(9))] {
        let header = retry_after.map(|s: u32| format!("retry-after: {s}\r\n"));
        receiver.answer(status, &header.unwrap_or_default());
        let url = format!("http://{}/done?x=1#y", receiver.host());
        assert_eq!(
            deliver(&client, &url, body).await,
            Ok((status, retry_after))
        );
        let got = receiver.next().unwrap();
        assert_eq!(got.target, "POST /done?x=1");
        assert_eq!(got.body, body);
        for (name, value) in [
            ("content-type", "application/json"),
            ("webhook-id", "m1"),
            ("webhook-timestamp", "7"),
            ("webhook-signature", "v1,AA=="),
        ] {
            assert_eq!(got.headers[name], value);
        }
    }
    assert_eq!(receiver.waiting(), 0);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let (receiver, other) = (Receiver::start().unwrap(), Receiver::start().unwrap());
    let hosts = [receiver.host(), other.host()];
    let (client, _serving) = channel(Role::ChannelWebhook, &[], &[&hosts[0], &hosts[1]]);
    for status in [301, 302, 303, 307, 308] {
        receiver.answer(status, &format!("location: http://{}/\r\n", hosts[1]));
        let url = format!("http://{}/", hosts[0]);
        assert_eq!(deliver(&client, &url, b"{}").await, Ok((status, None)));
    }
    assert_eq!((receiver.waiting(), other.waiting()), (5, 0));
}

#[tokio::test]
async fn only_declared_hosts_are_reached_whatever_the_channel_says() {
    let receiver = Receiver::start().unwrap();
    let declared = ["hooks.example", "localhost", "127.0.0.1", "10.0.0.1"];
    let (client, _serving) = channel(Role::ChannelWebhook, &declared, &["192.0.2.1:80"]);
    let port = receiver.host().rsplit_once(':').unwrap().1.to_owned();
    for (url, code) in [
        ("https://evil.example/".to_owned(), "undeclared_host"),
        (
            "https://hooks.example.evil.example/".to_owned(),
            "undeclared_host",
        ),
        ("http://hooks.example/".to_owned(), "undeclared_host"),
        (format!("http://127.0.0.1:{port}/"), "undeclared_host"),
        ("http://192.0.2.1:81/".to_owned(), "undeclared_host"),
        ("http://169.254.169.254/".to_owned(), "undeclared_host"),
        // Declared as public, and not public.
        (format!("https://127.0.0.1:{port}/"), "private_address"),
        (format!("https://localhost:{port}/"), "private_address"),
        ("https://10.0.0.1/".to_owned(), "private_address"),
        ("https://user@hooks.example/".to_owned(), "invalid_url"),
        ("ftp://hooks.example/".to_owned(), "invalid_url"),
        ("hooks.example".to_owned(), "invalid_url"),
    ] {
        assert_eq!(
            deliver(&client, &url, b"{}").await,
            Err(code.to_owned()),
            "{url}"
        );
    }
    assert_eq!(receiver.waiting(), 0);
}

#[tokio::test]
async fn a_receiver_that_is_gone_or_silent_is_a_failure() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent_at, gone_at) = (silent.local_addr().unwrap(), gone.local_addr().unwrap());
    drop(gone);
    let (client, _serving) = channel(Role::ChannelWebhook, &[], &["127.0.0.1"]);
    let to = |address| format!("http://{address}/");
    assert_eq!(
        deliver(&client, &to(gone_at), b"{}").await,
        Err("no_connection".to_owned())
    );
    let hosts = ["127.0.0.1"];
    let (client, _serving) = serving(Role::ChannelWebhook, &[], &hosts, SHORT, stay());
    assert_eq!(
        deliver(&client, &to(silent_at), b"{}").await,
        Err("timeout".to_owned())
    );
}

/// One that lay in the socket of a stopped process goes nowhere, however long its caller seems to wait.
#[tokio::test]
async fn what_is_late_is_not_sent_and_what_is_on_its_way_ends_in_time() {
    let receiver = Receiver::start().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_at = silent.local_addr().unwrap();
    let (client, _serving) = channel(Role::ChannelWebhook, &[], &["127.0.0.1"]);
    let url = format!("http://{}/", receiver.host());
    let late = request_until(&url, b"{}", Until::after(Duration::ZERO));
    assert_eq!(ask(&client, late).await, Err("too_late".to_owned()));
    assert_eq!(receiver.waiting(), 0);
    let early = request_until(&url, b"{}", Until::after(PATIENCE));
    assert_eq!(ask(&client, early).await, Ok((204, None)));
    // Begun in time, nobody answers: it is broken off at its moment, before an attempt's own time.
    let until = Until::after(TIMEOUT / 4);
    let begun = Instant::now();
    let on_its_way = request_until(&format!("http://{silent_at}/"), b"{}", until);
    assert_eq!(ask(&client, on_its_way).await, Err("timeout".to_owned()));
    assert!(begun.elapsed() < PATIENCE / 2 && until.is_over());
}

#[tokio::test]
async fn a_run_delivers_nothing_and_the_channel_asks_for_nothing_else() {
    let receiver = Receiver::start().unwrap();
    let host = receiver.host();
    let url = format!("http://{host}/");
    let (run, serving) = channel(Role::Run, &[], &[&host]);
    let (asked, fds) = request(&url, b"{}");
    assert!(run.call(&asked, &fds, PATIENCE).await.is_err());
    assert!(serving.await.unwrap().is_err(), "the channel is ended");
    let fetch = Request::Fetch {
        url,
        headers: vec![],
        max_bytes: 9,
    };
    let complete = Request::Complete {
        request: Body::Inline(b"{}".to_vec()),
    };
    for asked in [fetch, complete] {
        let (webhook, serving) = channel(Role::ChannelWebhook, &[], &[&host]);
        assert!(webhook.call(&asked, &[], PATIENCE).await.is_err());
        assert!(serving.await.unwrap().is_err(), "the channel is ended");
    }
    assert_eq!(receiver.waiting(), 0);
}
