//! Attacks on the supervisor over a worker's control channel. A daemon is started for each, with
//! the hostile program in place of every worker: each of them makes the same attack.

use crate::attack::live::wire::{MOST_DESCRIPTORS, Said, packet};
use crate::attack::live::worker::Session;
use anyhow::{Result, bail};
use ipc_proto::edges::control::FromWorker;
use ipc_proto::edges::control::{Probe, SandboxReport};
use ipc_proto::frame::{HEADER, MAX_PACKET};
use ipc_proto::message::Message;
use ipc_proto::table::{CANCEL, CREDIT, FAULT, Phase};
use ipc_proto::{MAGIC, Role, VERSION_MAX, VERSION_MIN};
use mono_sys::attempt::{Hopeless, hopeless};
use std::fs::File;
use std::os::fd::AsRawFd;

/// An attack.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Unique.
    pub name: &'static str,
    /// How far the handshake goes in order.
    pub phase: Phase,
    /// Makes it.
    pub act: fn(&mut Session) -> Result<()>,
}

const fn attack(name: &'static str, phase: Phase, act: fn(&mut Session) -> Result<()>) -> Attack {
    Attack { name, phase, act }
}

use Phase::{Greeting, Serving, Starting};

/// Kinds of messages: one that every worker may send once it serves, and some that it may not.
const PONG: u16 = 0x0143;
const FIGURES: u16 = 0x0149;
const PING: u16 = 0x0104;
const BEGIN_RUN: u16 = 0x0201;

/// Messages or lines of a flood between two looks for a heartbeat.
const BETWEEN: usize = 100;

