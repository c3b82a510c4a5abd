//! Hostile packets over real sockets to a real process, with descriptors where none belong.

use crate::fuzz::direction;
use crate::fuzz::measure::{Mark, Process};
use crate::fuzz::packet::Seeds;
use crate::fuzz::peer::VIOLATION;
use crate::fuzz::random::Random;
use crate::fuzz::seat::{self, Seat};
use crate::fuzz::{Budget, Growth};
use anyhow::{Context, Result, bail};
use ipc_proto::Role;
use ipc_proto::edges::control::{EdgeName, FromWorker, Peer, ToWorker};
use ipc_proto::frame::{Header, MAX_PACKET};
use ipc_proto::link::{self, Payload};
use ipc_proto::message::Message;
use ipc_proto::table::{Guard, find};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Most descriptors that the kernel lets one packet carry (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;
/// The peer must have ended a channel this long after its other end was closed.
const PATIENCE: Duration = Duration::from_secs(20);
/// A peer that reads nothing for this many milliseconds is waiting for us on purpose.
const FULL: u8 = 20;
/// Channels until the peer's memory is called settled: each seat was taken at least once.
const WARM_UP: usize = 300;
/// Packets of a flood: many times what the socket's buffers hold.
const FLOOD: u64 = 20_000;

/// What came of it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Attacked {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Descriptors sent with them.
    pub descriptors: u64,
    /// Channels opened and ended.
    pub channels: u64,
    /// Channels that the peer ended because the protocol was broken.
    pub violations: u64,
    /// What the peer grew by.
    pub growth: Growth,
}

/// The peer process and the control channel to it; ended when dropped.
struct Victim {
    child: Child,
    control: OwnedFd,
    process: Process,
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Victim {
    fn start() -> Result<Self> {
        let (control, theirs) = link::pair()?;
        let child = Command::new(std::env::current_exe()?)
            .arg("--peer")
            .stdin(Stdio::from(theirs))
            .spawn()
            .context("the peer can't be started")?;
        let process = Process::of(child.id());
        Ok(Self {
            child,
            control,
            process,
        })
    }

    /// Hands over a channel end and says which seat to take there.
    fn grant(&self, seat: usize, fd: &OwnedFd) -> Result<()> {
        let message = ToWorker::Grant {
            channel: seat as u64,
            edge: EdgeName::Store,
            peer: Peer {
                role: Role::Run,
                run: None,
            },
        };
        let header = Header {
            version: ipc_proto::VERSION_MAX,
            kind: message.kind(),
            id: 0,
            deadline_ms: 0,
            descriptors: 1,
        };
        let packet = [&header.encode()[..], &message.encode()?].concat();
        send(&self.control, &packet, &[fd.as_raw_fd()])?;
        Ok(())
    }

    /// Waits until the peer says that the channel ended; true when the protocol was broken.
    fn ended(&mut self) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("the peer did not end a closed channel within {PATIENCE:?}");
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            poll(
                &mut [PollFd::new(self.control.as_fd(), PollFlags::POLLIN)],
                timeout,
            )?;
            let mut packet = [0; 256];
            match recv(
                self.control.as_raw_fd(),
                &mut packet,
                MsgFlags::MSG_DONTWAIT,
            ) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Ok(length) if length > 0 => {
                    let mut guard = Guard::serving(Role::Store);
                    let answer =
                        link::decode::<FromWorker>(&mut guard, &packet[..length], VecDeque::new())?;
                    match answer.payload {
                        Payload::Message(FromWorker::Pong { seq }) => return Ok(seq == VIOLATION),
                        other => bail!("the peer says {other:?}"),
                    }
                }
                _ => {
                    let status = self.child.wait()?;
                    bail!("the peer died: {status}");
                }
            }
        }
    }

    /// What the peer grew by; waits until its last channels are closed.
    fn growth(&self, mark: &Mark) -> Result<Growth> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let descriptors = self.process.descriptors()? as i64 - mark.descriptors as i64;
            // The peer says that a channel ended a moment before its runtime drops it.
            if descriptors <= 0 || Instant::now() > deadline {
                return Ok(Growth {
                    bytes: self.process.peak_growth(mark)?,
                    descriptors,
                });
            }
            std::thread::yield_now();
        }
    }
}

/// What may come with a packet: things whose reading blocks, never ends, or is refused.
fn arsenal() -> Result<Vec<OwnedFd>> {
    let (pipe_read, pipe_write) = nix::unistd::pipe()?;
    let (socket, _other) = link::pair()?;
    let unsealed = memfd_create("unsealed", MFdFlags::MFD_CLOEXEC)?;
    let (_, sealed) = ipc_proto::Body::pack(vec![b'x'; 40_000])?;
    let mut all = vec![pipe_read, pipe_write, socket, unsealed];
    all.extend(sealed);
    for path in ["/dev/null", "/dev/zero", "/"] {
        all.push(File::open(path)?.into());
    }
    Ok(all)
}

