//! A hostile run against the owners it was given channels to, and against the channel worker that
//! reads its events: each attack is made on all channels at once.

use crate::attack::live::edge_attacks::ATTACKS;
use crate::attack::live::order::Order;
use crate::attack::live::wire::{Heard, Said, Wire, packet};
use crate::attack::live::worker::Session;
use crate::fuzz::packet::Seeds;
use anyhow::{Context as _, Result, bail, ensure};
use ipc_proto::Body;
use ipc_proto::Role;
use ipc_proto::chat::{ChatMessage, ChatRole, ModelRequest};
use ipc_proto::edges::artifact::{Request as Artifact, Root};
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::{continuation, egress, events, store};
use ipc_proto::frame::Header;
use ipc_proto::message::Message;
use ipc_proto::table::{FAULT, Guard, RULES};
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What the other side is expected to do; decides how long is waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The attack has no meaning on this channel.
    Untried,
    /// The channel ends.
    End,
    /// An answer.
    Answer,
    /// Nothing.
    Silence,
}

/// An end or an answer comes within this, however busy the machine is.
pub(super) const WITHIN: Duration = Duration::from_secs(40);
/// Long enough for an end that comes.
const SILENCE: Duration = Duration::from_millis(300);
/// How long a flood is held up.
pub(super) const HELD: Duration = Duration::from_millis(1_500);
/// The attack that is held up while others must go on sending descriptors.
pub const IN_FLIGHT: &str = "descriptors-on-their-way";
/// The attack that is held up while others must go on answering.
pub const FLOODING: &str = "flood-without-reading";

/// A channel under attack.
pub struct Edge<'a> {
    pub(super) name: EdgeName,
    pub(super) wire: &'a Wire,
    seeds: &'a Seeds,
    pub(super) workspace: PathBuf,
}

/// An attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Unique.
    pub name: &'static str,
    pub(super) act: fn(&Edge<'_>) -> Result<Expect>,
}

/// The channels of a run by the name of who is at the other end.
pub const COLUMNS: [(EdgeName, &str); 6] = [
    (EdgeName::Store, "store"),
    (EdgeName::Artifact, "artifact"),
    (EdgeName::Egress, "egress"),
    (EdgeName::AppBridge, "app-bridge"),
    (EdgeName::Continuation, "continuation"),
    (EdgeName::Events, "channel-openai"),
];

/// Who is at the other end of its control channel.
pub const SUPERVISOR: &str = "monod";

/// A file that could be published.
pub(super) const INSIDE: &str = "inside.txt";

/// A name that no earlier run has taken.
pub(super) fn fresh(name: &str) -> String {
    format!("{}-{name}", uuid::Uuid::new_v4().simple())
}

/// The name of the attack that says this kind.
#[must_use]
pub fn sweep_name(kind: u16) -> String {
    let row = RULES.iter().find(|row| row.kind == kind);
    let name = row.map_or("unknown", |row| row.name).to_lowercase();
    format!("kind-{kind:04x}-{name}")
}

/// All attacks by name.
#[must_use]
pub fn names() -> Vec<String> {
    let listed = ATTACKS.iter().map(|attack| attack.name.to_owned());
    // The generic kinds belong to every channel.
    let kinds = RULES.iter().filter(|row| row.kind > 0x00ff);
    kinds
        .map(|row| sweep_name(row.kind))
        .chain(listed)
        .collect()
}

