//! The process that must survive: for each descriptor granted to it, it opens a real channel end,
//! serves it as a worker would, and tells how it ended.
//!
//! Its standard input is a control channel as every worker has one. A `Grant` brings a descriptor
//! and, as its number, the seat to take there (`seat::all`); a `Pong` says how that ended.

use crate::fuzz::direction::{self, EVENTS};
use crate::fuzz::packet::Seeds;
use crate::fuzz::seat::{self, Seat};
use ipc_proto::Role;
use ipc_proto::admin::Admin;
use ipc_proto::channel::{Client, EventReceiver, EventSender, Server};
use ipc_proto::edges::control::{FromWorker, ToWorker};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::edges::{app_bridge, artifact, bench, continuation, delivery, egress, store};
use ipc_proto::link::{Link, LinkError, Payload};
use ipc_proto::message::{Edge, Message};
use ipc_proto::table::{Guard, Phase, find};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::task::JoinSet;

/// The other side closed the channel, or the kernel did.
pub const CLOSED: u64 = 0;
/// The other side broke the protocol; the channel was ended here.
pub const VIOLATION: u64 = 1;

/// Calls that an owning seat holds open at once.
const WAITING: usize = 64;
/// Requests that a requesting seat has under way at once.
const STREAMS: usize = 8;

/// Serves until standard input is closed.
///
/// # Errors
/// When standard input is no control channel, or a seat can't be taken.
pub fn serve() -> Result<(), LinkError> {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("the peer panicked: {info}");
        // A runtime catches the panic of a task; here nothing may pass for survival.
        std::process::abort();
    }));
    let directions = direction::all();
    let seats = seat::all(&directions);
    let seeds = Seeds::load();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let input = io::stdin().as_fd().try_clone_to_owned()?;
            let Link {
                sender,
                mut receiver,
            } = Link::new(input, Guard::serving(Role::Monod))?;
            while let Some(packet) = receiver.recv::<ToWorker>().await? {
                let (Payload::Message(ToWorker::Grant { channel, .. }), Some(fd)) =
                    (packet.payload, packet.fds.into_iter().next())
                else {
                    continue;
                };
                let seq = match take(&seats[channel as usize], &seeds, fd).await {
                    Ok(()) | Err(LinkError::Io(_)) => CLOSED,
                    Err(_) => VIOLATION,
                };
                sender.send(0, 0, &FromWorker::Pong { seq }, &[]).await?;
            }
            Ok(())
        })
}

/// Holds one channel end until it ends.
async fn take(seat: &Seat<'_>, seeds: &Seeds, fd: OwnedFd) -> Result<(), LinkError> {
    let from = seat.sender;
    match seat.direction.name {
        "control/to-worker" => control::<ToWorker>(fd, from).await,
        "control/from-worker" => control::<FromWorker>(fd, from).await,
        "store/request" => owner::<store::Store>(fd, from).await,
        "store/reply" => requester::<store::Store>(fd, from, seat, seeds).await,
        "artifact/request" => owner::<artifact::Artifact>(fd, from).await,
        "artifact/reply" => requester::<artifact::Artifact>(fd, from, seat, seeds).await,
        "egress/request" => owner::<egress::Egress>(fd, from).await,
        "egress/reply" => requester::<egress::Egress>(fd, from, seat, seeds).await,
        "app-bridge/request" => owner::<app_bridge::AppBridge>(fd, from).await,
        "app-bridge/reply" => requester::<app_bridge::AppBridge>(fd, from, seat, seeds).await,
        "continuation/request" => owner::<continuation::Continuation>(fd, from).await,
        "continuation/reply" => {
            requester::<continuation::Continuation>(fd, from, seat, seeds).await
        }
        "delivery/request" => owner::<delivery::Delivery>(fd, from).await,
        "delivery/reply" => requester::<delivery::Delivery>(fd, from, seat, seeds).await,
        "bench/request" => owner::<bench::Bench>(fd, from).await,
        "bench/reply" => requester::<bench::Bench>(fd, from, seat, seeds).await,
        "admin/ask" => owner::<Admin>(fd, from).await,
        "admin/answer" => requester::<Admin>(fd, from, seat, seeds).await,
        EVENTS if from == Role::Run => {
            let mut events = EventReceiver::new(fd)?;
            while events.next().await?.is_some_and(|(e, _)| !e.is_final()) {}
            Ok(())
        }
        EVENTS => {
            let events = EventSender::new(fd, from)?;
            let text = "a run that goes on talking".to_owned();
            let event = RunEvent::Append { text };
            // Credit is all that moves it on.
            while events.send(&event, &[]).await {}
            Ok(())
        }
        other => panic!("no seat for {other}"),
    }
}

