//! What one image of the supervisor leaves to the next: `monoctl reload --exec` replaces the
//! program without ending a worker, a run or a listener.
//!
//! The process stays the same, so its children stay its children. Everything that was decided goes
//! as JSON in a sealed memory file, everything that is open goes as descriptors; both are packed
//! into one socket, which is the new image's standard input.

use ipc_proto::edges::control::{RunScope, SandboxReport, Trigger};
use ipc_proto::{Body, Role, RunId};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::admission::Queue;
use crate::counters::CountersLeft;
use crate::logbook::Logbook;
use crate::process::State;
use crate::request::{Leftover, RunFolders};
use crate::room::Rooms;
use crate::violations::Violations;

/// Shape of [`Left`]. An image takes over only what it understands; the one that is to be replaced
/// asks before it lets go.
pub(crate) const FORMAT: u32 = 1;
/// Descriptors in one message, which is what the kernel allows (`SCM_MAX_FD`).
const IN_ONE: usize = 253;
/// Largest state in bytes: inputs of waiting runs that are larger are descriptors anyway.
const MAX_LEFT: usize = 1 << 30;

/// Number of a descriptor in the luggage.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Packed(usize);

/// Everything that one image decided.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) format: u32,
    pub(crate) uptime_ms: u64,
    /// The daemon was asked to stop in the last moment.
    pub(crate) stop: bool,
    pub(crate) violations: u64,
    pub(crate) forbidden: Violations,
    #[serde(default)]
    pub(crate) counters: CountersLeft,
    pub(crate) next_process: u64,
    pub(crate) next_channel: u64,
    pub(crate) next_server: u64,
    pub(crate) next_ping: u64,
    pub(crate) listeners: Vec<(Role, Packed)>,
    /// The gateway's socket.
    #[serde(default)]
    pub(crate) gateway: Option<Packed>,
    pub(crate) slots: Vec<SlotLeft>,
    pub(crate) processes: Vec<ProcessLeft>,
    pub(crate) runs: Vec<RunLeft>,
    pub(crate) queue: Queue,
    pub(crate) servers: Vec<ServerLeft>,
    #[serde(default)]
    pub(crate) leftovers: Vec<Leftover>,
    pub(crate) logbook: Logbook,
    #[serde(default)]
    pub(crate) rooms: Rooms,
}

/// An always-on role.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SlotLeft {
    pub(crate) role: Role,
    pub(crate) process: Option<u64>,
    pub(crate) restarts: u32,
    pub(crate) last_words: String,
    pub(crate) draining: bool,
}

/// A confined process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessLeft {
    pub(crate) id: u64,
    pub(crate) role: Role,
    pub(crate) pid: i32,
    pub(crate) pidfd: Packed,
    pub(crate) control: Option<Packed>,
    pub(crate) stderr: Option<Packed>,
    pub(crate) begun_line: Vec<u8>,
    pub(crate) namespaces: Option<Vec<String>>,
    pub(crate) state: State,
    pub(crate) age_ms: u64,
    pub(crate) protocol: u16,
    pub(crate) sandbox: Option<SandboxReport>,
    pub(crate) last_line: String,
    pub(crate) run: Option<RunId>,
    pub(crate) scratch: Option<std::path::PathBuf>,
    #[serde(default)]
    pub(crate) folders: Option<RunFolders>,
    pub(crate) memory: Option<crate::memory::Bound>,
    pub(crate) dismissed: bool,
    /// What its forbidden system calls are heard with, and whether the listener is only to come on
    /// it. Without it the process is ended.
    pub(crate) ear: Option<(Packed, bool)>,
    pub(crate) forbidden_calls: u32,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StageLeft {
    Waiting,
    Admitted { for_ms: u64 },
    Working { process: u64 },
    Closing,
}

/// A run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunLeft {
    pub(crate) scope: RunScope,
    pub(crate) trigger: Trigger,
    /// The channel's process and role; none for a run of an operator.
    pub(crate) channel: Option<(u64, Role)>,
    pub(crate) stage: StageLeft,
    pub(crate) cancelled_for_ms: Option<u64>,
    pub(crate) input: Body,
    pub(crate) input_fd: Option<Packed>,
    pub(crate) events: Option<Packed>,
}

/// A stdio MCP server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerLeft {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) process: u64,
    pub(crate) owner: u64,
    #[serde(default)]
    pub(crate) run: Option<RunId>,
}

/// A duration for the state; more than a lifetime is a lifetime.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The moment that was so long ago; now, when the clock doesn't reach back so far.
pub(crate) fn ago(ms: u64) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_millis(ms)).unwrap_or(now)
}

/// Descriptors on their way to the next image.
#[derive(Debug, Default)]
pub(crate) struct Luggage {
    fds: Vec<Option<OwnedFd>>,
}

impl Luggage {
    /// Puts a descriptor in.
    pub(crate) fn put(&mut self, fd: OwnedFd) -> Packed {
        self.fds.push(Some(fd));
        Packed(self.fds.len() - 1)
    }

    /// Takes a descriptor out.
    pub(crate) fn take(&mut self, packed: Packed) -> io::Result<OwnedFd> {
        let fd = self.fds.get_mut(packed.0).and_then(Option::take);
        fd.ok_or_else(|| io::Error::other("a descriptor of the earlier image is missing"))
    }
}

/// One image's estate.
#[derive(Debug)]
pub(crate) struct Handover {
    pub(crate) left: Left,
    pub(crate) luggage: Luggage,
    /// The admin socket, and whether its file is ours to remove.
    pub(crate) admin: (OwnedFd, bool),
}

