//! `kill -9` of whoever takes part in continuations, at any moment and under load: every claim that
//! was accepted has its one answer in the end, or says honestly what is not known.
//!
//! Clients at four places begin work all the time and submit its results: the terminal, the web
//! console, a webhook with a callback, and the API, which has no place for an answer that comes
//! later. Meanwhile the worker of continuations, those whom it asks, and the daemon itself are
//! killed. Then everything may come to rest, and what the places hold is compared with what the
//! records say.

mod clients;
mod verdict;

use crate::daemon::{Daemon, PATIENCE, Setup, wait_for};
use crate::fuzz::random::Random;
use crate::model::Model;
use crate::receiver::Receiver;
use crate::work::{self, Listening};
use anyhow::{Context as _, Result, bail};
use clients::Client;
use continuation_proof::trial::Report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Clients that begin work all the time.
const CLIENTS: usize = 16;
/// Most violations that are told.
const MAX_TOLD: usize = 100;
/// Longest pause between two kills, in milliseconds, beside 50.
const PAUSE: usize = 500;
/// The pause when more time is needed for as much to happen: nobody gets anything done on a slow machine if
/// everybody is killed before.
const LONG_PAUSE: Duration = Duration::from_secs(4);
/// Of those who take part, so many kinds at least are killed.
const KINDS: usize = 3;

/// A daemon in which everything takes part, and what stands around it.
struct World {
    daemon: Daemon,
    receiver: Receiver,
    claims: TempDir,
    _model: Model,
    _service: Listening,
}

/// Claims whose answer reached the service.
fn begun(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Kills for so many seconds, and a minute more until there are more claims than clients and several kinds
/// of victims; the seed repeats the choice of victims and moments.
///
/// # Errors
/// When the daemon can't be started, or nothing comes to rest.
pub fn run(seed: u64, seconds: u64) -> Result<Report> {
    let mut world = World::start()?;
    let clients: Vec<_> = (0..CLIENTS).map(Client::new).collect();
    let mut random = Random::new(seed);
    let mut killed = BTreeMap::new();
    let over = AtomicBool::new(false);
    let desk = clients::Desk::of(&world.daemon, world.claims.path())?;
    let clients = std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(|| client.run(&desk, &over)))
            .collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut outcome = Ok(());
        // Slow machines get more time for as much to happen.
        let folder = world.claims.path().to_owned();
        let is_much = || begun(&folder) > CLIENTS;
        while outcome.is_ok() {
            let now = Instant::now();
            let enough = is_much() && killed.len() >= KINDS;
            if now > end && (enough || now > end + PATIENCE) {
                break;
            }
            let pause = Duration::from_millis(50 + random.below(PAUSE) as u64);
            let long = now > end && !is_much();
            std::thread::sleep(if long { LONG_PAUSE } else { pause });
            outcome = kill(&mut world.daemon, &mut random, &mut killed);
        }
        if outcome.is_ok() && !is_much() {
            // In peace, and whoever was given up after so many ends starts afresh.
            let daemon = &mut world.daemon;
            let restarted = daemon.kill_daemon().and_then(|()| daemon.restart());
            outcome = restarted.and_then(|()| wait_for("more claims than clients", is_much));
        }
        over.store(true, Ordering::Relaxed);
        let clients: Vec<_> = running.into_iter().map(|client| client.join()).collect();
        outcome.map(|()| clients)
    })?;
    let clients: Result<Vec<_>, _> = clients.into_iter().collect();
    let Ok(clients) = clients else {
        bail!("a client panicked");
    };
    // Quiet from here on: whoever was given up after so many ends starts afresh.
    world.daemon.kill_daemon()?;
    world.daemon.restart()?;
    let mut verdict = verdict::Verdict::new(all(&world.daemon)?);
    world.rest(&mut verdict, seconds)?;
    verdict.records = all(&world.daemon)?;
    verdict.compare(&world.daemon, &world.receiver, &clients)?;
    let mut report = Report::new(seed);
    report.points = killed.values().sum();
    report.violations = verdict.violations;
    report.kinds = killed;
    report.scenes = verdict.states;
    let claims = verdict.records.len();
    report.scenes.insert("claims".to_owned(), claims);
    let answers = verdict.answers.into_iter();
    let answers = answers.map(|(place, count)| (format!("answers: {place}"), count));
    report.scenes.extend(answers);
    Ok(report.over(MAX_TOLD))
}

