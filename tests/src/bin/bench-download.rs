//! `bench-download`: a reply file of 20 MiB over HTTP from the web console, from the request to the
//! last byte; beside a minimal server that reads the same file, hashes it and sends it.
//!
//! That server knows no login, no owner, no expiry and no confinement: one process opens the file
//! and speaks to the network. Ours is two, and the bytes that were hashed can't change any more.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mono_tests::bench::{Figure, Model, Samples, report, swallow};
use mono_tests::console::Browser;
use mono_tests::daemon::Setup;
use mono_tests::model::call;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bytes of the file: the largest that can be published.
const SIZE: usize = 20 * 1024 * 1024;
/// Downloads that count.
const ROUNDS: usize = 40;
/// Downloads before.
const WARM_UP: usize = 3;

fn main() -> ExitCode {
    report(measure())
}

fn measure() -> Result<Figure> {
    let model = Model::start()?;
    let mut setup = Setup::new()?.model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let source = setup.workspace().join("file.bin");
    let bytes: Vec<u8> = (0_u64..)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(SIZE)
        .collect();
    std::fs::write(&source, &bytes)?;
    let daemon = setup.start()?;
    let browser = Browser::log_in(&daemon)?;
    let thread = browser.thread()?;
    let publish = call("PublishReplyFile", &json!({ "path": "file.bin" }));
    let reply = browser.turn(&thread, &json!({ "text": publish }))?;
    let done = browser.finished(&thread, &reply)?;
    let path = done["parts"][0]["download"].as_str();
    let path = path.with_context(|| format!("nothing was published: {done}"))?;
    let whole = browser.ask(&format!("GET {path}"), b"")?;
    ensure!(
        whole.status == 200 && whole.body == bytes,
        "another file came: {}",
        whole.head
    );
    let address: SocketAddr = browser.base().trim_start_matches("http://").parse()?;
    let ours = format!("GET {path} HTTP/1.1\r\n{}\r\n", browser.headers());
    let minimal = minimal_server(source, Sha256::digest(&bytes).into())?;
    let theirs = format!("GET / HTTP/1.1\r\nhost: {minimal}\r\n\r\n");
    let [mut begun, mut downloaded, mut begun_directly, mut directly] =
        [const { Samples::new() }; 4];
    for round in 0..WARM_UP + ROUNDS {
        let through = swallow(address, ours.as_bytes(), SIZE)?;
        let direct = swallow(minimal, theirs.as_bytes(), SIZE)?;
        if round >= WARM_UP {
            begun.push(through.0);
            downloaded.push(through.1);
            begun_directly.push(direct.0);
            directly.push(direct.1);
        }
    }
    Ok(Figure::of("ms", 1e3, &downloaded, &directly)
        .with("bytes", SIZE)
        .with("until_verified", begun.median() * 1e3)
        .with("until_verified_baseline", begun_directly.median() * 1e3)
        .with("measured_through", "the web console, logged in"))
}

/// Serves one file, hashed before each answer, on a thread that ends with the process.
fn minimal_server(file: PathBuf, hash: [u8; 32]) -> Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let answer = move |_: hyper::Request<Incoming>| {
        let bytes = std::fs::read(&file).and_then(|bytes| {
            let same = <[u8; 32]>::from(Sha256::digest(&bytes)) == hash;
            same.then_some(bytes)
                .ok_or_else(|| std::io::Error::other("another hash"))
        });
        std::future::ready(bytes.map(|bytes| hyper::Response::new(Full::new(Bytes::from(bytes)))))
    };
    let serve = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = service_fn(answer.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    };
    std::thread::Builder::new()
        .name("minimal-server".to_owned())
        .spawn(move || runtime.block_on(serve))?;
    Ok(address)
}
