//! What the workers share that serve HTTP: a listener that the supervisor bound, served within
//! bounds on connections and time ([`listener`]), for as long as the supervisor wants ([`service`]),
//! and who may ask there ([`origin`]).
#![forbid(unsafe_code)]

pub mod listener;
pub mod origin;
mod patient;
pub mod service;
