//! Files on their way from a page to a run, in memory and within bounds. No clock.

use super::error::ApiError;
use crate::label::{is_media_type, is_name};
use ipc_proto::console::Attachment;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Largest file in bytes.
pub const MAX_FILE: u64 = 20 * 1024 * 1024;
/// Bytes of all files that wait, of everybody together: to be sent, and with sent messages for
/// their runs to begin.
pub const MAX_WAITING: u64 = 64 * 1024 * 1024;
/// Files that wait.
pub const MAX_FILES: usize = 256;
/// How long one waits, in milliseconds.
pub const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// What is known of a file, and its bytes.
pub type File = (Attachment, Arc<Vec<u8>>);

/// One file.
#[derive(Debug, Clone)]
struct Upload {
    about: Attachment,
    content: Option<(Arc<Vec<u8>>, String)>,
    at: i64,
    /// A message has it: it is only here for an edit of that message.
    used: bool,
}

impl Upload {
    /// A message waits with its bytes, or is just being taken: forgotten here, they would be memory
    /// that nobody counts.
    fn is_held(&self) -> bool {
        let content = self.content.as_ref();
        content.is_some_and(|(bytes, _)| Arc::strong_count(bytes) > 1)
    }
}

/// The files that wait.
#[derive(Debug, Default)]
pub struct Uploads(BTreeMap<String, Upload>);

impl Uploads {
    fn expire(&mut self, now: i64) {
        self.0
            .retain(|_, upload| now - upload.at < KEPT_MS || upload.is_held());
    }

    fn bytes(&self) -> u64 {
        self.0.values().map(|upload| upload.about.bytes).sum()
    }

    /// Announces a file; room for it is taken from now on. Gives its id.
    ///
    /// # Errors
    /// [`ApiError`]: a bad name or type, too large, no room.
    pub fn announce(
        &mut self,
        name: &str,
        media_type: &str,
        bytes: u64,
        now: i64,
    ) -> Result<String, ApiError> {
        if !is_name(name) {
            let message = "\"name\" must be a plain file name of at most 240 bytes.";
            return Err(ApiError::invalid(message));
        }
        // A browser that doesn't know the type says nothing.
        let media_type = match media_type.split(';').next().unwrap_or_default().trim() {
            "" => "application/octet-stream".to_owned(),
            other => other.to_ascii_lowercase(),
        };
        if !is_media_type(&media_type) {
            return Err(ApiError::invalid("\"mediaType\" must be type/subtype."));
        }
        if bytes > MAX_FILE {
            return Err(ApiError::too_large("A file may have at most 20 MiB."));
        }
        self.expire(now);
        // Those of sent messages make room first, the oldest before the others.
        while self.bytes() + bytes > MAX_WAITING || self.0.len() >= MAX_FILES {
            let used = self.0.iter();
            let used = used.filter(|(_, upload)| upload.used && !upload.is_held());
            let Some(oldest) = used
                .min_by_key(|(_, upload)| upload.at)
                .map(|(id, _)| id.clone())
            else {
                return Err(ApiError::new(
                    507,
                    "uploads_full",
                    "Too many files wait to be sent, or with messages that wait. Send or remove some, or \
                     wait for an answer.",
                ));
            };
            self.0.remove(&oldest);
        }
        let id = Uuid::new_v4().simple().to_string();
        let about = Attachment {
            id: id.clone(),
            name: name.to_owned(),
            media_type,
            bytes,
        };
        let upload = Upload {
            about,
            content: None,
            at: now,
            used: false,
        };
        self.0.insert(id.clone(), upload);
        Ok(id)
    }

    /// How many bytes a file was announced with.
    ///
    /// # Errors
    /// 404.
    pub fn announced(&self, id: &str) -> Result<u64, ApiError> {
        let upload = self
            .0
            .get(id)
            .ok_or_else(|| ApiError::not_found("upload"))?;
        Ok(upload.about.bytes)
    }

    /// Takes the content; gives what is known of the file, and its SHA-256 in hex.
    ///
    /// # Errors
    /// 404, 400 for another size than was announced, 409 once a message waits with it.
    pub fn fill(
        &mut self,
        id: &str,
        mut content: Vec<u8>,
    ) -> Result<(Attachment, String), ApiError> {
        let upload = self
            .0
            .get_mut(id)
            .ok_or_else(|| ApiError::not_found("upload"))?;
        if content.len() as u64 != upload.about.bytes {
            let message = "The content has another size than was announced.";
            return Err(ApiError::new(400, "size_mismatch", message));
        }
        if upload.is_held() {
            let message = "The file was sent already. Attach it again to send another.";
            return Err(ApiError::new(409, "upload_sent", message));
        }
        // It grew by doubling as it came.
        content.shrink_to_fit();
        let digest = Sha256::digest(&content);
        let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        upload.content = Some((Arc::new(content), hash.clone()));
        Ok((upload.about.clone(), hash))
    }

    /// The files of a message.
    ///
    /// # Errors
    /// 400 for one that isn't there or has no content yet.
    pub fn take(&self, ids: &[String]) -> Result<Vec<File>, ApiError> {
        let one = |id: &String| {
            let upload = self.0.get(id)?;
            let (content, _) = upload.content.as_ref()?;
            Some((upload.about.clone(), content.clone()))
        };
        ids.iter().map(one).collect::<Option<_>>().ok_or_else(|| {
            let message = "An attached file is no longer there. Attach it again.";
            ApiError::new(400, "upload_missing", message)
        })
    }

