//! One run's dealings with the shelf: what it published, what failed, and how it ends.

use crate::Code;
use crate::budget::{Admitted, Attachment, Budget, FailureIdentity, Full};
use crate::copy::{Watch, copy_hashed};
use crate::index::Retention;
use crate::manifest::{Label, Manifest, integrity_id};
use crate::name::{display_name, media_type};
use crate::shelf::{Shelf, ShelfError};
use crate::verify::{Roots, Source, VerifyError};
use ipc_proto::edges::artifact::Root;
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use jiff::Timestamp;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use uuid::Uuid;

/// Longest wished name or media type that is looked at, in bytes; a longer wish is no wish.
pub(crate) const MAX_WISH: usize = 4096;

/// What all sessions share.
#[derive(Debug)]
pub struct Desk {
    /// Where artifacts live.
    pub shelf: Shelf,
    /// Where they may come from.
    pub roots: Roots,
    /// How long they stay.
    pub retention: Retention,
}

/// A request of spec s0, "Publishing a reply file", with the descriptor that the run opened.
#[derive(Debug)]
pub struct Request {
    /// The root that `path` is relative to.
    pub root: Root,
    /// Path of the file.
    pub path: String,
    /// Display name wished for.
    pub name: Option<String>,
    /// Media type wished for.
    pub media_type: Option<String>,
    /// The file; `None` when the run could not open it and only the path can be judged.
    pub source: Option<OwnedFd>,
}

/// What became of a request.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An attachment, new or reused.
    Published(ReplyPart),
    /// A failure; with its visible part unless the run's parts are used up.
    Refused(Code, Option<ReplyPart>),
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may publish.
    Open,
    /// Its parts are bound; it may still take them back.
    Finalised,
    /// Nothing of it is left.
    Discarded,
}

/// A request at the wrong time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run's artifacts are settled already")]
pub struct Settled;

/// One run. Dropped unless finalised, it takes back what it published: a run that did not succeed
/// leaves nothing.
#[derive(Debug)]
pub struct Session {
    desk: Arc<Desk>,
    scope: RunScope,
    budget: Budget,
    published: Vec<Uuid>,
    state: State,
}

/// Why a copy did not become a part.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    #[error(transparent)]
    Full(#[from] Full),
}

impl PublishError {
    const fn code(&self) -> Code {
        match self {
            Self::Verify(error) => error.code(),
            Self::Shelf(error) => error.code(),
            Self::Full(_) => Code::PartTooLarge,
        }
    }
}

impl Session {
    /// A session for the run that the grant names.
    #[must_use]
    pub fn new(desk: Arc<Desk>, scope: RunScope) -> Self {
        Self {
            desk,
            scope,
            budget: Budget::default(),
            published: Vec::new(),
            state: State::Open,
        }
    }

    /// Publishes a file, or records why not. Blocks on the disk.
    ///
    /// # Errors
    /// [`Settled`] after the end of the run.
    pub fn publish(
        &mut self,
        request: Request,
        now: Timestamp,
        watch: &Watch<'_>,
    ) -> Result<Outcome, Settled> {
        if self.state != State::Open {
            return Err(Settled);
        }
        let name = request.name.filter(|wish| wish.len() <= MAX_WISH);
        let media = request.media_type.filter(|wish| wish.len() <= MAX_WISH);
        let file_name = request.path.rsplit('/').next().unwrap_or_default();
        let shown = display_name(name.as_deref(), file_name);
        let label = Label {
            run_id: self.scope.run.clone(),
            conversation_id: self.scope.conversation.clone(),
            media_type: media_type(media.as_deref(), &shown, file_name),
            name: shown.clone(),
            app: None,
        };
        let verified =
            self.desk
                .roots
                .verify(request.root, &self.scope.run, &request.path, request.source);
        let outcome = verified
            .map_err(PublishError::from)
            .and_then(|source| self.take(&source, label, now, watch));
        let error = match outcome {
            Ok(part) => return Ok(Outcome::Published(part)),
            Err(error) => error,
        };
        let code = error.code();
        tracing::info!(run = %self.scope.run, %code, %error, "not published");
        if code == Code::PartTooLarge {
            return Ok(Outcome::Refused(code, None));
        }
        let identity = FailureIdentity::of(&request.path, name.as_deref(), media.as_deref(), code);
        Ok(
            match self
                .budget
                .fail(identity, &shown, code, || Uuid::new_v4().to_string())
            {
                Ok(part) => Outcome::Refused(code, Some(part)),
                Err(Full) => Outcome::Refused(Code::PartTooLarge, None),
            },
        )
    }

