//! The hostile program in place of a worker of a running daemon. It says on standard error, which
//! the supervisor logs, what it does: lines that begin with [`MARK`].

use crate::attack::live::control::{self, ready};
use crate::attack::live::wire::{Heard, Said, Wire, packet};
use crate::attack::live::{bridge, channel, edges, order, secrets};
use crate::fuzz::packet::Seeds;
use anyhow::{Context as _, Result, bail};
use ipc_proto::edges::control::{FromWorker, ToWorker};
use ipc_proto::link::{Payload, decode};
use ipc_proto::message::Message as _;
use ipc_proto::settings::RoleSettings;
use ipc_proto::table::{Guard, Phase};
use ipc_proto::{MAGIC, Role, VERSION_MAX, VERSION_MIN};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Begins each of its own lines.
pub const MARK: &str = "attack:";
/// Names the attack in `MONO_LOG`, the one variable that the supervisor passes on.
pub const TARGET: &str = "attack::";
/// A worker waits this long for what the supervisor says.
const PATIENCE: Duration = Duration::from_secs(30);
/// The supervisor has ended a channel this long after it was given a reason to, however busy the
/// machine is.
const ENDED_WITHIN: Duration = Duration::from_secs(45);
/// Where the control channel is.
const CONTROL: i32 = 3;

/// Says something to the harness.
pub fn report(words: &str) {
    eprintln!("{MARK} {words}");
}

/// A worker of a daemon, half-way honest.
#[derive(Debug)]
pub struct Session {
    /// The role that it was started as.
    pub role: Role,
    /// Its end of the control channel.
    pub wire: Wire,
    /// Valid bodies.
    pub seeds: Seeds,
    guard: Guard,
    /// What the supervisor handed over, by name.
    pub handed: Vec<(String, OwnedFd)>,
    /// The role's settings.
    pub settings: Option<RoleSettings>,
}

/// True in a process that a daemon has started.
#[must_use]
pub fn is_started_by_daemon() -> bool {
    std::env::var_os("MONO_PROBE_SOCKET").is_some()
}

/// Makes the attack that the daemon's environment names.
///
/// # Errors
/// When the supervisor doesn't do its part of the handshake.
pub fn serve() -> Result<i32> {
    // A worker is executed under the name of its role.
    let name = std::env::args().next().unwrap_or_default();
    let role = Role::ALL.into_iter().find(|role| role.name() == name);
    let words = std::env::var("MONO_LOG").unwrap_or_default();
    let attack = words.split(',').find_map(|word| word.strip_prefix(TARGET));
    let attack = attack
        .and_then(|word| word.split('=').next())
        .context("no attack")?;
    let fd = mono_sys::fd::take_fd(CONTROL)?;
    let mut session = Session {
        role: role.context("no role")?,
        wire: Wire::new(fd),
        seeds: Seeds::load(),
        guard: Guard::greeting(Role::Monod),
        handed: Vec::new(),
        settings: None,
    };
    match attack {
        "run-by-order" => edges::serve(&mut session)?,
        "control-by-order" => order::attack_supervisor(&mut session)?,
        "channel-by-list" => channel::serve(&mut session)?,
        "bridge-by-list" => bridge::serve(&mut session)?,
        "search" => secrets::serve(&mut session)?,
        name => once(&mut session, name)?,
    }
    Ok(0)
}

fn once(session: &mut Session, name: &str) -> Result<()> {
    let mut all = control::ATTACKS.iter();
    let attack = all
        .find(|attack| attack.name == name)
        .context("no such attack")?;
    if attack.phase != Phase::Greeting {
        session.greet()?;
    }
    if attack.phase == Phase::Serving {
        session.become_ready()?;
    }
    report(&format!("made {name}"));
    (attack.act)(session)?;
    // A supervisor that ends this process leaves it no word; else this is said after two
    // heartbeats: the first may have been on its way already.
    if session.answers_a_ping()? && session.answers_a_ping()? {
        report(&format!("over {name} nothing"));
    } else {
        report(&format!("over {name} ended"));
    }
    // Until the daemon ends.
    while session.answers_a_ping()? {}
    Ok(())
}

