//! What a profile is made concrete with: the paths, the user and the means of this machine.

use crate::identity::Identity;
use crate::profile::Access;
use std::path::PathBuf;

/// The facts about one process that is to be started. A path that is `None` is not granted, also
/// where the profile would.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The workspace.
    pub workspace: Option<PathBuf>,
    /// The run's or server's scratch directory; it must exist and belong to its user.
    pub scratch: Option<PathBuf>,
    /// The role's own state directory; it must exist and belong to its user.
    pub state: Option<PathBuf>,
    /// The folders of a run that a server of it has too. They lie in what is the run's own, so what is
    /// shown is whatever they are when the launcher looks; it follows no link there.
    pub request: Option<RequestFolders>,
    /// What the configuration declares beside these.
    pub declared: Vec<Declared>,
    /// What must not be seen although it lies in a granted path: the state directory, the
    /// configuration and key files inside a workspace.
    pub hidden: Vec<PathBuf>,
    /// The role uses the machine's network; only for profiles that leave it to the configuration.
    pub network: bool,
    /// Who the process becomes, when the supervisor is root. Otherwise it stays the same user,
    /// in a user namespace of its own.
    pub identity: Option<Identity>,
    /// No namespaces: only Landlock, the filters and no_new_privs. Only by the operator's word.
    pub degraded: bool,
    /// Variables beside the profile's. Workers of ours take only `MONO_…`; an MCP server takes what
    /// its declaration says.
    pub environment: Vec<(String, String)>,
    /// The program of an MCP server; workers of ours are executed by descriptor.
    pub server: Option<Server>,
    /// Bytes of private, writable memory that each process of it may ask for, where nothing else in
    /// the kernel bounds the memory of a run or a server.
    pub data_max: Option<u64>,
}

/// Folders of the run that a server works for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFolders {
    /// For what it makes.
    pub outbound: PathBuf,
    /// With the files that came with the request.
    pub attachments: PathBuf,
}

/// A path that the configuration declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Where it is, inside as outside.
    pub path: PathBuf,
    /// What may be done there.
    pub access: Access,
}

/// What an MCP server is executed as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// A path, or a plain name that is looked up in its `PATH`.
    pub command: PathBuf,
    /// Its arguments, without its own name.
    pub arguments: Vec<String>,
    /// Where it starts; the workspace or the scratch directory when `None`.
    pub directory: Option<PathBuf>,
}

/// Where a process finds things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inside {
    /// The workspace.
    pub workspace: Option<PathBuf>,
    /// The scratch directory.
    pub scratch: Option<PathBuf>,
    /// The state directory.
    pub state: Option<PathBuf>,
}
