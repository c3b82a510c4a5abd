//! The way out: model providers, fetches on behalf of tools, and deliveries of a channel.
//!
//! The only process that holds model keys and reaches the network for a run. What it is asked comes
//! from run workers, what it reads comes from the internet; both are bounded and neither is trusted.
#![forbid(unsafe_code)]

pub mod address;
pub mod attempt;
pub mod complete;
pub mod deliver;
pub mod demo;
pub mod event;
pub mod failover;
pub mod failure;
pub mod fetch;
pub mod http_client;
pub mod key;
pub mod provider;
pub mod resolver;
pub mod serve;
pub mod sse;
mod system_roots;
pub mod wire;
