//! A chat completion over a connection of its own: nothing but the bytes, so that the client
//! weighs the same on both sides of a comparison.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No answer takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let start = Instant::now();
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)
            .with_context(|| format!("connecting to {}", self.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&self.bytes)?;
        let mut answer = vec![0; 1];
        stream.read_exact(&mut answer)?;
        let first = start.elapsed();
        stream.read_to_end(&mut answer)?;
        let last = start.elapsed();
        let answer = String::from_utf8_lossy(&answer);
        ensure!(
            answer.starts_with("HTTP/1.1 200") && answer.contains(&self.expected),
            "another answer than {:?}: {answer}",
            self.expected
        );
        Ok((first, last))
    }
}
