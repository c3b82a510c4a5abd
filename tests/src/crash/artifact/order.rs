//! What has to be on the disk before what: the power may go at any call.

use super::super::Step;
use nix::libc::{SYS_fsync, SYS_openat, SYS_renameat2, SYS_write};

const STAGING: &str = "/reply-files/.staging/";
const LIVE: &str = "/reply-files";

/// What is wrong with the order of a publication's calls.
pub(super) fn of_publishing(steps: &[Step]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut moved = 0;
    for (at, step) in steps.iter().enumerate() {
        let [from, to] = step.paths.as_slice() else {
            continue;
        };
        if step.call == SYS_renameat2 && from.contains(STAGING) && !to.contains(STAGING) {
            moved += 1;
            // The directory's sync counts when both files are in it; each file's when it is whole.
            for file in ["/content", "/metadata.json", ""] {
                wrong.extend(unsynced(
                    &steps[..at],
                    &format!("{from}{file}"),
                    "its directory is moved",
                ));
            }
            wrong.extend(found(steps, at, to));
        }
    }
    if moved == 0 {
        wrong.push("nothing was moved into the live namespace".to_owned());
    }
    wrong
}

/// Whoever hears that it is done must find it after a power cut.
fn found(steps: &[Step], moved: usize, home: &str) -> Option<String> {
    let answered = steps.iter().rposition(|step| {
        step.call == SYS_write && step.paths.iter().any(|path| path.starts_with("pipe:"))
    });
    let synced = steps.iter().skip(moved).position(|step| {
        step.call == SYS_fsync && step.paths.iter().any(|path| path.ends_with(LIVE))
    });
    let in_time = matches!((synced, answered), (Some(at), Some(end)) if moved + at < end);
    (!in_time).then(|| format!("{home} may not be found after the answer: its name is not synced"))
}

/// `path` must have been synced after everything that was written to it or made in it.
fn unsynced(before: &[Step], path: &str, reason: &str) -> Option<String> {
    let on = |step: &Step| step.paths.iter().any(|own| own == path);
    let synced = before
        .iter()
        .rposition(|step| step.call == SYS_fsync && on(step));
    let inside = format!("{path}/");
    let changed = before.iter().rposition(|step| {
        let made = step.paths.iter().any(|own| own.starts_with(&inside));
        (step.call == SYS_write && on(step)) || (step.call == SYS_openat && made)
    });
    (synced.is_none() || synced < changed).then(|| format!("{path} is not synced when {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(call: i64, paths: &[&str]) -> Step {
        let paths = paths.iter().map(|path| format!("/s/reply-files{path}"));
        Step {
            call,
            paths: paths.collect(),
        }
    }

    fn publication() -> Vec<Step> {
        let mut steps = vec![
            step(SYS_openat, &["/.staging/x/content"]),
            step(SYS_write, &["/.staging/x/content"]),
            step(SYS_openat, &["/.staging/x/metadata.json"]),
            step(SYS_write, &["/.staging/x/metadata.json"]),
            step(SYS_fsync, &["/.staging/x/content"]),
            step(SYS_fsync, &["/.staging/x/metadata.json"]),
            step(SYS_fsync, &["/.staging/x"]),
            step(SYS_renameat2, &["/.staging/x", "/x"]),
            step(SYS_fsync, &[""]),
        ];
        steps.push(Step {
            call: SYS_write,
            paths: vec!["pipe:[1]".to_owned()],
        });
        steps
    }

    #[test]
    fn no_sync_can_be_left_out_and_none_can_come_late() {
        let right = publication();
        assert_eq!(of_publishing(&right), [] as [&str; 0]);
        assert_eq!(of_publishing(&[]).len(), 1);
        for at in 0..right.len() {
            if right[at].call != SYS_fsync {
                continue;
            }
            let mut without = right.clone();
            let sync = without.remove(at);
            assert!(!of_publishing(&without).is_empty(), "{sync:?}");
            without.push(sync.clone());
            assert!(!of_publishing(&without).is_empty(), "{sync:?} at the end");
        }
        // Written to after its sync.
        let mut late = right.clone();
        late.insert(6, step(SYS_write, &["/.staging/x/content"]));
        assert!(!of_publishing(&late).is_empty());
    }
}
