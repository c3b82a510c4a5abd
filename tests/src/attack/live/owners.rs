//! A daemon with hostile runs, and how it is afterwards.

use crate::attack::live::sessions::{libexec, outcome, setup, until};
use crate::attack::live::worker::MARK;
use crate::attack::live::{AFTERWARDS, Outcomes, edges, order};
use crate::attack::outcome::Outcome;
use crate::daemon::{Daemon, wait_for};
use crate::fuzz::measure::{Mark, Process};
use crate::http;
use crate::work::let_claim;
use anyhow::{Context as _, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The supervisor may grow by so much: what its allocator keeps after many workers came and went.
const GROWTH: u64 = 12 << 20;
/// How much slower others may be, beside twice as slow: so long a processor may be with somebody else.
const SLACK: Duration = Duration::from_millis(3);
/// A machine that does something else for a moment is no attack: so often it is measured again.
const TRIES: usize = 10;
/// A message of the supervisor's own, which ends a run that says it.
const KIND: &str = "kind-0104-ping";
/// The attack on the supervisor during which others must go on answering.
const ANSWERING: &str = "pongs-without-a-ping";
/// Requests of a measurement.
const SAMPLES: usize = 15;
/// Run workers that wait for a turn.
const IDLE: usize = 2;

/// How a daemon was.
struct Before {
    process: Process,
    mark: Mark,
    workers: Vec<(String, i32)>,
}

impl Before {
    fn of(daemon: &Daemon, roles: &[&str]) -> Result<Self> {
        at_rest(daemon)?;
        let process = Process::of(daemon.pid().unsigned_abs());
        let workers = roles
            .iter()
            .map(|role| Ok(((*role).to_owned(), daemon.worker(role)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            mark: process.mark()?,
            process,
            workers,
        })
    }

    /// What is different now; `nothing` for what isn't.
    fn compared(
        &self,
        daemon: &mut Daemon,
        meanwhile: &Meanwhile,
    ) -> Result<BTreeMap<String, Outcome>> {
        let odd = |words: String| Outcome::Odd(words.replace(char::is_whitespace, "_"));
        let mut all = BTreeMap::new();
        let mut note = |name: &str, wrong: Option<String>| {
            all.insert(name.to_owned(), wrong.map_or(Outcome::Nothing, odd));
        };
        let other = self
            .workers
            .iter()
            .find(|(role, pid)| daemon.worker(role).ok() != Some(*pid));
        note(
            AFTERWARDS[0],
            other.map(|(role, _)| format!("another {role}")),
        );
        // Channels that have just ended are closed one by one.
        at_rest(daemon)?;
        let allowed = self.mark.descriptors;
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut now = self.process.descriptors()?;
        while now > allowed && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            now = self.process.descriptors()?;
        }
        note(
            AFTERWARDS[1],
            (now > allowed).then(|| format!("{now} descriptors after {allowed}")),
        );
        let grown = self
            .process
            .mark()?
            .resident
            .saturating_sub(self.mark.resident);
        note(
            AFTERWARDS[2],
            (grown > GROWTH).then(|| format!("{grown} bytes more")),
        );
        let answers = daemon.run(&["runs", "list", "--json"])?;
        note(
            AFTERWARDS[3],
            (!answers.status.success()).then(|| "the store does not answer".to_owned()),
        );
        let Meanwhile { usual, latency, .. } = meanwhile;
        note(
            AFTERWARDS[4],
            meanwhile
                .is_slow()
                .then(|| format!("{latency:?} after {usual:?}")),
        );
        note(AFTERWARDS[5], meanwhile.large_answer.clone());
        Ok(all)
    }
}

/// Waits until the run workers of the turns before are gone, and as many wait as before: each has
/// descriptors of the supervisor's.
fn at_rest(daemon: &Daemon) -> Result<()> {
    wait_for("the run workers wait", || {
        let status = daemon.status().unwrap_or_default();
        let workers = status["workers"].as_array().cloned().unwrap_or_default();
        let runs: Vec<_> = workers.iter().filter(|w| w["role"] == "run").collect();
        runs.len() == IDLE && runs.iter().all(|w| w["state"] == "idle")
    })
}

/// The median time of a request that passes the supervisor and the store.
fn latency(daemon: &Daemon) -> Result<Duration> {
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let answer = daemon.run(&["runs", "list", "--json"])?;
        anyhow::ensure!(answer.status.success(), "the store does not answer");
        samples.push(start.elapsed());
    }
    samples.sort();
    Ok(samples[SAMPLES / 2])
}

/// A hostile run, attack by attack, against the owners of its channels and the channel worker.
pub(super) fn edges(programs: &Path) -> Result<Outcomes> {
    let libexec = libexec(programs, &["mono-run"])?;
    let mut setup = setup(&libexec, "run-by-order")?;
    // A server that may claim, and that nobody reaches: for it the run gets a channel to its owner.
    setup.config["tools"]["mcpServers"]["claims"] = json!({ "url": "http://127.0.0.1:9/mcp" });
    let_claim(&mut setup, &["claims"])?;
    let mut daemon = setup.start()?;
    let api = daemon.api()?;
    let mut all = Outcomes::new();
    // Whatever is made lazily is made.
    for turn in 0..3 {
        run(&daemon, &api, "behave", turn)?;
    }
    let owners: Vec<_> = edges::COLUMNS.iter().map(|(_, who)| *who).collect();
    let before = Before::of(&daemon, &owners)?;
    let mut meanwhile = Meanwhile::default();
    for (name, turn) in edges::names().into_iter().zip(3..) {
        let words = match name.as_str() {
            edges::FLOODING => during(&daemon, &mut meanwhile, |daemon, again| {
                run(daemon, &api, &name, turn + again * 1_000)
            })?,
            edges::IN_FLIGHT => {
                let (words, answer) = while_held(&daemon, "holds ", large_answer, |daemon| {
                    run(daemon, &api, &name, turn)
                })?;
                meanwhile.large_answer = answer;
                words
            }
            _ => run(&daemon, &api, &name, turn)?,
        };
        for pair in words.split_whitespace() {
            let (who, what) = pair.split_once('=').context("no outcome")?;
            all.entry(who.to_owned())
                .or_default()
                .insert(name.clone(), outcome(Some(what)));
        }
    }
    let afterwards = before.compared(&mut daemon, &meanwhile)?;
    for who in owners {
        all.entry(who.to_owned())
            .or_default()
            .extend(afterwards.clone());
    }
    Ok(all)
}

