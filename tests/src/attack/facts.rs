//! What the hostile program is told: where the things are that it must not reach.

use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The machine in small that is attacked. All paths are the machine's, not the sandbox's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The folder that holds all of it.
    pub root: PathBuf,
    /// A place of the program's own, as it sees it; none for most workers.
    pub own: Option<PathBuf>,
    /// A process outside, of the same user.
    pub victim: i32,
    /// Where that process has a byte that may be written.
    pub victim_address: usize,
    /// Ports of listeners outside, on the loopback addresses of both families.
    pub tcp: [u16; 2],
    /// Ports of receivers outside that answer.
    pub udp: [u16; 2],
    /// A listener outside with a name instead of a path.
    pub abstract_name: String,
    /// What the kernel calls the key file.
    pub handle: Vec<u8>,
    /// Secrets by what they are.
    pub canaries: Canaries,
    /// Where a search for secrets begins.
    pub search_from: PathBuf,
    /// Descriptors that it was handed, by name; filled in by the program itself.
    #[serde(skip)]
    pub handed: Vec<(String, RawFd)>,
}

/// Texts that no other role may find.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Canaries {
    /// In the key file.
    pub key: String,
    /// In the configuration.
    pub configuration: String,
    /// In a conversation.
    pub conversation: String,
    /// In the environment of a process outside.
    pub environment: String,
}

impl Facts {
    /// The model's key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.root.join("keys/model.key")
    }

    /// The configuration.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// A file in another role's state.
    #[must_use]
    pub fn other_state(&self) -> PathBuf {
        self.root.join("state/other/conversation")
    }

    /// A file in the home of the person whose agent this is.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.join("home/.ssh/id")
    }

    /// The admin socket.
    #[must_use]
    pub fn admin_socket(&self) -> PathBuf {
        self.root.join("monod.sock")
    }

    /// The gateway's socket.
    #[must_use]
    pub fn gateway_socket(&self) -> PathBuf {
        self.root.join("gateway.sock")
    }

    /// A folder outside that anybody may write to.
    #[must_use]
    pub fn open(&self) -> PathBuf {
        self.root.join("open")
    }

    /// A file outside that belongs to the same user.
    #[must_use]
    pub fn own_elsewhere(&self) -> PathBuf {
        self.root.join("open/own")
    }

    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where the program may make things, or where anybody may when it has no such place.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        self.own.clone().unwrap_or_else(|| self.open())
    }

    /// The descriptor of this name, or one that is never open.
    #[must_use]
    pub fn handed(&self, name: &str) -> RawFd {
        let found = self.handed.iter().find(|(known, _)| known == name);
        found.map_or(-1, |(_, fd)| *fd)
    }
}

/// What the program is to do; one JSON object on its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// What it is told.
    pub facts: Facts,
    /// The role whose second stage it applies; none outside a sandbox and for programs of others.
    pub confine: Option<ipc_proto::Role>,
    /// Names of the descriptors that come over its control channel.
    pub handed: Vec<String>,
    /// What it tries, in this order.
    pub actions: Vec<String>,
}
