//! What becomes of each message: handed on, kept until the gateway is back, or answered with an
//! error. Takes the time as an argument and has no I/O.
//!
//! A client never sees that the gateway went: its handshake is replayed, what it asks meanwhile
//! waits (spec s2; facts 6.5). What was under way may have been carried out, so it is not repeated
//! but for what only reads.

use crate::frame::{
    Frame, INTERNAL, INVALID_REQUEST, Outcome, answer, failure, notification, request,
};
use crate::wire::{Control, is_control};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a message waits for the gateway.
pub const WAIT: Duration = Duration::from_secs(30);
/// Messages that wait.
pub const MAX_HELD: usize = 256;
/// Bytes that wait.
pub const MAX_HELD_BYTES: usize = 64 << 20;
/// Requests of the client that are not answered yet.
pub const MAX_OUTSTANDING: usize = 1024;
/// How long the gateway may be silent, while something is outstanding, until it is asked.
pub const PING_EVERY: Duration = Duration::from_secs(10);
/// Questions without an answer after which it counts as gone.
pub const MISSES: u32 = 3;
/// The id of a replayed handshake, as it is written.
const REPLAY: &str = r#""mono-mcp-stub:replay""#;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Do {
    /// Write this line to the client.
    Client(Vec<u8>),
    /// Write this line to the gateway.
    Gateway(Vec<u8>),
    /// The connection is of no use: close it and make another.
    Reconnect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    /// The handshake is replayed, since then.
    Replaying(Instant),
    Up,
}

#[derive(Debug)]
struct Held {
    since: Instant,
    line: Vec<u8>,
    /// There for a request.
    id: Option<String>,
    /// For a request that only reads.
    repeatable: bool,
}

/// One client and one gateway.
#[derive(Debug)]
pub struct Relay {
    link: Link,
    /// The client's `initialize`: its id and parameters; answered or not.
    greeting: Option<(String, Option<String>)>,
    greeted: bool,
    /// Requests of the client on their way; the line of those that may be repeated.
    outstanding: HashMap<String, Option<Vec<u8>>>,
    /// Requests of the server that the client has not answered.
    asked: HashSet<String>,
    held: VecDeque<Held>,
    held_bytes: usize,
    heard: Instant,
    misses: u32,
    anchor: Option<String>,
    /// Nothing will go through any more, and why.
    refused: Option<String>,
}

/// True for what can be asked twice without harm.
fn is_repeatable(method: &str) -> bool {
    matches!(method, "initialize" | "server/discover" | "ping") || method.ends_with("/list")
}

