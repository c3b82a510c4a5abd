//! `mono-mcp-stub SERVER`: see [`mono_mcp_stub::cli::HELP`].
#![forbid(unsafe_code)]

use mono_mcp_stub::cli::{Command, HELP, parse, places};
use mono_mcp_stub::pump::{Pump, PumpError};
use std::process::ExitCode;

fn main() -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            println!("mono-mcp-stub {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Command::Relay { socket, server }) => {
            let places = places(socket.as_deref(), std::env::var_os("MONO_SOCKET"));
            let ended = Pump::new(places, server).and_then(Pump::run);
            match ended {
                Ok(()) => ExitCode::SUCCESS,
                // The client has gone: nobody is told.
                Err(PumpError::Client(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => {
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("mono-mcp-stub: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(reason) => {
            eprintln!("mono-mcp-stub: {reason}");
            ExitCode::from(2)
        }
    }
}
