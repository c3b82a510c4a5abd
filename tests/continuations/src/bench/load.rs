//! Clients: so many connections, each with one request under way, for so long or so often.

use super::server::{BEARER, ROUTE, SERVICE};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A claim that was accepted.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) id: String,
    pub(super) token: String,
}

/// What clients reached.
#[derive(Debug, Default)]
pub(super) struct Rate {
    pub(super) done: usize,
    pub(super) took: Duration,
    times: Vec<Duration>,
    /// Requests that were asked to come again later.
    pub(super) refused: usize,
}

impl Rate {
    pub(super) fn per_second(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64()
    }

    /// In milliseconds.
    pub(super) fn quantile(&mut self, share: f64) -> f64 {
        self.times.sort_unstable();
        let last = self.times.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.times
            .get(at)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

/// One connection that is kept.
struct Connection {
    stream: TcpStream,
    host: String,
    read: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            host: address.to_string(),
            read: Vec::with_capacity(4096),
        })
    }

    /// A status and a body.
    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        bearer: &str,
        body: &str,
    ) -> Result<(u16, Value)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {bearer}\r\nx-mono-agent-service-name: {SERVICE}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.write_all(head.as_bytes()).await?;
        self.read.clear();
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        let status = head
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .context("an answer without a status")?;
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.trim().parse().ok())
            .context("an answer without a length")?;
        while self.read.len() < end + length {
            self.more().await?;
        }
        let body = serde_json::from_slice(&self.read[end..end + length])?;
        Ok((status, body))
    }

    async fn more(&mut self) -> Result<()> {
        ensure!(
            self.stream.read_buf(&mut self.read).await? > 0,
            "the service closed the connection"
        );
        Ok(())
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// Claims of so many clients, until `most` are made or the time is over.
pub(super) fn claims(
    address: SocketAddr,
    clients: usize,
    most: usize,
    time: Duration,
) -> Result<(Rate, Vec<Claim>)> {
    let made = Arc::new(Mutex::new(Vec::new()));
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let rate = runtime()?.block_on(each(address, clients, most, time, |number| {
        let body = format!(
            r#"{{"route":"{ROUTE}","taskKey":"{unique}-{number}","taskHash":"{:064x}","deadline":"{}"}}"#,
            number,
            deadline()
        );
        let made = Arc::clone(&made);
        Ask {
            method: "POST",
            path: "/v1/continuations/detached/claim".to_owned(),
            bearer: BEARER.to_owned(),
            body,
            accepted: 200,
            keep: Box::new(move |answer| {
                let text = |key: &str| answer[key].as_str().map(str::to_owned);
                if let (Some(id), Some(token)) = (text("continuationId"), text("token")) {
                    made.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(Claim { id, token });
                }
            }),
        }
    }))?;
    let made = std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((rate, made))
}

/// A result of about 1 KiB for each claim; says when each was accepted.
pub(super) fn results(
    address: SocketAddr,
    clients: usize,
    claims: &[Claim],
) -> Result<(Rate, Vec<(String, Instant)>)> {
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let payload = format!(r#"{{"summary":"{}"}}"#, "x".repeat(1000));
    let time = Duration::from_secs(600);
    let rate = runtime()?.block_on(each(address, clients, claims.len(), time, |number| {
        let claim = claims[number].clone();
        let accepted = Arc::clone(&accepted);
        Ask {
            method: "PUT",
            path: format!("/v1/continuations/{}/result", claim.id),
            bearer: claim.token,
            body: format!(r#"{{"idempotencyKey":"{number}","payload":{payload}}}"#),
            accepted: 202,
            keep: Box::new(move |_| {
                accepted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((claim.id, Instant::now()));
            }),
        }
    }))?;
    let accepted = std::mem::take(&mut *accepted.lock().unwrap_or_else(PoisonError::into_inner));
    Ok((rate, accepted))
}

/// Asks until the service answers anything.
pub(super) fn first_answer(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    runtime()?.block_on(async {
        loop {
            if let Ok(mut connection) = Connection::open(address).await
                && let Ok((status, _)) = connection
                    .ask("GET", "/v1/operator/health", "nobody", "")
                    .await
            {
                ensure!(status == 401, "an answer of {status}");
                return Ok(());
            }
            ensure!(Instant::now() < until, "the service does not answer");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
}

struct Ask {
    method: &'static str,
    path: String,
    bearer: String,
    body: String,
    accepted: u16,
    keep: Box<dyn FnOnce(&Value)>,
}

async fn each(
    address: SocketAddr,
    clients: usize,
    most: usize,
    time: Duration,
    ask: impl Fn(usize) -> Ask,
) -> Result<Rate> {
    let next = AtomicUsize::new(0);
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(Connection::open(address).await?);
    }
    let start = Instant::now();
    let work = connections.into_iter().map(|mut connection| {
        let (next, ask) = (&next, &ask);
        async move {
            let mut rate = Rate::default();
            while start.elapsed() < time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= most {
                    break;
                }
                let Ask {
                    method,
                    path,
                    bearer,
                    body,
                    accepted,
                    keep,
                } = ask(number);
                let begun = Instant::now();
                loop {
                    let (status, answer) = connection.ask(method, &path, &bearer, &body).await?;
                    if status == accepted {
                        keep(&answer);
                        break;
                    }
                    if status != 503 {
                        bail!("an answer of {status}: {answer}");
                    }
                    rate.refused += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                rate.times.push(begun.elapsed());
                rate.done += 1;
            }
            Ok(rate)
        }
    });
    let mut whole = Rate::default();
    for part in futures_util::future::join_all(work).await {
        let part: Rate = part?;
        whole.done += part.done;
        whole.refused += part.refused;
        whole.times.extend(part.times);
    }
    whole.took = start.elapsed();
    Ok(whole)
}

fn deadline() -> String {
    use continuation_service::ambient::{Ambient as _, Machine};
    Machine::default()
        .wall()
        .plus_ms(24 * 3_600_000)
        .to_string()
}
