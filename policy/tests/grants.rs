//! What each profile grants stands written out in `tests/expected/`. A change of a data file, of
//! the code that reads it, or of a crate that names rights shows there as a difference, to be
//! looked at and committed with the change. `MONO_BLESS=1 cargo test -p policy` writes the files.
#![allow(clippy::unwrap_used)]
// System calls have other names and numbers elsewhere.
#![cfg(target_arch = "x86_64")]

use ipc_proto::Role;
use std::path::Path;

#[test]
fn every_profile_grants_what_is_written_down_and_nothing_else() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected");
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Monod) {
        let file = place.join(format!("{role}.txt"));
        let found = policy::explain(role).unwrap();
        if std::env::var_os("MONO_BLESS").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        let mut differing = found.lines().zip(expected.lines()).filter(|(a, b)| a != b);
        if let Some((found, expected)) = differing.next() {
            panic!(
                "{role}: the profile says\n  {found}\nand {}\n  {expected}",
                file.display()
            );
        }
        assert_eq!(
            found.lines().count(),
            expected.lines().count(),
            "{}",
            file.display()
        );
    }
}

/// Names that no worker's second stage may allow, whatever else changes.
#[test]
fn no_worker_of_ours_but_the_run_can_start_anything() {
    let forbidden = [
        "execve", "execveat", "fork", "vfork", "clone3", "ptrace", "mount", "setuid",
    ];
    for role in Role::ALL {
        if matches!(role, Role::Monod | Role::Run | Role::McpServer) {
            continue;
        }
        let text = policy::explain(role).unwrap();
        let mut lists = text
            .lines()
            .filter_map(|line| line.strip_prefix("stage 2 allows: "));
        assert!(lists.clone().count() > 0, "{role}");
        for call in forbidden {
            assert!(
                lists.all(|list| list.split(' ').all(|name| name != call)),
                "{role}: {call}"
            );
        }
    }
}

#[test]
fn only_roles_that_need_the_network_can_make_sockets() {
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Monod) {
        let profile = policy::Profile::of(role).unwrap();
        let text = policy::explain(role).unwrap();
        let makes = text.lines().any(|line| line.starts_with("stage 1 socket:"));
        let may = profile.network != policy::Network::None || role == Role::Run;
        assert_eq!(makes, may, "{role}");
    }
}

/// The kernel counts the descriptors that the processes of one user have on their way together,
/// and refuses to send more to whom they are above the own limit of open files.
#[test]
fn no_run_can_use_up_the_descriptors_that_workers_send() {
    let open_files = |role: Role| {
        let profile = policy::Profile::of(role).unwrap();
        let limits = profile.limits.into_iter();
        let mut limits = limits.filter(|limit| limit.resource == policy::Resource::OpenFiles);
        limits.next().unwrap().value
    };
    for role in Role::ALL {
        if !matches!(role, Role::Monod | Role::Run | Role::McpServer) {
            assert!(open_files(role) >= 2 * open_files(Role::Run), "{role}");
            assert!(
                open_files(role) >= 2 * open_files(Role::McpServer),
                "{role}"
            );
        }
    }
}
