//! Short words for what every test says.

use ipc_proto::chat::{ChatMessage, ChatRole, Failover, Usage};
use ipc_proto::edges::control::RunScope;
use ipc_proto::edges::store::{RunCommit, RunFailure};
use ipc_proto::{ConversationId, RunId};
use mono_store::{Limits, Start, Store};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub(crate) const CONVERSATION: &str = "test:c1";

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(dir, Limits::default()).unwrap()
}

pub(crate) fn run(id: &str) -> RunId {
    RunId::parse(id).unwrap()
}

pub(crate) fn conversation(id: &str) -> ConversationId {
    ConversationId::parse(id).unwrap()
}

pub(crate) fn scope(id: &str, of: &str) -> RunScope {
    RunScope {
        run: run(id),
        conversation: conversation(of),
        delivery: conversation(of),
    }
}

pub(crate) fn start() -> Start {
    Start {
        source: "terminal".into(),
        source_detail: None,
        model: "demo:scripted".into(),
        user_text: "please deploy".into(),
    }
}

pub(crate) fn pair(text: &str) -> Vec<ChatMessage> {
    vec![
        ChatMessage::text(ChatRole::User, format!("ask {text}")),
        ChatMessage::text(ChatRole::Assistant, format!("answer {text}")),
    ]
}

pub(crate) fn commit(messages: Vec<ChatMessage>) -> RunCommit {
    RunCommit {
        text: messages
            .last()
            .map(ChatMessage::plain_text)
            .unwrap_or_default(),
        messages,
        parts: Vec::new(),
        usage: Usage {
            input: 10,
            output: 5,
            cost_usd: Some(0.25),
            ..Usage::default()
        },
        model: "demo:scripted".into(),
        failovers: vec![Failover {
            model: "a:b".into(),
            failure_kind: "timeout".into(),
            attempts: 2,
        }],
    }
}

pub(crate) fn failure(cancelled: bool) -> RunFailure {
    RunFailure {
        cancelled,
        failure_kind: if cancelled {
            "cancelled"
        } else {
            "provider_auth"
        }
        .into(),
        message: "the key was refused".into(),
        user_text: "please deploy".into(),
        partial_text: "Working on it".into(),
        usage: Usage::default(),
        failovers: Vec::new(),
    }
}

/// One whole successful turn.
pub(crate) fn turn(store: &mut Store, id: &str, of: &str, messages: Vec<ChatMessage>, now: i64) {
    store.begin_run(&scope(id, of), &start(), now).unwrap();
    store.commit_run(&run(id), &commit(messages), now).unwrap();
}

pub(crate) fn texts(messages: &[ChatMessage]) -> Vec<String> {
    messages.iter().map(ChatMessage::plain_text).collect()
}

/// A connection for looking at a closed store's file.
pub(crate) fn raw(dir: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(dir.join("store.sqlite")).unwrap()
}

/// A state directory as the supervisor makes it.
pub(crate) fn state() -> tempfile::TempDir {
    tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .unwrap()
}
