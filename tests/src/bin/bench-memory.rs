//! `bench-memory`: the proportional set size of every process of an idle daemon with the demo's
//! configuration and no MCP server; beside that of one idle `node`.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use mono_tests::bench::{Figure, report};
use mono_tests::daemon::Setup;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// After the first turn, for everything to settle.
const SETTLE: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    report(measure())
}

/// A process that ends with this one.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure() -> Result<Figure> {
    let daemon = Setup::new()?.start()?;
    // Idle after work, not before: what a turn leaves behind counts.
    let sent = daemon.send("bench:memory", "hello")?;
    ensure!(sent.code == 0, "the turn failed: {}", sent.finish);
    std::thread::sleep(SETTLE);
    let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
    for pid in tree(daemon.pid())? {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"))?;
        *by_name.entry(name.trim().to_owned()).or_default() += pss(pid)?;
    }
    let node = Command::new("node")
        .args(["-e", "setInterval(() => {}, 1 << 30)"])
        .stdin(Stdio::null())
        .spawn()
        .context("the baseline needs node on the PATH")?;
    let node = Ended(node);
    std::thread::sleep(SETTLE);
    let baseline = pss(node.0.id().cast_signed())?;
    let total: f64 = by_name.values().sum();
    Ok(Figure::single("MiB", total, Some(baseline)).with("processes", json!(by_name)))
}

/// A process and everything below it.
fn tree(root: i32) -> Result<Vec<i32>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        // It may have ended since.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // The name in brackets may hold anything, so what follows its last bracket.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        parents.push((pid, parent.unwrap_or(0)));
    }
    let mut all = vec![root];
    let mut at = 0;
    while at < all.len() {
        let below = parents.iter().filter(|(_, parent)| *parent == all[at]);
        let below: Vec<_> = below.map(|(pid, _)| *pid).collect();
        all.extend(below);
        at += 1;
    }
    Ok(all)
}

/// Proportional set size in MiB.
fn pss(pid: i32) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{path} can't be read; workers are not dumpable, so this is measured as root")
    })?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .with_context(|| format!("{path} has no Pss"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1024.0)
}
