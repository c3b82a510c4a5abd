//! What is known of one request, and how it is told (facts 2.2).

use super::metadata::Metadata;
use ipc_proto::ConversationId;
use ipc_proto::outcomes::PartOutcome;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::sync::Arc;
use uuid::Uuid;

/// Where a request stands. The last three are the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It waits for its run.
    Accepted,
    /// Its run works.
    Running,
    /// Committed.
    Succeeded,
    /// Not committed, or not in time.
    Failed,
    /// Ended on request, or by a caller who went away.
    Cancelled,
}

impl Status {
    /// True for the three that don't change any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A fixed code.
    pub code: String,
    /// One sentence.
    pub message: String,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// With an answer.
    Succeeded {
        /// The text, byte for byte.
        text: String,
        /// What became of the parts.
        outcomes: Vec<PartOutcome>,
        /// What the run says of itself.
        summary: Value,
    },
    /// Without one.
    Failed(Problem),
    /// Without one, because nobody wanted it any more.
    Cancelled(Problem),
}

/// One request. A clone shares the text, which nobody can change, and nothing else.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Where it stands.
    pub status: Status,
    /// Its name in the status route.
    #[serde(serialize_with = "display")]
    pub request_id: Uuid,
    /// The conversation of its turn.
    pub conversation_id: ConversationId,
    /// When it was taken.
    #[serde(serialize_with = "millis")]
    pub received_at: Timestamp,
    /// When its run began to work.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "some_millis"
    )]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "some_millis"
    )]
    pub completed_at: Option<Timestamp>,
    /// The answer.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "shared_text"
    )]
    pub text: Option<Arc<str>>,
    /// The caller's, and the run's summary.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// What became of the answer's parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reply_part_outcomes: Vec<PartOutcome>,
    /// The endpoint that it came to; nobody's business outside.
    #[serde(skip)]
    pub endpoint: usize,
}

impl Record {
    /// A request that was just taken.
    #[must_use]
    pub fn new(
        endpoint: usize,
        request_id: Uuid,
        conversation_id: ConversationId,
        metadata: Map<String, Value>,
        now: Timestamp,
    ) -> Self {
        Self {
            status: Status::Accepted,
            request_id,
            conversation_id,
            received_at: now,
            started_at: None,
            completed_at: None,
            text: None,
            metadata: Metadata::of(metadata),
            error: None,
            reply_part_outcomes: Vec::new(),
            endpoint,
        }
    }

    /// Its run works.
    pub fn start(&mut self, now: Timestamp) {
        if self.status == Status::Accepted {
            self.status = Status::Running;
            self.started_at = Some(now);
        }
    }

    /// It ends. False, and nothing changes, when it had ended before: what comes late is dropped.
    pub fn settle(&mut self, settlement: Settlement, now: Timestamp) -> bool {
        if self.status.is_final() {
            return false;
        }
        self.completed_at = Some(now);
        match settlement {
            Settlement::Succeeded {
                text,
                outcomes,
                summary,
            } => {
                self.status = Status::Succeeded;
                self.text = Some(text.into());
                self.reply_part_outcomes = outcomes;
                self.metadata.sum_up(summary);
            }
            Settlement::Failed(problem) => {
                self.status = Status::Failed;
                self.error = Some(problem);
            }
            Settlement::Cancelled(problem) => {
                self.status = Status::Cancelled;
                self.error = Some(problem);
            }
        }
        true
    }

    /// As JSON, for the caller, the status route and the callback alike.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        // Strings, numbers and checked JSON always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// About how many bytes it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        1024 + self.text.as_ref().map_or(0, |text| text.len()) + self.metadata.size()
    }
}

/// RFC 3339 with milliseconds.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn display<S: Serializer>(id: &Uuid, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(id)
}

fn shared_text<S: Serializer>(text: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(to)
}

fn millis<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339(*time))
}