/// All of them.
pub const ATTACKS: &[Attack] = &[
    // The control: no attack at all, and the supervisor is content.
    attack("behave", Serving, |_| Ok(())),
    attack("hello-with-other-magic", Greeting, |s| {
        s.tell(&hello(s.role, MAGIC + 1, (VERSION_MIN, VERSION_MAX)))
    }),
    attack("hello-of-the-future", Greeting, |s| {
        s.tell(&hello(s.role, MAGIC, (VERSION_MAX + 1, u16::MAX)))
    }),
    attack("hello-with-versions-reversed", Greeting, |s| {
        s.tell(&hello(s.role, MAGIC, (VERSION_MAX + 1, VERSION_MIN)))
    }),
    attack("hello-of-another-role", Greeting, |s| {
        let other = match s.role {
            Role::Egress => Role::Store,
            _ => Role::Egress,
        };
        s.tell(&hello(other, MAGIC, (VERSION_MIN, VERSION_MAX)))
    }),
    attack("hello-of-the-supervisor", Greeting, |s| {
        s.tell(&hello(Role::Monod, MAGIC, (VERSION_MIN, VERSION_MAX)))
    }),
    attack("packet-of-another-version", Greeting, |s| {
        let mut bytes = s.hello_packet()?;
        bytes[0] = 9;
        s.say(&bytes)
    }),
    attack("packet-of-a-few-bytes", Greeting, |s| {
        s.say(&[1; HEADER - 1])
    }),
    attack("packet-cut-off", Greeting, |s| {
        let mut bytes = s.hello_packet()?;
        bytes.truncate(bytes.len() - 3);
        s.say(&bytes)
    }),
    attack("packet-with-more", Greeting, |s| {
        let mut bytes = s.hello_packet()?;
        bytes.push(0);
        s.say(&bytes)
    }),
    attack("packet-too-large", Greeting, |s| {
        let mut bytes = s.hello_packet()?;
        bytes.resize(MAX_PACKET + 1, 0);
        s.say(&bytes)
    }),
    attack("packet-with-reserved-bytes", Greeting, |s| {
        let mut bytes = s.hello_packet()?;
        bytes[HEADER - 1] = 1;
        s.say(&bytes)
    }),
    attack("packet-with-a-long-string", Greeting, |s| {
        // The length of the build's name: more than there is.
        let mut bytes = s.hello_packet()?;
        let at = bytes.len() - 13;
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        s.say(&bytes)
    }),
    attack("packet-of-nothing", Greeting, |s| s.say(&[])),
    attack("hello-with-a-descriptor", Greeting, |s| {
        let bytes = s.hello_with(1)?;
        s.say_with(&bytes, 1)
    }),
    attack("hello-with-253-descriptors", Greeting, |s| {
        let bytes = s.hello_with(MOST_DESCRIPTORS)?;
        s.say_with(&bytes, MOST_DESCRIPTORS)
    }),
    attack("hello-with-a-descriptor-unannounced", Greeting, |s| {
        let bytes = s.hello_packet()?;
        s.say_with(&bytes, 1)
    }),
    attack("hello-with-a-descriptor-only-announced", Greeting, |s| {
        let bytes = s.hello_with(1)?;
        s.say(&bytes)
    }),
    attack("ready-in-place-of-hello", Greeting, |s| {
        s.tell(&ready(true))
    }),
    attack("pong-in-place-of-hello", Greeting, |s| {
        s.tell(&FromWorker::Pong { seq: 1 })
    }),
    attack("hello-twice", Starting, |s| {
        s.tell(&hello(s.role, MAGIC, (VERSION_MIN, VERSION_MAX)))
    }),
    attack("pong-before-ready", Starting, |s| {
        s.tell(&FromWorker::Pong { seq: 1 })
    }),
    attack("work-before-ready", Starting, |s| s.seed(own_kind(s.role))),
    attack("ready-without-a-probe", Starting, |s| {
        s.tell(&FromWorker::Ready {
            sandbox: SandboxReport::default(),
        })
    }),
    // The report is as it should be, and nothing was done for it.
    attack("ready-without-the-second-stage", Starting, |s| {
        s.tell(&ready(true))?;
        s.is_serving();
        Ok(())
    }),
    attack("ready-with-a-probe-that-got-through", Starting, |s| {
        s.tell(&ready(false))
    }),
    attack("failed-to-start", Starting, |s| {
        s.tell(&FromWorker::Failed {
            message: "\u{1b}[2Jhostile\nline".into(),
        })
    }),
    attack("ready-twice", Serving, |s| s.tell(&ready(true))),
    attack("hello-while-serving", Serving, |s| {
        s.tell(&hello(s.role, MAGIC, (VERSION_MIN, VERSION_MAX)))
    }),
    attack("failed-while-serving", Serving, |s| {
        s.tell(&FromWorker::Failed {
            message: "late".into(),
        })
    }),
    attack("kind-that-nobody-knows", Serving, |s| {
        s.say(&packet(0xfffe, 1, 0, &[]))
    }),
    attack("kind-of-the-supervisor", Serving, |s| s.seed(PING)),
    attack("kind-of-another-channel", Serving, |s| s.seed(BEGIN_RUN)),
    attack("kind-of-another-role", Serving, |s| {
        s.seed(foreign_kind(s.role))
    }),
    attack("body-of-another-kind", Serving, |s| {
        let body = FromWorker::Failed {
            message: "x".into(),
        }
        .encode()?;
        s.say(&packet(PONG, 0, 0, &body))
    }),
    attack("cancel-on-the-control-channel", Serving, |s| {
        s.say(&packet(CANCEL, 7, 0, &[]))
    }),
    attack("credit-on-the-control-channel", Serving, |s| {
        s.say(&packet(CREDIT, 7, 0, &u32::MAX.to_le_bytes()))
    }),
    attack("fault-on-the-control-channel", Serving, |s| s.seed(FAULT)),
    attack("pong-with-a-descriptor", Serving, |s| {
        let body = FromWorker::Pong { seq: 1 }.encode()?;
        s.say_with(&packet(PONG, 0, 1, &body), 1)
    }),
    attack("pong-with-253-descriptors", Serving, |s| {
        let body = FromWorker::Pong { seq: 1 }.encode()?;
        s.say_with(&packet(PONG, 0, MOST_DESCRIPTORS, &body), MOST_DESCRIPTORS)
    }),
    attack("own-end-as-a-descriptor", Serving, |s| {
        // A cycle that only the kernel can collect.
        let body = FromWorker::Pong { seq: 1 }.encode()?;
        s.insist(&packet(PONG, 0, 1, &body), &[s.wire.raw()])
    }),
    attack("end-of-a-run-that-it-has-not", Serving, |s| s.seed(0x0148)),
    attack("forbidden-call", Serving, |_| {
        // It is held in the call until its end; an answer would be told as what it came to.
        bail!("answered with {}", hopeless(Hopeless::Ptrace))
    }),
    attack("pongs-without-a-ping", Serving, |s| {
        for seq in 0..15_000 {
            if s.wire.tell(0, &FromWorker::Pong { seq }, &[])? == Said::Full {
                s.wait_for_room()?;
            }
            if seq % BETWEEN as u64 == 0 {
                s.answers_meanwhile()?;
            }
        }
        Ok(())
    }),
    // Where it may ask, it is told each time, as far as it listens.
    attack("figures-without-end", Serving, |s| {
        for _ in 0..5_000 {
            if s.wire.tell(1, &FromWorker::Figures, &[])? == Said::Full {
                s.wait_for_room()?;
            }
        }
        Ok(())
    }),
    attack("lines-without-end", Serving, |s| {
        // Its log: a line of a megabyte, and twenty thousand short ones.
        eprintln!("{}", "x".repeat(1 << 20));
        for number in 0..20_000 {
            eprintln!("\u{1b}]0;hostile\u{7}");
            if number % BETWEEN == 0 {
                s.answers_meanwhile()?;
            }
        }
        Ok(())
    }),
];

