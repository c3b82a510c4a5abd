//! Files of apps: an app hands one over, a person has allowed it, and it is kept as reply files are.
//!
//! Who may was decided by the app-bridge, the only one that asks. Here are the bounds: of a file, of
//! an app, and of the ceiling that all share (spec s0, "Lifetime and limits").

use crate::Code;
use crate::copy::{Watch, copy_hashed};
use crate::manifest::{Label, Manifest, integrity_id};
use crate::name::{display_name, media_type};
use crate::session::{Desk, MAX_WISH};
use crate::shelf::ShelfError;
use crate::verify::{Source, VerifyError};
use ipc_proto::apps::MAX_KEPT;
use ipc_proto::edges::artifact::ArtifactPage;
use ipc_proto::{ConversationId, RunId};
use jiff::Timestamp;
use uuid::Uuid;

/// A file of an app, but for its bytes.
#[derive(Debug)]
pub struct Handed {
    /// The app.
    pub app: Uuid,
    /// The run that the app is part of.
    pub run: RunId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// The conversation that the reply went to.
    pub delivery: ConversationId,
    /// Display name wished for.
    pub name: String,
    /// Media type wished for.
    pub media_type: Option<String>,
}

/// Why a file is not kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The bytes are not what they have to be.
    #[error(transparent)]
    Content(#[from] VerifyError),
    /// No room, or the disk.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// The app has as many as it may.
    #[error("the app has {MAX_KEPT} files already")]
    Full,
}

impl KeepError {
    /// What the app-bridge is told.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Content(error) => error.code(),
            Self::Shelf(error) => error.code(),
            Self::Full => Code::PartTooLarge,
        }
    }
}

impl Desk {
    /// Keeps a file, durably; true when it is new, since the same bytes under the same name are kept
    /// once. Blocks on the disk; to be called by one at a time: an app's files are counted.
    ///
    /// # Errors
    /// [`KeepError`]; nothing is kept then.
    pub fn keep(
        &self,
        handed: Handed,
        source: &Source,
        now: Timestamp,
        watch: &Watch<'_>,
    ) -> Result<(Manifest, bool), KeepError> {
        let wish = |text: &&str| text.len() <= MAX_WISH;
        let name = display_name(Some(handed.name.as_str()).filter(wish), "");
        let media = handed.media_type.as_deref().filter(wish);
        let label = Label {
            media_type: media_type(media, &name, ""),
            run_id: handed.run,
            conversation_id: handed.conversation,
            app: Some(handed.app),
            name,
        };
        let own: Vec<Manifest> = self.of_app(handed.app);
        let live = |known: &&Manifest| known.expires_at > now;
        let alike = |known: &&Manifest| {
            let to = known.delivery.as_ref() == Some(&handed.delivery);
            to && known.name == label.name
                && known.media_type == label.media_type
                && known.run_id == label.run_id
                && known.size_bytes == source.size
        };
        let mut alike = own.iter().filter(live).filter(alike).peekable();
        if alike.peek().is_some() {
            let digest = copy_hashed(source, None, source.size, watch).map_err(ShelfError::from)?;
            let integrity = integrity_id(&digest);
            if let Some(known) = alike.find(|known| known.integrity_id == integrity) {
                return Ok((known.clone(), false));
            }
        }
        if own.len() >= MAX_KEPT {
            return Err(KeepError::Full);
        }
        let keep = self.retention.keep();
        let manifest = self.shelf.publish(source, label, keep, now, watch)?;
        if let Err(error) = self.shelf.finalise(&[manifest.id], &handed.delivery) {
            self.take_back(manifest.id);
            return Err(error.into());
        }
        Ok((manifest, true))
    }

    /// Removes a file that nobody waited for.
    pub fn take_back(&self, id: Uuid) {
        if let Err(error) = self.shelf.discard(&[id]) {
            tracing::warn!(artifact = %id, %error, "an app's file can't be removed yet");
        }
    }

    fn of_app(&self, app: Uuid) -> Vec<Manifest> {
        let index = self.shelf.index();
        index.of_app(app).into_iter().cloned().collect()
    }

    /// The files of an app that a reader of this conversation may have, newest first.
    #[must_use]
    pub fn kept(
        &self,
        app: Uuid,
        delivery: &ConversationId,
        run: &RunId,
        now: Timestamp,
    ) -> ArtifactPage {
        let own = self.of_app(app);
        let readable = own.iter().filter(|manifest| {
            let whose = manifest.delivery.as_ref() == Some(delivery) && manifest.run_id == *run;
            whose && manifest.expires_at > now
        });
        ArtifactPage {
            artifacts: readable.map(Manifest::record).collect(),
            next_cursor: None,
            usage: None,
        }
    }
}