fn some_millis<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    time.map(rfc3339).serialize(to)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::outcomes::of_parts;
    use serde_json::json;

    pub(crate) fn record(endpoint: usize, conversation: &str) -> Record {
        Record::new(
            endpoint,
            Uuid::nil(),
            ConversationId::parse(conversation).unwrap(),
            Map::new(),
            Timestamp::from_millisecond(1_000).unwrap(),
        )
    }

    pub(crate) fn succeeded(text: &str) -> Settlement {
        Settlement::Succeeded {
            text: text.to_owned(),
            outcomes: of_parts(&json!([{"type": "attachment"}])),
            summary: json!({"runId": "r"}),
        }
    }

    pub(crate) fn failed(code: &str) -> Settlement {
        Settlement::Failed(Problem {
            code: code.to_owned(),
            message: "m".to_owned(),
        })
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn shown(record: &Record) -> String {
        String::from_utf8(record.json()).unwrap()
    }

    #[test]
    fn every_state_is_exact() {
        let mut request = record(3, "c");
        let head = r#""requestId":"00000000-0000-0000-0000-000000000000","conversationId":"c","receivedAt":"1970-01-01T00:00:01.000Z""#;
        assert_eq!(
            shown(&request),
            format!(r#"{{"status":"accepted",{head}}}"#)
        );
        request.start(at(2_005));
        let started = format!(r#"{head},"startedAt":"1970-01-01T00:00:02.005Z""#);
        assert_eq!(
            shown(&request),
            format!(r#"{{"status":"running",{started}}}"#)
        );
        let (mut won, mut lost, mut gone) = (request.clone(), request.clone(), request.clone());
        let ended = format!(r#"{started},"completedAt":"1970-01-01T00:00:03.000Z""#);
        assert!(won.settle(succeeded("a\r\n"), at(3_000)));
        assert_eq!(
            shown(&won),
            format!(
                r#"{{"status":"succeeded",{ended},"text":"a\r\n","metadata":{{"summary":{{"runId":"r"}}}},"replyPartOutcomes":[{{"partIndex":0,"partType":"attachment","status":"failed","code":"unsupported_destination","message":"Attachment reply parts are unsupported on this destination."}}]}}"#
            )
        );
        assert!(lost.settle(failed("timeout"), at(3_000)));
        assert_eq!(
            shown(&lost),
            format!(r#"{{"status":"failed",{ended},"error":{{"code":"timeout","message":"m"}}}}"#)
        );
        let problem = Problem {
            code: "cancelled".into(),
            message: "m".into(),
        };
        assert!(gone.settle(Settlement::Cancelled(problem), at(3_000)));
        assert!(shown(&gone).starts_with(r#"{"status":"cancelled""#));
    }

    #[test]
    fn the_first_settlement_stands() {
        let mut request = record(0, "c");
        assert!(request.settle(failed("timeout"), at(2_000)));
        let before = request.clone();
        assert!(!request.settle(succeeded("late"), at(3_000)));
        request.start(at(4_000));
        assert_eq!(request, before);
    }

    #[test]
    fn readers_have_outcomes_of_their_own() {
        let mut store = record(0, "c");
        store.settle(succeeded("text"), at(2_000));
        let (mut read, sent) = (store.clone(), store.clone());
        read.reply_part_outcomes.clear();
        read.metadata = Metadata::of(Map::new());
        assert_eq!(store, sent);
        assert_eq!(store.reply_part_outcomes.len(), 1);
    }

    #[test]
    fn a_callers_summary_is_not_passed_on() {
        let metadata = json!({"summary": {"systemPrompt": "secret"}, "ticket": 7});
        let metadata = metadata.as_object().unwrap().clone();
        let conversation = ConversationId::parse("c").unwrap();
        let mut request = Record::new(0, Uuid::nil(), conversation, metadata, at(0));
        assert_eq!(json!(request.metadata), json!({"ticket": 7}));
        request.settle(succeeded(""), at(1));
        assert_eq!(
            json!(request.metadata),
            json!({"ticket": 7, "summary": {"runId": "r"}})
        );
    }
}
