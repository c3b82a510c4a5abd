//! What workers of ours see and can do.

use crate::fixture::{Ended, Fixture, Hearing, is_root};
use ipc_proto::Role;
use mono_sys::process::{ExitStatus, try_wait, wait};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn ended_well(ended: &Ended) {
    assert_eq!(ended.status, ExitStatus::Exited(0), "{ended:?}");
    assert_eq!(ended.error, "");
}

/// Holds for every process, before and after the second stage.
fn assert_powerless(ended: &Ended) {
    let status = ended.of("status");
    assert!(
        !status.starts_with("uid 0 ") && !status.contains(" gid 0 "),
        "{status}"
    );
    assert!(
        status.ends_with("seccomp 2 nnp true caps 0 obtainable 0"),
        "{status}"
    );
    assert_eq!(ended.of("pid"), "1", "a pid namespace of its own");
    assert_eq!(ended.of("descriptors"), "0 1 2", "exactly what was passed");
}

const ALWAYS: [&str; 3] = ["status", "pid", "descriptors"];

#[test]
fn a_run_sees_its_workspace_its_scratch_directory_and_a_read_only_system() {
    let fixture = Fixture::new();
    let workspace = fixture.text("workspace");
    let write_work = format!("write:{workspace}/made");
    let read_secret = format!("read:{}", fixture.text("outside/secret"));
    let list_outside = format!("list:{}", fixture.path("").display());
    let mut actions = ALWAYS.to_vec();
    actions.extend([
        "directory",
        "groups",
        "list:/",
        "list:/etc",
        &write_work,
        "write:/scratch/made",
        "write:/tmp/made",
        "write:/made",
        "write:/usr/made",
        "write:/etc/made",
        "write:/proc/sys/kernel/core_pattern",
        "read:/etc/shadow",
        "read:/.landlock",
        &read_secret,
        &list_outside,
        "run:id -u; uname -n",
        "run:ls -d /usr /bin/ls; ps 2>/dev/null | wc -l",
    ]);
    let ended = fixture.probe(Role::Run, &actions);
    ended_well(&ended);
    assert_powerless(&ended);
    assert_eq!(ended.of("directory"), workspace);
    if is_root() {
        assert_eq!(ended.of("groups"), "", "none of root's groups");
    }
    for absent in ["root", "home", "var", "sys", "run"] {
        assert!(
            !ended.of("list:/").split(' ').any(|name| name == absent),
            "{ended:?}"
        );
    }
    assert!(!ended.of("list:/etc").contains("shadow"), "{ended:?}");
    for written in [&*write_work, "write:/scratch/made", "write:/tmp/made"] {
        assert_eq!(ended.of(written), "done", "{ended:?}");
    }
    for refused in ["write:/made", "write:/usr/made", "write:/etc/made"] {
        assert!(
            ["EROFS", "EACCES"].contains(&ended.of(refused)),
            "{refused}: {ended:?}"
        );
    }
    assert!(["EROFS", "EACCES"].contains(&ended.of("write:/proc/sys/kernel/core_pattern")));
    assert_eq!(ended.of("read:/etc/shadow"), "ENOENT");
    assert_eq!(ended.of("read:/.landlock"), "EACCES");
    assert_eq!(ended.of(&read_secret), "ENOENT");
    // The way to the workspace is there, and nothing else of that directory.
    assert_eq!(ended.of(&list_outside), "workspace");
    let user = ended.of("status").split(' ').nth(1).unwrap();
    assert_eq!(
        ended.of("run:id -u; uname -n"),
        format!("exit status: 0 {user}|mono")
    );
    assert_eq!(
        std::fs::read(fixture.path("workspace/made")).unwrap(),
        b"written"
    );
    assert_eq!(
        std::fs::read(fixture.path("scratch/made")).unwrap(),
        b"written"
    );
}

