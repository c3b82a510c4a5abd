//! `bench-turn [tool | eight]`: what the daemon adds to a model's own time, from the request to
//! the last byte of a one-line answer over the OpenAI-compatible API. Each turn has a confined
//! process of its own. The model is a service of ours that answers at once; the baseline is the
//! same request to that service directly.
//!
//! Turns come when the daemon is idle, as a person's do; how long they take one after the other
//! without a pause stands beside it.
#![forbid(unsafe_code)]

use anyhow::Result;
use mono_tests::bench::{Figure, Model, Request, Samples, report};
use mono_tests::daemon::{Daemon, Setup, programs};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Turns before the first one that counts.
const WARM_UP: usize = 5;
/// Turns that count.
const ROUNDS: usize = 60;
/// Rounds of eight turns that count.
const ROUNDS_OF_EIGHT: usize = 15;
/// Between two turns: enough for the daemon to have its spare processes ready again.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    report(match std::env::args().nth(1).as_deref() {
        None => one(false),
        Some("tool") => one(true),
        Some("eight") => eight(),
        Some(other) => Err(anyhow::anyhow!(
            "usage: bench-turn [tool | eight], not {other}"
        )),
    })
}

fn start(model: &Model, tool: bool) -> Result<(Daemon, SocketAddr)> {
    let mut setup = Setup::new()?.model(model.address(), "openai-chat");
    if tool {
        let folder = programs();
        setup = setup.server("fixture", &folder.join("mcp-fixture"), &[], &[&folder]);
    }
    let daemon = setup.start()?;
    let api = daemon.api()?;
    let address = api.trim_start_matches("http://").parse()?;
    Ok((daemon, address))
}

fn one(tool: bool) -> Result<Figure> {
    let model = Model::start()?;
    let (_daemon, api) = start(&model, tool)?;
    let (conversation, message, expected) = if tool {
        // One conversation: its server stays warm between turns, as a person's does.
        (
            Some("bench-tool"),
            "[[mock:tool echo {\"message\":\"hi\"}]] [[mock:echo]]",
            "tool said",
        )
    } else {
        (None, "hello", "pong")
    };
    let through = Request::new(api, "agent", conversation, message, expected);
    let direct = Request::new(model.address(), "mock-1", None, "hello", "pong");
    let [mut turns, mut directly, mut without_pause] = [const { Samples::new() }; 3];
    for round in 0..WARM_UP + ROUNDS {
        std::thread::sleep(PAUSE);
        let (_, turn) = through.send()?;
        let (_, plain) = direct.send()?;
        if round >= WARM_UP {
            turns.push(turn);
            directly.push(plain);
        }
    }
    for _ in 0..ROUNDS {
        without_pause.push(through.send()?.1);
    }
    Ok(Figure::added(&turns, &directly).with("without_pause", without_pause.median() * 1e3))
}

fn eight() -> Result<Figure> {
    let model = Model::start()?;
    let (_daemon, api) = start(&model, false)?;
    let through = Request::new(api, "agent", None, "hello", "pong");
    let direct = Request::new(model.address(), "mock-1", None, "hello", "pong");
    let [mut turns, mut directly] = [const { Samples::new() }; 2];
    for round in 0..1 + ROUNDS_OF_EIGHT {
        std::thread::sleep(4 * PAUSE);
        let turn = at_once(&through)?;
        let plain = at_once(&direct)?;
        if round >= 1 {
            turns.push(turn);
            directly.push(plain);
        }
    }
    Ok(Figure::added(&turns, &directly))
}

/// Eight at once, to the last byte of the last one.
fn at_once(request: &Request) -> Result<Duration> {
    std::thread::scope(|scope| {
        let start = Instant::now();
        let sending: Vec<_> = (0..8).map(|_| scope.spawn(|| request.send())).collect();
        for one in sending {
            one.join()
                .map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        }
        Ok(start.elapsed())
    })
}
