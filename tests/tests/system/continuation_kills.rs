//! `kill -9` of whoever takes part in continuations, at any moment and under load: every claim that
//! was accepted has its one delivery in the end, or says honestly what is not known.
//!
//! `MONO_KILL_SECONDS` has it go on for longer, `MONO_KILL_SEED` repeats a choice of moments.

use mono_tests::daemon::{Daemon, Setup, programs, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, call};
use mono_tests::work::{self, Listening};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Clients that begin work all the time.
const CLIENTS: usize = 16;
/// Of those, the first ask through the API, which has no place for an answer that comes later.
const OVER_HTTP: usize = 4;

/// Numbers that only have to be different ones (xorshift).
struct Moments(u64);

impl Moments {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Begins work after work, and submits each result a little later. What fails, fails.
fn client(n: usize, api: &str, socket: &Path, claims: &Path, over: &AtomicBool) {
    let mut begun = 0;
    while !over.load(Ordering::Relaxed) {
        let task = format!("{n}-{begun}");
        begun += 1;
        let ask = call("start_background_work", &json!({ "task": task }));
        let ask = format!("{ask} [[mock:text begun]]");
        let conversation = format!("c{n}");
        if n < OVER_HTTP {
            let _ = http::complete(api, &conversation, &ask);
        } else {
            let mut command = Command::new(programs().join("monoctl"));
            command.arg("--socket").arg(socket);
            command.args([
                "send",
                "--json",
                "--conversation",
                &conversation,
                "--",
                &ask,
            ]);
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        if work::kept(claims, &task).is_ok() && begun % 3 != 0 {
            let _ = submit(claims, &task);
        }
    }
}

fn submit(claims: &Path, task: &str) -> anyhow::Result<Value> {
    work::finish(claims, task, &format!("[[mock:text answer of {task}]]"))
}

/// Ends one of those who take part; the daemon is started again.
fn kill(daemon: &mut Daemon, moments: &mut Moments, killed: &mut BTreeMap<&'static str, u32>) {
    let who = match moments.below(10) {
        0..4 => "continuation",
        4..7 => "store",
        7 => "channel-openai",
        8 => "egress",
        _ => "monod",
    };
    if who == "monod" {
        daemon.kill_daemon().unwrap();
        daemon.restart().unwrap();
    } else {
        // It may be starting again just now.
        let Ok(pid) = daemon.worker(who) else { return };
        if daemon.kill(pid).is_err() {
            return;
        }
    }
    *killed.entry(who).or_default() += 1;
}

/// Everything that was ever claimed, by its task.
fn all(daemon: &Daemon) -> BTreeMap<String, Value> {
    let mut records = BTreeMap::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut arguments = vec!["continuations", "list"];
        if let Some(cursor) = &cursor {
            arguments.extend(["--cursor", cursor]);
        }
        let page = daemon.json(&arguments).unwrap();
        for record in page["continuations"].as_array().unwrap() {
            let task = record["taskKey"].as_str().unwrap().to_owned();
            let before = records.insert(task.clone(), record.clone());
            assert!(before.is_none(), "{task} was claimed twice: {record}");
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return records,
        }
    }
}

#[test]
fn every_accepted_claim_has_its_one_delivery_whoever_dies() {
    let model = Model::start().unwrap();
    let claims = TempDir::with_prefix("mono-work-").unwrap();
    let service = Listening::start(claims.path(), None).unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["tools"]["mcpServers"]["work"] = json!({ "url": service.url });
    setup.config["openaiApi"]["port"] = json!(work::free_port().unwrap());
    setup.config["concurrency"]["maxConcurrentRuns"] = json!(16);
    work::let_claim(&mut setup, &["work"]).unwrap();
    let other = work::free_port().unwrap() + 1;
    setup.config["continuations"]["port"] = json!(other);
    setup.config["continuations"]["limits"] = json!({ "maxActivePerOrigin": 10_000 });
    let mut daemon = setup.start().unwrap();
    let seed = variable("MONO_KILL_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_micros().try_into().unwrap_or(1)
    });
    let seconds = variable("MONO_KILL_SECONDS").unwrap_or(10);
    println!("MONO_KILL_SEED={seed} MONO_KILL_SECONDS={seconds}");
    let mut moments = Moments(seed | 1);
    let mut killed = BTreeMap::new();
    let over = AtomicBool::new(false);
    let socket = daemon.folder().join("monod.sock");
    let api = daemon.api().unwrap();
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let (api, socket, claims, over) = (&api, &socket, claims.path(), &over);
            scope.spawn(move || client(n, api, socket, claims, over));
        }
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50 + moments.below(500)));
            kill(&mut daemon, &mut moments, &mut killed);
        }
        over.store(true, Ordering::Relaxed);
    });
    // Quiet from here on: whoever was given up after so many ends starts afresh.
    daemon.kill_daemon().unwrap();
    daemon.restart().unwrap();
    let records = all(&daemon);
    let mut known = BTreeSet::new();
    for task in records.keys() {
        // A claim whose answer never reached the service stays a claim.
        if work::kept(claims.path(), task).is_ok() {
            known.insert(task.clone());
            let _ = submit(claims.path(), task);
        }
    }
    let at_rest = |record: &Value| {
        let state = record["state"].as_str().unwrap_or_default();
        ["delivered", "delivery_unknown", "dead_lettered"].contains(&state)
    };
    wait_for("everything comes to rest", || {
        all(&daemon)
            .iter()
            .all(|(task, record)| at_rest(record) || !known.contains(task))
    })
    .unwrap_or_else(|e| {
        let rest = all(&daemon).into_values().filter(|r| !at_rest(r));
        panic!("{e}: {:?}", rest.collect::<Vec<_>>())
    });
    let records = all(&daemon);
    let mut tally: BTreeMap<String, u32> = BTreeMap::new();
    for record in records.values() {
        let state = record["state"].as_str().unwrap().to_owned();
        *tally.entry(state).or_default() += 1;
    }
    println!("killed {killed:?}; {} claims: {tally:?}", records.len());
    assert!(
        records.len() > CLIENTS && killed.len() > 2,
        "too little happened"
    );
    // Nothing that was kept by a service is unknown to the host.
    for entry in std::fs::read_dir(claims.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "json") {
            let claim: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let task = claim["task"].as_str().unwrap();
            assert!(records.contains_key(task), "the claim of {task} is lost");
        }
    }
    for n in 0..CLIENTS {
        let own = format!("{n}-");
        let ours = records.iter().filter(|(task, _)| task.starts_with(&own));
        let states: Vec<_> = ours.map(|(_, r)| r["state"].as_str().unwrap()).collect();
        let count = |state: &str| states.iter().filter(|s| **s == state).count();
        let letters = daemon.letters(&format!("c{n}")).unwrap();
        let (least, most) = match n {
            n if n < OVER_HTTP => (0, 0),
            _ => (
                count("delivered"),
                count("delivered") + count("delivery_unknown"),
            ),
        };
        assert!(
            (least..=most).contains(&letters.len()),
            "{} letters, {states:?}",
            letters.len()
        );
        let texts = letters
            .iter()
            .map(|l| l["letter"]["text"].as_str().unwrap());
        let said: Vec<_> = texts.filter(|t| t.starts_with("answer of")).collect();
        let once: BTreeSet<_> = said.iter().collect();
        assert_eq!(once.len(), said.len(), "an answer came twice: {said:?}");
    }
}
