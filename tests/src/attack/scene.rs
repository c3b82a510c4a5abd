//! A machine in small, made for one hostile process: what it owns, and everything that it must
//! not reach.

use crate::attack::facts::{Canaries, Facts};
use crate::attack::seat::Seat;
use anyhow::{Context as _, Result};
use ipc_proto::Role;
use mono_sys::hostile::handle_of;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};
use policy::{Context, Identity};
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Users of the attacked processes, apart from those of a daemon that runs at the same time: they
/// use up what their users may have.
const BASE: u32 = 62_000;
/// Two seats of one role are attacked at once, and neither uses up what the other may have.
const NETWORK: u32 = 256;
/// Group that shares the workspace in system mode.
const GROUP: u32 = 62_900;

/// The machine, and what answers there. Gone when dropped.
pub struct Scene {
    folder: TempDir,
    /// What the hostile program is told.
    pub facts: Facts,
    /// Who it is, where each role has a user of its own.
    pub identity: Option<Identity>,
    victim: Child,
    stop: Arc<AtomicBool>,
    _listeners: (Vec<TcpListener>, Vec<UnixListener>, UnixDatagram),
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

impl Scene {
    /// Makes it for a seat; `worker` is the hostile program.
    ///
    /// # Errors
    /// When the machine lacks what the attacks need: a temporary folder, loopback of both
    /// families.
    pub fn new(seat: Seat, worker: &Path) -> Result<Self> {
        let folder = TempDir::with_prefix("mono-attack-")?;
        let root = folder.path().to_owned();
        fs::set_permissions(&root, Permissions::from_mode(0o755))?;
        let privileged = nix::unistd::geteuid().is_root();
        let shares = seat.is_tool() || seat.role == Role::Artifact;
        let group = (privileged && shares).then_some(GROUP);
        let base = BASE + NETWORK * u32::from(seat.network);
        let identity = privileged.then(|| Identity::of(seat.role, 0, base, group));
        let own = |path: &Path, mode: u32| -> Result<()> {
            if let Some(who) = &identity {
                chown(path, Some(who.uid), Some(who.gid))?;
            }
            Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
        };
        let canary = |what: &str| format!("canary-{what}-{}", uuid::Uuid::new_v4().simple());
        let canaries = Canaries {
            key: canary("key"),
            configuration: canary("configuration"),
            conversation: canary("conversation"),
            environment: canary("environment"),
        };

        for name in [
            "workspace",
            "workspace/.hidden",
            "scratch",
            "state",
            "state/own",
            "state/other",
            "keys",
            "home",
            "home/.ssh",
            "open",
        ] {
            fs::create_dir(root.join(name))?;
        }
        let text = |name: &str, text: &str| fs::write(root.join(name), format!("{text}\n"));
        text("keys/model.key", &canaries.key)?;
        text("keys/bearer.key", "bearer")?;
        text("workspace/.hidden.key", &canaries.key)?;
        text("config.json", &canaries.configuration)?;
        text("state/other/conversation", &canaries.conversation)?;
        text("workspace/.hidden/conversation", &canaries.conversation)?;
        if seat.role == Role::Store {
            text("state/own/conversation", &canaries.conversation)?;
        }
        for name in [
            "home/.ssh/id",
            "open/own",
            "open/to-remove",
            "open/to-rename",
        ] {
            text(name, "text")?;
        }
        symlink(root.join("keys/model.key"), root.join("workspace/planted"))?;

        for secret in [
            "keys/model.key",
            "keys/bearer.key",
            "workspace/.hidden.key",
            "config.json",
        ] {
            fs::set_permissions(root.join(secret), Permissions::from_mode(0o600))?;
        }
        for place in ["keys", "state/other", "workspace/.hidden"] {
            fs::set_permissions(root.join(place), Permissions::from_mode(0o700))?;
        }
        // The person's home belongs to the user that is attacked from, the worst case.
        for (place, mode) in [
            ("home/.ssh/id", 0o600),
            ("home/.ssh", 0o700),
            ("home", 0o700),
            ("open/own", 0o644),
            ("state/own", 0o700),
            ("scratch", 0o700),
            ("workspace", 0o770),
        ] {
            own(&root.join(place), mode)?;
        }
        if let Some(group) = group {
            chown(root.join("workspace"), None, Some(group))?;
            fs::set_permissions(root.join("workspace"), Permissions::from_mode(0o2770))?;
        }

        let tcp = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("[::1]:0")?,
        ];
        let udp = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("[::1]:0")?];
        let mut unix = Vec::new();
        for (name, mode) in [
            ("monod.sock", 0o600),
            ("gateway.sock", 0o600),
            ("workspace/.hidden/monod.sock", 0o600),
            ("open/served.sock", 0o666),
            ("workspace/served.sock", 0o666),
        ] {
            unix.push(UnixListener::bind(root.join(name))?);
            fs::set_permissions(root.join(name), Permissions::from_mode(mode))?;
        }
        let datagrams = UnixDatagram::bind(root.join("open/datagrams.sock"))?;
        let anybody = Permissions::from_mode(0o666);
        fs::set_permissions(root.join("open/datagrams.sock"), anybody)?;
        fs::set_permissions(root.join("open"), Permissions::from_mode(0o777))?;
        let abstract_name = format!("mono-attack-{}", uuid::Uuid::new_v4().simple());
        let named = SocketAddr::from_abstract_name(abstract_name.as_bytes())?;
        unix.push(UnixListener::bind_addr(&named)?);