/// A control channel from its first packet.
async fn control<M: Message>(fd: OwnedFd, from: Role) -> Result<(), LinkError> {
    let Link {
        sender,
        mut receiver,
    } = Link::new(fd, Guard::greeting(from))?;
    while let Some(packet) = receiver.recv::<M>().await? {
        let Payload::Message(message) = packet.payload else {
            continue;
        };
        let phase = match find(message.kind()).map(|row| (row.name, row.phase)) {
            Some(("Welcome" | "Ready", _)) => Phase::Serving,
            Some((_, Phase::Greeting)) => Phase::Starting,
            _ => continue,
        };
        receiver.guard().enter(phase);
        sender.cancel(packet.id).await?;
    }
    Ok(())
}

/// The owner of an edge: a few calls wait until they are withdrawn, as a slow owner's do; the
/// others are answered at once with a fault.
async fn owner<E: Edge>(fd: OwnedFd, from: Role) -> Result<(), LinkError> {
    let mut server: Server<E> = Server::new(fd, from)?;
    let mut calls = JoinSet::new();
    let mut number = 0u32;
    let ended = loop {
        match server.recv().await {
            Ok(Some(call)) => {
                number += 1;
                if !number.is_multiple_of(3) && calls.len() < WAITING {
                    calls.spawn(async move { call.responder.cancelled().await });
                }
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
        while calls.try_join_next().is_some() {}
    };
    drop(server);
    // Every call must learn that its requester is gone.
    while calls.join_next().await.is_some() {}
    ended
}

/// A requester with calls under way, whose owner has gone bad.
async fn requester<E: Edge>(
    fd: OwnedFd,
    from: Role,
    seat: &Seat<'_>,
    seeds: &Seeds,
) -> Result<(), LinkError> {
    let client: Client<E> = Client::new(fd, from)?;
    // The request of an edge has the edge's number and a small variant.
    let edge = seat.direction.kinds[0] & 0xff00;
    let request = seeds
        .all()
        .iter()
        .filter(|seed| seed.kind & 0xff80 == edge)
        .find_map(|seed| E::Request::decode(&seed.body).ok())
        .unwrap_or_else(|| panic!("no request for {}", seat.direction.name));
    let mut calls = JoinSet::new();
    let mut broken = false;
    loop {
        while calls.len() < STREAMS {
            let Ok(mut replies) = client.stream(&request, &[], None).await else {
                // The channel has ended; what the calls heard of it decides.
                while let Some(result) = calls.join_next().await {
                    broken |= result.unwrap_or(false);
                }
                client.closed().await;
                return match broken {
                    true => {
                        Err(ipc_proto::table::Violation::new("a reply", "something else").into())
                    }
                    false => Ok(()),
                };
            };
            calls.spawn(async move {
                let mut last: VecDeque<OwnedFd> = VecDeque::new();
                while let Some(item) = replies.next().await {
                    match item {
                        // One reply's descriptors are kept while the next is awaited.
                        Ok((_, fds)) => last = fds,
                        Err(ipc_proto::CallError::Link(LinkError::Violation(_))) => return true,
                        Err(_) => return false,
                    }
                }
                drop(last);
                false
            });
        }
        if let Some(result) = calls.join_next().await {
            broken |= result.unwrap_or(false);
        }
    }
}
