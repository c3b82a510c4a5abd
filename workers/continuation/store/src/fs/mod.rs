//! The few calls to the file system that the store makes. On a real disk they are system calls
//! relative to folders that are held open ([`RealFs`]); a test puts others in their place, which
//! stop after so many calls ([`Counting`]) or lose what was not synced ([`SimFs`]).

mod counting;
mod real;
mod sim;

pub use counting::{Counting, CountingFile};
pub use real::RealFs;
pub use sim::{Call, Chance, SimFile, SimFs, World};

use std::any::Any;
use std::io;

/// A folder of the state folder. Each is mode 0700.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Folder {
    /// The state folder itself.
    Root,
    /// One file for each record that is not settled.
    Records,
    /// What older versions wrote, and the guard against them.
    Legacy,
    /// Snapshots of conversations, named by their digest.
    Contexts,
    /// Markers of groups that are being activated.
    Groups,
    /// Packed settled records, and an index of the others.
    Packs,
}

impl Folder {
    /// Every folder below the state folder.
    pub const ALL: [Self; 5] = [
        Self::Records,
        Self::Legacy,
        Self::Contexts,
        Self::Groups,
        Self::Packs,
    ];

    /// Its name in the state folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => ".",
            Self::Records => "records-v3",
            Self::Legacy => "records-v2",
            Self::Contexts => "origin-context-v1",
            Self::Groups => "origin-context-groups-v1",
            Self::Packs => "packs-v1",
        }
    }
}

/// Calls on names. Every file is regular, mode 0600, ours, and has one link; whatever is not so is
/// an error and never followed. After an error of a write or a sync nothing is tried again.
pub trait Fs: Send + Sync + 'static {
    /// An open file.
    type File: FsFile;

    /// Takes the state folder for this process, until what is returned is dropped.
    ///
    /// # Errors
    /// When another process has it.
    fn own(&self) -> io::Result<Box<dyn Any + Send + Sync>>;

    /// Whether the folder is there.
    ///
    /// # Errors
    /// When something else has its name, or others may write in it.
    fn has(&self, folder: Folder) -> io::Result<bool>;

    /// Makes a folder. It is durable once the state folder is synced.
    ///
    /// # Errors
    /// When it is there already, or as the system says.
    fn make(&self, folder: Folder) -> io::Result<()>;

    /// The names of all that is in a folder, folders excepted; an absent folder is empty.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self, folder: Folder) -> io::Result<Vec<String>>;

    /// A file's length, if it is there.
    ///
    /// # Errors
    /// When it is not a file of ours.
    fn len(&self, folder: Folder, name: &str) -> io::Result<Option<u64>>;

    /// A whole file of at most `max` bytes, if it is there.
    ///
    /// # Errors
    /// When it is longer, not a file of ours, or changes while it is read.
    fn read(&self, folder: Folder, name: &str, max: u64) -> io::Result<Option<Vec<u8>>>;

    /// A new, empty file.
    ///
    /// # Errors
    /// When the name is taken, or as the system says.
    fn create(&self, folder: Folder, name: &str) -> io::Result<Self::File>;

    /// An existing file, for reading and writing.
    ///
    /// # Errors
    /// When it is not a file of ours.
    fn open(&self, folder: Folder, name: &str) -> io::Result<Option<Self::File>>;

    /// Gives a file another name and replaces what has it. Durable once the folder is synced.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, folder: Folder, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Durable once the folder is synced.
    ///
    /// # Errors
    /// As the system says; an absent file is an error.
    fn remove(&self, folder: Folder, name: &str) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As the disk says.
    fn sync_folder(&self, folder: Folder) -> io::Result<()>;

    /// Makes all files and names durable.
    ///
    /// # Errors
    /// As the disk says.
    fn sync_all(&self) -> io::Result<()>;
}

/// Calls on an open file.
pub trait FsFile: Send + Sync + 'static {
    /// Writes all of it there.
    ///
    /// # Errors
    /// As the disk says; part of it may then be written.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads exactly so much from there.
    ///
    /// # Errors
    /// When the file ends before.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Makes what was written durable, and the length; the name is the folder's.
    ///
    /// # Errors
    /// As the disk says; what was written may then be lost, whatever a later call says.
    fn sync(&self) -> io::Result<()>;
}
