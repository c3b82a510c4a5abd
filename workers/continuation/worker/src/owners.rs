//! The workers that this one asks, by what is asked of them.

use continuation_record::Time;
use continuation_record::snapshot::{SnapshotMessage, SnapshotRole};
use ipc_proto::chat::{ChatMessage, ChatRole};
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::delivery::{self, Delivery, Obstacle, TOO_LATE};
use ipc_proto::edges::store::{History, Reply, Request, Store};
use ipc_proto::{
    Again, Body, CallError, ConversationId, Door, Edge, LinkError, Role, RunId, Until,
};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use worker_kit::Granted;

/// How long the store may take, a restart of it included.
const STORE_TIME: Duration = Duration::from_secs(30);
/// How long a channel that starts anew is waited for.
const COMES_WITHIN: Duration = Duration::from_secs(10);
/// How long a channel may take to say whether it could deliver.
const REACH_TIME: Duration = Duration::from_secs(20);
/// Of a delivery's time, what is left for saying that nobody was there; and before that once more, for a
/// channel's own last word.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Largest history in bytes.
const MAX_HISTORY: usize = 16 * 1024 * 1024;
/// Longest code in bytes.
const MAX_CODE: usize = 128;
/// Longest sentence in bytes.
const MAX_REASON: usize = 1_000;
/// Most pieces that a text can be cut into.
const MAX_PIECES: u32 = 1_000;

/// Says of an answer in a history where it comes from.
const NOTE: &str = "[A background task that was started in this conversation has ended.]";

/// What the store knows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// In the history.
    Committed,
    /// Never in it.
    NotCommitted,
    /// Not known yet.
    Open,
}

/// What became of a delivery, or of the question for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// It could be delivered.
    Ready,
    /// Every piece has its receipt; the id of the first.
    Delivered(Option<String>),
    /// Nothing was posted, and it may be tried again after so long.
    Later(Option<Duration>, Reason),
    /// Nothing was posted, and nothing will be.
    Never(Reason),
    /// Nobody knows.
    Unknown(Reason),
}

/// A fixed code and a sentence for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// At most 128 characters.
    pub code: String,
    /// At most 1,000 characters.
    pub text: String,
}

impl Reason {
    /// Both, cut to their bounds.
    #[must_use]
    pub fn new(code: &str, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(MAX_REASON));
        Self {
            code: code[..code.floor_char_boundary(MAX_CODE)].to_owned(),
            text,
        }
    }
}

/// Where a physical conversation is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The name of a conversation of the terminal; its answers are letters in the store.
    Terminal(ConversationId),
    Console,
    Webhook,
    /// No channel of this daemon delivers there.
    Nowhere,
}

/// The ways to them.
#[derive(Debug, Default)]
pub struct Owners {
    store: Door<Store>,
    console: Door<Delivery>,
    webhook: Door<Delivery>,
    /// Channels that the configuration has, by the beginning of their conversations.
    channels: HashSet<String>,
}

