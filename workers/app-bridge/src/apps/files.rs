//! Files that an app hands over: what it offers, what a person is asked, and how the bytes get to the
//! artifact worker, which keeps them as it keeps reply files.
//!
//! The page first says only what there is. Once the person has allowed it, each file has a name that
//! is good for one delivery of its bytes. They come as a memory file and go on as one, unread.

use super::audit::{Method, Phase};
use super::authority::complete;
use super::desk::{Asked, Desk, locked};
use super::manifest::Manifest;
use super::proposals::{invalid, preview, within};
use super::refusal::{Refusal, Stop, closed};
use super::security::security;
use crate::servers::{Servers, Starter};
use ipc_proto::apps::{MAX_FILE, MAX_KEPT, MAX_REQUEST, OfferedFile};
use ipc_proto::channel::CallError;
use ipc_proto::edges::artifact::{Artifact, Reply, Request};
use ipc_proto::reply::ReplyPart;
use ipc_proto::text::cut;
use ipc_proto::{Again, Body, ConversationId, Door, RunId};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Files that are handed over at once.
pub(super) const MAX_FILES: usize = 10;
/// Longest name of a file in bytes.
const MAX_FILE_NAME: usize = 240;
/// How long the artifact worker may take to keep one: a copy, a hash and a sync, behind others.
const KEPT_WITHIN: Duration = Duration::from_secs(45);
/// How long an artifact worker that starts anew is waited for.
const COMES_WITHIN: Duration = Duration::from_secs(5);
/// Longest body of the artifact worker's answer in bytes.
const MAX_PART: usize = 16 << 10;

/// The way to the artifact worker.
pub type Keeper = Door<Artifact>;

/// The bytes of a file: a sealed memory file, and how many it has.
#[derive(Debug)]
pub struct Content {
    /// The memory file.
    pub file: OwnedFd,
    /// Its bytes.
    pub bytes: u64,
}

/// A file as an app offers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// A plain file name.
    pub name: String,
    /// `type/subtype`, where the app says one.
    pub media_type: Option<String>,
    /// Its bytes.
    pub bytes: u64,
}

/// What is offered. The bytes are not here yet; what would have to be read from elsewhere never
/// comes here.
fn offers(params: &Value) -> Result<Vec<Offer>, Refusal> {
    let files = params.get("files").and_then(Value::as_array);
    let files = files.filter(|files| (1..=MAX_FILES).contains(&files.len()));
    let files = files.ok_or_else(|| invalid("One to ten files are handed over at once."))?;
    let offer = |file: &Value| {
        let of = |key: &str| file.get(key).and_then(Value::as_str);
        let bytes = file.get("bytes").and_then(Value::as_u64);
        let bytes = bytes.ok_or_else(|| invalid("A file has a size."))?;
        if bytes > MAX_FILE as u64 {
            let message = format!("A file has at most {} MiB.", MAX_FILE >> 20);
            return Err(Refusal::new("app_request_too_large", message));
        }
        Ok(Offer {
            name: file_name(of("uri").unwrap_or_default()),
            media_type: of("mimeType")
                .filter(|text| is_media_type(text))
                .map(str::to_owned),
            bytes,
        })
    };
    files.iter().map(offer).collect()
}

/// A plain file name from the last part of an address: no folder, nothing hidden, nothing that
/// looks like something else.
fn file_name(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit(['/', '\\', ':']).next().unwrap_or_default();
    let decoded = percent(last);
    let plain: String = decoded
        .chars()
        .map(|c| match c {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '_',
            c if c.is_control() || is_format(c) => '_',
            c => c,
        })
        .collect();
    let plain = plain.trim().trim_start_matches('.').trim_end_matches('.');
    match cut(plain, MAX_FILE_NAME) {
        "" => "download".to_owned(),
        name => name.to_owned(),
    }
}

/// Marks that change the direction or the look of what is around them.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

fn percent(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b);
        !part.is_empty() && part.bytes().all(allowed)
    };
    let halves = text.split_once('/').filter(|_| text.len() <= 127);
    halves.is_some_and(|(kind, sub)| token(kind) && token(sub))
}

