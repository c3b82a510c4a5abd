//! Embeds the console's page when it was built (`cargo xtask console`): a table of its files, compressed
//! where that is worth it.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What is compressed already gains nothing.
const COMPRESSED: [&str; 6] = ["html", "js", "mjs", "css", "svg", "txt"];

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
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let mut code = String::from("pub(crate) static FILES: &[Built] = &[\n");
    for (number, file) in files.iter().enumerate() {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&dist).unwrap_or(file);
        let name = name.to_string_lossy();
        let (packed, content) = match compressed(file, &out.join(format!("{number}.gz"))) {
            Ok(Some(small)) => (true, small),
            Ok(None) => (false, file.clone()),
            Err(e) => {
                println!("cargo::error={} can't be compressed: {e}", file.display());
                return;
            }
        };
        let _ = writeln!(
            code,
            "    ({name:?}, {packed}, include_bytes!({content:?})),"
        );
    }
    code.push_str("];\n");
    if let Err(e) = std::fs::write(out.join("console_files.rs"), code) {
        println!("cargo::error=the table of the console's files can't be written: {e}");
    }
}

/// Writes a file compressed; `None` where that saves nothing.
fn compressed(file: &Path, to: &Path) -> std::io::Result<Option<PathBuf>> {
    let kind = file.extension().and_then(|kind| kind.to_str());
    if !kind.is_some_and(|kind| COMPRESSED.contains(&kind)) {
        return Ok(None);
    }
    let bytes = std::fs::read(file)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    let small = encoder.finish()?;
    if small.len() >= bytes.len() {
        return Ok(None);
    }
    std::fs::write(to, small)?;
    Ok(Some(to.to_owned()))
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
