//! Programs of this workspace that a test runs as processes.

use std::path::PathBuf;
use std::process::Command;

/// Builds a program of a package and returns its path.
///
/// Cargo builds a test's own package only; asking it here makes a test right when it is run alone,
/// and costs a fraction of a second when the program is up to date.
///
/// # Panics
/// When it can't be built.
#[must_use]
pub fn binary(package: &str, name: &str) -> PathBuf {
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
