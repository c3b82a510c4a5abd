//! Whole daemons with real confined workers, a real MCP server and a model service that misbehaves.
//!
//! They run as root and as an ordinary user. Each starts its own daemon on free ports, in a folder
//! of its own.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod admin;
mod admission;
mod app_endpoint;
mod app_files;
mod app_keeping;
mod app_operators;
mod app_servers;
mod apps;
mod browser;
mod cancelling;
mod confinement;
mod console;
mod console_continuations;
mod console_restarts;
mod continuation_kills;
mod continuation_neighbours;
mod continuations;
mod crashes;
mod demo;
mod early_apps;
mod exposition;
mod gateway;
mod gateway_apps;
mod input;
mod measured;
mod memory;
mod metrics;
mod openai;
mod providers;
mod publishing;
mod refusals;
mod request_context;
mod secrets;
mod stopping;
mod turns;
mod violations;
mod webhook;
