//! `bench-app-open`: an app of a tool's result, from the end of the call to the message of the app
//! that it has started, in a Chromium on the console of a whole daemon. Beside the same document in
//! a bare frame that is answered at once.
//!
//! In between lie the rest of the turn (the model says a word, the run is committed), the record and
//! the document from their owner, two frames without an origin and the handshake through them.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, ensure};
use mono_tests::bench::{Figure, Model, Samples, report};
use mono_tests::console::{link, split};
use mono_tests::daemon::{Setup, programs};
use serde::Deserialize;
use serde_json::json;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Apps that count.
const ROUNDS: usize = 20;
const MESSAGE: &str = r#"[[mock:tool roll_dice {"count":3}]] [[mock:text rolled]]"#;

/// Times in milliseconds.
#[derive(Deserialize)]
struct Times {
    open: Vec<f64>,
    bare: Vec<f64>,
}

fn main() -> ExitCode {
    report(measure())
}

fn measure() -> Result<Figure> {
    let model = Model::start()?;
    let mut setup = Setup::new()?.model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let fixture = programs().join("mcp-fixture");
    let setup = setup.server("dice", &fixture, &["dice"], &[&programs()]);
    let daemon = setup.start()?;
    let (base, path) = split(&link(&daemon)?)?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workers/channel/console-ui");
    ensure!(
        page.join("node_modules/tsx").is_dir(),
        "the page's tools are missing; `cargo xtask console` installs them"
    );
    let out = Command::new("node")
        .args(["--import", "tsx", "test/bench/open.ts"])
        .current_dir(page)
        .env("CONSOLE_URL", base)
        .env("CONSOLE_LOGIN", path)
        .env("APP_MESSAGE", MESSAGE)
        .env("APP_ROUNDS", ROUNDS.to_string())
        .stdin(Stdio::null())
        .output()
        .context("node can't be started")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "the page's part failed: {said}");
    let times: Times = serde_json::from_slice(&out.stdout).context("the page's times")?;
    let [mut open, mut bare] = [(); 2].map(|()| Samples::new());
    for (samples, all) in [(&mut open, &times.open), (&mut bare, &times.bare)] {
        for ms in all {
            samples.push(Duration::from_secs_f64(ms.max(0.0) / 1e3));
        }
    }
    ensure!(open.count() == ROUNDS && bare.count() == ROUNDS, "too few");
    Ok(Figure::of("ms", 1e3, &open, &bare).with("browser", "Chromium, headless"))
}
