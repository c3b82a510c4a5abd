//! The launcher that stays: what it starts, what it keeps, and what it makes of requests that are
//! none.

use crate::fixture::{Fixture, binary, is_root};
use ipc_proto::Role;
use mono_sys::memfd::sealed_memfd;
use mono_sys::process::{
    Child, ExitStatus, Namespaces, Spawn, own_namespaces, own_pidfd, pidfd_signal, spawn, wait,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use policy::exit::Step;
use policy::request::{self, Purpose, Reply};
use policy::spec::{Base, Entry, VERSION};
use policy::{Descriptors, Launch, Starter, compile, violation};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a probe says, started by this starter.
fn run(starter: &mut Starter, fixture: &Fixture, role: Role, actions: &[&str]) -> String {
    let launch = compile(role, &fixture.context(role)).unwrap();
    run_as(starter, launch, actions)
}

fn run_as(starter: &mut Starter, mut launch: Launch, actions: &[&str]) -> String {
    let actions = actions.iter().map(|action| (*action).to_owned());
    launch.spec.arguments.extend(actions);
    let launcher = File::open(binary("mono-launch")).unwrap();
    let program = File::open(binary("launch-probe")).unwrap();
    let (mut output, writer) = std::io::pipe().unwrap();
    let (violations, theirs) = violation::channel().unwrap();
    let stderr = std::io::stderr();
    let started = starter.start(
        &launch,
        &Descriptors {
            launcher: launcher.as_fd(),
            program: Some(program.as_fd()),
            control: None,
            input: None,
            output: Some(writer.as_fd()),
            error: Some(stderr.as_fd()),
            violations: theirs.as_fd(),
            cgroup: None,
        },
    );
    let child = started.unwrap();
    drop((writer, theirs));
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(wait(&child.pidfd).unwrap(), ExitStatus::Exited(0), "{text}");
    drop(violations);
    text
}

fn line<'a>(text: &'a str, action: &str) -> &'a str {
    let found = text.lines().find_map(|line| {
        line.strip_prefix(action)
            .and_then(|rest| rest.strip_prefix(" = "))
    });
    found.unwrap_or_else(|| panic!("no outcome of {action}: {text}"))
}

fn descriptors_of(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

#[test]
fn the_launcher_of_runs_stays_and_gathers_nothing() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    run(&mut starter, &fixture, Role::Run, &["pid"]);
    let pid = starter.staying().unwrap();
    settled(pid);
    let before = descriptors_of(pid);
    for _ in 0..20 {
        let text = run(&mut starter, &fixture, Role::Run, &["pid", "descriptors"]);
        assert_eq!(line(&text, "pid"), "1");
        assert_eq!(line(&text, "descriptors"), "0 1 2");
    }
    assert_eq!(starter.staying(), Some(pid));
    settled(pid);
    assert_eq!(descriptors_of(pid), before);
    run(&mut starter, &fixture, Role::Store, &["pid"]);
    assert_eq!(
        starter.staying(),
        Some(pid),
        "another role has its own, which ends"
    );
    starter.let_go();
    assert_eq!(starter.staying(), None);
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "and is reaped"
    );
}

#[test]
fn what_one_process_leaves_behind_the_next_of_the_same_launcher_does_not_find() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    let leave = [
        "write:/tmp/left",
        "write:/left",
        "write:/.own/left",
        "write:/etc/left",
    ];
    let text = run(&mut starter, &fixture, Role::Run, &leave);
    assert_eq!(line(&text, leave[0]), "done");
    for refused in &leave[1..] {
        let outcome = line(&text, refused);
        assert!(
            ["EROFS", "EACCES", "ENOENT"].contains(&outcome),
            "{refused}: {outcome}"
        );
    }
    let look = ["read:/tmp/left", "list:/tmp", "run:id -u; uname -n"];
    let text = run(&mut starter, &fixture, Role::Run, &look);
    assert_eq!(line(&text, "read:/tmp/left"), "ENOENT");
    assert!(!line(&text, "list:/tmp").contains("left"), "{text}");
    assert!(line(&text, look[2]).ends_with("|mono"), "{text}");
}

/// Namespaces that the launcher makes before there is a process to have them.
fn made_before() -> &'static [&'static str] {
    match is_root() {
        true => &["net", "ipc", "uts", "mnt"],
        false => &["net", "ipc", "uts"],
    }
}

