//! The process runner against real processes. Each test takes the one lock: a sweep kills every
//! stray below this process, so two runners in one process would end each other's.
#![allow(clippy::unwrap_used)]

use mono_run::process::background::MAX_BACKGROUND;
use mono_run::process::output::MAX_CAPTURED;
use mono_run::process::{Ending, Finished, Runner, Spec, StartError, tree};
use mono_run::tools::path::Places;
use mono_run::tools::{ToolOutput, ToolState, args, shell};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

static ALONE: Mutex<()> = Mutex::const_new(());

const LONG: Duration = Duration::from_secs(60);

/// By then a shell has begun and said so, also on a machine that does much else.
const READY: Duration = Duration::from_secs(4);

/// The sleepers of this process: the same tests may run beside it, in another.
fn own(script: &str) -> String {
    let seconds = 100_000 + std::process::id();
    script.replace("4242", &seconds.to_string())
}

fn sh(script: &str) -> Spec {
    Spec {
        program: "sh".into(),
        args: vec!["-c".into(), own(script).into()],
        workdir: "/".into(),
    }
}

async fn run(runner: &Runner, script: &str, limit: Duration) -> Finished {
    runner
        .run(&sh(script), limit, &CancellationToken::new())
        .await
        .unwrap()
}

fn text(finished: &Finished) -> String {
    String::from_utf8_lossy(&finished.output).into_owned()
}

/// True while some process has `marker` among its arguments.
fn alive(marker: &str) -> bool {
    let marker = own(marker);
    tree::processes()
        .unwrap()
        .iter()
        .filter(|entry| !entry.zombie)
        .any(|entry| {
            std::fs::read(format!("/proc/{}/cmdline", entry.pid)).is_ok_and(|line| {
                line.split(|byte| *byte == 0)
                    .any(|arg| arg == marker.as_bytes())
            })
        })
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn runner() -> (tempfile::TempDir, Runner) {
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::new(dir.path(), std::env::vars_os()).unwrap();
    (dir, runner)
}

#[tokio::test]
async fn output_keeps_its_order_and_the_status_is_told() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let done = run(&runner, "echo out; echo err >&2; echo out2; exit 3", LONG).await;
    assert_eq!(
        (done.ending, text(&done).as_str()),
        (Ending::Exited(3), "out\nerr\nout2\n")
    );
    assert!(!done.had_leftovers && !done.unconfirmed);
    let done = run(&runner, "kill -9 $$", LONG).await;
    assert_eq!(done.ending, Ending::Signalled(9));
}

#[tokio::test]
async fn a_timeout_ends_the_tree_even_a_grandchild_that_ignores_term() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let script = "sh -c 'trap \"\" TERM; echo ready; sleep 4242.1 & wait; sleep 4242.1' & wait";
    let start = Instant::now();
    let done = run(&runner, script, READY).await;
    assert_eq!(done.ending, Ending::TimedOut);
    assert_eq!(text(&done), "ready\n");
    assert!(!done.unconfirmed && !alive("4242.1"));
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_process_that_handles_term_may_say_its_last_words() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let done = run(&runner, script, READY).await;
    // The shell may also say that its `sleep` was terminated.
    assert!(done.ending == Ending::TimedOut && text(&done).starts_with("ready\n"));
    assert!(text(&done).ends_with("bye\n"), "{}", text(&done));
}

#[tokio::test]
async fn a_stopped_process_is_ended_too() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let done = run(&runner, "kill -STOP $$", Duration::from_millis(200)).await;
    assert!(done.ending == Ending::TimedOut && !done.unconfirmed);
}

#[tokio::test]
async fn a_flood_is_ended_and_kept_to_the_bound() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let done = run(&runner, "yes", LONG).await;
    assert_eq!(
        (done.ending, done.output.len()),
        (Ending::Flooded, MAX_CAPTURED)
    );
    let exact = format!("head -c {MAX_CAPTURED} /dev/zero");
    let done = run(&runner, &exact, LONG).await;
    assert_eq!(
        (done.ending, done.output.len()),
        (Ending::Exited(0), MAX_CAPTURED)
    );
    let over = format!("head -c {} /dev/zero", MAX_CAPTURED + 1);
    assert_eq!(run(&runner, &over, LONG).await.ending, Ending::Flooded);
}

#[tokio::test]
async fn what_a_command_leaves_running_ends_with_it() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let done = run(&runner, "sleep 4242.2 & echo started", LONG).await;
    assert_eq!(
        (done.ending, text(&done).as_str()),
        (Ending::Exited(0), "started\n")
    );
    assert!(done.had_leftovers && !done.unconfirmed && !alive("4242.2"));
}

