//! A workspace, an outbound directory and an artifact directory, with a session for one run.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use ipc_proto::edges::artifact::Root;
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::{ConversationId, RunId};
use jiff::Timestamp;
use mono_artifact::copy::Watch;
use mono_artifact::dir::Dir;
use mono_artifact::index::Retention;
use mono_artifact::quota::CEILING;
use mono_artifact::session::{Desk, Outcome, Request, Session};
use mono_artifact::shelf::Shelf;
use mono_artifact::verify::Roots;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Place {
    pub temp: tempfile::TempDir,
}

pub fn dir(path: &Path) -> Dir {
    Dir::from_fd(File::open(path).unwrap().into()).unwrap()
}

pub fn scope(run: &str) -> RunScope {
    RunScope {
        run: RunId::parse(run).unwrap(),
        conversation: ConversationId::parse("web:1#2026-01-01").unwrap(),
        delivery: ConversationId::parse("web:1").unwrap(),
    }
}

impl Place {
    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        for sub in ["w", "o/run-1/outbound", "state"] {
            fs::create_dir_all(temp.path().join(sub)).unwrap();
        }
        Self::private(&temp.path().join("state"));
        Self { temp }
    }

    /// A place whose artifact directory holds what this one's holds now.
    pub fn after_crash(&self) -> Self {
        fn copy(from: &Path, to: &Path) {
            for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
                let (from, to) = (entry.path(), to.join(entry.file_name()));
                if entry.file_type().unwrap().is_dir() {
                    fs::create_dir(&to).unwrap();
                    copy(&from, &to);
                } else {
                    fs::copy(&from, &to).unwrap();
                }
            }
        }
        let other = Self::new();
        copy(&self.at("state"), &other.at("state"));
        other
    }

    pub fn private(path: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.at(path), bytes).unwrap();
    }

    pub fn shelf_at(&self, ceiling: u64, now: Timestamp) -> Shelf {
        Shelf::open(&dir(&self.at("state")), ceiling, now).unwrap()
    }

    pub fn desk_with(&self, ceiling: u64, now: Timestamp) -> Arc<Desk> {
        let own = dir(&self.at("state")).id().unwrap();
        let roots = Roots::new(Some(dir(&self.at("w"))), Some(dir(&self.at("o"))), &[], own);
        let retention = Retention {
            max_age_days: 365,
            max_count: 50_000,
            dry_run: false,
        };
        Arc::new(Desk {
            shelf: self.shelf_at(ceiling, now),
            roots,
            retention,
        })
    }

    pub fn desk(&self) -> Arc<Desk> {
        self.desk_with(CEILING, Timestamp::now())
    }

    pub fn session(&self, desk: &Arc<Desk>) -> Session {
        Session::new(desk.clone(), scope("run-1"))
    }

    /// A request for a workspace file, opened as the run would.
    pub fn request(&self, path: &str, name: Option<&str>) -> Request {
        Request {
            root: Root::Workspace,
            path: path.to_owned(),
            name: name.map(str::to_owned),
            media_type: None,
            source: File::open(self.at("w").join(path)).ok().map(Into::into),
        }
    }

    pub fn publish(&self, session: &mut Session, path: &str) -> Outcome {
        self.publish_watched(session, path, &|_| true)
    }

    pub fn publish_watched(&self, session: &mut Session, path: &str, watch: &Watch<'_>) -> Outcome {
        session
            .publish(self.request(path, None), Timestamp::now(), watch)
            .unwrap()
    }

    /// Names in the live namespace and in staging.
    pub fn names(&self) -> (Vec<String>, Vec<String>) {
        let list = |path: &Path| -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(path)
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .filter(|n| n != ".staging")
                .collect();
            names.sort();
            names
        };
        (
            list(&self.at("state/reply-files")),
            list(&self.at("state/reply-files/.staging")),
        )
    }

    /// Nothing in either namespace, nothing charged.
    pub fn assert_empty(&self, desk: &Desk) {
        assert_eq!(self.names(), (vec![], vec![]));
        assert_eq!((desk.shelf.count(), desk.shelf.used()), (0, 0));
    }
}

pub fn published(outcome: &Outcome) -> (String, String) {
    match outcome {
        Outcome::Published(ReplyPart::Attachment {
            reference,
            integrity_id,
            ..
        }) => (reference.id.clone(), integrity_id.clone()),
        other => panic!("not published: {other:?}"),
    }
}

pub fn refused(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Refused(code, _) => code.as_str(),
        other => panic!("not refused: {other:?}"),
    }
}

pub fn integrity(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
