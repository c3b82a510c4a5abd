//! From the command line to the running loop: configuration, folders, listeners, signals.

mod listeners;

use crate::Arguments;
use crate::admin;
use crate::alone::alone;
use crate::compose::Places;
use crate::environment::environment;
use crate::handover::{FORMAT, Handover, Left, Luggage};
use crate::input::Input;
use crate::launch::Launcher;
use crate::ownership::Ownership;
use crate::programs::Programs;
use crate::stubs;
use crate::supervisor::{Parts, Supervisor};
use crate::systemd;
use crate::upgrade::Own;
use crate::watchdog::TICK;
use ipc_proto::Role;
use listeners::listeners;
use mono_config::Config;
use nix::sys::socket::SockType;
use nix::unistd::{Gid, Uid, chown};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Why the daemon does not start. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    /// The configuration has errors, all of them listed.
    #[error("{0}")]
    Config(String),
    /// A program is missing.
    #[error(transparent)]
    Program(#[from] crate::programs::ProgramError),
    /// A folder can't be used.
    #[error("the folder {} {problem}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// Another daemon works there.
    #[error(
        "another monod serves {}: stop it first (`monoctl stop`), or give this one a runtime.stateDir and a --socket of its own",
        path.display()
    )]
    Taken {
        /// The state folder.
        path: PathBuf,
    },
    /// A listener can't be bound.
    #[error("can't listen on {address} for {key}: {source}{}", remedy(source, key))]
    Listen {
        /// Where.
        address: String,
        /// The configuration's section.
        key: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The bound address is not loopback and no key protects it.
    #[error(
        "{key} listens on {address}, which is not loopback: set {key}.apiKey, or {key}.host to 127.0.0.1"
    )]
    Unprotected {
        /// Where it really listens.
        address: SocketAddr,
        /// The configuration's section.
        key: &'static str,
    },
    /// The console is to serve other machines and doesn't know by which names.
    #[error(
        "console listens on {address}, which is not loopback: set console.allowedHosts to what browsers call it, or console.host to 127.0.0.1"
    )]
    Nameless {
        /// Where it really listens.
        address: SocketAddr,
    },
    /// The bound address is not loopback, and no key could protect it.
    #[error(
        "{key} listens on {address}, which is not loopback: set {key}.host, or the unit's ListenStream=, to 127.0.0.1"
    )]
    NotLoopback {
        /// Where it really listens.
        address: SocketAddr,
        /// The configuration's section.
        key: &'static str,
    },
    /// The admin socket.
    #[error(transparent)]
    Socket(#[from] admin::SocketError),
    /// The sandbox can't be had.
    #[error(transparent)]
    Launch(#[from] crate::launch::LaunchError),
    /// The unit hands over a socket that nothing here serves.
    #[error(
        "the unit passes a socket named {0:?}; known names are `admin` and, with openaiApi.enabled, `openai`, with console.enabled, `console`, with webhook.enabled, `webhook`, with continuations, `continuations`, with metrics.enabled, `metrics`"
    )]
    Passed(String),
    /// A running daemon of another make asks.
    #[error("this program can't take over from the running one: restart the daemon")]
    Format,
    /// The new program can't be run.
    #[error("{} can't be run: {source}", path.display())]
    Exec {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The runtime or a signal handler.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What to do about a listener that can't be bound.
fn remedy(source: &std::io::Error, key: &str) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    match source.kind() {
        AddrInUse => format!("; stop the program that has it, or set {key}.port to another one"),
        AddrNotAvailable => format!("; set {key}.host to an address of this machine"),
        PermissionDenied => {
            format!("; ports below 1024 are root's: set {key}.port to a higher one")
        }
        _ => format!("; see {key}.host and {key}.port"),
    }
}

