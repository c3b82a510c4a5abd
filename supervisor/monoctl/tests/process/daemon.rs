//! A daemon that answers as a test says.

use ipc_proto::admin::{Admin, Answer, Ask, JsonBody};
use ipc_proto::chat::Usage;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::{Body, EventSender, Role, Server};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio_seqpacket::UnixSeqpacketListener;

type Handler = dyn Fn(Ask, &mut VecDeque<OwnedFd>) -> Reply + Send + Sync;

/// What the daemon does about one request.
pub(crate) struct Reply {
    answer: Option<Answer>,
    fds: Vec<OwnedFd>,
    events: Option<(Vec<RunEvent>, bool)>,
    last: bool,
}

impl Reply {
    pub(crate) fn value(value: Value) -> Self {
        let (result, memfd) = JsonBody::pack(&value).unwrap();
        let answer = Some(Answer::Ok { result });
        Self {
            answer,
            fds: memfd.into_iter().collect(),
            events: None,
            last: false,
        }
    }

    pub(crate) fn error(code: &str, message: &str) -> Self {
        let answer = Answer::Error {
            code: code.into(),
            message: message.into(),
        };
        Self {
            answer: Some(answer),
            fds: vec![],
            events: None,
            last: false,
        }
    }

    /// Starts `run-1`, which says this and ends its channel.
    pub(crate) fn run(events: Vec<RunEvent>) -> Self {
        Self {
            events: Some((events, false)),
            ..Self::value(json!({"run": "run-1"}))
        }
    }

    /// Starts `run-1`, which says this and goes on until its channel is closed.
    pub(crate) fn open_run(events: Vec<RunEvent>) -> Self {
        Self {
            events: Some((events, true)),
            ..Self::value(json!({"run": "run-1"}))
        }
    }

    /// Brings bytes along as a sealed memfd.
    pub(crate) fn with(mut self, bytes: &[u8]) -> Self {
        self.fds
            .push(mono_sys::memfd::sealed_memfd(c"test", bytes).unwrap());
        self
    }

    /// Brings bytes along as an ordinary file.
    pub(crate) fn with_file(mut self, bytes: &[u8]) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        self.fds.push(file.into());
        self
    }

    /// Closes the connection after the answer.
    pub(crate) fn last(self) -> Self {
        Self { last: true, ..self }
    }

    /// Closes the connection instead of an answer.
    pub(crate) fn hang_up() -> Self {
        Self {
            answer: None,
            fds: vec![],
            events: None,
            last: true,
        }
    }
}

pub(crate) fn finish(text: &str) -> RunEvent {
    RunEvent::Finish {
        text: Body::Inline(text.as_bytes().to_vec()),
        parts: b"[]".to_vec(),
        usage: Usage::default(),
        model: "demo:scripted".into(),
    }
}

pub(crate) struct Fake {
    folder: tempfile::TempDir,
    asked: Arc<Mutex<Vec<Ask>>>,
}

impl Fake {
    pub(crate) fn new(handler: impl Fn(Ask) -> Reply + Send + Sync + 'static) -> Self {
        Self::with_fds(move |ask, _| handler(ask))
    }

    pub(crate) fn with_fds(
        handler: impl Fn(Ask, &mut VecDeque<OwnedFd>) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Arc::new(handler), || {
            Reply::value(json!({"version": 1, "daemon": "0.1.0"}))
        })
    }

    /// Speaks no common version.
    pub(crate) fn refusing() -> Self {
        Self::start(
            Arc::new(|ask, _: &mut _| panic!("{ask:?} after a refusal")),
            || Reply::error("no_common_version", "install the same release of both"),
        )
    }

    pub(crate) fn path(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// What was asked, greetings left out.
    pub(crate) fn asked(&self) -> Vec<Ask> {
        self.asked.lock().unwrap().clone()
    }

    fn start(handler: Arc<Handler>, greeting: fn() -> Reply) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = socket(folder.path());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let mut listener = UnixSeqpacketListener::bind(&path).unwrap();
                ready.send(()).unwrap();
                while let Ok(connection) = listener.accept().await {
                    tokio::spawn(converse(
                        connection.into(),
                        handler.clone(),
                        greeting,
                        log.clone(),
                    ));
                }
            });
        });
        is_ready.recv().unwrap();
        Self { folder, asked }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("monod.sock")
}

async fn converse(
    fd: OwnedFd,
    handler: Arc<Handler>,
    greeting: fn() -> Reply,
    log: Arc<Mutex<Vec<Ask>>>,
) {
    let mut server: Server<Admin> = Server::new(fd, Role::Monod).unwrap();
    let mut greeted = false;
    while let Ok(Some(mut call)) = server.recv().await {
        let mut reply = if greeted {
            log.lock().unwrap().push(call.request.clone());
            handler(call.request, &mut call.fds)
        } else {
            assert!(
                matches!(call.request, Ask::Hello { version_min: 1, .. }),
                "{:?}",
                call.request
            );
            greeted = true;
            greeting()
        };
        let mut run = None;
        if let Some((events, open)) = reply.events {
            let (ours, theirs) = ipc_proto::link::pair().unwrap();
            reply.fds.push(theirs);
            run = Some((ours, events, open));
        }
        if let Some(answer) = reply.answer {
            call.responder.send(&answer, &reply.fds).await.unwrap();
        }
        drop(reply.fds);
        if let Some((channel, events, open)) = run {
            let sender = EventSender::new(channel, Role::Monod).unwrap();
            tokio::spawn(async move {
                for event in events {
                    sender.send(&event, &[]).await;
                }
                if open {
                    sender.closed().await;
                }
            });
        }
        if reply.last {
            return;
        }
    }
}
