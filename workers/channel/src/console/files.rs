//! Downloads of reply files: only what a message of the thread has, only the verified bytes.

use super::error::ApiError;
use super::keeper::Keeper;
use super::live::escape;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE,
};
use http::{HeaderMap, HeaderValue};
use ipc_proto::channel::CallError;
use ipc_proto::console::{Ask, Found};
use ipc_proto::edges::artifact::{ArtifactRecord, Reply, Request};
use ipc_proto::reply::{ReplyPart, failure_message};
use ipc_proto::{ConversationId, RunId};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long the artifact worker may take: 20 MiB are read and hashed, behind others.
const WITHIN: Duration = Duration::from_secs(60);
/// Bytes read at once.
const CHUNK: usize = 256 * 1024;
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
    message: &str,
    part: &str,
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
    let delivery =
        ConversationId::parse(&format!("web:{}", found.thread)).map_err(|_| missing())?;
    let run = found.message.run_id.as_deref().map(RunId::parse);
    let request = Request::Open {
        id,
        integrity_id: Some(integrity.to_owned()),
        delivery: Some(delivery),
        run: run.transpose().map_err(|_| missing())?,
    };
    let client = keeper.artifact.client().await?;
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
    let content = fds.pop_front().ok_or_else(|| refusal(""))?;
    Ok(response(&record, content))
}

fn response(record: &ArtifactRecord, content: OwnedFd) -> Response {
    // A memory file: reading it never waits.
    let bytes = stream::unfold(
        (File::from(content), record.size_bytes),
        |(mut file, left)| async move {
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            if most == 0 {
                return None;
            }
            let mut chunk = vec![0; most];
            match file.read(&mut chunk) {
                Ok(0) => None,
                Ok(n) => {
                    chunk.truncate(n);
                    Some((Ok(Bytes::from(chunk)), (file, left - n as u64)))
                }
                Err(e) => Some((Err(e), (file, 0))),
            }
        },
    );
    let mut response = Body::from_stream(bytes).into_response();
    put_headers(response.headers_mut(), &record.name, record.size_bytes);
    response
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
    use super::*;

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
