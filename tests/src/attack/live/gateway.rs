//! A process of the daemon's own user that is no stub, at the gateway: before it is taken in, and
//! after.

use crate::attack::live::Outcomes;
use crate::attack::outcome::Outcome;
use crate::daemon::{Daemon, PATIENCE, Setup, wait_for};
use crate::fuzz::measure::Process;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Who attacks, in the table.
const WHO: &str = "stub";
/// The configured server; none of this ever starts it.
const SERVER: &str = "cat";
/// Sessions that the daemon allows.
const SESSIONS: usize = 4;
/// Connections at once of a flood.
const FLOOD: usize = 300;
/// Long enough for an answer that comes.
const SILENCE: Duration = Duration::from_secs(2);
/// The bridge may grow by so much: what waits for one reader, and what its allocator keeps.
const GROWTH: u64 = 160 << 20;
/// The token of an honest session.
const HONEST: u8 = 0xaa;

/// An attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Unique.
    pub name: &'static str,
    act: fn(&Gate) -> Result<Outcome>,
}

const fn attack(name: &'static str, act: fn(&Gate) -> Result<Outcome>) -> Attack {
    Attack { name, act }
}

/// Before it is taken in.
pub const STRANGERS: &[Attack] = &[
    attack("silence", |gate| gate.first(b"")),
    attack("speech-of-another-protocol", |gate| {
        gate.first(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    }),
    attack("message-before-registering", |gate| {
        gate.first(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n")
    }),
    attack("ping-before-registering", |gate| gate.first(b"#ping\n")),
    attack("registration-of-zeros", |gate| {
        gate.first(&[0, 0, 0, b'\n'])
    }),
    attack("registration-without-members", |gate| {
        gate.first(b"#register {}\n")
    }),
    attack("registration-cut-off", |gate| {
        let line = registration(SERVER, &token(1), 1);
        let mut stream = gate.connected()?;
        stream.write_all(&line.as_bytes()[..line.len() / 2])?;
        stream.shutdown(Shutdown::Write)?;
        Ok(came(&mut stream))
    }),
    attack("registration-too-large", |gate| {
        gate.first(&vec![b'#'; 1 << 20])
    }),
    attack("registration-of-the-future", |gate| {
        gate.first(registration(SERVER, &token(1), 2).as_bytes())
    }),
    attack("registration-for-no-server", |gate| {
        gate.first(registration("other", &token(1), 1).as_bytes())
    }),
    attack("registration-with-a-path-for-a-server", |gate| {
        gate.first(registration("../../bin/sh", &token(1), 1).as_bytes())
    }),
    attack("token-that-is-none", |gate| {
        gate.first(registration(SERVER, "guessed", 1).as_bytes())
    }),
    attack("token-of-another-process", |gate| {
        let mut told = Command::new(&gate.suite);
        told.arg("--register").arg(&gate.path).arg(token(HONEST));
        let told = told.output()?;
        Ok(judged(&String::from_utf8_lossy(&told.stdout), true))
    }),
    attack("sessions-beyond-the-bound", |gate| {
        let members: Result<Vec<_>> = (0..SESSIONS - 1)
            .map(|n| gate.member(0x10 + n as u8))
            .collect();
        let outcome = gate.first(registration(SERVER, &token(0x20), 1).as_bytes());
        drop(members?);
        outcome
    }),
    attack("flood-of-connections", |gate| {
        let held: Vec<_> = (0..FLOOD)
            .filter_map(|_| UnixStream::connect(&gate.path).ok())
            .collect();
        let mut member = gate.member(0x30)?;
        let outcome = answered(&mut member);
        drop(held);
        Ok(outcome)
    }),
];

/// Once it is in.
pub const MEMBERS: &[Attack] = &[
    attack("word-that-nobody-knows", |gate| gate.then(b"#what\n")),
    attack("word-of-the-gateway", |gate| {
        gate.then(b"#registered other\n")
    }),
    attack("registration-again", |gate| {
        gate.then(registration(SERVER, &token(2), 1).as_bytes())
    }),
    attack("anchor-of-its-own", |gate| gate.then(b"#anchor {}\n")),
    attack("message-cut-off", |gate| {
        let mut member = gate.member(3)?;
        member.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,")?;
        member.shutdown(Shutdown::Write)?;
        Ok(came(&mut member))
    }),
    attack("message-too-large", |gate| {
        let mut member = gate.member(3)?;
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            if member.write_all(&piece).is_err() {
                return Ok(Outcome::Ended);
            }
        }
        Ok(Outcome::Done)
    }),
    attack("message-that-is-none", |gate| gate.then(b"{\n")),
    attack("message-without-a-kind", |gate| gate.then(b"{\"id\":1}\n")),
    attack("message-of-many-levels", |gate| {
        let line = format!(r#"{{"id":1,"method":"m","params":{}"#, "[".repeat(200_000));
        gate.then(format!("{line}\n").as_bytes())
    }),
    attack("id-without-end", |gate| {
        let line = format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(10_000));
        gate.then(format!("{line}\n").as_bytes())
    }),
    attack("answer-to-nothing", |gate| {
        gate.then(b"{\"jsonrpc\":\"2.0\",\"id\":\"mono:ping\",\"result\":{}}\n")
    }),
    attack("flood-without-reading", |gate| {
        let mut member = gate.member(4)?;
        let pings = b"#ping\n".repeat(10_000);
        for _ in 0..4_000 {
            if member.write_all(&pings).is_err() {
                return Ok(Outcome::Ended);
            }
        }
        Ok(Outcome::Done)
    }),
];

/// What is as it was; each is `nothing` when it is.
pub const AFTERWARDS: [&str; 4] = [
    "afterwards-bridge",
    "afterwards-memory",
    "afterwards-sessions",
    "afterwards-answers",
];

/// Their names.
#[must_use]
pub fn names(attacks: &[Attack]) -> Vec<String> {
    let names = attacks.iter().map(|attack| attack.name.to_owned());
    names.collect()
}

fn token(n: u8) -> String {
    format!("{n:02x}").repeat(32)
}

fn registration(server: &str, token: &str, version: u32) -> String {
    let register = json!({ "version": version, "server": server, "session": token });
    format!("#register {register}\n")
}

/// What a gateway says to a registration.
///
/// # Errors
/// When it can't be reached.
pub fn told(socket: &Path, token: &str) -> Result<String> {
    let mut stream = connected(socket)?;
    stream.write_all(registration(SERVER, token, 1).as_bytes())?;
    Ok(line(&mut stream).unwrap_or_default())
}

fn connected(path: &Path) -> Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The next line; none at the end.
fn line(stream: &mut UnixStream) -> Option<String> {
    let (mut line, mut byte) = (Vec::new(), [0u8]);
    while matches!(stream.read(&mut byte), Ok(1)) {
        if byte[0] == b'\n' {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
        line.push(byte[0]);
    }
    None
}

/// What comes now.
fn came(stream: &mut UnixStream) -> Outcome {
    line(stream).map_or(Outcome::Ended, |line| judged(&line, false))
}

/// What a line of the gateway means; being taken in is a breach for a thief.
fn judged(line: &str, thief: bool) -> Outcome {
    match line.trim() {
        line if line.starts_with("#refused ") => Outcome::Denied,
        line if line.starts_with("#registered ") && thief => Outcome::Done,
        _ => Outcome::Answered,
    }
}

/// What comes of an honest question.
fn answered(member: &mut UnixStream) -> Outcome {
    // An end that was not seen yet is an end.
    if member.write_all(b"#ping\n").is_err() {
        return Outcome::Ended;
    }
    came(member)
}

/// A gateway under attack.
pub struct Gate {
    path: PathBuf,
    suite: PathBuf,
}

impl Gate {
    fn connected(&self) -> Result<UnixStream> {
        connected(&self.path)
    }

    /// Says this first.
    fn first(&self, bytes: &[u8]) -> Result<Outcome> {
        let mut stream = self.connected()?;
        // It may be gone before it has taken all.
        let _ = stream.write_all(bytes);
        Ok(came(&mut stream))
    }

    /// Taken in.
    fn member(&self, n: u8) -> Result<UnixStream> {
        let mut stream = self.connected()?;
        stream.write_all(registration(SERVER, &token(n), 1).as_bytes())?;
        let told = line(&mut stream).context("not taken in")?;
        ensure!(told.starts_with("#registered "), "{told}");
        Ok(stream)
    }

    /// Says this once it is in.
    fn then(&self, bytes: &[u8]) -> Result<Outcome> {
        let mut member = self.member(2)?;
        let _ = member.write_all(bytes);
        member.set_read_timeout(Some(SILENCE))?;
        let mut byte = [0u8];
        match member.read(&mut byte) {
            Ok(0) => Ok(Outcome::Ended),
            Ok(_) => Ok(Outcome::Answered),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                member.set_read_timeout(Some(PATIENCE))?;
                // On a busy machine an end or an answer may come only now.
                if member.write_all(b"#ping\n").is_err() {
                    return Ok(Outcome::Ended);
                }
                Ok(match line(&mut member).as_deref().map(str::trim) {
                    None => Outcome::Ended,
                    Some("#pong") => Outcome::Nothing,
                    Some(_) => Outcome::Answered,
                })
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(Outcome::Ended),
            Err(e) => Err(e.into()),
        }
    }
}

/// Every attack, one after the other, and how the daemon is then.
pub(super) fn attacked(programs: &Path) -> Result<Outcomes> {
    let mut setup = Setup::new()?.gateway();
    setup.config["tools"]["gateway"]["maxSessions"] = json!(SESSIONS);
    setup = setup.server(SERVER, "/bin/cat".as_ref(), &[], &[]);
    let daemon = setup.start()?;
    let gate = Gate {
        path: daemon.gateway(),
        suite: programs.join("attack-suite"),
    };
    let mut honest = gate.member(HONEST)?;
    let bridge = daemon.worker("app-bridge")?;
    let process = Process::of(bridge.unsigned_abs());
    let before = process.resident()?;
    let mut found = BTreeMap::new();
    for attack in STRANGERS.iter().chain(MEMBERS) {
        // Those of the attack before may not have been let go yet.
        alone(&daemon)?;
        let outcome = (attack.act)(&gate).with_context(|| attack.name.to_owned())?;
        found.insert(attack.name.to_owned(), outcome);
    }
    let odd = |words: String| Outcome::Odd(words.replace(char::is_whitespace, "_"));
    let same = daemon.worker("app-bridge")? == bridge;
    let grown = process.resident()?.saturating_sub(before);
    let results = [
        (!same).then(|| "another bridge".to_owned()),
        (grown > GROWTH).then(|| format!("{grown} bytes more")),
        alone(&daemon).err().map(|e| e.to_string()),
        match answered(&mut honest) {
            Outcome::Answered => None,
            other => Some(other.to_string()),
        },
    ];
    for (name, wrong) in AFTERWARDS.into_iter().zip(results) {
        found.insert(name.to_owned(), wrong.map_or(Outcome::Nothing, odd));
    }
    Ok(Outcomes::from([(WHO.to_owned(), found)]))
}

/// Waits until the honest session is the only one, and nothing was started.
fn alone(daemon: &Daemon) -> Result<()> {
    let told = || daemon.json(&["mcp", "stats"]).unwrap_or(Value::Null);
    wait_for("one session and no server", || {
        let told = told();
        told["gateway"]["sessions"] == 1 && told["gateway"]["backends"] == 0
    })
}