/// A hostile run, attack by attack, against the supervisor over its control channel.
pub(super) fn supervisor(programs: &Path) -> Result<Outcomes> {
    let libexec = libexec(programs, &["mono-run"])?;
    let mut daemon = setup(&libexec, "control-by-order")?.start()?;
    let api = daemon.api()?;
    for turn in 0..3 {
        ended_or_told(&daemon, &api, KIND, turn)?;
    }
    let owners = [
        "store",
        "artifact",
        "egress",
        "app-bridge",
        "channel-openai",
    ];
    let before = Before::of(&daemon, &owners)?;
    let mut meanwhile = Meanwhile::default();
    let mut all = BTreeMap::new();
    for (name, turn) in order::control_names().zip(3..) {
        let outcome = if name == ANSWERING {
            during(&daemon, &mut meanwhile, |daemon, again| {
                ended_or_told(daemon, &api, &name, turn + again * 1_000)
            })?
        } else {
            ended_or_told(&daemon, &api, &name, turn)?
        };
        all.insert(name, outcome);
    }
    all.extend(before.compared(&mut daemon, &meanwhile)?);
    Ok(Outcomes::from([(edges::SUPERVISOR.to_owned(), all)]))
}

/// One turn with this attack: what the run tells of it, or that it was ended without a word.
fn ended_or_told(daemon: &Daemon, api: &str, name: &str, turn: usize) -> Result<Outcome> {
    let told = format!("told-{turn}");
    let answer = http::complete(api, &format!("attack-{turn}"), &format!("{name} {told}"))?;
    anyhow::ensure!(answer.status >= 500, "{name}: {}", answer.status);
    let whole = daemon.workspace().join(format!("{told}.whole"));
    Ok(match fs::read_to_string(&whole) {
        Ok(words) => outcome(words.split_once('=').map(|(_, what)| what)),
        Err(_) => Outcome::Ended,
    })
}

/// One turn with this attack; what the run tells of it.
fn run(daemon: &Daemon, api: &str, name: &str, turn: usize) -> Result<String> {
    let told = format!("told-{turn}");
    // Its run fails, whatever comes of the attack, and sooner than the run is at its end.
    http::complete(api, &format!("attack-{turn}"), &format!("{name} {told}"))?;
    let whole = daemon.workspace().join(format!("{told}.whole"));
    until(daemon, name, |_| fs::read_to_string(&whole).ok())
}

/// Measures what others notice of an attack, which is made again as long as it seems much; what came
/// of it.
fn during<A: Send>(
    daemon: &Daemon,
    meanwhile: &mut Meanwhile,
    attack: impl Fn(&Daemon, usize) -> Result<A> + Sync,
) -> Result<A> {
    let mut again = 0;
    loop {
        meanwhile.usual = latency(daemon)?;
        let (came, measured) = while_held(daemon, "made ", latency, |d| attack(d, again))?;
        meanwhile.latency = measured;
        if meanwhile.is_slow() {
            // Perhaps the whole machine has become slower, and not because of this.
            meanwhile.usual = meanwhile.usual.max(latency(daemon)?);
        }
        again += 1;
        if !meanwhile.is_slow() || again == TRIES {
            return Ok(came);
        }
    }
}

/// Looks at something while an attack goes on, from its line with this word on.
fn while_held<A: Send, T>(
    daemon: &Daemon,
    word: &str,
    look: impl Fn(&Daemon) -> Result<T>,
    attack: impl FnOnce(&Daemon) -> Result<A> + Send,
) -> Result<(A, T)> {
    let seen = daemon.log().len();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| attack(daemon));
        let line = format!("{MARK} {word}");
        until(daemon, word, |log| {
            log.get(seen..)?.contains(&line).then_some(())
        })?;
        let looked = look(daemon)?;
        let held = held.join();
        let held = held.map_err(|_| anyhow::anyhow!("the attack panicked"))??;
        Ok((held, looked))
    })
}

/// What was seen while an attack went on.
#[derive(Debug, Default)]
struct Meanwhile {
    /// A request's time just before.
    usual: Duration,
    /// And then.
    latency: Duration,
    large_answer: Option<String>,
}

impl Meanwhile {
    fn is_slow(&self) -> bool {
        self.latency > self.usual * 2 + SLACK
    }
}

/// An answer of the store that doesn't fit a packet and comes as a descriptor; what is wrong.
fn large_answer(daemon: &Daemon) -> Result<Option<String>> {
    const PACKET: usize = 32 * 1024;
    let newest = daemon.json(&["runs", "list", "--limit", "3"])?;
    let mut largest = 0;
    for run in newest["runs"].as_array().into_iter().flatten() {
        let id = run["runId"].as_str().unwrap_or_default();
        let answer = daemon.run(&["runs", "show", id, "--json"])?;
        if !answer.status.success() {
            return Ok(Some(String::from_utf8_lossy(&answer.stderr).into_owned()));
        }
        largest = largest.max(answer.stdout.len());
    }
    Ok((largest <= PACKET).then(|| format!("only {largest} bytes")))
}
