//! One stub: registration, then MCP both ways.

use super::backend::{AskError, Backend, Caller};
use super::broker::{Admitted, Broker, Holder, NoBackend, Wanted, count};
use super::ledger::CallerId;
use super::outbox::{Inbox, Outbox};
use super::params::greeting;
use super::surface::Anchor;
use crate::servers::Starter;
use ipc_proto::ConversationId;
use mono_mcp_stub::frame::{Frame, INTERNAL, INVALID_REQUEST, Outcome, answer, failure};
use mono_mcp_stub::lines::{Lines, TooLong};
use mono_mcp_stub::wire::{Control, MAX_CONTROL, Refused, Register, VERSION, is_control, is_token};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The socket.
    #[error("the socket: {0}")]
    Io(#[from] io::Error),
    /// No first line in time.
    #[error("it did not say what it wants in time")]
    Silent,
    /// The first line is none of ours.
    #[error("it does not speak the gateway's protocol")]
    Unclear,
    /// A line over the bound.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// It is told why.
    #[error("refused: {0}")]
    Refused(String),
    /// It takes nothing.
    #[error("it reads nothing")]
    Deaf,
}

/// Serves a connection that the supervisor accepted, to its end.
///
/// # Errors
/// [`SessionError`].
pub async fn serve<S: Starter>(
    broker: Arc<Broker<S>>,
    fd: OwnedFd,
    holder: Holder,
) -> Result<(), SessionError> {
    let stream = StdStream::from(fd);
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    // Not the halves that shut the socket down when they are dropped: a refusal is to arrive.
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut lines = Lines::new(MAX_CONTROL);
    let first = tokio::time::timeout(broker.limits.register, next(&mut reader, &mut lines)).await;
    let first = first.map_err(|_| SessionError::Silent)??;
    let first = first.ok_or(SessionError::Silent)?;
    let Ok(Control::Register(register)) = Control::parse(&first) else {
        return Err(SessionError::Unclear);
    };
    let admitted = match admit(&broker, &register, holder) {
        Ok(admitted) => admitted,
        Err(refused) => {
            let message = refused.message.clone();
            let mut line = Control::Refused(refused).to_line();
            line.push('\n');
            writer.write_all(line.as_bytes()).await?;
            return Err(SessionError::Refused(message));
        }
    };
    let ended = converse(&broker, &admitted, &register, (reader, writer), lines).await;
    broker.leave(&admitted);
    ended
}

fn admit<S: Starter>(
    broker: &Broker<S>,
    register: &Register,
    holder: Holder,
) -> Result<Admitted, Refused> {
    if register.version != VERSION {
        let message = format!(
            "this gateway speaks version {VERSION} and the stub version {}; install both from one release",
            register.version
        );
        let code = "gateway_version".to_owned();
        return Err(Refused {
            code,
            message,
            retry: false,
        });
    }
    if !is_token(&register.session) {
        let message = "a session's token is 64 hexadecimal digits".to_owned();
        let code = "session_refused".to_owned();
        return Err(Refused {
            code,
            message,
            retry: false,
        });
    }
    broker.admit(&register.server, &register.session, holder)
}

async fn next(
    reader: &mut (impl AsyncRead + Unpin),
    lines: &mut Lines,
) -> Result<Option<Vec<u8>>, SessionError> {
    let mut buffer = [0u8; 16 << 10];
    loop {
        if let Some(line) = lines.next_line()? {
            return Ok(Some(line));
        }
        let read = reader.read(&mut buffer).await?;
        if read == 0 {
            return Ok(None);
        }
        lines.push(&buffer[..read]);
    }
}