impl Session {
    /// Says hello and takes what the supervisor answers.
    ///
    /// # Errors
    /// When it answers something else.
    pub fn greet(&mut self) -> Result<()> {
        nix::sys::prctl::set_dumpable(false)?;
        let hello = FromWorker::Hello {
            magic: MAGIC,
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            role: self.role,
            build: "attack".into(),
        };
        self.wire.tell(0, &hello, &[])?;
        let (_, message, mut fds) = self.next(PATIENCE)?.context("no answer to hello")?;
        let ToWorker::Welcome {
            settings,
            descriptors,
            ..
        } = message
        else {
            bail!("expected a welcome, got {message:?}");
        };
        self.settings = Some(settings.unpack_json(&mut fds, 16 << 20)?);
        self.handed = descriptors.into_iter().zip(fds).collect();
        Ok(())
    }

    /// Applies the second stage and says so, as an honest worker does.
    ///
    /// # Errors
    /// When it can't be applied.
    pub fn become_ready(&mut self) -> Result<()> {
        policy::stage2::apply(self.role)?;
        self.wire.tell(0, &ready(true), &[])?;
        self.is_serving();
        Ok(())
    }

    /// The supervisor speaks to it as to a worker that serves.
    pub fn is_serving(&mut self) {
        self.guard.enter(Phase::Serving);
    }

    /// The next message of the supervisor; none when it has ended the channel.
    ///
    /// # Errors
    /// When nothing comes, or no message.
    pub fn next(
        &mut self,
        patience: Duration,
    ) -> Result<Option<(u64, ToWorker, VecDeque<OwnedFd>)>> {
        match self.wire.hear(patience)? {
            Heard::Silence => bail!("the supervisor says nothing"),
            Heard::Ended => Ok(None),
            Heard::Packet(bytes, fds) => {
                let packet = decode::<ToWorker>(&mut self.guard, &bytes, fds)?;
                match packet.payload {
                    Payload::Message(message) => Ok(Some((packet.id, message, packet.fds))),
                    other => bail!("expected a message, got {other:?}"),
                }
            }
        }
    }

    /// The next message that is no heartbeat, which is answered.
    ///
    /// # Errors
    /// As [`Session::next`].
    pub fn next_but_ping(&mut self) -> Result<Option<(u64, ToWorker, VecDeque<OwnedFd>)>> {
        let deadline = Instant::now() + Duration::from_secs(600);
        while Instant::now() < deadline {
            match self.next(PATIENCE)? {
                Some((_, ToWorker::Ping { seq }, _)) => {
                    self.wire.tell(0, &FromWorker::Pong { seq }, &[])?;
                }
                other => return Ok(other),
            }
        }
        bail!("nothing but heartbeats")
    }

    /// Waits for a heartbeat and answers it: true while the supervisor is content.
    ///
    /// # Errors
    /// When neither a heartbeat nor the end comes.
    pub fn answers_a_ping(&mut self) -> Result<bool> {
        let deadline = Instant::now() + ENDED_WITHIN;
        while Instant::now() < deadline {
            match self.next(ENDED_WITHIN)? {
                None => return Ok(false),
                Some((_, ToWorker::Ping { seq }, _)) => {
                    self.wire.tell(0, &FromWorker::Pong { seq }, &[])?;
                    return Ok(true);
                }
                // Grants and the like.
                Some(_) => {}
            }
        }
        bail!("no heartbeat")
    }

    /// Answers the heartbeats that are there and waits for none: what takes long on a busy machine is not
    /// to be taken for a worker that hangs.
    ///
    /// # Errors
    /// When what comes is no message, or the answer can't be sent.
    pub fn answers_meanwhile(&mut self) -> Result<()> {
        while let Heard::Packet(bytes, fds) = self.wire.hear(Duration::ZERO)? {
            let heard = decode::<ToWorker>(&mut self.guard, &bytes, fds)?;
            if let Payload::Message(ToWorker::Ping { seq }) = heard.payload {
                let pong = FromWorker::Pong { seq };
                self.insist(&packet(pong.kind(), 0, 0, &pong.encode()?), &[])?;
            }
        }
        Ok(())
    }

    /// Says it, also when the kernel wants to be asked again: the processes of one user together
    /// may have so many descriptors on their way.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn insist(&self, bytes: &[u8], fds: &[RawFd]) -> Result<()> {
        let deadline = Instant::now() + ENDED_WITHIN;
        while self.wire.say(bytes, fds)? == Said::Full {
            anyhow::ensure!(Instant::now() < deadline, "the packet can't be sent");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until the supervisor has read something, or the channel ends.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait_for_room(&self) -> Result<()> {
        let fd = mono_sys::hostile::with_fd(self.wire.raw(), |fd| fd.try_clone_to_owned())
            .context("no channel")??;
        let mut room = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
        poll(&mut room, PollTimeout::from(1_000_u16))?;
        Ok(())
    }
}
