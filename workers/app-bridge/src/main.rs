//! The app-bridge worker; started by the supervisor.
#![forbid(unsafe_code)]

use ipc_proto::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker_kit::run(&[Role::AppBridge], mono_app_bridge::worker::work)
}
