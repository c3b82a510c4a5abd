//! Hostile packets: valid ones from the frozen vectors, broken in the ways that break parsers.

use crate::fuzz::random::Random;
use ipc_proto::admin::{ANSWER, ASK};
use ipc_proto::frame::{Header, MAX_PACKET};
use ipc_proto::table::{CANCEL, CREDIT, FAULT};

const FROZEN: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../ipc-proto/golden/v1.txt"
));

/// Admin bodies are JSON and have no frozen bytes.
const ADMIN: &[(u16, &str)] = &[
    (ASK, r#"{"op":"hello","version_min":1,"version_max":1}"#),
    (ASK, r#"{"op":"status"}"#),
    (
        ASK,
        r#"{"op":"send","conversation":"terminal:me","input":{"inline":{"text":"hi"}}}"#,
    ),
    (
        ASK,
        r#"{"op":"list-runs","conversation":null,"status":"failed","limit":20,"cursor":null}"#,
    ),
    (ASK, r#"{"op":"unpark","role":"egress"}"#),
    (
        ANSWER,
        r#"{"answer":"ok","result":{"inline":[1,2.5,null]}}"#,
    ),
    (ANSWER, r#"{"answer":"ok","result":{"sealed":70000}}"#),
    (ANSWER, r#"{"answer":"error","code":"busy","message":"m"}"#),
];

/// Numbers where lengths, counts and discriminants go wrong.
const NUMBERS: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0xffff,
    MAX_PACKET as u64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX / 2,
    u64::MAX - 7,
    u64::MAX,
];

/// A valid body and its kind.
#[derive(Debug, Clone)]
pub struct Seed {
    /// Kind.
    pub kind: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// The valid bodies that hostile ones are made from.
#[derive(Debug)]
pub struct Seeds(Vec<Seed>);

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

impl Seeds {
    /// The frozen vectors, the admin bodies and the generic kinds.
    ///
    /// # Panics
    /// When the vectors' file is not what it says it is.
    #[must_use]
    pub fn load() -> Self {
        let mut seeds: Vec<Seed> = FROZEN
            .lines()
            .map(|line| {
                let mut words = line.split(' ');
                let kind = words.next().and_then(|w| u16::from_str_radix(w, 16).ok());
                match (kind, words.next(), words.next().and_then(unhex)) {
                    (Some(kind), Some(_name), Some(body)) => Seed { kind, body },
                    _ => panic!("not a golden vector: {line}"),
                }
            })
            .collect();
        seeds.extend(ADMIN.iter().map(|(kind, body)| Seed {
            kind: *kind,
            body: body.as_bytes().to_vec(),
        }));
        let generic = [
            (CANCEL, vec![]),
            (CREDIT, 1u32.to_le_bytes().to_vec()),
            (
                FAULT,
                [&1u64.to_le_bytes()[..], b"c", &1u64.to_le_bytes(), b"m"].concat(),
            ),
        ];
        seeds.extend(generic.into_iter().map(|(kind, body)| Seed { kind, body }));
        Self(seeds)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Seed] {
        &self.0
    }

    /// The first valid body of this kind.
    #[must_use]
    pub fn of(&self, kind: u16) -> Option<&Seed> {
        self.0.iter().find(|seed| seed.kind == kind)
    }

    fn pick(&self, random: &mut Random, kinds: &[u16]) -> &Seed {
        // One in eight is out of place; a generic kind belongs to every direction.
        let wanted = match random.below(8) {
            0 => None,
            1 => Some(*random.pick(&[CANCEL, CREDIT, FAULT])),
            _ => Some(*random.pick(kinds)),
        };
        // Several seeds may have the kind: start anywhere.
        let start = random.below(self.0.len());
        let around = self.0[start..].iter().chain(&self.0[..start]);
        match wanted {
            Some(kind) => around.into_iter().find(|seed| seed.kind == kind),
            None => None,
        }
        .unwrap_or(&self.0[start])
    }

    /// Writes one packet for a direction that knows `kinds`, as if `descriptors` came with it.
    pub fn write(&self, random: &mut Random, kinds: &[u16], descriptors: usize, out: &mut Vec<u8>) {
        out.clear();
        if random.one_in(32) {
            let most = if random.one_in(64) {
                MAX_PACKET + 2
            } else {
                256
            };
            out.resize(random.below(most), 0);
            random.fill(out);
            return;
        }
        let seed = self.pick(random, kinds);
        let mut header = Header {
            version: ipc_proto::VERSION_MAX,
            kind: seed.kind,
            id: 1 + random.below(8) as u64,
            deadline_ms: 0,
            descriptors: u8::try_from(descriptors).unwrap_or(u8::MAX),
        };
        match random.below(64) {
            0 => header.version = random.next() as u16,
            1 => header.kind = random.next() as u16,
            2 => header.kind = self.0[random.below(self.0.len())].kind,
            3 => header.id = *random.pick(NUMBERS),
            4 => header.deadline_ms = random.next() as u32,
            5 => header.descriptors = random.next() as u8,
            _ => {}
        }
        out.extend(header.encode());
        let head = out.len();
        out.extend(&seed.body);
        for _ in 0..random.below(4) {
            self.damage(random, head, out);
        }
        // The reserved bytes, and the header's own length.
        if random.one_in(64) {
            let at = random.below(head);
            out[at] = random.next() as u8;
        } else if random.one_in(64) {
            out.truncate(random.below(head));
        }
    }

    /// One change of the body, which begins at `head`.
    fn damage(&self, random: &mut Random, head: usize, out: &mut Vec<u8>) {
        let length = out.len() - head;
        let at = head + random.below(length);
        match random.below(10) {
            0 if length > 0 => out[at] ^= 1 << random.below(8),
            1 if length > 0 => out[at] = random.next() as u8,
            // A length prefix, a count, a number.
            2 | 3 => overwrite(out, at, &random.pick(NUMBERS).to_le_bytes()),
            // A discriminant.
            4 => overwrite(out, at, &(random.below(24) as u32).to_le_bytes()),
            5 => out.truncate(at),
            6 => {
                let more = random.below(32);
                out.extend((0..more).map(|n| n as u8));
            }
            7 => {
                let other = &self.0[random.below(self.0.len())].body;
                let from = random.below(other.len());
                out.splice(at..at, other[from..].iter().copied());
            }
            // No UTF-8.
            8 => overwrite(out, at, &[0xff, 0xc0, 0xed, 0xa0, 0x80]),
            // A length that is honest and large.
            _ if random.one_in(64) => {
                let size = random.below(MAX_PACKET - head);
                out.truncate(at);
                out.extend((size as u64).to_le_bytes());
                out.resize(out.len() + size, b'a');
            }
            _ => {}
        }
        out.truncate(MAX_PACKET + 1);
    }
}

/// Writes over what is there, as far as it goes.
fn overwrite(out: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in out[at..].iter_mut().zip(bytes) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::fuzz::direction;
    use ipc_proto::table::find;
    use std::collections::VecDeque;
    use std::os::fd::OwnedFd;

    #[test]
    fn every_seed_is_valid_where_it_belongs() {
        let seeds = Seeds::load();
        for direction in direction::all() {
            for kind in &direction.kinds {
                let row = find(*kind).unwrap();
                let seed = seeds.of(*kind).unwrap_or_else(|| panic!("{}", row.name));
                let header = Header {
                    version: 1,
                    kind: *kind,
                    id: 1,
                    deadline_ms: 0,
                    descriptors: row.descriptors.0,
                };
                let packet = [&header.encode()[..], &seed.body].concat();
                let fds: VecDeque<OwnedFd> = (0..row.descriptors.0)
                    .map(|_| std::fs::File::open("/dev/null").unwrap().into())
                    .collect();
                let taken = direction.senders.iter().any(|role| {
                    let fds = fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
                    let mut guard = direction::guard(*role, row.phase);
                    (direction.decode)(&mut guard, &packet, fds).is_ok()
                });
                assert!(taken, "{}", row.name);
            }
        }
    }

    #[test]
    fn packets_are_of_every_size_and_repeat_with_the_seed() {
        let seeds = Seeds::load();
        let sizes = |seed| {
            let mut random = Random::new(seed);
            let mut out = Vec::new();
            (0..20_000)
                .map(|_| {
                    seeds.write(&mut random, &[0x0101, 0x0601], 0, &mut out);
                    out.len()
                })
                .collect::<Vec<_>>()
        };
        let first = sizes(7);
        assert_eq!(first, sizes(7));
        assert!(first.contains(&0));
        assert!(first.iter().any(|n| *n > MAX_PACKET / 2));
        assert!(first.iter().all(|n| *n <= MAX_PACKET + 1));
    }
}
