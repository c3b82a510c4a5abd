//! The owner starts anew on what is left.

use super::stage::{self, LATER, MAX_COUNT, SOURCES, retention};
use super::{CLEANUP, DOWNLOAD, START};
use anyhow::Result;
use ipc_proto::edges::artifact::ArtifactRecord;
use jiff::{SignedDuration, Timestamp};
use mono_artifact::manifest::integrity_id;
use mono_artifact::quota::charge;
use mono_artifact::reading::Wish;
use mono_artifact::session::Desk;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Codes that a refused publication or reading may have here.
const CLEAN: [&str; 2] = ["artifact_publish_failed", "artifact_integrity_failed"];

/// What the process promised.
#[derive(Debug, Default)]
struct Promises<'a> {
    /// Finalised: these are never lost.
    done: Vec<&'a str>,
    /// Answered, but their run was not at its end: these may only go.
    published: Vec<&'a str>,
    /// Taken back: these never come again.
    taken: Vec<&'a str>,
    /// Its account at the end.
    charged: Option<u64>,
    wrong: Vec<String>,
}

fn promises<'a>(said: &[&'a str], fault: bool) -> Promises<'a> {
    let mut all = Promises::default();
    for line in said {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split(' ').filter(|word| !word.is_empty());
        match what {
            "done" => all.done.extend(words),
            "published" => all.published.extend(words),
            "taken" => all.taken.extend(words),
            "charged" => all.charged = rest.parse().ok(),
            "refused" | "failed" | "kept" => {
                let code = words.next().unwrap_or_default();
                if !CLEAN.contains(&code) {
                    all.wrong.push(format!("the code is {code:?}"));
                }
                // A failed publication is a visible part of the reply.
                if what == "refused" && code == CLEAN[0] && words.next() != Some("true") {
                    all.wrong.push("a refused file is not shown".to_owned());
                }
                if !fault {
                    all.wrong.push(format!("without any fault: {line}"));
                }
            }
            "parts" => all.wrong.push(format!("a reply of {rest} parts")),
            _ => {}
        }
    }
    all
}

pub(super) fn check(scene: &str, folder: &Path, said: &[&str], fault: bool) -> Result<Vec<String>> {
    let promises = promises(said, fault);
    let mut wrong = Vec::new();
    let stay = stage::stay(folder)?;
    if scene == DOWNLOAD {
        wrong.extend(reading(said, fault));
    }
    let desk = stage::desk(folder)?;
    let mut there = whole(&desk, folder, &mut wrong)?;
    for id in stay
        .iter()
        .map(String::as_str)
        .chain(promises.done.iter().copied())
    {
        if !there.contains_key(id) {
            wrong.push(format!("{id} was finalised and is gone"));
        }
    }
    for id in &promises.taken {
        if there.contains_key(*id) {
            wrong.push(format!("{id} was taken back and is there again"));
        }
    }
    // Whoever lived on has taken back what could not be bound.
    for id in &promises.published {
        if fault && there.contains_key(*id) && !promises.done.contains(id) {
            wrong.push(format!("the run of {id} failed and left it"));
        }
    }
    // What nobody had heard of can only be from a finalisation that was broken off.
    if there
        .values()
        .any(|record| record.delivery_conversation_id.is_none())
    {
        wrong.push("a start kept what was not finalised".to_owned());
    }

    let later = Timestamp::now() + LATER;
    if scene == CLEANUP {
        desk.shelf.clean(&retention(MAX_COUNT), later);
        let kept: BTreeSet<_> = stay.iter().cloned().collect();
        there.retain(|id, _| kept.contains(id));
    } else {
        desk.shelf.clean(&desk.retention, later);
    }
    let now = whole(&desk, folder, &mut wrong)?;
    if now.keys().ne(there.keys()) {
        wrong.push(format!("cleaning left {now:?}, it had to leave {there:?}"));
    }
    let staged: Vec<_> = names(&folder.join("state/reply-files/.staging"))?;
    if !staged.is_empty() {
        wrong.push(format!("left in staging after the grace: {staged:?}"));
    }
    let sum: u64 = now.values().map(|record| charge(record.size_bytes)).sum();
    if desk.shelf.used() != sum {
        wrong.push(format!(
            "{} bytes are charged, {sum} are there",
            desk.shelf.used()
        ));
    }
    if let Some(charged) = promises.charged {
        // What a start could not read stays charged, and is left alone, until the next one.
        let quarantined = scene == START && charged > sum;
        if charged != sum && !quarantined {
            wrong.push(format!(
                "the worker that lived on charged {charged}, {sum} are there"
            ));
        }
    }
    drop(desk);
    let again = stage::desk(folder)?;
    if again.shelf.used() != sum {
        wrong.push(format!(
            "{} bytes are charged after one more start, not {sum}",
            again.shelf.used()
        ));
    }
    wrong.extend(promises.wrong);
    if scene == START && fault && !said.contains(&"not started") && promises.charged.is_none() {
        wrong.push("it neither started nor said that it can't".to_owned());
    }
    Ok(wrong)
}

/// What the reader got.
fn reading(said: &[&str], fault: bool) -> Vec<String> {
    let expected = integrity_id(&Sha256::digest(stage::content("a.bin")).into());
    let mut wrong = Vec::new();
    for line in said {
        match line.split_once(' ') {
            Some(("read", got)) if got == expected => {}
            Some(("refused" | "charged", _)) => {}
            _ if *line == "no copy" && fault => {}
            _ => wrong.push(format!("the reader got {line:?}")),
        }
    }
    wrong
}

/// Every artifact that is shown, each of them whole: the manifest, the bytes and the hash agree,
/// and the bytes are those of a source. Nothing else is in the live namespace.
fn whole(
    desk: &Desk,
    folder: &Path,
    wrong: &mut Vec<String>,
) -> Result<BTreeMap<String, ArtifactRecord>> {
    let page = desk
        .shelf
        .list(100, None)
        .unwrap_or_else(|| unreachable!("no cursor was given"));
    let known: BTreeSet<_> = SOURCES
        .iter()
        .map(|(name, _)| integrity_id(&Sha256::digest(stage::content(name)).into()))
        .collect();
    let mut there = BTreeMap::new();
    for record in page.artifacts {
        let created: Timestamp = record.created_at.parse()?;
        match desk
            .shelf
            .read(Wish::of(&record.id), created + SignedDuration::from_secs(1))
        {
            Ok((_, sealed)) => {
                let mut bytes = Vec::new();
                File::from(sealed).read_to_end(&mut bytes)?;
                let got = integrity_id(&Sha256::digest(&bytes).into());
                if got != record.integrity_id || !known.contains(&got) {
                    wrong.push(format!("{} has bytes that nobody published", record.id));
                }
            }
            Err(error) => wrong.push(format!("{} is shown and can't be read: {error}", record.id)),
        }
        there.insert(record.id.clone(), record);
    }
    let live = names(&folder.join("state/reply-files"))?;
    let shown: Vec<_> = there.keys().cloned().collect();
    if live != shown {
        wrong.push(format!(
            "in the live namespace are {live:?}, shown are {shown:?}"
        ));
    }
    Ok(there)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != ".staging" {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
