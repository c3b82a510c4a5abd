//! From the listener that a worker is handed to the end of its last answer.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::sync::watch;
use worker_kit::{Event, Inbox, Starting};

/// When the daemon ends, time to answer those who are connected. Turns have ended by then, and the
/// supervisor waits for three seconds.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The listener that came with the settings, and where it is bound.
///
/// # Errors
/// A sentence for the operator.
pub fn socket(starting: &mut Starting) -> Result<(TcpListener, SocketAddr), String> {
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
    Ok((socket, bound))
}

/// Waits for `serving`, which ends some time after `stop` turned true, and turns it when the
/// supervisor says so. Every event but the last one is given to `on` too. False when what was under
/// way at the daemon's end took too long.
pub async fn until_told(
    inbox: &mut Inbox,
    stop: &watch::Sender<bool>,
    serving: impl Future<Output = ()>,
    mut on: impl FnMut(Event),
) -> bool {
    tokio::pin!(serving);
    loop {
        tokio::select! {
            () = &mut serving => return true,
            event = inbox.recv() => match event {
                Some(Event::Shutdown) | None => break,
                Some(event) => {
                    if matches!(event, Event::Drain) {
                        stop.send_replace(true);
                    }
                    on(event);
                }
            },
        }
    }
    stop.send_replace(true);
    // Whoever is cut off nevertheless had no request, or reads too slowly.
    tokio::time::timeout(LAST_ANSWERS, serving).await.is_ok()
}
