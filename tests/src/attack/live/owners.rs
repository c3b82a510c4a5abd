//! A daemon with hostile runs, and how it is afterwards.

use crate::attack::live::sessions::{libexec, outcome, setup, until};
use crate::attack::live::worker::MARK;
use crate::attack::live::{AFTERWARDS, Outcomes, edges};
use crate::attack::outcome::Outcome;
use crate::daemon::Daemon;
use crate::fuzz::measure::{Mark, Process};
use crate::http;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The supervisor may grow by so much: what its allocator keeps after many workers came and went.
const GROWTH: u64 = 12 << 20;
/// How much slower others may be, beside twice as slow: two processors are shared with everything.
const SLACK: Duration = Duration::from_millis(15);
/// Requests of a measurement.
const SAMPLES: usize = 15;

/// How a daemon was.
struct Before {
    process: Process,
    mark: Mark,
    workers: Vec<(String, i32)>,
    latency: Duration,
}

impl Before {
    fn of(daemon: &Daemon, roles: &[&str]) -> Result<Self> {
        let process = Process::of(daemon.pid().unsigned_abs());
        let workers = roles
            .iter()
            .map(|role| Ok(((*role).to_owned(), daemon.worker(role)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            latency: latency(daemon)?,
            mark: process.mark()?,
            process,
            workers,
        })
    }

    /// What is different now; `nothing` for what isn't.
    fn compared(
        &self,
        daemon: &mut Daemon,
        meanwhile: Meanwhile,
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
        let allowed = self.mark.descriptors;
        let deadline = Instant::now() + Duration::from_secs(10);
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
        let (bound, took) = (self.latency * 2 + SLACK, meanwhile.latency);
        note(
            AFTERWARDS[4],
            (took > bound).then(|| format!("{took:?} after {:?}", self.latency)),
        );
        note(AFTERWARDS[5], meanwhile.large_answer);
        Ok(all)
    }
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
    let mut daemon = setup(&libexec, "run-by-order")?.start()?;
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
            edges::FLOODING => {
                // Until a quiet moment shows that it isn't the flood, but not for ever.
                let mut tries = 0;
                loop {
                    let (words, measured) =
                        while_held(&daemon, &api, &name, turn + tries * 1_000, "made ", latency)?;
                    meanwhile.latency = measured;
                    tries += 1;
                    if measured <= before.latency * 2 + SLACK || tries == 3 {
                        break words;
                    }
                }
            }
            edges::IN_FLIGHT => {
                let (words, answer) =
                    while_held(&daemon, &api, &name, turn, "holds ", large_answer)?;
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
    let afterwards = before.compared(&mut daemon, meanwhile)?;
    for who in owners {
        all.entry(who.to_owned())
            .or_default()
            .extend(afterwards.clone());
    }
    Ok(all)
}

/// One turn with this attack; what the run tells of it.
fn run(daemon: &Daemon, api: &str, name: &str, turn: usize) -> Result<String> {
    let told = format!("told-{turn}");
    // Its run fails, whatever comes of the attack, and sooner than the run is at its end.
    http::complete(api, &format!("attack-{turn}"), &format!("{name} {told}"))?;
    let whole = daemon.workspace().join(format!("{told}.whole"));
    until(daemon, name, |_| fs::read_to_string(&whole).ok())
}

/// Looks at something while an attack is held up, from its line with this word on.
fn while_held<T>(
    daemon: &Daemon,
    api: &str,
    name: &str,
    turn: usize,
    word: &str,
    look: impl Fn(&Daemon) -> Result<T>,
) -> Result<(String, T)> {
    let seen = daemon.log().len();
    std::thread::scope(|scope| {
        let held = scope.spawn(|| run(daemon, api, name, turn));
        let line = format!("{MARK} {word}");
        until(daemon, name, |log| {
            log.get(seen..)?.contains(&line).then_some(())
        })?;
        let looked = look(daemon)?;
        let words = held.join();
        let words = words.map_err(|_| anyhow::anyhow!("{name} panicked"))??;
        Ok((words, looked))
    })
}

/// What was seen while an attack was held up.
#[derive(Debug, Default)]
struct Meanwhile {
    latency: Duration,
    large_answer: Option<String>,
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
