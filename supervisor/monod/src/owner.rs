//! The supervisor's own channels to the owners, over the owners' lives.

use crate::input::ProcessId;
use crate::slot::Occupant;
use crate::supervisor::Supervisor;
use ipc_proto::channel::Fault;
use ipc_proto::door::{Again, Door, Line};
use ipc_proto::edges::app_bridge::AppBridge;
use ipc_proto::edges::artifact::Artifact;
use ipc_proto::edges::continuation::Continuation;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::store::Store;
use ipc_proto::{CallError, Edge, Role};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long somebody who asks waits for an owner that is being replaced.
const REPLACED_WITHIN: Duration = Duration::from_secs(5);
/// How long an owner may take for an answer, its replacement included.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// The owners that the supervisor itself asks.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) store: Door<Store>,
    pub(crate) artifact: Door<Artifact>,
    pub(crate) bridge: Door<AppBridge>,
    pub(crate) continuation: Door<Continuation>,
}

impl Supervisor {
    /// A worker serves from now on: if its role is one that the supervisor asks, it gets a channel to
    /// it.
    pub(crate) fn reach(&mut self, role: Role, id: ProcessId) {
        match role {
            Role::Store => {
                let client = self.grant_client(id, EdgeName::Store, role);
                self.owners.store.set(client);
            }
            Role::Artifact => {
                let client = self.grant_client(id, EdgeName::Artifact, role);
                self.owners.artifact.set(client);
            }
            Role::AppBridge => {
                let client = self.grant_client(id, EdgeName::AppBridge, role);
                self.owners.bridge.set(client);
            }
            Role::Continuation => {
                let client = self.grant_client(id, EdgeName::Continuation, role);
                self.owners.continuation.set(client);
            }
            _ => {}
        }
    }

    /// Closes the supervisor's channel to the worker of a role, which it has no use for any more.
    pub(crate) fn part_from(&self, role: Role) {
        match role {
            Role::Store => self.owners.store.set(None),
            Role::Artifact => self.owners.artifact.set(None),
            Role::AppBridge => self.owners.bridge.set(None),
            Role::Continuation => self.owners.continuation.set(None),
            _ => {}
        }
    }

    /// A request's way to an owner. It is waited for if it is about to start.
    pub(crate) fn line_to<E: Edge>(&self, owner: &Door<E>, role: Role) -> Line<E> {
        let coming = |occupant: &Occupant| *occupant != Occupant::Parked;
        let mut slots = self.slots.iter().filter(|slot| slot.role == role);
        let expected = slots.any(|slot| coming(&slot.occupant) && !slot.is_draining());
        owner.line(if expected {
            REPLACED_WITHIN
        } else {
            Duration::ZERO
        })
    }
}

/// Asks an owner.
///
/// # Errors
/// Its own refusal; `worker_unavailable` when none serves in time or it doesn't answer.
pub(crate) async fn ask<E: Edge>(
    line: Line<E>,
    request: &E::Request,
    again: Again,
) -> Result<(E::Reply, VecDeque<OwnedFd>), Fault> {
    let asked = line.ask(request, &[], ANSWERED_WITHIN, again).await;
    asked.map_err(|e| match e {
        CallError::Fault(fault) => fault,
        other => Fault::new("worker_unavailable", other.to_string()),
    })
}