#[test]
fn what_lies_hidden_in_a_workspace_can_be_neither_read_nor_moved_away() {
    let fixture = Fixture::new();
    let inside = |name: &str| format!("{}/{name}", fixture.text("workspace"));
    let secret = format!("read:{}", inside(".state/secret"));
    let list = format!("list:{}", inside(".state"));
    let key = format!("read:{}", inside(".key"));
    let over = format!("write:{}", inside(".key"));
    let remove = format!("remove:{}", inside(".key"));
    let rename = format!("run:mv {} {}", inside(".state"), inside("seen"));
    let chmod = format!("run:chmod 777 {}", inside(".state"));
    let ended = fixture.probe(
        Role::Run,
        &[&chmod, &rename, &secret, &list, &key, &over, &remove],
    );
    ended_well(&ended);
    assert!(ended.of(&chmod).starts_with("exit status: 1"), "{ended:?}");
    assert!(ended.of(&rename).starts_with("exit status: 1"), "{ended:?}");
    for action in [&secret, &list, &key] {
        assert_eq!(ended.of(action), "EACCES", "{ended:?}");
    }
    assert!(["EACCES", "EROFS"].contains(&ended.of(&over)), "{ended:?}");
    assert_eq!(ended.of(&remove), "EBUSY");
    assert_eq!(
        std::fs::read(fixture.path("workspace/.key")).unwrap(),
        b"secret"
    );
}

