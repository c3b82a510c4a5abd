//! One module per edge: what may be said on it. Kinds are `0xEEVV`: edge, then variant; requests
//! have variants below 0x80, replies from 0x80 on.

pub mod app_bridge;
pub mod artifact;
pub mod bench;
pub mod continuation;
pub mod control;
pub mod delivery;
pub mod egress;
pub mod events;
pub mod store;
