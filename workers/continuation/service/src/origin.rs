//! The host's side of a turn that asks for background work: prepare, finalise, activate, abandon (spec s1,
//! "Origin settlement lifecycle"). Producers control none of these steps.

use crate::bindings::Bound;
use crate::desk::Desk;
use crate::error::Rejection;
use crate::keeper::Need;
use continuation_record::binding::{Sealed, binding_fingerprint};
use continuation_record::event::{Binding as Bind, Event, Outcome};
use continuation_record::snapshot::{self, OriginTurn, Prepared, SnapshotError, SnapshotMessage};
use continuation_record::token::{CLAIM_BYTES, Secret, Token};
use continuation_record::{ContextRef, Mode, Record, state};
use std::sync::Arc;
use zeroize::Zeroize;

/// What a selected MCP server gets in its environment or headers.
#[derive(Debug, Clone)]
pub struct ClaimBinding {
    /// Where to claim.
    pub url: String,
    /// The claim token.
    pub token: Token,
    /// What it is bound to.
    pub fingerprint: String,
    /// What becomes of the result.
    pub mode: Mode,
}

/// Claims that are bound to their snapshot in one change. A record has at most about a megabyte.
const MEMBERS_AT_ONCE: usize = 8;

/// Why an origin can't be settled as asked.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// No capability can be given out: the turn is over, the service stops, or there are too many.
    #[error(
        "no claim capability can be given out; the turn is over, the service is stopping, or too many runs are open"
    )]
    Closed,
    /// The turn does not fit, and must fail.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The store refused: no room for the snapshot, or a failure. The turn must fail.
    #[error("the origin's snapshot could not be stored: {0}")]
    Store(#[from] Rejection),
    /// Claims of the run are bound to something else.
    #[error("a claim of this run is in no state to be settled")]
    OutOfPlace,
}

/// What the host may do for its turns.
#[derive(Clone)]
pub struct Origins {
    desk: Arc<Desk>,
}

impl std::fmt::Debug for Origins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Origins")
    }
}

impl Origins {
    /// Over what the service holds.
    #[must_use]
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    /// Gives one MCP server of one run its capability.
    ///
    /// # Errors
    /// [`OriginError::Closed`].
    pub fn issue(&self, bound: Bound) -> Result<ClaimBinding, OriginError> {
        let mut random = [0; CLAIM_BYTES];
        self.desk.fill(&mut random);
        let token = Token::claim(&random);
        random.zeroize();
        let mode = bound.mode;
        let binding = self.desk.bindings.issue(bound, &token);
        let binding = binding.ok_or(OriginError::Closed)?;
        Ok(ClaimBinding {
            url: format!("{}/claim", self.desk.settings.base()),
            token,
            fingerprint: binding.fingerprint.clone(),
            mode,
        })
    }

