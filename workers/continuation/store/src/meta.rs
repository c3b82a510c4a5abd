//! What is known of a record without reading it: its name, its place in every order and count.

use crate::bytes::{Bytes, put_block};
use continuation_record::{Mode, OriginContextState, Record, State, Time};
use sha2::{Digest as _, Sha256};
use std::cmp::Ordering;
use std::fmt;

/// The first half of a SHA-256: too long to be met twice by chance or by effort.
pub(crate) type Key = [u8; 16];

/// The name of a continuation. A UUID takes no memory of its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Id {
    pub(crate) fn new(text: &str) -> Self {
        let uuid = uuid::Uuid::try_parse(text).map(|uuid| Self::Uuid(uuid.into_bytes()));
        match uuid {
            Ok(uuid) if uuid.with(|again| again == text) => uuid,
            _ => Self::Text(text.into()),
        }
    }

    fn with<T>(&self, use_: impl FnOnce(&str) -> T) -> T {
        match self {
            Self::Uuid(bytes) => use_(
                uuid::Uuid::from_bytes(*bytes)
                    .hyphenated()
                    .encode_lower(&mut uuid::Uuid::encode_buffer()),
            ),
            Self::Text(text) => use_(text),
        }
    }

    /// The name of the record's file.
    pub(crate) fn file(&self) -> String {
        let digest = self.with(|text| Sha256::digest(text.as_bytes()));
        format!("{}.json", hex::encode(digest))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|text| f.write_str(text))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for Id {
    /// The order of the texts.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // Lower-case hex, and the hyphens at the same places.
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            _ => self.with(|a| other.with(|b| a.cmp(b))),
        }
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub(crate) mod flag {
    /// A process works on it.
    pub(crate) const LEASED: u8 = 1;
    /// It was given to a channel that has not answered.
    pub(crate) const SENDING: u8 = 2;
    /// Its turn is not committed.
    pub(crate) const UNCOMMITTED: u8 = 4;
    /// It has a text.
    pub(crate) const TEXT: u8 = 8;
    /// It is delivered, and the history does not have it.
    pub(crate) const DEGRADED: u8 = 16;
    /// Payload and text are dropped.
    pub(crate) const COMPACTED: u8 = 32;
    /// Its text is kept for who asks.
    pub(crate) const CAPTURED: u8 = 64;
}

/// What only a record that is not settled needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Active {
    pub(crate) deadline: Time,
    pub(crate) next: Option<Time>,
    pub(crate) fingerprint: Key,
    pub(crate) origin: Option<Key>,
    pub(crate) context: Option<([u8; 32], u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) id: Id,
    pub(crate) state: State,
    pub(crate) flags: u8,
    pub(crate) created: Time,
    pub(crate) updated: Time,
    pub(crate) claim: Key,
    pub(crate) active: Option<Box<Active>>,
}

/// A digest over parts that can't run into each other.
pub(crate) fn key(label: &str, parts: &[&str]) -> Key {
    let mut hash = Sha256::new();
    for part in std::iter::once(&label).chain(parts) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hash.finalize()[..16]);
    key
}

pub(crate) fn claim_key(server: &str, run: &str, task: &str) -> Key {
    key("claim", &[server, run, task])
}

pub(crate) fn origin_key(run: &str, conversation: &str, boundary: &str) -> Key {
    key("origin", &[run, conversation, boundary])
}

pub(crate) fn fingerprint_key(fingerprint: &str) -> Key {
    key("fingerprint", &[fingerprint])
}

impl Meta {
    /// Of a valid record.
    pub(crate) fn of(record: &Record) -> Self {
        let mut flags = 0;
        let mut set = |flag: u8, on: bool| flags |= if on { flag } else { 0 };
        set(flag::LEASED, record.lease_owner.is_some());
        set(flag::SENDING, record.delivery_started_at.is_some());
        set(
            flag::UNCOMMITTED,
            record.origin_context_state == OriginContextState::Pending,
        );
        set(flag::TEXT, record.synthesized_text.is_some());
        set(
            flag::DEGRADED,
            record
                .receipt
                .as_ref()
                .is_some_and(|receipt| receipt.history_recorded == Some(false)),
        );
        set(flag::COMPACTED, record.compacted_at.is_some());
        set(
            flag::CAPTURED,
            record.mode == Mode::Capture
                && record.state == State::Delivered
                && record.synthesized_text.is_some(),
        );
        let active = (!record.state.is_settled()).then(|| {
            let origin = record.history_boundary.as_ref().map(|boundary| {
                origin_key(
                    &record.origin_run_id,
                    &record.origin_conversation_id,
                    boundary,
                )
            });
            let context = record.origin_context_ref.as_ref().and_then(|reference| {
                let digest: [u8; 32] = hex::decode(&reference.digest).ok()?.try_into().ok()?;
                Some((digest, u32::try_from(reference.bytes).ok()?))
            });
            Box::new(Active {
                deadline: record.deadline,
                next: record.next_attempt_at,
                fingerprint: fingerprint_key(&record.claim_fingerprint),
                origin,
                context,
            })
        });
        Self {
            id: Id::new(&record.continuation_id),
            state: record.state,
            flags,
            created: record.created_at,
            updated: record.updated_at,
            claim: claim_key(&record.server_name, &record.origin_run_id, &record.task_key),
            active,
        }
    }

    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let state = State::ALL.iter().position(|state| *state == self.state);
        out.push(u8::try_from(state.unwrap_or(0)).unwrap_or(0));
        out.push(self.flags);
        out.extend(self.created.ms().to_le_bytes());
        out.extend(self.updated.ms().to_le_bytes());
        out.extend(self.claim);
        self.id.with(|text| put_block(out, text.as_bytes()));
        let Some(active) = &self.active else {
            return;
        };
        out.extend(active.deadline.ms().to_le_bytes());
        out.extend(active.next.map_or(-1, Time::ms).to_le_bytes());
        out.extend(active.fingerprint);
        out.push(u8::from(active.origin.is_some()));
        out.extend(active.origin.iter().flatten());
        out.push(u8::from(active.context.is_some()));
        if let Some((digest, bytes)) = &active.context {
            out.extend(digest);
            out.extend(bytes.to_le_bytes());
        }
    }

    pub(crate) fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        let time = |ms: i64| {
            let time = Time::from_ms(ms);
            (time.ms() == ms).then_some(time)
        };
        let state = *State::ALL.get(usize::from(bytes.u8()?))?;
        let flags = bytes.u8()?;
        let created = time(bytes.i64()?)?;
        let updated = time(bytes.i64()?)?;
        let claim = bytes.array()?;
        let id = Id::new(std::str::from_utf8(bytes.block()?).ok()?);
        let active = if state.is_settled() {
            None
        } else {
            let deadline = time(bytes.i64()?)?;
            let next = match bytes.i64()? {
                -1 => None,
                ms => Some(time(ms)?),
            };
            let fingerprint = bytes.array()?;
            let origin = match bytes.u8()? {
                0 => None,
                1 => Some(bytes.array()?),
                _ => return None,
            };
            let context = match bytes.u8()? {
                0 => None,
                1 => Some((bytes.array()?, bytes.u32()?)),
                _ => return None,
            };
            Some(Box::new(Active {
                deadline,
                next,
                fingerprint,
                origin,
                context,
            }))
        };
        Some(Self {
            id,
            state,
            flags,
            created,
            updated,
            claim,
            active,
        })
    }
}
