//! Hints to every open page that something changed: the page reads again. A client that doesn't
//! read is let go.

use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// Hints that wait for one client.
const WAITING: usize = 32;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The list of threads.
    Threads,
    /// One thread.
    Thread(String),
    /// The list of runs.
    Runs,
    /// The daemon's status.
    Status,
    /// One app: its record is another.
    App(String),
}

impl Hint {
    /// The event's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Thread(_) => "thread",
            Self::Runs => "runs",
            Self::Status => "status",
            Self::App(_) => "app",
        }
    }

    /// The event's data.
    #[must_use]
    pub fn data(&self) -> Value {
        match self {
            Self::Thread(id) | Self::App(id) => json!({ "id": id }),
            _ => json!({}),
        }
    }
}

/// The clients.
#[derive(Debug, Default)]
pub struct Hints(Mutex<Vec<mpsc::Sender<Hint>>>);

impl Hints {
    /// A new client; its receiver ends when it has let too many hints wait.
    pub fn subscribe(&self) -> mpsc::Receiver<Hint> {
        let (tell, hints) = mpsc::channel(WAITING);
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| !client.is_closed());
        clients.push(tell);
        hints
    }

    /// Tells everybody.
    pub fn tell(&self, hint: &Hint) {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.try_send(hint.clone()).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_is_told_and_who_does_not_read_is_let_go() {
        let hints = Hints::default();
        let (mut reads, mut idle) = (hints.subscribe(), hints.subscribe());
        for n in 0..=WAITING {
            hints.tell(&Hint::Thread(n.to_string()));
            assert_eq!(reads.recv().await, Some(Hint::Thread(n.to_string())));
        }
        let mut got = 0;
        while idle.recv().await.is_some() {
            got += 1;
        }
        assert_eq!(got, WAITING);
        hints.tell(&Hint::Status);
        assert_eq!(reads.recv().await, Some(Hint::Status));
    }
}
