//! Owners other than a run: who reads what runs have finalised, and who keeps files of apps.

use super::{Shared, internal};
use crate::kept::{Handed, KeepError};
use crate::reading::{ReadError, Wish};
use crate::session::Desk;
use crate::verify::Source;
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::edges::artifact::{Artifact, Reply, Request};
use ipc_proto::{Body, Call, ConversationId, Role, Server, rooms};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::{JoinSet, spawn_blocking};
use uuid::Uuid;

/// Channels and the supervisor: readers of finalised artifacts. Their requests run side by side.
pub(super) async fn serve_reader(shared: &Shared, mut server: Server<Artifact>, role: Role) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            next = server.recv() => match next {
                Ok(Some(call)) => {
                    calls.spawn(answer_reader(shared.clone(), role, call));
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%role, %error, "a reader's channel broke");
                    return;
                }
            },
            Some(_) = calls.join_next() => {}
        }
    }
}

async fn answer_reader(shared: Shared, role: Role, call: Call<Artifact>) {
    let Call {
        request,
        fds,
        responder,
        ..
    } = call;
    if let Request::Keep { .. } = request {
        return keep(shared, request, fds, responder).await;
    }
    let Ok(permit) = shared.reading.acquire_owned().await else {
        return;
    };
    let desk = shared.desk;
    let answer = spawn_blocking(move || {
        let _permit = permit;
        answer_read(&desk, role, &request)
    });
    let sent = match answer.await {
        Ok(Ok((reply, fds))) => responder.send(&reply, &fds).await,
        Ok(Err(fault)) => responder.fault(&fault).await,
        Err(_panicked) => return,
    };
    if let Err(error) = sent {
        tracing::debug!(%role, %error, "a reply found nobody");
    }
}

/// Keeps a file of an app. What was kept when nobody waits for it any more is taken back: whoever
/// asked has told its person that it is not there.
async fn keep(
    shared: Shared,
    request: Request,
    mut fds: VecDeque<OwnedFd>,
    responder: Responder<Artifact>,
) {
    let Ok(permit) = shared.keeping.acquire_owned().await else {
        return;
    };
    if responder.is_cancelled() {
        return;
    }
    let desk = shared.desk.clone();
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = cancelled.clone();
    let mut work = spawn_blocking(move || {
        let _permit = permit;
        kept(&desk, request, &mut fds, &flag)
    });
    let done = tokio::select! {
        done = &mut work => done,
        () = responder.cancelled() => {
            cancelled.store(true, Ordering::Relaxed);
            work.await
        }
    };
    let sent = match done {
        Ok(Ok((reply, fd, new))) => {
            let fds: Vec<_> = fd.into_iter().collect();
            // An answer ends the call: whether it is waited for has to be known before.
            let in_vain = responder.is_cancelled();
            let sent = responder.send(&reply, &fds).await;
            if let (true, Some(id)) = (in_vain || sent.is_err(), new) {
                let desk = shared.desk;
                let _ = spawn_blocking(move || desk.take_back(id)).await;
            }
            sent
        }
        Ok(Err(fault)) => responder.fault(&fault).await,
        Err(_panicked) => return,
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "a reply found nobody");
    }
}

/// An answer, and the file that it is about when that is new.
type Kept = (Reply, Option<OwnedFd>, Option<Uuid>);

