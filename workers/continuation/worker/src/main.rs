//! The process around [`mono_continuation`].
#![forbid(unsafe_code)]

use ipc_proto::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker_kit::run(&[Role::Continuation], mono_continuation::work::work)
}
