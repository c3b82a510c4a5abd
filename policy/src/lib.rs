//! Who may do what: one profile a role as data, and what makes it real.
//!
//! The supervisor makes a profile concrete with [`compile`] and starts the process with [`start`];
//! the launcher applies the [`spec`]; the worker calls [`stage2::apply`] and then [`probe::run`];
//! [`inforce`] tells anyone what the kernel enforces.
#![forbid(unsafe_code)]

mod bundle;
mod compile;
mod context;
pub mod exit;
mod explain;
mod identity;
pub mod inforce;
mod plan;
mod precondition;
pub mod probe;
mod profile;
pub mod request;
pub mod rights;
pub mod seccomp;
pub mod spec;
pub mod stage2;
mod start;
pub mod violation;
mod words;

pub use compile::{CompileError, Launch, compile};
pub use context::{Context, Declared, Inside, RequestFolders, Server};
pub use explain::explain;
pub use identity::{DEFAULT_BASE, Identity, SLOTS};
pub use precondition::{Unmet, unmet};
pub use profile::{
    Access, Grant, LANDLOCK_FLOOR, Limit, Network, ProbeRow, Proc, Profile, ProfileError, Resource,
    Stage, Subject, Variable, Variant,
};
pub use spec::LaunchSpec;
pub use start::{Descriptors, StartError, Starter, start};
