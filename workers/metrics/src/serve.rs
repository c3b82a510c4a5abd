//! From the descriptor of the listener to the end of the last request.

use crate::router::{self, Ask};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use worker_kit::{Event, KitError, Starting};
use worker_web::listener;
use worker_web::origin::Admission;

/// Connections served at once: one for each of a few collectors, and a person who looks.
const MAX_CONNECTIONS: usize = 32;
/// When the daemon ends, time to answer those who are connected; the supervisor waits for three
/// seconds.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until it is told to stop.
///
/// # Errors
/// When the listener is missing, or reachable from other machines.
pub async fn run(mut starting: Starting) -> Result<(), KitError> {
    let (socket, admission) = match prepare(&mut starting) {
        Ok(prepared) => prepared,
        Err(reason) => {
            starting.fail(&reason).await;
            return Err(KitError::worker(reason));
        }
    };
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
    tokio::pin!(serving);
    loop {
        tokio::select! {
            () = &mut serving => return Ok(()),
            event = inbox.recv() => match event {
                Some(Event::Drain) => {
                    stop.send_replace(true);
                }
                Some(Event::Shutdown) | None => break,
                // Nothing is granted to this worker.
                Some(_) => {}
            },
        }
    }
    stop.send_replace(true);
    let _ = tokio::time::timeout(LAST_ANSWERS, serving).await;
    Ok(())
}

fn prepare(starting: &mut Starting) -> Result<(TcpListener, Admission), String> {
    let socket = starting
        .descriptor("listener")
        .ok_or("no listener came with the settings")?;
    let socket = TcpListener::from(socket);
    socket
        .set_nonblocking(true)
        .map_err(|e| format!("the listener: {e}"))?;
    let bound = socket
        .local_addr()
        .map_err(|e| format!("the listener's address: {e}"))?;
    let admission = Admission::new(bound.ip());
    // Whoever reaches the port reads everything: there is no key.
    if !admission.is_loopback() {
        return Err(format!(
            "metrics are served on loopback only, and {bound} is not"
        ));
    }
    Ok((socket, admission))
}
