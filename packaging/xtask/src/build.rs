//! Where the workspace is, and building its programs.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap_or_else(|_| ".".into())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The folder with built programs.
pub(crate) fn folder(release: bool) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(if release { "release" } else { "debug" })
}

/// Which programs to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs<'a> {
    /// What is installed, and the MCP server of the demo.
    Product,
    /// Also what the tests start.
    WithTests,
    /// These, and the launcher.
    Named(&'a [&'a str]),
}

/// The program that is linked statically when it is optimised: the launcher runs before every
/// process, and the dynamic linker would be a seventh of its time. It looks up no names of hosts or users,
/// for which a static C library would load parts of another. It stays position-independent.
const STATIC: &str = "mono-launch";

/// Relocations in their packed form: a position-independent program carries one for each pointer in
/// its tables, and packed they take a hundredth of the room, in the file and at each start. Every
/// C library since 2022 reads it.
const PACKED: &str = "-C link-arg=-Wl,-z,pack-relative-relocs";

/// Builds programs of the workspace; progress goes to standard error.
pub(crate) fn build(programs: Programs<'_>, release: bool) -> Result<PathBuf> {
    let carries_the_page = match programs {
        Programs::Named(names) => names.contains(&"mono-channel"),
        Programs::Product | Programs::WithTests => true,
    };
    if carries_the_page && let Err(e) = crate::console::build() {
        // All but the page works without Node.js, and the worker says that it has none.
        if programs == Programs::WithTests {
            return Err(e);
        }
        eprintln!("the console is built without its page: {e:#}");
    }
    let mut command = cargo();
    command.args(["build", "--workspace", "--locked"]);
    match programs {
        Programs::Named(names) => {
            let launcher = (!release).then_some(&STATIC);
            let names = names.iter().chain(launcher);
            command.args(names.flat_map(|name| ["--bin", name]));
        }
        Programs::Product => {
            command.arg("--bins");
            for none_of_it in ["xtask", "mono-tests", "continuation-proof"] {
                command.args(["--exclude", none_of_it]);
            }
        }
        // The same packages as the tests that come after it: with others, cargo would choose other
        // features for what they share, and build it twice.
        Programs::WithTests => {
            command.arg("--bins");
        }
    }
    if release {
        command.args(["--release", "--exclude", STATIC]);
        command.env("RUSTFLAGS", PACKED);
    }
    run(command)?;
    if release {
        let mut command = cargo();
        command.env("RUSTFLAGS", PACKED);
        command.args(["rustc", "--release", "--locked", "--package", STATIC]);
        command.args(["--bin", STATIC, "--", "-C", "target-feature=+crt-static"]);
        run(command)?;
    }
    Ok(folder(release))
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status().context("cargo can't be started")?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(())
}
