//! The admin socket: `monoctl` asks, the supervisor answers, in JSON so that an operator can
//! read what passes.
//!
//! The socket is `SOCK_SEQPACKET`, mode 0600, its peer credentials are checked, and the packets
//! are framed as everywhere ([`crate::frame`]); only the bodies are JSON.

use crate::body::{BodyError, MAX_INLINE};
use crate::codec::CodecError;
use crate::message::{Edge, Message};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// The edge between `monoctl` and the supervisor.
#[derive(Debug)]
pub struct Admin;

impl Edge for Admin {
    type Request = Ask;
    type Reply = Answer;
    const NAME: &'static str = "monod";
    fn is_final(_: &Answer) -> bool {
        true
    }
}

/// Kind of every request.
pub const ASK: u16 = 0x0801;
/// Kind of every reply.
pub const ANSWER: u16 = 0x0881;

/// JSON in the packet, or in a sealed memfd (the packet's first descriptor) when it is large.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonBody {
    /// The value itself.
    Inline(serde_json::Value),
    /// The memfd's length in bytes.
    Sealed(u64),
}

impl JsonBody {
    /// Packs a value; returns the descriptor that goes first with the packet, if one is needed.
    ///
    /// # Errors
    /// When it can't be serialised or the kernel gives no memfd.
    pub fn pack<T: Serialize>(value: &T) -> Result<(Self, Option<OwnedFd>), BodyError> {
        let bytes = serde_json::to_vec(value)?;
        if bytes.len() <= MAX_INLINE {
            return Ok((Self::Inline(serde_json::from_slice(&bytes)?), None));
        }
        let fd = mono_sys::memfd::sealed_memfd(c"mono-admin", &bytes)?;
        Ok((Self::Sealed(bytes.len() as u64), Some(fd)))
    }

    /// Takes the value out, with the memfd off the front of `fds` when it needs one.
    ///
    /// # Errors
    /// When it is over `max` bytes, not sealed, not there, or other JSON.
    pub fn unpack<T: DeserializeOwned>(
        self,
        fds: &mut VecDeque<OwnedFd>,
        max: usize,
    ) -> Result<T, BodyError> {
        match self {
            Self::Inline(value) => Ok(serde_json::from_value(value)?),
            Self::Sealed(length) => crate::Body::Sealed(length).unpack_json(fds, max),
        }
    }
}

/// What an operator may ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Ask {
    /// The version range spoken; the first request of every connection.
    Hello {
        /// Oldest version spoken.
        version_min: u16,
        /// Newest version spoken.
        version_max: u16,
    },
    /// Health of the daemon and of every worker.
    Status,
    /// Start a run; the answer brings the event channel as its last descriptor.
    Send {
        /// Logical and physical conversation.
        conversation: String,
        /// JSON of a `TurnInput`; its memfd is the first descriptor when it is large.
        input: JsonBody,
    },
    /// End a run.
    CancelRun {
        /// Which.
        run: String,
    },
    /// A page of runs.
    ListRuns {
        /// Only this conversation.
        conversation: Option<String>,
        /// Only this status.
        status: Option<String>,
        /// 1 to 100.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// One run.
    ShowRun {
        /// Which.
        run: String,
    },
    /// A page of artifacts.
    ListArtifacts {
        /// 1 to 100.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// One artifact; the answer brings its bytes as a sealed memfd, the last descriptor.
    GetArtifact {
        /// Opaque id.
        id: String,
    },
    /// Something about apps and MCP servers.
    Inspect {
        /// What.
        what: crate::apps::Inspect,
    },
    /// Where the configuration's values come from.
    Config,
    /// Something of the web console's logins.
    Console {
        /// What.
        order: crate::console::Order,
    },
    /// Later answers for conversations of the terminal.
    Letters {
        /// Only of this conversation.
        conversation: Option<String>,
        /// After this number; 0 for all that are kept.
        after: u64,
        /// 1 to 100.
        limit: u32,
    },
    /// Something of the durable continuations.
    Continuations {
        /// What.
        order: crate::edges::continuation::Order,
    },
    /// Lift the parking of a role's worker.
    Unpark {
        /// Role name.
        role: String,
    },
    /// End the worker of an always-on role and start a fresh one.
    Restart {
        /// Role name.
        role: String,
    },
    /// Let the worker of an always-on role finish what it does, then leave the role parked.
    Drain {
        /// Role name.
        role: String,
    },
    /// The latest log lines of the workers.
    Logs {
        /// Only this role.
        role: Option<String>,
        /// Only this run.
        run: Option<String>,
        /// Only lines after this number; 0 for the newest.
        after: u64,
    },
    /// Read the configuration again and replace the workers that it changes.
    Reload,
    /// Become the program that is on disk now, without losing a run; then replace the workers.
    Upgrade,
    /// Stop the daemon in order.
    Stop,
}

/// What the supervisor answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The result: JSON, in a memfd (the first descriptor) when it is large.
    Ok {
        /// JSON of the request's own result type.
        result: JsonBody,
    },
    /// Not done.
    Error {
        /// A fixed code.
        code: String,
        /// What happened and what to do.
        message: String,
    },
}

macro_rules! json_message {
    ($name:ident, $kind:expr, $max:literal) => {
        impl Message for $name {
            const MAX_DESCRIPTORS: u8 = $max;

            fn kind(&self) -> u16 {
                $kind
            }

            fn encode(&self) -> Result<Vec<u8>, CodecError> {
                serde_json::to_vec(self).map_err(|e| CodecError::Encode(e.to_string()))
            }

            fn decode(body: &[u8]) -> Result<Self, CodecError> {
                serde_json::from_slice(body).map_err(|e| CodecError::Decode(e.to_string()))
            }
        }
    };
}

json_message!(Ask, ASK, 1);
json_message!(Answer, ANSWER, 2);
