//! Moves the bytes: standard input and output on one side, the gateway's socket on the other. One
//! thread, so that a message is handed on as soon as it is there.

use crate::lines::{Lines, TooLong};
use crate::relay::{Do, Relay};
use crate::wire::{Control, MAX_LINE, Refused, Register, TOKEN_CHARS, VERSION};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a gateway may take to say that it takes a stub in.
const REGISTER_WITHIN: Duration = Duration::from_secs(5);
/// How long a gateway may take nothing.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// How long the gateway is looked for before the first connection.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// How long it is looked for after it was lost.
const BUDGET: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long answers are awaited after the client has closed its input.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Bytes that are written at once, when so many wait; one message may have more.
const BATCH: usize = 64 << 10;

/// Why a stub ends before its client does.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    /// No connection in time.
    #[error("no gateway at {}: {reason}. Is monod running, with tools.gateway.enabled, and as this user? --socket names another place", path.display())]
    NoGateway {
        /// Where it was looked for last.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The gateway doesn't want us.
    #[error("the gateway refuses: {0}")]
    Refused(String),
    /// The client's side.
    #[error("the client can't be spoken to: {0}")]
    Client(io::Error),
    /// The client's side.
    #[error("the client wrote too much: {0}")]
    TooLong(TooLong),
    /// The random device.
    #[error("no random bytes: {0}")]
    Random(io::Error),
}