/// Runs the daemon, or checks that it would run.
pub(crate) fn run(arguments: &Arguments) -> Result<(), BootError> {
    raise_open_files();
    let env = environment();
    let loaded =
        mono_config::load(&arguments.config, &env).map_err(|e| BootError::Config(e.to_string()))?;
    for warning in &loaded.warnings {
        eprintln!("{warning}");
    }
    // A daemon that goes on has said it, and is not asked anything here.
    if !arguments.take_over {
        for waiting in mono_config::check(&arguments.config, &env).waiting() {
            eprintln!("{waiting}");
        }
    }
    let mut config = loaded.config;
    config.env_file.clone_from(&arguments.env_taken);
    let libexec = match &arguments.libexec {
        Some(folder) => folder.clone(),
        None => own_folder()?,
    };
    let programs = Programs::open(&libexec)?;
    let places = places(&config)?;
    let socket = arguments
        .socket
        .clone()
        .unwrap_or_else(|| config.runtime.state_dir.join("monod.sock"));
    let mut launcher = Launcher::new(
        &config,
        &places,
        programs,
        &socket,
        arguments.allow_degraded,
    )?;
    if arguments.check {
        if arguments.takes_over.is_some_and(|format| format != FORMAT) {
            return Err(BootError::Format);
        }
        println!("ok: the daemon would start");
        return Ok(());
    }
    let state = &config.runtime.state_dir;
    let taken = || BootError::Taken {
        path: state.clone(),
    };
    let _alone = alone(state)?.ok_or_else(taken)?;
    prepare(&config, &places, launcher.ownership())?;
    launcher.enforce_memory();
    let gateway_at = socket.with_file_name(GATEWAY);
    let (admin, ours, listeners, gateway, mut taken) = if arguments.take_over {
        let Handover {
            left,
            mut luggage,
            admin: (admin, ours),
        } = Handover::receive()?;
        let mut open = BTreeMap::new();
        for (role, listener) in &left.listeners {
            open.insert(*role, TcpListener::from(luggage.take(*listener)?));
        }
        let gateway = left.gateway.map(|gateway| luggage.take(gateway));
        (
            admin,
            ours,
            open,
            gateway.transpose()?,
            Some((left, luggage)),
        )
    } else {
        clear_scratch(&places.scratch);
        let mut passed = systemd::passed_sockets()?;
        let listeners = listeners(&config, &mut passed)?;
        // A socket of the unit stays open over a restart: nobody who connects meanwhile is turned
        // away.
        let (admin, ours) = match passed.remove("admin") {
            Some(admin) => (admin::checked(admin)?, false),
            None => (admin::listen_at(&socket, SockType::SeqPacket)?, true),
        };
        let gateway = match config.tools.gateway.enabled {
            true => Some(admin::listen_at(&gateway_at, SockType::Stream)?),
            false => None,
        };
        if let Some(name) = passed.keys().next() {
            return Err(BootError::Passed(name.clone()));
        }
        (admin, ours, listeners, gateway, None)
    };
    let offers = gateway.is_some();
    let own = Own::read()?;
    let parts = Parts {
        config,
        reports: loaded.fields,
        file: arguments.config.clone(),
        places,
        launcher,
        listeners,
        gateway,
        own: own.clone(),
    };
    let ended = live(parts, &admin, &socket, taken.take())?;
    if let Some((left, luggage)) = ended {
        let handover = Handover {
            left,
            luggage,
            admin: (admin, ours),
        };
        // Its own check ran a moment ago. If it can't be run all the same, this process has lost
        // nothing yet but its loop, and starting anew ends no more than a restart does.
        let source = handover.exec(&own.exe, &own.arguments);
        let path = own.exe;
        return Err(BootError::Exec { path, source });
    }
    // A left-over socket is replaced at the next start; removing it now tells monoctl sooner.
    if ours {
        let _ = std::fs::remove_file(&socket);
    }
    if offers {
        let _ = std::fs::remove_file(&gateway_at);
    }
    tracing::info!("stopped");
    Ok(())
}

/// The gateway's socket, beside the admin socket.
pub(crate) const GATEWAY: &str = "gateway.sock";

/// Runs the loop until its end, with what an earlier image left.
fn live(
    parts: Parts,
    admin: &OwnedFd,
    socket: &Path,
    taken: Option<(Left, Luggage)>,
) -> Result<Option<(Left, Luggage)>, BootError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let (tell, inputs) = mpsc::unbounded_channel();
        follow_signals(&tell)?;
        tokio::spawn(tick(tell.clone()));
        let operators = admin::Operators::accept(admin.try_clone()?, tell.clone())?;
        for (role, listener) in &parts.listeners {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(role = %role, "listening on http://{address}");
            }
        }
        tracing::info!("admin socket at {}", socket.display());
        if let Some(gateway) = &parts.gateway {
            stubs::accept(gateway.try_clone()?, tell.clone())?;
            let place = socket.with_file_name(GATEWAY);
            tracing::info!("gateway's socket at {}", place.display());
        }
        let mut supervisor = Supervisor::new(parts, tell);
        if let Some((left, luggage)) = taken {
            supervisor.take_over_from(left, luggage)?;
        }
        Ok::<_, std::io::Error>(supervisor.serve(inputs, &operators).await)
    });
    runtime.shutdown_background();
    Ok(result?)
}

/// Every run, channel and server holds descriptors here; the usual soft limit of 1024 is for
/// programs that still use select.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(e) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!("the limit of open files stays at {soft}: {e}");
    }
}

fn own_folder() -> Result<PathBuf, std::io::Error> {
    let me = std::env::current_exe()?;
    Ok(me.parent().map(Path::to_owned).unwrap_or_default())
}

