//! The channels that a run was given, each until it is taken.

use crate::owners::NobodyListens;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::{Client, Edge, EventSender, Role};
use std::os::fd::OwnedFd;

/// Why the channels of an assignment are not what a run needs.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// One is missing.
    #[error("the assignment has no {0:?} channel")]
    Missing(EdgeName),
    /// It can't be read.
    #[error("the {edge:?} channel can't be used: {source}")]
    Unusable {
        /// Which.
        edge: EdgeName,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// The channels of an assignment. Those that nobody takes are closed.
pub(crate) struct Channels(pub(crate) Vec<(EdgeName, OwnedFd)>);

impl Channels {
    fn take(&mut self, edge: EdgeName) -> Result<OwnedFd, WireError> {
        let at = self.0.iter().position(|(name, _)| *name == edge);
        let at = at.ok_or(WireError::Missing(edge))?;
        Ok(self.0.swap_remove(at).1)
    }

    /// The channel to an owner.
    pub(crate) fn client<E: Edge>(
        &mut self,
        edge: EdgeName,
        owner: Role,
    ) -> Result<Client<E>, WireError> {
        let unusable = |source| WireError::Unusable { edge, source };
        Client::new(self.take(edge)?, owner).map_err(unusable)
    }

    /// The channel to an owner that not every run has.
    pub(crate) fn client_if_there<E: Edge>(
        &mut self,
        edge: EdgeName,
        owner: Role,
    ) -> Result<Option<Client<E>>, WireError> {
        match self.client(edge, owner) {
            Err(WireError::Missing(_)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// The way to who listens.
    pub(crate) fn events(&mut self, reader: Role) -> Result<EventSender, WireError> {
        let edge = EdgeName::Events;
        let unusable = |source| WireError::Unusable { edge, source };
        EventSender::new(self.take(edge)?, reader).map_err(unusable)
    }
}

/// Tells who listens.
pub(crate) async fn say(
    events: &EventSender,
    event: &RunEvent,
    body: Option<OwnedFd>,
) -> Result<(), NobodyListens> {
    let fds: Vec<OwnedFd> = body.into_iter().collect();
    if events.send(event, &fds).await {
        Ok(())
    } else {
        Err(NobodyListens)
    }
}
