//! The artifact worker: the one owner of reply files.
//!
//! A run hands over a descriptor; what is behind it is verified ([`verify`]), copied and hashed
//! ([`copy`]) into a directory that nobody else can reach ([`shelf`]), counted against the run's
//! twenty parts ([`budget`]) and the durable ceiling ([`quota`]), and read back by those who may
//! ([`reading`]). Spec s0, "Publishing a reply file"; facts 5.1 to 5.3.
#![forbid(unsafe_code)]

pub mod budget;
mod code;
pub mod copy;
pub mod dir;
pub mod index;
mod inventory;
pub mod kept;
pub mod manifest;
pub mod name;
pub mod quota;
pub mod reading;
pub mod serve;
pub mod session;
pub mod shelf;
pub mod skeleton;
pub mod source;
mod sync;
pub mod verify;

pub use code::Code;
pub use shelf::Shelf;
pub use verify::MAX_FILE;