fn send(socket: &OwnedFd, packet: &[u8], fds: &[RawFd]) -> nix::Result<()> {
    let parts = [IoSlice::new(packet)];
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), &parts, control, flags, None).map(drop)
}

/// Whether more can be said.
#[derive(PartialEq)]
enum Said {
    Taken,
    Full,
    Ended,
}

fn say(socket: &OwnedFd, packet: &[u8], fds: &[RawFd]) -> Result<Said> {
    for _ in 0..2 {
        match send(socket, packet, fds) {
            Ok(()) => return Ok(Said::Taken),
            Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => return Ok(Said::Ended),
            // Too many descriptors are on their way until the peer reads.
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ETOOMANYREFS) => {
                poll(
                    &mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)],
                    PollTimeout::from(FULL),
                )?;
            }
            Err(e) => bail!("a packet of {} bytes can't be sent: {e}", packet.len()),
        }
    }
    Ok(Said::Full)
}

/// Reads and forgets what the peer says.
fn listen(socket: &OwnedFd) {
    let mut packet = [0; MAX_PACKET];
    while recv(socket.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT).is_ok_and(|n| n > 0) {}
}

/// Attacks until the budget is used up.
///
/// # Errors
/// When the peer dies or hangs.
pub fn attack(seeds: &Seeds, random: &mut Random, budget: &Budget) -> Result<Attacked> {
    let directions = direction::all();
    let seats = seat::all(&directions);
    let arsenal = arsenal()?;
    let mut victim = Victim::start()?;
    let mut done = Attacked::default();
    let mut mark = None;
    let mut number = 0;
    while number < WARM_UP + seats.len() || budget.take(1) {
        // First every seat in turn, then any.
        let which = if number < seats.len() {
            number
        } else {
            random.below(seats.len())
        };
        if number == WARM_UP {
            mark = Some(victim.process.mark()?);
        }
        let (ours, theirs) = link::pair()?;
        victim.grant(which, &theirs)?;
        drop(theirs);
        let sent = if number % 97 == 0 {
            flood(&seats[which], seeds, &ours)?
        } else {
            quarrel(
                &seats[which],
                seeds,
                random,
                &ours,
                &arsenal,
                &mut done.descriptors,
            )?
        };
        drop(ours);
        done.violations += u64::from(victim.ended()?);
        done.channels += 1;
        done.packets += sent;
        number += 1;
    }
    let mark = mark.context("the warm-up is longer than the attack")?;
    done.growth = victim.growth(&mark)?;
    Ok(done)
}

/// Says hostile things until the peer ends the channel or we have said enough.
fn quarrel(
    seat: &Seat<'_>,
    seeds: &Seeds,
    random: &mut Random,
    socket: &OwnedFd,
    arsenal: &[OwnedFd],
    descriptors: &mut u64,
) -> Result<u64> {
    let reads = random.one_in(2);
    let mut packet = Vec::new();
    let mut sent = 0;
    for _ in 0..=random.below(48) {
        let count = *random.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 16, 17, MOST_DESCRIPTORS]);
        let fds: Vec<RawFd> = (0..count)
            .map(|_| match random.below(arsenal.len() + 1) {
                // The very end that it travels on: a cycle that only the kernel can collect.
                0 => socket.as_raw_fd(),
                n => arsenal[n - 1].as_raw_fd(),
            })
            .collect();
        seeds.write(random, &seat.direction.kinds, count, &mut packet);
        if packet.is_empty() && count == 0 {
            // An empty packet reads as the end of the channel; that is one way to end it.
            packet.push(0);
        }
        match say(socket, &packet, &fds)? {
            Said::Taken => {
                sent += 1;
                *descriptors += count as u64;
            }
            Said::Full | Said::Ended => break,
        }
        if reads {
            listen(socket);
        }
    }
    Ok(sent)
}

/// Valid messages without end, and not one answer read: what is queued for us must stay bounded.
fn flood(seat: &Seat<'_>, seeds: &Seeds, socket: &OwnedFd) -> Result<u64> {
    let Some(seed) = seat
        .direction
        .kinds
        .iter()
        .filter(|kind| find(**kind).is_some_and(|row| !row.once && row.descriptors.0 == 0))
        .find_map(|kind| seeds.of(*kind))
    else {
        return Ok(0);
    };
    for n in 0..FLOOD {
        let header = Header {
            version: ipc_proto::VERSION_MAX,
            kind: seed.kind,
            id: n + 1,
            deadline_ms: 0,
            descriptors: 0,
        };
        let packet = [&header.encode()[..], &seed.body].concat();
        if say(socket, &packet, &[])? != Said::Taken {
            return Ok(n);
        }
    }
    Ok(FLOOD)
}