#[test]
fn a_run_has_loopback_and_no_other_network() {
    let fixture = Fixture::new();
    let socket = fixture.path("outside/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let open = nix::sys::stat::Mode::from_bits_truncate(0o777);
    nix::sys::stat::fchmodat(
        nix::fcntl::AT_FDCWD,
        &socket,
        open,
        nix::sys::stat::FchmodatFlags::FollowSymlink,
    )
    .unwrap();
    let unix = format!("unix:{}", socket.display());
    let actions = [
        "loopback",
        "tcp:192.0.2.1:80",
        "udp:192.0.2.1:53",
        "tcp:[2001:db8::1]:80",
        &unix,
    ];
    let ended = fixture.probe(Role::Run, &actions);
    ended_well(&ended);
    assert_eq!(ended.of("loopback"), "done");
    assert_eq!(ended.of("tcp:192.0.2.1:80"), "ENETUNREACH");
    assert_eq!(ended.of("udp:192.0.2.1:53"), "ENETUNREACH");
    assert_eq!(ended.of("tcp:[2001:db8::1]:80"), "ENETUNREACH");
    assert_eq!(ended.of(&unix), "ENOENT");
}

#[test]
fn files_in_a_workspace_never_get_set_user_id_bits() {
    let fixture = Fixture::new();
    let chmod = format!("set-user-id:{}/made", fixture.text("workspace"));
    let make = format!("make-set-user-id:{}/other", fixture.text("workspace"));
    let write = format!("write:{}/made", fixture.text("workspace"));
    let ended = fixture.probe(Role::Run, &[&write, &chmod, &make]);
    ended_well(&ended);
    assert_eq!(ended.of(&write), "done");
    assert_eq!(ended.of(&chmod), "EPERM");
    assert_eq!(ended.of(&make), "EPERM");
}

#[test]
fn after_the_second_stage_a_store_has_its_files_and_nothing_else() {
    let fixture = Fixture::new();
    let mut actions = ALWAYS.to_vec();
    let probes = format!("probes:store:{}", fixture.text("outside"));
    actions.extend([
        "list:/",
        "read:/usr/bin/env",
        "stage2:store",
        &probes,
        "write:/state/new",
        "read:/state/new",
        "remove:/state/old",
        "thread",
        "tcp:127.0.0.1:1",
        "hopeless:clone3",
        "hopeless:socket",
        "hopeless:execve",
    ]);
    let ended = fixture.probe(Role::Store, &actions);
    ended_well(&ended);
    assert_powerless(&ended);
    assert_eq!(ended.of("list:/"), "EACCES");
    assert_eq!(ended.of("read:/usr/bin/env"), "EACCES");
    assert_eq!(ended.of("stage2:store"), "landlock true filters 2");
    assert!(ended.of(&probes).ends_with(" held"), "{ended:?}");
    assert_eq!(ended.of("read:/state/new"), "written");
    assert_eq!(ended.of("remove:/state/old"), "done");
    assert_eq!(ended.of("thread"), "done");
    assert_eq!(ended.of("tcp:127.0.0.1:1"), "ENOSYS");
    for call in ["clone3", "socket", "execve"] {
        assert_eq!(ended.of(&format!("hopeless:{call}")), "ENOSYS");
    }
}

#[test]
fn egress_has_the_machines_network_and_no_files_of_anyone() {
    let fixture = Fixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("tcp:{}", listener.local_addr().unwrap());
    let secret = format!("read:{}", fixture.text("outside/secret"));
    let probes = format!("probes:egress:{}", fixture.text("outside"));
    let mut actions = ALWAYS.to_vec();
    actions.extend([
        "read:/etc/nsswitch.conf",
        &secret,
        "stage2:egress",
        &probes,
        &tcp,
        "resolve:localhost",
        "stat:/etc/resolv.conf",
        "write:/etc/made",
        "loopback",
        "thread",
    ]);
    let ended = fixture.probe(Role::Egress, &actions);
    ended_well(&ended);
    assert_powerless(&ended);
    assert_eq!(ended.of("read:/etc/nsswitch.conf"), "hosts: files dns");
    assert_eq!(ended.of(&secret), "ENOENT");
    assert_eq!(ended.of("stage2:egress"), "landlock true filters 2");
    assert!(ended.of(&probes).ends_with(" held"), "{ended:?}");
    assert_eq!(ended.of(&tcp), "done");
    assert!(
        ended.of("resolve:localhost").contains("127.0.0.1"),
        "{ended:?}"
    );
    assert_eq!(ended.of("write:/etc/made"), "EACCES");
    // Binding a port is refused by Landlock.
    assert_eq!(ended.of("loopback"), "EACCES");
    assert_eq!(ended.of("thread"), "done");
}

#[test]
fn every_worker_of_ours_passes_its_second_stage_and_its_probes() {
    let fixture = Fixture::new();
    for role in Role::ALL {
        if matches!(role, Role::Monod | Role::McpServer) {
            continue;
        }
        let stage2 = format!("stage2:{role}");
        let probes = format!("probes:{role}:{}", fixture.text("outside"));
        let mut context = fixture.context(role);
        for network in [false, true] {
            context.network = network;
            let ended = fixture.probe_with(role, &context, &[&stage2, &probes, "thread"]);
            ended_well(&ended);
            assert_eq!(ended.of(&stage2), "landlock true filters 2", "{role}");
            assert!(ended.of(&probes).ends_with(" held"), "{role}: {ended:?}");
            assert_eq!(ended.of("thread"), "done", "{role}");
        }
    }
}

#[test]
fn hostile_calls_end_the_process_and_unknown_ones_do_not() {
    let fixture = Fixture::new();
    let hostile = [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "mount",
        "umount2",
        "pivot_root",
        "unshare",
        "setns",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "keyctl",
        "add_key",
        "request_key",
        "kexec_load",
        "init_module",
        "finit_module",
        "delete_module",
        "open_tree",
        "move_mount",
        "fsopen",
        "open_by_handle_at",
        "chroot",
        "swapon",
    ];
    for role in [Role::Run, Role::Store] {
        for call in hostile {
            let ended = fixture.probe(role, &[&format!("hopeless:{call}")]);
            ended_for(&ended, call);
        }
    }
    let ended = fixture.probe(Role::Run, &["hopeless:io_uring_setup", "hopeless:clone3"]);
    ended_well(&ended);
    assert_eq!(ended.of("hopeless:io_uring_setup"), "ENOSYS");
    assert_eq!(ended.of("hopeless:clone3"), "ENOSYS");
    let ended = fixture.probe(Role::Store, &["hopeless:io_uring_setup"]);
    ended_for(&ended, "io_uring_setup");
}

fn ended_for(ended: &Ended, call: &str) {
    assert_eq!(ended.status, ExitStatus::Signalled(9), "{call}: {ended:?}");
    let calls: Vec<_> = ended.forbidden.iter().map(|found| found.call).collect();
    assert_eq!(calls, [call], "{ended:?}");
    assert!(ended.forbidden[0].number > 0);
}

#[test]
fn a_second_filter_changes_nothing_about_who_is_ended_for_what() {
    let fixture = Fixture::new();
    for role in [Role::Run, Role::Store, Role::Egress] {
        let stage2 = format!("stage2:{role}");
        let ended = fixture.probe(role, &[&stage2, "hopeless:keyctl"]);
        assert_eq!(ended.of(&stage2), "landlock true filters 2", "{role}");
        ended_for(&ended, "keyctl");
    }
}

#[test]
fn what_a_worker_started_is_ended_and_named_without_it() {
    let fixture = Fixture::new();
    // A program of the system that tries to make namespaces.
    let command = "run:unshare -U true; echo $?";
    let ended = fixture.probe(Role::Run, &[command]);
    ended_well(&ended);
    assert_eq!(ended.of(command), "exit status: 0 137", "{ended:?}");
    let calls: Vec<_> = ended.forbidden.iter().map(|found| found.call).collect();
    assert_eq!(calls, ["unshare"]);
}

#[test]
fn a_launch_whose_listener_nobody_takes_fails_at_its_own_step() {
    let fixture = Fixture::new();
    let launch = policy::compile(Role::Store, &fixture.context(Role::Store)).unwrap();
    let ended = fixture.start_heard(&launch, true, Hearing::Nobody);
    let step = policy::exit::Step::Listener;
    assert_eq!(ended.status, ExitStatus::Exited(i32::from(step.code())));
    assert!(ended.error.contains(step.doing()), "{ended:?}");
    assert_eq!(ended.output, "");
}

#[test]
fn a_user_s_descriptors_on_their_way_keep_no_process_from_sending_its_listener() {
    let fixture = Fixture::new();
    let held = fixture.hold(Role::Run, &["send-descriptors"]);
    // Another of the same user, to whom the kernel now refuses at the limit of a run.
    let ended = fixture.probe(Role::Run, &["send-descriptors", "hopeless:ptrace"]);
    assert_eq!(ended.of("send-descriptors"), "ETOOMANYREFS", "{ended:?}");
    ended_for(&ended, "ptrace");
    drop(held.input);
    assert_eq!(wait(&held.child.pidfd).unwrap(), ExitStatus::Exited(0));
}

#[test]
fn a_forbidden_call_that_nobody_listens_for_is_not_made() {
    let fixture = Fixture::new();
    let mut launch = policy::compile(Role::Run, &fixture.context(Role::Run)).unwrap();
    let calls = [
        "hopeless:ptrace",
        "hopeless:mount",
        "run:unshare -U true; echo $?",
    ];
    launch.spec.arguments.extend(calls.map(str::to_owned));
    let ended = fixture.start_heard(&launch, true, Hearing::Dropped);
    ended_well(&ended);
    assert_eq!(ended.of(calls[0]), "ENOSYS");
    assert_eq!(ended.of(calls[1]), "ENOSYS");
    assert_eq!(ended.of(calls[2]), "exit status: 0 1");
}

/// Whatever a single process does, it is not given more than it may ask for.
#[test]
fn a_bound_of_private_memory_holds_for_each_process_and_cannot_be_raised() {
    let fixture = Fixture::new();
    let mut context = fixture.context(Role::Run);
    context.data_max = Some(256 << 20);
    let endless = "run:tail /dev/zero 2>&1; echo $?";
    let ended = fixture.probe_with(
        Role::Run,
        &context,
        &[endless, "run:ulimit -d 524288; ulimit -d"],
    );
    ended_well(&ended);
    assert!(ended.of(endless).ends_with("|1"), "{ended:?}");
    assert!(ended.of(endless).contains("memory exhausted"), "{ended:?}");
    assert!(
        ended
            .of("run:ulimit -d 524288; ulimit -d")
            .ends_with(" 262144"),
        "{ended:?}"
    );
    context.data_max = None;
    let ended = fixture.probe_with(Role::Run, &context, &["run:ulimit -d"]);
    assert!(
        ended.of("run:ulimit -d").ends_with("unlimited"),
        "{ended:?}"
    );
}

#[test]
fn the_environment_is_the_profiles_and_nothing_else() {
    let fixture = Fixture::new();
    let ended = fixture.probe(Role::Store, &["environment"]);
    assert_eq!(
        ended.of("environment"),
        "LANG=C.UTF-8|MONO_SANDBOX=isolated"
    );
    let mut context = fixture.context(Role::Store);
    context.environment = vec![("MONO_LOG".into(), "debug".into())];
    let ended = fixture.probe_with(Role::Store, &context, &["environment"]);
    assert!(
        ended.of("environment").contains("|MONO_LOG=debug|"),
        "{ended:?}"
    );
}

#[test]
fn what_is_in_force_can_be_seen_from_outside() {
    let fixture = Fixture::new();
    for (role, expected) in [
        (Role::Run, vec!["ipc", "mnt", "net", "pid", "user", "uts"]),
        (Role::Egress, vec!["ipc", "mnt", "pid", "user", "uts"]),
    ] {
        let held = fixture.hold(role, &[&format!("stage2:{role}")]);
        let seen = policy::inforce::of(held.child.pid).unwrap();
        assert_eq!(
            (seen.seccomp, seen.filters, seen.no_new_privs),
            (2, 2, true),
            "{seen:?}"
        );
        assert_eq!((seen.capabilities, seen.obtainable), (0, 0), "{seen:?}");
        assert_ne!(seen.uid, 0);
        // Root needs no user namespace to make the others.
        let expected: Vec<_> = expected
            .into_iter()
            .filter(|name| !(is_root() && *name == "user"))
            .collect();
        assert_eq!(seen.namespaces, Some(expected), "{role}");
        assert_eq!(try_wait(&held.child.pidfd).unwrap(), None);
        drop(held.input);
        assert_eq!(wait(&held.child.pidfd).unwrap(), ExitStatus::Exited(0));
    }
}

#[test]
fn a_process_does_not_outlive_the_one_that_started_it() {
    let fixture = Fixture::new();
    // The kernel tells a child of the end of the thread that made it, so a thread will do for
    // the supervisor.
    let held = std::thread::scope(|scope| {
        scope
            .spawn(|| fixture.hold(Role::Run, &["run:sleep 0"]))
            .join()
            .unwrap()
    });
    assert_eq!(wait(&held.child.pidfd).unwrap(), ExitStatus::Signalled(9));
}

#[test]
fn limits_are_in_force_and_cannot_be_raised() {
    let fixture = Fixture::new();
    let ask = "run:ulimit -n; ulimit -c; umask; ulimit -n 8192 || echo refused";
    let fill = "run:head -c 300000000 /dev/zero >/tmp/big; wc -c </tmp/big";
    let ended = fixture.probe(Role::Run, &[ask, fill]);
    ended_well(&ended);
    assert_eq!(ended.of(ask), "exit status: 0 4096|0|0022|refused");
    assert_eq!(
        ended.of(fill),
        "exit status: 0 268435456",
        "its own /tmp is bounded"
    );
    let bomb = "run:for i in $(seq 600); do sleep 60 >/dev/null 2>&1 & done 2>/dev/null";
    let mut context = fixture.context(Role::Run);
    // Processes are counted by user; the other tests' are not to be in the way, nor this in theirs.
    if let Some(who) = &mut context.identity {
        *who = policy::Identity::of(Role::Run, 1, policy::DEFAULT_BASE, None);
        std::os::unix::fs::chown(fixture.path("workspace"), Some(who.uid), None).unwrap();
    }
    let ended = fixture.probe_with(Role::Run, &context, &[bomb, "list:/proc"]);
    ended_well(&ended);
    let names = ended.of("list:/proc").split(' ');
    let processes = names.filter(|name| name.parse::<u32>().is_ok()).count();
    assert!((400..=512).contains(&processes), "{processes} processes");
}

#[test]
fn a_workspace_is_shared_by_its_group() {
    if !is_root() {
        eprintln!("only root can give a process a group: left out");
        return;
    }
    const GROUP: u32 = 12345;
    let fixture = Fixture::new();
    let workspace = fixture.path("workspace");
    let mut context = fixture.context(Role::Run);
    std::os::unix::fs::chown(&workspace, Some(4321), Some(GROUP)).unwrap();
    std::fs::set_permissions(&workspace, std::fs::Permissions::from_mode(0o2770)).unwrap();
    let write = format!("write:{}/made", workspace.display());
    let ended = fixture.probe_with(Role::Run, &context, &[&write]);
    assert_eq!(
        ended.status,
        ExitStatus::Exited(i32::from(policy::exit::Step::Directory.code()))
    );
    assert!(
        ended.error.contains("check the modes of the workspace"),
        "{ended:?}"
    );
    context.identity.as_mut().unwrap().groups = vec![GROUP];
    let ended = fixture.probe_with(Role::Run, &context, &[&write, "groups"]);
    assert_eq!(ended.of(&write), "done");
    assert_eq!(ended.of("groups"), GROUP.to_string());
    let made = std::fs::metadata(workspace.join("made")).unwrap();
    assert_eq!((made.gid(), made.mode() & 0o777), (GROUP, 0o664));
}
