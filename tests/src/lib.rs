//! What tests with more than one process share.
#![forbid(unsafe_code)]

pub mod daemon;
pub mod mock_model;
pub mod node;
pub mod program;
