//! The OpenAI-compatible channel: chat completions over HTTP, streamed or whole.

pub mod answer;
pub mod conversation;
pub mod error;
#[cfg(test)]
mod events_tests;
pub mod image;
pub mod reply;
pub mod request;
pub mod router;
#[cfg(test)]
mod router_tests;
pub mod stream;
pub mod transcript;

use crate::bearer::Bearer;
use ipc_proto::settings::OpenaiSettings;
use router::Api;
use std::net::TcpListener;
use std::sync::Arc;
use worker_kit::{KitError, Starting};
use worker_web::origin::Admission;
use worker_web::{listener, service};

/// Connections served at once.
const MAX_CONNECTIONS: usize = 512;

/// Serves the channel until it is told to stop.
///
/// # Errors
/// When the listener or the key is missing or unusable, or the channel would be open to the
/// network without a key.
pub async fn run(mut starting: Starting, settings: OpenaiSettings) -> Result<(), KitError> {
    let prepared = prepare(&mut starting, settings);
    let (socket, api) = starting.prepared(prepared).await?;
    let socket = tokio::net::TcpListener::from_std(socket).map_err(KitError::worker)?;
    let (control, mut inbox) = starting.ready().await?;
    let router = router::router(api, Arc::new(control));
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let serving = listener::serve(socket, router, stopping, MAX_CONNECTIONS);
    // Nothing is granted to this channel yet that it would use.
    service::until_told(&mut inbox, &stop, serving, drop).await;
    Ok(())
}

fn prepare(
    starting: &mut Starting,
    settings: OpenaiSettings,
) -> Result<(TcpListener, Api), String> {
    let (socket, bound) = service::socket(starting)?;
    let bearer = match (settings.bearer, starting.descriptor("bearer")) {
        (true, Some(fd)) => Some(Bearer::read(fd).map_err(|e| e.to_string())?),
        (true, None) => return Err("the API key is configured but did not come along".to_owned()),
        (false, _) => None,
    };
    let api = Api::new(&settings, Admission::new(bound.ip()), bearer)?;
    Ok((socket, api))
}