impl Owners {
    /// Without any channel yet.
    #[must_use]
    pub fn new(channels: impl IntoIterator<Item = String>) -> Self {
        Self {
            channels: channels.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Takes a channel to an owner. Gives back what is none.
    pub fn take(&self, granted: Granted) -> Option<Granted> {
        let role = granted.peer.role;
        let outcome: io::Result<()> = match (granted.edge, role) {
            (EdgeName::Store, Role::Store) => self.store.open(granted.fd, role),
            (EdgeName::Delivery, Role::ChannelConsole) => self.console.open(granted.fd, role),
            (EdgeName::Delivery, Role::ChannelWebhook) => self.webhook.open(granted.fd, role),
            _ => return Some(granted),
        };
        if let Err(e) = outcome {
            tracing::error!(%role, "a granted channel can't be used: {e}");
        }
        None
    }

    /// What became of a run.
    pub async fn fate(&self, run: &str) -> Fate {
        let Ok(run) = RunId::parse(run) else {
            return Fate::NotCommitted;
        };
        let request = Request::RunCommitted { run };
        match insist(&self.store, &request, &[], STORE_TIME).await {
            Ok((Reply::Committedness { state }, _)) => match state.as_str() {
                "committed" => Fate::Committed,
                "failed" | "unknown" => Fate::NotCommitted,
                _ => Fate::Open,
            },
            Ok(_) => Fate::Open,
            Err(e) => {
                tracing::warn!("the store was asked for a run: {e}");
                Fate::Open
            }
        }
    }

    /// The newest history of a conversation.
    ///
    /// # Errors
    /// A sentence.
    pub async fn latest_history(&self, conversation: &str) -> Result<Vec<SnapshotMessage>, String> {
        let conversation = ConversationId::parse(conversation).map_err(|e| e.to_string())?;
        let request = Request::LatestHistory { conversation };
        let answer = insist(&self.store, &request, &[], STORE_TIME).await;
        match answer.map_err(|e| e.to_string())? {
            (Reply::Began { history }, mut fds) => {
                let history: History = history
                    .unpack_json(&mut fds, MAX_HISTORY)
                    .map_err(|e| e.to_string())?;
                Ok(messages_of(&history))
            }
            _ => Err("the store answered something else".to_owned()),
        }
    }

    /// Enters a delivered answer into a history; once for each key.
    ///
    /// # Errors
    /// A code.
    pub async fn commit_history(
        &self,
        conversation: &str,
        key: &str,
        text: &str,
    ) -> Result<(), String> {
        let conversation =
            ConversationId::parse(conversation).map_err(|_| "invalid_conversation".to_owned())?;
        // A history goes from the person to the agent and back; the note stands for the person.
        let messages = [
            ChatMessage::text(ChatRole::User, NOTE),
            ChatMessage::text(ChatRole::Assistant, text),
        ];
        let (messages, fd) =
            Body::pack_json(&messages).map_err(|_| "history_unavailable".to_owned())?;
        let request = Request::AppendHistory {
            conversation,
            key: key.to_owned(),
            messages,
        };
        let fds: Vec<OwnedFd> = fd.into_iter().collect();
        match insist(&self.store, &request, &fds, STORE_TIME).await {
            Ok((Reply::Committed { .. }, _)) => Ok(()),
            Ok(_) => Err("history_unavailable".to_owned()),
            Err(CallError::Fault(fault)) => Err(Reason::new(&fault.code, "").code),
            Err(e) => {
                tracing::warn!("a delivered answer is not in its history: {e}");
                Err("history_unavailable".to_owned())
            }
        }
    }

    fn place(&self, target: &str) -> Place {
        let Some((channel, name)) = target.split_once(':') else {
            return Place::Nowhere;
        };
        if !self.channels.contains(channel) {
            return Place::Nowhere;
        }
        match channel {
            "terminal" => ConversationId::parse(name).map_or(Place::Nowhere, Place::Terminal),
            "web" => Place::Console,
            "webhook" => Place::Webhook,
            _ => Place::Nowhere,
        }
    }

    /// Whether something can be delivered there.
    pub async fn reach(&self, target: &str) -> Posted {
        let Ok(destination) = ConversationId::parse(target) else {
            return Posted::Never(nowhere());
        };
        let channel = match self.place(target) {
            Place::Terminal(_) => return Posted::Ready,
            Place::Console => &self.console,
            Place::Webhook => &self.webhook,
            Place::Nowhere => return Posted::Never(nowhere()),
        };
        let request = delivery::Request::Reach { destination };
        match insist(channel, &request, &[], REACH_TIME).await {
            Ok((reply, _)) => of_reply(reply),
            // It was only a question.
            Err(e) => Posted::Later(None, unavailable(&e)),
        }
    }

    /// Posts a text, word for word; the same key posts once. Says before `time` is over what became of it: whoever
    /// waits for just that long could only take it for unknown, also where nobody was there to be asked. Whatever is
    /// said, nothing is begun afterwards: the request carries the moment at which it is too late.
    pub async fn deliver(&self, target: &str, key: &str, text: &str, time: Duration) -> Posted {
        let last_word = LAST_WORD.min(time / 10);
        let time = time - last_word;
        let until = Until::after(time - last_word);
        let Ok(destination) = ConversationId::parse(target) else {
            return Posted::Never(nowhere());
        };
        let (text, fd) = match Body::pack(text.as_bytes().to_vec()) {
            Ok(packed) => packed,
            Err(e) => {
                return Posted::Later(None, Reason::new("channel_unavailable", e.to_string()));
            }
        };
        let fds: Vec<OwnedFd> = fd.into_iter().collect();
        let request = |text| delivery::Request::Deliver {
            destination,
            key: key.to_owned(),
            text,
            until,
        };
        match self.place(target) {
            Place::Nowhere => Posted::Never(nowhere()),
            Place::Terminal(conversation) => {
                let letter = Request::LeaveLetter {
                    conversation,
                    key: key.to_owned(),
                    text,
                    until,
                };
                // The store keeps one letter of a key, so it may be asked until it answers.
                let line = self.store.line(time);
                let (outcome, lost) = line.insist(&letter, &fds, time).await;
                let posted = match outcome {
                    Ok((Reply::Recorded, _)) => Posted::Delivered(Some(key.to_owned())),
                    Ok(_) => Posted::Unknown(Reason::new("channel_protocol", "another answer")),
                    Err(e) => of_error(&e),
                };
                after_loss(posted, lost)
            }
            // As the store: the console's message of a key is one.
            Place::Console => {
                let line = self.console.line(time);
                let (outcome, lost) = line.insist(&request(text), &fds, time).await;
                let posted = match outcome {
                    Ok((reply, _)) => of_reply(reply),
                    Err(e) => of_error(&e),
                };
                after_loss(posted, lost)
            }
            Place::Webhook => {
                let line = self.webhook.line(COMES_WITHIN);
                match line.ask(&request(text), &fds, time, Again::Never).await {
                    Ok((reply, _)) => of_reply(reply),
                    Err(e) => of_error(&e),
                }
            }
        }
    }
}

/// Asks until there is an answer, a refusal, or the time is over. Only for what may be asked twice.
async fn insist<E: Edge>(
    owner: &Door<E>,
    request: &E::Request,
    fds: &[OwnedFd],
    time: Duration,
) -> Result<(E::Reply, VecDeque<OwnedFd>), CallError> {
    owner
        .line(time)
        .ask(request, fds, time, Again::Harmless)
        .await
}

fn nowhere() -> Reason {
    Reason::new(
        "unsupported_destination",
        "no channel of this daemon delivers an answer there later: a route takes `web:` and a thread's id, or `terminal:` and a name",
    )
}

fn unavailable(error: &CallError) -> Reason {
    Reason::new("channel_unavailable", error.to_string())
}

/// What an unanswered delivery means. Whoever was asked may have posted before it was gone.
fn of_error(error: &CallError) -> Posted {
    match error {
        CallError::Fault(fault) if fault.code == "busy" => {
            Posted::Later(None, Reason::new(&fault.code, fault.message.clone()))
        }
        CallError::Fault(fault)
            if matches!(fault.code.as_str(), "disk_full" | "unavailable" | TOO_LATE) =>
        {
            Posted::Later(None, Reason::new(&fault.code, fault.message.clone()))
        }
        // It broke down over the request, before or after the post.
        CallError::Fault(fault) if fault.code == "internal" => {
            Posted::Unknown(Reason::new(&fault.code, fault.message.clone()))
        }
        CallError::Fault(fault) => Posted::Never(Reason::new(&fault.code, fault.message.clone())),
        // It could not be said at all.
        CallError::NotServing(_) | CallError::Link(LinkError::Codec(_)) => {
            Posted::Later(None, unavailable(error))
        }
        // A channel that breaks may break with an answer that is no answer.
        CallError::Gone(_) | CallError::Timeout { .. } | CallError::Link(_) => {
            Posted::Unknown(Reason::new("channel_lost", error.to_string()))
        }
    }
}

/// Whoever was gone with the request may have posted, whatever its successor refuses: said to be refused, it could
/// be cancelled, or expire, with its text in the channel.
fn after_loss(posted: Posted, lost: bool) -> Posted {
    match posted {
        Posted::Later(_, reason) | Posted::Never(reason) if lost => Posted::Unknown(reason),
        other => other,
    }
}

fn of_reply(reply: delivery::Reply) -> Posted {
    match reply {
        delivery::Reply::Reachable => Posted::Ready,
        delivery::Reply::NotDelivered {
            obstacle,
            code,
            message,
            retry_after_ms,
        } => {
            let reason = Reason::new(&code, message);
            match obstacle {
                Obstacle::Now => Posted::Later(retry_after_ms.map(Duration::from_millis), reason),
                Obstacle::Ever => Posted::Never(reason),
                Obstacle::Unknown => Posted::Unknown(reason),
            }
        }
        delivery::Reply::Delivered { pieces, receipts } => {
            let all = usize::try_from(pieces).is_ok_and(|n| n == receipts.len());
            if !all || pieces == 0 || pieces > MAX_PIECES {
                let text = format!("{} receipts for {pieces} pieces", receipts.len());
                return Posted::Unknown(Reason::new("partial_delivery", text));
            }
            let id = receipts.into_iter().next().and_then(|receipt| receipt.id);
            Posted::Delivered(id.map(|id| Reason::new(&id, "").code))
        }
    }
}

fn messages_of(history: &History) -> Vec<SnapshotMessage> {
    let mut marks = history.turns.iter();
    let told = history.messages.iter().map(|message| {
        let mark = marks.next();
        snapshot_message(
            message.role,
            message.plain_text(),
            mark.map(|mark| mark.turn.clone()),
            mark.map(|mark| mark.at),
        )
    });
    told.filter(|message| !message.content.is_empty()).collect()
}

/// A message of a history as a snapshot has it.
#[must_use]
pub fn snapshot_message(
    role: ChatRole,
    text: String,
    turn: Option<String>,
    at: Option<i64>,
) -> SnapshotMessage {
    let role = match role {
        ChatRole::User => SnapshotRole::User,
        ChatRole::Assistant => SnapshotRole::Assistant,
    };
    // What was entered without a run is named by its key.
    let (run_id, idempotency_key) = match turn {
        Some(turn) => match turn.strip_prefix("append:") {
            Some(key) => (None, Some(key.to_owned())),
            None => (Some(turn), None),
        },
        None => (None, None),
    };
    SnapshotMessage {
        timestamp: at.map(|at| Time::from_ms(at).to_string()),
        run_id,
        idempotency_key,
        ..SnapshotMessage::new(role, text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::channel::Fault;
    use ipc_proto::edges::delivery::Receipt;
    use ipc_proto::table::Guard;
    use ipc_proto::{Link, Server};

    #[test]
    fn a_place_needs_its_channel_and_a_name() {
        let owners = Owners::new(["terminal".to_owned(), "web".to_owned()]);
        for (target, nowhere) in [
            ("terminal:demo", false),
            ("terminal:", true),
            ("web:1", false),
            ("webhook:1", true),
            ("openai:1", true),
            ("slack:C:T", true),
            ("demo", true),
            ("", true),
        ] {
            assert_eq!(owners.place(target) == Place::Nowhere, nowhere, "{target}");
        }
    }

    #[test]
    fn only_a_receipt_for_every_piece_is_a_delivery() {
        let delivered = |pieces, receipts: usize| {
            of_reply(delivery::Reply::Delivered {
                pieces,
                receipts: vec![
                    Receipt {
                        id: Some("m".into())
                    };
                    receipts
                ],
            })
        };
        assert_eq!(delivered(2, 2), Posted::Delivered(Some("m".into())));
        for (pieces, receipts) in [(2, 1), (1, 2), (0, 0), (MAX_PIECES + 1, 1_001)] {
            let found = delivered(pieces, receipts);
            assert!(matches!(found, Posted::Unknown(_)), "{pieces} {receipts}");
        }
    }

    #[test]
    fn what_nobody_knows_is_not_tried_again() {
        let fault = |code: &str| CallError::Fault(Fault::new(code, "m"));
        assert!(matches!(
            of_error(&CallError::Gone("channel")),
            Posted::Unknown(_)
        ));
        assert!(matches!(
            of_error(&CallError::NotServing("channel")),
            Posted::Later(..)
        ));
        let late = CallError::Timeout {
            edge: "channel",
            ms: 1,
        };
        assert!(matches!(of_error(&late), Posted::Unknown(_)));
        assert!(matches!(of_error(&fault("internal")), Posted::Unknown(_)));
        for code in ["busy", TOO_LATE] {
            assert!(
                matches!(of_error(&fault(code)), Posted::Later(..)),
                "{code}"
            );
        }
        assert!(matches!(of_error(&fault("not_found")), Posted::Never(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_to_ask_is_said_before_the_time_of_a_delivery_is_over() {
        let owners = Owners::new(["terminal".to_owned()]);
        for time in [Duration::from_secs(120), Duration::from_millis(100)] {
            let began = tokio::time::Instant::now();
            let posted = owners.deliver("terminal:a", "k", "text", time).await;
            assert!(matches!(posted, Posted::Later(..)), "{posted:?}");
            assert!(began.elapsed() < time);
        }
    }

    /// The store that was lost may have left the letter. Taken for a refusal, it could be cancelled afterwards.
    #[tokio::test]
    async fn a_store_that_was_lost_with_a_letter_is_not_spoken_for_by_the_next() {
        let owners = Owners::new(["terminal".to_owned()]);
        let serve = |answer: Option<Fault>| {
            let (ours, theirs) = ipc_proto::link::pair().unwrap();
            owners.store.open(ours, Role::Store).unwrap();
            async move {
                let mut server = Server::<Store>::new(theirs, Role::Continuation).unwrap();
                let call = server.recv().await.unwrap().unwrap();
                assert!(matches!(call.request, Request::LeaveLetter { .. }));
                if let Some(fault) = answer {
                    call.responder.fault(&fault).await.unwrap();
                }
                // Without an answer, it is gone with the letter.
                drop(server);
            }
        };
        let full = || Some(Fault::new("disk_full", "m"));
        let within = Duration::from_secs(60);
        let delivering = || owners.deliver("terminal:a", "k", "text", within);
        // Nobody but the one that refuses had it: nothing is left, and it may be tried again.
        let (posted, ()) = tokio::join!(delivering(), serve(full()));
        assert!(matches!(posted, Posted::Later(..)), "{posted:?}");
        let first = serve(None);
        let lost_and_refused = async {
            first.await;
            serve(full()).await;
        };
        let (posted, ()) = tokio::join!(delivering(), lost_and_refused);
        assert!(matches!(posted, Posted::Unknown(_)), "{posted:?}");
    }

    #[tokio::test]
    async fn what_is_asked_of_a_channel_is_over_before_anything_is_said_of_it() {
        let owners = Owners::new(["terminal".to_owned(), "web".into(), "webhook".into()]);
        let (store, stores) = ipc_proto::link::pair().unwrap();
        owners.store.open(store, Role::Store).unwrap();
        let (console, consoles) = ipc_proto::link::pair().unwrap();
        owners.console.open(console, Role::ChannelConsole).unwrap();
        let (webhook, webhooks) = ipc_proto::link::pair().unwrap();
        owners.webhook.open(webhook, Role::ChannelWebhook).unwrap();
        let time = Duration::from_millis(300);
        let silent = async {
            // Each is heard, and none is answered.
            let asker = Role::Continuation;
            let mut store = Server::<Store>::new(stores, asker).unwrap();
            let call = store.recv().await.unwrap().unwrap();
            let Request::LeaveLetter { until, .. } = call.request else {
                panic!("{:?}", call.request);
            };
            let mut moments = vec![until];
            let mut kept = vec![];
            for fd in [consoles, webhooks] {
                let mut server = Server::<Delivery>::new(fd, asker).unwrap();
                let call = server.recv().await.unwrap().unwrap();
                let delivery::Request::Deliver { until, .. } = call.request else {
                    panic!("{:?}", call.request);
                };
                moments.push(until);
                kept.push((server, call.responder));
            }
            (moments, kept, call.responder, store)
        };
        let deliver = async |target: &str| {
            let posted = owners.deliver(target, "k", "text", time).await;
            (posted, Until::after(Duration::ZERO))
        };
        let (one, two, three, (moments, ..)) = tokio::join!(
            deliver("terminal:a"),
            deliver("web:a"),
            deliver("webhook:a:b"),
            silent
        );
        for ((posted, said), until) in [one, two, three].into_iter().zip(moments) {
            assert!(matches!(posted, Posted::Unknown(_)), "{posted:?}");
            assert!(until < said, "{until:?} {said:?}");
        }
    }

    /// What comes back is no answer, so that it says nothing of the post.
    #[tokio::test]
    async fn a_channel_that_answers_nonsense_may_have_posted() {
        let owners = Owners::new(["webhook".to_owned()]);
        let (ours, theirs) = ipc_proto::link::pair().unwrap();
        owners.webhook.open(ours, Role::ChannelWebhook).unwrap();
        let channel = async {
            let guard = Guard::serving(Role::Continuation);
            let Link {
                sender,
                mut receiver,
            } = Link::new(theirs, guard).unwrap();
            let asked = receiver.recv::<delivery::Request>().await.unwrap().unwrap();
            sender
                .send_raw(asked.id, 0, u16::MAX, b"", &[])
                .await
                .unwrap();
        };
        let within = Duration::from_secs(20);
        let delivering = owners.deliver("webhook:a:b", "k", "text", within);
        let (posted, ()) = tokio::join!(delivering, channel);
        assert!(matches!(posted, Posted::Unknown(_)), "{posted:?}");
    }
}
