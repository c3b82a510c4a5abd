//! `PublishReplyFile`: opens a file without following a link anywhere and hands the descriptor to
//! the artifact worker (spec s0, "Publishing a reply file").
//!
//! Nothing is decided here but what may be opened. The artifact worker looks at the descriptor it
//! got, copies from it, and knows nothing of a path that could be swapped meanwhile.

use super::path::{MAX_PATH, Places};
use super::{ToolOutput, ToolState};
use crate::owners::{Artifacts, Handover, Lost, Publication};
use ipc_proto::edges::artifact::Root;
use ipc_proto::reply::ReplyPart;
use ipc_proto::request_context::OUTBOUND;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Server that the tool counts as in a policy (facts 4.5).
pub const SERVER: &str = "mono-agent-reply-artifacts";

/// What the model is told about the tool.
pub const DESCRIPTION: &str = "Attach a file to the reply. path is a regular file in the workspace (or \
in the outbound directory of the scratch directory), at most 20 MiB; no part of the path may be a link. \
At most 20 files per reply. name is what the person sees, mediaType such as \"text/csv\".";

/// Arguments.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Args {
    path: String,
    name: Option<String>,
    media_type: Option<String>,
}

/// JSON Schema of [`Args`].
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": MAX_PATH },
            "name": { "type": "string", "minLength": 1, "maxLength": 1024 },
            "mediaType": { "type": "string", "minLength": 3, "maxLength": 256 }
        },
        "required": ["path"],
        "additionalProperties": false
    })
}

/// Publishes the file. The second value is the reply part that came of it, if any.
///
/// # Errors
/// When the artifact worker is lost.
pub async fn run(
    places: &Places,
    artifacts: &impl Artifacts,
    args: Args,
) -> Result<(ToolOutput, Option<ReplyPart>), Lost> {
    // Why a file can't be opened is not told: the tool must not become an oracle for what exists
    // outside its roots. The owner counts the failure and gives the part that shows it.
    let (root, path, file) = match open(places, &args.path) {
        Some((root, path, file)) => (root, path, Some(file)),
        None => (Root::Workspace, beginning(&args.path).to_owned(), None),
    };
    let handover = Handover {
        file,
        root,
        path,
        name: args.name,
        media_type: args.media_type,
    };
    Ok(match artifacts.publish(handover).await? {
        Publication::Published(part) => match success(&part) {
            Some(output) => (output, Some(part)),
            None => (failure("artifact_publish_failed"), Some(part)),
        },
        Publication::Refused { code, part } => (failure(&code), part),
    })
}

/// As much of a path as the request holds.
fn beginning(path: &str) -> &str {
    &path[..path.floor_char_boundary(MAX_PATH)]
}

fn success(part: &ReplyPart) -> Option<ToolOutput> {
    let ReplyPart::Attachment {
        id,
        name,
        media_type,
        size_bytes,
        integrity_id,
        ..
    } = part
    else {
        return None;
    };
    let result = json!({
        "published": true,
        "attachmentId": id,
        "name": name,
        "mediaType": media_type,
        "sizeBytes": size_bytes,
        "integrityId": integrity_id,
    });
    Some(ToolOutput::success(result.to_string()))
}

/// What is told of a file that was not published.
pub(crate) fn failure(code: &str) -> ToolOutput {
    let text = json!({ "published": false, "code": code }).to_string();
    ToolOutput {
        state: ToolState::Error,
        ..ToolOutput::success(text)
    }
}

fn open(places: &Places, argument: &str) -> Option<(Root, String, OwnedFd)> {
    if argument.len() > MAX_PATH || argument.contains('\0') {
        return None;
    }
    let (root, directory, inside) = place(places, Path::new(argument))?;
    let directory = File::options()
        .read(true)
        .custom_flags(OFlag::O_DIRECTORY.bits())
        .open(directory)
        .ok()?;
    let file = open_beneath(directory.into(), &inside)?;
    let metadata = File::from(file.try_clone().ok()?).metadata().ok()?;
    // The artifact worker asks the same again; here it saves handing over what can't be published.
    metadata
        .is_file()
        .then_some((root, inside.to_str()?.to_owned(), file))
}