/// What goes first, beside the first descriptors: the admin socket and the state.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    format: u32,
    /// Bytes of the state.
    bytes: u64,
    /// Descriptors in the luggage.
    descriptors: usize,
    admin_is_ours: bool,
}

impl Handover {
    /// Packs it into a socket from which [`Handover::receive`] takes it in the next image.
    ///
    /// # Errors
    /// When the process has no descriptors left or the kernel takes no more.
    pub(crate) fn pack(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let state = serde_json::to_vec(&self.left)?;
        let memfd = mono_sys::memfd::sealed_memfd(c"mono-handover", &state)?;
        let label = serde_json::to_vec(&Label {
            format: FORMAT,
            bytes: state.len() as u64,
            descriptors: self.luggage.fds.len(),
            admin_is_ours: self.admin.1,
        })?;
        send_some(&ours, &label, &[self.admin.0.as_fd(), memfd.as_fd()])?;
        let luggage: Vec<_> = self.luggage.fds.iter().flatten().map(AsFd::as_fd).collect();
        for some in luggage.chunks(IN_ONE) {
            send_some(&ours, &[0], some)?;
        }
        Ok(theirs)
    }

    /// Takes what the earlier image left on standard input.
    ///
    /// # Errors
    /// When nothing was left there, or something that this image doesn't understand.
    pub(crate) fn receive() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        Self::unpack(&socket)
    }

    fn unpack(socket: &OwnedFd) -> io::Result<Self> {
        let short = || io::Error::other("the earlier image left less than it said");
        let mut bytes = [0; 1024];
        let (count, mut first) = receive_some(socket, &mut bytes)?;
        let label: Label = serde_json::from_slice(&bytes[..count])?;
        if label.format != FORMAT {
            let text = format!(
                "the earlier image left format {}, this one takes {FORMAT}",
                label.format
            );
            return Err(io::Error::other(text));
        }
        let admin = first.pop_front().ok_or_else(short)?;
        let left = Body::Sealed(label.bytes)
            .unpack_json(&mut first, MAX_LEFT)
            .map_err(io::Error::other)?;
        let mut fds = Vec::new();
        while fds.len() < label.descriptors {
            let (count, some) = receive_some(socket, &mut bytes)?;
            if count == 0 {
                return Err(short());
            }
            fds.extend(some.into_iter().map(Some));
        }
        Ok(Self {
            left,
            luggage: Luggage { fds },
            admin: (admin, label.admin_is_ours),
        })
    }

    /// Becomes the program at `exe`, with this estate. Returns only when that failed.
    pub(crate) fn exec(
        &self,
        exe: &std::path::Path,
        arguments: &[std::ffi::OsString],
    ) -> io::Error {
        use std::os::unix::process::CommandExt;
        let packed = match self.pack() {
            Ok(packed) => packed,
            Err(e) => return e,
        };
        // `exec` of the standard library gives the child's streams to this very process.
        std::process::Command::new(exe)
            .args(arguments)
            .arg("--take-over")
            .stdin(packed)
            .exec()
    }
}

fn send_some(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_ONE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let sent = sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::DONTWAIT,
    )?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::Error::other("the kernel took only a part"))
    }
}

fn receive_some(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, VecDeque<OwnedFd>)> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_ONE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut fds = VecDeque::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok((message.bytes, fds))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read;

    fn left() -> Left {
        Left {
            format: FORMAT,
            uptime_ms: 1,
            stop: false,
            violations: 2,
            forbidden: Violations::default(),
            counters: CountersLeft::default(),
            next_process: 3,
            next_channel: 4,
            next_server: 5,
            next_ping: 6,
            listeners: vec![],
            gateway: None,
            slots: vec![],
            processes: vec![],
            runs: vec![],
            queue: Queue::default(),
            servers: vec![],
            leftovers: vec![],
            logbook: Logbook::default(),
            rooms: Rooms::default(),
        }
    }

    #[test]
    fn more_descriptors_than_fit_one_message_arrive_in_order() {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        let mut luggage = Luggage::default();
        let packed: Vec<Packed> = (0..600)
            .map(|n: u32| {
                let text = n.to_string();
                let memfd = mono_sys::memfd::sealed_memfd(c"n", text.as_bytes()).unwrap();
                luggage.put(memfd)
            })
            .collect();
        let handover = Handover {
            left: left(),
            luggage,
            admin: (reader.into(), true),
        };
        let socket = handover.pack().unwrap();
        drop(handover);
        let mut taken = Handover::unpack(&socket).unwrap();
        assert!(taken.admin.1);
        assert_eq!(taken.left.next_ping, 6);
        for (n, packed) in packed.into_iter().enumerate() {
            let fd = taken.luggage.take(packed).unwrap();
            let mut file = std::fs::File::from(fd);
            let mut text = String::new();
            std::io::Seek::rewind(&mut file).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, n.to_string());
            assert!(taken.luggage.take(packed).is_err());
        }
    }

    #[test]
    fn nothing_and_another_format_are_refused() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(
            &mut &ours,
            br#"{"format":99,"bytes":1,"descriptors":0,"admin_is_ours":true}"#,
        )
        .unwrap();
        let error = Handover::unpack(&theirs.into()).unwrap_err();
        assert!(error.to_string().contains("format 99"), "{error}");
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(ours);
        assert!(Handover::unpack(&theirs.into()).is_err());
    }
}
