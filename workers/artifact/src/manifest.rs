//! `metadata.json`: what is known of one artifact (facts 5.3, schema 1).

use crate::name::{is_display_name, is_media_type};
use crate::{MAX_FILE, name};
use ipc_proto::edges::artifact::ArtifactRecord;
use ipc_proto::reply::{ArtifactReference, ReplyPart};
use ipc_proto::{ConversationId, RunId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest manifest in bytes.
pub const MAX_MANIFEST: usize = 16 * 1024;
/// The schema written and read.
const SCHEMA: u32 = 1;
/// How a reply part names this store (facts 5.1).
const SCHEME: &str = "mono-agent-artifact";

/// Why bytes are no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Over [`MAX_MANIFEST`].
    #[error("the manifest has more than {MAX_MANIFEST} bytes")]
    TooLarge,
    /// Not the JSON of schema 1.
    #[error("the manifest is not the JSON of schema {SCHEMA}: {0}")]
    Json(#[from] serde_json::Error),
    /// A field holds what this worker never writes.
    #[error("the manifest's {0} is not one this worker writes")]
    Field(&'static str),
}

/// One artifact. Present `delivery` means that its run was finalised: only then it is kept over a
/// restart and shown to anyone but operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    schema_version: u32,
    /// The opaque id, also the directory's name.
    pub id: Uuid,
    /// The run that published it.
    pub run_id: RunId,
    /// Logical conversation of that run.
    pub conversation_id: ConversationId,
    /// Physical conversation it is bound to.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "deliveryConversationId"
    )]
    pub delivery: Option<ConversationId>,
    /// Display name, at most [`name::MAX_NAME`] bytes.
    pub name: String,
    /// `type/subtype`.
    pub media_type: String,
    /// Size of the content in bytes.
    pub size_bytes: u64,
    /// `sha256:<hex>` of the content.
    pub integrity_id: String,
    /// When it was published.
    pub created_at: Timestamp,
    /// When it stops being readable.
    pub expires_at: Timestamp,
    /// The app that handed it over: then it is of its run, and no part of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Uuid>,
}

/// What the publisher decides about an artifact, before its bytes are known.
#[derive(Debug, Clone)]
pub struct Label {
    /// The run.
    pub run_id: RunId,
    /// Its logical conversation.
    pub conversation_id: ConversationId,
    /// Display name, from [`name::display_name`].
    pub name: String,
    /// From [`name::media_type`].
    pub media_type: String,
    /// The app that handed it over, where it was one.
    pub app: Option<Uuid>,
}

impl Manifest {
    /// The manifest of a copy that is complete; times are cut to milliseconds.
    #[must_use]
    pub fn new(
        id: Uuid,
        label: Label,
        size_bytes: u64,
        integrity_id: String,
        now: Timestamp,
        keep: jiff::SignedDuration,
    ) -> Self {
        let created_at = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        Self {
            schema_version: SCHEMA,
            id,
            run_id: label.run_id,
            conversation_id: label.conversation_id,
            delivery: None,
            name: label.name,
            media_type: label.media_type,
            size_bytes,
            integrity_id,
            created_at,
            expires_at: created_at.checked_add(keep).unwrap_or(Timestamp::MAX),
            app: label.app,
        }
    }

    /// Reads and checks what stands on the disk.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST {
            return Err(ManifestError::TooLarge);
        }
        let manifest: Self = serde_json::from_slice(bytes)?;
        let checks = [
            (manifest.schema_version == SCHEMA, "schemaVersion"),
            (is_display_name(&manifest.name), "name"),
            (is_media_type(&manifest.media_type), "mediaType"),
            (manifest.size_bytes <= MAX_FILE, "sizeBytes"),
            (is_integrity_id(&manifest.integrity_id), "integrityId"),
            (manifest.expires_at > manifest.created_at, "expiresAt"),
        ];
        match checks.into_iter().find(|(holds, _)| !holds) {
            Some((_, field)) => Err(ManifestError::Field(field)),
            None => Ok(manifest),
        }
    }

    /// The bytes for the disk.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`], which the bounds of the fields exclude.
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        let bytes = serde_json::to_vec_pretty(self)?;
        if bytes.len() > MAX_MANIFEST {
            Err(ManifestError::TooLarge)
        } else {
            Ok(bytes)
        }
    }

    /// The visible part; its id is the artifact's, which is unguessable and says nothing.
    #[must_use]
    pub fn part(&self) -> ReplyPart {
        ReplyPart::Attachment {
            id: self.id.to_string(),
            reference: ArtifactReference {
                scheme: SCHEME.to_owned(),
                id: self.id.to_string(),
            },
            name: self.name.clone(),
            media_type: self.media_type.clone(),
            size_bytes: self.size_bytes,
            integrity_id: self.integrity_id.clone(),
            expires_at: Some(rfc3339(self.expires_at)),
        }
    }

    /// As an owner or operator sees it.
    #[must_use]
    pub fn record(&self) -> ArtifactRecord {
        ArtifactRecord {
            id: self.id.to_string(),
            run_id: self.run_id.as_str().to_owned(),
            conversation_id: self.conversation_id.as_str().to_owned(),
            delivery_conversation_id: self.delivery.as_ref().map(|d| d.as_str().to_owned()),
            name: self.name.clone(),
            media_type: self.media_type.clone(),
            size_bytes: self.size_bytes,
            integrity_id: self.integrity_id.clone(),
            created_at: rfc3339(self.created_at),
            expires_at: rfc3339(self.expires_at),
            app: self.app.map(|app| app.simple().to_string()),
        }
    }
}

