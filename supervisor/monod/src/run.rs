//! A run between its wish and its end.

use crate::handover::{Luggage, RunLeft, StageLeft, ago, millis};
use crate::input::ProcessId;
use ipc_proto::Body;
use ipc_proto::Role;
use ipc_proto::edges::control::{RunScope, Trigger};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::link::Link;
use ipc_proto::rooms::TERMINAL;
use ipc_proto::table::Guard;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Who started a run, and so may end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A channel worker.
    Channel(ProcessId, Role),
    /// An operator through the admin socket.
    Admin,
}

impl Origin {
    /// The channel's name in the queue's limits and in metrics.
    pub(crate) const fn channel(self) -> &'static str {
        match self {
            Self::Channel(_, role) => role.name(),
            Self::Admin => TERMINAL,
        }
    }
}

impl Origin {
    /// True for a run that only puts a later answer into words: it gets the model and nothing else.
    pub(crate) const fn is_words_only(self) -> bool {
        matches!(self, Self::Channel(_, Role::Continuation))
    }
}

/// Bytes of a body, wherever they are.
pub(crate) fn size_of_body(body: &Body) -> u64 {
    match body {
        Body::Inline(bytes) => bytes.len() as u64,
        Body::Sealed(length) => *length,
    }
}

/// Where a run stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// In the queue.
    Waiting,
    /// It has its slot and waits for a process and for the owners, since then.
    Admitted(Instant),
    /// A process works on it.
    Working(ProcessId),
    /// Its end is being recorded.
    Closing,
}

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scope: RunScope,
    pub(crate) trigger: Trigger,
    pub(crate) origin: Origin,
    pub(crate) stage: Stage,
    /// When its process was asked to end it.
    pub(crate) cancelled: Option<Instant>,
    input: Body,
    input_fd: Option<OwnedFd>,
    events: Option<OwnedFd>,
}

impl Run {
    pub(crate) fn new(
        scope: RunScope,
        trigger: Trigger,
        origin: Origin,
        (input, input_fd): (Body, Option<OwnedFd>),
        events: OwnedFd,
    ) -> Self {
        Self {
            scope,
            trigger,
            origin,
            stage: Stage::Waiting,
            cancelled: None,
            input,
            input_fd,
            events: Some(events),
        }
    }

    /// The run as another image of the supervisor goes on with it.
    pub(crate) fn pack(mut self, luggage: &mut Luggage) -> RunLeft {
        RunLeft {
            scope: self.scope,
            trigger: self.trigger,
            channel: match self.origin {
                Origin::Channel(process, role) => Some((process.0, role)),
                Origin::Admin => None,
            },
            stage: match self.stage {
                Stage::Waiting => StageLeft::Waiting,
                Stage::Admitted(since) => StageLeft::Admitted {
                    for_ms: millis(since.elapsed()),
                },
                Stage::Working(process) => StageLeft::Working { process: process.0 },
                Stage::Closing => StageLeft::Closing,
            },
            cancelled_for_ms: self.cancelled.map(|at| millis(at.elapsed())),
            input: self.input,
            input_fd: self.input_fd.take().map(|fd| luggage.put(fd)),
            events: self.events.take().map(|fd| luggage.put(fd)),
        }
    }

    /// [`Run::pack`] undone.
    pub(crate) fn unpack(left: RunLeft, luggage: &mut Luggage) -> io::Result<Self> {
        let mut open = |packed: Option<_>| packed.map(|p| luggage.take(p)).transpose();
        Ok(Self {
            scope: left.scope,
            trigger: left.trigger,
            origin: match left.channel {
                Some((process, role)) => Origin::Channel(ProcessId(process), role),
                None => Origin::Admin,
            },
            stage: match left.stage {
                StageLeft::Waiting => Stage::Waiting,
                StageLeft::Admitted { for_ms } => Stage::Admitted(ago(for_ms)),
                StageLeft::Working { process } => Stage::Working(ProcessId(process)),
                StageLeft::Closing => Stage::Closing,
            },
            cancelled: left.cancelled_for_ms.map(ago),
            input: left.input,
            input_fd: open(left.input_fd)?,
            events: open(left.events)?,
        })
    }

    /// The role at the other end of the event channel.
    pub(crate) fn reader(&self) -> Role {
        match self.origin {
            Origin::Channel(_, role) => role,
            // monoctl holds it and speaks with the supervisor's name.
            Origin::Admin => Role::Monod,
        }
    }

    /// Bytes of the input that waits here for a process.
    pub(crate) fn input_bytes(&self) -> u64 {
        size_of_body(&self.input)
    }

    /// Takes what the run's process gets: the input, its memfd and the event channel. A second
    /// descriptor of the channel stays here: a process that is ended can't say why, and only the
    /// supervisor knows. So the reader sees the end of the channel when the process is reaped.
    pub(crate) fn take_input(&mut self) -> Option<(Body, VecDeque<OwnedFd>, OwnedFd)> {
        let events = self.events.as_ref()?.try_clone().ok()?;
        let input = std::mem::replace(&mut self.input, Body::Inline(Vec::new()));
        Some((input, self.input_fd.take().into_iter().collect(), events))
    }

    /// Closes the events without a word: whoever reads them knows that the process is lost.
    pub(crate) fn fall_silent(&mut self) {
        self.events = None;
    }

    /// Tells the reader that a run which has no process, or none any more, has failed.
    pub(crate) fn fail(&mut self, cancelled: bool, kind: &str, message: &str) {
        let Some(fd) = self.events.take() else { return };
        let event = RunEvent::Failed {
            cancelled,
            kind: kind.to_owned(),
            message: message.to_owned(),
        };
        let reader = self.reader();
        tokio::spawn(async move {
            if let Ok(link) = Link::new(fd, Guard::serving(reader)) {
                // The reader may be gone, which is why most of these runs end.
                let _ = link.sender.send(0, 0, &event, &[]).await;
            }
        });
    }
}