fn hello(role: Role, magic: u32, (version_min, version_max): (u16, u16)) -> FromWorker {
    FromWorker::Hello {
        magic,
        version_min,
        version_max,
        role,
        build: "attack".into(),
    }
}

/// A report as the policy wants it, or with a hole in it.
pub fn ready(refused: bool) -> FromWorker {
    FromWorker::Ready {
        sandbox: SandboxReport {
            seccomp: 2,
            seccomp_filters: 2,
            no_new_privs: true,
            landlock_abi: policy::LANDLOCK_FLOOR,
            uid: nix::unistd::geteuid().as_raw(),
            capabilities: 0,
            probes: vec![Probe {
                name: "read-shadow".into(),
                refused,
                detail: "attack".into(),
            }],
        },
    }
}

/// A message that this role may send once it serves.
fn own_kind(role: Role) -> u16 {
    match role {
        Role::Run => 0x0148,
        Role::AppBridge => 0x0146,
        Role::Metrics => FIGURES,
        Role::Continuation => 0x014e,
        role if role.is_channel() => 0x0145,
        _ => PONG,
    }
}

/// A message that another role may send.
fn foreign_kind(role: Role) -> u16 {
    match role {
        Role::Run | Role::AppBridge => 0x0144,
        _ => 0x0146,
    }
}

/// Something that is open, to be sent along.
pub fn open() -> Result<File> {
    // A run sees it, and the others have their control channel.
    Ok(File::from(
        mono_sys::hostile::with_fd(3, |fd| fd.try_clone_to_owned()).ok_or(nix::Error::EBADF)??,
    ))
}

impl Session {
    fn tell(&self, message: &FromWorker) -> Result<()> {
        self.insist(&packet(message.kind(), 0, 0, &message.encode()?), &[])
    }

    fn say(&self, bytes: &[u8]) -> Result<()> {
        self.insist(bytes, &[])
    }

    fn say_with(&self, bytes: &[u8], descriptors: usize) -> Result<()> {
        let file = open()?;
        self.insist(bytes, &vec![file.as_raw_fd(); descriptors])
    }

    /// A valid message of this kind from the frozen vectors.
    fn seed(&self, kind: u16) -> Result<()> {
        let body = self.seeds.of(kind).map_or(&[][..], |seed| &seed.body);
        self.say(&packet(kind, 1, 0, body))
    }

    fn hello_packet(&self) -> Result<Vec<u8>> {
        self.hello_with(0)
    }

    fn hello_with(&self, descriptors: usize) -> Result<Vec<u8>> {
        let message = hello(self.role, MAGIC, (VERSION_MIN, VERSION_MAX));
        Ok(packet(message.kind(), 0, descriptors, &message.encode()?))
    }
}