/// Waits until the launcher waits for a request, everything made that is made before the next: it
/// sleeps longer than it would before it begins with that, and what takes the kernel long in between is
/// no interruptible sleep.
///
/// Two looks say that it slept all the time between them when it had not been on a processor: on a busy
/// machine this thread may be away for longer than the launcher needs to begin and not to end.
fn settled(launcher: i32) {
    const LONG: Duration = Duration::from_millis(50);
    let until = Instant::now() + Duration::from_secs(60);
    let look = || {
        let status = std::fs::read_to_string(format!("/proc/{launcher}/status")).unwrap();
        let told = |line: &&str| line.starts_with("State:") || line.contains("ctxt_switches:");
        status.lines().filter(told).collect::<Vec<_>>().join("; ")
    };
    let (mut seen, mut since) = (look(), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let long = since.elapsed() >= LONG;
        let now = look();
        if now != seen || !now.contains("S (sleeping)") {
            (seen, since) = (now, Instant::now());
        } else if long {
            return;
        }
        assert!(Instant::now() < until, "the launcher never rests: {seen}");
    }
}

/// The namespaces that the launcher has ready, by name. As long as they are held open the kernel
/// gives no other one of these names.
fn ready(launcher: i32) -> Vec<(String, File)> {
    settled(launcher);
    let namespace = |kind: &&str| {
        let place = format!("/proc/{launcher}/ns/{kind}");
        let held = File::open(&place).unwrap();
        let name = std::fs::read_link(&place).unwrap();
        (name.to_string_lossy().into_owned(), held)
    };
    made_before().iter().map(namespace).collect()
}

#[test]
fn namespaces_that_were_made_before_are_used_once() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    let look = |kind: &&str| format!("run:readlink /proc/self/ns/{kind}");
    let looks: Vec<String> = made_before().iter().map(look).collect();
    let mut actions: Vec<&str> = looks.iter().map(String::as_str).collect();
    actions.extend(["loopback", "tcp:192.0.2.1:9", "run:uname -n"]);
    let machine = own_namespaces().unwrap();
    let mut held: Vec<(String, File)> = Vec::new();
    for _ in 0..4 {
        let text = run(&mut starter, &fixture, Role::Run, &actions);
        let own = looks
            .iter()
            .map(|look| line(&text, look).rsplit(' ').next());
        let own: Vec<&str> = own.map(Option::unwrap).collect();
        assert!(own.iter().all(|name| name.ends_with(']')), "{text}");
        assert!(
            !own.iter()
                .any(|name| machine.iter().any(|theirs| theirs == name))
        );
        assert_eq!(line(&text, "loopback"), "done");
        assert_eq!(line(&text, "tcp:192.0.2.1:9"), "ENETUNREACH");
        assert!(line(&text, "run:uname -n").ends_with(" mono"), "{text}");
        if let Some(start) = held.len().checked_sub(own.len()) {
            let before: Vec<&str> = held[start..].iter().map(|(name, _)| &**name).collect();
            assert_eq!(own, before, "they were made before and not used");
        }
        // The launcher leaves them to the process.
        for (name, file) in ready(starter.staying().unwrap()) {
            assert!(held.iter().all(|(seen, _)| *seen != name), "{name} again");
            held.push((name, file));
        }
    }
}

#[test]
fn mounts_that_were_made_before_have_nothing_of_another_process() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    let look = "run:cat /proc/self/mountinfo";
    let mut sizes = BTreeSet::new();
    for number in 0..4 {
        let scratch = format!("scratch-{number}");
        let mut context = fixture.context(Role::Run);
        let place = fixture.path(&scratch);
        std::fs::create_dir(&place).unwrap();
        if let Some(who) = &context.identity {
            std::os::unix::fs::chown(&place, Some(who.uid), Some(who.gid)).unwrap();
        }
        context.scratch = Some(place);
        let launch = compile(Role::Run, &context).unwrap();
        let text = run_as(&mut starter, launch, &[look]);
        let mounts: Vec<&str> = line(&text, look).split('|').collect();
        let scratches = mounts.iter().filter(|mount| mount.contains("/scratch-"));
        let scratches: Vec<&&str> = scratches.collect();
        assert!(
            matches!(scratches[..], [only] if only.contains(&scratch)),
            "{text}"
        );
        sizes.insert(mounts.len());
        settled(starter.staying().unwrap());
    }
    assert_eq!(sizes.len(), 1, "as many mounts each time: {sizes:?}");
}

