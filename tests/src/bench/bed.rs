//! Single workers under their real profiles, started and greeted as `monod` does it.

use anyhow::{Context as _, Result, bail, ensure};
use ipc_proto::edges::artifact::Artifact;
use ipc_proto::edges::control::{EdgeName, FromWorker, Peer, RunScope, ToWorker};
use ipc_proto::link::{LinkError, LinkReceiver, LinkSender, Payload, pair};
use ipc_proto::settings::{ArtifactSettings, RoleSettings};
use ipc_proto::table::{Guard, Phase};
use ipc_proto::{Body, Client, ConversationId, Link, Role, RunId, VERSION_MAX};
use mono_sys::process::{Child, Namespaces, Spawn, pidfd_signal, spawn, wait};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, chown, geteuid};
use policy::{Context, DEFAULT_BASE, Descriptors, Identity, Launch, Starter};
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Group that shares the workspace when the measurement runs as root.
const GROUP: u32 = 61_013;
/// Number of the control channel in every worker.
const CONTROL: i32 = 3;

/// A workspace, a state folder, and the programs.
#[derive(Debug)]
pub struct Bed {
    folder: TempDir,
    programs: PathBuf,
    launcher: OwnedFd,
    starter: RefCell<Starter>,
    next: Cell<u32>,
    ahead: RefCell<Option<Launch>>,
}

/// A started worker; ended, with its whole tree, when dropped.
#[derive(Debug)]
pub struct Worker {
    started: Started,
    sender: LinkSender,
    receiver: LinkReceiver,
}

/// An artifact worker that serves, and whose wishes for room are granted.
#[derive(Debug)]
pub struct ArtifactWorker {
    #[expect(dead_code, reason = "ends the process when dropped")]
    started: Started,
    sender: LinkSender,
}

/// A started process of which nothing is known; ended, with its whole tree, when dropped.
#[derive(Debug)]
pub struct Started {
    child: Child,
    /// The other end of its control channel, unless it was taken.
    pub channel: Option<OwnedFd>,
    #[expect(dead_code, reason = "open, so that the launcher can send")]
    violations: Option<OwnedFd>,
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = pidfd_signal(&self.child.pidfd, 9);
        let _ = wait(&self.child.pidfd);
    }
}

fn opened(path: &Path) -> Result<OwnedFd> {
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .with_context(|| format!("{} can't be opened; build it first", path.display()))
}

fn directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