    /// Gives a part of another owner its place among the run's parts.
    ///
    /// # Errors
    /// [`Settled`] after the end of the run. The outcome says whether there was a place.
    pub fn enter(&mut self, part: ReplyPart) -> Result<Outcome, Settled> {
        if self.state != State::Open {
            return Err(Settled);
        }
        Ok(match self.budget.enter(part.clone()) {
            Ok(()) => Outcome::Published(part),
            Err(Full) => Outcome::Refused(Code::PartTooLarge, None),
        })
    }

    /// Reuses or copies a verified source.
    fn take(
        &mut self,
        source: &Source,
        label: Label,
        now: Timestamp,
        watch: &Watch<'_>,
    ) -> Result<ReplyPart, PublishError> {
        let shown = label.name.clone();
        // A retry costs no room, so it is recognised before any is asked for.
        if self.budget.knows_size(source.size) {
            let digest = copy_hashed(source, None, source.size, watch).map_err(ShelfError::from)?;
            if source.is_unchanged()
                && let Some(part) = self.budget.reuse(&integrity_id(&digest), &shown)
            {
                return Ok(part);
            }
        }
        if !self.budget.has_room_for(&shown) {
            return Err(Full.into());
        }
        let manifest =
            self.desk
                .shelf
                .publish(source, label, self.desk.retention.keep(), now, watch)?;
        let attachment = attachment(&manifest);
        match self.budget.admit(attachment, &shown) {
            Ok(Admitted::Added) => {
                self.published.push(manifest.id);
                Ok(manifest.part())
            }
            // The file changed into one that is known, between the two readings.
            Ok(Admitted::Reused(part)) => {
                self.desk.shelf.discard(&[manifest.id])?;
                Ok(*part)
            }
            Err(full) => {
                self.desk.shelf.discard(&[manifest.id])?;
                Err(full.into())
            }
        }
    }

    /// Binds everything to the run's delivery conversation and gives the visible parts in order.
    /// To be called before the run is committed: a crash in between then leaves files that nobody
    /// refers to and that expire, and never a committed reference to nothing.
    ///
    /// When the disk fails here, no file of the run is kept and each is a failure among the parts:
    /// the text is worth delivering without them.
    ///
    /// # Errors
    /// [`Settled`] when that was done before.
    pub fn finalise(&mut self) -> Result<Vec<ReplyPart>, Settled> {
        if self.state != State::Open {
            return Err(Settled);
        }
        let shelf = &self.desk.shelf;
        if let Err(error) = shelf.finalise(&self.published, &self.scope.delivery) {
            let run = &self.scope.run;
            tracing::warn!(%run, %error, "a run's files could not be kept");
            if let Err(error) = shelf.discard(&std::mem::take(&mut self.published)) {
                tracing::warn!(%run, %error, "and not all of them could be removed yet");
            }
            self.budget
                .lose(error.code(), || Uuid::new_v4().to_string());
        }
        self.state = State::Finalised;
        Ok(self.budget.parts())
    }

    /// True between [`Session::finalise`] and [`Session::discard`].
    #[must_use]
    pub fn is_finalised(&self) -> bool {
        self.state == State::Finalised
    }

    /// Takes everything back, bound or not.
    ///
    /// # Errors
    /// [`ShelfError`]; what is left is not shown to anyone, and every [`Shelf::clean`] tries again.
    pub fn discard(&mut self) -> Result<(), ShelfError> {
        self.state = State::Discarded;
        self.desk
            .shelf
            .discard(&std::mem::take(&mut self.published))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.state == State::Open
            && let Err(error) = self.discard()
        {
            tracing::warn!(run = %self.scope.run, %error, "an unfinished run's artifacts could not be removed");
        }
    }
}

fn attachment(manifest: &Manifest) -> Attachment {
    Attachment {
        part: manifest.part(),
        integrity_id: manifest.integrity_id.clone(),
        size: manifest.size_bytes,
    }
}
