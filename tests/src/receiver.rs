//! A server that takes what it is sent, and answers as it is told.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest wait for a delivery.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest body that is taken.
const MAX_BODY: usize = 64 << 20;

/// One request that came.
#[derive(Debug)]
pub struct Delivery {
    /// Method and path.
    pub target: String,
    /// Headers by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: Vec<u8>,
}

/// The server; it ends with the test's process.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    answers: Arc<Mutex<VecDeque<String>>>,
    hold: Arc<Mutex<Option<Inbox<()>>>>,
    inbox: Inbox<Delivery>,
}

impl Receiver {
    /// Starts on a free loopback port.
    ///
    /// # Errors
    /// When no port or thread can be had.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let hold = Arc::new(Mutex::new(None));
        let (tell, inbox) = channel();
        let (queue, held) = (answers.clone(), hold.clone());
        std::thread::Builder::new()
            .name("receiver".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A connection that breaks off delivers nothing.
                    let _ = serve(stream, &queue, &held, &tell);
                }
            })?;
        Ok(Self {
            address,
            answers,
            hold,
            inbox,
        })
    }

    /// Where it listens, `127.0.0.1:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The answer to a coming request: a status and header lines. Without one it is 204.
    pub fn answer(&self, status: u16, headers: &str) {
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n{headers}\r\n"
        );
        if let Ok(mut answers) = self.answers.lock() {
            answers.push_back(answer);
        }
    }

    /// The next answer waits for a word on this channel.
    pub fn hold(&self, word: Inbox<()>) {
        if let Ok(mut hold) = self.hold.lock() {
            *hold = Some(word);
        }
    }

    /// The next request.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn next(&self) -> Result<Delivery> {
        self.inbox
            .recv_timeout(PATIENCE)
            .context("nothing was delivered")
    }

    /// All that came that nobody has looked at.
    #[must_use]
    pub fn arrived(&self) -> Vec<Delivery> {
        self.inbox.try_iter().collect()
    }

    /// How many requests came that nobody has looked at.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inbox.try_iter().count()
    }
}

fn serve(
    stream: TcpStream,
    answers: &Mutex<VecDeque<String>>,
    hold: &Mutex<Option<Inbox<()>>>,
    tell: &Sender<Delivery>,
) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let target = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length: usize = headers
        .get("content-length")
        .context("no length")?
        .parse()?;
    let mut body = vec![0; length.min(MAX_BODY)];
    reader.read_exact(&mut body)?;
    // Known before it is answered, so that whoever waits for an effect finds it here.
    tell.send(Delivery {
        target,
        headers,
        body,
    })?;
    let held = hold.lock().ok().and_then(|mut hold| hold.take());
    if let Some(word) = held {
        word.recv_timeout(PATIENCE)?;
    }
    let answer = answers.lock().ok().and_then(|mut all| all.pop_front());
    let answer =
        answer.unwrap_or_else(|| "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned());
    reader.get_mut().write_all(answer.as_bytes())?;
    Ok(())
}
