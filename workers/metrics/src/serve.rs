//! From the descriptor of the listener to the end of the last request.

use crate::router::{self, Ask};
use std::net::TcpListener;
use std::sync::Arc;
use worker_kit::{KitError, Starting};
use worker_web::origin::Admission;
use worker_web::{listener, service};

/// Connections served at once: one for each of a few collectors, and a person who looks.
const MAX_CONNECTIONS: usize = 32;

/// Serves until it is told to stop.
///
/// # Errors
/// When the listener is missing, or reachable from other machines.
pub async fn run(mut starting: Starting) -> Result<(), KitError> {
    let prepared = prepare(&mut starting);
    let (socket, admission) = starting.prepared(prepared).await?;
    let socket = tokio::net::TcpListener::from_std(socket).map_err(KitError::worker)?;
    let (control, mut inbox) = starting.ready().await?;
    let ask: Ask = Arc::new(move || {
        let control = control.clone();
        Box::pin(async move {
            let answer = control.figures().await;
            answer
                .map_err(|e| tracing::warn!("no figures from the supervisor: {e}"))
                .ok()
        })
    });
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let router = router::router(admission, ask);
    let serving = listener::serve(socket, router, stopping, MAX_CONNECTIONS);
    // Nothing is granted to this worker.
    service::until_told(&mut inbox, &stop, serving, drop).await;
    Ok(())
}

fn prepare(starting: &mut Starting) -> Result<(TcpListener, Admission), String> {
    let (socket, bound) = service::socket(starting)?;
    let admission = Admission::new(bound.ip());
    // Whoever reaches the port reads everything: there is no key.
    if !admission.is_loopback() {
        return Err(format!(
            "metrics are served on loopback only, and {bound} is not"
        ));
    }
    Ok((socket, admission))
}