impl Bed {
    /// Makes the folders.
    ///
    /// # Errors
    /// When they can't be made or `mono-launch` isn't built.
    pub fn new() -> Result<Self> {
        let programs = crate::daemon::programs();
        let launcher = opened(&programs.join("mono-launch"))?;
        let folder = TempDir::with_prefix("mono-bench-")?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711))?;
        let bed = Self {
            folder,
            programs,
            launcher,
            starter: RefCell::default(),
            next: 0.into(),
            ahead: RefCell::default(),
        };
        for (name, role, mode) in [
            ("workspace", Role::Run, 0o2770),
            ("state", Role::Artifact, 0o700),
        ] {
            std::fs::create_dir(bed.at(name))?;
            if let Some(identity) = bed.identity(role, 0) {
                let group = if role == Role::Run {
                    GROUP
                } else {
                    identity.gid
                };
                let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(group));
                chown(&bed.at(name), Some(uid), Some(gid))?;
            }
            std::fs::set_permissions(bed.at(name), PermissionsExt::from_mode(mode))?;
        }
        std::fs::create_dir(bed.at("run"))?;
        std::fs::write(bed.at("IDENTITY.md"), "You are a measured agent.\n")?;
        Ok(bed)
    }

    /// A path in the folder.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn identity(&self, role: Role, slot: u32) -> Option<Identity> {
        geteuid()
            .is_root()
            .then(|| Identity::of(role, slot, DEFAULT_BASE, Some(GROUP)))
    }

    /// Opens a worker's program.
    ///
    /// # Errors
    /// When it isn't built.
    pub fn program(&self, name: &str) -> Result<OwnedFd> {
        opened(&self.programs.join(name))
    }

    /// Starts a program as it is, without a profile, its control channel on the usual number
    /// beside other descriptors on theirs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn plain(
        &self,
        program: &OwnedFd,
        arguments: &[CString],
        others: &[(OwnedFd, i32)],
    ) -> Result<Started> {
        let (ours, theirs) = pair()?;
        let others = others.iter().map(|(fd, number)| (fd.as_fd(), *number));
        let child = spawn(&Spawn {
            exe: program.as_fd(),
            argv: arguments.to_vec(),
            env: Vec::new(),
            fds: others.chain([(theirs.as_fd(), CONTROL)]).collect(),
            namespaces: Namespaces::NONE,
            id_map: None,
            cgroup: None,
        })?;
        Ok(Started {
            child,
            channel: Some(ours),
            violations: None,
        })
    }

    /// Starts a run worker under its profile. It has said nothing yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn run_worker(&self) -> Result<Worker> {
        let launch = match self.ahead.take() {
            Some(launch) => launch,
            None => self.run_launch()?,
        };
        self.greeted(Role::Run, "mono-run", &launch)
    }

    /// Makes folders and profile of the run worker that starts next, as `monod` does once the last one
    /// has said `Hello`.
    ///
    /// # Errors
    /// When a folder can't be made.
    pub fn prepare_ahead(&self) -> Result<()> {
        *self.ahead.borrow_mut() = Some(self.run_launch()?);
        Ok(())
    }

    /// What a run worker is started with, its scratch folder made.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn run_launch(&self) -> Result<Launch> {
        let slot = self.next.get();
        self.next.set(slot + 1);
        let scratch = self.at(&format!("run/{slot}"));
        std::fs::create_dir(&scratch)?;
        let identity = self.identity(Role::Run, slot);
        if let Some(identity) = &identity {
            let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(GROUP));
            chown(&scratch, Some(uid), Some(gid))?;
        }
        let context = Context {
            workspace: Some(self.at("workspace")),
            scratch: Some(scratch),
            identity,
            ..Context::default()
        };
        self.compiled(Role::Run, context)
    }

    /// Starts the artifact worker under its profile. It has said nothing yet.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn artifact_worker(&self) -> Result<Worker> {
        let context = Context {
            state: Some(self.at("state")),
            identity: self.identity(Role::Artifact, 0),
            ..Context::default()
        };
        let launch = self.compiled(Role::Artifact, context)?;
        self.greeted(Role::Artifact, "mono-artifact", &launch)
    }

    /// An artifact worker that serves, with room for so many files.
    ///
    /// # Errors
    /// When it can't be started or doesn't do its part of the handshake.
    pub async fn serving_artifact_worker(&self, max_count: u64) -> Result<ArtifactWorker> {
        let mut worker = self.artifact_worker()?;
        worker.hello().await?;
        let settings = RoleSettings::Artifact(ArtifactSettings {
            max_age_days: 365,
            max_count,
            dry_run: false,
            private_paths: Vec::new(),
        });
        let descriptors = self.artifact_descriptors()?;
        worker.welcome(&settings, descriptors).await?;
        let Worker {
            started,
            sender,
            receiver,
        } = worker;
        // Ends with the worker's end of the channel.
        tokio::spawn(grant_room(sender.clone(), receiver));
        Ok(ArtifactWorker { started, sender })
    }

    fn compiled(&self, role: Role, mut context: Context) -> Result<Launch> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        context.environment = vec![
            ("MONO_PROBE_STATE".to_owned(), text(self.at("state"))),
            ("MONO_PROBE_SOCKET".to_owned(), text(self.at("monod.sock"))),
        ];
        Ok(policy::compile(role, &context)?)
    }

    /// Starts a program under a profile, as `monod` does: the launcher of run workers stays.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn confined(&self, launch: &Launch, program: &OwnedFd) -> Result<Started> {
        let (ours, theirs) = pair()?;
        let stderr = std::io::stderr();
        // Kept open: the launcher must be able to send, and nothing here makes a forbidden call.
        let (violations, their_violations) = policy::violation::channel()?;
        let child = self.starter.borrow_mut().start(
            launch,
            &Descriptors {
                launcher: self.launcher.as_fd(),
                program: Some(program.as_fd()),
                control: Some(theirs.as_fd()),
                input: None,
                output: None,
                error: Some(stderr.as_fd()),
                violations: their_violations.as_fd(),
                cgroup: None,
            },
        )?;
        Ok(Started {
            child,
            channel: Some(ours),
            violations: Some(violations),
        })
    }

    fn greeted(&self, role: Role, program: &str, launch: &Launch) -> Result<Worker> {
        let mut started = self.confined(launch, &self.program(program)?)?;
        let channel = started.channel.take().context("its channel")?;
        let Link { sender, receiver } = Link::new(channel, Guard::greeting(role))?;
        Ok(Worker {
            started,
            sender,
            receiver,
        })
    }

    /// Descriptors and names that the artifact worker gets.
    ///
    /// # Errors
    /// When a folder is gone.
    fn artifact_descriptors(&self) -> Result<Vec<(&'static str, OwnedFd)>> {
        Ok(vec![
            ("state", directory(&self.at("state"))?),
            ("workspace", directory(&self.at("workspace"))?),
            ("outbound", directory(&self.at("run"))?),
        ])
    }

    /// Descriptors and names that a run worker gets.
    ///
    /// # Errors
    /// When the file is gone.
    pub fn run_descriptors(&self) -> Result<Vec<(&'static str, OwnedFd)>> {
        Ok(vec![("identity", opened(&self.at("IDENTITY.md"))?)])
    }
}

