//! The folders in which the scenes begin, and the owner that stands in them.

use super::{CLEANUP, DOWNLOAD, LARGE, START, TAKE_BACK};
use anyhow::{Context as _, Result, bail};
use ipc_proto::edges::artifact::Root;
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::{ConversationId, RunId};
use jiff::{SignedDuration, Timestamp};
use mono_artifact::dir::Dir;
use mono_artifact::index::Retention;
use mono_artifact::quota::CEILING;
use mono_artifact::session::{Desk, Outcome, Request, Session};
use mono_artifact::shelf::{STAGING_GRACE, Shelf};
use mono_artifact::verify::Roots;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// The sources of all scenes, with their sizes in bytes: a few chunks, one, and one that two
/// threads copy.
pub(super) const SOURCES: [(&str, usize); 6] = [
    ("a.bin", 150 * 1024),
    ("b.txt", 700),
    ("c.txt", 10),
    ("d.txt", 20),
    ("e.txt", 30),
    ("large.bin", 700 * 1024),
];
/// What retention keeps in the scenes that clean, beside what has not expired.
pub(super) const MAX_COUNT: u64 = 2;
/// How long after the scene was prepared its cleaning happens. Longer than the staging grace.
pub(super) const LATER: SignedDuration = SignedDuration::from_hours(1);

/// Everything that can be published: name and content.
pub(super) fn content(name: &str) -> Vec<u8> {
    let size = SOURCES
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(0, |(_, size)| *size);
    let first = name.as_bytes().first().copied().map_or(0, usize::from);
    (0..size)
        .map(|at| ((at * 31 + first) % 251) as u8)
        .collect()
}

pub(super) fn retention(max_count: u64) -> Retention {
    Retention {
        max_age_days: 365,
        max_count,
        dry_run: false,
    }
}

fn dir(path: &Path) -> Result<Dir> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(Dir::from_fd(file.into())?)
}

/// The owner, opened anew on a scene's folder.
pub(super) fn desk(folder: &Path) -> Result<Arc<Desk>> {
    let state = dir(&folder.join("state"))?;
    let own = state.id()?;
    let roots = Roots::new(Some(dir(&folder.join("w"))?), None, &[], own);
    let shelf = Shelf::open(&state, CEILING, Timestamp::now())?;
    Ok(Arc::new(Desk {
        shelf,
        roots,
        retention: retention(50_000),
    }))
}

pub(super) fn session(desk: &Arc<Desk>, run: &str) -> Result<Session> {
    let conversation = ConversationId::parse("crash:1")?;
    let scope = RunScope {
        run: RunId::parse(run)?,
        conversation: conversation.clone(),
        delivery: conversation,
    };
    Ok(Session::new(desk.clone(), scope))
}

/// As the run would ask, with the file opened.
pub(super) fn request(folder: &Path, name: &str) -> Request {
    Request {
        root: Root::Workspace,
        path: name.to_owned(),
        name: None,
        media_type: None,
        source: File::open(folder.join("w").join(name)).ok().map(Into::into),
    }
}

/// Publishes, and gives the id.
fn publish(session: &mut Session, folder: &Path, name: &str, at: Timestamp) -> Result<String> {
    match session.publish(request(folder, name), at, &|_| true)? {
        Outcome::Published(ReplyPart::Attachment { reference, .. }) => Ok(reference.id),
        other => bail!("{name} was not published: {other:?}"),
    }
}

fn published(desk: &Arc<Desk>, folder: &Path, name: &str, at: Timestamp) -> Result<String> {
    let mut session = session(desk, "before")?;
    let id = publish(&mut session, folder, name, at)?;
    session.finalise()?;
    Ok(id)
}

pub(super) fn prepare(scene: &str, folder: &Path) -> Result<()> {
    for sub in ["w", "state"] {
        DirBuilder::new().mode(0o700).create(folder.join(sub))?;
    }
    for (name, _) in SOURCES {
        fs::write(folder.join("w").join(name), content(name))?;
    }
    let desk = desk(folder)?;
    let now = Timestamp::now();
    let live = folder.join("state/reply-files");
    // Whatever else happens, these stay.
    let mut stay = vec![published(&desk, folder, "c.txt", now)?];
    let mut torn = None;
    match scene {
        CLEANUP => {
            stay.push(published(&desk, folder, "d.txt", now)?);
            // Expired when it is cleaned, but not yet when the owner starts.
            let expiring = now - SignedDuration::from_hours(24 * 365) + LATER / 2;
            for name in ["e.txt", "a.bin"] {
                published(&desk, folder, name, expiring)?;
            }
            // The oldest of three that have not expired.
            published(&desk, folder, "b.txt", now - SignedDuration::from_hours(1))?;
            // Young at the start, over its grace when it is cleaned.
            abandoned(
                &live,
                "11111111-0000-4000-8000-000000000001",
                SystemTime::now(),
            )?;
        }
        START => {
            let old = SystemTime::now()
                - std::time::Duration::from_secs(STAGING_GRACE.cast_unsigned() + 60);
            abandoned(&live, "11111111-0000-4000-8000-000000000001", old)?;
            abandoned(
                &live,
                "11111111-0000-4000-8000-000000000002",
                SystemTime::now(),
            )?;
            // A run that is over left these; the finalisation of one broke off before its rename.
            let mut session = session(&desk, "torn")?;
            let mut homes = Vec::new();
            for name in ["a.bin", "b.txt"] {
                let id = publish(&mut session, folder, name, now)?;
                homes.push(live.join(".staging").join(id));
            }
            fs::write(homes[0].join("metadata.json"), "{")?;
            // Nobody has touched them for longer than the grace, or only just.
            File::open(&homes[0])?.set_modified(old)?;
            torn = Some(session);
        }
        TAKE_BACK | DOWNLOAD | LARGE => {
            stay.push(published(&desk, folder, "a.bin", now)?);
        }
        _ => {}
    }
    fs::write(folder.join("stay"), stay.join("\n"))?;
    if let Some(session) = torn {
        // Dropped it would take them back, which the crash did not.
        std::mem::forget(session);
    }
    Ok(())
}

/// A publication that was being written when its worker died.
fn abandoned(live: &Path, name: &str, age: SystemTime) -> Result<()> {
    let home = live.join(".staging").join(name);
    DirBuilder::new().mode(0o700).create(&home)?;
    fs::write(home.join("content"), content("d.txt"))?;
    File::open(&home)?.set_modified(age)?;
    Ok(())
}

/// The ids that must be there whatever happened.
pub(super) fn stay(folder: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(folder.join("stay"))?;
    Ok(text.lines().map(str::to_owned).collect())
}
