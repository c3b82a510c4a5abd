//! What a confined start costs beside a plain one. Left out by default: it measures.
//! `cargo test -p mono-launch -- --ignored --nocapture cost`

use crate::fixture::{Fixture, binary};
use ipc_proto::Role;
use mono_sys::process::{Namespaces, Spawn, spawn, wait};
use policy::compile;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const ROUNDS: usize = 200;

/// The fifth of the rounds that nothing disturbed: other work on the machine only adds.
fn quiet(mut once: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| once()).collect();
    times.sort();
    times[ROUNDS / 5]
}

#[test]
#[ignore = "measures; run it by name"]
fn cost_of_a_confined_start() {
    let fixture = Fixture::new();
    let program = File::open(binary("launch-probe")).unwrap();
    let launcher = File::open(binary("mono-launch")).unwrap();
    let plain = quiet(|| {
        let (mut output, writer) = std::io::pipe().unwrap();
        let begin = Instant::now();
        let child = spawn(&Spawn {
            exe: program.as_fd(),
            argv: vec![c"probe".into(), c"pid".into()],
            env: vec![],
            fds: vec![(writer.as_fd(), 1)],
            namespaces: Namespaces::NONE,
            id_map: None,
            cgroup: None,
        })
        .unwrap();
        drop(writer);
        output.read_exact(&mut [0]).unwrap();
        let time = begin.elapsed();
        wait(&child.pidfd).unwrap();
        time
    });
    println!("plain {plain:?}");
    for role in [Role::Run, Role::Store, Role::Egress] {
        let context = fixture.context(role);
        let confined = quiet(|| {
            let (mut output, writer) = std::io::pipe().unwrap();
            let begin = Instant::now();
            let mut launch = compile(role, &context).unwrap();
            launch.spec.arguments.push("pid".into());
            let (_violations, theirs) = policy::violation::channel().unwrap();
            let descriptors = policy::Descriptors {
                launcher: launcher.as_fd(),
                program: Some(program.as_fd()),
                control: None,
                input: None,
                output: Some(writer.as_fd()),
                error: None,
                violations: theirs.as_fd(),
                cgroup: None,
            };
            let child = policy::start(&launch, &descriptors).unwrap();
            drop(writer);
            output.read_exact(&mut [0]).unwrap();
            let time = begin.elapsed();
            wait(&child.pidfd).unwrap();
            time
        });
        let ratio = confined.as_secs_f64() / plain.as_secs_f64();
        println!("{role} {confined:?} ratio {ratio:.1}");
    }
}
