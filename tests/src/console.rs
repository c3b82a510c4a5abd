//! The web console as a browser would use it, without a browser.

use crate::daemon::Daemon;
use crate::http::{self, Answer};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// A browser that is logged in.
#[derive(Debug, Clone)]
pub struct Browser {
    base: String,
    cookie: String,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// `id:`.
    pub number: Option<u64>,
    /// `event:`.
    pub name: String,
    /// `data:`.
    pub data: Value,
}

/// An open stream of events.
#[derive(Debug)]
pub struct Events {
    lines: BufReader<TcpStream>,
}

/// A one-time link, as an operator gets it.
///
/// # Errors
/// When there is none.
pub fn link(daemon: &Daemon) -> Result<String> {
    let made = daemon.json(&["console", "open"])?;
    let url = made["url"].as_str().context("no link")?;
    Ok(url.to_owned())
}

/// Splits a link into where it is and its path.
///
/// # Errors
/// When it is none.
pub fn split(url: &str) -> Result<(String, String)> {
    let rest = url.strip_prefix("http://").context("no http link")?;
    let (host, path) = rest.split_once('/').context("no path")?;
    Ok((format!("http://{host}"), format!("/{path}")))
}

/// Sends a request with exactly these header lines beside its length, and reads the answer.
///
/// # Errors
/// When the connection breaks.
pub fn send(base: &str, line: &str, headers: &str, body: &[u8]) -> Result<Answer> {
    let mut stream = http::connect(base)?;
    let length = body.len();
    let head = format!("{line} HTTP/1.0\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    http::answer(&mut stream)
}

/// A header line of an answer.
#[must_use]
pub fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let start = format!("{name}: ");
    let mut lines = answer.head.lines();
    lines.find_map(|line| line.strip_prefix(start.as_str()))
}

impl Browser {
    /// Logs in with a new link.
    ///
    /// # Errors
    /// When that doesn't go as it should.
    pub fn log_in(daemon: &Daemon) -> Result<Self> {
        let (base, path) = split(&link(daemon)?)?;
        let host = format!("host: {}\r\nuser-agent: test\r\n", &base[7..]);
        let answer = send(&base, &format!("POST {path}"), &host, b"")?;
        let cookie = header(&answer, "set-cookie").and_then(|cookie| cookie.split(';').next());
        let cookie = cookie.with_context(|| format!("no cookie: {answer:?}"))?;
        Ok(Self {
            base,
            cookie: cookie.to_owned(),
        })
    }

    /// Where it goes.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The same browser, where the console listens now.
    #[must_use]
    pub fn moved(&self, base: &str) -> Self {
        Self {
            base: base.to_owned(),
            cookie: self.cookie.clone(),
        }
    }

    /// The header lines of every request.
    #[must_use]
    pub fn headers(&self) -> String {
        let host = &self.base[7..];
        format!(
            "host: {host}\r\ncookie: {}\r\nx-mono-console: 1\r\n",
            self.cookie
        )
    }

    /// Any request.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn ask(&self, line: &str, body: &[u8]) -> Result<Answer> {
        send(&self.base, line, &self.headers(), body)
    }

    /// Reads JSON below `/api/v1`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn get(&self, path: &str) -> Result<Value> {
        let answer = self.ask(&format!("GET /api/v1{path}"), b"")?;
        if answer.status != 200 {
            bail!(
                "{path}: {} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            );
        }
        answer.json()
    }

    /// Sends JSON below `/api/v1`.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn change(&self, method: &str, path: &str, body: &Value) -> Result<Answer> {
        self.ask(
            &format!("{method} /api/v1{path}"),
            body.to_string().as_bytes(),
        )
    }

    /// Begins a thread; its id.
    ///
    /// # Errors
    /// When it is refused.
    pub fn thread(&self) -> Result<String> {
        let made = self.change("POST", "/threads", &json!({}))?.json()?;
        Ok(made["id"].as_str().context("no thread")?.to_owned())
    }

    /// Sends a message; the id of the answer to come.
    ///
    /// # Errors
    /// When it is refused.
    pub fn turn(&self, thread: &str, body: &Value) -> Result<String> {
        let answer = self.change("POST", &format!("/threads/{thread}/turns"), body)?;
        if answer.status != 202 {
            bail!(
                "{} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            );
        }
        let reply = answer.json()?["reply"]["id"].as_str().map(str::to_owned);
        reply.context("no reply")
    }

    /// Opens a stream below `/api/v1`.
    ///
    /// # Errors
    /// When it is refused.
    pub fn events(&self, path: &str) -> Result<Events> {
        let mut stream = http::connect(&self.base)?;
        let head = format!("GET /api/v1{path} HTTP/1.0\r\n{}\r\n", self.headers());
        stream.write_all(head.as_bytes())?;
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        if !line.contains(" 200 ") {
            bail!("{path}: {line}");
        }
        while line.trim() != "" {
            line.clear();
            lines.read_line(&mut line)?;
        }
        Ok(Events { lines })
    }

    /// Opens the stream of an answer after a frame.
    ///
    /// # Errors
    /// When it is refused.
    pub fn frames(&self, thread: &str, reply: &str, after: u64) -> Result<Events> {
        self.events(&format!(
            "/threads/{thread}/stream?message={reply}&after={after}"
        ))
    }

    /// Follows an answer to its end; the message of the last frame.
    ///
    /// # Errors
    /// When it has none in time.
    pub fn finished(&self, thread: &str, reply: &str) -> Result<Value> {
        let mut frames = self.frames(thread, reply, 0)?;
        let last = frames.until(|event| event.name == "finish")?;
        Ok(last.data["message"].clone())
    }
}

impl Events {
    /// The next event; `None` at the end of the stream.
    ///
    /// # Errors
    /// When it is silent for too long.
    pub fn following(&mut self) -> Result<Option<Event>> {
        let (mut number, mut name, mut data) = (None, String::new(), Value::Null);
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end().split_once(": ") {
                Some(("id", text)) => number = text.parse().ok(),
                Some(("event", text)) => name = text.to_owned(),
                Some(("data", text)) => data = serde_json::from_str(text)?,
                _ if line.trim().is_empty() && !name.is_empty() => {
                    return Ok(Some(Event { number, name, data }));
                }
                _ => {}
            }
        }
    }

    /// Reads on to the first event that is as wished.
    ///
    /// # Errors
    /// When the stream ends before.
    pub fn until(&mut self, wish: impl Fn(&Event) -> bool) -> Result<Event> {
        while let Some(event) = self.following()? {
            if wish(&event) {
                return Ok(event);
            }
        }
        bail!("the stream ended")
    }
}
