//! What the traced process does.

use super::super::{mark, say};
use super::stage::{self, LATER, MAX_COUNT, retention};
use super::{CLEANUP, DOWNLOAD, KEEP, LARGE, PUBLISH, START, TAKE_BACK};
use anyhow::{Context as _, Result, bail};
use ipc_proto::reply::ReplyPart;
use ipc_proto::{Body, ConversationId, RunId};
use jiff::Timestamp;
use mono_artifact::kept::Handed;
use mono_artifact::manifest::integrity_id;
use mono_artifact::reading::Wish;
use mono_artifact::session::{Desk, Outcome, Session};
use mono_artifact::verify::Source;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

pub(super) fn drive(scene: &str, folder: &Path) -> Result<()> {
    if scene == START {
        mark();
        let desk = stage::desk(folder);
        mark();
        match desk {
            Ok(desk) => settle(&desk),
            // What the supervisor's next start is for; the check makes it.
            Err(_) => say("not started"),
        }
        return Ok(());
    }
    let desk = stage::desk(folder)?;
    match scene {
        PUBLISH => publish(&desk, folder, &["a.bin", "b.txt"])?,
        LARGE => publish(&desk, folder, &["large.bin"])?,
        KEEP => keep(&desk)?,
        TAKE_BACK => take_back(&desk, folder)?,
        CLEANUP => {
            mark();
            desk.shelf
                .clean(&retention(MAX_COUNT), Timestamp::now() + LATER);
            say("cleaned");
            mark();
        }
        DOWNLOAD => download(&desk, folder)?,
        other => bail!("there is no scene {other:?}"),
    }
    settle(&desk);
    Ok(())
}

/// The disk is well again: the worker's minute comes round, and then it says what is charged.
fn settle(desk: &Arc<Desk>) {
    desk.shelf.clean(&desk.retention, Timestamp::now() + LATER);
    say(&format!("charged {}", desk.shelf.used()));
}

fn publish_one(session: &mut Session, folder: &Path, name: &str) -> Result<Option<String>> {
    let request = stage::request(folder, name);
    Ok(
        match session.publish(request, Timestamp::now(), &|_| true)? {
            Outcome::Published(ReplyPart::Attachment { reference, .. }) => Some(reference.id),
            Outcome::Published(_) => bail!("a failure was published"),
            Outcome::Refused(code, part) => {
                say(&format!("refused {code} {}", part.is_some()));
                None
            }
        },
    )
}

fn publish(desk: &Arc<Desk>, folder: &Path, names: &[&str]) -> Result<()> {
    let mut session = stage::session(desk, "now")?;
    let mut ids = Vec::new();
    mark();
    for name in names {
        if let Some(id) = publish_one(&mut session, folder, name)? {
            say(&format!("published {id}"));
            ids.push(id);
        }
    }
    let parts = session.finalise()?;
    let shown = |id: &String| {
        parts.iter().any(
            |part| matches!(part, ReplyPart::Attachment { reference, .. } if reference.id == *id),
        )
    };
    let done: Vec<_> = ids
        .iter()
        .filter(|id| shown(id))
        .map(String::as_str)
        .collect();
    say(&format!("done {}", done.join(" ")));
    // A part for each file, whatever became of it.
    if parts.len() != names.len() {
        say(&format!("parts {}", parts.len()));
    }
    for part in parts {
        if let ReplyPart::Failure { code, .. } = part {
            say(&format!("failed {code}"));
        }
    }
    drop(session);
    mark();
    Ok(())
}

fn keep(desk: &Arc<Desk>) -> Result<()> {
    let conversation = ConversationId::parse("crash:1")?;
    let handed = Handed {
        app: Uuid::from_u128(1),
        run: RunId::parse("now")?,
        conversation: conversation.clone(),
        delivery: conversation,
        name: "a.bin".to_owned(),
        media_type: None,
    };
    let (body, fd) = Body::pack(stage::content("a.bin"))?;
    let source = Source::sealed(body, &mut fd.into_iter().collect())?;
    mark();
    match desk.keep(handed, &source, Timestamp::now(), &|_| true) {
        Ok((manifest, _)) => say(&format!("done {}", manifest.id)),
        // The page is told, and with it the person.
        Err(error) => say(&format!("refused {} true", error.code())),
    }
    mark();
    Ok(())
}

fn take_back(desk: &Arc<Desk>, folder: &Path) -> Result<()> {
    let mut session = stage::session(desk, "now")?;
    let id = publish_one(&mut session, folder, "b.txt")?.context("not published")?;
    session.finalise()?;
    mark();
    say(&format!("taking {id}"));
    match session.discard() {
        Ok(()) => say(&format!("taken {id}")),
        Err(error) => say(&format!("kept {}", error.code())),
    }
    mark();
    Ok(())
}

fn download(desk: &Arc<Desk>, folder: &Path) -> Result<()> {
    let stay = stage::stay(folder)?;
    let id = stay.last().context("nothing to read")?;
    mark();
    let result = desk.shelf.read(Wish::of(id), Timestamp::now());
    mark();
    match result {
        Ok((_, sealed)) => {
            let mut bytes = Vec::new();
            File::from(sealed).read_to_end(&mut bytes)?;
            say(&format!(
                "read {}",
                integrity_id(&Sha256::digest(bytes).into())
            ));
        }
        Err(error) => match error.code() {
            Some(code) => say(&format!("refused {code} false")),
            None => say("no copy"),
        },
    }
    Ok(())
}