async fn converse<S: Starter>(
    broker: &Arc<Broker<S>>,
    admitted: &Admitted,
    register: &Register,
    (mut reader, writer): (
        impl AsyncRead + Unpin,
        impl AsyncWrite + Unpin + Send + 'static,
    ),
    mut lines: Lines,
) -> Result<(), SessionError> {
    let limits = broker.limits.clone();
    let gone = admitted.end.child_token();
    let (out, inbox) = Outbox::new(limits.bytes, gone.clone());
    let _ended = gone.clone().drop_guard();
    let writing = tokio::spawn(write(writer, inbox, gone.clone()));
    out.send(Control::Registered(admitted.name.clone()).to_line());
    let (tell, frames) = mpsc::channel(limits.waiting);
    let conversation = ConversationId::parse(&format!("gateway:{}", admitted.name));
    let conversation = conversation.map_err(|_| SessionError::Unclear)?;
    let mut session = Session::new(
        broker.clone(),
        admitted,
        register,
        (out.clone(), conversation),
    );
    let mut working = tokio::spawn(async move {
        session.work(frames).await;
        session.end().await;
    });
    lines.set_max(limits.message);
    let ended = loop {
        let line = tokio::select! {
            biased;
            () = gone.cancelled() => break Ok(()),
            line = next(&mut reader, &mut lines) => line,
        };
        match line {
            Ok(Some(line)) if is_control(&line) => match Control::parse(&line) {
                Ok(Control::Ping) => out.send(Control::Pong.to_line()),
                _ => break Err(SessionError::Unclear),
            },
            Ok(Some(line)) => tokio::select! {
                biased;
                () = gone.cancelled() => break Ok(()),
                // Waits while the session's turn is not done: then nothing more is read.
                sent = tell.send(line) => if sent.is_err() { break Ok(()) },
            },
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let deaf = gone.is_cancelled() && !admitted.end.is_cancelled();
    // A stub that is gone waits for nothing: what its session waits for is given up.
    gone.cancel();
    drop(tell);
    let _ = (&mut working).await;
    let _ = writing.await;
    match ended {
        Ok(()) if deaf => Err(SessionError::Deaf),
        ended => ended,
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut inbox: Inbox, gone: CancellationToken) {
    while let Some(line) = tokio::select! {
        biased;
        () = gone.cancelled() => None,
        line = inbox.next() => line,
    } {
        let written = tokio::select! {
            biased;
            () = gone.cancelled() => return,
            written = writer.write_all(&line) => written,
        };
        if written.is_err() {
            gone.cancel();
            return;
        }
    }
}

/// What a session knows between two messages.
struct Session<S: Starter> {
    broker: Arc<Broker<S>>,
    settings: ipc_proto::settings::McpServerSettings,
    caller: Caller,
    /// The parameters of `initialize` as they go to the server.
    greeting: Option<String>,
    backend: Option<(Arc<Backend>, CallerId)>,
    had_one: bool,
    /// Nothing is handed on until the client begins anew, and why.
    refused: Option<String>,
}

impl<S: Starter> Session<S> {
    fn new(
        broker: Arc<Broker<S>>,
        admitted: &Admitted,
        register: &Register,
        (out, conversation): (Outbox, ConversationId),
    ) -> Self {
        let anchor = register.anchor.as_deref().and_then(Anchor::parse);
        Self {
            broker,
            settings: admitted.settings.clone(),
            caller: Caller {
                out,
                internal: false,
                session: admitted.name.as_str().into(),
                conversation,
                anchor: Arc::new(Mutex::new(anchor)),
            },
            greeting: None,
            backend: None,
            had_one: register.anchor.is_some(),
            refused: None,
        }
    }

    async fn work(&mut self, mut frames: mpsc::Receiver<Vec<u8>>) {
        let gone = self.caller.out.gone.clone();
        while let Some(line) = frames.recv().await {
            tokio::select! {
                biased;
                () = gone.cancelled() => return,
                () = self.take(&line) => {}
            }
        }
    }

    async fn end(&mut self) {
        if let Some((backend, caller)) = self.backend.take() {
            let cancelled = backend.detach(caller).await;
            count(&self.broker.counters.cancelled, cancelled as u64);
            self.broker.left(&backend);
        }
    }

    async fn take(&mut self, line: &[u8]) {
        let frame = match Frame::parse(line) {
            Ok(frame) => frame,
            Err(error) => {
                let told = failure("null", INVALID_REQUEST, &error.to_string());
                return self.caller.out.send(told);
            }
        };
        match frame {
            Frame::Request {
                id,
                ref method,
                params,
            } if method == "initialize" => {
                self.initialize(id, params).await;
            }
            Frame::Request { id, .. } => {
                count(&self.broker.counters.requests, 1);
                let told = match self.ready().await {
                    Ok((backend, caller)) => backend.from_caller(caller, frame).await,
                    Err(error) => Err(told(id, &error)),
                };
                if let Err(line) = told {
                    self.caller.out.send(line);
                }
            }
            // Nothing is started for what wants no answer.
            Frame::Notification { .. } | Frame::Answer { .. } => {
                let there = self
                    .backend
                    .clone()
                    .filter(|(backend, _)| backend.is_usable());
                if let Some((backend, caller)) = there {
                    let _ = backend.from_caller(caller, frame).await;
                }
            }
        }
    }

    async fn initialize(&mut self, id: &str, params: Option<&str>) {
        self.refused = None;
        // A client that greets a second time begins anew.
        if self.greeting.is_some() {
            self.end().await;
            *self
                .caller
                .anchor
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = None;
        }
        let shows = self.broker.shows(&self.settings).is_some();
        let earlier = self
            .greeting
            .is_none()
            .then(|| self.backend.clone())
            .flatten();
        match greeting(params, self.settings.shared, shows) {
            Ok(greeting) => self.greeting = Some(greeting),
            Err(error) => {
                return self
                    .caller
                    .out
                    .send(failure(id, INVALID_REQUEST, &error.to_string()));
            }
        }
        let line = match self.greet(earlier).await {
            Ok(Some(result)) => answer(id, Outcome::Result(&result)),
            Ok(None) => failure(id, INTERNAL, "the server said nothing of itself"),
            Err(error) => told(id, &error),
        };
        self.caller.out.send(line);
    }

    /// Shakes hands, with the process that the client has asked something before, if there is one:
    /// many clients try first whether a server is of the newer kind.
    async fn greet(
        &mut self,
        earlier: Option<(Arc<Backend>, CallerId)>,
    ) -> Result<Option<String>, NoBackend> {
        let own = earlier.filter(|(backend, _)| !backend.shared && backend.is_usable());
        let (Some((backend, _)), Some(greeting)) = (own, &self.greeting) else {
            return self.connect().await;
        };
        match backend.greet(greeting).await {
            Ok(result) => Ok(Some(result)),
            Err(AskError::Server(error)) => Err(NoBackend::Handshake(error)),
            // It took the question badly, as old servers do; a new one is asked nothing else first.
            Err(_) => self.connect().await,
        }
    }

    /// A process to speak with: the one that there is, or another in its place.
    async fn ready(&mut self) -> Result<(Arc<Backend>, CallerId), NoBackend> {
        if let Some((backend, caller)) = &self.backend
            && backend.is_usable()
        {
            return Ok((backend.clone(), *caller));
        }
        if let Some(why) = &self.refused {
            return Err(NoBackend::Changed(why.clone()));
        }
        self.connect().await?;
        let lost = || NoBackend::Start(self.settings.name.clone(), "it has ended".to_owned());
        self.backend.clone().ok_or_else(lost)
    }

    async fn connect(&mut self) -> Result<Option<String>, NoBackend> {
        let earlier = self.backend.take();
        if let Some((backend, caller)) = &earlier {
            backend.detach(*caller).await;
            self.broker.left(backend);
        }
        let anchor = self
            .caller
            .anchor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let wanted = Wanted {
            settings: &self.settings,
            session: &self.caller.session,
            greeting: self.greeting.as_deref(),
            anchor: anchor.as_ref(),
            again: self.had_one,
        };
        match self.broker.backend(wanted).await {
            Ok((backend, greeted)) => {
                let caller = backend.attach(self.caller.clone());
                self.backend = Some((backend, caller));
                self.had_one = true;
                Ok(greeted)
            }
            Err(error) => {
                if let NoBackend::Changed(why) = &error {
                    self.refused = Some(why.clone());
                }
                Err(error)
            }
        }
    }
}

/// What a client is told of a process that it doesn't get.
fn told(id: &str, error: &NoBackend) -> String {
    match error {
        NoBackend::Handshake(error) => answer(id, Outcome::Error(error)),
        other => failure(id, INTERNAL, &other.to_string()),
    }
}
