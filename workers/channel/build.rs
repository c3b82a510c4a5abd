//! Embeds the console's page when it was built (`cargo xtask console`): a table of its files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = folder.join("console-ui/dist");
    // A folder that isn't there yet is looked for again by every build.
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &mut files);
    }
    files.sort();
    let mut code = String::from("pub(crate) static FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&dist).unwrap_or(file);
        let name = name.to_string_lossy();
        let _ = writeln!(code, "    ({name:?}, include_bytes!({file:?})),");
    }
    code.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(e) = std::fs::write(out.join("console_files.rs"), code) {
        println!("cargo::error=the table of the console's files can't be written: {e}");
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.is_file() {
            files.push(path);
        }
    }
}