impl Worker {
    async fn next(&mut self) -> Result<FromWorker> {
        match self.receiver.recv::<FromWorker>().await? {
            Some(packet) => match packet.payload {
                Payload::Message(message) => Ok(message),
                other => bail!("an unexpected packet: {other:?}"),
            },
            None => bail!("the worker ended; its reason is above"),
        }
    }

    /// Waits for its `Hello`.
    ///
    /// # Errors
    /// When something else comes, or nothing.
    pub async fn hello(&mut self) -> Result<()> {
        match self.next().await? {
            FromWorker::Hello { .. } => Ok(()),
            other => bail!("no Hello: {other:?}"),
        }
    }

    /// Answers `Hello` and waits until it is ready, with every probe refused.
    ///
    /// # Errors
    /// When it can't work or isn't confined.
    pub async fn welcome(
        &mut self,
        settings: &RoleSettings,
        named: Vec<(&'static str, OwnedFd)>,
    ) -> Result<()> {
        let (settings, memfd) = Body::pack_json(settings)?;
        let (names, fds): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let fds: Vec<OwnedFd> = memfd.into_iter().chain(fds).collect();
        let welcome = ToWorker::Welcome {
            version: VERSION_MAX,
            settings,
            descriptors: names.into_iter().map(str::to_owned).collect(),
        };
        let fds = ipc_proto::link::borrow(&fds);
        self.sender.send(0, 0, &welcome, &fds).await?;
        self.receiver.guard().enter(Phase::Starting);
        match self.next().await? {
            FromWorker::Ready { sandbox } => {
                self.receiver.guard().enter(Phase::Serving);
                ensure!(
                    sandbox.seccomp == 2
                        && !sandbox.probes.is_empty()
                        && sandbox.probes.iter().all(|probe| probe.refused),
                    "it is not confined: {sandbox:?}"
                );
                Ok(())
            }
            other => bail!("not ready: {other:?}"),
        }
    }
}

/// All the room that is asked for, as the supervisor gives it where there is enough.
async fn grant_room(sender: LinkSender, mut receiver: LinkReceiver) -> Result<(), LinkError> {
    while let Some(packet) = receiver.recv::<FromWorker>().await? {
        if let Payload::Message(FromWorker::Room { wanted, .. }) = packet.payload {
            let granted = ToWorker::Room { granted: wanted };
            sender.send(packet.id, 0, &granted, &[]).await?;
        }
    }
    Ok(())
}

impl ArtifactWorker {
    /// A run's way to it, for a run of its own; `channel` is another number for each.
    ///
    /// # Errors
    /// When the worker is gone.
    pub async fn run(&self, channel: u64) -> Result<Client<Artifact>> {
        let conversation = ConversationId::parse("bench:publish")?;
        let peer = Peer {
            role: Role::Run,
            run: Some(RunScope {
                run: RunId::new(),
                conversation: conversation.clone(),
                delivery: conversation,
            }),
        };
        let (ours, theirs) = pair()?;
        let grant = ToWorker::Grant {
            channel,
            edge: EdgeName::Artifact,
            peer,
        };
        self.sender.send(0, 0, &grant, &[theirs.as_fd()]).await?;
        Ok(Client::new(ours, Role::Artifact)?)
    }
}
