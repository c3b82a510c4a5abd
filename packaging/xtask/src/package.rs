//! `cargo xtask package`: the Debian package, from the table that cargo-deb would read.
//!
//! cargo-deb itself is not used: installing it takes longer (three minutes on two cores) than
//! everything else here, and on every new machine again.

use crate::{build, licences};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Package programs of the debug profile: quick to build, slow and large.
    #[arg(long)]
    debug: bool,
    /// Package the programs in this folder and build nothing.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Only make what is generated (manual pages, completions), for cargo-deb.
    #[arg(long)]
    stage: bool,
    /// Where the package goes [default: target/debian].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The package's revision, the last part of its version.
    #[arg(long, default_value_t = 1)]
    revision: u32,
}

/// `[package.metadata.deb]`, as cargo-deb defines it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Deb {
    name: String,
    maintainer: String,
    // In the file of that name; cargo-deb wants it here too.
    #[serde(rename = "copyright")]
    _copyright: String,
    section: String,
    priority: String,
    depends: String,
    recommends: String,
    extended_description: String,
    changelog: PathBuf,
    maintainer_scripts: PathBuf,
    conf_files: Vec<String>,
    /// Source, place in the package, mode in octal.
    assets: Vec<(String, String, String)>,
}

/// What the manifest says, and where it stands: its paths are relative to it.
struct Manifest {
    folder: PathBuf,
    version: String,
    summary: String,
    deb: Deb,
}

/// The crate whose manifest has the table.
const CRATE: &str = "monod";
/// Beginning of a source that stands for the folder of built programs, as in cargo-deb.
const BUILT: &str = "target/release/";

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let programs = match &arguments.programs {
        Some(folder) => folder.clone(),
        None => {
            // What is installed has the page, or there is no package.
            crate::console::build()?;
            build::build(build::Programs::Product, !arguments.debug)?
        }
    };
    let work = build::root().join("target/package");
    let manifest = Manifest::read()?;
    generate(&programs, &work)?;
    licences::write(&manifest.programs(), &work)?;
    if arguments.stage {
        return Ok(true);
    }
    let output = match &arguments.output {
        Some(folder) => folder.clone(),
        None => build::root().join("target/debian"),
    };
    let root = work.join("root");
    empty(&root)?;
    manifest.stage(&programs, &root)?;
    let package = manifest.build(&root, &output, arguments)?;
    println!("{}", package.display());
    Ok(true)
}

/// What the programs themselves print: manual pages, completions, the schema.
fn generate(programs: &Path, work: &Path) -> Result<()> {
    let monoctl = programs.join("monoctl");
    let man = work.join("man");
    empty(&man)?;
    output(Command::new(&monoctl).arg("man").arg(&man))?;
    let mut texts = vec![("mono-agent.schema.json", vec!["config", "schema"])];
    for (file, shell) in [
        ("monoctl.bash", "bash"),
        ("monoctl.zsh", "zsh"),
        ("monoctl.fish", "fish"),
    ] {
        texts.push((file, vec!["completions", shell]));
    }
    for (file, arguments) in texts {
        let text = output(Command::new(&monoctl).args(arguments))?;
        fs::write(work.join(file), text)?;
    }
    Ok(())
}