#[test]
fn what_was_made_before_ends_with_its_launcher() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    run(&mut starter, &fixture, Role::Run, &["pid"]);
    let before = ready(starter.staying().unwrap());
    starter.let_go();
    // They are held here, and nobody is in them.
    let mut left = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let held = made_before().iter().filter_map(|kind| {
            let link = std::fs::read_link(process.path().join("ns").join(kind)).ok()?;
            Some(link.to_string_lossy().into_owned())
        });
        left.extend(held.filter(|name| before.iter().any(|(made, _)| made == name)));
    }
    assert_eq!(left, [""; 0]);
}

#[test]
fn another_view_has_another_launcher() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    run(&mut starter, &fixture, Role::Run, &["pid"]);
    let first = starter.staying().unwrap();
    let mut launch = compile(Role::Run, &fixture.context(Role::Run)).unwrap();
    let view = launch.view.as_mut().unwrap();
    view.entries.push(Entry::Text {
        path: "/etc/motd".into(),
        text: "new".into(),
    });
    let text = run_as(&mut starter, launch, &["read:/etc/motd"]);
    assert_eq!(line(&text, "read:/etc/motd"), "new");
    assert_ne!(starter.staying(), Some(first));
}

#[test]
fn a_launcher_that_was_killed_is_replaced_and_what_it_started_lives_on() {
    let fixture = Fixture::new();
    let mut starter = Starter::default();
    run(&mut starter, &fixture, Role::Run, &["pid"]);
    let first = starter.staying().unwrap();
    nix::sys::signal::kill(Pid::from_raw(first), nix::sys::signal::SIGKILL).unwrap();
    run(&mut starter, &fixture, Role::Run, &["pid"]);
    let second = starter.staying().unwrap();
    assert_ne!(first, second);
    let gone = waitpid(Pid::from_raw(first), Some(WaitPidFlag::WNOHANG));
    assert_eq!(gone, Err(Errno::ECHILD), "the first was reaped");

    // And one that dies over a request.
    let pid = Pid::from_raw(second);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
    let killer = std::thread::spawn(move || {
        // Until the request waits for it: its socket is its only one.
        while !std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .contains(") T ")
        {
            std::thread::yield_now();
        }
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
    });
    let text = run(&mut starter, &fixture, Role::Run, &["pid"]);
    killer.join().unwrap();
    assert_eq!(line(&text, "pid"), "1");
    assert_ne!(starter.staying(), Some(second));
}

/// A launcher without a starter, for packets of any kind.
struct Bare {
    launch: Launch,
    process: Child,
    requests: OwnedFd,
    program: OwnedFd,
    violations: (OwnedFd, OwnedFd),
}

impl Bare {
    fn new(fixture: &Fixture) -> Self {
        let launch = compile(Role::Store, &fixture.context(Role::Store)).unwrap();
        let base = Base {
            version: VERSION,
            namespaces: launch.namespaces.bits(),
            stays: true,
            ids: launch.id_map.map(|ids| (ids.uid, ids.gid)),
            supervisors: own_namespaces().unwrap(),
            view: launch.view.clone(),
            filter: launch.filter.as_ref().clone(),
        };
        let base = sealed_memfd(c"base", &ipc_proto::codec::encode(&base).unwrap()).unwrap();
        let (requests, theirs) = violation::channel().unwrap();
        let own = own_pidfd().unwrap();
        let launcher = File::open(binary("mono-launch")).unwrap();
        let namespaces = match is_root() {
            true => Namespaces::MOUNT,
            false => Namespaces::MOUNT | Namespaces::USER,
        };
        let process = spawn(&Spawn {
            exe: launcher.as_fd(),
            argv: vec![c"mono-launch".into(), c"bare".into()],
            env: vec![],
            fds: vec![(theirs.as_fd(), 3), (base.as_fd(), 4), (own.as_fd(), 5)],
            namespaces,
            id_map: launch.id_map,
            cgroup: None,
        });
        Self {
            launch,
            process: process.unwrap(),
            requests,
            program: File::open(binary("launch-probe")).unwrap().into(),
            violations: violation::channel().unwrap(),
        }
    }

