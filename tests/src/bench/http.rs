//! Requests over a connection of their own: nothing but the bytes, so that the client weighs the
//! same on both sides of a comparison.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No answer takes this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes read at once.
const CHUNK: usize = 256 * 1024;

/// One streamed chat completion.
#[derive(Debug, Clone)]
pub struct Request {
    address: SocketAddr,
    bytes: Vec<u8>,
    expected: String,
}

impl Request {
    /// Asks `model` at `address`, base path `/v1`; the answer must contain `expected`. With a
    /// conversation the turn belongs to it, else it is a conversation of its own.
    #[must_use]
    pub fn new(
        address: SocketAddr,
        model: &str,
        conversation: Option<&str>,
        message: &str,
        expected: &str,
    ) -> Self {
        let mut body = json!({
            "model": model,
            "stream": true,
            "messages": [{ "role": "user", "content": message }],
        });
        if let Some(conversation) = conversation {
            body["conversation_id"] = json!(conversation);
        }
        let body = body.to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self {
            address,
            bytes: (head + &body).into_bytes(),
            expected: expected.to_owned(),
        }
    }

    /// Sends it and reads the answer to its last byte; returns the time to the first byte and to
    /// the last one.
    ///
    /// # Errors
    /// When there is no answer, or another one than expected.
    pub fn send(&self) -> Result<(Duration, Duration)> {
        let answer = self.answer("")?;
        ensure!(
            answer.text.contains(&self.expected),
            "another answer than {:?}: {}",
            self.expected,
            answer.text
        );
        Ok((answer.first, answer.last))
    }

    /// [`exchange`] of this request.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn answer(&self, marker: &str) -> Result<Answer> {
        exchange(self.address, &self.bytes, marker)
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Time until the marker was there.
    pub first: Duration,
    /// Time until the last byte.
    pub last: Duration,
    /// All of it, with its head.
    pub text: String,
}

/// Sends bytes and reads what comes to its end. `first` is when the answer holds `marker`; an empty
/// one is there with the first byte.
///
/// # Errors
/// When there is no answer of status 200, or none with the marker.
pub fn exchange(address: SocketAddr, bytes: &[u8], marker: &str) -> Result<Answer> {
    let start = Instant::now();
    let mut stream = sent(address, bytes)?;
    let mut answer = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let mut first = None;
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        answer.extend_from_slice(&chunk[..count]);
        let there = |answer: &[u8]| {
            marker.is_empty() || answer.windows(marker.len()).any(|w| w == marker.as_bytes())
        };
        if first.is_none() && there(&answer) {
            first = Some(start.elapsed());
        }
    }
    let last = start.elapsed();
    let text = String::from_utf8_lossy(&answer).into_owned();
    ensure!(is_fine(&text), "another answer: {text}");
    let first = first.with_context(|| format!("no {marker:?} in the answer: {text}"))?;
    Ok(Answer { first, last, text })
}

fn sent(address: SocketAddr, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)
        .with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

fn is_fine(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200")
}

/// Sends a request and drops the body of the answer, which must have this many bytes; the time to
/// the head and to the last byte.
///
/// # Errors
/// When there is another answer.
pub fn swallow(address: SocketAddr, bytes: &[u8], expected: usize) -> Result<(Duration, Duration)> {
    let start = Instant::now();
    let mut stream = sent(address, bytes)?;
    let mut chunk = vec![0; CHUNK];
    let mut head = Vec::new();
    let mut body = loop {
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "no answer");
        head.extend_from_slice(&chunk[..count]);
        if let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") {
            break head.len() - end - 4;
        }
    };
    let first = start.elapsed();
    while body < expected {
        let count = stream.read(&mut chunk)?;
        ensure!(
            count > 0,
            "the answer ended after {body} of {expected} bytes"
        );
        body += count;
    }
    let last = start.elapsed();
    ensure!(
        is_fine(&String::from_utf8_lossy(&head[..head.len().min(12)])) && body == expected,
        "another answer, of {body} bytes where {expected} were expected"
    );
    Ok((first, last))
}
