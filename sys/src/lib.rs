//! System calls that no safe library offers, behind small safe functions. This is the only crate
//! of the workspace that may say `unsafe`; what `nix` offers safely is called through `nix` and
//! not repeated here.

pub mod attempt;
pub mod capability;
pub mod fd;
pub mod hostile;
pub mod landlock;
pub mod mapped;
pub mod memfd;
pub mod mount;
pub mod network;
pub mod process;
pub mod seccomp_notify;
pub mod writeback;
