//! The figures: each is one JSON object with its value, unit and baseline.

use super::load::{self, Rate};
use super::server::{Deliveries, Stub, run};
use super::{appends, fill};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes that a claim or a result appends to the log, roughly.
const CLAIM_BYTES: usize = 1_100;
const RESULT_BYTES: usize = 2_300;
const TIME: Duration = Duration::from_secs(3);
const CLIENTS: [usize; 3] = [1, 16, 256];

/// Measures one figure.
///
/// # Errors
/// When it can't be measured.
pub fn measure(name: &str) -> Result<Value> {
    match name {
        "claims" => claims(),
        "results" => results(),
        "full_store" => full_store(),
        "restart" => restart(),
        "lifecycle" => lifecycle(),
        _ => bail!("no figure is called {name:?}"),
    }
}

/// A folder for a store, on the disk where the build is: a temporary folder may be in memory.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let program = std::env::current_exe()?;
        let beside = program.parent().context("the program has no folder")?;
        let path = beside.join(format!("bench-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is in the build's folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The service as a process of its own.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    /// Starts it and waits for its first answer.
    fn start(folder: &Path) -> Result<Self> {
        // Free now; nobody else takes a port on this machine in the moment between.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        Self::at(folder, address)
    }

    fn at(folder: &Path, address: SocketAddr) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .arg(folder)
            .args(["--port", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let served = Self { child, address };
        load::first_answer(address)?;
        Ok(served)
    }

    /// Resident memory in MiB, and the part of it that is its own.
    fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let of = |key: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
            Some(kib / 1024.0)
        };
        let whole = of("VmRSS:").context("no VmRSS")?;
        Ok((whole, of("RssAnon:").context("no RssAnon")?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // `SIGKILL`, which is what is measured.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn row(rate: &mut Rate, baseline: f64) -> Value {
    json!({
        "per_second": rated(rate),
        "p50_ms": rounded(rate.quantile(0.5)),
        "p99_ms": rounded(rate.quantile(0.99)),
        "asked_to_wait": rate.refused,
        "baseline_per_second": baseline.round(),
        "ratio": rounded(rate.per_second() / baseline),
    })
}

fn rated(rate: &Rate) -> f64 {
    rate.per_second().round()
}

fn figure(value: f64, unit: &str, baseline: Option<f64>, more: Map<String, Value>) -> Value {
    let mut figure =
        json!({ "value": rounded(value), "unit": unit, "baseline": baseline.map(rounded) });
    for (key, value) in more {
        figure[key] = value;
    }
    figure
}

fn by_clients(bytes: usize, mut rate: impl FnMut(usize) -> Result<Rate>) -> Result<Value> {
    let folder = Folder::new()?;
    let mut rows = Map::new();
    let mut middle = (0.0, 0.0);
    for clients in CLIENTS {
        let baseline = appends::rate(&folder.0, clients, bytes, TIME / 2)?;
        let mut rate = rate(clients)?;
        if clients == 16 {
            middle = (rate.per_second(), baseline);
        }
        rows.insert(clients.to_string(), row(&mut rate, baseline));
    }
    let mut more = Map::new();
    more.insert("clients".to_owned(), Value::Object(rows));
    Ok(figure(middle.0, "per s", Some(middle.1), more))
}

/// Durable claims per second over HTTP.
fn claims() -> Result<Value> {
    by_clients(CLAIM_BYTES, |clients| {
        let folder = Folder::new()?;
        let served = Served::start(&folder.0)?;
        let (rate, _) = load::claims(served.address, clients, usize::MAX, TIME)?;
        Ok(rate)
    })
}

/// Accepted results of 1 KiB per second over HTTP.
fn results() -> Result<Value> {
    by_clients(RESULT_BYTES, |clients| {
        let folder = Folder::new()?;
        let served = Served::start(&folder.0)?;
        let count = if clients == 1 { 4_000 } else { 20_000 };
        let (_, claims) = load::claims(served.address, 64, count, Duration::from_secs(60))?;
        // The files of the claims are not part of it.
        std::thread::sleep(Duration::from_secs(6));
        let (rate, _) = load::results(served.address, clients, &claims)?;
        Ok(rate)
    })
}

/// Claims on a full store beside claims on an empty one.
fn full_store() -> Result<Value> {
    let (empty, full) = (Folder::new()?, Folder::new()?);
    fill::fill(&full.0)?;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        for (folder, rates) in [&empty, &full].into_iter().zip(&mut rates) {
            let served = Served::start(&folder.0)?;
            // What was claimed before is behind it.
            std::thread::sleep(Duration::from_secs(2));
            let (rate, _) = load::claims(served.address, 16, usize::MAX, TIME / 2)?;
            rates.push(rate.per_second());
        }
    }
    let middle = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    };
    let [mut empty, mut full] = rates;
    let mut more = Map::new();
    more.insert("active".to_owned(), json!(fill::ACTIVE));
    more.insert("settled".to_owned(), json!(fill::SETTLED));
    let (full, empty) = (middle(&mut full), middle(&mut empty));
    Ok(figure(full, "per s", Some(empty), more))
}

/// From the start after a kill to the first answered request.
fn restart() -> Result<Value> {
    let folder = Folder::new()?;
    fill::fill(&folder.0)?;
    let served = Served::start(&folder.0)?;
    let address = served.address;
    let (_, claims) = load::claims(address, 16, 2_000, TIME)?;
    ensure!(!claims.is_empty(), "nothing could be claimed");
    drop(served);
    let time = || -> Result<(f64, Served)> {
        let start = Instant::now();
        let served = Served::at(&folder.0, address)?;
        Ok((start.elapsed().as_secs_f64(), served))
    };
    let mut warm = Vec::new();
    let mut memory = (0.0, 0.0);
    for _ in 0..3 {
        let (took, served) = time()?;
        warm.push(took);
        // Everything is read in the background meanwhile.
        std::thread::sleep(Duration::from_secs(3));
        memory = served.memory()?;
    }
    warm.sort_by(f64::total_cmp);
    let cold = std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok();
    let cold = if cold { Some(time()?.0) } else { None };
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    let start = Instant::now();
    let bytes = read_all(&folder.0)?;
    let baseline = start.elapsed().as_secs_f64();
    let mut more = Map::new();
    more.insert("cold_s".to_owned(), json!(cold.map(rounded)));
    more.insert("resident_mib".to_owned(), json!(rounded(memory.0)));
    more.insert("anonymous_mib".to_owned(), json!(rounded(memory.1)));
    more.insert("bytes".to_owned(), json!(bytes));
    Ok(figure(warm[1], "s", Some(baseline), more))
}

fn read_all(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            bytes += read_all(&path)?;
        } else if path.extension().is_none_or(|e| e != "sqlite") {
            bytes += std::fs::read(&path)?.len() as u64;
        }
    }
    Ok(bytes)
}