impl Desk {
    /// What an app offers: a question to the person, and then a name for each file, under which its
    /// bytes are taken once.
    pub(super) async fn download<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        within(asked, MAX_REQUEST)?;
        let offers = offers(&asked.params)?;
        if !asked.confirmed {
            let head = asked.params.get("head").and_then(Value::as_str);
            let head = head.unwrap_or_default().to_owned();
            return Err(self
                .confirm(servers, asked, Method::Download, None, |question| {
                    question.files = (offers.iter())
                        .map(|offer| OfferedFile {
                            name: offer.name.clone(),
                            bytes: usize::try_from(offer.bytes).unwrap_or(usize::MAX),
                        })
                        .collect();
                    (question.preview, question.truncated) = preview(head.into());
                })
                .await);
        }
        let mut views = locked(&self.views);
        let mut files = Vec::with_capacity(offers.len());
        for offer in offers {
            let (name, bytes) = (offer.name.clone(), offer.bytes);
            let Some(file) = views.expect(&asked.view, offer, Instant::now()) else {
                let message = "The app has enough files on their way.";
                return Err(Refusal::new("app_rate_limited", message).into());
            };
            files.push(json!({ "file": file, "name": name, "bytes": bytes }));
        }
        Ok(json!({ "files": files }))
    }

    /// The bytes of a file that the person wants, from a view whose asker was checked. Everything
    /// else is judged here, in the order of every request; then the artifact worker keeps it.
    pub(super) async fn take<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        (manifest, life): (&Manifest, &CancellationToken),
        (view, file): (&str, &str),
        content: Option<Content>,
    ) -> Result<Value, Stop> {
        let taken = self
            .taken(servers, manifest, life, (view, file), content)
            .await;
        const METHOD: &str = "ui/download-file";
        match &taken {
            Ok(_) => security(manifest, METHOD, "allow", ""),
            Err(refusal) => security(manifest, METHOD, "deny", refusal.code),
        }
        Ok(taken?)
    }

    async fn taken<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        manifest: &Manifest,
        life: &CancellationToken,
        (view, file): (&str, &str),
        content: Option<Content>,
    ) -> Result<Value, Refusal> {
        self.may_try(&manifest.connection)?;
        let offer = locked(&self.views).expected(view, file, Instant::now());
        let offer = offer.ok_or_else(|| invalid("No file of this name is expected."))?;
        self.may_execute(&manifest.connection)?;
        let content = content.filter(|content| content.bytes == offer.bytes);
        let content =
            content.ok_or_else(|| invalid("These are not the bytes that were offered."))?;
        let ticket = self.begin(servers, &manifest.id, Method::Download, Phase::Confirmed)?;
        let keeping = keep(servers.stand().keeper(), manifest, offer, content);
        let kept = tokio::select! {
            biased;
            () = life.cancelled() => Err(closed()),
            kept = keeping => kept,
        };
        complete(ticket)?;
        serde_json::to_value(kept?).map_err(|_| not_kept())
    }
}

/// Has the artifact worker keep a file. When this is given up, it is not kept.
async fn keep(
    keeper: &Keeper,
    manifest: &Manifest,
    offer: Offer,
    content: Content,
) -> Result<ReplyPart, Refusal> {
    let (Ok(run), Ok(conversation), Ok(delivery)) = (
        RunId::parse(&manifest.run),
        ConversationId::parse(&manifest.conversation),
        ConversationId::parse(&manifest.delivery),
    ) else {
        return Err(not_kept());
    };
    let request = Request::Keep {
        app: manifest.id.clone(),
        run,
        conversation,
        delivery,
        name: offer.name,
        media_type: offer.media_type,
        content: Body::Sealed(content.bytes),
    };
    let fds = [content.file];
    let line = keeper.line(COMES_WITHIN);
    match line.ask(&request, &fds, KEPT_WITHIN, Again::Never).await {
        Ok((Reply::Published { part }, mut fds)) => {
            part.unpack_json(&mut fds, MAX_PART).map_err(|error| {
                tracing::error!("the artifact worker's answer can't be read: {error}");
                not_kept()
            })
        }
        Ok((Reply::Refused { code, .. }, _)) => Err(refused(&code)),
        Ok(_) => Err(not_kept()),
        Err(error) => {
            tracing::warn!("a file of an app can't be kept: {error}");
            Err(match error {
                CallError::Fault(_) => not_kept(),
                _ => {
                    let message = "Files can't be kept at the moment. Try again.";
                    Refusal::new("unavailable", message)
                }
            })
        }
    }
}

