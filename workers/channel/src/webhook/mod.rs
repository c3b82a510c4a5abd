//! The webhook channel: turns started by an HTTP request, answered there, later, or elsewhere.

pub mod attachment;
pub mod callback;
pub mod endpoints;
pub mod error;
pub mod fields;
pub mod job;
pub mod later;
pub mod metadata;
pub mod record;
pub mod request;
pub mod requests;
pub mod router;
#[cfg(test)]
mod router_tests;

use crate::bearer::Bearer;
use callback::{Callbacks, Policy, SigningKey, WayOut};
use endpoints::{Endpoint, Endpoints};
use ipc_proto::Role;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::settings::WebhookSettings;
use later::Calls;
use router::Webhook;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use worker_kit::{Event, Granted, KitError, Starting};
use worker_web::origin::Admission;
use worker_web::{listener, service};

/// Connections served at once; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 512;

/// What is served.
struct Prepared {
    socket: TcpListener,
    webhook: Webhook,
    way_out: Arc<WayOut>,
    calls: Arc<Calls>,
    all_over: mpsc::Receiver<()>,
}

/// Serves the channel until it is told to stop.
///
/// # Errors
/// When the listener or a key is missing or unusable, or the channel would be open to the network
/// without a key.
pub async fn run(mut starting: Starting, settings: WebhookSettings) -> Result<(), KitError> {
    let prepared = prepare(&mut starting, &settings);
    let Prepared {
        socket,
        webhook,
        way_out,
        calls,
        mut all_over,
    } = starting.prepared(prepared).await?;
    let socket = tokio::net::TcpListener::from_std(socket).map_err(KitError::worker)?;
    let (control, mut inbox) = starting.ready().await?;
    let router = router::router(webhook, Arc::new(control));
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let serving = async {
        listener::serve(socket, router, stopping, MAX_CONNECTIONS).await;
        // Requests that nobody waits for, and callbacks, outlive their connections.
        let _ = all_over.recv().await;
    };
    let on = |event| {
        if let Event::Granted(granted) = event
            && let Some(granted) = crate::later::take(granted, &calls)
        {
            connect(&way_out, granted);
        }
    };
    if !service::until_told(&mut inbox, &stop, serving, on).await {
        tracing::warn!("ended with answers or callbacks that were not taken");
    }
    Ok(())
}

fn connect(way_out: &WayOut, granted: Granted) {
    if granted.edge != EdgeName::Egress || granted.peer.role != Role::Egress {
        tracing::warn!(edge = ?granted.edge, "a channel of another edge was granted and is closed");
        return;
    }
    if let Err(e) = way_out.open(granted.fd, Role::Egress) {
        tracing::error!("the channel to egress can't be used: {e}");
    }
}

fn prepare(starting: &mut Starting, settings: &WebhookSettings) -> Result<Prepared, String> {
    let (socket, bound) = service::socket(starting)?;
    let endpoints = Arc::new(read_endpoints(starting, settings)?);
    let way_out = Arc::new(WayOut::default());
    let policy = Policy {
        attempts: settings.callback_attempts,
        backoff: Duration::from_millis(settings.callback_backoff_ms),
        max_backoff: Duration::from_millis(settings.callback_max_backoff_ms),
        timeout: Duration::from_millis(settings.callback_timeout_ms),
    };
    let callbacks = Arc::new(Callbacks::new(way_out.clone(), policy));
    let calls = Calls::new(endpoints.clone(), callbacks.clone(), way_out.clone());
    let (webhook, all_over) =
        Webhook::new(settings, endpoints, Admission::new(bound.ip()), callbacks)?;
    Ok(Prepared {
        socket,
        webhook,
        way_out,
        calls: Arc::new(calls),
        all_over,
    })
}

fn read_endpoints(
    starting: &mut Starting,
    settings: &WebhookSettings,
) -> Result<Endpoints, String> {
    // The channel's own keys, which come first, are everybody's who has none.
    let (mut common_bearer, mut common_signing) = (None, None);
    let mut all = Vec::new();
    for (n, endpoint) in settings.endpoints.iter().enumerate() {
        let wrong = |what: &str, why: String| {
            Err(format!(
                "the {what} of the webhook endpoint {}: {why}",
                endpoint.name
            ))
        };
        let missing = || "it is configured but did not come along".to_owned();
        let bearer = match (endpoint.bearer, starting.descriptor(&format!("bearer:{n}"))) {
            (true, None) => return wrong("apiKey", missing()),
            (true, Some(fd)) => match Bearer::read(fd) {
                Ok(bearer) => Some(Arc::new(bearer)),
                Err(e) => return wrong("apiKey", e.to_string()),
            },
            (false, _) => None,
        };
        let signing = match (endpoint.secret, starting.descriptor(&format!("secret:{n}"))) {
            (true, None) => return wrong("callback secret", missing()),
            (true, Some(fd)) => match SigningKey::read(fd) {
                Ok(key) => Some(Arc::new(key)),
                Err(e) => return wrong("callback secret", e.to_string()),
            },
            (false, _) => None,
        };
        if n == 0 {
            (common_bearer, common_signing) = (bearer.clone(), signing.clone());
        }
        all.push(Endpoint {
            settings: endpoint.clone(),
            bearer: bearer.or_else(|| common_bearer.clone()),
            signing: signing.or_else(|| common_signing.clone()),
        });
    }
    Endpoints::new(all)
}
