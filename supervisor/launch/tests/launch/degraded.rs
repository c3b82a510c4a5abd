//! Without namespaces: Landlock, the filters and no_new_privs alone.

use crate::fixture::{Fixture, is_root};
use ipc_proto::Role;
use mono_sys::process::ExitStatus;

#[test]
fn without_namespaces_landlock_and_the_filters_still_hold() {
    let mut fixture = Fixture::new();
    fixture.degraded = true;
    let workspace = fixture.text("workspace");
    let write = format!("write:{workspace}/made");
    let secret = format!("read:{}", fixture.text("outside/secret"));
    let outside = format!("write:{}", fixture.text("outside/made"));
    let probes = format!("probes:run:{}", fixture.text("outside"));
    let ended = fixture.probe(
        Role::Run,
        &[
            "status",
            "read:/etc/shadow",
            "list:/",
            &write,
            &secret,
            &outside,
            "stage2:run",
            &probes,
            "tcp:127.0.0.1:1",
            "run:ls -d /usr",
            "hopeless:socket",
        ],
    );
    assert_eq!(ended.status, ExitStatus::Exited(0), "{ended:?}");
    let status = ended.of("status");
    assert!(status.contains("seccomp 2 nnp true caps 0"), "{status}");
    assert!(!status.starts_with("uid 0 "), "{status}");
    if is_root() {
        assert!(status.ends_with("obtainable 0"), "{status}");
    }
    for refused in ["read:/etc/shadow", "list:/", &secret, &outside] {
        assert_eq!(ended.of(refused), "EACCES", "{refused}: {ended:?}");
    }
    assert_eq!(ended.of(&write), "done");
    assert_eq!(ended.of("stage2:run"), "landlock true filters 2");
    assert!(ended.of(&probes).ends_with(" held"), "{ended:?}");
    // The machine's network is in reach, so there is no socket at all.
    assert_eq!(ended.of("tcp:127.0.0.1:1"), "ENOSYS");
    assert_eq!(ended.of("hopeless:socket"), "ENOSYS");
    assert_eq!(ended.of("run:ls -d /usr"), "exit status: 0 /usr");
}

#[test]
fn without_namespaces_a_forbidden_call_is_named_too() {
    let mut fixture = Fixture::new();
    fixture.degraded = true;
    for role in [Role::Run, Role::Store] {
        let stage2 = format!("stage2:{role}");
        let ended = fixture.probe(role, &[&stage2, "hopeless:ptrace"]);
        assert_eq!(ended.status, ExitStatus::Signalled(9), "{ended:?}");
        let calls: Vec<_> = ended.forbidden.iter().map(|found| found.call).collect();
        assert_eq!(calls, ["ptrace"], "{role}");
    }
}

#[test]
fn every_worker_of_ours_holds_without_namespaces() {
    let mut fixture = Fixture::new();
    fixture.degraded = true;
    for role in Role::ALL {
        if matches!(role, Role::Monod | Role::McpServer) {
            continue;
        }
        let stage2 = format!("stage2:{role}");
        let probes = format!("probes:{role}:{}", fixture.text("outside"));
        let ended = fixture.probe(role, &[&stage2, &probes]);
        assert_eq!(ended.status, ExitStatus::Exited(0), "{role}: {ended:?}");
        assert_eq!(ended.of(&stage2), "landlock true filters 2", "{role}");
        assert!(ended.of(&probes).ends_with(" held"), "{role}: {ended:?}");
    }
}

#[test]
fn what_must_stay_hidden_in_a_workspace_refuses_a_start_without_namespaces() {
    let mut fixture = Fixture::new();
    fixture.degraded = true;
    let mut context = fixture.context(Role::Run);
    context.hidden = vec![fixture.path("workspace/.state")];
    let error = policy::compile(Role::Run, &context)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("workspace/.state") && error.contains("degraded"),
        "{error}"
    );
}
