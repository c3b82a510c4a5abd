//! What the package holds of others, with their licences: the crates that its programs link and the
//! packages that the console's page is built from.

use crate::build::{cargo, root};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// The line between two entries, as the build of the page writes it.
const RULE: &str = "------------------------------------------------------------------------";

/// One work of others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    /// Name and version.
    name: String,
    /// As an SPDX expression.
    licence: String,
    /// The texts that come with it.
    text: String,
}

/// Writes `copyright` and `licences.txt` into a folder.
///
/// # Errors
/// When Cargo doesn't know the crates, or the page's own list can't be read.
pub(crate) fn write(programs: &[String], folder: &Path) -> Result<()> {
    let crates = linked(programs)?;
    let page = root().join("workers/channel/console-ui/dist/assets/licences.txt");
    // Programs that are tried out may be without a page.
    let page = match page.is_file() {
        true => of_page(&fs::read_to_string(&page)?)?,
        false => vec![],
    };
    let own = fs::read_to_string(root().join("packaging/debian/copyright"))?;
    fs::write(folder.join("copyright"), copyright(&own, &crates, &page))?;
    let all: Vec<Work> = crates.into_iter().chain(page).collect();
    Ok(fs::write(folder.join("licences.txt"), texts(&all))?)
}

/// The crates that programs are linked with, ours left out.
fn linked(programs: &[String]) -> Result<Vec<Work>> {
    let out = cargo()
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .output()?;
    let metadata: Value =
        serde_json::from_slice(&out.stdout).context("cargo metadata printed no JSON")?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: HashMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: HashMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    // The crates that a program of this name comes from.
    let makes = |package: &Value| {
        let mut targets = list(&package["targets"]).into_iter();
        targets
            .any(|target| programs.contains(&text(&target["name"])) && target["kind"][0] == "bin")
    };
    let mut due: Vec<String> = packages
        .iter()
        .filter(|(_, package)| package["source"].is_null() && makes(package))
        .map(|(id, _)| id.clone())
        .collect();
    ensure!(due.len() > 1, "Cargo knows no program of the package");
    let mut seen = BTreeSet::new();
    while let Some(id) = due.pop() {
        let Some(node) = nodes.get(&id).filter(|_| seen.insert(id.clone())) else {
            continue;
        };
        for dependency in list(&node["deps"]) {
            let kinds = list(&dependency["dep_kinds"]);
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                due.push(text(&dependency["pkg"]));
            }
        }
    }
    let others = seen.iter().filter_map(|id| packages.get(id));
    let mut works = Vec::new();
    for package in others.filter(|package| !package["source"].is_null()) {
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().unwrap_or(Path::new("."));
        works.push(Work {
            name: format!("{} {}", text(&package["name"]), text(&package["version"])),
            licence: text(&package["license"]),
            text: texts_in(folder)?,
        });
    }
    works.sort();
    Ok(works)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The files with licences and notices in a crate's folder.
fn texts_in(folder: &Path) -> Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let upper = name.to_ascii_uppercase();
        let is_one = ["LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];
        if is_one.iter().any(|start| upper.starts_with(start)) && folder.join(&name).is_file() {
            names.push(name);
        }
    }
    names.sort();
    let texts: Vec<String> = names
        .iter()
        .filter_map(|name| fs::read_to_string(folder.join(name)).ok())
        .map(|text| text.trim().to_owned())
        .collect();
    Ok(texts.join("\n\n"))
}

/// The list that the build of the page writes: `NAME VERSION (LICENCE)`, the text, a rule.
fn of_page(list: &str) -> Result<Vec<Work>> {
    let rule = format!("\n{RULE}\n");
    list.split(&rule)
        .map(|entry| {
            let entry = entry.trim();
            let (head, text) = entry.split_once('\n').unwrap_or((entry, ""));
            let (name, licence) = head
                .strip_suffix(')')
                .and_then(|head| head.rsplit_once(" ("))
                .with_context(|| format!("no entry of the page's licences: {head:?}"))?;
            Ok(Work {
                name: name.to_owned(),
                licence: licence.to_owned(),
                text: text.trim().to_owned(),
            })
        })
        .collect()
}

