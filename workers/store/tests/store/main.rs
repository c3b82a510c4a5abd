//! The store as its users see it: a directory, calls, a reopened directory.
#![allow(clippy::unwrap_used)]

mod confined;
mod console;
mod console_sizes;
mod crash;
mod damage;
mod kit;
mod letters;
mod limits;
mod listing;
mod migrations;
mod torn;
mod turns;