    /// A message has these now.
    pub fn used(&mut self, ids: &[String]) {
        for id in ids {
            if let Some(upload) = self.0.get_mut(id) {
                upload.used = true;
            }
        }
    }

    /// Forgets a file that no message has.
    pub fn remove(&mut self, id: &str) {
        let upload = self.0.get(id);
        if upload.is_some_and(|upload| !upload.used && !upload.is_held()) {
            self.0.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn code<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
        result.unwrap_err().code
    }

    #[test]
    fn a_file_is_announced_filled_and_taken() {
        let mut uploads = Uploads::default();
        let id = uploads
            .announce("a.csv", "Text/CSV; charset=utf-8", 3, 0)
            .unwrap();
        assert_eq!(uploads.announced(&id), Ok(3));
        assert_eq!(
            code(uploads.take(std::slice::from_ref(&id))),
            "upload_missing"
        );
        assert_eq!(code(uploads.fill(&id, vec![1, 2])), "size_mismatch");
        let (about, hash) = uploads.fill(&id, b"abc".to_vec()).unwrap();
        assert_eq!((&*about.media_type, about.bytes), ("text/csv", 3));
        assert!(hash.starts_with("ba7816bf"));
        assert_eq!(
            *uploads.take(std::slice::from_ref(&id)).unwrap()[0].1,
            b"abc"
        );
        uploads.remove(&id);
        assert_eq!(code(uploads.announced(&id)), "not_found");
    }

    #[test]
    fn names_types_and_sizes_are_bounded() {
        let mut uploads = Uploads::default();
        for name in [
            "",
            ".env",
            "a/b",
            "a\\b",
            "a\nb",
            "a\u{202e}fdp.exe",
            &"x".repeat(241),
        ] {
            assert_eq!(
                code(uploads.announce(name, "", 1, 0)),
                "invalid_request",
                "{name:?}"
            );
        }
        for kind in ["text", "a/b/c", "a /b", &format!("a/{}", "x".repeat(127))] {
            assert_eq!(
                code(uploads.announce("a", kind, 1, 0)),
                "invalid_request",
                "{kind:?}"
            );
        }
        assert_eq!(
            code(uploads.announce("a", "", MAX_FILE + 1, 0)),
            "too_large"
        );
        assert!(uploads.announce(&"x".repeat(240), "", MAX_FILE, 0).is_ok());
    }

    #[test]
    fn files_of_sent_messages_make_room_and_old_ones_go() {
        let mut uploads = Uploads::default();
        let add = |uploads: &mut Uploads, at| uploads.announce("a", "", MAX_FILE, at);
        let first = add(&mut uploads, 1).unwrap();
        let second = add(&mut uploads, 2).unwrap();
        add(&mut uploads, 3).unwrap();
        assert_eq!(code(add(&mut uploads, 4)), "uploads_full");
        uploads.used(&[second.clone(), first.clone()]);
        add(&mut uploads, 5).unwrap();
        assert!(uploads.announced(&first).is_err() && uploads.announced(&second).is_ok());
        // One that a message has is not removed by hand.
        uploads.remove(&second);
        assert!(uploads.announced(&second).is_ok());
        add(&mut uploads, KEPT_MS + 5).unwrap();
        assert!(uploads.announced(&second).is_err());
        let mut many = Uploads::default();
        for _ in 0..MAX_FILES {
            many.announce("a", "", 0, 0).unwrap();
        }
        assert_eq!(code(many.announce("a", "", 0, 0)), "uploads_full");
    }

    #[test]
    fn what_messages_wait_with_counts_until_their_runs_begin() {
        let mut uploads = Uploads::default();
        let add = |uploads: &mut Uploads, at| uploads.announce("a", "", MAX_FILE, at);
        let ids: Vec<String> = (0..3).map(|at| add(&mut uploads, at).unwrap()).collect();
        for id in &ids {
            uploads.fill(id, vec![0; MAX_FILE as usize]).unwrap();
        }
        let waiting = uploads.take(&ids[..2]).unwrap();
        // Just being taken, and taken: neither by hand, nor for another, nor by time.
        uploads.remove(&ids[0]);
        uploads.used(&ids);
        add(&mut uploads, 4).unwrap();
        assert!(uploads.announced(&ids[2]).is_err());
        assert_eq!(code(add(&mut uploads, KEPT_MS + 1)), "uploads_full");
        assert!(ids[..2].iter().all(|id| uploads.announced(id).is_ok()));
        let other = vec![1; MAX_FILE as usize];
        assert_eq!(code(uploads.fill(&ids[0], other)), "upload_sent");
        drop(waiting);
        assert!(add(&mut uploads, 5).is_ok());
    }

    #[test]
    fn a_file_takes_no_more_than_its_bytes() {
        let mut uploads = Uploads::default();
        let id = uploads.announce("a", "", 3, 0).unwrap();
        let mut content = Vec::with_capacity(4096);
        content.extend_from_slice(b"abc");
        uploads.fill(&id, content).unwrap();
        let (_, bytes) = uploads.take(&[id]).unwrap().remove(0);
        assert!(bytes.capacity() < 4096);
    }
}
