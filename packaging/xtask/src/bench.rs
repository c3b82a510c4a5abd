//! `cargo xtask bench`: the figures that are promised, each beside its baseline of the same run.
//!
//! Most are measured by the programs `bench-*` of the tests' crates, which print one JSON object;
//! this builds optimised what they start, runs them one after the other and judges.

use crate::build::{self, Programs};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these figures.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Measure programs without optimisation: only to try the measurement itself.
    #[arg(long)]
    debug: bool,
}

/// What is promised of a figure.
#[derive(Debug, Clone, Copy)]
enum Aim {
    /// At most so many times its baseline.
    Ratio(f64),
    /// At most so much, in the figure's unit.
    Value(f64),
    /// At least so much, in the figure's unit.
    Least(f64),
    /// At least so many times its baseline.
    LeastRatio(f64),
}

/// One figure.
struct Row {
    name: &'static str,
    what: &'static str,
    aim: Aim,
    /// The measuring program with its arguments; `None` is measured here.
    program: Option<&'static [&'static str]>,
    /// The programs that take part beside the launcher; `None` stands for all.
    takes: Option<&'static [&'static str]>,
}

/// What a daemon with a gateway takes, its client and its server included.
const GATEWAY: &[&str] = &[
    "monod",
    "monoctl",
    "mono-store",
    "mono-artifact",
    "mono-egress",
    "mono-app-bridge",
    "mono-channel",
    "mono-continuation",
    "mono-metrics",
    "mono-run",
    "mono-mcp-stub",
    "mcp-fixture",
    "bench-gateway",
];

const ROWS: &[Row] = &[
    Row {
        name: "ipc_rtt",
        what: "256 bytes there and back between two processes",
        aim: Aim::Ratio(1.3),
        program: Some(&["bench-ipc"]),
        takes: Some(&["bench-ipc"]),
    },
    Row {
        name: "spawn",
        what: "start of a confined run worker until its first message",
        aim: Aim::Ratio(3.0),
        program: Some(&["bench-spawn"]),
        takes: Some(&["bench-spawn", "bench-minimal", "mono-run"]),
    },
    Row {
        name: "turn",
        what: "added to the model's time by a turn in a process of its own",
        aim: Aim::Value(25.0),
        program: Some(&["bench-turn"]),
        takes: None,
    },
    Row {
        name: "turn_tool",
        what: "the same with one call of a stdio tool",
        aim: Aim::Value(40.0),
        program: Some(&["bench-turn", "tool"]),
        takes: None,
    },
    Row {
        name: "turn_8",
        what: "the same, eight at once",
        aim: Aim::Value(150.0),
        program: Some(&["bench-turn", "eight"]),
        takes: None,
    },
    Row {
        name: "ready",
        what: "start of the daemon until its first admitted turn",
        aim: Aim::Value(150.0),
        program: Some(&["bench-ready"]),
        takes: None,
    },
    Row {
        name: "gateway",
        what: "added to a call of a tool by the stub and the bridge",
        aim: Aim::Value(0.3),
        program: Some(&["bench-gateway"]),
        takes: Some(GATEWAY),
    },
    Row {
        name: "gateway_16",
        what: "the same, sixteen under way at once",
        aim: Aim::Value(0.3),
        program: Some(&["bench-gateway", "sixteen"]),
        takes: Some(GATEWAY),
    },
    Row {
        name: "app_call",
        what: "an app's call that was allowed, beside the bare call of the tool",
        aim: Aim::Ratio(3.0),
        program: Some(&["bench-app-call"]),
        takes: Some(&["bench-app-call", "mcp-fixture"]),
    },
    Row {
        name: "app_open",
        what: "an app from the end of its tool's call to its start in a browser",
        aim: Aim::Value(1000.0),
        program: Some(&["bench-app-open"]),
        takes: None,
    },
    Row {
        name: "publish",
        what: "20 MiB reply file to its durable reference",
        aim: Aim::Ratio(1.3),
        program: Some(&["bench-publish"]),
        takes: Some(&["bench-publish", "mono-artifact"]),
    },
    Row {
        name: "publish_many",
        what: "20 of 1,000 reply files of 10 KiB, published and finalised by one run",
        aim: Aim::Ratio(1.5),
        program: Some(&["bench-publish-many"]),
        takes: Some(&["bench-publish-many", "mono-artifact"]),
    },
    Row {
        name: "download",
        what: "20 MiB reply file from the web console, rehashed",
        aim: Aim::Ratio(1.3),
        program: Some(&["bench-download"]),
        takes: None,
    },
    Row {
        name: "stream",
        what: "an answer of 2,000 deltas at the web console's client",
        aim: Aim::Ratio(1.2),
        program: Some(&["bench-stream"]),
        takes: None,
    },
    Row {
        name: "claims",
        what: "durable claims of continuations over HTTP, 16 clients",
        aim: Aim::Least(10_000.0),
        program: Some(&["bench-continuations", "claims"]),
        takes: Some(&["bench-continuations"]),
    },
    Row {
        name: "results",
        what: "accepted results of 1 KiB over HTTP, 16 clients",
        aim: Aim::Least(10_000.0),
        program: Some(&["bench-continuations", "results"]),
        takes: Some(&["bench-continuations"]),
    },
    Row {
        name: "full_store",
        what: "claims beside 10,000 open and 50,000 settled ones, and beside none",
        aim: Aim::LeastRatio(0.9),
        program: Some(&["bench-continuations", "full_store"]),
        takes: Some(&["bench-continuations"]),
    },
    Row {
        name: "restart",
        what: "the same store after a kill until its first answer, warm",
        aim: Aim::Value(0.5),
        program: Some(&["bench-continuations", "restart"]),
        takes: Some(&["bench-continuations"]),
    },
    Row {
        name: "lifecycle",
        what: "claim, result, synthesis, delivery and receipt, an instant model and channel",
        aim: Aim::Least(1_000.0),
        program: Some(&["bench-continuations", "lifecycle"]),
        takes: Some(&["bench-continuations"]),
    },
    Row {
        name: "memory",
        what: "PSS of all processes, idle",
        aim: Aim::Value(30.0),
        program: Some(&["bench-memory"]),
        takes: None,
    },
    Row {
        name: "size",
        what: "installed programs",
        aim: Aim::Value(40.0),
        program: None,
        takes: None,
    },
];

