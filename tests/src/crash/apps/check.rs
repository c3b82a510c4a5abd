//! The owner starts anew on what is left.

use super::stage::{self, NOW};
use super::{ACT, EXPIRE, RECLAIM, ROTATE};
use anyhow::Result;
use mono_app_bridge::apps::vault::Vault;
use std::fs;
use std::path::Path;

pub(super) fn check(scene: &str, folder: &Path, said: &[&str], fault: bool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    if !fault {
        let refused = said.iter().filter(|line| {
            ["refused", "incomplete", "not started"]
                .iter()
                .any(|word| line.starts_with(word))
        });
        wrong.extend(refused.map(|line| format!("without any fault: {line}")));
    }
    let vault = stage::vault(folder, NOW)?;
    let usage = vault.usage();
    if usage.quarantined > 0 {
        wrong.push("something of ours can't be read any more".to_owned());
    }
    let there: Vec<String> = vault.cards().into_iter().map(|card| card.id).collect();
    for id in &there {
        wrong.extend(whole(&vault, id));
    }
    let mut stay = vec![stage::id(2), stage::id(3)];
    if scene != EXPIRE {
        stay.push(stage::id(1));
    } else if said.contains(&"cleaned") && !fault && there.contains(&stage::id(1)) {
        wrong.push("an app that had expired is there again".to_owned());
    }
    let kept = said.iter().filter_map(|line| line.strip_prefix("kept "));
    stay.extend(kept.filter(|id| !id.is_empty()).map(str::to_owned));
    for id in &stay {
        if !there.contains(id) {
            wrong.push(format!("{id} was kept and is gone"));
        }
    }
    // The second of the run's apps was never kept.
    for id in [stage::id(11), stage::id(20), stage::id(21)] {
        if there.contains(&id) {
            wrong.push(format!("{id} was not kept and is there"));
        }
    }
    if [ACT, ROTATE, RECLAIM].contains(&scene) {
        wrong.extend(written_down(&vault, said));
    }
    let left = fs::read_dir(folder.join("state/staging"))?.count();
    if left > 0 {
        wrong.push(format!("{left} things are left in staging"));
    }
    let (payload, audit) = on_disk(&folder.join("state/apps"))?;
    if (usage.payload, usage.audit) != (payload, audit) {
        wrong.push(format!(
            "{} and {} are charged, {payload} and {audit} are there",
            usage.payload, usage.audit
        ));
    }
    drop(vault);
    let again = stage::vault(folder, NOW)?.usage();
    if again != usage {
        wrong.push(format!(
            "after one more start {again:?} is charged, not {usage:?}"
        ));
    }
    Ok(wrong)
}

/// An action is written down before it happens, and its end after it.
fn written_down(vault: &Vault, said: &[&str]) -> Vec<String> {
    let log = vault.log(&stage::id(1)).unwrap_or_default();
    let count = |phase: &str| {
        log.iter()
            .filter(|e| e["details"]["phase"] == phase)
            .count()
    };
    let mut wrong = Vec::new();
    for (promise, phase) in [("acted", "confirmed"), ("completed", "completed")] {
        if said.contains(&promise) && count(phase) == 0 {
            wrong.push(format!("it {promise} and the log does not say so"));
        }
    }
    if count("completed") > count("confirmed") {
        wrong.push("an end without a beginning".to_owned());
    }
    // What somebody looks at keeps its current log.
    let seen = vault.log(&stage::id(2)).unwrap_or_default();
    if said.contains(&"acted") && seen.is_empty() && vault.usage().audit > 1_500 {
        wrong.push("a protected log is gone".to_owned());
    }
    wrong
}

fn whole(vault: &Vault, id: &str) -> Vec<String> {
    let read = || -> Result<(), String> {
        let text = |e: mono_app_bridge::apps::vault::VaultError| e.to_string();
        let manifest = vault.manifest(id, NOW).map_err(text)?;
        vault.state(id, NOW).map_err(text)?;
        let html = vault.html(&manifest, NOW).map_err(text)?;
        let n = usize::from_str_radix(id, 16).map_err(|e| e.to_string())?;
        if html == stage::page(n).into_bytes() {
            Ok(())
        } else {
            Err("its page is another".to_owned())
        }
    };
    read()
        .err()
        .map(|e| format!("{id} is shown and not whole: {e}"))
        .into_iter()
        .collect()
}

/// Bytes of records and of logs.
fn on_disk(apps: &Path) -> Result<(u64, u64)> {
    let (mut payload, mut audit) = (0, 0);
    for folder in fs::read_dir(apps)? {
        for file in fs::read_dir(folder?.path())? {
            let file = file?;
            let bytes = file.metadata()?.len();
            if file.file_name().to_string_lossy().starts_with("audit") {
                audit += bytes;
            } else {
                payload += bytes;
            }
        }
    }
    Ok((payload, audit))
}
