//! Downloads of reply files: only what a message of the thread has, only the verified bytes.

use super::error::ApiError;
use super::keeper::{self, Keeper};
use super::shown::escape;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE,
};
use http::{HeaderMap, HeaderValue};
use ipc_proto::channel::CallError;
use ipc_proto::console::{Ask, Found};
use ipc_proto::edges::artifact::{ArtifactRecord, Reply, Request};
use ipc_proto::reply::{ReplyPart, failure_message};
use ipc_proto::{ConversationId, RunId, rooms};
use mono_sys::mapped::Mapped;
use mono_sys::memfd::{SealedError, read_sealed};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the artifact worker may take: 20 MiB are read and hashed, behind others.
const WITHIN: Duration = Duration::from_secs(60);
/// Largest file in bytes (spec s0).
const MAX_FILE: usize = 20 * 1024 * 1024;
/// Files on their way out at once; further ones wait. Each is held in memory until it has left.
pub const MAX_DOWNLOADS: usize = 16;
/// Largest record in bytes.
const MAX_RECORD: usize = 64 * 1024;

/// A code of facts 5.2 with its status; what is nobody's business to know is a 404.
#[must_use]
pub fn refusal(code: &str) -> ApiError {
    let status = match code {
        "artifact_missing" | "artifact_expired" => 404,
        "artifact_integrity_failed" => 409,
        _ => 500,
    };
    match status {
        500 => ApiError::new(500, "internal", "The file could not be read."),
        _ => ApiError::new(status, code, failure_message(code)),
    }
}

/// A file of a message.
///
/// # Errors
/// 404 `artifact_missing`, `artifact_expired` or `forbidden`, 409 `artifact_integrity_failed`.
pub async fn download(
    keeper: &Keeper,
    downloads: &Arc<Semaphore>,
    (message, part): (&str, &str),
    integrity: &str,
) -> Result<Response, ApiError> {
    let missing = || refusal("artifact_missing");
    let ask = Ask::ShowMessage {
        id: message.to_owned(),
    };
    let found: Found = keeper.ask(&ask).await.map_err(|e| match e.status {
        404 => missing(),
        _ => e,
    })?;
    let parts = found.message.parts.into_iter();
    let artifact = parts.into_iter().find_map(|own| match own {
        ReplyPart::Attachment { id, reference, .. } if id == part => Some(reference.id),
        _ => None,
    });
    let id = artifact
        .ok_or_else(|| ApiError::new(404, "forbidden", "This file is not part of that message."))?;
    let delivery = ConversationId::parse(&format!("{}{}", rooms::CONSOLE, found.thread))
        .map_err(|_| missing())?;
    let run = found.message.run_id.as_deref().map(RunId::parse);
    let wanted = Wanted {
        id,
        integrity: integrity.to_owned(),
        delivery,
        run: run.transpose().map_err(|_| missing())?,
        app: None,
    };
    fetch(keeper, downloads, wanted).await
}

/// A file, and whose it must be.
#[derive(Debug)]
pub struct Wanted {
    /// The artifact.
    pub id: String,
    /// What it must be.
    pub integrity: String,
    /// The conversation that it went to.
    pub delivery: ConversationId,
    /// The run that made it.
    pub run: Option<RunId>,
    /// The app that it is a file of; none for a part of the reply.
    pub app: Option<String>,
}

impl Wanted {
    /// A file that went to a thread, named as the list of all files does: also where the message that
    /// had it was edited or removed since.
    ///
    /// # Errors
    /// 404 `artifact_missing` for what can't be a thread or a run.
    pub fn of_thread(
        (thread, id): (&str, &str),
        run: &str,
        integrity: String,
        app: Option<String>,
    ) -> Result<Self, ApiError> {
        let missing = || refusal("artifact_missing");
        let delivery = format!("{}{thread}", rooms::CONSOLE);
        Ok(Self {
            id: id.to_owned(),
            integrity,
            delivery: ConversationId::parse(&delivery).map_err(|_| missing())?,
            run: Some(RunId::parse(run).map_err(|_| missing())?),
            app,
        })
    }
}

/// A verified file on its way to a page.
///
/// # Errors
/// 404 `artifact_missing` or `artifact_expired`, 409 `artifact_integrity_failed`.
pub async fn fetch(
    keeper: &Keeper,
    downloads: &Arc<Semaphore>,
    wanted: Wanted,
) -> Result<Response, ApiError> {
    let request = Request::Open {
        id: wanted.id,
        integrity_id: Some(wanted.integrity),
        delivery: Some(wanted.delivery),
        run: wanted.run,
    };
    let permit = downloads.clone().acquire_owned().await;
    let permit = permit.map_err(|_| ApiError::unavailable("console"))?;
    let client = keeper::serving(&keeper.artifact).await?;
    let (reply, mut fds) = match client.call(&request, &[], WITHIN).await {
        Ok(answer) => answer,
        Err(CallError::Fault(fault)) => return Err(fault.into()),
        Err(e) => {
            tracing::warn!("the artifact worker did not answer: {e}");
            return Err(ApiError::unavailable("artifact worker"));
        }
    };
    let record = match reply {
        Reply::Opened { record } => record,
        Reply::Refused { code, .. } => return Err(refusal(&code)),
        _ => return Err(refusal("")),
    };
    let record: ArtifactRecord = record
        .unpack_json(&mut fds, MAX_RECORD)
        .map_err(|_| refusal(""))?;
    if record.app != wanted.app {
        return Err(refusal("artifact_missing"));
    }
    let content = fds.pop_front().ok_or_else(|| refusal(""))?;
    response(&record, content, permit)
}

