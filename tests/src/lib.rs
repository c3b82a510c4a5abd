//! What tests with more than one process share.
#![forbid(unsafe_code)]

mod again;
pub mod attack;
pub mod bench;
pub mod console;
pub mod crash;
pub mod daemon;
pub mod everything;
pub mod fuzz;
pub mod http;
pub mod kills;
pub mod mock_model;
pub mod model;
pub mod node;
pub mod processes;
pub mod program;
pub mod python;
pub mod receiver;
pub mod send;
pub mod stub;
pub mod work;
