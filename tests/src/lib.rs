//! What tests with more than one process share.
#![forbid(unsafe_code)]

pub mod bench;
pub mod daemon;
pub mod fuzz;
pub mod mock_model;
pub mod node;
pub mod program;