pub(super) fn opened(path: &std::path::Path, flags: OFlag) -> Result<OwnedFd> {
    Ok(open(path, flags | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// A memory file that can't change any more, of zeros that take no memory.
pub(super) fn sealed(length: i64) -> Result<OwnedFd> {
    let file = memfd_create(c"attack", MFdFlags::MFD_ALLOW_SEALING)?;
    nix::unistd::ftruncate(&file, length)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    Ok(file)
}

impl Edge<'_> {
    pub(super) fn say(&self, bytes: &[u8]) -> Result<()> {
        self.say_with(bytes, &[])
    }

    /// Also when the kernel wants to be asked again: the processes of one user together may have
    /// so many descriptors on their way.
    pub(super) fn say_with(&self, bytes: &[u8], fds: &[RawFd]) -> Result<()> {
        let deadline = Instant::now() + WITHIN;
        while self.wire.say(bytes, fds)? == Said::Full {
            ensure!(Instant::now() < deadline, "the packet can't be sent");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub(super) fn body(&self, kind: u16) -> &[u8] {
        self.seeds.of(kind).map_or(&[], |seed| &seed.body)
    }

    /// The first thing that an honest run says here.
    pub(super) fn valid(&self) -> Result<Vec<u8>> {
        match self.name {
            EdgeName::Store => Ok(packet(0x0201, 1, 0, self.body(0x0201))),
            _ => self.valid_many(),
        }
    }

    /// Something that a run may say many times.
    pub(super) fn valid_many(&self) -> Result<Vec<u8>> {
        let (kind, body) = match self.name {
            EdgeName::Store => (0x0202, self.body(0x0202).to_vec()),
            EdgeName::Artifact => (0x0301, self.body(0x0301).to_vec()),
            EdgeName::Egress => {
                let (request, _) = Body::pack_json(&ModelRequest {
                    model: None,
                    effort: None,
                    system: String::new(),
                    messages: vec![ChatMessage::text(ChatRole::User, "hello")],
                    tools: Vec::new(),
                    streamed: vec![],
                    max_output_tokens: None,
                })?;
                let request = egress::Request::Complete { request };
                (request.kind(), request.encode()?)
            }
            EdgeName::AppBridge => (0x0501, self.body(0x0501).to_vec()),
            EdgeName::Continuation => (0x0902, self.body(0x0902).to_vec()),
            _ => (0x0602, self.body(0x0602).to_vec()),
        };
        Ok(packet(kind, 1, 0, &body))
    }

    pub(super) fn changed(&self, change: impl Fn(&mut Vec<u8>)) -> Result<Expect> {
        let mut bytes = self.valid()?;
        change(&mut bytes);
        self.say(&bytes)?;
        Ok(Expect::End)
    }

    /// What comes of words about a request that there is not: who reads events knows no requests.
    pub(super) fn about_nothing(&self) -> Expect {
        match self.name {
            EdgeName::Events => Expect::End,
            _ => Expect::Silence,
        }
    }

    /// A kind that takes no descriptor.
    pub(super) fn plain_kind(&self) -> u16 {
        match self.name {
            EdgeName::Store => 0x0202,
            EdgeName::Artifact => 0x0302,
            EdgeName::Egress => 0x0402,
            EdgeName::AppBridge => 0x0501,
            EdgeName::Continuation => 0x0902,
            _ => 0x0602,
        }
    }

    /// A kind that may take one.
    pub(super) fn body_kind(&self) -> u16 {
        match self.name {
            EdgeName::Store => 0x0204,
            EdgeName::Artifact => 0x0301,
            EdgeName::Egress => 0x0401,
            EdgeName::AppBridge => 0x0502,
            EdgeName::Continuation => 0x0903,
            _ => 0x060b,
        }
    }

    pub(super) fn with_descriptors(&self, count: usize) -> Result<Expect> {
        let file = File::open("/dev/null")?;
        let kind = self.plain_kind();
        let bytes = packet(kind, 1, count, self.body(kind));
        self.say_with(&bytes, &vec![file.as_raw_fd(); count])?;
        Ok(Expect::End)
    }

    /// A message whose body is said to be in a memory file.
    pub(super) fn with_body(&self, length: u64, fd: Option<OwnedFd>) -> Result<Expect> {
        let body = Body::Sealed(length);
        let (kind, bytes) = match self.name {
            EdgeName::Store => {
                // In its turn, so that the body is what is wrong.
                self.say(&packet(0x0201, 1, 0, self.body(0x0201)))?;
                self.wire.hear(WITHIN)?;
                let request = store::Request::CommitRun { commit: body };
                (request.kind(), request.encode()?)
            }
            EdgeName::Egress => {
                let request = egress::Request::Complete { request: body };
                (request.kind(), request.encode()?)
            }
            EdgeName::AppBridge => {
                let request = ipc_proto::edges::app_bridge::Request::CallTool {
                    server: "none".into(),
                    tool: "none".into(),
                    arguments: body,
                };
                (request.kind(), request.encode()?)
            }
            EdgeName::Continuation => {
                // In its turn, as above.
                self.say(&packet(0x0902, 1, 0, self.body(0x0902)))?;
                self.wire.hear(WITHIN)?;
                let request = continuation::Request::Pin { origin: body };
                (request.kind(), request.encode()?)
            }
            EdgeName::Events => {
                let event = events::RunEvent::Part { part: body };
                (event.kind(), event.encode()?)
            }
            _ => return Ok(Expect::Untried),
        };
        let raw: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        self.say_with(&packet(kind, 2, raw.len(), &bytes), &raw)?;
        Ok(Expect::Answer)
    }

    /// A file that may be published.
    pub(super) fn inside(&self) -> Result<OwnedFd> {
        let path = self.workspace.join(INSIDE);
        if !path.exists() {
            fs::write(&path, "inside")?;
        }
        opened(&path, OFlag::O_RDONLY)
    }

    pub(super) fn publish(&self, path: &str, fd: OwnedFd) -> Result<Expect> {
        if self.name != EdgeName::Artifact {
            return Ok(Expect::Untried);
        }
        fs::write(self.workspace.join(INSIDE), "inside")?;
        let request = Artifact::Publish {
            root: Root::Workspace,
            path: path.to_owned(),
            name: None,
            media_type: None,
        };
        let bytes = packet(request.kind(), 1, 1, &request.encode()?);
        self.say_with(&bytes, &[fd.as_raw_fd()])?;
        Ok(Expect::Answer)
    }

    /// Says one message of a kind, as it is valid where it belongs.
    pub(super) fn sweep(&self, kind: u16) -> Result<Expect> {
        let edge = self.plain_kind() & 0xff00;
        let row = RULES
            .iter()
            .find(|row| row.kind == kind)
            .context("no such kind")?;
        let allowed = Guard::serving(Role::Run)
            .admit(kind, row.descriptors.0.into())
            .is_ok();
        // What a run may say here is no attack.
        if allowed && kind & 0xff00 == edge {
            return Ok(Expect::Untried);
        }
        let count = usize::from(row.descriptors.0);
        let file = File::open("/dev/null")?;
        let bytes = packet(kind, 1, count, self.body(kind));
        self.say_with(&bytes, &vec![file.as_raw_fd(); count])?;
        Ok(Expect::End)
    }
}

/// Serves one run: makes the attack that its message names.
///
/// # Errors
/// When the supervisor doesn't do its part.
pub fn serve(session: &mut Session) -> Result<()> {
    let Some(mut order) = Order::taken(session)? else {
        return Ok(());
    };
    let wires: BTreeMap<&str, (EdgeName, Wire)> = std::mem::take(&mut order.channels)
        .into_iter()
        .filter_map(|(edge, fd)| {
            let column = COLUMNS.iter().find(|(known, _)| *known == edge)?;
            Some((column.1, (edge, Wire::new(fd))))
        })
        .collect();
    let outcomes = attacked(&order.name, &wires, &session.seeds)?;
    let words: Vec<_> = outcomes
        .iter()
        .map(|(who, what)| format!("{who}={what}"))
        .collect();
    order.tell(&words.join(" "))
}

/// What an answer says.
fn answer(packet: &[u8]) -> &'static str {
    // A fault; refused by artifact; failed by the model, a fetch, a tool.
    const NOT: [u16; 5] = [FAULT, 0x0382, 0x0488, 0x048a, 0x0584];
    const PUBLISHED: u16 = 0x0381;
    match Header::decode(packet) {
        Ok((header, _)) if header.kind == PUBLISHED => "done",
        Ok((header, _)) if NOT.contains(&header.kind) => "denied",
        _ => "answered",
    }
}

fn attacked(
    name: &str,
    wires: &BTreeMap<&str, (EdgeName, Wire)>,
    seeds: &Seeds,
) -> Result<BTreeMap<String, &'static str>> {
    let sweep = RULES.iter().find(|row| sweep_name(row.kind) == name);
    let listed = ATTACKS.iter().find(|attack| attack.name == name);
    let mut outcomes = BTreeMap::new();
    let mut waiting = Vec::new();
    for (who, (edge, wire)) in wires {
        let edge = Edge {
            name: *edge,
            wire,
            seeds,
            workspace: std::env::current_dir()?,
        };
        let expect = match (sweep, listed) {
            (Some(row), _) => edge.sweep(row.kind),
            (None, Some(attack)) => (attack.act)(&edge),
            (None, None) => bail!("there is no attack {name}"),
        };
        match expect.with_context(|| format!("{name} on {who}"))? {
            Expect::Untried => {
                outcomes.insert((*who).to_owned(), "-");
            }
            // A channel worker answers no event, but for room for more of them.
            Expect::Answer if *who == "channel-openai" && name != FLOODING => {
                waiting.push((*who, wire, Expect::Silence));
            }
            expect => waiting.push((*who, wire, expect)),
        }
    }
    if name == FLOODING {
        std::thread::sleep(HELD);
    }
    let start = Instant::now();
    while !waiting.is_empty() {
        let mut left = Vec::new();
        for (who, wire, expect) in waiting {
            let patience = if expect == Expect::Silence {
                SILENCE
            } else {
                WITHIN
            };
            match wire.hear(Duration::from_millis(5))? {
                Heard::Ended => {
                    outcomes.insert(who.to_owned(), "ended");
                }
                Heard::Packet(bytes, _) => {
                    outcomes.insert(who.to_owned(), answer(&bytes));
                    // Before an end there may be answers.
                    if expect != Expect::Answer {
                        left.push((who, wire, expect));
                    }
                }
                Heard::Silence if start.elapsed() > patience => {
                    outcomes.entry(who.to_owned()).or_insert("nothing");
                }
                Heard::Silence => left.push((who, wire, expect)),
            }
        }
        waiting = left;
    }
    Ok(outcomes)
}