impl Relay {
    /// Nothing has been said and there is no connection.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            link: Link::Down,
            greeting: None,
            greeted: false,
            outstanding: HashMap::new(),
            asked: HashSet::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            heard: now,
            misses: 0,
            anchor: None,
            refused: None,
        }
    }

    /// What a new registration brings along.
    #[must_use]
    pub fn anchor(&self) -> Option<&str> {
        self.anchor.as_deref()
    }

    /// True when the client waits for nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && self.held.iter().all(|held| held.id.is_none())
    }

    /// The client said something.
    pub fn client(&mut self, now: Instant, line: Vec<u8>) -> Vec<Do> {
        let (id, repeatable) = match Frame::parse(&line) {
            Err(error) => {
                return vec![to_client(failure(
                    "null",
                    INVALID_REQUEST,
                    &error.to_string(),
                ))];
            }
            Ok(Frame::Request { id, method, params }) => {
                if method == "initialize" {
                    self.greeting = Some((id.to_owned(), params.map(str::to_owned)));
                    self.greeted = false;
                    // A client that begins anew has seen the new tools.
                    self.refused = None;
                    self.anchor = None;
                }
                (Some(id.to_owned()), is_repeatable(&method))
            }
            Ok(Frame::Notification { method, params }) => {
                if method == "notifications/cancelled" && self.cancel(params) {
                    return vec![];
                }
                (None, false)
            }
            Ok(Frame::Answer { id, .. }) => {
                // A question of a server that is gone needs no answer.
                let wanted = id.is_some_and(|id| self.asked.remove(id));
                return match (wanted, self.link) {
                    (true, Link::Up) => vec![Do::Gateway(line)],
                    _ => vec![],
                };
            }
        };
        if let (Some(why), Some(id)) = (&self.refused, &id) {
            return vec![to_client(failure(id, INTERNAL, why))];
        }
        if let Some(id) = &id
            && (self.outstanding.contains_key(id) || self.outstanding.len() >= MAX_OUTSTANDING)
        {
            let why = "the id is in use, or too many requests are under way";
            return vec![to_client(failure(id, INVALID_REQUEST, why))];
        }
        if self.link == Link::Up {
            return vec![self.send(now, line, id, repeatable)];
        }
        self.hold(now, line, id, repeatable)
    }

    /// Who cancels waits no longer. True when what is cancelled was not sent yet.
    fn cancel(&mut self, params: Option<&str>) -> bool {
        #[derive(serde::Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            id: &'a serde_json::value::RawValue,
        }
        let cancelled =
            params.and_then(|params| serde_json::from_str::<Cancelled<'_>>(params).ok());
        let Some(id) = cancelled.map(|cancelled| cancelled.id.get()) else {
            return false;
        };
        self.outstanding.remove(id);
        let before = self.held.len();
        self.held.retain(|held| held.id.as_deref() != Some(id));
        self.held_bytes = self.held.iter().map(|held| held.line.len()).sum();
        self.held.len() < before
    }

    fn send(&mut self, now: Instant, line: Vec<u8>, id: Option<String>, repeatable: bool) -> Do {
        if let Some(id) = id {
            if self.outstanding.is_empty() {
                self.heard = now;
                self.misses = 0;
            }
            self.outstanding
                .insert(id, repeatable.then(|| line.clone()));
        }
        Do::Gateway(line)
    }

    fn hold(
        &mut self,
        now: Instant,
        line: Vec<u8>,
        id: Option<String>,
        repeatable: bool,
    ) -> Vec<Do> {
        let full = self.held.len() >= MAX_HELD || self.held_bytes + line.len() > MAX_HELD_BYTES;
        if full {
            let why = "The gateway is away and too much waits for it. The request was not sent.";
            return id
                .map(|id| to_client(failure(&id, INTERNAL, why)))
                .into_iter()
                .collect();
        }
        self.held_bytes += line.len();
        self.held.push_back(Held {
            since: now,
            line,
            id,
            repeatable,
        });
        vec![]
    }

    /// The gateway has taken this stub in.
    pub fn connected(&mut self, now: Instant) -> Vec<Do> {
        self.heard = now;
        self.misses = 0;
        let Some((_, params)) = self.greeting.as_ref().filter(|_| self.greeted) else {
            self.link = Link::Up;
            return self.flush(now);
        };
        self.link = Link::Replaying(now);
        let line = request(REPLAY, "initialize", params.as_deref());
        vec![Do::Gateway(line.into_bytes())]
    }

    fn flush(&mut self, now: Instant) -> Vec<Do> {
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        let send = |held: Held| self.send(now, held.line, held.id, held.repeatable);
        held.into_iter().map(send).collect()
    }

    /// The gateway said something.
    pub fn gateway(&mut self, now: Instant, line: Vec<u8>) -> Vec<Do> {
        self.heard = now;
        self.misses = 0;
        if is_control(&line) {
            return match Control::parse(&line) {
                Ok(Control::Anchor(anchor)) => {
                    self.anchor = Some(anchor);
                    vec![]
                }
                Ok(Control::Refused(refused)) if !refused.retry => self.refuse(&refused.message),
                Ok(Control::Pong | Control::Ping) => vec![],
                Ok(_) | Err(_) => vec![Do::Reconnect],
            };
        }
        let Ok(frame) = Frame::parse(&line) else {
            return vec![Do::Reconnect];
        };
        match frame {
            Frame::Answer {
                id: Some(REPLAY),
                outcome,
            } => self.replayed(now, outcome),
            Frame::Answer {
                id: Some(id),
                outcome,
            } => {
                if self.outstanding.remove(id).is_none() {
                    return vec![];
                }
                let greeting = self.greeting.as_ref().is_some_and(|(own, _)| own == id);
                if greeting && matches!(outcome, Outcome::Result(_)) {
                    self.greeted = true;
                }
                vec![Do::Client(line)]
            }
            Frame::Answer { id: None, .. } => vec![],
            Frame::Request { id, .. } => {
                self.asked.insert(id.to_owned());
                vec![Do::Client(line)]
            }
            Frame::Notification { .. } => vec![Do::Client(line)],
        }
    }

    fn replayed(&mut self, now: Instant, outcome: Outcome<'_>) -> Vec<Do> {
        if !matches!(self.link, Link::Replaying(_)) {
            return vec![];
        }
        if let Outcome::Error(error) = outcome {
            // What the gateway says of it stands for everything that waits.
            let waiting: Vec<String> = self.held.drain(..).filter_map(|held| held.id).collect();
            self.held_bytes = 0;
            self.link = Link::Up;
            let told = |id: String| to_client(answer(&id, Outcome::Error(error)));
            return waiting.into_iter().map(told).collect();
        }
        self.link = Link::Up;
        let ready = notification("notifications/initialized", None);
        let mut todo = vec![Do::Gateway(ready.into_bytes())];
        todo.extend(self.flush(now));
        todo
    }

    /// Nothing will go through any more.
    pub fn refuse(&mut self, why: &str) -> Vec<Do> {
        self.refused = Some(why.to_owned());
        self.held_bytes = 0;
        let held = self.held.drain(..).filter_map(|held| held.id);
        let ids: Vec<String> = held
            .chain(self.outstanding.drain().map(|(id, _)| id))
            .collect();
        ids.iter()
            .map(|id| to_client(failure(id, INTERNAL, why)))
            .collect()
    }

    /// The connection is gone.
    pub fn lost(&mut self, now: Instant) -> Vec<Do> {
        self.link = Link::Down;
        self.asked.clear();
        let mut todo = vec![];
        let mut again = vec![];
        for (id, line) in self.outstanding.drain() {
            match line {
                Some(line) => again.push((id, line)),
                None => {
                    let why = "The gateway went away while this was under way. It may have been carried out, and was not repeated.";
                    todo.push(to_client(failure(&id, INTERNAL, why)));
                }
            }
        }
        for (id, line) in again {
            self.held_bytes += line.len();
            self.held.push_front(Held {
                since: now,
                line,
                id: Some(id),
                repeatable: true,
            });
        }
        todo
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Do> {
        let mut todo = vec![];
        while let Some(held) = self.held.front()
            && now.duration_since(held.since) >= WAIT
        {
            self.held_bytes -= held.line.len();
            let id = self.held.pop_front().and_then(|held| held.id);
            let why = "The gateway did not come back within 30 seconds. The request was not sent: is the daemon running, with tools.gateway.enabled?";
            todo.extend(id.map(|id| to_client(failure(&id, INTERNAL, why))));
        }
        if let Link::Replaying(since) = self.link
            && now.duration_since(since) >= WAIT
        {
            todo.push(Do::Reconnect);
        }
        if self.link == Link::Up
            && !self.outstanding.is_empty()
            && now.duration_since(self.heard) >= PING_EVERY * (self.misses + 1)
        {
            if self.misses >= MISSES {
                todo.push(Do::Reconnect);
            } else {
                self.misses += 1;
                todo.push(Do::Gateway(Control::Ping.to_line().into_bytes()));
            }
        }
        todo
    }

    /// When [`Relay::tick`] has something to do next.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        let held = self.held.front().map(|held| held.since + WAIT);
        let replay = match self.link {
            Link::Replaying(since) => Some(since + WAIT),
            _ => None,
        };
        let ping = (self.link == Link::Up && !self.outstanding.is_empty())
            .then(|| self.heard + PING_EVERY * (self.misses + 1));
        [held, replay, ping].into_iter().flatten().min()
    }
}

fn to_client(line: String) -> Do {
    Do::Client(line.into_bytes())
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
