//! Files of apps: handed over once a person has allowed it, listed beside the app, and downloaded as
//! reply files are. What may be kept is judged by the app-bridge.

use super::apps::{Apps, Shown, WITHIN};
use super::error::ApiError;
use super::files::{self, Wanted};
use super::keeper;
use super::live::{escape, millis};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipc_proto::Body;
use ipc_proto::apps::{Act, AppAsk};
use ipc_proto::edges::app_bridge::Request;
use ipc_proto::edges::artifact::{self, ArtifactPage, ArtifactRecord};
use ipc_proto::reply::ReplyPart;
use ipc_proto::{ConversationId, RunId};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Largest listing in bytes.
const MAX_LISTING: usize = 256 * 1024;

/// Where the files of an app are.
struct Place<'a> {
    message: &'a str,
    part: &'a str,
}

impl Place<'_> {
    /// A file as pages see it: as one of the reply, with an address of its own.
    fn file(&self, record: &ArtifactRecord) -> Value {
        let integrity = &record.integrity_id;
        let download = format!(
            "/api/v1/messages/{}/apps/{}/files/{}?integrity={}",
            escape(self.message),
            escape(self.part),
            escape(&record.id),
            escape(integrity)
        );
        json!({
            "type": "attachment", "messageId": self.message, "app": self.part, "id": record.id,
            "name": record.name, "mediaType": record.media_type, "bytes": record.size_bytes,
            "sha256": integrity.strip_prefix("sha256:").unwrap_or(integrity),
            "integrityId": integrity, "expiresAt": millis(Some(&record.expires_at)),
            "download": download,
        })
    }
}

/// What is needed of a part that the artifact worker has made.
fn record(part: Value) -> Option<ArtifactRecord> {
    let ReplyPart::Attachment {
        id,
        name,
        media_type,
        size_bytes,
        integrity_id,
        expires_at,
        ..
    } = serde_json::from_value(part).ok()?
    else {
        return None;
    };
    Some(ArtifactRecord {
        id,
        run_id: String::new(),
        conversation_id: String::new(),
        delivery_conversation_id: None,
        name,
        media_type,
        size_bytes,
        integrity_id,
        created_at: String::new(),
        expires_at: expires_at.unwrap_or_default(),
        app: None,
    })
}

/// Whose files of an app are: its message's thread, and its run.
fn owners(shown: &Shown) -> Result<(ConversationId, RunId), ApiError> {
    let owners = (
        ConversationId::parse(&shown.claim.delivery),
        RunId::parse(&shown.claim.run),
    );
    match owners {
        (Ok(delivery), Ok(run)) => Ok((delivery, run)),
        _ => Err(files::refusal("artifact_missing")),
    }
}

impl Apps {
    /// The bytes of a file that a person wants: the file as it is kept.
    ///
    /// # Errors
    /// docs/protocols.md, "MCP Apps in the console".
    pub async fn hand(
        &self,
        (message, part): (&str, &str),
        (view, file): (&str, &str),
        capability: String,
        bytes: Vec<u8>,
    ) -> Result<Response, ApiError> {
        let shown = self.shown(message, part).await?;
        let unavailable = |_| ApiError::unavailable("app-bridge");
        let ask = AppAsk {
            claim: shown.claim.clone(),
            act: Act::Hand {
                view: view.to_owned(),
                capability,
                file: file.to_owned(),
            },
        };
        let (ask, none) = Body::pack_json(&ask).map_err(unavailable)?;
        if none.is_some() {
            return Err(ApiError::invalid("The address is too long."));
        }
        let (content, fd) = Body::pack(bytes).map_err(unavailable)?;
        let fds: Vec<_> = fd.into_iter().collect();
        let (_, told) = self.asked(&Request::Hand { ask, content }, &fds).await?;
        let told = serde_json::from_slice(&told).map_err(|e| {
            tracing::error!("the app-bridge's answer can't be read: {e}");
            ApiError::unavailable("app-bridge")
        })?;
        let place = Place { message, part };
        Ok(self.told(&shown, told, |part| match record(part) {
            Some(record) => {
                let file = place.file(&record);
                super::apps::answer(201, &json!({ "file": file }))
            }
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }))
    }

    /// The files of an app that are kept, newest first.
    ///
    /// # Errors
    /// 404 `app_missing`, 503.
    pub async fn files(&self, (message, part): (&str, &str)) -> Result<Response, ApiError> {
        let shown = self.shown(message, part).await?;
        let (delivery, run) = owners(&shown)?;
        let unavailable = || ApiError::unavailable("artifact worker");
        let request = artifact::Request::Kept {
            app: shown.claim.invocation.clone(),
            delivery,
            run,
        };
        let client = keeper::serving(&self.keeper.artifact).await?;
        let answer = client.call(&request, &[], WITHIN).await;
        let Ok((artifact::Reply::Artifacts { page }, mut fds)) = answer else {
            tracing::warn!("the artifact worker did not list the files of an app");
            return Err(unavailable());
        };
        let page: ArtifactPage = page
            .unpack_json(&mut fds, MAX_LISTING)
            .map_err(|_| unavailable())?;
        let place = Place { message, part };
        let files: Vec<Value> = page.artifacts.iter().map(|r| place.file(r)).collect();
        Ok(super::apps::answer(200, &json!({ "files": files })))
    }

    /// A file of an app.
    ///
    /// # Errors
    /// As for a reply file.
    pub async fn file(
        &self,
        downloads: &Arc<Semaphore>,
        (message, part): (&str, &str),
        id: &str,
        integrity: &str,
    ) -> Result<Response, ApiError> {
        let shown = self.shown(message, part).await?;
        let (delivery, run) = owners(&shown)?;
        let wanted = Wanted {
            id: id.to_owned(),
            integrity: integrity.to_owned(),
            delivery,
            run: Some(run),
            app: Some(shown.claim.invocation),
        };
        files::fetch(&self.keeper, downloads, wanted).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_shown_as_one_of_the_reply_under_the_app_s_address() {
        let part = json!({
            "type": "attachment", "id": "i/1", "reference": { "scheme": "s", "id": "i/1" },
            "name": "a.csv", "mediaType": "text/csv", "sizeBytes": 3,
            "integrityId": "sha256:00", "expiresAt": "1970-01-01T00:00:01.000Z",
        });
        let place = Place {
            message: "m",
            part: "p?",
        };
        assert_eq!(
            place.file(&record(part).unwrap()),
            json!({
                "type": "attachment", "messageId": "m", "app": "p?", "id": "i/1", "name": "a.csv",
                "mediaType": "text/csv", "bytes": 3, "sha256": "00", "integrityId": "sha256:00",
                "expiresAt": 1000,
                "download": "/api/v1/messages/m/apps/p%3F/files/i%2F1?integrity=sha256%3A00",
            })
        );
        let failure = json!({ "type": "failure", "id": "i", "code": "c", "message": "m" });
        assert!(record(failure).is_none() && record(json!({})).is_none());
    }
}
