//! The apps of a worker's life: opened with it, or when the worker before it lets go of them; then
//! kept in order.

use super::desk::Desk;
use super::folder::Folder;
use super::vault::Vault;
use crate::servers::{Servers, Starter};
use ipc_proto::settings::AppsSettings;
use jiff::Timestamp;
use nix::fcntl::Flock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use worker_kit::Control;
use worker_kit::room::Room;

/// How often the folder of apps is asked for while another process has it.
const HOLD_AGAIN: Duration = Duration::from_millis(200);

/// The folder of apps, as a start finds it.
#[derive(Debug)]
pub enum Found {
    /// It is this process's alone.
    Here(Box<Vault>, Flock<OwnedFd>),
    /// The process before this one still has it.
    Held(Folder),
}

/// Takes the folder, if nobody else has it.
///
/// # Errors
/// When it can't be used.
pub fn find(folder: Folder) -> io::Result<Found> {
    let Some(hold) = folder.hold()? else {
        return Ok(Found::Held(folder));
    };
    let vault = Vault::open(folder, Timestamp::now().as_millisecond())?;
    Ok(Found::Here(Box::new(vault), hold))
}

/// Shows apps, now or when they are there; the future keeps them in order and never ends.
pub fn keep<S: Starter>(
    servers: Arc<Servers<S>>,
    found: Found,
    settings: AppsSettings,
    control: Control,
) -> impl Future<Output = ()> + Send {
    let show = move |servers: &Servers<S>, vault: Vault, hold| {
        let vault = vault.sharing(Room::of(control));
        let desk = Arc::new(Desk::new(vault, settings).holding(hold));
        servers.show_apps(desk.clone());
        desk
    };
    let now = match found {
        Found::Here(vault, hold) => Ok(show(&servers, *vault, hold)),
        Found::Held(folder) => {
            servers.stand().awaits(true);
            Err((folder, show))
        }
    };
    async move {
        let desk = match now {
            Ok(desk) => desk,
            Err((folder, show)) => match wait_for(folder).await {
                Ok((vault, hold)) => show(&servers, vault, hold),
                Err(error) => {
                    servers.stand().awaits(false);
                    return tracing::error!("apps can't be kept, so none are shown: {error}");
                }
            },
        };
        tokio::join!(desk.clone().settle_earlier(), desk.keep_house());
    }
}

/// The process before this one hands the folder over when it is told to finish.
async fn wait_for(mut folder: Folder) -> io::Result<(Vault, Flock<OwnedFd>)> {
    loop {
        tokio::time::sleep(HOLD_AGAIN).await;
        let looked = spawn_blocking(move || find(folder)).await;
        match looked.map_err(io::Error::other)?? {
            Found::Here(vault, hold) => return Ok((*vault, hold)),
            Found::Held(again) => folder = again,
        }
    }
}

/// No apps are shown. What is kept from before takes room all the same.
pub async fn count(folder: Option<Folder>, control: Control) {
    let Some(folder) = folder else { return };
    let room = Room::of(control);
    let counted = spawn_blocking(move || {
        // Held, the process before this one has said it.
        if let Found::Here(vault, _hold) = find(folder)? {
            vault.sharing(room).give_back();
        }
        io::Result::Ok(())
    });
    if let Ok(Err(error)) = counted.await {
        tracing::warn!("what is kept of apps can't be counted: {error}");
    }
}
