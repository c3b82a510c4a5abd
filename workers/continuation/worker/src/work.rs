//! The worker's life, from its settings to its end.

use worker_kit::{Event, KitError, Starting};

/// Serves until it is told to stop.
///
/// # Errors
/// When the settings are of another role, or what came with them can't be used.
pub async fn work(starting: Starting) -> Result<(), KitError> {
    let (_control, mut inbox) = starting.ready().await?;
    loop {
        match inbox.recv().await {
            Some(Event::Drain | Event::Shutdown) | None => return Ok(()),
            Some(_) => {}
        }
    }
}
