//! placeholder
pub mod role;
pub use role::Role;
