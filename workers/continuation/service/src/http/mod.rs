//! The surface over HTTP.

pub mod body;
pub mod router;
