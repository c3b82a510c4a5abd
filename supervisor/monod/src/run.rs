//! A run between its wish and its end.

use crate::input::ProcessId;
use ipc_proto::Body;
use ipc_proto::Role;
use ipc_proto::edges::control::{RunScope, Trigger};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::link::Link;
use ipc_proto::table::Guard;
use std::collections::VecDeque;
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
            input,
            input_fd,
            events: Some(events),
        }
    }

    /// The role at the other end of the event channel.
    pub(crate) fn reader(&self) -> Role {
        match self.origin {
            Origin::Channel(_, role) => role,
            // monoctl holds it and speaks with the supervisor's name.
            Origin::Admin => Role::Monod,
        }
    }

    /// Takes what the run's process gets: the input, its memfd and the event channel.
    pub(crate) fn take_input(&mut self) -> Option<(Body, VecDeque<OwnedFd>, OwnedFd)> {
        let events = self.events.take()?;
        let input = std::mem::replace(&mut self.input, Body::Inline(Vec::new()));
        Some((input, self.input_fd.take().into_iter().collect(), events))
    }

    /// Tells the reader that a run which never got a process has ended.
    pub(crate) fn end_unstarted(&mut self, cancelled: bool, kind: &str, message: &str) {
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