    /// Takes a run's capabilities back, waits for the claims that were admitted before, and says whether a
    /// snapshot is needed: whether one of its claims is still to be worked on.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn close(&self, run: &str) -> Result<bool, OriginError> {
        self.desk.bindings.close(run).await;
        let is_needed = !self.pending(run)?.is_empty();
        if !is_needed {
            // Nothing is to be settled, and nobody will say so.
            self.desk.bindings.forget(run);
        }
        Ok(is_needed)
    }

    /// Stores the snapshot of the completed turn and binds it to each active claim of the run, before the turn
    /// commits. On an error the turn must fail. `history` is what the conversation retained before this turn,
    /// oldest first.
    ///
    /// # Errors
    /// [`OriginError`].
    pub async fn finalize(
        &self,
        run: &str,
        user: &str,
        assistant: &str,
        history: &[SnapshotMessage],
    ) -> Result<(), OriginError> {
        let members = self.pending(run)?;
        let Some(first) = members.first() else {
            return Ok(());
        };
        let turn = OriginTurn {
            conversation: &first.origin_conversation_id,
            run,
            now: self.desk.now(),
            user,
            assistant,
        };
        let prepared = snapshot::prepare(&turn, history)?;
        let reference = ContextRef {
            schema_version: 1,
            digest: prepared.digest.clone(),
            bytes: prepared.canonical.len() as u64,
            message_count: prepared.message_count,
        };
        self.bind(&members, &prepared, &reference).await
    }

    /// The claims with their snapshot, so many in one change that it is never too large for the log. A crash
    /// in between comes before the turn's commit, so that the start gives the origin up.
    async fn bind(
        &self,
        members: &[Record],
        prepared: &Prepared,
        reference: &ContextRef,
    ) -> Result<(), OriginError> {
        for some in members.chunks(MEMBERS_AT_ONCE) {
            self.bind_some(some, prepared, reference).await?;
        }
        Ok(())
    }

    async fn bind_some(
        &self,
        members: &[Record],
        prepared: &Prepared,
        reference: &ContextRef,
    ) -> Result<(), OriginError> {
        let desk = &self.desk;
        let now = desk.now();
        let bound = desk
            .decide(Need::Owed, |tx| {
                tx.put_blob(&prepared.digest, &prepared.canonical)?;
                for member in members {
                    // As it is now: it may have got its result, or be over.
                    let Some(record) = tx.get(&member.continuation_id)? else {
                        continue;
                    };
                    if !record.state.is_pending() {
                        continue;
                    }
                    let fingerprint =
                        binding_fingerprint(&record.claim_fingerprint, &reference.digest);
                    let mac = seal(&desk.secret, &record, reference);
                    let binding = Bind {
                        reference,
                        fingerprint: &fingerprint,
                        mac: &mac,
                    };
                    match state::apply(&record, Event::Finalize(binding), now) {
                        Outcome::Changed(next, _) => tx.put(*next)?,
                        Outcome::Same => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            })
            .await?;
        if bound {
            Ok(())
        } else {
            Err(OriginError::OutOfPlace)
        }
    }

    /// Ids of the run's claims that are still to be worked on, until it is activated or abandoned.
    ///
    /// # Errors
    /// When the store fails.
    pub fn open(&self, run: &str) -> Result<Vec<String>, OriginError> {
        let members = self.pending(run)?.into_iter();
        Ok(members.map(|member| member.continuation_id).collect())
    }

    /// The turn is committed: one commit point for all claims of the run.
    ///
    /// # Errors
    /// When the store fails; the start that follows settles it.
    pub async fn activate(&self, run: &str) -> Result<(), OriginError> {
        let mut origins: Vec<(String, String)> = Vec::new();
        for binding in self.desk.bindings.of_run(run) {
            let origin = (
                binding.bound.conversation.clone(),
                binding.boundary().to_owned(),
            );
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        for (conversation, boundary) in origins {
            self.desk.activate(run, &conversation, &boundary).await?;
        }
        self.desk.bindings.forget(run);
        Ok(())
    }

    /// The turn will not be committed.
    ///
    /// # Errors
    /// When the store fails; the start that follows settles it.
    pub async fn abandon(&self, run: &str, reason: &str) -> Result<(), OriginError> {
        // A run may be abandoned without having been closed.
        self.desk.bindings.close(run).await;
        self.desk.abandon(&self.pending(run)?, reason).await?;
        self.desk.bindings.forget(run);
        Ok(())
    }

    /// The service stops while a turn goes on. What has its snapshot may be committed, now or at any moment: the next
    /// start asks.
    ///
    /// # Errors
    /// As [`Self::abandon`].
    pub(crate) async fn give_up(&self, run: &str, reason: &str) -> Result<(), OriginError> {
        let mut members = self.pending(run)?;
        members.retain(|member| member.origin_context_ref.is_none());
        Ok(self.desk.abandon(&members, reason).await?)
    }

    /// The run's claims whose origin is not settled. Those that are over already are left out.
    fn pending(&self, run: &str) -> Result<Vec<Record>, Rejection> {
        let mut members = Vec::new();
        for binding in self.desk.bindings.of_run(run) {
            let bound = &binding.bound;
            let of = self
                .desk
                .of_origin(run, &bound.conversation, binding.boundary())?;
            for record in of {
                let known = |member: &Record| member.continuation_id == record.continuation_id;
                if !members.iter().any(known) {
                    members.push(record);
                }
            }
        }
        Ok(members)
    }
}

/// The seal over a claim and its snapshot.
pub(crate) fn seal(secret: &Secret, record: &Record, reference: &ContextRef) -> String {
    sealed(record, reference).mac(secret)
}

/// Whether a record's seal is its own.
pub(crate) fn is_sealed(secret: &Secret, record: &Record) -> bool {
    let (Some(reference), Some(mac), Some(fingerprint)) = (
        &record.origin_context_ref,
        &record.origin_context_binding_mac,
        &record.origin_context_fingerprint,
    ) else {
        return false;
    };
    let expected = binding_fingerprint(&record.claim_fingerprint, &reference.digest);
    // Both are always looked at, so that the time says nothing of which one is wrong.
    let bound = continuation_record::token::same(&expected, fingerprint);
    sealed(record, reference).verify(secret, mac) & bound
}

fn sealed<'a>(record: &'a Record, reference: &'a ContextRef) -> Sealed<'a> {
    Sealed {
        continuation_id: &record.continuation_id,
        claim_fingerprint: &record.claim_fingerprint,
        server_name: &record.server_name,
        origin_run_id: &record.origin_run_id,
        origin_conversation_id: &record.origin_conversation_id,
        reply_to_conversation_id: record.reply_to_conversation_id.as_deref(),
        history_boundary: record.history_boundary.as_deref(),
        mode: record.mode.name(),
        route_name: record.route_name.as_deref(),
        task_key: &record.task_key,
        task_hash: &record.task_hash,
        result_token_hash: &record.result_token_hash,
        created_at: record.created_at,
        deadline: record.deadline,
        digest: &reference.digest,
        bytes: reference.bytes,
        message_count: reference.message_count,
    }
}
