//! The process around [`mono_store`].
#![forbid(unsafe_code)]

use ipc_proto::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker_kit::run(&[Role::Store], mono_store::serve::work)
}