/// 32 random bytes: who holds them is the session.
fn new_token() -> io::Result<String> {
    let mut bytes = [0u8; TOKEN_CHARS / 2];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// One stub's life.
#[derive(Debug)]
pub struct Pump {
    places: Vec<PathBuf>,
    server: String,
    token: String,
    relay: Relay,
    link: Option<Link>,
    /// What was said in one go is written in one go: it costs the reader one wake-up.
    for_client: Vec<u8>,
    for_gateway: Vec<u8>,
    /// Since when there is no connection, when the next attempt is due, and the pause after it.
    away: (Instant, Instant, Duration),
    was_there: bool,
}

#[derive(Debug)]
struct Link {
    stream: UnixStream,
    lines: Lines,
}

/// Why an attempt failed.
enum Attempt {
    Failed(PathBuf, String),
    Refused(Refused),
}

impl Pump {
    /// A stub of a server, whose gateway is at one of these places.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn new(places: Vec<PathBuf>, server: String) -> Result<Self, PumpError> {
        let now = Instant::now();
        Ok(Self {
            places,
            server,
            token: new_token().map_err(PumpError::Random)?,
            relay: Relay::new(now),
            link: None,
            for_client: Vec::new(),
            for_gateway: Vec::new(),
            away: (now, now, FIRST_PAUSE),
            was_there: false,
        })
    }

    /// Relays until the client closes its input.
    ///
    /// # Errors
    /// When there is no gateway, it refuses, or the client can't be spoken to.
    pub fn run(mut self) -> Result<(), PumpError> {
        let mut stdout = io::stdout().lock();
        let ended = self.serve(&mut stdout);
        // Whatever it was that ended it, the client gets what was meant for it.
        let flushed = self.flush(&mut stdout);
        ended.and(flushed)
    }

    fn serve(&mut self, out: &mut impl Write) -> Result<(), PumpError> {
        let stdin = io::stdin();
        let mut input = Lines::new(MAX_LINE);
        let mut closing: Option<Instant> = None;
        let mut buffer = vec![0u8; 128 << 10];
        loop {
            let now = Instant::now();
            if self.link.is_none() && now >= self.away.1 {
                self.attempt(now, out)?;
            }
            let todo = self.relay.tick(now);
            self.carry_out(todo, out)?;
            if let Some(since) = closing
                && (self.relay.is_idle() || now.duration_since(since) >= LAST_ANSWERS)
            {
                return Ok(());
            }
            self.flush(out)?;
            let (from_client, from_gateway) = self.wait(closing.is_none(), closing)?;
            let now = Instant::now();
            if from_client {
                let read = match read(stdin.as_fd(), &mut buffer) {
                    Ok(read) => read,
                    Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                    Err(e) => return Err(PumpError::Client(e)),
                };
                if read == 0 {
                    closing = Some(now);
                }
                input.push(&buffer[..read]);
                while let Some(line) = input.next_line().map_err(PumpError::TooLong)? {
                    let todo = self.relay.client(now, line);
                    self.carry_out(todo, out)?;
                }
            }
            if from_gateway {
                self.hear(now, &mut buffer, out)?;
            }
        }
    }

    /// Waits until somebody said something or something is due.
    fn wait(&self, listen: bool, closing: Option<Instant>) -> Result<(bool, bool), PumpError> {
        let attempt = self.link.is_none().then_some(self.away.1);
        let last = closing.map(|since| since + LAST_ANSWERS);
        let due = [attempt, last, self.relay.next_tick()]
            .into_iter()
            .flatten()
            .min();
        let timeout = due.map_or(PollTimeout::NONE, |due| {
            let left = due.saturating_duration_since(Instant::now());
            // Rounded up, or the last millisecond would be waited for in a circle.
            let millis = left.as_micros().div_ceil(1000).min(60_000);
            PollTimeout::try_from(millis as u32 as i32).unwrap_or(PollTimeout::ZERO)
        });
        let stdin = io::stdin();
        let mut fds = Vec::with_capacity(2);
        if listen {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        if let Some(link) = &self.link {
            fds.push(PollFd::new(link.stream.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(PumpError::Client(e.into())),
        }
        let mut spoke = fds.iter().map(|fd| fd.any().unwrap_or(false));
        let client = listen && spoke.next().unwrap_or(false);
        Ok((client, spoke.next().unwrap_or(false)))
    }

    fn hear(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        out: &mut impl Write,
    ) -> Result<(), PumpError> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        match link.stream.read(buffer) {
            Ok(0) => return self.lose("it closed the connection", out),
            Ok(read) => link.lines.push(&buffer[..read]),
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(e) => return self.lose(&e.to_string(), out),
        }
        while let Some(link) = &mut self.link {
            match link.lines.next_line() {
                Ok(Some(line)) => {
                    let todo = self.relay.gateway(now, line);
                    self.carry_out(todo, out)?;
                }
                Ok(None) => break,
                Err(e) => return self.lose(&e.to_string(), out),
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, todo: Vec<Do>, out: &mut impl Write) -> Result<(), PumpError> {
        for one in todo {
            match one {
                Do::Client(line) => add(&mut self.for_client, line),
                Do::Gateway(line) if self.link.is_some() => add(&mut self.for_gateway, line),
                Do::Gateway(_) => {}
                Do::Reconnect => self.lose("it is silent, or not understood", out)?,
            }
        }
        if self.for_client.len() > BATCH || self.for_gateway.len() > BATCH {
            self.flush(out)?;
        }
        Ok(())
    }

    /// Writes what is to be written.
    fn flush(&mut self, out: &mut impl Write) -> Result<(), PumpError> {
        if !self.for_gateway.is_empty()
            && let Some(link) = &mut self.link
        {
            let written = link.stream.write_all(&self.for_gateway);
            self.for_gateway.clear();
            if let Err(e) = written {
                self.lose(&e.to_string(), out)?;
            }
        }
        if !self.for_client.is_empty() {
            let written = out.write_all(&self.for_client).and_then(|()| out.flush());
            self.for_client.clear();
            written.map_err(PumpError::Client)?;
        }
        Ok(())
    }

    fn lose(&mut self, why: &str, out: &mut impl Write) -> Result<(), PumpError> {
        if self.link.take().is_none() {
            return Ok(());
        }
        self.for_gateway.clear();
        eprintln!("mono-mcp-stub: the gateway is away: {why}");
        let now = Instant::now();
        self.away = (now, now, FIRST_PAUSE);
        let todo = self.relay.lost(now);
        self.carry_out(todo, out)
    }

    /// Tries to connect, once.
    fn attempt(&mut self, now: Instant, out: &mut impl Write) -> Result<(), PumpError> {
        match self.connect() {
            Ok(link) => {
                if self.was_there {
                    eprintln!("mono-mcp-stub: the gateway is back");
                }
                self.was_there = true;
                self.link = Some(link);
                let todo = self.relay.connected(Instant::now());
                self.carry_out(todo, out)
            }
            Err(Attempt::Refused(refused)) if !refused.retry => {
                let todo = self.relay.refuse(&refused.message);
                self.carry_out(todo, out)?;
                Err(PumpError::Refused(refused.message))
            }
            Err(failed) => {
                let (since, _, pause) = self.away;
                let budget = if self.was_there { BUDGET } else { FIRST_WITHIN };
                if now.duration_since(since) >= budget {
                    let error = match failed {
                        Attempt::Failed(path, reason) => PumpError::NoGateway { path, reason },
                        Attempt::Refused(refused) => PumpError::Refused(refused.message),
                    };
                    let todo = self.relay.refuse(&error.to_string());
                    self.carry_out(todo, out)?;
                    return Err(error);
                }
                self.away = (
                    since,
                    Instant::now() + pause,
                    (pause * 2).min(LONGEST_PAUSE),
                );
                Ok(())
            }
        }
    }

    fn connect(&self) -> Result<Link, Attempt> {
        let mut last = Attempt::Failed(PathBuf::new(), "no place to look".to_owned());
        for path in &self.places {
            let failed = |e: io::Error| Attempt::Failed(path.clone(), e.to_string());
            let stream = match UnixStream::connect(path) {
                Ok(stream) => stream,
                Err(e) => {
                    last = failed(e);
                    continue;
                }
            };
            return self.register(stream).map_err(|error| match error {
                Ok(refused) => Attempt::Refused(refused),
                Err(error) => failed(error),
            });
        }
        Err(last)
    }

    fn register(&self, mut stream: UnixStream) -> Result<Link, Result<Refused, io::Error>> {
        let register = Control::Register(Register {
            version: VERSION,
            server: self.server.clone(),
            session: self.token.clone(),
            anchor: self.relay.anchor().map(str::to_owned),
        });
        stream
            .set_read_timeout(Some(REGISTER_WITHIN))
            .map_err(Err)?;
        stream.set_write_timeout(Some(WRITE_WITHIN)).map_err(Err)?;
        let mut line = register.to_line().into_bytes();
        line.push(b'\n');
        stream.write_all(&line).map_err(Err)?;
        let mut lines = Lines::new(MAX_LINE);
        let mut buffer = [0u8; 4096];
        let odd = |text: &str| Err(io::Error::new(ErrorKind::InvalidData, text.to_owned()));
        loop {
            if let Some(line) = lines.next_line().map_err(|e| odd(&e.to_string()))? {
                return match Control::parse(&line) {
                    Ok(Control::Registered(_)) => {
                        stream.set_read_timeout(None).map_err(Err)?;
                        Ok(Link { stream, lines })
                    }
                    Ok(Control::Refused(refused)) => Err(Ok(refused)),
                    _ => Err(odd("something else answers there")),
                };
            }
            match stream.read(&mut buffer) {
                Ok(0) => return Err(odd("it closed the connection")),
                Ok(read) => lines.push(&buffer[..read]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return Err(odd("it does not answer"));
                }
                Err(e) => return Err(Err(e)),
            }
        }
    }
}

/// Adds a line and its end; most often it is the only one and is not copied.
fn add(waiting: &mut Vec<u8>, line: Vec<u8>) {
    if waiting.is_empty() {
        *waiting = line;
    } else {
        waiting.extend_from_slice(&line);
    }
    waiting.push(b'\n');
}

/// Reads past the buffer of standard input, which would hide from `poll` what it holds.
fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    nix::unistd::read(fd, buffer).map_err(io::Error::from)
}