/// Whole lives per second: claim, result, synthesis, delivery, receipt. How long one takes from its
/// result on is measured with one client, so that none waits for another.
fn lifecycle() -> Result<Value> {
    let folder = Folder::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let deliveries = Deliveries::default();
    let stub = Stub {
        stuck: false,
        deliveries: deliveries.clone(),
    };
    let path = folder.0.clone();
    let (end, ends) = oneshot::channel();
    let serving = std::thread::spawn(move || run(&path, listener, stub, ends));
    let measured = lifecycle_at(address, &deliveries);
    // Its folder goes when nobody writes there any more.
    drop(end);
    match serving.join() {
        Ok(served) => served.context("the service ended")?,
        Err(_) => bail!("the service panicked"),
    }
    measured
}

fn lifecycle_at(address: SocketAddr, deliveries: &Deliveries) -> Result<Value> {
    load::first_answer(address)?;
    let (_, waits) = lives(address, 1, 500, deliveries)?;
    let start = Instant::now();
    let (count, _) = lives(address, 16, 5_000, deliveries)?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let quantile = |share: usize| waits.get(waits.len() * share / 100).copied();
    let mut more = Map::new();
    more.insert("p50_ms".to_owned(), json!(quantile(50).map(rounded)));
    more.insert("p99_ms".to_owned(), json!(quantile(99).map(rounded)));
    Ok(figure(rate, "per s", None, more))
}

/// So many lives, and the milliseconds from each result's acceptance to its delivery, sorted.
fn lives(
    address: SocketAddr,
    clients: usize,
    count: usize,
    deliveries: &Deliveries,
) -> Result<(usize, Vec<f64>)> {
    let until = Instant::now() + Duration::from_secs(120);
    let (_, claims) = load::claims(address, clients, count, Duration::from_secs(60))?;
    let (_, accepted) = load::results(address, clients, &claims)?;
    let key = |id: &str| format!("continuation:{id}");
    let mut waits = Vec::with_capacity(accepted.len());
    for (id, at) in &accepted {
        let done = loop {
            let delivered = deliveries.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(done) = delivered.get(&key(id)) {
                break *done;
            }
            drop(delivered);
            ensure!(Instant::now() < until, "not everything is delivered");
            std::thread::sleep(Duration::from_millis(1));
        };
        waits.push(done.saturating_duration_since(*at).as_secs_f64() * 1e3);
    }
    waits.sort_by(f64::total_cmp);
    Ok((claims.len(), waits))
}
