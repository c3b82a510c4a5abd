//! The hostile program of `cargo xtask attack`; stands in for any worker, for an MCP server, and
//! for a process outside that is attacked. See `mono_tests::attack::hostile`.
#![forbid(unsafe_code)]

use mono_tests::attack::hostile;
use mono_tests::attack::live::{secrets, worker};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let outcome = match arguments.get(1).map(String::as_str) {
        _ if worker::is_started_by_daemon() => worker::serve(),
        Some("search") => secrets::serve_as_server(arguments[2].as_ref()),
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
