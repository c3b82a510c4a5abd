//! Files of apps: handed over once a person has allowed it, listed beside the app, and downloaded as
//! reply files are. What may be kept is judged by the app-bridge.

use super::apps::{Apps, Shown, WITHIN};
use super::error::ApiError;
use super::files::{self, Wanted};
use super::keeper;
use super::shown::{File, escape};
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
    fn shown(&self, file: &File<'_>) -> Value {
        let path = format!(
            "/api/v1/messages/{}/apps/{}/files/{}",
            escape(self.message),
            escape(self.part),
            escape(file.id)
        );
        let mut shown = file.shown(self.message, &path);
        shown["app"] = self.part.into();
        shown
    }

    fn kept(&self, record: &ArtifactRecord) -> Value {
        self.shown(&File {
            id: &record.id,
            name: &record.name,
            media_type: &record.media_type,
            bytes: record.size_bytes,
            integrity: &record.integrity_id,
            expires_at: Some(&record.expires_at),
        })
    }

    /// Of the part that the artifact worker has made.
    fn made(&self, part: Value) -> Option<Value> {
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
        Some(self.shown(&File {
            id: &id,
            name: &name,
            media_type: &media_type,
            bytes: size_bytes,
            integrity: &integrity_id,
            expires_at: expires_at.as_deref(),
        }))
    }
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
        Ok(self.told(&shown, told, |part| match place.made(part) {
            Some(file) => super::apps::answer(201, &json!({ "file": file })),
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
        let files: Vec<Value> = page.artifacts.iter().map(|r| place.kept(r)).collect();
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
            place.made(part).unwrap(),
            json!({
                "type": "attachment", "messageId": "m", "app": "p?", "id": "i/1", "name": "a.csv",
                "mediaType": "text/csv", "bytes": 3, "sha256": "00", "integrityId": "sha256:00",
                "expiresAt": 1000,
                "download": "/api/v1/messages/m/apps/p%3F/files/i%2F1?integrity=sha256%3A00",
            })
        );
        let failure = json!({ "type": "failure", "id": "i", "code": "c", "message": "m" });
        assert!(place.made(failure).is_none() && place.made(json!({})).is_none());
    }
}