        let (victim, victim_address) = start_victim(worker, identity.as_ref(), &canaries)?;
        let mut facts = Facts {
            root: root.clone(),
            own: None,
            victim: victim.id().cast_signed(),
            victim_address,
            tcp: [tcp[0].local_addr()?.port(), tcp[1].local_addr()?.port()],
            udp: [udp[0].local_addr()?.port(), udp[1].local_addr()?.port()],
            abstract_name,
            handle: handle_of(&root.join("keys/model.key")).unwrap_or_default(),
            canaries,
            search_from: "/".into(),
            handed: Vec::new(),
        };
        facts.own = match seat.role {
            role if seat.is_tool() || role == Role::Monod => Some(root.join("workspace")),
            Role::Store | Role::Artifact | Role::Continuation | Role::AppBridge => {
                Some("/state".into())
            }
            _ => None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        for socket in udp {
            answer(socket, Arc::clone(&stop))?;
        }
        Ok(Self {
            folder,
            facts,
            identity,
            victim,
            stop,
            _listeners: (tcp.into(), unix, datagrams),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The facts that its role is started with, as the supervisor would give them.
    #[must_use]
    pub fn context(&self, seat: Seat) -> Context {
        let tool = seat.is_tool();
        let state = matches!(
            seat.role,
            Role::Store | Role::Artifact | Role::Continuation | Role::AppBridge
        );
        Context {
            workspace: tool.then(|| self.path("workspace")),
            scratch: tool.then(|| self.path("scratch")),
            state: state.then(|| self.path("state/own")),
            hidden: if tool {
                vec![
                    self.path("workspace/.hidden"),
                    self.path("workspace/.hidden.key"),
                ]
            } else {
                Vec::new()
            },
            network: seat.network,
            identity: self.identity.clone(),
            ..Context::default()
        }
    }

    /// What a worker of this role still holds when the first hostile byte arrives, by name.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn handed(&self, seat: Seat) -> Result<Vec<(String, OwnedFd)>> {
        let folder = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let file = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let wanted: &[(&str, &str, OFlag)] = match seat.role {
            Role::Continuation => &[("state", "state/own", folder)],
            Role::Artifact => &[
                ("state", "state/own", folder),
                ("workspace", "workspace", folder),
                ("outbound", "scratch", folder),
            ],
            Role::Egress => &[("key", "keys/model.key", file)],
            role if role.is_channel() => &[("key", "keys/bearer.key", file)],
            _ => &[],
        };
        wanted
            .iter()
            .map(|(name, place, flags)| {
                let fd = open(&self.path(place), *flags, Mode::empty())?;
                Ok(((*name).to_owned(), fd))
            })
            .collect()
    }
}

fn start_victim(
    worker: &Path,
    identity: Option<&Identity>,
    canaries: &Canaries,
) -> Result<(Child, usize)> {
    let mut command = Command::new(worker);
    command
        .arg("victim")
        .env_clear()
        .env("MONO_SECRET", &canaries.environment)
        .current_dir("/")
        // A group of its own, so that a signal to its group reaches nobody else.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(who) = identity {
        command.uid(Uid::from_raw(who.uid).as_raw());
        command.gid(Gid::from_raw(who.gid).as_raw());
    }
    let mut victim = command.spawn().context("the victim can't be started")?;
    let mut line = String::new();
    let output = victim.stdout.take().context("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().parse().context("the victim says nothing")?;
    Ok((victim, address))
}

/// Answers every packet until it is to stop.
fn answer(socket: UdpSocket, stop: Arc<AtomicBool>) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut packet) {
                let _ = socket.send_to(&packet[..length], from);
            }
        }
    });
    Ok(())
}

/// Opens a program for starting it by descriptor.
///
/// # Errors
/// When it is not there.
pub fn program(path: &Path) -> Result<File> {
    File::open(path).with_context(|| {
        format!(
            "{} is not there; cargo build --workspace --bins",
            path.display()
        )
    })
}
