//! The operator's command: asks the supervisor through its admin socket, checks a configuration.
#![forbid(unsafe_code)]

mod apps;
mod artifacts;
mod cli;
mod config;
mod console;
mod continuations;
mod daemon;
mod doctor;
mod error;
mod image;
mod letters;
mod logs;
mod man;
mod profile;
mod reload;
mod runs;
mod screen;
mod send;
mod socket;
mod status;
mod stop;
mod table;
mod terminal;
mod top;
mod upgrade;
mod worker;

use clap::Parser;
use cli::{Cli, Command};
use error::CtlError;
use screen::Screen;
use serde_json::json;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() && wants_json() => return refuse(&e),
        // A wrong command line ends here with status 2, `--help` with 0.
        Err(e) => e.exit(),
    };
    let mut screen = Screen::of_process(cli.json, cli.no_color);
    let result = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(run(cli, &mut screen)),
        Err(e) => Err(CtlError::Output(e)),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(e) => {
            screen.error(&e);
            ExitCode::from(e.status())
        }
    }
}

/// Whether a script asked, also with words that nobody understands.
fn wants_json() -> bool {
    let words = std::env::args_os().skip(1);
    words
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
}

/// What is wrong with a command line, as an object.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    let message = match error.kind() {
        DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand => {
            "a command is missing; --help names them".to_owned()
        }
        _ => {
            let said = error.to_string();
            let first = said.split("\n\n").next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        }
    };
    let error = CtlError::Usage(message);
    Screen::of_process(true, true).error(&error);
    ExitCode::from(error.status())
}

async fn run(cli: Cli, screen: &mut Screen) -> Result<u8, CtlError> {
    let socket = cli.socket.as_deref();
    match cli.command {
        Command::Status => status::run(socket, screen).await,
        Command::Send(send) => send::run(socket, send, screen).await,
        Command::Runs { command } => runs::run(socket, command, screen).await,
        Command::Artifacts { command } => artifacts::run(socket, command, screen).await,
        Command::Apps { command } => apps::run(socket, command, screen).await,
        Command::Mcp { command } => apps::servers(socket, command, screen).await,
        Command::Config { command } => config::run(command, screen),
        Command::Console { command } => console::run(socket, command, screen).await,
        Command::Continuations { command } => continuations::run(socket, command, screen).await,
        Command::Letters(letters) => letters::run(socket, letters, screen).await,
        Command::Worker { command } => worker::run(socket, command, screen).await,
        Command::Logs { role, run, follow } => {
            logs::run(socket, logs::Wanted { role, run }, follow, screen).await
        }
        Command::Reload { exec: false } => reload::run(socket, screen).await,
        Command::Reload { exec: true } => upgrade::run(socket, screen).await,
        Command::Doctor { config, env_file } => {
            doctor::run(socket, config.as_deref(), env_file.as_deref(), screen).await
        }
        Command::Policy { command } => profile::run(socket, command, screen).await,
        Command::Top { once } => top::run(socket, once, screen).await,
        Command::Unpark { role } => worker::run(socket, cli::Worker::Unpark { role }, screen).await,
        Command::Stop => stop::run(socket, screen).await,
        Command::Version => version(screen),
        Command::Man { folder } => man::run(&folder, screen),
        Command::Completions { shell } => {
            let script = cli::completions(shell);
            if screen.is_json() {
                screen.json(&json!({ "shell": shell.to_string(), "script": script }))?;
            } else {
                screen.bytes(script.as_bytes())?;
            }
            Ok(0)
        }
    }
}

fn version(screen: &mut Screen) -> Result<u8, CtlError> {
    let (version, min, max) = (
        env!("CARGO_PKG_VERSION"),
        ipc_proto::VERSION_MIN,
        ipc_proto::VERSION_MAX,
    );
    if screen.is_json() {
        screen.json(&json!({ "version": version, "protocol": { "min": min, "max": max } }))?;
    } else {
        screen.line(&format!("monoctl {version} (protocol {min} to {max})"))?;
    }
    Ok(0)
}
