//! `bench-gateway [sixteen]`: a call of a tool by a client that has `mono-mcp-stub` in the place of
//! its server, through the stub and the bridge of a whole daemon; beside the same call straight to
//! the same server over its pipes. The server is our own fixture, which answers at once, and apps
//! are shown, so that every result is looked at.
//!
//! One caller waits for each answer before it asks again. Sixteen are callers of one client, each
//! with a call under way. What sixteen clients see, each with a stub and a server of its own, stands
//! beside it.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, bail, ensure};
use mono_tests::bench::{Figure, Samples, report};
use mono_tests::daemon::{Daemon, Setup, programs};
use mono_tests::stub::command;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;

/// Rounds, in each of which both ways take their turn.
const ROUNDS: usize = 20;
/// Calls of each way in a round.
const CALLS: usize = 200;
/// Rounds before the first one that counts.
const WARM_UP: usize = 2;
/// Callers at once.
const MANY: usize = 16;
/// Calls of each of sixteen clients in a round.
const CALLS_OF_EACH: usize = 25;
const SERVER: &str = "fixture";

fn main() -> ExitCode {
    report(match std::env::args().nth(1).as_deref() {
        None => callers(1),
        Some("sixteen") => callers(MANY),
        Some(other) => Err(anyhow::anyhow!(
            "usage: bench-gateway [sixteen], not {other}"
        )),
    })
}

fn start() -> Result<Daemon> {
    let folder = programs();
    let fixture = folder.join("mcp-fixture");
    let mut setup = Setup::new()?
        .server(SERVER, &fixture, &[], &[&folder])
        .gateway();
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup.start()
}

fn direct() -> Result<Client> {
    Client::start(Command::new(programs().join("mcp-fixture")))
}

fn callers(many: usize) -> Result<Figure> {
    let daemon = start()?;
    let mut straight = direct()?;
    let mut through = Client::start(command(&daemon.gateway(), SERVER))?;
    let [mut added, mut plain] = [const { Samples::new() }; 2];
    for round in 0..WARM_UP + ROUNDS {
        let [mut one, mut other] = [const { Samples::new() }; 2];
        through.calls(many, CALLS, &mut one)?;
        straight.calls(many, CALLS, &mut other)?;
        if round >= WARM_UP {
            added.join(one);
            plain.join(other);
        }
    }
    let figure = with_tails(Figure::added(&added, &plain), &added, &plain);
    if many == 1 {
        return Ok(figure);
    }
    drop((straight, through));
    Ok(figure.with("sixteen_clients", clients(&daemon)?.json()))
}

fn with_tails(figure: Figure, through: &Samples, straight: &Samples) -> Figure {
    let [tail, plain] = [through, straight].map(|samples| samples.quantile(0.99) * 1e3);
    figure
        .with("total_p99", tail)
        .with("baseline_p99", plain)
        .with("added_p99", tail - plain)
}

/// Sixteen clients at once, each with a server of its own.
fn clients(daemon: &Daemon) -> Result<Figure> {
    let gateway = daemon.gateway();
    let stubs = (0..MANY).map(|_| Client::start(command(&gateway, SERVER)));
    let mut stubs: Vec<Client> = stubs.collect::<Result<_>>()?;
    let mut servers: Vec<Client> = (0..MANY).map(|_| direct()).collect::<Result<_>>()?;
    let [mut added, mut plain] = [const { Samples::new() }; 2];
    for round in 0..WARM_UP + ROUNDS {
        let one = at_once(&mut stubs)?;
        let other = at_once(&mut servers)?;
        if round >= WARM_UP {
            added.join(one);
            plain.join(other);
        }
    }
    Ok(with_tails(Figure::added(&added, &plain), &added, &plain))
}

fn at_once(clients: &mut [Client]) -> Result<Samples> {
    std::thread::scope(|scope| {
        let calling: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(|| {
                    let mut samples = Samples::new();
                    client
                        .calls(1, CALLS_OF_EACH, &mut samples)
                        .map(|()| samples)
                })
            })
            .collect();
        let mut all = Samples::new();
        for one in calling {
            let samples = one.join().map_err(|_| anyhow::anyhow!("a caller panicked"));
            all.join(samples??);
        }
        Ok(all)
    })
}

/// A client of one server, whatever it is that speaks MCP on those pipes.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl Client {
    /// Starts the server, shakes hands and lists the tools, as every client does.
    fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut client = Self {
            child,
            stdin,
            stdout,
            line: String::new(),
        };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        client.ask("initialize", &hello)?;
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        client.ask("tools/list", &json!({}))?;
        Ok(client)
    }

    fn write(&mut self, message: &Value) -> Result<()> {
        // In one piece, as clients write.
        Ok(self.stdin.write_all(format!("{message}\n").as_bytes())?)
    }

    fn send(&mut self, id: usize, method: &str, params: &Value) -> Result<()> {
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    /// The next answer.
    fn answer(&mut self) -> Result<Value> {
        loop {
            self.line.clear();
            ensure!(
                self.stdout.read_line(&mut self.line)? > 0,
                "the server ended"
            );
            let message: Value = serde_json::from_str(&self.line)?;
            if message.get("result").is_some() {
                return Ok(message);
            }
            if message.get("error").is_some() {
                bail!("{message}");
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.send(0, method, params)?;
        self.answer()
    }

    /// Calls, `many` at a time, each from its request to its answer.
    fn calls(&mut self, many: usize, calls: usize, samples: &mut Samples) -> Result<()> {
        let params = json!({ "name": "echo", "arguments": { "message": "measured" } });
        let mut began = Vec::with_capacity(calls);
        for done in 0..calls {
            while began.len() < calls.min(done + many) {
                began.push(Instant::now());
                self.send(began.len() - 1, "tools/call", &params)?;
            }
            let answer = self.answer()?;
            let id = answer["id"]
                .as_u64()
                .and_then(|id| usize::try_from(id).ok());
            let since = id.and_then(|id| began.get(id));
            samples.push(since.context("an answer to nobody")?.elapsed());
            let said = &answer["result"]["content"][0]["text"];
            ensure!(*said == "measured", "not what was asked: {answer}");
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
