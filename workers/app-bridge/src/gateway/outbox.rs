//! What waits for a caller. One that takes nothing is cut off; the others of its server don't wait
//! for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Bytes that are written at once, when so many wait; one line may have more.
pub(super) const BATCH: usize = 64 << 10;

/// Bytes that a line takes beside its own, about: what holds it. Without it, many short ones would
/// take many times what the bound says.
const LINE: usize = 64;

/// Where what is for a caller goes.
#[derive(Debug, Clone)]
pub struct Outbox {
    tell: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    most: usize,
    /// Cancelled when the caller takes nothing, or is gone.
    pub gone: CancellationToken,
}

/// The other end of an [`Outbox`].
#[derive(Debug)]
pub struct Inbox {
    lines: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

impl Outbox {
    /// With room for `most` bytes.
    #[must_use]
    pub fn new(most: usize, gone: CancellationToken) -> (Self, Inbox) {
        let (tell, lines) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        let inbox = Inbox {
            lines,
            waiting: waiting.clone(),
        };
        let outbox = Self {
            tell,
            waiting,
            most,
            gone,
        };
        (outbox, inbox)
    }

    /// Hands a line on, without its end.
    pub fn send(&self, mut line: String) {
        line.push('\n');
        let bytes = line.len() + LINE;
        if self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            self.gone.cancel();
            return;
        }
        // Fails when nobody reads any more.
        let _ = self.tell.send(line.into_bytes());
    }
}

impl Inbox {
    /// The lines that are there, each with its end, as far as they go into one piece; waits for the
    /// first one. One write for what came together costs its reader one wake-up.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        let mut lines = self.lines.recv().await?;
        let mut bytes = lines.len() + LINE;
        while lines.len() < BATCH
            && let Ok(more) = self.lines.try_recv()
        {
            bytes += more.len() + LINE;
            lines.extend_from_slice(&more);
        }
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        Some(lines)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn what_waits_comes_together_and_in_order() {
        let (out, mut inbox) = Outbox::new(1 << 20, CancellationToken::new());
        ["a", "b", "c"]
            .iter()
            .for_each(|line| out.send((*line).to_owned()));
        assert_eq!(inbox.next().await.unwrap(), b"a\nb\nc\n");
        let long = "x".repeat(BATCH);
        ["a", &long, "b"]
            .iter()
            .for_each(|line| out.send((*line).to_owned()));
        assert_eq!(inbox.next().await.unwrap().len(), 2 + BATCH + 1);
        assert_eq!(inbox.next().await.unwrap(), b"b\n");
        drop(out);
        assert_eq!(inbox.next().await, None);
    }

    #[tokio::test]
    async fn who_takes_nothing_is_cut_off_at_the_bound_and_not_before() {
        let (out, mut inbox) = Outbox::new(9 + 2 * LINE, CancellationToken::new());
        out.send("123".to_owned());
        out.send("123".to_owned());
        assert!(!out.gone.is_cancelled());
        inbox.next().await.unwrap();
        out.send("1234567".to_owned());
        assert!(!out.gone.is_cancelled());
        // An empty one takes its place, too.
        out.send(String::new());
        assert!(!out.gone.is_cancelled());
        out.send(String::new());
        assert!(out.gone.is_cancelled());
    }
}
