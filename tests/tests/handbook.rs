//! What the handbook points at is there: pages, and the tests that answer old holes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages() -> Vec<PathBuf> {
    let mut all = vec![root().join("README.md")];
    all.extend(
        std::fs::read_dir(root().join("docs"))
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    all.retain(|path| path.extension().is_some_and(|e| e == "md"));
    assert!(all.len() > 5, "{all:?}");
    all
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => page.clone(),
                other => page.parent().unwrap().join(other),
            };
            let there = std::fs::read_to_string(&file)
                .unwrap_or_else(|e| panic!("{}: {target}: {e}", page.display()));
            let has = |line: &str| {
                line.starts_with('#')
                    && line
                        .trim_start_matches('#')
                        .trim()
                        .to_lowercase()
                        .replace(' ', "-")
                        == section
            };
            assert!(
                section.is_empty() || there.lines().any(has),
                "{}: {target}",
                page.display()
            );
        }
    }
}

/// Names of all test functions below a folder of the workspace.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            // What is installed comes and goes while other tests run.
            if !matches!(name.as_str(), "target" | "node_modules" | "venv" | ".git") {
                tests_below(&path, found);
            }
        } else if name.ends_with(".test.ts") {
            // The page's tests are called by sentences.
            let text = std::fs::read_to_string(&path).unwrap();
            let sentences = text.lines().filter_map(|line| line.strip_prefix("test(\""));
            found.extend(sentences.filter_map(|rest| Some(rest.split_once("\",")?.0.to_owned())));
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut marked = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    marked = true;
                } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked) {
                    marked = false;
                    found.extend(rest.split('(').next().map(str::to_owned));
                }
            }
        }
    }
}

#[test]
fn every_test_that_a_page_names_exists() {
    let mut tests = BTreeSet::new();
    tests_below(&root(), &mut tests);
    for (page, least) in [("docs/security.md", 15), ("docs/spec-coverage.md", 60)] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        // In code, with underscores: a name with four of them is a sentence, and so a test.
        let named: Vec<&str> = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|code| code.matches('_').count() > 3 && !code.contains(' '))
            .collect();
        assert!(named.len() > least, "{named:?}");
        for name in named {
            assert!(tests.contains(name), "{page} names {name}");
        }
    }
}

/// A row of the coverage names a test, or says that nothing does it.
#[test]
fn every_rule_of_the_specification_has_a_test_or_is_not_done() {
    let mut tests = BTreeSet::new();
    tests_below(&root(), &mut tests);
    let text = std::fs::read_to_string(root().join("docs/spec-coverage.md")).unwrap();
    let mut rows = 0;
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [_, .., found] = cells.as_slice() else {
            panic!("{line}");
        };
        let found = found.trim();
        if found == "tests" {
            continue;
        }
        rows += 1;
        let named = found.split('`').skip(1).step_by(2);
        let known = named.clone().filter(|name| tests.contains(*name)).count();
        let all = named.count();
        let done = all > 0 && known == all;
        assert!(done || found.starts_with("not done"), "{line}");
    }
    assert!(rows > 50, "{rows}");
}
