//! The supply chain: licences, sources and banned crates, read from `cargo metadata`; and what
//! the supervisor may link, read from `cargo tree`.

use crate::build::cargo;
use anyhow::{Context, Result};
use serde_json::Value;

/// Licences whose terms allow shipping under Apache-2.0 OR MIT. `deny.toml` has the same list.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that must not come in, each with its reason.
const BANNED: &[(&str, &str)] = &[
    ("openssl", "TLS is rustls, in egress alone"),
    ("openssl-sys", "TLS is rustls, in egress alone"),
    ("native-tls", "TLS is rustls, in egress alone"),
    ("cgroups-rs", "74 crates for writing five files"),
    ("listenfd", "sd-notify has it"),
    ("atty", "unmaintained; std has IsTerminal"),
];

/// What the supervisor never links: it parses nothing that comes from outside.
const NOT_IN_MONOD: &[&str] = &[
    "axum",
    "aws-lc-rs",
    "h2",
    "hyper",
    "hyper-util",
    "libsqlite3-sys",
    "prometheus-client",
    "reqwest",
    "ring",
    "rmcp",
    "rusqlite",
    "rustls",
    "tower-http",
];

fn metadata() -> Result<Value> {
    let out = cargo()
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()?;
    serde_json::from_slice(&out.stdout).context("cargo metadata printed no JSON")
}

/// True when every alternative that the expression needs is on the list.
fn accepted(expression: &str) -> bool {
    let expression = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // `A AND B` needs both, `A OR B` one of them; AND binds tighter, as in SPDX.
    expression
        .split(" OR ")
        .any(|all| all.split(" AND ").all(|one| LICENCES.contains(&one.trim())))
}

/// Problems with third-party packages; empty when all is well.
pub(crate) fn third_party() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let mut problems = Vec::new();
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    if packages.len() < 50 {
        problems.push(format!(
            "only {} packages: was the metadata read?",
            packages.len()
        ));
    }
    for package in &packages {
        let name = package["name"].as_str().unwrap_or("?");
        let licence = package["license"].as_str().unwrap_or("");
        if !accepted(licence) {
            problems.push(format!("{name}: licence {licence:?} is not on the list"));
        }
        if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            problems.push(format!("{name} is banned: {reason}"));
        }
        let source = package["source"].as_str();
        if source.is_some_and(|s| !s.starts_with("registry+")) {
            problems.push(format!("{name} comes from {source:?}, not from a registry"));
        }
    }
    Ok(problems)
}

/// Crates in the supervisor's tree that must not be there.
pub(crate) fn supervisor_tree() -> Result<Vec<String>> {
    let out = cargo()
        .args([
            "tree",
            "--package",
            "monod",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--locked",
        ])
        .output()?;
    let tree = String::from_utf8_lossy(&out.stdout).into_owned();
    let names: Vec<_> = tree
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    let mut problems: Vec<String> = NOT_IN_MONOD
        .iter()
        .filter(|banned| names.contains(banned))
        .map(|banned| format!("monod links {banned}"))
        .collect();
    if !names.contains(&"monod") {
        problems.push("cargo tree printed no tree of monod".to_owned());
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::accepted;

    #[test]
    fn expressions_are_read_as_spdx_does() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 OR MIT",
        ] {
            assert!(accepted(good), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "AGPL-3.0-only"] {
            assert!(!accepted(bad), "{bad}");
        }
    }
}
