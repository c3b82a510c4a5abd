//! What proves that durable continuations are durable: power cuts at every call to the disk, a
//! simulation of everything that can happen, and measurements. All but the last are in one process,
//! on a simulated disk and with simulated clocks, and a seed repeats them.
#![forbid(unsafe_code)]

pub mod bench;
pub mod crash;
pub mod simulation;
pub mod trial;
