//! The hostile program of `cargo xtask attack`; stands in for any worker, for an MCP server, and
//! for a process outside that is attacked. See `mono_tests::attack::hostile`.
#![forbid(unsafe_code)]

use mono_tests::attack::hostile;

fn main() {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("ran") => Ok(hostile::ran()),
        Some("victim") => hostile::be_victim(),
        _ => hostile::obey(),
    };
    let status = outcome.unwrap_or_else(|e| {
        eprintln!("attack-worker: {e:#}");
        2
    });
    std::process::exit(status);
}
