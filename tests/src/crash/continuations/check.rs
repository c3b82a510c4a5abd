//! What is wrong with what is left.

use super::drive::{block, result};
use super::office::{Done, Office, Others};
use anyhow::{Context as _, Result};
use continuation_record::{Payload, ReceiptKind, Record, State};
use continuation_store::Retention;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What the process had promised, and what it had done outside.
#[derive(Default)]
struct Told {
    /// Tokens by continuation.
    claimed: BTreeMap<String, String>,
    accepted: BTreeSet<String>,
    /// An operator had them sent again.
    again: BTreeSet<String>,
    /// Settled ones may be gone.
    forgotten: bool,
}

fn read(said: &[&str]) -> (Told, Done) {
    let (mut told, mut done) = (Told::default(), Done::default());
    for line in said {
        let mut words = line.split(' ').map(str::to_owned);
        let (word, first, second) = (words.next(), words.next(), words.next());
        match (word.as_deref(), first, second) {
            (Some("claimed"), Some(id), Some(token)) => {
                told.claimed.insert(id, token);
            }
            (Some("accepted"), Some(id), _) => {
                told.accepted.insert(id);
            }
            (Some("again"), Some(id), _) => {
                told.again.insert(id);
            }
            (Some("forgotten"), ..) => told.forgotten = true,
            (Some("committed"), Some(run), _) => {
                done.committed.insert(run);
            }
            (Some("asked"), Some(id), _) => *done.asked.entry(id).or_default() += 1,
            (Some("posted"), Some(key), _) => *done.posted.entry(key).or_default() += 1,
            _ => {}
        }
    }
    (told, done)
}

pub(super) fn check(folder: &Path, said: &[&str]) -> Result<Vec<String>> {
    let (told, done) = read(said);
    let office = Office::open(folder, Others::after(done), Retention::default())?;
    let mut wrong = Vec::new();
    block(async {
        office.recover().await?;
        promises(&office, &told, &mut wrong).await?;
        office.work().await?;
        Ok(())
    })?;
    office.store.close()?;
    office.store.verify().context("files and packs differ")?;
    ends(&office, &told, &mut wrong)?;
    let snapshots = office.store.stats().contexts;
    // Its threads end with it: they keep up with the log as long as it is open.
    drop(office);
    leftovers(&folder.join("state"), snapshots, &mut wrong)?;
    Ok(wrong)
}

/// What was answered is there, and its token still opens it.
async fn promises(office: &Office, told: &Told, wrong: &mut Vec<String>) -> Result<()> {
    let payload = Payload::parse(r#"{"summary":"done"}"#)?.hash();
    for (id, token) in &told.claimed {
        let Some(record) = office.store.get(id)? else {
            if !told.forgotten {
                wrong.push(format!("{id} was claimed and is lost"));
            }
            continue;
        };
        let accepted = told.accepted.contains(id);
        if accepted && record.result_payload_hash.as_ref() != Some(&payload) {
            wrong.push(format!("the result of {id} was accepted and is lost"));
        }
        if accepted || record.state == State::Claimed {
            // The same once more is always right.
            let again = result("done");
            if let Err(e) = office.intake.submit(id, token, again.as_bytes()).await {
                wrong.push(format!("the result of {id} is refused: {e}"));
            }
        }
    }
    Ok(())
}

/// Asked once, posted once, and said so.
fn ends(office: &Office, told: &Told, wrong: &mut Vec<String>) -> Result<()> {
    let done = office.host.done();
    for (id, times) in &done.asked {
        if *times > 1 {
            wrong.push(format!("a model was asked {times} times for {id}"));
        }
    }
    for (key, times) in &done.posted {
        let id = key.strip_prefix("continuation:").unwrap_or_default();
        let most = 1 + usize::from(told.again.contains(id));
        if *times > most {
            wrong.push(format!("{id} was posted {times} times"));
        }
    }
    let records = all(office)?;
    for record in &records {
        let id = &record.continuation_id;
        let posted = done.posted.contains_key(&format!("continuation:{id}"));
        let receipt = record.receipt.as_ref().map(|receipt| receipt.kind);
        match record.state {
            State::Delivered if receipt == Some(ReceiptKind::Delivered) && !posted => {
                // What the folder began with was posted before anybody listened.
                if told.claimed.contains_key(id) {
                    wrong.push(format!("{id} is delivered and was never posted"));
                }
            }
            State::Delivered
            | State::DeliveryUnknown
            | State::DeadLettered
            | State::Claimed
            | State::Cancelled => {}
            other => wrong.push(format!("{id} is still {}", other.name())),
        }
    }
    let health = office.operator.health()?;
    let stats = office.store.stats();
    for state in State::ALL {
        let there = records
            .iter()
            .filter(|record| record.state == state)
            .count();
        let told = health["counts"][state.name()].as_u64();
        if stats.counts.of(state) != there || told != Some(there as u64) {
            wrong.push(format!("{} are counted wrong: {health}", state.name()));
        }
    }
    Ok(())
}

fn all(office: &Office) -> Result<Vec<Arc<Record>>> {
    Ok(office.store.page(None, 10_000)?.records)
}

/// No snapshot that nobody needs, and no file that is not finished.
fn leftovers(state: &Path, needed: usize, wrong: &mut Vec<String>) -> Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let inner = std::fs::read_dir(entry.path())?;
            for file in inner {
                names.push((entry.file_name(), file?.file_name()));
            }
        } else {
            names.push((Default::default(), entry.file_name()));
        }
    }
    let unfinished = names
        .iter()
        .filter(|(_, name)| name.to_string_lossy().ends_with(".tmp"));
    wrong.extend(unfinished.map(|(folder, name)| format!("{folder:?}/{name:?} is left over")));
    let snapshots = names
        .iter()
        .filter(|(folder, _)| folder == "origin-context-v1")
        .count();
    if snapshots != needed {
        wrong.push(format!(
            "{snapshots} snapshots are kept, and {needed} are needed"
        ));
    }
    let secret = std::fs::read(state.join("continuation-secret"))?;
    if secret.len() != 44 {
        wrong.push("the secret is not whole".to_owned());
    }
    Ok(())
}
