//! The owner of apps, killed while it publishes, keeps, writes down, rotates, lets go and starts.

mod check;
mod stage;

use super::{Step, Subject, mark, say};
use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use mono_app_bridge::apps::audit::{Method, Phase};
use mono_app_bridge::apps::vault::Vault;
use nix::libc::{SYS_fdatasync, SYS_fsync, SYS_renameat2, SYS_write};
use std::path::Path;
use std::sync::Arc;

/// The app-bridge's vault, driven as its worker drives it.
#[derive(Debug)]
pub struct Apps;

/// A run brings two apps and keeps one.
const PUBLISH: &str = "publish";
/// An app does something.
const ACT: &str = "act";
/// An app does something, and its log is full.
const ROTATE: &str = "rotate";
/// An app does something, and the logs of all are full.
const RECLAIM: &str = "reclaim";
/// An app has expired.
const EXPIRE: &str = "expire";
/// The inventory of a start after a crash.
const START: &str = "start";

impl Subject for Apps {
    fn name(&self) -> &'static str {
        "apps"
    }

    fn scenes(&self) -> &'static [&'static str] {
        &[PUBLISH, ACT, ROTATE, RECLAIM, EXPIRE, START]
    }

    fn prepare(&self, scene: &str, folder: &Path) -> Result<()> {
        stage::prepare(scene, folder)
    }

    fn drive(&self, scene: &str, folder: &Path) -> Result<()> {
        if scene == START {
            mark();
            let vault = stage::vault(folder, stage::NOW);
            mark();
            say(if vault.is_ok() {
                "started"
            } else {
                "not started"
            });
            return Ok(());
        }
        let vault = stage::vault(folder, stage::NOW)?;
        mark();
        match scene {
            PUBLISH => publish(&vault),
            ACT | ROTATE | RECLAIM => act(&vault),
            EXPIRE => {
                vault.clean(stage::LATER);
                say("cleaned");
            }
            other => bail!("there is no scene {other:?}"),
        }
        mark();
        let usage = vault.usage();
        say(&format!("charged {} {}", usage.payload, usage.audit));
        Ok(())
    }

    fn check(&self, scene: &str, folder: &Path, said: &[&str], fault: bool) -> Result<Vec<String>> {
        check::check(scene, folder, said, fault)
    }

    fn order(&self, scene: &str, steps: &[Step]) -> Vec<String> {
        match scene {
            PUBLISH => synced_before_shown(steps),
            ACT | ROTATE | RECLAIM => synced_after_entries(steps),
            _ => Vec::new(),
        }
    }
}

fn publish(vault: &Arc<Vault>) {
    let mut ids = Vec::new();
    for n in [10, 11] {
        let app = stage::app(n, "now");
        match vault.publish(&app, stage::NOW) {
            Ok(()) => ids.push(stage::id(n)),
            Err(error) => say(&format!("refused {error}")),
        }
    }
    // The other one is not part of the reply.
    let keep: Vec<String> = ids.into_iter().filter(|id| *id == stage::id(10)).collect();
    match vault.keep("now", &keep) {
        Ok(()) => say(&format!("kept {}", keep.join(" "))),
        Err(error) => say(&format!("refused {error}")),
    }
    vault.settle("now");
}

fn act(vault: &Arc<Vault>) {
    let (id, now) = (stage::id(1), Timestamp::UNIX_EPOCH);
    let seen = |card: &mono_app_bridge::apps::vault::Card| card.id == stage::id(2);
    match vault.begin(&id, Method::Call, Phase::Confirmed, now, &seen) {
        Ok(ticket) => {
            say("acted");
            match ticket.complete(now) {
                Ok(()) => say("completed"),
                Err(error) => say(&format!("incomplete {error}")),
            }
            // A moment later, as its worker does.
            vault.sync_logs();
        }
        Err(error) => say(&format!("refused {error}")),
    }
}

/// Each of a record's files and its folder are on the disk before the rename that shows it, and
/// its name afterwards.
fn synced_before_shown(steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut shown = 0;
    for (at, step) in steps.iter().enumerate() {
        let [from, to] = step.paths.as_slice() else {
            continue;
        };
        if step.call != SYS_renameat2 || !from.contains("/staging/") || !to.contains("/apps/") {
            continue;
        }
        shown += 1;
        let synced = |steps: &[Step], path: &str| {
            let on = |step: &Step| step.paths.iter().any(|own| own == path);
            steps.iter().any(|step| step.call == SYS_fsync && on(step))
        };
        for file in ["/resource.html", "/state.json", "/manifest.json", ""] {
            let path = format!("{from}{file}");
            if !synced(&steps[..at], &path) {
                wrong.push(format!("{path} is not synced when it is shown"));
            }
        }
        let apps = to.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !synced(&steps[at..], apps) {
            wrong.push(format!("{to} may not be found after the answer"));
        }
    }
    if shown == 0 {
        wrong.push("nothing was shown".to_owned());
    }
    wrong
}

/// What was written into a log is synced afterwards.
fn synced_after_entries(steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_log = |step: &Step| step.paths.iter().any(|path| path.ends_with("/audit.jsonl"));
    let entry = |step: &Step| step.call == SYS_write && is_log(step);
    if !steps.iter().any(entry) {
        wrong.push("nothing was written down".to_owned());
    }
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| entry(step)) {
        let synced = |later: &Step| later.call == SYS_fdatasync && later.paths == step.paths;
        if !steps[at..].iter().any(synced) {
            wrong.push(format!("{:?} is not synced after an entry", step.paths));
        }
    }
    wrong
}

/// The folder of a scene.
fn open(path: &Path) -> Result<mono_app_bridge::apps::folder::Folder> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    Ok(mono_app_bridge::apps::folder::Folder::from_fd(file.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_not_synced_is_told() {
        let step = |call, path: &str| Step {
            call,
            paths: vec![format!("/s/apps/x/{path}")],
        };
        let right = [
            step(SYS_write, "audit.jsonl"),
            step(SYS_write, "audit.jsonl"),
            step(SYS_fdatasync, "audit.jsonl"),
        ];
        assert_eq!(synced_after_entries(&right), [] as [&str; 0]);
        assert_eq!(synced_after_entries(&right[..2]).len(), 2);
        let other = [right[0].clone(), step(SYS_fdatasync, "audit.1.jsonl")];
        assert_eq!(synced_after_entries(&other).len(), 1);
        let early = [right[2].clone(), right[1].clone()];
        assert_eq!(synced_after_entries(&early).len(), 1);
        assert_eq!(synced_after_entries(&[]).len(), 1);
    }

    #[test]
    fn a_sync_that_is_missing_is_told() {
        let step = |call, paths: &[&str]| Step {
            call,
            paths: paths.iter().map(|path| format!("/s{path}")).collect(),
        };
        let mut right: Vec<Step> = ["/resource.html", "/state.json", "/manifest.json", ""]
            .iter()
            .map(|file| step(SYS_fsync, &[&format!("/staging/x{file}")]))
            .collect();
        right.push(step(SYS_renameat2, &["/staging/x", "/apps/x"]));
        right.push(step(SYS_fsync, &["/apps"]));
        assert_eq!(synced_before_shown(&right), [] as [&str; 0]);
        for at in 0..right.len() {
            let mut without = right.clone();
            without.remove(at);
            assert!(!synced_before_shown(&without).is_empty(), "{at}");
        }
    }
}
