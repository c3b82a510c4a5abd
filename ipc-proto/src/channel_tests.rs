#![allow(clippy::unwrap_used)]
use super::*;
use crate::edges::bench::{Bench, Reply as BenchReply, Request as BenchRequest};
use crate::edges::egress::{Egress, FinishReason, Reply, Request};
use crate::edges::events::RunEvent;
use crate::link::{LinkSender, pair};
use crate::{Body, Link};
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::Poll;
use tokio::task::JoinHandle;

fn request() -> Request {
    Request::Complete {
        request: Body::Inline(b"{}".to_vec()),
    }
}

fn done() -> Reply {
    Reply::Done {
        finish: FinishReason::Stop,
        model: "demo:scripted".into(),
        failovers: vec![],
    }
}

fn egress() -> (Client<Egress>, Server<Egress>) {
    let (a, b) = pair().unwrap();
    (
        Client::new(a, Role::Egress).unwrap(),
        Server::new(b, Role::Run).unwrap(),
    )
}

#[tokio::test]
async fn a_stream_arrives_in_order_and_ends() {
    let (client, mut server) = egress();
    let owner = tokio::spawn(async move {
        let call = server.recv().await.unwrap().unwrap();
        let serve = async {
            for n in 0..500 {
                call.responder
                    .send(
                        &Reply::TextDelta {
                            text: n.to_string(),
                        },
                        &[],
                    )
                    .await
                    .unwrap();
            }
            call.responder.send(&done(), &[]).await.unwrap();
        };
        // Credit arrives through `recv`, so both must run.
        tokio::join!(serve, async {
            assert!(server.recv().await.unwrap().is_none())
        });
    });
    let mut replies = client.stream(&request(), &[], None).await.unwrap();
    for n in 0..500 {
        let (reply, _) = replies.next().await.unwrap().unwrap();
        assert_eq!(
            reply,
            Reply::TextDelta {
                text: n.to_string()
            }
        );
    }
    assert_eq!(replies.next().await.unwrap().unwrap().0, done());
    assert!(replies.next().await.is_none());
    drop((replies, client));
    owner.await.unwrap();
}

#[tokio::test]
async fn a_reader_that_stops_stops_its_writer_at_the_window() {
    let (client, mut server) = egress();
    let _replies = client.stream(&request(), &[], None).await.unwrap();
    let call = server.recv().await.unwrap().unwrap();
    for _ in 0..WINDOW {
        call.responder
            .send(&Reply::TextDelta { text: "x".into() }, &[])
            .await
            .unwrap();
    }
    let one_more = Reply::TextDelta { text: "x".into() };
    let blocked = tokio::time::timeout(
        Duration::from_millis(100),
        call.responder.send(&one_more, &[]),
    );
    assert!(blocked.await.is_err());
}

#[tokio::test]
async fn dropping_the_replies_cancels_the_call() {
    let (client, mut server) = egress();
    let replies = client.stream(&request(), &[], None).await.unwrap();
    let call = server.recv().await.unwrap().unwrap();
    drop(replies);
    let next = tokio::spawn(async move { server.recv().await.map(|c| c.is_none()) });
    call.responder.cancelled().await;
    // A late reply goes nowhere and breaks nothing.
    call.responder.send(&done(), &[]).await.unwrap();
    drop(client);
    assert!(next.await.unwrap().unwrap());
}

