//! The configuration, and the folders and the socket that it names.

use super::Finding;
use crate::config::{USUAL, environment, usual};
use crate::socket;
use crate::terminal::size;
use mono_config::{Loaded, Report, Status};
use nix::unistd::{AccessFlags, access, geteuid};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Checks the configuration; gives it when it can be used.
pub(super) fn configuration(
    named: Option<&Path>,
    env_file: Option<&Path>,
) -> (Vec<Finding>, Option<Loaded>) {
    const CHECK: &str = "config";
    let Some(path) = named.or(usual()) else {
        let [here, installed] = USUAL;
        let detail = format!(
            "neither {here} nor {installed} is there; name the daemon's with --config to have it checked"
        );
        return (vec![Finding::info(CHECK, detail)], None);
    };
    let remedy = format!(
        "correct it; `monoctl config check --config {}` shows all of it",
        path.display()
    );
    let env = match environment(env_file) {
        Ok(env) => env,
        Err(errors) => {
            return (
                vec![Finding::missing(CHECK, errors.to_string(), remedy)],
                None,
            );
        }
    };
    let report = mono_config::check(path, &env);
    let mut findings = vec![summary(path, &report, &remedy)];
    for section in report
        .sections
        .iter()
        .filter(|s| s.status == Status::Waiting)
    {
        let detail = format!("{} waits: {}", section.id, section.details.join("; "));
        findings.push(Finding::info(CHECK, detail));
    }
    (findings, mono_config::load(path, &env).ok())
}

fn summary(path: &Path, report: &Report, remedy: &str) -> Finding {
    let wrong = report.sections.iter().filter(|s| s.status == Status::Error);
    let wrong: Vec<_> = wrong
        .map(|s| format!("{}: {}", s.id, s.details.join("\n")))
        .collect();
    if wrong.is_empty() {
        let ready = report.sections.iter().filter(|s| s.status == Status::Ok);
        let detail = format!("{}: {} sections are ready", path.display(), ready.count());
        return Finding::ok("config", detail);
    }
    Finding::missing("config", wrong.join("\n"), remedy)
}

/// The admin socket: the named one, else the configuration's if it is there, else a usual one.
pub(super) fn socket_path(named: Option<&Path>, loaded: Option<&Loaded>) -> Option<PathBuf> {
    let exists = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    let variable = std::env::var_os("MONO_SOCKET");
    let configured = loaded.map(|l| l.config.runtime.state_dir.join("monod.sock"));
    let unnamed = named.is_none() && variable.as_ref().is_none_or(|v| v.is_empty());
    if unnamed && let Some(path) = configured.filter(|path| exists(path)) {
        return Some(path);
    }
    socket::find(named, variable, exists).ok()
}

/// Who the daemon is: the owner of its socket, else whoever asks.
pub(super) fn daemons_user(socket: Option<&Path>) -> u32 {
    let meta = socket.and_then(|path| std::fs::symlink_metadata(path).ok());
    let owner = meta.filter(|m| m.file_type().is_socket()).map(|m| m.uid());
    owner.unwrap_or_else(|| geteuid().as_raw())
}

/// The state directory, as the daemon checks it at its start.
pub(super) fn state(path: &Path, user: u32) -> Finding {
    const CHECK: &str = "state";
    let shown = path.display();
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let above = path.ancestors().find(|above| above.exists());
            return match above {
                Some(above) if !writable(above, user) => Finding::missing(
                    CHECK,
                    format!(
                        "{shown} is not there, and user {user} can't make it in {}",
                        above.display()
                    ),
                    format!(
                        "make it: install -d -m 0700 -o {user} {shown}; or set runtime.stateDir"
                    ),
                ),
                _ => Finding::ok(CHECK, format!("{shown} is made at the first start")),
            };
        }
        Err(e) => {
            let remedy = "ask as the user that runs the daemon, or as root";
            return Finding::missing(CHECK, format!("{shown} can't be looked at: {e}"), remedy);
        }
    };
    if let Some((detail, remedy)) = unfit_state(&meta, user) {
        let remedy = remedy.replace("PATH", &shown.to_string());
        return Finding::missing(CHECK, format!("{shown} {detail}"), remedy);
    }
    if !writable(path, user) {
        return Finding::missing(
            CHECK,
            format!("{shown} can't be written"),
            "is its file system read-only? mount it writable, or set runtime.stateDir to another place",
        );
    }
    let mode = meta.mode() & 0o7777;
    Finding::ok(
        CHECK,
        format!("{shown}, mode {mode:04o}, owned by user {user}"),
    )
}

