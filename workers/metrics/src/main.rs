#![forbid(unsafe_code)]

use ipc_proto::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker_kit::run(&[Role::Metrics], mono_metrics::serve::run)
}