fn places(config: &Config) -> Result<Places, BootError> {
    let state = &config.runtime.state_dir;
    make_folder(state, 0o700)?;
    check_private(state)?;
    // Symbolic links on the way are the operator's; from here on paths are fixed.
    let real = |path: &Path| {
        path.canonicalize().map_err(|e| BootError::Folder {
            path: path.to_owned(),
            problem: format!("can't be used: {e}"),
        })
    };
    let state = real(state)?;
    let workspace = real(&config.runtime.workspace)?;
    make_folder(&config.artifacts.dir, 0o700)?;
    let continuations = &config.continuations;
    if continuations.enabled {
        make_folder(&continuations.state_dir, 0o700)?;
    }
    Ok(Places {
        continuations: match continuations.enabled {
            true => real(&continuations.state_dir)?,
            false => continuations.state_dir.clone(),
        },
        store: state.join("store"),
        apps: state.join("apps"),
        artifacts: real(&config.artifacts.dir)?,
        scratch: state.join("run"),
        workspace,
    })
}

fn make_folder(path: &Path, mode: u32) -> Result<(), BootError> {
    match DirBuilder::new().recursive(true).mode(mode).create(path) {
        Ok(()) => Ok(()),
        Err(e) => Err(BootError::Folder {
            path: path.to_owned(),
            problem: format!(
                "can't be made: {e}; make it, or set runtime.stateDir to another place"
            ),
        }),
    }
}

/// Makes the owners' folders with their owners, and refuses folders that others could write.
fn prepare(config: &Config, places: &Places, ownership: &Ownership) -> Result<(), BootError> {
    let state = &config.runtime.state_dir;
    if ownership.privileged {
        // Roles of other users must pass through to their own folder, and see nothing else.
        set_mode(state, 0o711)?;
    }
    for (path, role, mode) in [
        (&places.store, Role::Store, 0o700),
        (&places.artifacts, Role::Artifact, 0o700),
        (&places.apps, Role::AppBridge, 0o700),
        (&places.continuations, Role::Continuation, 0o700),
    ] {
        if role == Role::Continuation && !config.continuations.enabled {
            continue;
        }
        make_folder(path, mode)?;
        give(path, ownership.of(role))?;
        set_mode(path, mode)?;
    }
    make_folder(&places.scratch, 0o711)?;
    set_mode(&places.scratch, 0o711)
}

fn check_private(path: &Path) -> Result<(), BootError> {
    let problem = |problem: String| BootError::Folder {
        path: path.to_owned(),
        problem,
    };
    let meta =
        std::fs::symlink_metadata(path).map_err(|e| problem(format!("can't be read: {e}")))?;
    let us = nix::unistd::geteuid().as_raw();
    if meta.uid() != us {
        return Err(problem(format!(
            "belongs to user {}, not to {us}: chown it, or set runtime.stateDir to another place",
            meta.uid()
        )));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(problem(format!(
            "can be written by others (mode {:o}): chmod go-w it",
            meta.mode() & 0o777
        )));
    }
    let probe = path.join(".write-probe");
    std::fs::write(&probe, b"").map_err(|e| {
        problem(format!(
            "can't be written: {e}; is the file system read-only or full?"
        ))
    })?;
    let _ = std::fs::remove_file(probe);
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), BootError> {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|e| BootError::Folder {
        path: path.to_owned(),
        problem: format!("can't get mode {mode:o}: {e}"),
    })
}

fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<(), BootError> {
    let Some((uid, gid)) = owner else {
        return Ok(());
    };
    let refused = |e: std::io::Error| BootError::Folder {
        path: path.to_owned(),
        problem: format!("can't be given to user {uid}: {e}"),
    };
    let meta = std::fs::symlink_metadata(path).map_err(refused)?;
    if meta.uid() == uid && meta.gid() == gid {
        return Ok(());
    }
    chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(|e| refused(e.into()))
}

/// Scratch of an earlier life of the daemon is nobody's now.
fn clear_scratch(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Err(e) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!("{} can't be removed: {e}", entry.path().display());
        }
    }
}

fn follow_signals(tell: &mpsc::UnboundedSender<Input>) -> std::io::Result<()> {
    let inputs: [(SignalKind, fn() -> Input); 4] = [
        (SignalKind::hangup(), || Input::Reload),
        (SignalKind::terminate(), || Input::Stop),
        (SignalKind::interrupt(), || Input::Stop),
        (SignalKind::child(), || Input::ChildEnded),
    ];
    for (kind, input) in inputs {
        let mut stream = signal(kind)?;
        let tell = tell.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if tell.send(input()).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

async fn tick(tell: mpsc::UnboundedSender<Input>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if tell.send(Input::Tick).is_err() {
            return;
        }
    }
}
