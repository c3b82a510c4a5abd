//! One listener on loopback, for as long as one request lives.

use crate::capability::{CapabilityPath, CapabilityUrl};
use crate::door::Door;
use crate::tool_set::ToolSet;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Connections at once; further ones wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 16;
/// Time for a request's head, which is also how long an idle connection is kept.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Largest head of a request in bytes.
const MAX_HEAD: usize = 32 * 1024;
/// Read buffer of one connection in bytes.
const MAX_BUFFER: usize = 64 * 1024;
/// Pause after an error of the listener, which stays readable: without it the loop would spin.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Why there is no endpoint. The request goes on without its tools.
#[derive(Debug, thiserror::Error)]
#[error("no port of 127.0.0.1 can be listened on: {0}")]
pub struct OpenError(#[from] io::Error);

/// A tool set on a port of 127.0.0.1. Whoever drops or closes it takes the tools away and ends
/// every connection.
#[derive(Debug)]
pub struct Endpoint {
    url: CapabilityUrl,
    closing: CancellationToken,
    accepting: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Offers the tools. Call it when the request has its slot, not before: a port that waits for
    /// its turn is one that can be attacked meanwhile.
    ///
    /// # Errors
    /// [`OpenError`] when the kernel gives no port.
    pub async fn open<T: ToolSet>(set: T) -> Result<Self, OpenError> {
        let closing = CancellationToken::new();
        let path = CapabilityPath::random();
        let door = Arc::new(Door::new(path.clone(), set, closing.clone()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        door.bind(port);
        let accepting = tokio::spawn(accept(listener, door, closing.clone()));
        Ok(Self {
            url: path.on(port),
            closing,
            accepting: Some(accepting),
        })
    }

    /// Where the tools are.
    #[must_use]
    pub fn url(&self) -> &CapabilityUrl {
        &self.url
    }

    /// Closes the port and every connection, and returns when none is left. May be called again.
    pub async fn close(&mut self) {
        self.closing.cancel();
        if let Some(accepting) = self.accepting.take()
            && let Err(e) = accepting.await
            && e.is_panic()
        {
            tracing::error!("an endpoint's task failed: {e}");
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.closing.cancel();
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

async fn accept<T: ToolSet>(listener: TcpListener, door: Arc<Door<T>>, closing: CancellationToken) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((slot, listener.accept().await))
        };
        tokio::select! {
            biased;
            () = closing.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = accepted => match accepted {
                Some((slot, Ok((stream, _)))) => {
                    let door = door.clone();
                    connections.spawn(async move {
                        connection(stream, door).await;
                        drop(slot);
                    });
                }
                Some((_, Err(e))) => {
                    tracing::warn!("a connection to an endpoint was not accepted: {e}");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
                None => break,
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection<T: ToolSet>(stream: TcpStream, door: Arc<Door<T>>) {
    let service = service_fn(move |request| {
        let door = door.clone();
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(e) = served {
        tracing::debug!("a connection to an endpoint ended: {e}");
    }
}