/// Milliseconds always shown, so that texts of one width sort as the times do.
fn rfc3339(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// `sha256:<64 lower-case hex digits>`.
#[must_use]
fn is_integrity_id(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The integrity id of a digest.
#[must_use]
pub fn integrity_id(digest: &[u8; 32]) -> String {
    format!("sha256:{}", hex::encode(digest))
}

const _: () = assert!(
    name::MAX_NAME * 6 < MAX_MANIFEST / 4,
    "an escaped name must leave room for the rest"
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn manifest() -> Manifest {
        let label = Label {
            run_id: RunId::parse("run-1").unwrap(),
            conversation_id: ConversationId::parse("c#2026-01-01").unwrap(),
            name: "weekly.csv".into(),
            media_type: "text/csv".into(),
            app: None,
        };
        let now: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        let day = jiff::SignedDuration::from_hours(24);
        Manifest::new(Uuid::nil(), label, 7, integrity_id(&[0xab; 32]), now, day)
    }

    #[test]
    fn the_fields_and_their_names_are_the_specification_s() {
        let mut bound = manifest();
        bound.delivery = Some(ConversationId::parse("c").unwrap());
        let json: serde_json::Value = serde_json::from_slice(&bound.encode().unwrap()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "schemaVersion": 1,
                "id": "00000000-0000-0000-0000-000000000000",
                "runId": "run-1",
                "conversationId": "c#2026-01-01",
                "deliveryConversationId": "c",
                "name": "weekly.csv",
                "mediaType": "text/csv",
                "sizeBytes": 7,
                "integrityId": format!("sha256:{}", "ab".repeat(32)),
                "createdAt": "2026-01-02T03:04:05.678Z",
                "expiresAt": "2026-01-03T03:04:05.678Z",
            })
        );
        assert_eq!(Manifest::parse(&bound.encode().unwrap()).unwrap(), bound);
        let record = bound.record();
        assert_eq!(
            (record.created_at.as_str(), record.expires_at.as_str()),
            ("2026-01-02T03:04:05.678Z", "2026-01-03T03:04:05.678Z")
        );
    }

    #[test]
    fn a_manifest_that_we_never_write_is_refused() {
        let good = serde_json::to_value(manifest()).unwrap();
        let changed = |field: &str, value: serde_json::Value| {
            let mut json = good.clone();
            json[field] = value;
            Manifest::parse(&serde_json::to_vec(&json).unwrap())
        };
        let refused: [(&str, serde_json::Value); 13] = [
            ("schemaVersion", 2.into()),
            ("id", "not-a-uuid".into()),
            ("runId", "../x".into()),
            ("conversationId", "".into()),
            ("name", "a/b".into()),
            ("name", "a\u{202e}b".into()),
            ("mediaType", "text".into()),
            ("sizeBytes", (MAX_FILE + 1).into()),
            ("sizeBytes", (-1).into()),
            ("integrityId", "sha256:AB".into()),
            ("createdAt", "yesterday".into()),
            ("expiresAt", "2020-01-01T00:00:00Z".into()),
            ("extra", 1.into()),
        ];
        for (field, value) in refused {
            assert!(changed(field, value.clone()).is_err(), "{field}: {value}");
        }
        assert!(changed("name", "other.csv".into()).is_ok());
        let padded = [manifest().encode().unwrap(), vec![b' '; MAX_MANIFEST]].concat();
        assert!(matches!(
            Manifest::parse(&padded),
            Err(ManifestError::TooLarge)
        ));
    }

    proptest! {
        #[test]
        fn every_label_fits_its_manifest_and_comes_back(
            run in "[A-Za-z0-9][A-Za-z0-9._-]{0,199}",
            conversation in "[^\\p{Cc}]{1,128}",
            wished in ".{0,300}",
            millis in 0i64..4_000_000_000_000,
        ) {
            let label = Label {
                run_id: RunId::parse(&run).unwrap(),
                conversation_id: ConversationId::parse(&conversation).unwrap(),
                name: name::display_name(Some(&wished), "f"),
                media_type: name::media_type(Some(&wished), "f", "f"),
                app: (millis % 2 == 0).then(Uuid::new_v4),
            };
            let now = Timestamp::from_millisecond(millis).unwrap();
            let mut manifest = Manifest::new(Uuid::new_v4(), label, 1, integrity_id(&[1; 32]), now, jiff::SignedDuration::from_hours(24));
            manifest.delivery = Some(ConversationId::parse(&conversation).unwrap());
            let bytes = manifest.encode().unwrap();
            prop_assert_eq!(Manifest::parse(&bytes).unwrap(), manifest);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::parse(&bytes).is_ok();
        }
    }
}
