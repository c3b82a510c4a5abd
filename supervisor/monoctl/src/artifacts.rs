//! `monoctl artifacts`.

use crate::cli::{Artifacts, Page};
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::table::{Rows, next_page};
use crate::terminal::size;
use ipc_proto::admin::Ask;
use ipc_proto::edges::artifact::{ArtifactPage, ArtifactRecord};
use mono_sys::memfd::read_sealed;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::Path;

/// Largest file that is fetched, in bytes. Publications are smaller (20 MiB).
const MAX_BYTES: usize = 256 * 1024 * 1024;

pub(crate) async fn run(
    socket: Option<&Path>,
    command: Artifacts,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    match command {
        Artifacts::List { page } => {
            let daemon = Daemon::connect(socket).await?;
            let limit = Page::said(page.limit);
            let ask = Ask::ListArtifacts {
                limit: page.limit,
                cursor: page.cursor,
            };
            let (value, _) = daemon.ask::<Value>(&ask, &[]).await?;
            if screen.is_json() {
                screen.json(&value)?;
            } else {
                let page =
                    serde_json::from_value(value).map_err(|e| CtlError::NoAnswer(e.to_string()))?;
                list(&page, limit.as_deref(), screen)?;
            }
        }
        Artifacts::Get { id, output, force } => {
            // Before the transfer; the check that counts is made when the file is put in place.
            if output != Path::new("-") && !force && output.symlink_metadata().is_ok() {
                return Err(exists(&output));
            }
            let daemon = Daemon::connect(socket).await?;
            let (record, mut fds) = daemon
                .ask::<ArtifactRecord>(&Ask::GetArtifact { id }, &[])
                .await?;
            let memfd = fds
                .pop_back()
                .ok_or_else(|| CtlError::NoAnswer("no file came".to_owned()))?;
            let bytes =
                read_sealed(&memfd, MAX_BYTES).map_err(|e| CtlError::Integrity(e.to_string()))?;
            verify(&record, &bytes)?;
            if output == Path::new("-") {
                screen.bytes(&bytes)?;
                return Ok(0);
            }
            write(&output, &bytes, force)?;
            if screen.is_json() {
                // A path need not be UTF-8, and a text in JSON must.
                let path = output.to_string_lossy();
                screen.json(&json!({ "ok": true, "path": path, "artifact": record }))?;
            } else {
                let shown = output.display().to_string();
                screen.aside(&format!(
                    "{shown}: {}, {} verified",
                    size(record.size_bytes),
                    record.integrity_id
                ))?;
            }
        }
    }
    Ok(0)
}

fn list(page: &ArtifactPage, limit: Option<&str>, screen: &mut Screen) -> Result<(), CtlError> {
    if page.artifacts.is_empty() {
        screen.line("no artifacts")?;
        return usage(page, screen);
    }
    let mut rows = Rows::new(&["ID", "NAME", "TYPE", "SIZE", "CREATED", "EXPIRES", "RUN"]);
    for artifact in &page.artifacts {
        rows.push([
            artifact.id.as_str(),
            &artifact.name,
            &artifact.media_type,
            &size(artifact.size_bytes),
            &artifact.created_at,
            &artifact.expires_at,
            &artifact.run_id,
        ]);
    }
    screen.line(&rows.text())?;
    if let Some(cursor) = &page.next_cursor {
        screen.line(&next_page("artifacts list", &[("limit", limit)], cursor))?;
    }
    usage(page, screen)
}

/// What is kept beside what may be; an older daemon doesn't say.
fn usage(page: &ArtifactPage, screen: &mut Screen) -> Result<(), CtlError> {
    let Some(usage) = &page.usage else {
        return Ok(());
    };
    screen.line(&format!(
        "kept: {} of {} files, {} of {}",
        usage.count,
        usage.max_count,
        size(usage.used_bytes),
        size(usage.ceiling_bytes)
    ))?;
    if usage.dry_run && usage.due > 0 {
        screen.line(&format!(
            "retention would remove {} of them; artifacts.retention.dryRun is set, and the log of the artifact worker names them",
            usage.due
        ))?;
    }
    Ok(())
}

