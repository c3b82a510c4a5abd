//! What systemd is told and what it hands over: readiness, the watchdog, sockets.
//!
//! Workers never see its variables: their environment is the profile's alone.

use mono_sys::fd::take_fd;
use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

/// Sockets that the unit opened, by their `FileDescriptorName=`.
pub(crate) fn passed_sockets() -> io::Result<BTreeMap<String, OwnedFd>> {
    let mut all = BTreeMap::new();
    for (number, name) in sd_notify::listen_fds_with_names()? {
        let fd = take_fd(number)?;
        // Whoever forgets the name gets an error that tells it, not a socket that nobody serves.
        if all.insert(name.clone(), fd).is_some() {
            let text =
                format!("the unit passes two sockets named {name:?}: set FileDescriptorName=");
            return Err(io::Error::other(text));
        }
    }
    Ok(all)
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::warn!("systemd can't be told: {e}");
    }
}

/// So many always-on workers serve, and so many are parked.
pub(crate) fn ready(serving: usize, parked: usize) {
    let mut status = format!("{serving} confined workers serve");
    if parked > 0 {
        status.push_str(&format!(", {parked} are parked: see `monoctl status`"));
    }
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The loop still dispatches.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The configuration is read again; `ready` says when that is done.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(e) => tracing::warn!("no clock for systemd: {e}"),
    }
}

/// The daemon ends in order.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}
