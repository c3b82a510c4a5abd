//! `bench-stream`: an answer of 2,000 deltas at the web console's client, from the message to the
//! last frame; beside reading the model's own stream.
//!
//! The model makes a delta every one or two milliseconds, faster than providers do. What it takes
//! when the model makes them without a pause stands beside it: there the model has no time of its
//! own, and the figure is the cost of a turn and of the way.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, ensure};
use mono_tests::bench::{Figure, Model, Request, Samples, exchange, report};
use mono_tests::console::Browser;
use mono_tests::daemon::Setup;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Deltas of the answer, each a word with a space.
const DELTAS: usize = 2_000;
/// Answers that count, with pauses and without.
const ROUNDS: [usize; 2] = [7, 30];
/// Between two turns: enough for the daemon to have its spare processes ready again.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    report(measure())
}

/// Times of one side.
#[derive(Default)]
struct Times {
    first: Samples,
    last: Samples,
}

impl Times {
    fn push(&mut self, (first, last): (Duration, Duration)) {
        self.first.push(first);
        self.last.push(last);
    }
}

fn measure() -> Result<Figure> {
    let model = Model::start()?;
    let mut setup = Setup::new()?.model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let daemon = setup.start()?;
    let browser = Browser::log_in(&daemon)?;
    let mut sides = Vec::new();
    for (gap, rounds) in [" [[mock:gap 1]]", ""].into_iter().zip(ROUNDS) {
        let message = format!("[[mock:long {DELTAS}]] [[mock:piece 5]]{gap}");
        let [mut through, mut direct] = [(); 2].map(|()| Times::default());
        for round in 0..=rounds {
            std::thread::sleep(PAUSE);
            let turn = console(&browser, &message)?;
            let plain = directly(&model, &message)?;
            if round > 0 {
                through.push(turn);
                direct.push(plain);
            }
        }
        sides.push((through, direct));
    }
    let [(through, direct), (unpaced, unpaced_direct)] =
        <[_; 2]>::try_from(sides).map_err(|_| anyhow::anyhow!("two ways were measured"))?;
    let ms = |samples: &Samples| samples.median() * 1e3;
    let first = ms(&through.first);
    Ok(Figure::of("ms", 1e3, &through.last, &direct.last)
        .with("deltas", DELTAS)
        .with("first_delta", first)
        .with("first_delta_added", first - ms(&direct.first))
        .with("added", ms(&through.last) - ms(&direct.last))
        .with("without_pauses", ms(&unpaced.last))
        .with("without_pauses_baseline", ms(&unpaced_direct.last))
        .with("without_pauses_first_delta", ms(&unpaced.first)))
}

/// The model's own stream.
fn directly(model: &Model, message: &str) -> Result<(Duration, Duration)> {
    let request = Request::new(model.address(), "mock-1", None, message, "");
    let answer = request.answer("\"content\":\"word")?;
    let deltas = answer.text.matches("\"content\":\"word").count();
    ensure!(deltas == DELTAS, "the model sent {deltas} deltas");
    Ok((answer.first, answer.last))
}

/// A message in a new thread, and the frames of its answer.
fn console(browser: &Browser, message: &str) -> Result<(Duration, Duration)> {
    let address: SocketAddr = browser.base().trim_start_matches("http://").parse()?;
    let thread = browser.thread()?;
    let start = Instant::now();
    let reply = browser.turn(&thread, &json!({ "text": message }))?;
    let request = format!(
        "GET /api/v1/threads/{thread}/stream?message={reply} HTTP/1.0\r\n{}\r\n",
        browser.headers()
    );
    let before = start.elapsed();
    let answer = exchange(address, request.as_bytes(), "event: append")?;
    let (mut told, mut end) = (String::new(), Value::Null);
    for data in answer.text.lines().filter_map(|l| l.strip_prefix("data: ")) {
        let data: Value = serde_json::from_str(data)?;
        told += data["text"].as_str().unwrap_or_default();
        if data.get("message").is_some() {
            end = data;
        }
    }
    let whole = end["message"]["text"].as_str().context("no end")?;
    ensure!(
        whole.split(' ').count() == DELTAS && told == whole,
        "another answer: {} bytes told of {}",
        told.len(),
        whole.len()
    );
    Ok((before + answer.first, before + answer.last))
}