fn not_kept() -> Refusal {
    let message = "The file could not be kept: there is no room for it, or the disk failed.";
    Refusal::new("artifact_publish_failed", message)
}

/// A code of the artifact worker, for an app.
fn refused(code: &str) -> Refusal {
    match code {
        "artifact_too_large" => Refusal::new(
            "app_request_too_large",
            "The file is larger than files may be.",
        ),
        "reply_part_too_large" => {
            let message = format!("The app has {MAX_KEPT} files that are kept already.");
            Refusal::new("reply_part_too_large", message)
        }
        _ => not_kept(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn of(uri: &str) -> Value {
        json!({ "files": [{ "uri": uri, "mimeType": "text/csv", "bytes": 3 }] })
    }

    #[test]
    fn files_are_plainly_named() {
        for (uri, name) in [
            ("file:///reports/weekly.csv", "weekly.csv"),
            ("ui://x/../../etc/passwd", "passwd"),
            ("ui://x/%2e%2e%2fsecret", "_secret"),
            ("ui://x/.bashrc", "bashrc"),
            ("ui://x/a%0d%0ab.csv", "a__b.csv"),
            ("ui://x/report\u{202e}fdp.exe", "report_fdp.exe"),
            ("ui://x/a?name=b", "a"),
            ("C:\\x\\y.txt", "y.txt"),
            ("", "download"),
            ("ui://x/", "download"),
            ("ui://x/...", "download"),
        ] {
            assert_eq!(offers(&of(uri)).unwrap()[0].name, name, "{uri}");
        }
    }

    #[test]
    fn what_is_offered_is_bounded() {
        let sized =
            |bytes: Value| json!({ "files": [{ "uri": "a:b", "mimeType": "x", "bytes": bytes }] });
        let most = offers(&sized(MAX_FILE.into())).unwrap();
        assert_eq!(
            (most[0].bytes, &most[0].media_type),
            (MAX_FILE as u64, &None)
        );
        assert_eq!(
            offers(&of("a:b")).unwrap()[0].media_type.as_deref(),
            Some("text/csv")
        );
        for (bad, code) in [
            (json!({}), "app_request_invalid"),
            (json!({ "files": [] }), "app_request_invalid"),
            (
                json!({ "files": vec![of("a")["files"][0].clone(); 11] }),
                "app_request_invalid",
            ),
            (json!({ "files": [{ "uri": "a" }] }), "app_request_invalid"),
            (sized((-1).into()), "app_request_invalid"),
            (sized("3".into()), "app_request_invalid"),
            (sized((MAX_FILE + 1).into()), "app_request_too_large"),
            (sized(u64::MAX.into()), "app_request_too_large"),
        ] {
            assert_eq!(offers(&bad).unwrap_err().code, code, "{bad}");
        }
    }

    #[test]
    fn a_refusal_of_the_artifact_worker_is_one_of_ours() {
        for (code, told) in [
            ("artifact_too_large", "app_request_too_large"),
            ("reply_part_too_large", "reply_part_too_large"),
            ("artifact_publish_failed", "artifact_publish_failed"),
            ("anything", "artifact_publish_failed"),
        ] {
            assert_eq!(refused(code).code, told);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_file_name_is_never_a_path(uri in "\\PC{0,80}") {
            let name = file_name(&uri);
            prop_assert!(!name.is_empty() && name.len() <= MAX_FILE_NAME);
            prop_assert!(!name.starts_with('.') && !name.contains(['/', '\\', '\0', '\n']));
        }
    }
}