fn unfit_state(meta: &Metadata, user: u32) -> Option<(String, String)> {
    if !meta.is_dir() {
        let remedy = "remove it, or set runtime.stateDir to a folder";
        return Some(("is no folder".to_owned(), remedy.to_owned()));
    }
    if meta.uid() != user {
        let detail = format!("belongs to user {}, the daemon is user {user}", meta.uid());
        return Some((
            detail,
            format!("chown {user} PATH, or set runtime.stateDir"),
        ));
    }
    (meta.mode() & 0o022 != 0).then(|| {
        let detail = format!(
            "can be written by others (mode {:04o})",
            meta.mode() & 0o7777
        );
        (detail, "chmod go-w PATH".to_owned())
    })
}

/// Whether the daemon could write there; only known when the daemon is who asks.
fn writable(path: &Path, user: u32) -> bool {
    geteuid().as_raw() != user || access(path, AccessFlags::W_OK).is_ok()
}

/// The workspace: shared by group when the daemon is root, since runs are other users then.
pub(super) fn workspace(path: &Path, user: u32) -> Finding {
    const CHECK: &str = "workspace";
    let shown = path.display();
    let meta = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => meta,
        Ok(_) => {
            let detail = format!("{shown} is no folder");
            return Finding::missing(CHECK, detail, "set runtime.workspace to a folder");
        }
        Err(e) => {
            let remedy = format!("make it: mkdir -p {shown}; or set runtime.workspace");
            return Finding::missing(CHECK, format!("{shown} can't be used: {e}"), remedy);
        }
    };
    match (user, shared(&meta)) {
        (0, true) => Finding::ok(CHECK, format!("{shown}, shared with group {}", meta.gid())),
        (0, false) => Finding::missing(
            CHECK,
            format!(
                "{shown} is not shared with the users that agents run as when the daemon is root"
            ),
            format!(
                "chgrp GROUP {shown} && chmod g+rwxs {shown}, or run monod as an ordinary user"
            ),
        ),
        _ if !writable(path, user) => Finding::missing(
            CHECK,
            format!("{shown} can't be written by user {user}"),
            format!("chown {user} {shown}, or set runtime.workspace"),
        ),
        _ => Finding::ok(CHECK, shown.to_string()),
    }
}

/// Free bytes below which turns and files soon fail.
const LITTLE_ROOM: u64 = 64 << 20;

/// Room on the file system of what the daemon writes.
pub(super) fn disk(folders: &[(&str, &Path)]) -> Vec<Finding> {
    const CHECK: &str = "disk";
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    for (key, path) in folders {
        // What is made at the first start is made there.
        let Some(there) = path.ancestors().find(|above| above.exists()) else {
            continue;
        };
        let (Ok(meta), Ok(room)) = (std::fs::metadata(there), nix::sys::statvfs::statvfs(there))
        else {
            continue;
        };
        if seen.contains(&meta.dev()) {
            continue;
        }
        seen.push(meta.dev());
        let free = room.blocks_available() * room.fragment_size();
        let entries = room.files() == 0 || room.files_available() > 0;
        findings.push(judge_room(CHECK, key, there, free, entries));
    }
    findings
}

