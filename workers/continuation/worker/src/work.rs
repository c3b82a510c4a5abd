//! The worker's life, from its settings to its end.

use crate::edge::Desk;
use crate::host::Others;
use crate::owners::Owners;
use crate::prepare;
use continuation_service::ambient::Machine;
use continuation_service::{Kept, Parts, Service, Settings};
use continuation_store::fs::RealFs;
use continuation_store::{Limits, Store};
use ipc_proto::Role;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::settings::{ContinuationSettings, RoleSettings};
use serde_json::Value;
use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use worker_kit::{Control, Event, Granted, KitError, Starting};

/// Between two looks at the health, which is told when it has changed.
const HEALTH: Duration = Duration::from_secs(1);
/// When the daemon ends, time for what is under way; the supervisor waits for three seconds.
const LAST_STEPS: Duration = Duration::from_millis(2_500);

/// What the service is started with.
struct Prepared {
    listener: TcpListener,
    store: Store,
    settings: Settings,
    own: ContinuationSettings,
}

/// Serves until it is told to stop.
///
/// # Errors
/// When the settings are of another role, what came with them can't be used, the state can't be
/// opened, or the store fails.
pub async fn work(mut starting: Starting) -> Result<(), KitError> {
    let prepared = prepare(&mut starting);
    let Prepared {
        listener,
        store,
        settings,
        own,
    } = starting.prepared(prepared).await?;
    let (control, mut inbox) = starting.ready().await?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(KitError::worker)?;
    let owners = Arc::new(Owners::new(own.channels.iter().cloned()));
    let host = Others::new(
        owners.clone(),
        control.clone(),
        settings.limits.delivery_timeout,
    );
    let keeper = Kept::new(store.clone(), prepare::retention(&own));
    let parts = Parts {
        secret: keeper.secret(),
        keeper: Arc::new(keeper),
        settings,
        host: Arc::new(host),
        ambient: Arc::new(Machine::default()),
    };
    let mut service = None;
    let mut starting = Box::pin(Service::start(listener, parts));
    // Who comes before the service is there waits.
    let mut waiting: Vec<Granted> = Vec::new();
    let mut open: HashMap<u64, oneshot::Sender<()>> = HashMap::new();
    let mut told = Value::Null;
    let mut ticks = tokio::time::interval(HEALTH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let running: Option<&Service> = service.as_ref();
        tokio::select! {
            started = &mut starting, if running.is_none() => {
                let started = started.map_err(KitError::worker)?;
                let desk = desk(&started, &owners);
                for granted in waiting.drain(..) {
                    serve(&desk, granted, &mut open);
                }
                service = Some(started);
            }
            () = failed(running) => {
                // What was accepted is in the log; the next process replays it.
                return Err(KitError::worker("the store failed"));
            }
            event = inbox.recv() => match event {
                Some(Event::Granted(granted)) => {
                    let Some(granted) = owners.take(granted) else { continue };
                    match (granted.edge, running) {
                        (EdgeName::Continuation, Some(service)) => {
                            serve(&desk(service, &owners), granted, &mut open);
                        }
                        (EdgeName::Continuation, None) => waiting.push(granted),
                        (edge, _) => tracing::warn!(?edge, "a channel of another edge is closed"),
                    }
                }
                // Dropping the sender is the message.
                Some(Event::Revoked(channel)) => drop(open.remove(&channel)),
                Some(Event::Drain | Event::Shutdown) | None => break,
                Some(_) => {}
            },
            _ = ticks.tick(), if running.is_some() => {
                open.retain(|_, revoke| !revoke.is_closed());
                if let Some(service) = running {
                    tell_health(service, &control, &mut told).await;
                }
            }
        }
    }
    if let Some(service) = service
        && tokio::time::timeout(LAST_STEPS, service.stop())
            .await
            .is_err()
    {
        tracing::warn!("ended with work under way; the next start settles it");
    }
    // It is only a start that has less to replay.
    let _ = store.close();
    Ok(())
}

async fn failed(service: Option<&Service>) {
    match service {
        Some(service) => service.failed().await,
        None => std::future::pending().await,
    }
}

fn desk(service: &Service, owners: &Arc<Owners>) -> Desk {
    Desk {
        origins: service.origins(),
        operator: service.operator(),
        owners: owners.clone(),
    }
}

fn serve(desk: &Desk, granted: Granted, open: &mut HashMap<u64, oneshot::Sender<()>>) {
    let Granted {
        channel, peer, fd, ..
    } = granted;
    if !matches!(peer.role, Role::Run | Role::AppBridge | Role::Monod) {
        tracing::warn!(role = %peer.role, "a channel of this role is not served");
        return;
    }
    let (revoke, revoked) = oneshot::channel::<()>();
    open.insert(channel, revoke);
    let serving = desk.clone().serve(fd, peer);
    tokio::spawn(async move {
        tokio::select! {
            () = serving => {}
            _ = revoked => {}
        }
    });
}

/// Tells how things stand when that has changed.
async fn tell_health(service: &Service, control: &Control, told: &mut Value) {
    let Ok(health) = service.operator().health() else {
        return;
    };
    let mut now = health.clone();
    if let Some(object) = now.as_object_mut() {
        object.remove("checkedAt");
        // How far the log is filled changes all the time, and nobody reads it that often.
        object.remove("storage");
    }
    if now != *told && control.health(&health).await.is_ok() {
        *told = now;
    }
}

fn prepare(starting: &mut Starting) -> Result<Prepared, String> {
    let RoleSettings::Continuation(own) = starting.settings.clone() else {
        return Err("these are the settings of another role".to_owned());
    };
    // The profile sets this too; a worker started otherwise must not differ.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let listener = starting
        .descriptor("listener")
        .ok_or("no listener came with the settings")?;
    let listener = TcpListener::from(listener);
    listener
        .set_nonblocking(true)
        .map_err(|e| format!("the listener: {e}"))?;
    let port = listener
        .local_addr()
        .map_err(|e| format!("the listener's address: {e}"))?
        .port();
    let mut bearers = Vec::new();
    for (n, name) in own.detached_services.iter().enumerate() {
        let fd = starting
            .descriptor(&format!("token:{n}"))
            .ok_or_else(|| format!("the token of {name} did not come along"))?;
        let bearer = prepare::bearer(fd).map_err(|e| format!("the token of {name}: {e}"))?;
        bearers.push(bearer);
    }
    let settings = prepare::settings(&own, port, bearers)?;
    let state = starting
        .descriptor("state")
        .ok_or("no descriptor \"state\" came with the settings")?;
    // The owner's lock works by path.
    let folder = worker_kit::located(&state).map_err(|e| e.to_string())?;
    let fs = RealFs::open(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (store, opened) = Store::open(fs, Limits::default()).map_err(|e| e.to_string())?;
    if opened.imported > 0 {
        tracing::info!(records = opened.imported, "taken over from an older format");
    }
    Ok(Prepared {
        listener,
        store,
        settings,
        own,
    })
}