    fn ask(&self, descriptors: &[(Purpose, BorrowedFd<'_>)]) -> Option<Child> {
        request::send(&self.requests, &self.launch.spec, descriptors).unwrap();
        let mut ready = [PollFd::new(self.requests.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::NONE).unwrap();
        match request::answer(&self.requests).unwrap()? {
            (Reply::Started { pid }, Some(pidfd)) => Some(Child { pid, pidfd }),
            other => panic!("{other:?}"),
        }
    }

    /// How the launcher ends after this packet, with nothing started for it.
    #[track_caller]
    fn refuses(self, bytes: &[u8]) {
        nix::unistd::write(&self.requests, bytes).unwrap();
        assert_eq!(
            wait(&self.process.pidfd).unwrap(),
            ExitStatus::Exited(i32::from(Step::Spec.code()))
        );
        assert!(request::answer(&self.requests).unwrap().is_none());
        self.has_left_nothing();
    }

    #[track_caller]
    fn has_left_nothing(&self) {
        let group = Pid::from_raw(-self.process.pid);
        assert_eq!(
            waitpid(group, Some(WaitPidFlag::WNOHANG)),
            Err(Errno::ECHILD)
        );
    }
}

#[test]
fn packets_that_are_no_requests_start_nothing() {
    let fixture = Fixture::new();
    let spec = |bare: &Bare| ipc_proto::codec::encode(&(Vec::<Purpose>::new(), &bare.launch.spec));
    let bare = Bare::new(&fixture);
    let good = spec(&bare).unwrap();
    bare.refuses(b"x");
    Bare::new(&fixture).refuses(&good[..good.len() - 1]);
    Bare::new(&fixture).refuses(&[&good[..], b"x"].concat());
    Bare::new(&fixture).refuses(&vec![0xff; 60 * 1024]);
    Bare::new(&fixture).refuses(&vec![0; 100 * 1024]);
    // One descriptor is announced and none comes.
    let announced = ipc_proto::codec::encode(&(vec![Purpose::Program], &bare_spec(&fixture)));
    Bare::new(&fixture).refuses(&announced.unwrap());
}

fn bare_spec(fixture: &Fixture) -> policy::LaunchSpec {
    compile(Role::Store, &fixture.context(Role::Store))
        .unwrap()
        .spec
}

#[test]
fn a_request_with_the_wrong_descriptors_starts_nothing_or_fails_by_itself() {
    let fixture = Fixture::new();
    let bare = Bare::new(&fixture);
    let program = bare.program.as_fd();
    // Two for one purpose: the launcher trusts such a supervisor no more.
    assert!(
        bare.ask(&[(Purpose::Program, program), (Purpose::Program, program)])
            .is_none()
    );
    let end = wait(&bare.process.pidfd).unwrap();
    assert_eq!(end, ExitStatus::Exited(i32::from(Step::Spec.code())));
    bare.has_left_nothing();

    let bare = Bare::new(&fixture);
    let theirs = bare.violations.1.as_fd();
    let (release, _writer) = std::io::pipe().unwrap();
    for lacking in [
        vec![],
        vec![(Purpose::Program, program), (Purpose::Violations, theirs)],
        vec![
            (Purpose::Release, release.as_fd()),
            (Purpose::Violations, theirs),
        ],
    ] {
        let child = bare.ask(&lacking).unwrap();
        let end = wait(&child.pidfd).unwrap();
        assert_eq!(
            end,
            ExitStatus::Exited(i32::from(Step::Spec.code())),
            "{lacking:?}"
        );
    }
    drop(bare.requests);
    assert_eq!(
        wait(&bare.process.pidfd).unwrap(),
        ExitStatus::Exited(0),
        "no more requests"
    );
}

#[test]
fn a_process_that_nobody_knows_of_does_not_become_the_program() {
    let fixture = Fixture::new();
    let bare = Bare::new(&fixture);
    let (release, writer) = std::io::pipe().unwrap();
    let all = [
        (Purpose::Release, release.as_fd()),
        (Purpose::Program, bare.program.as_fd()),
        (Purpose::Violations, bare.violations.1.as_fd()),
    ];
    let child = bare.ask(&all).unwrap();
    // It is in the launcher's group, and the launcher can go.
    pidfd_signal(&bare.process.pidfd, 9).unwrap();
    assert_eq!(wait(&bare.process.pidfd).unwrap(), ExitStatus::Signalled(9));
    let group = Pid::from_raw(-bare.process.pid);
    assert!(waitpid(group, Some(WaitPidFlag::WNOHANG)).is_ok());
    drop(writer);
    let end = wait(&child.pidfd).unwrap();
    assert_eq!(end, ExitStatus::Exited(i32::from(Step::Supervisor.code())));
    bare.has_left_nothing();
}