/// What an installation has.
const INSTALLED: &[&str] = &[
    "monod",
    "monoctl",
    "mono-launch",
    "mono-store",
    "mono-artifact",
    "mono-egress",
    "mono-app-bridge",
    "mono-channel",
    "mono-continuation",
    "mono-mcp-stub",
    "mono-metrics",
    "mono-run",
];

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    for name in &arguments.names {
        if !ROWS.iter().any(|row| row.name == name) {
            let known: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            bail!("no figure is called {name}; there are {}", known.join(", "));
        }
    }
    let wanted =
        |row: &&Row| arguments.names.is_empty() || arguments.names.iter().any(|n| n == row.name);
    let taken: Option<Vec<_>> = ROWS.iter().filter(wanted).map(|row| row.takes).collect();
    let taken = taken.map(|lists| lists.concat());
    let needed = taken.as_deref();
    let needed = needed.map_or(Programs::WithTests, Programs::Named);
    let programs = build::build(needed, !arguments.debug)?;
    let mut figures = Map::new();
    let mut failures = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        eprintln!("{}: {} ...", row.name, row.what);
        let measured = match row.program {
            Some(program) => measure(&programs, program),
            None => size(&programs),
        };
        match measured.and_then(|figure| judge(row.aim, figure)) {
            Ok(figure) => {
                if !arguments.json {
                    println!("{}", line(row.name, &figure));
                }
                figures.insert(row.name.to_owned(), figure);
            }
            Err(e) => {
                eprintln!("{} can't be measured: {e:#}", row.name);
                failures.push(format!("{}: {e:#}", row.name));
            }
        }
    }
    let complete = failures.is_empty();
    if arguments.json {
        println!("{}", json!({ "figures": figures, "errors": failures }));
    }
    Ok(complete)
}

/// Runs a measuring program; what it writes to standard error is shown.
fn measure(programs: &Path, program: &[&str]) -> Result<Value> {
    let path = programs.join(program[0]);
    let out = Command::new(&path)
        .args(&program[1..])
        .env("MONO_PROGRAMS", programs)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{} can't be started", path.display()))?;
    if !out.status.success() {
        bail!(
            "{} ended with {}; its reason is above",
            program.join(" "),
            out.status
        );
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("{} printed {last:?}", program.join(" ")))
}

