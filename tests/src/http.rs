//! Requests over a plain connection, for what a proper client would never send.

use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for a piece of an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Header lines, in lower case.
    pub head: String,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| String::from_utf8_lossy(&self.body).into_owned())
    }
}

/// Opens a connection to `http://HOST:PORT`.
///
/// # Errors
/// When nobody listens.
pub fn connect(base: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(base.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends a request without a body, with these header lines alone, and reads the answer.
///
/// # Errors
/// When the connection breaks.
pub fn request(base: &str, line: &str, headers: &str) -> Result<Answer> {
    let mut stream = connect(base)?;
    stream.write_all(format!("{line} HTTP/1.0\r\n{headers}\r\n").as_bytes())?;
    answer(&mut stream)
}

/// Begins a POST of this many bytes of JSON. HTTP/1.0: the answer ends with the connection.
///
/// # Errors
/// When the connection breaks.
pub fn begin_post(stream: &mut TcpStream, path: &str, headers: &str, length: u64) -> Result<()> {
    let head = format!(
        "POST {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{headers}\r\n"
    );
    Ok(stream.write_all(head.as_bytes())?)
}

/// Reads the answer to its end.
///
/// # Errors
/// When there is none.
pub fn answer(stream: &mut TcpStream) -> Result<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .context("no answer")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .context("no status")?;
    Ok(Answer {
        status,
        head,
        body: bytes.split_off(end + 4),
    })
}

/// Posts a body and reads the answer.
///
/// # Errors
/// When the connection breaks.
pub fn post(base: &str, path: &str, body: &[u8]) -> Result<Answer> {
    let mut stream = connect(base)?;
    begin_post(&mut stream, path, "", body.len() as u64)?;
    stream.write_all(body)?;
    answer(&mut stream)
}

/// Asks for a chat completion that is not streamed.
///
/// # Errors
/// When the connection breaks.
pub fn complete(base: &str, conversation: &str, text: &str) -> Result<Answer> {
    post(
        base,
        "/v1/chat/completions",
        &completion(conversation, text),
    )
}

/// The body of a request for a chat completion that is not streamed.
#[must_use]
pub fn completion(conversation: &str, text: &str) -> Vec<u8> {
    serde_json::json!({
        "model": "agent", "metadata": { "conversation_id": conversation },
        "messages": [{ "role": "user", "content": text }],
    })
    .to_string()
    .into_bytes()
}
