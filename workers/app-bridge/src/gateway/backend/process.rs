//! The process: its pipes, its silence, its end.

use super::super::outbox::BATCH;
use super::{Backend, Caller};
use crate::gateway::ledger::{CallerId, Waits};
use mono_mcp_stub::frame::{INTERNAL, failure, request};
use mono_mcp_stub::lines::Lines;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

/// How long a server may take to end by itself.
const GOES_WITHIN: Duration = Duration::from_secs(2);
/// How long the reason of a server's end is waited for.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(50);

/// A line on its way to the process, and the room that it takes.
pub(super) struct Queued {
    line: String,
    room: OwnedSemaphorePermit,
}

impl Backend {
    /// Hands a line to the server; waits while it reads nothing.
    pub(super) async fn send(&self, mut line: String) {
        line.push('\n');
        let bytes = line.len().min(self.limits.bytes);
        let room = self.room.clone().acquire_many_owned(bytes as u32);
        tokio::select! {
            biased;
            () = self.dead.cancelled() => {}
            room = room => if let Ok(room) = room {
                // Fails when the process has ended, which everybody who waits is told.
                let _ = self.to_server.send(Queued { line, room }).await;
            },
        }
    }

    /// Ends the process in order: it reads what was sent to it and then the end of its input, and
    /// has a while to go by itself.
    pub fn retire(self: &Arc<Self>) {
        if self.retired.is_cancelled() {
            return;
        }
        self.retired.cancel();
        let this = self.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(GOES_WITHIN, this.dead.cancelled()).await;
            this.dead.cancel();
        });
    }

    pub(super) async fn write(
        self: Arc<Self>,
        mut stdin: pipe::Sender,
        mut queue: mpsc::Receiver<Queued>,
    ) {
        loop {
            let queued = tokio::select! {
                biased;
                () = self.dead.cancelled() => return,
                queued = queue.recv() => queued,
                () = self.retired.cancelled() => None,
            };
            let Some(Queued { mut line, mut room }) = queued else {
                return;
            };
            // What came together goes together.
            while line.len() < BATCH
                && let Ok(more) = queue.try_recv()
            {
                line.push_str(&more.line);
                room.merge(more.room);
            }
            let written = tokio::select! {
                biased;
                () = self.dead.cancelled() => return,
                written = stdin.write_all(line.as_bytes()) => written,
            };
            if written.is_err() {
                // Its output ends too, and may hold the reason.
                return;
            }
        }
    }

    pub(super) async fn listen(self: Arc<Self>, mut stdout: pipe::Receiver) {
        let mut lines = Lines::new(self.limits.message);
        let mut buffer = vec![0u8; 64 << 10];
        let ended = || "was ended".to_owned();
        let why = 'all: loop {
            tokio::select! {
                biased;
                () = self.dead.cancelled() => break ended(),
                read = stdout.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => break self.last_words().await,
                    Ok(read) => {
                        lines.push(&buffer[..read]);
                        loop {
                            match lines.next_line() {
                                // What it asks is answered into a pipe that it may not read.
                                Ok(Some(line)) => tokio::select! {
                                    biased;
                                    () = self.dead.cancelled() => break 'all ended(),
                                    () = self.from_server(&line) => {}
                                },
                                Ok(None) => break,
                                Err(e) => break 'all format!("wrote too much: {e}"),
                            }
                        }
                    }
                },
            }
        };
        self.bury(why);
    }

    /// Ends the process when it is silent while something is outstanding. Apart from who listens to
    /// it, who may wait for it.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut watch = tokio::time::interval(self.limits.ping.min(Duration::from_secs(5)));
        watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.dead.cancelled() => return,
                _ = watch.tick() => {}
            }
            if self.is_hung().await {
                self.inner().epitaph = Some("answers nothing, no ping either".to_owned());
                return self.dead.cancel();
            }
        }
    }

    async fn last_words(&self) -> String {
        let how = tokio::time::timeout(Duration::from_secs(1), self.end.how()).await;
        let how = how.ok().flatten().unwrap_or_else(|| "ended".to_owned());
        tokio::time::sleep(LAST_WORDS_WITHIN).await;
        let last = self.last_line.get();
        if last.is_empty() {
            how
        } else {
            format!("{how}; it last said: {last}")
        }
    }

    /// The process is of no use any more: everybody who waits is told.
    fn bury(&self, why: String) {
        self.dead.cancel();
        let (why, waiting, callers) = {
            let mut inner = self.inner();
            let why = inner.epitaph.get_or_insert(why).clone();
            inner.asked.clear();
            let callers: HashMap<CallerId, Caller> = (inner.callers.iter())
                .map(|(id, member)| (*id, member.caller.clone()))
                .collect();
            (why, inner.ledger.drain(), callers)
        };
        let server = &self.settings.name;
        tracing::info!(
            server,
            process = self.process,
            lost = waiting.len(),
            "a server of the gateway {why}"
        );
        for waits in waiting {
            // Who waits for us sees its channel close.
            let Waits::Caller(asked) = waits else {
                continue;
            };
            if let Some(caller) = callers.get(&asked.caller) {
                let text = format!(
                    "The server {why}. What was asked may have been carried out; it was not repeated."
                );
                caller.out.send(failure(&asked.id, INTERNAL, &text));
            }
        }
    }

    /// Why it ended, once it has.
    #[must_use]
    pub fn epitaph(&self) -> Option<String> {
        self.inner().epitaph.clone()
    }

    /// Asks whether the server is there, while something is outstanding; true when it is not.
    async fn is_hung(&self) -> bool {
        let now = Instant::now();
        {
            let mut inner = self.inner();
            let Some(oldest) = inner.ledger.oldest() else {
                return false;
            };
            let silent = now.duration_since(inner.heard.unwrap_or(oldest).max(oldest));
            if now.duration_since(oldest) >= self.limits.old && silent >= self.limits.silent {
                return true;
            }
            let asked = inner
                .asked_at
                .is_some_and(|at| now.duration_since(at) < self.limits.ping);
            if silent < self.limits.ping || asked {
                return false;
            }
            inner.asked_at = Some(now);
        }
        // Not one of those that wait: that would keep the question alive by itself. Not awaited for
        // long: a server that reads nothing has a full pipe.
        let ping = self.send(request(r#""mono:ping""#, "ping", None));
        let _ = tokio::time::timeout(Duration::from_millis(100), ping).await;
        false
    }
}