#[tokio::test]
async fn a_double_forked_orphan_in_its_own_session_ends_with_it() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    // The inner shell ends at once, so the sleeper is an orphan of another session, and it still
    // holds the command's pipe.
    let script = "setsid sh -c 'setsid sleep 4242.3 & echo $!' ; echo done";
    let done = run(&runner, script, LONG).await;
    assert!(done.ending == Ending::Exited(0) && text(&done).ends_with("done\n"));
    assert!(done.had_leftovers && !done.unconfirmed && !alive("4242.3"));
}

#[tokio::test]
async fn cancelling_and_dropping_leave_nothing() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let cancel = CancellationToken::new();
    let waiting = async {
        wait_until("the sleeper runs", || alive("4242.4")).await;
        cancel.cancel();
    };
    let spec = sh("sleep 4242.4");
    let (done, ()) = tokio::join!(runner.run(&spec, LONG, &cancel), waiting);
    assert_eq!(done.unwrap().ending, Ending::Cancelled);
    assert!(!alive("4242.4"));

    let (never, spec) = (CancellationToken::new(), sh("sleep 4242.5 & wait"));
    tokio::select! {
        _ = runner.run(&spec, LONG, &never) => panic!("it must not end"),
        () = wait_until("the sleeper runs", || alive("4242.5")) => {}
    }
    wait_until("the dropped command's group is gone", || !alive("4242.5")).await;
}

#[tokio::test]
async fn the_environment_is_small_and_there_is_no_input() {
    let _alone = ALONE.lock().await;
    let (dir, runner) = runner();
    let done = run(
        &runner,
        "cat; env | cut -d= -f1 | sort | tr '\\n' ' '",
        LONG,
    )
    .await;
    // PWD and the like are the shell's own.
    let names = text(&done);
    for name in names.split_whitespace() {
        let known = [
            "BASH_ENV", "ENV", "HOME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL",
            "SHLVL", "TERM", "TMPDIR", "USER", "_",
        ];
        assert!(
            known.contains(&name) || name.starts_with("GIT_CONFIG_"),
            "{name} in {names}"
        );
    }
    let done = run(&runner, "echo $TMPDIR $TERM $BASH_ENV", LONG).await;
    assert_eq!(
        text(&done),
        format!("{} dumb /dev/null\n", dir.path().display())
    );
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_with_its_name() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let spec = Spec {
        program: "surely-no-such-program".into(),
        args: vec![],
        workdir: "/".into(),
    };
    let error = runner
        .run(&spec, LONG, &CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("surely-no-such-program"),
        "{error}"
    );
}

#[tokio::test]
async fn background_commands_run_on_are_bounded_and_end_with_the_run() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let first = runner
        .start_in_background(&sh("echo hello; sleep 4242.6"), None)
        .unwrap();
    wait_until("its output is in the file", || {
        std::fs::read_to_string(&first.output).unwrap() == "hello\n"
    })
    .await;
    wait_until("it sleeps", || alive("4242.6")).await;
    // A foreground command's sweep keeps away from it.
    run(&runner, "true", LONG).await;
    assert!(alive("4242.6"));
    for _ in 1..MAX_BACKGROUND {
        runner
            .start_in_background(&sh("sleep 4242.6"), None)
            .unwrap();
    }
    let refused = runner.start_in_background(&sh("true"), None).unwrap_err();
    assert!(matches!(
        refused,
        StartError::TooManyInBackground(MAX_BACKGROUND)
    ));
    assert_eq!(runner.shut_down().await.left, 0);
    assert!(!alive("4242.6"));
    assert!(
        std::fs::read_to_string(&first.output)
            .unwrap()
            .ends_with("[ended with the run]\n")
    );
}

#[tokio::test]
async fn a_background_command_notes_its_end_and_frees_its_place() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let mut outputs = Vec::new();
    for _ in 0..MAX_BACKGROUND {
        outputs.push(
            runner
                .start_in_background(&sh("exit 5"), None)
                .unwrap()
                .output,
        );
    }
    for path in outputs {
        wait_until("it ended", || {
            std::fs::read_to_string(&path)
                .unwrap()
                .ends_with("[exit code 5]\n")
        })
        .await;
    }
    let timed = runner
        .start_in_background(&sh("sleep 4242.7"), Some(Duration::from_millis(50)))
        .unwrap();
    let ended = || {
        std::fs::read_to_string(&timed.output)
            .unwrap()
            .ends_with("its time was over]\n")
    };
    wait_until("its time was over", ended).await;
    runner.shut_down().await;
}

async fn bash(dir: &Path, runner: &Runner, mut arguments: Value, command: &str) -> ToolOutput {
    arguments["command"] = own(command).into();
    let parsed = args::check(&shell::bash_schema(), arguments).unwrap();
    let places = Places::new(dir, dir);
    shell::bash(&places, runner, &CancellationToken::new(), parsed)
        .await
        .unwrap_or_else(ToolOutput::error)
}

