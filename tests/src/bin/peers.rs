//! `peers`: installs what tests need of npm and PyPI, so that no test's time is spent on it. Each test
//! installs what it finds missing, too.
#![forbid(unsafe_code)]

use mono_tests::{node, python};
use std::path::{Path, PathBuf};

fn main() {
    let installed: [PathBuf; 4] = [
        Path::to_owned(node::node_modules()),
        node::app_servers(),
        node::codex(),
        python::schemathesis(),
    ];
    for place in installed {
        println!("{}", place.display());
    }
}