#[tokio::test]
async fn callers_side_by_side_get_their_own_replies_whoever_reads() {
    let (a, b) = pair().unwrap();
    let client: Client<Bench> = Client::new(a, Role::Store).unwrap();
    let mut server: Server<Bench> = Server::new(b, Role::Run).unwrap();
    // Answers in the opposite order, so that who reads gets the others' replies first.
    let owner = tokio::spawn(async move {
        for _ in 0..20 {
            let mut calls = Vec::new();
            for _ in 0..8 {
                calls.push(server.recv().await.unwrap().unwrap());
            }
            while let Some(call) = calls.pop() {
                let BenchRequest::Echo { bytes } = call.request;
                call.responder
                    .send(&BenchReply::Echoed { bytes }, &[])
                    .await
                    .unwrap();
            }
        }
    });
    let callers: Vec<_> = (0..8u8)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    let ask = BenchRequest::Echo { bytes: vec![n; 9] };
                    let (BenchReply::Echoed { bytes }, _) = client
                        .call(&ask, &[], Duration::from_secs(60))
                        .await
                        .unwrap();
                    assert_eq!(bytes, vec![n; 9]);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    owner.await.unwrap();
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_reading_to_another() {
    let (client, mut server) = egress();
    let mut first = client.stream(&request(), &[], None).await.unwrap();
    let mut second = client.stream(&request(), &[], None).await.unwrap();
    let waiting = tokio::spawn(async move { first.next().await.unwrap().unwrap().0 });
    tokio::task::yield_now().await;
    // The second polls last, so the socket wakes it; then it goes away, but keeps its call.
    let gone = tokio::time::timeout(Duration::from_millis(20), second.next());
    assert!(gone.await.is_err());
    let call = server.recv().await.unwrap().unwrap();
    call.responder.send(&done(), &[]).await.unwrap();
    assert_eq!(waiting.await.unwrap(), done());
}

/// Polls it once; it has to wait.
async fn begin(waiting: &mut (impl Future + Unpin)) {
    let ready = poll_fn(|cx| Poll::Ready(Pin::new(&mut *waiting).poll(cx).is_ready()));
    assert!(!ready.await);
}

/// Three calls of one requester; the second is answered last, and waits in a task of its own.
struct Three {
    client: Client<Egress>,
    first: Replies<Egress>,
    waiting: JoinHandle<Reply>,
    third: Replies<Egress>,
    calls: Vec<Call<Egress>>,
    _server: Server<Egress>,
}

impl Three {
    async fn asked() -> Self {
        let (client, mut server) = egress();
        let mut calls = Vec::new();
        let mut ask = async || {
            let replies = client.stream(&request(), &[], None).await.unwrap();
            calls.push(server.recv().await.unwrap().unwrap());
            replies
        };
        let (first, mut second, third) = (ask().await, ask().await, ask().await);
        Self {
            client,
            first,
            waiting: tokio::spawn(async move { second.next().await.unwrap().unwrap().0 }),
            third,
            calls,
            _server: server,
        }
    }

    async fn answer(&self, call: usize) {
        self.calls[call].responder.send(&done(), &[]).await.unwrap();
    }

    /// Nothing but its own answer wakes who waits.
    async fn finish(mut self) {
        self.answer(1).await;
        let waiting = tokio::time::timeout(Duration::from_secs(20), &mut self.waiting);
        assert_eq!(waiting.await.unwrap().unwrap(), done());
        drop(self.client);
    }
}

#[tokio::test]
async fn who_is_answered_at_once_leaves_the_reading_to_who_waits() {
    let mut three = Three::asked().await;
    tokio::task::yield_now().await;
    three.answer(2).await;
    // The runtime has not heard of it, so it registers with the socket and then finds its answer.
    assert_eq!(three.third.next().await.unwrap().unwrap().0, done());
    three.finish().await;
}

#[tokio::test]
async fn who_was_to_read_and_goes_leaves_the_reading_to_who_waits() {
    let mut three = Three::asked().await;
    let mut heir = Box::pin(three.first.next());
    begin(&mut heir).await;
    tokio::task::yield_now().await;
    let mut reader = Box::pin(three.third.next());
    begin(&mut reader).await;
    drop(reader);
    // It was woken to read, and never looked.
    drop(heir);
    three.finish().await;
}

#[tokio::test]
async fn who_has_a_call_and_waits_no_more_is_not_left_the_reading() {
    let mut three = Three::asked().await;
    let mut gone = Box::pin(three.first.next());
    begin(&mut gone).await;
    tokio::task::yield_now().await;
    let mut reader = Box::pin(three.third.next());
    begin(&mut reader).await;
    drop(gone);
    drop(reader);
    three.finish().await;
}

#[tokio::test]
async fn a_full_socket_makes_its_writer_wait() {
    let (a, b) = pair().unwrap();
    let Link { sender, .. } = Link::new(a, Guard::serving(Role::Egress)).unwrap();
    let Link { mut receiver, .. } = Link::new(b, Guard::serving(Role::Run)).unwrap();
    let large = Request::Complete {
        request: Body::Inline(vec![1; crate::body::MAX_INLINE]),
    };
    let mut sent = 0;
    let send = || sender.send(0, 0, &large, &[]);
    while tokio::time::timeout(Duration::from_millis(100), send())
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 1_000, "the socket takes everything");
    }
    let mut waiting = std::pin::pin!(send());
    assert!(
        tokio::time::timeout(Duration::from_millis(10), &mut waiting)
            .await
            .is_err()
    );
    let (written, _) = tokio::join!(waiting, async {
        for _ in 0..=sent {
            receiver.recv::<Request>().await.unwrap().unwrap();
        }
    });
    written.unwrap();
}

