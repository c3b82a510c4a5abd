//! The web console: a page with a login, its threads and turns, and a look at the daemon.
//!
//! The wire is described in docs/protocols.md, the login in docs/security.md.

mod app_files;
pub mod apps;
mod continuations;
pub mod error;
pub mod files;
pub mod guard;
pub mod hints;
pub mod input;
pub mod keeper;
pub mod later;
pub mod live;
pub mod login;
pub mod operator;
pub mod pages;
pub mod proxy;
pub mod query;
pub mod router;
pub mod sessions;
mod shown;
pub mod streams;
pub mod turn;
pub mod turns;
pub mod uploads;
pub mod views;

pub use guard::Names;
pub use sessions::Sessions;

use hints::Hints;
use ipc_proto::Role;
use ipc_proto::channel::Fault;
use ipc_proto::console::Order;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::settings::ConsoleSettings;
use keeper::Keeper;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use turns::Turns;
use worker_kit::{Control, Event, Granted, KitError, Starting};
use worker_web::listener::{self, Bounds};
use worker_web::service;

/// Connections, and how long they may take (facts 2.9; a download is drained within 30 s).
const BOUNDS: Bounds = Bounds {
    connections: 256,
    head: Duration::from_secs(15),
    stalled: Some(Duration::from_secs(30)),
};

/// Serves the console until it is told to stop.
///
/// # Errors
/// When the listener is missing or unusable, or other machines would reach it by any name.
pub async fn run(mut starting: Starting, settings: ConsoleSettings) -> Result<(), KitError> {
    let prepared = prepare(&mut starting, &settings);
    let (socket, names) = starting.prepared(prepared).await?;
    let socket = tokio::net::TcpListener::from_std(socket).map_err(KitError::worker)?;
    let (control, mut inbox) = starting.ready().await?;
    let runs = Arc::new(control.clone());
    let keeper = Arc::new(Keeper::default());
    let hints = Arc::new(Hints::default());
    let sessions = Arc::new(Sessions::new(keeper.clone()));
    let turns = Turns::new(keeper.clone(), runs.clone(), hints.clone());
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let router = router::router(router::Pieces {
        settings,
        names,
        keeper: keeper.clone(),
        sessions: sessions.clone(),
        turns: turns.clone(),
        hints: hints.clone(),
        lookout: runs,
        stopping: stopping.clone(),
    });
    let serving = async {
        listener::serve_within(socket, router, stopping, BOUNDS).await;
        // Turns outlive their connections.
        turns.all_over().await;
    };
    let threads = Arc::new(later::Threads::new(keeper.clone(), hints.clone()));
    let on = |event| match event {
        Event::Granted(granted) => {
            if let Some(granted) = crate::later::take(granted, &threads) {
                connect(&keeper, granted);
            }
            // Another process answers: the daemon's status is another.
            hints.tell(&hints::Hint::Status);
        }
        Event::Operate { request, order } => {
            let (control, sessions) = (control.clone(), sessions.clone());
            tokio::spawn(operate(control, sessions, request, order));
        }
        Event::Drain => {
            let turns = turns.clone();
            tokio::spawn(async move { turns.leave().await });
        }
        _ => {}
    };
    if !service::until_told(&mut inbox, &stop, serving, on).await {
        tracing::warn!("ended with answers that were not taken or not kept");
    }
    Ok(())
}

fn prepare(
    starting: &mut Starting,
    settings: &ConsoleSettings,
) -> Result<(TcpListener, Names), String> {
    let (socket, bound) = service::socket(starting)?;
    let names = Names::new(&settings.allowed_hosts, bound)?;
    Ok((socket, names))
}

fn connect(keeper: &Keeper, granted: Granted) {
    let result = match (granted.edge, granted.peer.role) {
        (EdgeName::Store, role @ Role::Store) => keeper.store.open(granted.fd, role),
        (EdgeName::Artifact, role @ Role::Artifact) => keeper.artifact.open(granted.fd, role),
        (EdgeName::AppBridge, role @ Role::AppBridge) => keeper.bridge.open(granted.fd, role),
        (edge, _) => {
            tracing::warn!(?edge, "a channel of another edge was granted and is closed");
            return;
        }
    };
    if let Err(e) = result {
        tracing::error!(edge = ?granted.edge, "a granted channel can't be used: {e}");
    }
}

async fn operate(control: Control, sessions: Arc<Sessions>, request: u64, order: Order) {
    let result = order_done(&sessions, order).await;
    if let Err(e) = control.operated(request, result).await {
        tracing::warn!("an operator was not answered: {e}");
    }
}

async fn order_done(sessions: &Sessions, order: Order) -> Result<Value, Fault> {
    let refused = |e: error::ApiError| Fault::new(&e.code, e.message);
    match order {
        Order::Link => Ok(json!({ "token": sessions.mint(), "expiresInMs": login::LINK_MS })),
        Order::Sessions => {
            sessions.load().await.map_err(refused)?;
            Ok(sessions.list(None))
        }
        Order::Revoke { id } => {
            sessions.end(&id).await.map_err(refused)?;
            Ok(json!({ "revoked": id }))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::{Semaphore, watch};
    use tokio::time::Instant;

    /// A page that waits for a permit, behind the console's bounds.
    async fn served(permits: &Arc<Semaphore>) -> (SocketAddr, watch::Sender<bool>) {
        let permits = permits.clone();
        let page = get(move || async move {
            permits.acquire().await.unwrap().forget();
            "served"
        });
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let router = Router::new().route("/", page);
        tokio::spawn(listener::serve_within(socket, router, stopping, BOUNDS));
        (address, stop)
    }

    async fn begin(address: SocketAddr, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    const WHOLE: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_not_whole_in_fifteen_seconds_is_not_waited_for() {
        let (address, _stop) = served(&Arc::new(Semaphore::new(1))).await;
        let stream = begin(address, &WHOLE[..20]).await;
        let start = Instant::now();
        assert!(!rest(stream).await.contains("served"));
        assert_eq!(start.elapsed().as_secs(), 15);
    }

    #[tokio::test]
    async fn two_hundred_and_fifty_six_are_served_at_once_and_the_next_one_after_them() {
        let permits = Arc::new(Semaphore::new(0));
        let (address, _stop) = served(&permits).await;
        let mut first = Vec::new();
        for _ in 0..256 {
            first.push(begin(address, WHOLE).await);
        }
        let next = tokio::spawn(rest(begin(address, WHOLE).await));
        permits.add_permits(256);
        // Were the next one served among them, one of these would have no permit left.
        let all = async {
            for stream in first {
                assert!(rest(stream).await.ends_with("served"));
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all)
            .await
            .unwrap();
        permits.add_permits(1);
        assert!(next.await.unwrap().ends_with("served"));
    }
}