/// The package's own copyright file, with a line for each work in its comment.
fn copyright(own: &str, crates: &[Work], page: &[Work]) -> String {
    let mut comment = String::new();
    for (what, works) in [
        ("The programs link these crates:", crates),
        ("The web console's page is built from these packages:", page),
    ] {
        if works.is_empty() {
            continue;
        }
        comment += &format!(" .\n {what}\n");
        for Work { name, licence, .. } in works {
            comment += &format!("  {name}: {licence}\n");
        }
    }
    comment += " .\n Their texts are in /usr/share/doc/mono/licences.txt.gz.\n";
    // The comment is the last field of the first paragraph.
    match own.split_once("\n\n") {
        Some((first, rest)) => format!("{first}\n{comment}\n{rest}"),
        None => format!("{own}{comment}"),
    }
}

/// Each text once, below the names of all works that it comes with.
fn texts(works: &[Work]) -> String {
    let mut by_text: BTreeMap<&str, Vec<&Work>> = BTreeMap::new();
    for work in works {
        by_text.entry(&work.text).or_default().push(work);
    }
    let entries: Vec<String> = by_text
        .into_iter()
        .map(|(text, works)| {
            let names = works
                .iter()
                .map(|w| format!("{} ({})\n", w.name, w.licence));
            let text = match text {
                "" => "It comes without a text of its own.",
                text => text,
            };
            format!("{}\n{text}\n", names.collect::<String>())
        })
        .collect();
    entries.join(&format!("\n{RULE}\n\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn everything_that_is_linked_is_named_with_its_licence() {
        let crates = linked(&["monod".into(), "mono-egress".into()]).unwrap();
        let named = |name: &str| crates.iter().any(|w| w.name.starts_with(name));
        // Linked by one of the two, by neither, ours, and only for tests.
        assert!(named("tokio 1.") && named("rustls 0."));
        assert!(!named("rusqlite ") && !named("ipc-proto ") && !named("proptest "));
        let bare = crates.iter().filter(|work| work.licence.is_empty());
        assert_eq!(bare.collect::<Vec<_>>(), Vec::<&Work>::new());
    }

    #[test]
    fn the_page_s_packages_stand_in_the_copyright_file_and_each_text_once() {
        let list = format!(
            "react 19.3.1 (MIT)\n\nMIT text\n\n{RULE}\n\n@a/b 1.0.0 (Apache-2.0)\n\nLong\n\ntext\n"
        );
        let page = of_page(&list).unwrap();
        assert_eq!(page.len(), 2);
        assert_eq!(
            (&*page[1].name, &*page[1].text),
            ("@a/b 1.0.0", "Long\n\ntext")
        );
        assert!(of_page("nothing").is_err());
        let same = Work {
            name: "other 1.0.0".into(),
            ..page[0].clone()
        };
        let own = "Format: x\nComment:\n Ours.\n\nFiles: *\nLicense: y\n";
        let whole = copyright(own, std::slice::from_ref(&same), &page);
        assert!(whole.contains("\n  @a/b 1.0.0: Apache-2.0\n"), "{whole}");
        assert!(whole.contains("\n  other 1.0.0: MIT\n"), "{whole}");
        // It is still two paragraphs.
        assert_eq!(whole.matches("\n\n").count(), 1, "{whole}");
        let all = texts(&[page[0].clone(), same, page[1].clone()]);
        assert_eq!(all.matches("MIT text").count(), 1, "{all}");
        assert!(
            all.contains("react 19.3.1 (MIT)\nother 1.0.0 (MIT)\n\nMIT text"),
            "{all}"
        );
    }
}