impl World {
    fn start() -> Result<Self> {
        let model = Model::start()?;
        let claims = TempDir::with_prefix("mono-work-")?;
        let service = Listening::start(claims.path(), None)?;
        let receiver = Receiver::start()?;
        let mut setup = Setup::new()?.model(model.address(), "openai-chat");
        // They are the same after each restart.
        let ports = work::free_ports(4)?;
        let host = receiver.host();
        setup.config["tools"]["mcpServers"]["work"] = json!({ "url": service.url });
        setup.config["tools"]["continuationServers"] = json!(["work"]);
        setup.config["continuations"] =
            json!({ "port": ports[0], "limits": { "maxActivePerOrigin": 10_000 } });
        setup.config["openaiApi"]["port"] = json!(ports[1]);
        setup.config["console"] = json!({ "enabled": true, "port": ports[2] });
        setup.config["webhook"] = json!({
            "enabled": true, "port": ports[3], "apiKeyFile": "hook.key",
            "callback": { "privateHosts": [host], "secretFile": "sign.key", "backoffMs": 20 },
            "endpoints": [{ "name": "jobs", "path": "/jobs", "callbackUrl": format!("http://{host}/later") }],
        });
        setup.config["concurrency"]["maxConcurrentRuns"] = json!(CLIENTS);
        setup.secret("hook.key", clients::HOOK_KEY)?;
        setup.secret("sign.key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
        Ok(Self {
            daemon: setup.start()?,
            receiver,
            claims,
            _model: model,
            _service: service,
        })
    }

    /// Submits what was not submitted, and waits until nothing more happens to it.
    fn rest(&self, verdict: &mut verdict::Verdict, seconds: u64) -> Result<()> {
        for task in verdict.records.keys() {
            // A claim whose answer never reached the service stays a claim.
            if work::kept(self.claims.path(), task).is_ok() {
                verdict.known.insert(task.clone());
                let _ = clients::submit(self.claims.path(), task);
            }
        }
        verdict.kept(self.claims.path())?;
        let patience = PATIENCE + 5 * Duration::from_secs(seconds);
        let mut end = Instant::now() + patience;
        let mut fewest = usize::MAX;
        loop {
            let records = all(&self.daemon)?;
            let waits: Vec<_> = records
                .values()
                .filter(|record| verdict.waits(record))
                .collect();
            let Some(first) = waits.first() else {
                return Ok(());
            };
            // As long as some come to rest, the others have their time.
            if waits.len() < fewest {
                fewest = waits.len();
                end = Instant::now() + patience;
            }
            if Instant::now() > end {
                bail!("{} don't come to rest, among them {first}", waits.len());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Ends one of those who take part; the daemon is started again.
fn kill(
    daemon: &mut Daemon,
    random: &mut Random,
    killed: &mut BTreeMap<String, usize>,
) -> Result<()> {
    let who = match random.below(14) {
        0..4 => "continuation",
        4..7 => "store",
        7 | 8 => "channel-console",
        9 | 10 => "channel-webhook",
        11 => "channel-openai",
        12 => "egress",
        _ => "monod",
    };
    if who == "monod" {
        daemon.kill_daemon()?;
        daemon.restart()?;
    } else {
        // It may be starting again just now.
        let Ok(pid) = daemon.worker(who) else {
            return Ok(());
        };
        if daemon.kill(pid).is_err() {
            return Ok(());
        }
    }
    *killed.entry(who.to_owned()).or_default() += 1;
    Ok(())
}

/// Everything that was ever claimed, by its task.
fn all(daemon: &Daemon) -> Result<BTreeMap<String, Value>> {
    let mut records = BTreeMap::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut arguments = vec!["continuations", "list"];
        if let Some(cursor) = &cursor {
            arguments.extend(["--cursor", cursor]);
        }
        let page = daemon.json(&arguments)?;
        for record in page["continuations"].as_array().context("no list")? {
            let task = record["taskKey"].as_str().context("no task")?.to_owned();
            if let Some(before) = records.insert(task, record.clone()) {
                bail!("a task was claimed twice: {before} {record}");
            }
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(records),
        }
    }
}
