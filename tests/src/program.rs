//! Programs of this workspace that a test runs as processes.

use std::path::PathBuf;
use std::process::Command;

/// The path of a program of a package: among those that were built for the tests, else built now,
/// so that a test is right when it is run alone.
///
/// # Panics
/// When it isn't there, or can't be built.
#[must_use]
pub fn binary(package: &str, name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("MONO_PROGRAMS") {
        let path = PathBuf::from(folder).join(name);
        assert!(path.is_file(), "{} is not there", path.display());
        return path;
    }
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package, "--bin", name])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can't be run");
    assert!(
        output.status.success(),
        "{name} can't be built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .unwrap_or_else(|| panic!("{package} has no program called {name}"))
}