/// Opens a file below `directory` one name at a time, so that no link is followed anywhere.
///
/// `openat2` would do it in one call, but the mode that it takes is in memory, where the run's
/// system-call filter can't look, and so the filter refuses it.
fn open_beneath(directory: OwnedFd, inside: &Path) -> Option<OwnedFd> {
    let own = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let last = inside.file_name()?;
    let mut at = directory;
    for name in inside.parent().into_iter().flat_map(Path::iter) {
        at = openat(at, name, own | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    }
    // Without NONBLOCK, opening a FIFO would wait for its writer.
    openat(
        at,
        last,
        own | OFlag::O_NONBLOCK | OFlag::O_NOCTTY,
        Mode::empty(),
    )
    .ok()
}

/// Splits an argument into an authorised root and a path of plain names below it. A `..` is
/// refused: by its text it may lead elsewhere than on the disk.
fn place(places: &Places, argument: &Path) -> Option<(Root, PathBuf, PathBuf)> {
    let outbound = places.scratch().join(OUTBOUND);
    let workspace = places.workspace();
    let (root, directory, inside) = if !argument.is_absolute() {
        (Root::Workspace, workspace, argument)
    } else if let Ok(inside) = argument.strip_prefix(&outbound) {
        (Root::Outbound, outbound.as_path(), inside)
    } else {
        (
            Root::Workspace,
            workspace,
            argument.strip_prefix(workspace).ok()?,
        )
    };
    let names = inside
        .components()
        .filter(|part| *part != Component::CurDir);
    let names: Option<PathBuf> = names
        .map(|part| matches!(part, Component::Normal(_)).then_some(part))
        .collect();
    let inside = names.filter(|inside| !inside.as_os_str().is_empty())?;
    Some((root, directory.to_owned(), inside))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::reply::ArtifactReference;
    use std::cell::RefCell;
    use std::io::Read as _;

    /// Publishes everything and remembers it.
    #[derive(Default)]
    struct Shelf {
        taken: RefCell<Vec<(Root, String, String)>>,
        refuse: Option<&'static str>,
    }

    impl Artifacts for Shelf {
        async fn publish(&self, handover: Handover) -> Result<Publication, Lost> {
            let Some(file) = handover.file else {
                return Ok(Publication::Refused {
                    code: "artifact_missing".to_owned(),
                    part: None,
                });
            };
            let mut text = String::new();
            File::from(file).read_to_string(&mut text).unwrap();
            self.taken
                .borrow_mut()
                .push((handover.root, handover.path, text));
            if let Some(code) = self.refuse {
                return Ok(Publication::Refused {
                    code: code.to_owned(),
                    part: None,
                });
            }
            Ok(Publication::Published(ReplyPart::Attachment {
                id: "part-1".into(),
                reference: ArtifactReference {
                    scheme: "mono-agent-artifact".into(),
                    id: "x".into(),
                },
                name: handover.name.unwrap_or_default(),
                media_type: handover.media_type.unwrap_or_default(),
                size_bytes: 1,
                integrity_id: "sha256:00".into(),
                expires_at: None,
            }))
        }
        async fn finalise(&self) -> Result<Vec<ReplyPart>, Lost> {
            Ok(Vec::new())
        }
        async fn discard(&self) -> Result<(), Lost> {
            Ok(())
        }
    }

    fn places() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["work/sub", "scratch/outbound"] {
            std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        std::fs::write(dir.path().join("work/sub/f.csv"), "csv").unwrap();
        std::fs::write(dir.path().join("scratch/outbound/o.txt"), "out").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        let places = Places::new(dir.path().join("work"), dir.path().join("scratch"));
        (dir, places)
    }

    async fn publish(places: &Places, shelf: &Shelf, path: &str) -> Value {
        let args = json!({"path": path, "name": "n", "mediaType": "text/csv"});
        let args = super::super::args::check(&schema(), args).unwrap();
        let (output, _) = run(places, shelf, args).await.unwrap();
        let value: Value = serde_json::from_str(&output.text).unwrap();
        assert_eq!(
            value["published"] == true,
            output.state == ToolState::Success
        );
        value
    }

    #[tokio::test]
    async fn a_file_is_handed_over_with_its_root_and_path() {
        let (dir, places) = places();
        let shelf = Shelf::default();
        let absolute = dir.path().join("work/sub/f.csv");
        let outbound = dir.path().join("scratch/outbound/o.txt");
        for path in [
            "sub/f.csv",
            "./sub//./f.csv",
            absolute.to_str().unwrap(),
            outbound.to_str().unwrap(),
        ] {
            let result = publish(&places, &shelf, path).await;
            assert_eq!(result["attachmentId"], "part-1", "{path}");
        }
        let taken = shelf.taken.borrow();
        assert_eq!(
            taken[0],
            (Root::Workspace, "sub/f.csv".into(), "csv".into())
        );
        assert_eq!(
            taken[2],
            (Root::Workspace, "sub/f.csv".into(), "csv".into())
        );
        assert_eq!(taken[3], (Root::Outbound, "o.txt".into(), "out".into()));
    }

    #[tokio::test]
    async fn links_specials_and_ways_out_are_all_just_missing() {
        let (dir, places) = places();
        let work = dir.path().join("work");
        std::os::unix::fs::symlink("sub", work.join("dirlink")).unwrap();
        std::os::unix::fs::symlink("sub/f.csv", work.join("link")).unwrap();
        std::os::unix::fs::symlink("../secret", work.join("out")).unwrap();
        nix::unistd::mkfifo(&work.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
        let absolute = dir.path().join("secret");
        let shelf = Shelf::default();
        let bad = [
            "dirlink/f.csv",
            "link",
            "out",
            "../secret",
            "sub/../sub/f.csv",
            "fifo",
            "socket",
            "sub",
            ".",
            "none",
            "/etc/passwd",
            "a\0b",
            absolute.to_str().unwrap(),
            work.to_str().unwrap(),
        ];
        for path in bad {
            assert_eq!(
                publish(&places, &shelf, path).await,
                json!({"published": false, "code": "artifact_missing"}),
                "{path}"
            );
        }
        assert!(shelf.taken.borrow().is_empty());
    }

    #[tokio::test]
    async fn the_owners_code_reaches_the_model() {
        let (_dir, places) = places();
        let shelf = Shelf {
            refuse: Some("reply_part_too_large"),
            ..Shelf::default()
        };
        let result = publish(&places, &shelf, "sub/f.csv").await;
        assert_eq!(
            result,
            json!({"published": false, "code": "reply_part_too_large"})
        );
    }
}
