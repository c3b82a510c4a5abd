//! What a hostile run says on its channels.

use crate::attack::live::edges::{
    Attack, Edge, Expect, FLOODING, HELD, IN_FLIGHT, INSIDE, WITHIN, fresh, opened, sealed,
};
use crate::attack::live::wire::{MOST_DESCRIPTORS, Said, Wire, packet};
use crate::attack::live::worker::report;
use anyhow::Result;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::store;
use ipc_proto::frame::{HEADER, MAX_PACKET};
use ipc_proto::message::Message;
use ipc_proto::table::{CANCEL, CREDIT};
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::os::fd::AsRawFd;

/// Packets of a flood: many times what the socket's buffers hold.
const FLOOD: u64 = 20_000;

const fn attack(name: &'static str, act: fn(&Edge<'_>) -> Result<Expect>) -> Attack {
    Attack { name, act }
}

/// All but the sweep over every kind.
pub(super) const ATTACKS: &[Attack] = &[
    // The control: what a run may say is answered.
    attack("behave", |e| match e.name {
        EdgeName::Artifact => e.publish(INSIDE, e.inside()?),
        _ => {
            e.say(&e.valid()?)?;
            Ok(Expect::Answer)
        }
    }),
    attack("packet-of-another-version", |e| {
        e.changed(|bytes| bytes[0] = 9)
    }),
    attack("packet-of-a-few-bytes", |e| {
        e.changed(|bytes| bytes.truncate(HEADER - 1))
    }),
    attack("packet-cut-off", |e| {
        e.changed(|bytes| bytes.truncate(bytes.len() - 1))
    }),
    attack("packet-with-more", |e| e.changed(|bytes| bytes.push(0))),
    attack("packet-too-large", |e| {
        e.changed(|bytes| bytes.resize(MAX_PACKET + 1, 0))
    }),
    attack("packet-with-reserved-bytes", |e| {
        e.changed(|bytes| bytes[HEADER - 1] = 1)
    }),
    attack("packet-of-nothing", |e| e.changed(Vec::clear)),
    attack("kind-that-nobody-knows", |e| {
        e.say(&packet(0xfffe, 1, 0, &[]))?;
        Ok(Expect::End)
    }),
    attack("body-of-another-kind", |e| {
        let (kind, other) = match e.name {
            EdgeName::Store => (0x0202, 0x0203),
            EdgeName::Artifact => (0x0302, 0x0303),
            EdgeName::Egress => (0x0401, 0x0402),
            EdgeName::AppBridge => (0x0501, 0x0502),
            EdgeName::Continuation => (0x0902, 0x0903),
            _ => (0x0602, 0x0603),
        };
        e.say(&packet(kind, 1, 0, e.body(other)))?;
        Ok(Expect::End)
    }),
    attack("descriptor-where-none-belongs", |e| e.with_descriptors(1)),
    attack("descriptors-253", |e| e.with_descriptors(MOST_DESCRIPTORS)),
    attack("descriptor-unannounced", |e| {
        let file = File::open("/dev/null")?;
        let kind = e.plain_kind();
        let bytes = packet(kind, 1, 0, e.body(kind));
        e.say_with(&bytes, &[file.as_raw_fd()])?;
        Ok(Expect::End)
    }),
    attack("descriptor-only-announced", |e| {
        let kind = e.body_kind();
        e.say(&packet(kind, 1, 1, e.body(kind)))?;
        Ok(Expect::End)
    }),
    attack("body-without-its-descriptor", |e| e.with_body(40_000, None)),
    attack("body-is-a-fifo", |e| {
        let path = e.workspace.join(fresh("fifo"));
        nix::unistd::mkfifo(&path, Mode::S_IRWXU)?;
        e.with_body(
            40_000,
            Some(opened(&path, OFlag::O_RDWR | OFlag::O_NONBLOCK)?),
        )
    }),
    attack("body-is-a-socket", |e| {
        let (one, _other) = ipc_proto::link::pair()?;
        e.with_body(40_000, Some(one))
    }),
    attack("body-is-a-device", |e| {
        e.with_body(40_000, Some(File::open("/dev/zero")?.into()))
    }),
    attack("body-can-still-change", |e| {
        let file = memfd_create(c"attack", MFdFlags::MFD_ALLOW_SEALING)?;
        nix::unistd::ftruncate(&file, 40_000)?;
        e.with_body(40_000, Some(file))
    }),
    attack("body-of-another-length", |e| {
        e.with_body(50_000, Some(sealed(40_000)?))
    }),
    attack("body-of-a-gigabyte", |e| {
        e.with_body(1 << 30, Some(sealed(1 << 30)?))
    }),
    attack("body-of-more-than-there-is", |e| {
        e.with_body(u64::MAX, Some(sealed(40_000)?))
    }),
    attack("body-of-no-meaning", |e| {
        e.with_body(40_000, Some(sealed(40_000)?))
    }),
    attack("file-is-a-fifo", |e| {
        let name = fresh("fifo");
        let path = e.workspace.join(&name);
        nix::unistd::mkfifo(&path, Mode::S_IRWXU)?;
        e.publish(&name, opened(&path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?)
    }),
    attack("file-is-a-socket", |e| {
        let (one, _other) = ipc_proto::link::pair()?;
        e.publish(INSIDE, one)
    }),
    attack("file-is-a-device", |e| {
        e.publish(INSIDE, File::open("/dev/zero")?.into())
    }),
    attack("file-is-a-folder", |e| {
        e.publish("folder", opened(&e.workspace, OFlag::O_DIRECTORY)?)
    }),
    attack("file-is-memory", |e| e.publish(INSIDE, sealed(100)?)),
    attack("file-is-the-system's", |e| {
        e.publish(INSIDE, File::open("/etc/passwd")?.into())
    }),
    attack("file-of-another-path", |e| {
        let other = e.workspace.join(fresh("other.txt"));
        fs::write(&other, "other")?;
        let other = File::open(other)?;
        e.publish(INSIDE, other.into())
    }),
    attack("file-by-a-link", |e| {
        let name = fresh("link.txt");
        std::os::unix::fs::symlink("/etc/passwd", e.workspace.join(&name))?;
        e.publish(&name, File::open("/etc/passwd")?.into())
    }),
    attack("file-out-of-the-workspace", |e| {
        e.publish("../../../etc/passwd", File::open("/etc/passwd")?.into())
    }),
    attack("once-only-twice", |e| {
        let kind = match e.name {
            EdgeName::Store => 0x0201,
            EdgeName::Artifact => 0x0302,
            EdgeName::Continuation => 0x0903,
            EdgeName::Events => 0x0601,
            _ => return Ok(Expect::Untried),
        };
        e.say(&packet(kind, 1, 0, e.body(kind)))?;
        e.say(&packet(kind, 2, 0, e.body(kind)))?;
        Ok(Expect::End)
    }),
    attack("end-twice", |e| {
        let kind = match e.name {
            EdgeName::Artifact => 0x0303,
            EdgeName::Continuation => 0x0905,
            EdgeName::Events => 0x060d,
            _ => return Ok(Expect::Untried),
        };
        e.say(&packet(kind, 1, 0, e.body(kind)))?;
        e.say(&packet(kind, 2, 0, e.body(kind)))?;
        Ok(Expect::End)
    }),
    attack("out-of-turn", |e| {
        // Before its beginning, or after its end.
        let kinds: &[u16] = match e.name {
            EdgeName::Store => &[0x0202],
            EdgeName::Artifact => &[0x0302, 0x0301],
            // Settled before it is pinned.
            EdgeName::Continuation => &[0x0904],
            EdgeName::Events => &[0x0602],
            _ => return Ok(Expect::Untried),
        };
        for (kind, id) in kinds.iter().zip(1..) {
            if id > 1 {
                e.wire.hear(WITHIN)?;
            }
            e.say(&packet(*kind, id, 0, e.body(*kind)))?;
        }
        Ok(Expect::Answer)
    }),
    attack("one-number-for-two-requests", |e| {
        let bytes = e.valid_many()?;
        e.say(&bytes)?;
        e.say(&bytes)?;
        Ok(Expect::Answer)
    }),
    attack("cancel-of-nothing", |e| {
        e.say(&packet(CANCEL, 77, 0, &[]))?;
        Ok(e.about_nothing())
    }),
    attack("cancel-with-a-body", |e| {
        e.say(&packet(CANCEL, 77, 0, &[0]))?;
        Ok(Expect::End)
    }),
    attack("credit-of-nothing", |e| {
        e.say(&packet(CREDIT, 77, 0, &u32::MAX.to_le_bytes()))?;
        Ok(e.about_nothing())
    }),
    attack(FLOODING, |e| {
        let many = e.valid_many()?;
        for id in 1..=FLOOD {
            let mut bytes = many.clone();
            bytes[4..12].copy_from_slice(&id.to_le_bytes());
            if e.wire.say(&bytes, &[])? != Said::Taken {
                break;
            }
        }
        Ok(Expect::Answer)
    }),
    attack("tools-by-the-hundred", |e| {
        if e.name != EdgeName::Store {
            return Ok(Expect::Untried);
        }
        e.say(&packet(0x0201, 1, 0, e.body(0x0201)))?;
        for id in 2..300 {
            e.wire.hear(WITHIN)?;
            let request = store::Request::ToolStarted {
                id: format!("{id:0200}"),
                name: "attack".into(),
                arguments: "{}".into(),
            };
            e.say(&packet(request.kind(), id, 0, &request.encode()?))?;
        }
        Ok(Expect::Answer)
    }),
    attack(IN_FLIGHT, |e| {
        if e.name != EdgeName::Store {
            return Ok(Expect::Untried);
        }
        // Sent to itself and not received: the kernel counts them against its user.
        let (one, _other) = ipc_proto::link::pair()?;
        let own = Wire::new(one);
        let file = File::open("/dev/null")?;
        let many = vec![file.as_raw_fd(); MOST_DESCRIPTORS];
        let mut on_their_way = 0;
        while own.say(b"!", &many)? == Said::Taken {
            on_their_way += MOST_DESCRIPTORS;
        }
        report(&format!("holds {on_their_way}"));
        std::thread::sleep(HELD);
        Ok(Expect::Silence)
    }),
];