/// The bytes are those of the record: nobody on the way changed or cut them.
fn verify(record: &ArtifactRecord, bytes: &[u8]) -> Result<(), CtlError> {
    if bytes.len() as u64 != record.size_bytes {
        return Err(CtlError::Integrity(format!(
            "{} bytes came, {} were published",
            bytes.len(),
            record.size_bytes
        )));
    }
    let found = format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    if found != record.integrity_id {
        return Err(CtlError::Integrity(format!(
            "{found} came, {} was published",
            record.integrity_id
        )));
    }
    Ok(())
}

/// Complete and durable under its name, or not there at all.
fn write(path: &Path, bytes: &[u8], force: bool) -> Result<(), CtlError> {
    if path.is_dir() {
        return Err(CtlError::file(path, "is a folder; give the name of a file"));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let failed = |e: std::io::Error| CtlError::file(path, e);
    let mut file = tempfile::Builder::new()
        .prefix(".monoctl-")
        .tempfile_in(folder)
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    let put = if force {
        file.persist(path)
    } else {
        file.persist_noclobber(path)
    };
    match put {
        Ok(_) => {}
        Err(e) if !force && e.error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(exists(path));
        }
        Err(e) => return Err(failed(e.error)),
    }
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)
}

fn exists(path: &Path) -> CtlError {
    CtlError::file(path, "is there already; choose another name or add --force")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;
    use ipc_proto::edges::artifact::ArtifactUsage;

    fn record(bytes: &[u8]) -> ArtifactRecord {
        ArtifactRecord {
            app: None,
            id: "a1".into(),
            run_id: "r1".into(),
            conversation_id: "c".into(),
            delivery_conversation_id: None,
            name: "x\u{1b}.csv".into(),
            media_type: "text/csv".into(),
            size_bytes: bytes.len() as u64,
            integrity_id: format!("sha256:{}", hex::encode(Sha256::digest(bytes))),
            created_at: "2026-01-02T03:04:05Z".into(),
            expires_at: "2027-01-02T03:04:05Z".into(),
        }
    }

    #[test]
    fn only_the_published_bytes_pass() {
        let record = record(b"abc");
        assert!(verify(&record, b"abc").is_ok());
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(matches!(
                verify(&record, other),
                Err(CtlError::Integrity(_))
            ));
        }
    }

    #[test]
    fn a_file_is_never_replaced_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        write(&path, b"one", false).unwrap();
        assert!(
            write(&path, b"two", false)
                .unwrap_err()
                .to_string()
                .contains("--force")
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        write(&path, b"two", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(write(&link, b"three", false).is_err());
        write(&link, b"three", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert!(!link.symlink_metadata().unwrap().is_symlink());
        assert!(
            write(folder.path(), b"x", true)
                .unwrap_err()
                .to_string()
                .contains("folder")
        );
        assert!(write(&folder.path().join("no/where"), b"x", false).is_err());
        // No temporary file is left.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_page_of_artifacts() {
        let page = ArtifactPage {
            artifacts: vec![record(b"abc")],
            next_cursor: Some("c1".into()),
            usage: Some(ArtifactUsage {
                used_bytes: 3 * 1024 * 1024,
                ceiling_bytes: 256 * 1024 * 1024,
                count: 3,
                max_count: 50_000,
                due: 2,
                dry_run: true,
            }),
        };
        let (mut screen, out, _) = screen(false, true);
        list(&page, None, &mut screen).unwrap();
        assert_eq!(
            out.text(),
            " ID  NAME         TYPE      SIZE  CREATED               EXPIRES               RUN\n \
             a1  x\\u{1b}.csv  text/csv  3 B   2026-01-02T03:04:05Z  2027-01-02T03:04:05Z  r1\n\
             more: monoctl artifacts list --cursor c1\n\
             kept: 3 of 50000 files, 3.0 MiB of 256.0 MiB\n\
             retention would remove 2 of them; artifacts.retention.dryRun is set, and the log of the artifact worker names them\n"
        );
    }

    #[test]
    fn an_empty_page_and_a_daemon_that_does_not_count() {
        let page: ArtifactPage = serde_json::from_value(json!({ "artifacts": [] })).unwrap();
        let (mut screen, out, _) = screen(false, true);
        list(&page, None, &mut screen).unwrap();
        assert_eq!(out.text(), "no artifacts\n");
    }
}