#[tokio::test]
async fn an_owner_that_dies_fails_every_call() {
    let (client, mut server) = egress();
    let ask = request();
    let (answer, ()) = tokio::join!(client.call(&ask, &[], Duration::from_secs(60)), async {
        let call = server.recv().await.unwrap().unwrap();
        drop(server);
        drop(call);
    });
    assert!(
        matches!(answer, Err(CallError::Gone("egress") | CallError::Fault(_))),
        "{answer:?}"
    );
    client.closed().await;
    let after = client.call(&request(), &[], Duration::from_secs(60)).await;
    assert!(matches!(after, Err(CallError::Gone("egress"))));
}

#[tokio::test]
async fn a_silent_owner_is_a_timeout() {
    let (client, mut server) = egress();
    let answer = client
        .call(&request(), &[], Duration::from_millis(20))
        .await;
    assert!(matches!(answer, Err(CallError::Timeout { .. })));
    let call = server.recv().await.unwrap().unwrap();
    assert_eq!(call.deadline, Some(Duration::from_millis(20)));
}

#[tokio::test]
async fn a_request_that_is_dropped_is_a_fault() {
    let (client, mut server) = egress();
    let ask = request();
    let (answer, ()) = tokio::join!(client.call(&ask, &[], Duration::from_secs(60)), async {
        drop(server.recv().await.unwrap().unwrap());
    });
    assert!(matches!(answer, Err(CallError::Fault(Fault { code, .. })) if code == "internal"));
}

#[tokio::test]
async fn more_calls_than_the_bound_are_busy() {
    let (a, b) = pair().unwrap();
    let client: Client<Bench> = Client::new(a, Role::Store).unwrap();
    let mut server: Server<Bench> = Server::new(b, Role::Run).unwrap();
    let echo = BenchRequest::Echo { bytes: vec![1] };
    let mut open = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..MAX_CALLS {
        open.push(client.stream(&echo, &[], None).await.unwrap());
        calls.push(server.recv().await.unwrap().unwrap());
    }
    let mut extra = client.stream(&echo, &[], None).await.unwrap();
    let reading = tokio::spawn(async move { server.recv().await.map(|c| c.is_some()) });
    assert!(
        matches!(extra.next().await, Some(Err(CallError::Fault(Fault { code, .. }))) if code == "busy")
    );
    calls[0]
        .responder
        .send(&BenchReply::Echoed { bytes: vec![1] }, &[])
        .await
        .unwrap();
    assert!(open[0].next().await.unwrap().is_ok());
    let _again = client.stream(&echo, &[], None).await.unwrap();
    assert!(reading.await.unwrap().unwrap());
}

/// Asks and asks and reads nothing, until nothing more is taken.
async fn flood(sender: &LinkSender, withdraw: bool) {
    let echo = BenchRequest::Echo { bytes: vec![1] };
    for asked in 1..5_000 {
        let ask = async {
            sender.send(asked, 0, &echo, &[]).await.unwrap();
            if withdraw {
                sender.cancel(asked).await.unwrap();
            }
        };
        let taken = tokio::time::timeout(Duration::from_millis(200), ask);
        if taken.await.is_err() {
            return;
        }
    }
    panic!("it is taken without end");
}