pub(super) fn kept(
    desk: &Desk,
    request: Request,
    fds: &mut VecDeque<OwnedFd>,
    cancelled: &AtomicBool,
) -> Result<Kept, Fault> {
    let Request::Keep {
        app,
        run,
        conversation,
        delivery,
        name,
        media_type,
        content,
    } = request
    else {
        return Err(Fault::new("forbidden", "only for a run"));
    };
    let handed = Handed {
        app: app_of(&app)?,
        run,
        conversation,
        delivery,
        name,
        media_type,
    };
    let watch = |_| !cancelled.load(Ordering::Relaxed);
    let now = Timestamp::now();
    let outcome = Source::sealed(content, fds)
        .map_err(KeepError::from)
        .and_then(|source| desk.keep(handed, &source, now, &watch));
    match outcome {
        Ok((manifest, new)) => {
            let (part, fd) = Body::pack_json(&manifest.part()).map_err(internal)?;
            Ok((Reply::Published { part }, fd, new.then_some(manifest.id)))
        }
        Err(error) => {
            let code = error.code();
            tracing::info!(app, %code, %error, "a file of an app is not kept");
            let code = code.as_str().to_owned();
            Ok((Reply::Refused { code, part: None }, None, None))
        }
    }
}

fn app_of(text: &str) -> Result<Uuid, Fault> {
    let app = Uuid::try_parse(text).ok();
    let app = app.filter(|app| app.simple().to_string() == text);
    app.ok_or_else(|| Fault::new("invalid_request", "no app has this id"))
}

fn answer_read(desk: &Desk, role: Role, request: &Request) -> Result<(Reply, Vec<OwnedFd>), Fault> {
    match request {
        Request::Open {
            id,
            integrity_id,
            delivery,
            run,
        } => {
            let anyones = integrity_id.is_none() || delivery.is_none() || run.is_none();
            // Only an operator may read without saying for whom.
            if role != Role::Monod && anyones {
                return Err(Fault::new(
                    "forbidden",
                    "a channel names the conversation, the run and the integrity id",
                ));
            }
            in_its_room(role, delivery.as_ref())?;
            let wish = Wish {
                id,
                integrity_id: integrity_id.as_deref(),
                delivery: delivery.as_ref(),
                run: run.as_ref(),
            };
            match desk.shelf.read(wish, Timestamp::now()) {
                Ok((manifest, sealed)) => {
                    let (record, own) = Body::pack_json(&manifest.record()).map_err(internal)?;
                    Ok((
                        Reply::Opened { record },
                        own.into_iter().chain([sealed]).collect(),
                    ))
                }
                Err(error) => refusal(&error).map(|reply| (reply, Vec::new())),
            }
        }
        Request::List { limit, cursor } => {
            let mut page = desk
                .shelf
                .list(*limit, cursor.as_deref())
                .ok_or_else(|| Fault::new("invalid_cursor", "not a cursor of this list"))?;
            page.usage = Some(desk.shelf.usage(&desk.retention, Timestamp::now()));
            let (page, fd) = Body::pack_json(&page).map_err(internal)?;
            Ok((Reply::Artifacts { page }, fd.into_iter().collect()))
        }
        Request::Kept { app, delivery, run } => {
            in_its_room(role, Some(delivery))?;
            let page = desk.kept(app_of(app)?, delivery, run, Timestamp::now());
            let (page, fd) = Body::pack_json(&page).map_err(internal)?;
            Ok((Reply::Artifacts { page }, fd.into_iter().collect()))
        }
        Request::Publish { .. }
        | Request::Finalise
        | Request::Discard
        | Request::Enter { .. }
        | Request::Keep { .. } => Err(Fault::new("forbidden", "only for a run")),
    }
}

/// The console may see a list of all files, and is given those of its own conversations alone.
fn in_its_room(role: Role, delivery: Option<&ConversationId>) -> Result<(), Fault> {
    let foreign = |delivery: &ConversationId| !delivery.as_str().starts_with(rooms::CONSOLE);
    match role {
        Role::ChannelConsole if delivery.is_some_and(foreign) => Err(Fault::new(
            "forbidden",
            "the file went to another channel's conversation",
        )),
        _ => Ok(()),
    }
}

fn refusal(error: &ReadError) -> Result<Reply, Fault> {
    let code = error.code().ok_or_else(|| internal(error))?;
    tracing::info!(%code, %error, "not handed out");
    Ok(Reply::Refused {
        code: code.as_str().to_owned(),
        part: None,
    })
}