fn judge_room(check: &'static str, key: &str, path: &Path, free: u64, entries: bool) -> Finding {
    let shown = path.display();
    let room = size(free);
    if free >= LITTLE_ROOM && entries {
        return Finding::ok(check, format!("{room} free at {shown} ({key})"));
    }
    let detail = match entries {
        true => format!("only {room} free at {shown} ({key})"),
        false => format!("no room for another file at {shown} ({key}): its inodes are used up"),
    };
    let remedy = format!("free space there, or set {key} to another file system");
    Finding::missing(check, detail, remedy)
}

fn shared(meta: &Metadata) -> bool {
    meta.gid() != 0 && meta.mode() & 0o070 == 0o070
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::State;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn me() -> u32 {
        geteuid().as_raw()
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_state_directory_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let absent = state(&path, me());
        assert!(absent.state == State::Ok && !path.exists(), "{absent:?}");
        std::fs::create_dir(&path).unwrap();
        for (bits, good) in [
            (0o700, State::Ok),
            (0o711, State::Ok),
            (0o770, State::Missing),
            (0o702, State::Missing),
        ] {
            mode(&path, bits);
            assert_eq!(state(&path, me()).state, good, "{bits:o}");
        }
        let shown = path.display().to_string();
        assert_eq!(
            state(&path, me()).remedy.unwrap(),
            format!("chmod go-w {shown}")
        );
        mode(&path, 0o700);
        let others = state(&path, me() + 1);
        assert!(
            others
                .remedy
                .unwrap()
                .contains(&format!("chown {} {shown}", me() + 1))
        );
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(state(&file, me()).state, State::Missing);
    }

    #[test]
    fn a_daemon_that_is_root_needs_a_shared_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        mode(path, 0o700);
        assert_eq!(workspace(path, 0).state, State::Missing);
        assert!(workspace(path, 0).remedy.unwrap().contains("chmod g+rwxs"));
        assert_eq!(workspace(path, me().max(1)).state, State::Ok);
        assert_eq!(workspace(&path.join("nowhere"), me()).state, State::Missing);
        let file = path.join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(workspace(&file, me()).state, State::Missing);
        if me() == 0 {
            nix::unistd::chown(path, None, Some(61_013.into())).unwrap();
            mode(path, 0o2770);
            assert_eq!(workspace(path, 0).state, State::Ok);
        }
    }

    #[test]
    fn a_full_disk_is_missing_room() {
        let path = Path::new("/state");
        for (free, entries, state) in [
            (LITTLE_ROOM, true, State::Ok),
            (LITTLE_ROOM - 1, true, State::Missing),
            (0, true, State::Missing),
            (1 << 40, false, State::Missing),
        ] {
            let found = judge_room("disk", "runtime.stateDir", path, free, entries);
            assert_eq!(found.state, state, "{free} {entries}");
            assert!(found.detail.contains("/state (runtime.stateDir)"));
            let remedy = found.remedy.unwrap_or_default();
            assert_eq!(remedy.contains("free space"), state == State::Missing);
        }
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("a/b");
        let folders = [
            ("runtime.stateDir", folder.path()),
            ("artifacts.dir", &absent),
        ];
        assert_eq!(disk(&folders).len(), 1, "one file system is told once");
    }

    #[test]
    fn a_configuration_that_was_named_must_be_there_and_right() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.json");
        let (findings, loaded) = configuration(Some(&file), None);
        assert!(findings[0].state == State::Missing && loaded.is_none());
        std::fs::write(&file, r#"{"runtime": {"modle": 1}}"#).unwrap();
        let (findings, _) = configuration(Some(&file), None);
        assert!(findings[0].detail.contains("runtime.modle"), "{findings:?}");
        assert!(
            findings[0]
                .remedy
                .as_deref()
                .unwrap()
                .contains("config check")
        );
        std::fs::write(folder.path().join("ID.md"), "x").unwrap();
        let good =
            r#"{"runtime": {"model": "demo:scripted"}, "context": {"identityPath": "ID.md"}}"#;
        std::fs::write(&file, good).unwrap();
        let (findings, loaded) = configuration(Some(&file), None);
        assert_eq!(findings[0].state, State::Ok, "{findings:?}");
        assert!(loaded.is_some());
    }
}
