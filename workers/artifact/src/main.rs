//! The process around [`mono_artifact`].
#![forbid(unsafe_code)]

use ipc_proto::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker_kit::run(&[Role::Artifact], mono_artifact::serve::work)
}