fn size(programs: &Path) -> Result<Value> {
    let mut by_name = Map::new();
    let mut total = 0.0;
    for name in INSTALLED {
        let path = programs.join(name);
        let bytes = path
            .metadata()
            .with_context(|| format!("{} is not there", path.display()))?
            .len();
        let megabytes = bytes as f64 / 1e6;
        total += megabytes;
        by_name.insert((*name).to_owned(), rounded(megabytes));
    }
    Ok(json!({ "value": rounded(total), "unit": "MB", "baseline": null, "programs": by_name }))
}

fn rounded(value: f64) -> Value {
    json!((value * 100.0).round() / 100.0)
}

/// Adds the ratio to the baseline, the aim, and whether it is met.
fn judge(aim: Aim, mut figure: Value) -> Result<Value> {
    let value = figure["value"].as_f64().context("it has no value")?;
    let baseline = figure["baseline"].as_f64();
    // Of what is added to a baseline, the ratio is that of the whole.
    let whole = figure["total"].as_f64().unwrap_or(value);
    let ratio = baseline.filter(|b| *b > 0.0).map(|b| whole / b);
    let unit = figure["unit"].as_str().unwrap_or_default().to_owned();
    let (text, met) = match aim {
        Aim::Ratio(most) => {
            let ratio = ratio.context("it has no baseline")?;
            (format!("ratio ≤ {most}"), ratio <= most)
        }
        Aim::Value(most) => (format!("≤ {most} {unit}"), value <= most),
        Aim::Least(least) => (format!("≥ {least} {unit}"), value >= least),
        Aim::LeastRatio(least) => {
            let ratio = ratio.context("it has no baseline")?;
            (format!("ratio ≥ {least}"), ratio >= least)
        }
    };
    // The other half of the aim of `spawn`, where there is something to compare with.
    let met = met && figure["met_beside_bwrap"] != false;
    figure["ratio"] = ratio.map_or(Value::Null, rounded);
    figure["aim"] = json!(text);
    figure["met"] = json!(met);
    Ok(figure)
}

/// A row of the table for people.
fn line(name: &str, figure: &Value) -> String {
    let number = |key: &str| {
        figure[key]
            .as_f64()
            .map_or("–".to_owned(), |n| format!("{n:.1}"))
    };
    let unit = figure["unit"].as_str().unwrap_or_default();
    let spread = match (
        figure["spread"]["p10"].as_f64(),
        figure["spread"]["p90"].as_f64(),
    ) {
        (Some(low), Some(high)) => format!("{low:.1} to {high:.1}"),
        _ => String::new(),
    };
    format!(
        "{name:<10} {:>8} {unit:<4} baseline {:>7}  ratio {:>5}  aim {:<12} {:<8} {spread}",
        number("value"),
        number("baseline"),
        number("ratio"),
        figure["aim"].as_str().unwrap_or_default(),
        if figure["met"] == true {
            "met"
        } else {
            "NOT met"
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_ratio_or_its_value() {
        let figure = |value: f64, baseline: Value| json!({ "value": value, "unit": "ms", "baseline": baseline });
        let judged = judge(Aim::Ratio(1.3), figure(13.0, json!(10.0))).unwrap();
        assert_eq!(
            (&judged["ratio"], &judged["met"]),
            (&json!(1.3), &json!(true))
        );
        assert_eq!(
            judge(Aim::Ratio(1.3), figure(14.0, json!(10.0))).unwrap()["met"],
            false
        );
        assert!(judge(Aim::Ratio(1.3), figure(14.0, Value::Null)).is_err());
        let judged = judge(Aim::Value(25.0), figure(26.0, Value::Null)).unwrap();
        assert_eq!(
            (&judged["ratio"], &judged["met"]),
            (&Value::Null, &json!(false))
        );
        for (aim, met) in [
            (Aim::Least(26.0), true),
            (Aim::Least(27.0), false),
            (Aim::LeastRatio(0.5), true),
            (Aim::LeastRatio(0.9), false),
        ] {
            let judged = judge(aim, figure(26.0, json!(50.0))).unwrap();
            assert_eq!(judged["met"], met, "{aim:?}");
        }
        let mut added = figure(20.0, json!(2.0));
        added["total"] = json!(22.0);
        let judged = judge(Aim::Value(25.0), added).unwrap();
        assert_eq!(
            (&judged["ratio"], &judged["met"]),
            (&json!(11.0), &json!(true))
        );
    }
}