fn response(
    record: &ArtifactRecord,
    content: OwnedFd,
    permit: OwnedSemaphorePermit,
) -> Result<Response, ApiError> {
    let unreadable = |e: SealedError| {
        tracing::error!("a file of the artifact worker is not usable: {e}");
        refusal("")
    };
    let bytes: Box<dyn AsRef<[u8]> + Send> = match Mapped::new(&content, MAX_FILE) {
        Ok(Some(mapped)) => Box::new(mapped),
        Ok(None) => Box::new(read_sealed(&content, MAX_FILE).map_err(unreadable)?),
        Err(e) => return Err(unreadable(e)),
    };
    let bytes = Bytes::from_owner(Held {
        bytes,
        _permit: permit,
    });
    if bytes.len() as u64 != record.size_bytes {
        return Err(refusal(""));
    }
    let mut response = Body::from(bytes).into_response();
    put_headers(response.headers_mut(), &record.name, record.size_bytes);
    Ok(response)
}

/// A file on its way out, and its share of those that are.
struct Held {
    bytes: Box<dyn AsRef<[u8]> + Send>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }
}

/// The headers of facts 5.2: never shown in place, never kept, never taken for something else.
fn put_headers(headers: &mut HeaderMap, name: &str, bytes: u64) {
    let disposition = format!("attachment; filename*=UTF-8''{}", escape(name));
    for (header, value) in [
        (CONTENT_TYPE, "application/octet-stream"),
        (CACHE_CONTROL, "private, no-store"),
        (ACCEPT_RANGES, "none"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    ] {
        headers.insert(header, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_LENGTH, bytes.into());
    if let Ok(value) = HeaderValue::from_str(&disposition) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http_body_util::BodyExt;

    #[test]
    fn every_refusal_has_its_status() {
        for (code, status, told) in [
            ("artifact_missing", 404, "artifact_missing"),
            ("artifact_expired", 404, "artifact_expired"),
            (
                "artifact_integrity_failed",
                409,
                "artifact_integrity_failed",
            ),
            ("anything", 500, "internal"),
        ] {
            let error = refusal(code);
            assert_eq!((error.status, &*error.code), (status, told));
        }
    }

    #[tokio::test]
    async fn a_file_comes_whole_and_holds_its_place_until_it_has_left() {
        let places = Arc::new(Semaphore::new(1));
        let take = || places.clone().try_acquire_owned();
        let record = |bytes: &[u8]| ArtifactRecord {
            size_bytes: bytes.len() as u64,
            ..record()
        };
        for bytes in [vec![], vec![7; 3 * 1024 * 1024 + 5]] {
            let file = mono_sys::memfd::sealed_memfd(c"test", &bytes).unwrap();
            let answer = response(&record(&bytes), file, take().unwrap()).unwrap();
            // Of nothing, nothing is held.
            assert_eq!(take().is_err(), !bytes.is_empty());
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(take().is_err(), !bytes.is_empty());
            assert!(body == bytes);
            drop(body);
        }
        // Shorter than its record says, or not sealed: not one byte.
        let file = mono_sys::memfd::sealed_memfd(c"test", b"ab").unwrap();
        let refused = response(&record(b"abc"), file, take().unwrap()).unwrap_err();
        assert_eq!(refused.status, 500);
        let file = tempfile::tempfile().unwrap();
        let refused = response(&record(b""), file.into(), take().unwrap()).unwrap_err();
        assert_eq!(refused.status, 500);
    }

    fn record() -> ArtifactRecord {
        ArtifactRecord {
            id: "i".into(),
            run_id: "r".into(),
            conversation_id: "c".into(),
            delivery_conversation_id: None,
            name: "n".into(),
            media_type: "a/b".into(),
            size_bytes: 0,
            integrity_id: "sha256:00".into(),
            created_at: String::new(),
            expires_at: String::new(),
            app: None,
        }
    }

    #[test]
    fn a_name_is_never_markup_or_another_header() {
        let mut headers = HeaderMap::new();
        put_headers(&mut headers, "<b>\"ä\r\n;x=.svg", 3);
        assert_eq!(
            headers[CONTENT_DISPOSITION],
            "attachment; filename*=UTF-8''%3Cb%3E%22%C3%A4%0D%0A%3Bx%3D.svg"
        );
        assert_eq!(headers[CONTENT_LENGTH], "3");
    }
}