#[tokio::test]
async fn a_requester_that_reads_no_answers_is_not_read_for_long() {
    let (a, b) = pair().unwrap();
    let Link {
        sender,
        mut receiver,
    } = Link::new(a, Guard::serving(Role::Store)).unwrap();
    let mut server: Server<Bench> = Server::new(b, Role::Run).unwrap();
    let calls = server.calls.clone();
    let owner = tokio::spawn(async move {
        // Each call is dropped, so each is answered with a fault.
        while let Ok(Some(_call)) = server.recv().await {}
    });
    flood(&sender, false).await;
    assert!(locked(&calls).len() <= MAX_CALLS);
    // It ends at once, though answers wait for a place.
    owner.abort();
    assert!(owner.await.unwrap_err().is_cancelled());
    let more = BenchRequest::Echo { bytes: vec![] };
    assert!(sender.send(9_999, 0, &more, &[]).await.is_err());
    while let Ok(Some(_)) = receiver.recv::<BenchReply>().await {}
}

#[tokio::test]
async fn a_requester_that_withdraws_all_it_asks_starts_no_more_than_the_bound() {
    let (a, b) = pair().unwrap();
    let Link { sender, .. } = Link::new(a, Guard::serving(Role::Store)).unwrap();
    let mut server: Server<Bench> = Server::new(b, Role::Run).unwrap();
    let owner = tokio::spawn(async move {
        // A handler that does not look whether it is still wanted.
        let mut busy = Vec::new();
        while let Ok(Some(call)) = server.recv().await {
            busy.push(call);
            assert!(busy.len() <= MAX_CALLS);
        }
        busy.len()
    });
    flood(&sender, true).await;
    drop(sender);
    assert!(!owner.is_finished());
}

async fn raw(kind: u16, body: &[u8], fds: usize) -> Result<bool, LinkError> {
    let (a, b) = pair().unwrap();
    let Link { sender, .. } = Link::new(a, Guard::serving(Role::Monod)).unwrap();
    let mut server: Server<Egress> = Server::new(b, Role::Run).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let list: Vec<_> = (0..fds).map(|_| file.as_fd()).collect();
    sender.send_raw(1, 0, kind, body, &list).await.unwrap();
    server.recv().await.map(|c| c.is_some())
}