impl Manifest {
    fn read() -> Result<Self> {
        let text = output(build::cargo().args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]))?;
        let mut metadata: serde_json::Value = serde_json::from_str(&text)?;
        let package = metadata["packages"]
            .as_array_mut()
            .and_then(|all| all.iter_mut().find(|p| p["name"] == CRATE))
            .with_context(|| format!("no crate {CRATE}"))?;
        let path = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            folder: path.parent().unwrap_or(Path::new(".")).to_owned(),
            version: text("version"),
            summary: text("description"),
            deb: serde_json::from_value(package["metadata"]["deb"].take())
                .context("[package.metadata.deb]")?,
        })
    }

    /// The names of the programs that are packed.
    fn programs(&self) -> Vec<String> {
        let sources = self.deb.assets.iter().map(|(source, ..)| source);
        let names = sources.filter_map(|source| source.strip_prefix(BUILT));
        names.map(str::to_owned).collect()
    }

    /// Lays out the package's files as they will be installed.
    fn stage(&self, programs: &Path, root: &Path) -> Result<()> {
        for (source, place, mode) in &self.deb.assets {
            let mode = u32::from_str_radix(mode, 8).with_context(|| format!("mode {mode:?}"))?;
            let built = source.strip_prefix(BUILT);
            let sources = match built {
                Some(name) => vec![programs.join(name)],
                None => matching(&self.folder.join(source))?,
            };
            for source in sources {
                let name = source.file_name().unwrap_or_default();
                let path = match place.strip_suffix('/') {
                    Some(folder) => root.join(folder).join(name),
                    None => root.join(place),
                };
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                if built.is_some() {
                    // Line tables are no use on a machine without the sources.
                    output(
                        Command::new("strip")
                            .arg("--strip-unneeded")
                            .arg("-o")
                            .arg(&path)
                            .arg(&source),
                    )?;
                } else {
                    fs::copy(&source, &path).with_context(|| source.display().to_string())?;
                }
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
                if place.starts_with("usr/share/man/")
                    || place == "usr/share/doc/mono/" && name != "copyright"
                {
                    output(Command::new("gzip").arg("-9nf").arg(&path))?;
                }
            }
        }
        let changelog = root.join("usr/share/doc/mono/changelog.Debian");
        fs::copy(self.folder.join(&self.deb.changelog), &changelog)?;
        fs::set_permissions(&changelog, Permissions::from_mode(0o644))?;
        output(Command::new("gzip").arg("-9nf").arg(&changelog))?;
        Ok(())
    }

    /// Adds the control files and packs all of it.
    fn build(&self, root: &Path, folder: &Path, arguments: &Arguments) -> Result<PathBuf> {
        let version = format!("{}-{}", self.version, arguments.revision);
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
        let architecture = architecture.trim();
        let sums = output(
            Command::new("sh")
                .arg("-c")
                .arg("find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum")
                .current_dir(root),
        )?;
        let installed = output(
            Command::new("du")
                .args(["-sk", "--apparent-size"])
                .arg(root),
        )?;
        let installed = installed
            .split_whitespace()
            .next()
            .unwrap_or("0")
            .to_owned();

        let control = root.join("DEBIAN");
        fs::create_dir(&control)?;
        fs::write(control.join("md5sums"), sums)?;
        fs::write(
            control.join("conffiles"),
            self.deb.conf_files.join("\n") + "\n",
        )?;
        for script in ["preinst", "postinst", "prerm", "postrm"] {
            let source = self.folder.join(&self.deb.maintainer_scripts).join(script);
            if source.exists() {
                fs::copy(&source, control.join(script))?;
                fs::set_permissions(control.join(script), Permissions::from_mode(0o755))?;
            }
        }
        let deb = &self.deb;
        let depends = deb.depends.replace("$auto", &libraries(root)?);
        let description: String = deb
            .extended_description
            .lines()
            .map(|line| format!(" {line}\n"))
            .collect();
        let text = format!(
            "Package: {}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\n\
             Installed-Size: {installed}\nDepends: {depends}\nRecommends: {}\nSection: {}\n\
             Priority: {}\nDescription: {}\n{description}",
            deb.name, deb.maintainer, deb.recommends, deb.section, deb.priority, self.summary,
        );
        fs::write(control.join("control"), text)?;

        fs::create_dir_all(folder)?;
        let package = folder.join(format!("{}_{version}_{architecture}.deb", deb.name));
        // A package that is tried once and thrown away need not be small.
        let compression: &[&str] = if arguments.debug || arguments.programs.is_some() {
            &["-Zgzip", "-z1"]
        } else {
            &["-Zxz"]
        };
        output(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "--build"])
                .args(compression)
                .arg(root)
                .arg(&package),
        )?;
        Ok(package)
    }
}

/// The packages with the libraries that the programs are linked with, as `Depends:` wants them.
fn libraries(root: &Path) -> Result<String> {
    // It looks for a source package around it.
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("debian"))?;
    fs::write(
        folder.path().join("debian/control"),
        "Source: mono\n\nPackage: mono\nArchitecture: any\n",
    )?;
    let mut programs = vec![];
    for part in ["usr/bin", "usr/lib/mono"] {
        for entry in fs::read_dir(root.join(part))? {
            programs.push(entry?.path());
        }
    }
    let text = output(
        Command::new("dpkg-shlibdeps")
            .arg("-O")
            .args(programs)
            .current_dir(folder.path()),
    )?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.context("dpkg-shlibdeps named no library")?.to_owned())
}

/// The files that a source names: one, or all with the ending in `…/*.ending`.
fn matching(source: &Path) -> Result<Vec<PathBuf>> {
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let Some(ending) = name.strip_prefix('*') else {
        return Ok(vec![source.to_owned()]);
    };
    let folder = source.parent().unwrap_or(Path::new("."));
    let mut all = vec![];
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            all.push(path);
        }
    }
    ensure!(!all.is_empty(), "nothing matches {}", source.display());
    all.sort();
    Ok(all)
}

fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("can't empty {}", folder.display()))?;
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Runs a command that must succeed and returns what it printed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| {
        format!("{program} can't be run; a Debian package needs dpkg, dpkg-dev and binutils")
    })?;
    if !out.status.success() {
        bail!(
            "{command:?}: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(String::from_utf8(out.stdout)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_source_in_the_tree_exists_and_every_conffile_is_packed() {
        let manifest = Manifest::read().unwrap();
        for (source, _, mode) in &manifest.deb.assets {
            let generated = source.starts_with("../../target/") || source.starts_with(BUILT);
            for path in if generated {
                vec![]
            } else {
                matching(&manifest.folder.join(source)).unwrap()
            } {
                assert!(path.is_file(), "{}", path.display());
            }
            assert!(["644", "755"].contains(&mode.as_str()), "{source}");
        }
        for file in &manifest.deb.conf_files {
            let name = file.rsplit('/').next().unwrap();
            let packed = |(source, place, _): &(String, String, String)| {
                source.ends_with(name) && file.starts_with(&format!("/{place}"))
            };
            assert!(manifest.deb.assets.iter().any(packed), "{file}");
        }
    }
}
