//! A wrapper around any MCP transport that notes when the peer was last heard, and that keeps a
//! peer which ignores `server/discover` from holding up the handshake.

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A moment that one task writes and another reads, without a lock.
#[derive(Debug, Clone)]
pub struct Stamp {
    base: Instant,
    /// Microseconds since `base`, plus one; zero is "never".
    at: Arc<AtomicU64>,
}

impl Stamp {
    pub fn never() -> Self {
        Self {
            base: Instant::now(),
            at: Arc::default(),
        }
    }

    /// Now.
    pub fn mark(&self) {
        let micros = u64::try_from(self.base.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
        self.at.fetch_max(micros + 1, Ordering::Relaxed);
    }

    /// The last mark, if there was one.
    pub fn last(&self) -> Option<std::time::Instant> {
        match self.at.load(Ordering::Relaxed) {
            0 => None,
            n => Some((self.base + Duration::from_micros(n - 1)).into_std()),
        }
    }
}

/// The transport `inner`, watched.
///
/// rmcp waits ten seconds for the answer to `server/discover` before it falls back to
/// `initialize`, and then takes a late answer for a protocol violation. Old servers exist that
/// ignore what they don't know, and servers that need five seconds to start are common; so after
/// `patience` the probe is answered here with "no such method", and the true answer, should it
/// still come, is dropped.
pub struct Watched<T> {
    inner: T,
    heard: Stamp,
    patience: Duration,
    probe: Probe,
    /// Set when the peer did answer the probe after all: it is slow and not old.
    late: Arc<AtomicBool>,
}

enum Probe {
    /// Nothing but discovery was sent so far.
    Open(Option<(RequestId, Instant)>),
    /// Answered here; the true answer to this request is to be dropped.
    GivenUp(RequestId),
    /// The handshake is past discovery.
    Over,
}

impl<T> Watched<T> {
    /// `late` is set when an answer to `server/discover` comes after `patience` has run out.
    pub fn new(inner: T, heard: Stamp, patience: Duration, late: Arc<AtomicBool>) -> Self {
        Self {
            inner,
            heard,
            patience,
            probe: Probe::Open(None),
            late,
        }
    }

    /// True when `message` is to go on to rmcp.
    fn admit(&mut self, message: &ServerJsonRpcMessage) -> bool {
        self.heard.mark();
        let id = match message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        match (&self.probe, id) {
            (Probe::GivenUp(probe), Some(id)) if probe == id => {
                if matches!(message, ServerJsonRpcMessage::Response(_)) {
                    self.late.store(true, Ordering::Relaxed);
                }
                self.probe = Probe::Over;
                false
            }
            (Probe::Open(Some((probe, _))), Some(id)) if probe == id => {
                self.probe = Probe::Open(None);
                true
            }
            _ => true,
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match (&self.probe, &item) {
            (Probe::Open(_), ClientJsonRpcMessage::Request(request))
                if matches!(request.request, ClientRequest::DiscoverRequest(_)) =>
            {
                let until = Instant::now() + self.patience;
                self.probe = Probe::Open(Some((request.id.clone(), until)));
            }
            (Probe::Open(_), _) => self.probe = Probe::Over,
            _ => {}
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let deadline = match &self.probe {
                Probe::Open(Some((_, until))) => Some(*until),
                _ => None,
            };
            let message = match deadline {
                None => self.inner.receive().await,
                Some(until) => tokio::select! {
                    biased;
                    message = self.inner.receive() => message,
                    () = tokio::time::sleep_until(until) => {
                        let Probe::Open(Some((id, _))) = std::mem::replace(&mut self.probe, Probe::Over)
                        else {
                            continue;
                        };
                        self.probe = Probe::GivenUp(id.clone());
                        let error = ErrorData::new(
                            ErrorCode::METHOD_NOT_FOUND,
                            "no answer to server/discover",
                            None,
                        );
                        return Some(ServerJsonRpcMessage::error(error, Some(id)));
                    }
                },
            }?;
            if self.admit(&message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stamp_is_never_until_marked_and_then_only_moves_forward() {
        let stamp = Stamp::never();
        assert_eq!(stamp.last(), None);
        let before = std::time::Instant::now();
        stamp.mark();
        let first = stamp.last().unwrap();
        assert!(first + Duration::from_millis(1) >= before);
        stamp.mark();
        assert!(stamp.last().unwrap() >= first);
    }
}
