//! Who begins work, at one place each, and what answers are found there.

use crate::console::Browser;
use crate::daemon::{Daemon, programs};
use crate::http;
use crate::model::call;
use crate::work;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The key of the webhook.
pub(super) const HOOK_KEY: &str = "the-right-key";
/// After something failed, who asked asks again.
const AGAIN: Duration = Duration::from_millis(50);

/// Where a client asks, and its answers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The API, where none come.
    Api,
    /// A new thread for each piece of work.
    Console,
    /// The callback of its endpoint.
    Webhook,
    /// Letters.
    Terminal,
}

impl Place {
    /// Of the client with this number.
    const fn of(number: usize) -> Self {
        match number {
            0..3 => Self::Api,
            3..6 => Self::Console,
            6..9 => Self::Webhook,
            _ => Self::Terminal,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Console => "console",
            Self::Webhook => "webhook",
            Self::Terminal => "terminal",
        }
    }
}

/// What all of them use.
pub(super) struct Desk {
    api: String,
    hook: String,
    console: Mutex<Browser>,
    socket: PathBuf,
    claims: PathBuf,
}

impl Desk {
    pub(super) fn of(daemon: &Daemon, claims: &Path) -> Result<Self> {
        Ok(Self {
            api: daemon.api()?,
            hook: daemon.listener("channel-webhook")?,
            console: Mutex::new(Browser::log_in(daemon)?),
            socket: daemon.folder().join("monod.sock"),
            claims: claims.to_owned(),
        })
    }

    fn browser(&self) -> Browser {
        let browser = self.console.lock();
        browser.unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) place: Place,
    /// The threads that it began.
    pub(super) threads: Vec<String>,
}

/// Submits the result of a task, as its service would.
pub(super) fn submit(claims: &Path, task: &str) -> Result<Value> {
    work::finish(claims, task, &format!("[[mock:text answer of {task}]]"))
}

impl Client {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            place: Place::of(number),
            threads: Vec::new(),
        }
    }

    /// Its conversation.
    pub(super) fn conversation(&self) -> String {
        format!("c{}", self.number)
    }

    /// Begins work after work, and submits most results a little later. What fails, fails.
    pub(super) fn run(mut self, desk: &Desk, over: &AtomicBool) -> Self {
        let mut begun = 0;
        while !over.load(Ordering::Relaxed) {
            let task = format!("{}-{begun}", self.number);
            begun += 1;
            let ask = call("start_background_work", &json!({ "task": task }));
            let ask = format!("{ask} [[mock:text begun]]");
            let asked = match self.place {
                Place::Api => http::complete(&desk.api, &self.conversation(), &ask).map(|_| ()),
                Place::Console => self.in_console(&desk.browser(), &ask),
                Place::Webhook => self.over_webhook(&desk.hook, &ask),
                Place::Terminal => self.in_terminal(&desk.socket, &ask),
            };
            if asked.is_err() {
                std::thread::sleep(AGAIN);
            }
            if work::kept(&desk.claims, &task).is_ok() && begun % 3 != 0 {
                let _ = submit(&desk.claims, &task);
            }
        }
        self
    }

    fn in_console(&mut self, browser: &Browser, ask: &str) -> Result<()> {
        let thread = browser.thread()?;
        self.threads.push(thread.clone());
        let reply = browser.turn(&thread, &json!({ "text": ask }))?;
        browser.finished(&thread, &reply)?;
        Ok(())
    }

    fn over_webhook(&self, base: &str, ask: &str) -> Result<()> {
        let body = json!({ "text": ask, "conversationId": self.conversation(), "mode": "sync" });
        let body = body.to_string();
        let mut stream = http::connect(base)?;
        let key = format!("authorization: Bearer {HOOK_KEY}\r\n");
        http::begin_post(&mut stream, "/jobs", &key, body.len() as u64)?;
        stream.write_all(body.as_bytes())?;
        match http::answer(&mut stream)?.status {
            200 => Ok(()),
            other => bail!("the webhook answers {other}"),
        }
    }

    fn in_terminal(&self, socket: &Path, ask: &str) -> Result<()> {
        let mut command = Command::new(programs().join("monoctl"));
        command.arg("--socket").arg(socket);
        command.args(["send", "--json", "--conversation", &self.conversation()]);
        command.args(["--", ask]);
        let status = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("monoctl ended with {status}");
        }
        Ok(())
    }
}
