//! What every worker shares: the handshake, the second sandbox stage, heartbeats, grants, stopping.
//!
//! A worker's `main` is one line: [`run`] with its role and an async function. That function gets
//! [`Starting`] (settings and descriptors, nothing hostile read yet), opens what it needs, calls
//! [`Starting::ready`], and from then on lives on the events of its [`Inbox`].
#![forbid(unsafe_code)]

mod confine;
mod control;
mod file_id;
mod log;
pub mod room;
mod state;

pub use control::{Control, ControlError, Event, Granted, Inbox, RunChannel, ServerPipes};
pub use file_id::FileId;
pub use state::located;

use ipc_proto::edges::control::{FromWorker, ToWorker};
use ipc_proto::link::{Link, LinkError, Payload};
use ipc_proto::settings::RoleSettings;
use ipc_proto::table::{Guard, Phase};
use ipc_proto::{MAGIC, Role, VERSION_MAX, VERSION_MIN};
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

/// Number of the control channel in every worker.
pub const CONTROL_FD: i32 = 3;
/// Largest settings body in bytes.
const MAX_SETTINGS: usize = 16 * 1024 * 1024;

/// Why a worker can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// Started by hand, or the supervisor went away.
    #[error("no control channel on descriptor {CONTROL_FD}: {0}; workers are started by monod")]
    NoControl(std::io::Error),
    /// The supervisor's packet was not what the handshake allows.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The channel broke.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The second sandbox stage could not be applied or a probe succeeded.
    #[error("the sandbox is not what the policy asks for: {0}")]
    Sandbox(String),
    /// The worker's own reason.
    #[error("{0}")]
    Worker(String),
}

impl KitError {
    /// The worker's own reason, for people; no secret.
    pub fn worker(reason: impl std::fmt::Display) -> Self {
        Self::Worker(reason.to_string())
    }
}

/// A worker that has its settings and no hostile byte yet.
#[derive(Debug)]
pub struct Starting {
    /// The role it was started as.
    pub role: Role,
    /// The part of the configuration that this role needs.
    pub settings: RoleSettings,
    descriptors: BTreeMap<String, OwnedFd>,
    link: Link,
}

impl Starting {
    /// Takes a named descriptor.
    pub fn descriptor(&mut self, name: &str) -> Option<OwnedFd> {
        self.descriptors.remove(name)
    }

    /// Takes every descriptor whose name begins with `prefix`, keyed by the rest of the name.
    pub fn descriptors(&mut self, prefix: &str) -> BTreeMap<String, OwnedFd> {
        let names: Vec<_> = self
            .descriptors
            .keys()
            .filter(|k| k.starts_with(prefix))
            .cloned()
            .collect();
        names
            .into_iter()
            .filter_map(|n| {
                let fd = self.descriptors.remove(&n)?;
                Some((n[prefix.len()..].to_owned(), fd))
            })
            .collect()
    }

    /// Applies the second stage, proves it by probes, and says so. Descriptors that were not taken
    /// are closed.
    ///
    /// # Errors
    /// When the sandbox is weaker than the policy: the worker must end.
    pub async fn ready(self) -> Result<(Control, Inbox), KitError> {
        let Self {
            role,
            descriptors,
            link: Link {
                sender,
                mut receiver,
            },
            ..
        } = self;
        drop(descriptors);
        let sandbox = confine::confine(role).map_err(KitError::Sandbox)?;
        sender
            .send(0, 0, &FromWorker::Ready { sandbox }, &[])
            .await?;
        receiver.guard().enter(Phase::Serving);
        Ok(control::serve(sender, receiver))
    }

    /// What the worker has prepared. Where that failed, the supervisor is told why.
    ///
    /// # Errors
    /// The reason, for people; no secret.
    pub async fn prepared<T, E: std::fmt::Display>(
        &self,
        prepared: Result<T, E>,
    ) -> Result<T, KitError> {
        match prepared {
            Ok(prepared) => Ok(prepared),
            Err(reason) => {
                let reason = reason.to_string();
                self.fail(&reason).await;
                Err(KitError::Worker(reason))
            }
        }
    }

    async fn fail(&self, message: &str) {
        let message: String = message.chars().take(2_000).collect();
        let _ = self
            .link
            .sender
            .send(0, 0, &FromWorker::Failed { message }, &[])
            .await;
    }
}

/// Runs a worker: handshake, then `work`. The exit status is 0 for an orderly end.
pub fn run<F, W>(roles: &[Role], work: W) -> ExitCode
where
    W: FnOnce(Starting) -> F,
    F: Future<Output = Result<(), KitError>>,
{
    // Said before anything else is made, so that the answer is under way meanwhile.
    let greeted = greet(roles);
    log::init();
    match greeted.and_then(|greeted| serve(greeted, work)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn serve<F, W>(greeted: Greeted, work: W) -> Result<(), KitError>
where
    W: FnOnce(Starting) -> F,
    F: Future<Output = Result<(), KitError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| KitError::Worker(format!("no runtime: {e}")))?;
    let result = runtime.block_on(async {
        let starting = welcomed(greeted).await?;
        work(starting).await
    });
    // Blocking threads that hang in a file operation must not hold the exit back.
    runtime.shutdown_background();
    result
}

/// A worker that has said `Hello`.
struct Greeted {
    role: Role,
    channel: OwnedFd,
}

/// Says which protocol and which role this is. Needs no runtime.
fn greet(roles: &[Role]) -> Result<Greeted, KitError> {
    confine::undumpable().map_err(KitError::Sandbox)?;
    let channel = mono_sys::fd::take_fd(CONTROL_FD).map_err(KitError::NoControl)?;
    // One binary may implement several roles (the channels); the name it is started under says
    // which one it is. The supervisor refuses a role that is not the one it granted.
    let named = std::env::args().next().unwrap_or_default();
    let role = (roles.iter().copied())
        .find(|role| role.name() == named)
        .ok_or_else(|| KitError::Handshake(format!("no role {named:?} in this binary")))?;
    let hello = FromWorker::Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        role,
        build: env!("CARGO_PKG_VERSION").to_owned(),
    };
    ipc_proto::link::say(&channel, &hello).map_err(|error| match error {
        LinkError::Io(error) => KitError::NoControl(error),
        other => other.into(),
    })?;
    Ok(Greeted { role, channel })
}

/// Waits for the answer.
async fn welcomed(Greeted { role, channel }: Greeted) -> Result<Starting, KitError> {
    let Link {
        mut sender,
        mut receiver,
    } = Link::new(channel, Guard::greeting(Role::Monod)).map_err(KitError::NoControl)?;
    let packet = receiver
        .recv::<ToWorker>()
        .await?
        .ok_or_else(|| KitError::Handshake("the supervisor refused this worker".into()))?;
    let mut fds = packet.fds;
    let Payload::Message(ToWorker::Welcome {
        version,
        settings,
        descriptors,
    }) = packet.payload
    else {
        return Err(KitError::Handshake("expected Welcome".into()));
    };
    sender.set_version(version);
    let settings: RoleSettings = settings
        .unpack_json(&mut fds, MAX_SETTINGS)
        .map_err(|e| KitError::Handshake(e.to_string()))?;
    if descriptors.len() != fds.len() {
        return Err(KitError::Handshake(format!(
            "{} named descriptors, {} came",
            descriptors.len(),
            fds.len()
        )));
    }
    let descriptors = descriptors.into_iter().zip(fds).collect();
    Ok(Starting {
        role,
        settings,
        descriptors,
        link: Link { sender, receiver },
    })
}
