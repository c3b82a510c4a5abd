//! The egress worker: model providers and fetches, the only way out.
#![forbid(unsafe_code)]

use ipc_proto::edges::control::EdgeName;
use ipc_proto::settings::{EgressSettings, RoleSettings};
use ipc_proto::{Role, Server};
use mono_egress::complete::Completer;
use mono_egress::deliver::{self, Deliverer};
use mono_egress::fetch::{Fetcher, TIMEOUT};
use mono_egress::http_client::Tls;
use mono_egress::key::Key;
use mono_egress::resolver::PrivateHosts;
use mono_egress::serve::{Egresses, serve};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use worker_kit::{Event, Granted, KitError, Starting};

/// When the daemon ends, time for what channel workers still send. Turns have ended by then, and the
/// supervisor waits for three seconds.
const LAST_CALLS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    worker_kit::run(&[Role::Egress], work)
}

async fn work(mut starting: Starting) -> Result<(), KitError> {
    let prepared = prepare(&mut starting);
    let out = Arc::new(starting.prepared(prepared).await?);
    let (_control, mut inbox) = starting.ready().await?;
    let mut channels = JoinSet::new();
    let mut handles: HashMap<u64, AbortHandle> = HashMap::new();
    let (mut draining, mut ending) = (false, false);
    // A run closes its channel when it ends; one of a channel worker would keep us for ever.
    let (runs_leave, others_leave) = (watch::Sender::new(false), watch::Sender::new(false));
    let end = tokio::time::sleep(Duration::MAX);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return Ok(()),
            event = inbox.recv(), if !ending => match event {
                None => return Ok(()),
                Some(Event::Shutdown) => {
                    (draining, ending) = (true, true);
                    end.as_mut().reset(Instant::now() + LAST_CALLS);
                }
                Some(Event::Drain) => {
                    draining = true;
                    others_leave.send_replace(true);
                }
                Some(Event::Granted(granted)) if !draining => {
                    let channel = granted.channel;
                    let leave = match granted.peer.role {
                        Role::Run => runs_leave.subscribe(),
                        _ => others_leave.subscribe(),
                    };
                    if let Some(server) = accept(granted) {
                        let out = out.clone();
                        let task = async move { (channel, serve(server, out, leave).await) };
                        handles.insert(channel, channels.spawn(task));
                    }
                }
                Some(Event::Revoked(channel)) => {
                    if let Some(task) = handles.remove(&channel) {
                        task.abort();
                    }
                }
                Some(other) => tracing::warn!(event = ?other, "not an event for this worker"),
            },
            Some(ended) = channels.join_next() => {
                if let Ok((channel, outcome)) = ended {
                    handles.remove(&channel);
                    if let Err(e) = outcome {
                        tracing::warn!(channel, error = %e, "a channel was closed");
                    }
                }
            }
        }
        if draining && channels.is_empty() {
            return Ok(());
        }
    }
}

/// Takes the keys out of their descriptors and prepares the way out.
fn prepare(starting: &mut Starting) -> Result<Egresses, String> {
    let RoleSettings::Egress(settings) = starting.settings.clone() else {
        return Err("the settings are another role's".to_owned());
    };
    let mut keys = read_keys(&settings, starting.descriptors("key:"))?;
    let tls = Tls::from_system();
    let client = tls.model_client().map_err(|e| e.to_string())?;
    let completer =
        Completer::new(client, &settings, |id| keys.remove(id)).map_err(|e| e.to_string())?;
    let allowed = PrivateHosts::new(&settings.allow_private_hosts);
    let fetcher = Fetcher::new(&tls, allowed, TIMEOUT).map_err(|e| e.to_string())?;
    let deliverer = Deliverer::new(&tls, settings.callback_hosts, deliver::TIMEOUT)
        .map_err(|e| e.to_string())?;
    Ok(Egresses {
        completer,
        fetcher,
        deliverer,
    })
}

fn read_keys(
    settings: &EgressSettings,
    mut descriptors: BTreeMap<String, OwnedFd>,
) -> Result<BTreeMap<String, Key>, String> {
    let mut keys = BTreeMap::new();
    for (id, provider) in settings.providers.iter().filter(|(_, p)| p.has_key) {
        let fd = descriptors
            .remove(id)
            .ok_or_else(|| format!("no key came for provider {id} ({:?})", provider.wire))?;
        let key = Key::read(&mut File::from(fd)).map_err(|e| format!("provider {id}: {e}"))?;
        keys.insert(id.clone(), key);
    }
    Ok(keys)
}

fn accept(granted: Granted) -> Option<Server<ipc_proto::edges::egress::Egress>> {
    if granted.edge != EdgeName::Egress {
        tracing::warn!(edge = ?granted.edge, "a channel of another edge was granted and is closed");
        return None;
    }
    match Server::new(granted.fd, granted.peer.role) {
        Ok(server) => Some(server),
        Err(e) => {
            tracing::warn!(error = %e, "a granted channel can't be served");
            None
        }
    }
}
