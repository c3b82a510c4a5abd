//! Where the workspace is, and building its programs.

use anyhow::{Context, Result, bail};
use std::os::unix::fs::PermissionsExt as _;
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

/// The packages whose programs are linked statically when they are optimised. These programs are
/// started again and again, and the dynamic linker would be a large part of each start. They look up
/// no names of hosts or users, for which a static C library would load parts of another. They stay
/// position-independent.
const STATIC: [&str; 2] = [LAUNCHER, "mono-run"];

/// It runs before every process.
const LAUNCHER: &str = "mono-launch";

/// What starts are measured with: of a package of [`STATIC`], and linked like what is started.
const MINIMAL: &str = "bench-minimal";

/// The first minor version of Rust 1 whose musl reads packed relocations.
const MUSL_SINCE: u32 = 93;

/// Relocations in their packed form: a position-independent program carries one for each pointer in
/// its tables, and packed they take a hundredth of the room, in the file and at each start. Every
/// C library since 2022 reads it.
const PACKED: &str = "link-arg=-Wl,-z,pack-relative-relocs";

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
    let mut apart = Vec::new();
    let mut others_too = true;
    let target = host()?;
    if release {
        // With a target of their own the flags are for programs alone, and not for what builds them.
        command.args(["--release", "--target", &target]);
        command.env("CARGO_ENCODED_RUSTFLAGS", flags(None));
        for package in STATIC {
            command.args(["--exclude", package]);
        }
        apart.push(LAUNCHER);
    }
    match programs {
        Programs::Named(names) => {
            let is_static = |name: &&str| STATIC.contains(name) || *name == MINIMAL;
            let launcher = (!release).then_some(LAUNCHER);
            let (statics, others): (Vec<&str>, Vec<&str>) =
                names.iter().partition(|name| release && is_static(name));
            apart.extend(statics);
            others_too = !others.is_empty() || launcher.is_some();
            command.args(
                others
                    .into_iter()
                    .chain(launcher)
                    .flat_map(|name| ["--bin", name]),
            );
        }
        Programs::Product => {
            apart.push("mono-run");
            command.arg("--bins");
            for none_of_it in ["xtask", "mono-tests", "continuation-proof"] {
                command.args(["--exclude", none_of_it]);
            }
        }
        // The same packages as the tests that come after it: with others, cargo would choose other
        // features for what they share, and build it twice.
        Programs::WithTests => {
            apart.extend(["mono-run", MINIMAL]);
            command.arg("--bins");
        }
    }
    if others_too {
        run(command)?;
    }
    if release {
        if others_too {
            collect(&target, None)?;
        }
        build_apart(&apart)?;
    }
    Ok(folder(release))
}

/// Builds programs that are linked statically and puts them beside the others.
fn build_apart(names: &[&str]) -> Result<()> {
    let target = static_target()?;
    let mut command = cargo();
    command.args(["build", "--release", "--locked", "--target", &target]);
    command.args(STATIC.iter().flat_map(|package| ["--package", package]));
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    let linked = "target-feature=+crt-static";
    command.env("CARGO_ENCODED_RUSTFLAGS", flags(Some(linked)));
    run(command)?;
    collect(&target, Some(names))
}

/// Puts programs that were built for a target, these or all, into the folder of optimised ones.
fn collect(target: &str, names: Option<&[&str]>) -> Result<()> {
    let folder = folder(true);
    let above = folder
        .parent()
        .context("the folder of programs has none above it")?;
    let built = above.join(target).join("release");
    std::fs::create_dir_all(&folder)?;
    let entries = std::fs::read_dir(&built)?.collect::<std::io::Result<Vec<_>>>()?;
    for entry in entries {
        let name = entry.file_name();
        let wanted = names.is_none_or(|names| names.iter().any(|wanted| name == *wanted));
        let metadata = entry.metadata()?;
        if !wanted || !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            continue;
        }
        // One that runs can be replaced and not be written to.
        let (from, to) = (entry.path(), folder.join(&name));
        let beside = folder.join(".being-copied");
        std::fs::copy(&from, &beside)
            .and_then(|_| std::fs::rename(&beside, &to))
            .with_context(|| format!("{} can't be copied to {}", from.display(), to.display()))?;
    }
    Ok(())
}

/// How optimised programs are compiled, as cargo takes it: with a sign between the words that no path
/// has.
fn flags(more: Option<&str>) -> String {
    let script = root().join("packaging/xtask/no-unwinding.ld");
    let script = format!("link-arg=-Wl,-T,{}", script.display());
    let all = [PACKED, &script].into_iter().chain(more);
    let words: Vec<_> = all.flat_map(|option| ["-C", option]).collect();
    words.join("\x1f")
}

fn ask_rustc(arguments: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc)
        .current_dir(root())
        .args(arguments)
        .output()
        .context("rustc can't be started")?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// What this machine builds for.
fn host() -> Result<String> {
    let about = ask_rustc(&["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .context("rustc doesn't say what it builds for")?
        .to_owned())
}

/// What static programs are built for: this machine with musl where the toolchain has that, since
/// the GNU C library asks the processor some sixty times at each start what it can do, which a
/// hypervisor intercepts each time.
fn static_target() -> Result<String> {
    let host = host()?;
    let about = ask_rustc(&["-vV"])?;
    let release = about
        .lines()
        .find_map(|line| line.strip_prefix("release: 1."));
    let minor = release.and_then(|rest| rest.split('.').next()?.parse().ok());
    let musl = host.replace("-gnu", "-musl");
    let library = ask_rustc(&["--print", "target-libdir", "--target", &musl])?;
    if minor >= Some(MUSL_SINCE) && Path::new(&library).is_dir() {
        return Ok(musl);
    }
    eprintln!(
        "static programs start slower with the GNU C library; for musl: rustup target add {musl}"
    );
    Ok(host)
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status().context("cargo can't be started")?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(())
}