#[tokio::test]
async fn bash_shows_both_ends_and_keeps_the_whole() {
    let _alone = ALONE.lock().await;
    let (dir, runner) = runner();
    let bash = async |arguments, command| bash(dir.path(), &runner, arguments, command).await;
    let out = bash(json!({}), "seq 1 20000").await;
    assert!(out.text.starts_with("1\n2\n") && out.text.ends_with("20000\n"));
    let path = out
        .text
        .split("all of it is in ")
        .nth(1)
        .unwrap()
        .split(" …]")
        .next()
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(path).unwrap().lines().count(),
        20_000
    );
    let shown: usize = out
        .text
        .lines()
        .filter(|line| !line.starts_with('['))
        .map(|line| line.len() + 1)
        .sum();
    assert!((19_990..=20_001).contains(&shown), "{shown}");
    let out = bash(json!({"max_output_chars": 4}), "echo abcdefgh").await;
    assert!(
        out.text.starts_with("ab\n[… 5 characters left out") && out.text.ends_with("h\n"),
        "{}",
        out.text
    );
}

#[tokio::test]
async fn bash_reads_no_profile_takes_a_leading_dash_and_tells_failures() {
    let _alone = ALONE.lock().await;
    let (dir, runner) = runner();
    std::fs::write(dir.path().join(".bashrc"), "echo from-rc").unwrap();
    std::fs::write(dir.path().join(".bash_profile"), "echo from-profile").unwrap();
    let bash = async |arguments, command| bash(dir.path(), &runner, arguments, command).await;
    assert_eq!(
        bash(json!({}), "pwd").await.text.trim(),
        dir.path().canonicalize().unwrap().to_str().unwrap()
    );
    let out = bash(json!({}), "-x").await;
    assert!(
        out.state == ToolState::ExitNonzero && out.text.ends_with("[exit code 127]"),
        "{}",
        out.text
    );
    assert_eq!(bash(json!({}), "true").await.text, "[no output]");
    let out = bash(json!({"timeout_ms": 4000}), "echo part; sleep 4242.8").await;
    assert!(
        out.state == ToolState::Timeout && out.text.starts_with("part\n[ended after 4000 ms"),
        "{}",
        out.text
    );
    let out = bash(json!({"workdir": "nowhere"}), "true").await;
    assert!(out.text.contains("nowhere is not a directory"));
    let out = bash(json!({"background": true}), "sleep 4242.9").await;
    assert!(out.text.contains("in the background"));
    runner.shut_down().await;
    assert!(!alive("4242.9") && !alive("4242.8"));
}

/// Ended processes below this one that nobody has reaped.
fn zombies() -> Vec<tree::Entry> {
    let all = tree::processes().unwrap();
    let me = std::process::id().cast_signed();
    let below = |entry: &tree::Entry| entry.parent == me;
    all.into_iter().filter(|e| e.zombie && below(e)).collect()
}

#[tokio::test]
async fn five_hundred_orphans_leave_no_zombie() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    let script = "i=0; while [ $i -lt 500 ]; do (setsid sleep 0.0$((i % 10)) &); i=$((i + 1)); \
                  done; echo all";
    let done = run(&runner, script, LONG).await;
    assert_eq!(
        (done.ending, text(&done).as_str()),
        (Ending::Exited(0), "all\n")
    );
    assert!(!done.unconfirmed);
    wait_until("every orphan is reaped", || zombies().is_empty()).await;
    // Those that are ended because they don't end themselves are reaped as well.
    let script = "i=0; while [ $i -lt 100 ]; do (setsid sleep 4242.5 &); i=$((i + 1)); done";
    let done = run(&runner, script, LONG).await;
    assert!(done.had_leftovers && !done.unconfirmed && !alive("4242.5"));
    wait_until("every orphan is reaped", || zombies().is_empty()).await;
}

#[tokio::test]
async fn a_thousand_children_give_a_thousand_exact_codes() {
    let _alone = ALONE.lock().await;
    let (_dir, runner) = runner();
    // Orphans that end meanwhile are reaped, too, and must take nobody's code along.
    let noise = "while :; do (setsid true &); done";
    let noisy = CancellationToken::new();
    let noise = sh(noise);
    let orphans = runner.run(&noise, 10 * LONG, &noisy);
    let children = async {
        // A fixed walk over all codes, in no order that a mistake could follow.
        let mut code = 7_u32;
        for n in 0..1_000 {
            code = (code * 73 + 41) % 256;
            let done = run(&runner, &format!("exit {code}"), LONG).await;
            assert_eq!(done.ending, Ending::Exited(code.cast_signed()), "child {n}");
        }
        noisy.cancel();
    };
    let (ended, ()) = tokio::join!(orphans, children);
    assert_eq!(ended.unwrap().ending, Ending::Cancelled);
    wait_until("every orphan is reaped", || zombies().is_empty()).await;
}