#[tokio::test]
async fn hostile_packets_end_the_channel_with_a_reason() {
    let good = crate::codec::encode(&request()).unwrap();
    assert!(raw(0x0401, &good, 0).await.unwrap());
    let mut long = good.clone();
    long.push(0);
    let cases: Vec<(&str, u16, Vec<u8>, usize)> = vec![
        ("left-over bytes", 0x0401, long, 0),
        ("truncated", 0x0401, good[..good.len() - 1].to_vec(), 0),
        ("another kind's body", 0x0402, good.clone(), 0),
        ("out of role", 0x0481, good.clone(), 0),
        ("unknown kind", 0x7777, good.clone(), 0),
        ("too many descriptors", 0x0401, good.clone(), 2),
        ("sixteen descriptors", 0x0401, good.clone(), 16),
        (
            "a fault as a request",
            crate::table::FAULT,
            crate::codec::encode(&Fault::new("a", "b")).unwrap(),
            0,
        ),
        ("cancel with a body", crate::table::CANCEL, vec![1], 0),
        ("empty", 0x0401, vec![], 0),
    ];
    for (name, kind, body, fds) in cases {
        assert!(raw(kind, &body, fds).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn too_much_credit_ends_the_channel() {
    let (a, b) = pair().unwrap();
    let Link { sender, .. } = Link::new(a, Guard::serving(Role::Egress)).unwrap();
    let mut server: Server<Egress> = Server::new(b, Role::Run).unwrap();
    sender.send(1, 0, &request(), &[]).await.unwrap();
    let _call = server.recv().await.unwrap().unwrap();
    sender.credit(1, 1).await.unwrap();
    assert!(server.recv().await.is_err());
}

#[tokio::test]
async fn a_flood_over_the_window_ends_the_clients_channel() {
    let (a, b) = pair().unwrap();
    let client: Client<Egress> = Client::new(a, Role::Egress).unwrap();
    let Link {
        sender,
        mut receiver,
    } = Link::new(b, Guard::serving(Role::Run)).unwrap();
    let mut replies = client.stream(&request(), &[], None).await.unwrap();
    receiver.recv::<Request>().await.unwrap().unwrap();
    let flood = |sender: LinkSender| async move {
        let delta = Reply::TextDelta { text: "x".into() };
        while sender.send(1, 0, &delta, &[]).await.is_ok() {}
    };
    let flooding = tokio::spawn(flood(sender));
    client.closed().await;
    let mut last = None;
    while let Some(item) = replies.next().await {
        last = Some(item);
    }
    assert!(matches!(last, Some(Err(CallError::Link(_)))));
    drop((replies, client, receiver));
    flooding.await.unwrap();
}

#[tokio::test]
async fn events_flow_with_credit_and_closing_the_reader_is_noticed() {
    let (a, b) = pair().unwrap();
    let events = EventSender::new(a, Role::ChannelOpenai).unwrap();
    let mut reader = EventReceiver::new(b).unwrap();
    let writer = events.clone();
    let writing = tokio::spawn(async move {
        for n in 0..300 {
            assert!(
                writer
                    .send(
                        &RunEvent::Append {
                            text: n.to_string()
                        },
                        &[]
                    )
                    .await
            );
        }
    });
    for n in 0..300 {
        let (event, _) = reader.next().await.unwrap().unwrap();
        assert_eq!(
            event,
            RunEvent::Append {
                text: n.to_string()
            }
        );
    }
    writing.await.unwrap();
    drop(reader);
    events.closed().await;
    assert!(
        !events
            .send(
                &RunEvent::Append {
                    text: String::new()
                },
                &[]
            )
            .await
    );
}

#[tokio::test]
async fn a_run_that_dies_ends_its_events() {
    let (a, b) = pair().unwrap();
    let mut reader = EventReceiver::new(b).unwrap();
    drop(a);
    assert!(reader.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_last_event_is_not_lost_when_the_run_ends_without_reading_its_credit() {
    let (ours, theirs) = pair().unwrap();
    let run = Link::new(ours, crate::table::Guard::serving(Role::ChannelOpenai)).unwrap();
    let mut events = EventReceiver::new(theirs).unwrap();
    let last = RunEvent::Failed {
        cancelled: false,
        kind: "k".into(),
        message: "m".into(),
    };
    run.sender.send(0, 0, &last, &[]).await.unwrap();
    events.sender.credit(0, 1).await.unwrap();
    drop(run);
    assert_eq!(events.next().await.unwrap().unwrap().0, last);
    assert!(events.next().await.unwrap().is_none());
}

#[tokio::test]
async fn an_answer_that_fits_no_packet_is_refused_at_once_and_the_channel_goes_on() {
    let (a, b) = pair().unwrap();
    let client: Client<Bench> = Client::new(a, Role::Egress).unwrap();
    let mut server: Server<Bench> = Server::new(b, Role::Run).unwrap();
    let owner = tokio::spawn(async move {
        for length in [crate::frame::MAX_PACKET, 3] {
            let call = server.recv().await.unwrap().unwrap();
            let bytes = vec![7; length];
            let sent = call
                .responder
                .send(&BenchReply::Echoed { bytes }, &[])
                .await;
            assert_eq!(sent.is_err(), length > 3);
        }
    });
    let ask = BenchRequest::Echo { bytes: vec![] };
    let within = std::time::Duration::from_secs(60);
    match client.call(&ask, &[], within).await {
        Err(CallError::Fault(fault)) => assert_eq!(fault.code, "internal"),
        other => panic!("{other:?}"),
    }
    let (reply, _) = client.call(&ask, &[], within).await.unwrap();
    assert_eq!(reply, BenchReply::Echoed { bytes: vec![7; 3] });
    owner.await.unwrap();
}
