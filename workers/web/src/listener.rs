//! Serves HTTP/1.1 on a socket that the supervisor bound, within bounds on connections and time.

use crate::patient::Patient;
use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::Service;

/// Time for a request's head, which is also how long an idle connection is kept.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// After the word to stop, time for the first request of a connection that was taken before.
const FIRST_REQUEST: Duration = Duration::from_millis(500);
/// Largest head of a request in bytes.
const MAX_HEAD: usize = 32 * 1024;
/// Read buffer of one connection in bytes.
const MAX_BUFFER: usize = 64 * 1024;
/// Pause after the process ran out of descriptors: the queue stays readable, so without it the
/// loop would spin.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from; an extension of every request.
#[derive(Debug, Clone, Copy)]
pub struct Remote(pub SocketAddr);

/// Serves `most` connections at once, while further ones wait in the kernel's queue, until
/// `stopping` turns true; then takes no new connection and returns when the requests under way are
/// answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stopping: watch::Receiver<bool>,
    most: usize,
) {
    let bounds = Bounds {
        connections: most,
        head: HEAD_TIME,
        stalled: Some(STALLED),
    };
    serve_within(listener, router, stopping, bounds).await;
}

/// How long a client may take nothing of an answer before its connection is closed.
const STALLED: Duration = Duration::from_secs(30);

/// Bounds of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections served at once.
    pub connections: usize,
    /// Time for a request's head, which is also how long an idle connection is kept.
    pub head: Duration,
    /// How long a client may take nothing of an answer that is there for it.
    pub stalled: Option<Duration>,
}

/// [`serve`] with bounds of its own.
pub async fn serve_within(
    listener: TcpListener,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    bounds: Bounds,
) {
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let mut connections = JoinSet::new();
    loop {
        let stopping_too = stopping.clone();
        let accepted = async {
            // The slot comes first: what can't be served stays in the kernel's queue.
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((slot, listener.accept().await))
        };
        tokio::select! {
            () = stopped(&mut stopping) => break,
            Some(ended) = connections.join_next() => {
                if let Err(e) = ended {
                    tracing::error!("a connection's task failed: {e}");
                }
            }
            accepted = accepted => match accepted {
                Some((slot, Ok((stream, remote)))) => {
                    let served = connection((stream, remote), router.clone(), stopping_too, bounds, slot);
                    connections.spawn(served);
                }
                Some((_, Err(e))) => {
                    tracing::warn!("a connection was not accepted: {e}");
                    if !is_the_clients(&e) {
                        tokio::time::sleep(EXHAUSTED_PAUSE).await;
                    }
                }
                None => break,
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits for the word to stop; a supervisor that is gone says it too.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Errors of one connection that is gone already, not of the listener.
fn is_the_clients(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

async fn connection(
    (stream, remote): (TcpStream, SocketAddr),
    router: Router,
    mut stopping: watch::Receiver<bool>,
    bounds: Bounds,
    _slot: OwnedSemaphorePermit,
) {
    // A streamed word must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let (ask, mut asked) = watch::channel(false);
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        ask.send_replace(true);
        request.extensions_mut().insert(Remote(remote));
        router.clone().call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(Patient::new(stream, bounds.stalled)), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => return log(remote, ended),
        () = stopped(&mut stopping) => {}
    }
    // Whoever was taken from the kernel's queue is owed an answer: left there, the connection
    // would have been the next worker's.
    tokio::select! {
        ended = &mut connection => return log(remote, ended),
        _ = tokio::time::timeout(FIRST_REQUEST, asked.wait_for(|asked| *asked)) => {}
    }
    connection.as_mut().graceful_shutdown();
    log(remote, connection.await);
}

fn log(remote: SocketAddr, ended: hyper::Result<()>) {
    if let Err(e) = ended {
        tracing::debug!(%remote, "a connection ended: {e}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::extract::Extension;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    struct Server {
        address: SocketAddr,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
        release: Arc<Notify>,
        entered: Arc<Notify>,
    }

    async fn server(most: usize) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let (release, entered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (wait, enter) = (release.clone(), entered.clone());
        let slow = get(move || async move {
            enter.notify_one();
            wait.notified().await;
            "slow"
        });
        let router =
            Router::new()
                .route(
                    "/",
                    get(|Extension(Remote(remote)): Extension<Remote>| async move {
                        remote.to_string()
                    }),
                )
                .route("/slow", slow);
        let task = tokio::spawn(async move { serve(listener, router, stopping, most).await });
        Server {
            address,
            stop,
            task,
            release,
            entered,
        }
    }

    async fn connect(server: &Server, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn a_request_knows_where_it_came_from() {
        let server = server(2).await;
        let stream = connect(
            &server,
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await;
        let own = stream.local_addr().unwrap().to_string();
        assert!(rest(stream).await.ends_with(&own));
    }

    #[tokio::test]
    async fn stopping_answers_what_is_under_way_and_takes_nothing_new() {
        let server = server(2).await;
        let stream = connect(&server, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
        server.entered.notified().await;
        // One that was served is not in the kernel's queue any more.
        let mut idle = connect(&server, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut answer = [0; 15];
        idle.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        server.stop.send_replace(true);
        rest(idle).await;
        assert!(!server.task.is_finished());
        server.release.notify_one();
        assert!(rest(stream).await.ends_with("slow"));
        server.task.await.unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }

    /// Lets a clock that stands still go on by a millisecond for each one that this thread has waited,
    /// so what a busy machine takes away is no time.
    fn in_small_steps() {
        tokio::spawn(async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_taken_before_the_stop_may_still_ask() {
        in_small_steps();
        let server = server(2).await;
        let mut late = connect(&server, "G").await;
        // The kernel's queue is in order: when a later one is answered, this one was taken.
        let other = connect(
            &server,
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await;
        rest(other).await;
        server.stop.send_replace(true);
        late.write_all(b"ET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        assert!(rest(late).await.starts_with("HTTP/1.1 200"));
        server.task.await.unwrap();
    }

    #[tokio::test]
    async fn connections_over_the_bound_wait_for_a_slot() {
        let server = server(1).await;
        let first = connect(
            &server,
            "GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await;
        server.entered.notified().await;
        let second = connect(
            &server,
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await;
        let second = tokio::spawn(rest(second));
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert!(!second.is_finished());
        server.release.notify_one();
        assert!(rest(first).await.ends_with("slow"));
        assert!(second.await.unwrap().starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn a_head_over_the_bound_is_refused() {
        let server = server(1).await;
        let head = format!(
            "GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
            "a".repeat(MAX_HEAD)
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may close while we still write.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 431"));
    }
}
