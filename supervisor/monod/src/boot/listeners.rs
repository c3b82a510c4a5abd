//! The ports that workers serve.

use super::BootError;
use crate::alone::{LOOK, PATIENCE};
use ipc_proto::Role;
use mono_config::Config;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Binds what workers listen on, or takes what the service manager has bound. Whether a key is needed
/// is decided by the address that was really bound (facts 2.3).
pub(super) fn listeners(
    config: &Config,
    passed: &mut BTreeMap<String, OwnedFd>,
) -> Result<BTreeMap<Role, TcpListener>, BootError> {
    let mut all = BTreeMap::new();
    let mut bind = |role, key, passed, place| {
        let (listener, address) = bound(passed, key, place)?;
        all.insert(role, listener);
        Ok::<_, BootError>(address)
    };
    let api = &config.openai_api;
    if api.enabled {
        let (key, place) = ("openaiApi", (&*api.host, api.port));
        let address = bind(Role::ChannelOpenai, key, passed.remove("openai"), place)?;
        if !address.ip().is_loopback() && api.api_key.is_none() {
            return Err(BootError::Unprotected { address, key });
        }
    }
    let console = &config.console;
    if console.enabled {
        let (key, place) = ("console", (&*console.host, console.port));
        let address = bind(Role::ChannelConsole, key, passed.remove(key), place)?;
        if !address.ip().is_loopback() && console.allowed_hosts.is_empty() {
            return Err(BootError::Nameless { address });
        }
    }
    let webhook = &config.webhook;
    if webhook.enabled {
        let (key, place) = ("webhook", (&*webhook.host, webhook.port));
        let address = bind(Role::ChannelWebhook, key, passed.remove(key), place)?;
        if !address.ip().is_loopback() && webhook.api_key.is_none() {
            return Err(BootError::Unprotected { address, key });
        }
    }
    let mut bind_here = |role, key, passed, place| {
        let address = bind(role, key, passed, place)?;
        if !address.ip().is_loopback() {
            return Err(BootError::NotLoopback { address, key });
        }
        Ok(())
    };
    let continuations = &config.continuations;
    if continuations.enabled {
        let (key, place) = ("continuations", (&*continuations.host, continuations.port));
        bind_here(Role::Continuation, key, passed.remove(key), place)?;
    }
    let bridge = &config.interaction.bridge;
    if crate::request::listens(config) && bridge.port != 0 {
        let place = (&*bridge.host, bridge.port);
        bind_here(Role::AppBridge, "interaction.bridge", None, place)?;
    }
    let metrics = &config.metrics;
    if metrics.enabled {
        let (key, place) = ("metrics", (&*metrics.host, metrics.port));
        bind_here(Role::Metrics, key, passed.remove(key), place)?;
    }
    Ok(all)
}

/// The unit's socket, or one of our own, and where it really listens.
fn bound(
    passed: Option<OwnedFd>,
    key: &'static str,
    (host, port): (&str, u16),
) -> Result<(TcpListener, SocketAddr), BootError> {
    let listener = match passed {
        Some(fd) => {
            let listener = TcpListener::from(fd);
            listener.set_nonblocking(true)?;
            listener
        }
        None => listen(key, host, port)?,
    };
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn listen(key: &'static str, host: &str, port: u16) -> Result<TcpListener, BootError> {
    let address = format!("{host}:{port}");
    let failed = |source| BootError::Listen {
        address: address.clone(),
        key,
        source,
    };
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    let deadline = Instant::now() + PATIENCE;
    let listener = loop {
        match TcpListener::bind(addresses.as_slice()) {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            other => break other.map_err(failed)?,
        }
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
