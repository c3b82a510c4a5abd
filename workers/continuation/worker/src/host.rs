//! What the service asks of the rest of the host, over the channels of this worker.

use crate::owners::{Fate, Owners, Posted};
use crate::words::{self, Task, Words};
use async_trait::async_trait;
use continuation_record::snapshot::{SnapshotMessage, SnapshotRole};
use continuation_service::Host;
use continuation_service::host::{
    Commitment, Context, Delivery, DeliveryRequest, Readiness, Synthesis, SynthesisRequest,
};
use ipc_proto::chat::ChatRole;
use std::sync::Arc;
use std::time::Duration;
use worker_kit::Control;

/// The other processes.
pub struct Others {
    owners: Arc<Owners>,
    control: Control,
    delivery_time: Duration,
}

impl Others {
    /// Over these channels; a delivery may take so long.
    #[must_use]
    pub fn new(owners: Arc<Owners>, control: Control, delivery_time: Duration) -> Self {
        Self {
            owners,
            control,
            delivery_time,
        }
    }
}

/// What was said before, as a run is told it. Only people and the model speak in our histories; what
/// a folder of another make holds beside them is told as data of the person's.
fn before(context: Context) -> Vec<(ChatRole, String)> {
    let messages = match context {
        Context::Pinned(snapshot) => snapshot.messages,
        Context::DetachedLatest(messages) => messages,
    };
    let told = |message: SnapshotMessage| match message.role {
        SnapshotRole::Assistant => (ChatRole::Assistant, message.content),
        SnapshotRole::User => (ChatRole::User, message.content),
        SnapshotRole::System => (ChatRole::User, format!("[system] {}", message.content)),
        SnapshotRole::Tool => (ChatRole::User, format!("[tool] {}", message.content)),
    };
    messages.into_iter().map(told).collect()
}

#[async_trait]
impl Host for Others {
    async fn run_committed(&self, run: &str, _conversation: &str, _boundary: &str) -> Commitment {
        match self.owners.fate(run).await {
            Fate::Committed => Commitment::Committed,
            Fate::NotCommitted => Commitment::NotCommitted,
            Fate::Open => Commitment::Unknown,
        }
    }

    async fn latest_history(&self, conversation: &str) -> Result<Vec<SnapshotMessage>, String> {
        self.owners.latest_history(conversation).await
    }

    async fn commit_history(
        &self,
        conversation: &str,
        key: &str,
        text: &str,
    ) -> Result<(), String> {
        self.owners.commit_history(conversation, key, text).await
    }

    async fn preflight(&self, target: &str) -> Readiness {
        match self.owners.reach(target).await {
            Posted::Ready | Posted::Delivered(_) => Readiness::Ready,
            Posted::Later(retry_after, _) => Readiness::Later { retry_after },
            Posted::Never(reason) => Readiness::Refused {
                reason: format!("{}: {}", reason.code, reason.text),
            },
            Posted::Unknown(_) => Readiness::Later { retry_after: None },
        }
    }

    async fn synthesize(&self, request: SynthesisRequest) -> Synthesis {
        let task = Task {
            continuation: request.continuation_id,
            target: request.target,
            before: before(request.context),
            message: request.message,
        };
        match words::put(&self.control, task).await {
            Words::Text(text) => Synthesis::Text(text),
            Words::NotAsked(retry_after, reason) => Synthesis::Unavailable {
                retry_after,
                reason,
            },
            Words::Failed(code, reason) => Synthesis::Failed { code, reason },
        }
    }

    async fn deliver(&self, request: DeliveryRequest) -> Delivery {
        let DeliveryRequest { key, target, text } = request;
        let posted = self
            .owners
            .deliver(&target, &key, &text, self.delivery_time);
        match posted.await {
            Posted::Delivered(delivery_id) => Delivery::Delivered {
                delivery_id,
                channel_id: Some(target),
                history: None,
            },
            Posted::Later(retry_after, reason) => Delivery::Retryable {
                retry_after,
                code: reason.code,
                reason: reason.text,
            },
            Posted::Never(reason) => Delivery::Permanent {
                code: reason.code,
                reason: reason.text,
            },
            Posted::Unknown(reason) => Delivery::Unknown {
                code: reason.code,
                reason: reason.text,
            },
            Posted::Ready => Delivery::Unknown {
                code: "channel_protocol".to_owned(),
                reason: "the channel answered another question".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_spoke_stays_apart() {
        let message = |role, text: &str| SnapshotMessage::new(role, text);
        let told = before(Context::DetachedLatest(vec![
            message(SnapshotRole::User, "a"),
            message(SnapshotRole::Assistant, "b"),
            message(SnapshotRole::System, "c"),
            message(SnapshotRole::Tool, "d"),
        ]));
        let expected = [
            (ChatRole::User, "a".to_owned()),
            (ChatRole::Assistant, "b".to_owned()),
            (ChatRole::User, "[system] c".to_owned()),
            (ChatRole::User, "[tool] d".to_owned()),
        ];
        assert_eq!(told, expected);
    }
}
