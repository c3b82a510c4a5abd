//! Peers from PyPI, installed from the lock file under `tests/python`.

use crate::again;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The folder of the lock file and of our hooks.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python")
}

/// Schemathesis, which calls an HTTP service in every way that its OpenAPI document allows and forbids.
///
/// # Panics
/// When Python is missing or the installation fails: the tests that need it can't be run.
#[must_use]
pub fn schemathesis() -> PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE
        .get_or_init(|| {
            let root = folder();
            install(&root).unwrap_or_else(|reason| {
                panic!(
                    "the peers of {} can't be installed: {reason}",
                    root.display()
                )
            });
            root.join("venv/bin/schemathesis")
        })
        .clone()
}

/// Into a virtual environment, with the hashes of the lock file. Several test processes may come here at once.
fn install(root: &Path) -> Result<(), String> {
    let list = root.join("requirements.txt");
    let wanted = std::fs::read(&list).map_err(|e| e.to_string())?;
    let venv = root.join("venv");
    let mark = venv.join(".installed-from");
    let installed = || std::fs::read(&mark).is_ok_and(|installed| installed == wanted);
    if installed() {
        return Ok(());
    }
    let lock = File::create(root.join(".install.lock")).map_err(|e| e.to_string())?;
    // Released when `lock` is dropped, also when the process is killed.
    lock.lock().map_err(|e| e.to_string())?;
    if installed() {
        return Ok(());
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&venv))?;
    again::as_often(|| {
        run(Command::new(venv.join("bin/pip"))
            .args([
                "install",
                "--quiet",
                "--require-hashes",
                "--only-binary",
                ":all:",
                "-r",
            ])
            .arg(&list))
    })?;
    std::fs::write(&mark, &wanted).map_err(|e| e.to_string())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| {
        format!("{command:?} can't be run ({e}); install Python 3.10 or newer with venv")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{command:?}: {}: {text}", output.status))
}
