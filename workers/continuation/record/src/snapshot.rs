//! The origin snapshot: what the turn that asked for background work had seen, fixed before it commits (spec
//! s1, "Origin settlement lifecycle").
//!
//! A snapshot holds whole turns. When it would be too large, whole oldest turns are left out; no message is
//! cut and no pair is torn.

use crate::{Time, binding, canonical};
use serde::{Deserialize, Serialize};

/// Most messages.
pub const MAX_MESSAGES: usize = 64;
/// Most bytes of one message's content.
pub const MAX_CONTENT: usize = 64 * 1024;
/// Most bytes of the whole snapshot in its canonical form.
pub const MAX_BYTES: usize = 256 * 1024;
/// Longest conversation id in bytes.
pub const MAX_CONVERSATION: usize = 2048;
/// Longest run id, boundary, name or key in bytes.
pub const MAX_ID: usize = 512;

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotRole {
    /// The host.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotMessage {
    /// Who said it.
    pub role: SnapshotRole,
    /// What was said, whole.
    pub content: String,
    /// The speaker's or tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The run of its turn. Messages without one begin a turn where the person speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Key by which it was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl SnapshotMessage {
    /// A message of a role and a text.
    #[must_use]
    pub fn new(role: SnapshotRole, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            name: None,
            timestamp: None,
            run_id: None,
            idempotency_key: None,
        }
    }

    fn is_valid(&self) -> bool {
        let labels = [
            &self.name,
            &self.timestamp,
            &self.run_id,
            &self.idempotency_key,
        ];
        self.content.len() <= MAX_CONTENT
            && labels
                .into_iter()
                .flatten()
                .all(|label| !label.is_empty() && label.len() <= MAX_ID)
    }
}

/// The blob's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// 1.
    pub schema_version: u32,
    /// The conversation of the history, with its rollover bucket.
    pub conversation_id: String,
    /// The origin's run.
    pub origin_run_id: String,
    /// The same as the run.
    pub history_boundary: String,
    /// When it was taken.
    pub captured_at: Time,
    /// Oldest first; the last two are the origin's.
    pub messages: Vec<SnapshotMessage>,
}

/// The origin's own turn.
#[derive(Debug, Clone, Copy)]
pub struct OriginTurn<'a> {
    /// The conversation of the history, with its rollover bucket.
    pub conversation: &'a str,
    /// The run.
    pub run: &'a str,
    /// The time now.
    pub now: Time,
    /// What the person asked.
    pub user: &'a str,
    /// What the model answered.
    pub assistant: &'a str,
}

/// A snapshot that is ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The canonical JSON, which is what is written.
    pub canonical: String,
    /// Its digest and name.
    pub digest: String,
    /// Number of messages.
    pub message_count: u32,
}

/// Why there is no snapshot, or why one can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The origin's own turn is over a bound. The turn must fail: its later answer could not be grounded.
    #[error(
        "the turn that asked for background work does not fit into a snapshot (64 KiB a message, 256 KiB in all)"
    )]
    OriginTooLarge,
    /// The names of conversation or run are empty or too long.
    #[error("the origin's conversation or run id is empty or too long")]
    Names,
    /// Its bytes are not those that the record names.
    #[error("the snapshot is not the one that its claim names")]
    Digest,
    /// It is not a snapshot that we write.
    #[error("the snapshot has a form that is never written")]
    Form,
    /// It is another origin's.
    #[error("the snapshot belongs to another origin")]
    Foreign,
}

/// Makes the snapshot of a completed turn from what its history retained before it, oldest first.
///
/// # Errors
/// [`SnapshotError::OriginTooLarge`] or [`SnapshotError::Names`].
pub fn prepare(
    origin: &OriginTurn<'_>,
    history: &[SnapshotMessage],
) -> Result<Prepared, SnapshotError> {
    let named = |text: &str, most: usize| !text.is_empty() && text.len() <= most;
    if !named(origin.conversation, MAX_CONVERSATION) || !named(origin.run, MAX_ID) {
        return Err(SnapshotError::Names);
    }
    let own = |role, content: &str| SnapshotMessage {
        timestamp: Some(origin.now.to_string()),
        run_id: Some(origin.run.to_owned()),
        ..SnapshotMessage::new(role, content)
    };
    let pair = vec![
        own(SnapshotRole::User, origin.user),
        own(SnapshotRole::Assistant, origin.assistant),
    ];
    if !pair.iter().all(SnapshotMessage::is_valid) {
        return Err(SnapshotError::OriginTooLarge);
    }
    let mut snapshot = Snapshot {
        schema_version: 1,
        conversation_id: origin.conversation.to_owned(),
        origin_run_id: origin.run.to_owned(),
        history_boundary: origin.run.to_owned(),
        captured_at: origin.now,
        messages: pair,
    };
    let mut bytes = text(&snapshot).len();
    if bytes > MAX_BYTES {
        return Err(SnapshotError::OriginTooLarge);
    }
    let mut count = snapshot.messages.len();
    let mut kept = Vec::new();
    for turn in turns(history, origin.run).into_iter().rev() {
        // A turn that holds what we would never read back is left out whole, and those before it stay.
        if !turn.iter().all(|message| message.is_valid()) {
            continue;
        }
        let more: usize = turn.iter().map(|message| text(*message).len() + 1).sum();
        if count + turn.len() > MAX_MESSAGES || bytes + more > MAX_BYTES {
            break;
        }
        (count, bytes) = (count + turn.len(), bytes + more);
        kept.push(turn);
    }
    let older = kept.into_iter().rev().flatten().cloned();
    snapshot.messages = older.chain(snapshot.messages).collect();
    let canonical = text(&snapshot);
    Ok(Prepared {
        digest: binding::snapshot_digest(&canonical),
        message_count: u32::try_from(snapshot.messages.len()).unwrap_or(u32::MAX),
        canonical,
    })
}

/// Turns in the order of their first messages: those of one run, or, without runs, from one message of the
/// person to the next. Nothing of the origin's own run.
fn turns<'a>(history: &'a [SnapshotMessage], origin: &str) -> Vec<Vec<&'a SnapshotMessage>> {
    let mut turns: Vec<(Option<&str>, Vec<&SnapshotMessage>)> = Vec::new();
    for message in history {
        let run = message.run_id.as_deref();
        if run == Some(origin) {
            continue;
        }
        let found = match run {
            Some(_) => turns.iter().rposition(|(of, _)| *of == run),
            None => turns
                .len()
                .checked_sub(1)
                .filter(|last| turns[*last].0.is_none() && message.role != SnapshotRole::User),
        };
        match found {
            Some(turn) => turns[turn].1.push(message),
            None => turns.push((run, vec![message])),
        }
    }
    turns.into_iter().map(|(_, messages)| messages).collect()
}

fn text(value: &impl Serialize) -> String {
    // A struct of texts and numbers always has a JSON form.
    canonical::of(value).unwrap_or_default()
}

/// Reads a blob for one claim: exactly the bytes that the digest names, of a form that we write, of that
/// claim's own origin.
///
/// # Errors
/// [`SnapshotError`]; each means that the fixed answer without a model takes its place.
pub fn read(
    blob: &[u8],
    digest: &str,
    conversation: &str,
    run: &str,
    boundary: &str,
) -> Result<Snapshot, SnapshotError> {
    let canonical = std::str::from_utf8(blob).map_err(|_| SnapshotError::Form)?;
    if !crate::token::same(&binding::snapshot_digest(canonical), digest) {
        return Err(SnapshotError::Digest);
    }
    let snapshot: Snapshot = serde_json::from_str(canonical).map_err(|_| SnapshotError::Form)?;
    check(&snapshot, blob.len())?;
    let is_its = snapshot.conversation_id == conversation
        && snapshot.origin_run_id == run
        && snapshot.history_boundary == boundary;
    if !is_its {
        return Err(SnapshotError::Foreign);
    }
    Ok(snapshot)
}

/// Everything that holds of each snapshot that is written.
fn check(snapshot: &Snapshot, bytes: usize) -> Result<(), SnapshotError> {
    let count = snapshot.messages.len();
    let fits = snapshot.schema_version == 1
        && (2..=MAX_MESSAGES).contains(&count)
        && bytes <= MAX_BYTES
        && !snapshot.conversation_id.is_empty()
        && snapshot.conversation_id.len() <= MAX_CONVERSATION
        && !snapshot.origin_run_id.is_empty()
        && snapshot.origin_run_id.len() <= MAX_ID
        && snapshot.origin_run_id == snapshot.history_boundary
        && snapshot.messages.iter().all(SnapshotMessage::is_valid);
    let captured_at = snapshot.captured_at.to_string();
    let ends = |message: &SnapshotMessage, role| {
        message.role == role
            && message.run_id.as_deref() == Some(&snapshot.origin_run_id)
            && message.timestamp.as_deref() == Some(&captured_at)
    };
    let pair = fits
        && ends(&snapshot.messages[count - 2], SnapshotRole::User)
        && ends(&snapshot.messages[count - 1], SnapshotRole::Assistant);
    if pair {
        Ok(())
    } else {
        Err(SnapshotError::Form)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const ORIGIN: OriginTurn<'static> = OriginTurn {
        conversation: "slack:C:T#2030-01-01",
        run: "run-9",
        now: Time::from_ms(1_893_553_445_000),
        user: "please",
        assistant: "started",
    };

    fn said(role: SnapshotRole, content: &str, run: Option<&str>) -> SnapshotMessage {
        SnapshotMessage {
            run_id: run.map(str::to_owned),
            ..SnapshotMessage::new(role, content)
        }
    }

    fn open(prepared: &Prepared) -> Snapshot {
        read(
            prepared.canonical.as_bytes(),
            &prepared.digest,
            ORIGIN.conversation,
            ORIGIN.run,
            ORIGIN.run,
        )
        .unwrap()
    }

    fn contents(prepared: &Prepared) -> Vec<String> {
        let messages = open(prepared).messages;
        messages
            .into_iter()
            .map(|message| message.content)
            .collect()
    }

    use SnapshotRole::{Assistant, Tool, User};

    #[test]
    fn a_snapshot_ends_with_the_origins_pair() {
        let prepared = prepare(&ORIGIN, &[]).unwrap();
        assert_eq!(prepared.message_count, 2);
        let snapshot = open(&prepared);
        assert_eq!(snapshot.captured_at, ORIGIN.now);
        assert_eq!(snapshot.history_boundary, "run-9");
        assert_eq!(contents(&prepared), ["please", "started"]);
        assert!(prepared.canonical.starts_with(r#"{"capturedAt":"2030"#));
    }

    #[test]
    fn size_pressure_removes_whole_oldest_turns_and_cuts_nothing() {
        let large = "x".repeat(MAX_CONTENT - 100);
        let mut history = Vec::new();
        for run in ["a", "b", "c"] {
            history.push(said(User, run, Some(run)));
            history.push(said(Assistant, &large, Some(run)));
        }
        // Three large answers fit beside the origin's pair, a fourth doesn't.
        assert_eq!(prepare(&ORIGIN, &history).unwrap().message_count, 8);
        history.insert(0, said(Assistant, &large, Some("0")));
        history.insert(0, said(User, "0", Some("0")));
        let prepared = prepare(&ORIGIN, &history).unwrap();
        assert_eq!(prepared.message_count, 8);
        let kept = contents(&prepared);
        assert_eq!((kept[0].as_str(), kept[1].len()), ("a", large.len()));
    }

    #[test]
    fn at_most_64_messages_and_no_turn_is_torn() {
        let mut history = Vec::new();
        for turn in 0..40 {
            let run = turn.to_string();
            for role in [User, Tool, Assistant] {
                history.push(said(role, &run, Some(&run)));
            }
        }
        let kept = contents(&prepare(&ORIGIN, &history).unwrap());
        // 20 turns of three and the pair; one turn more would be 65.
        assert_eq!(kept.len(), 62);
        assert_eq!(kept[..3], ["20", "20", "20"]);
    }

    #[test]
    fn exactly_64_messages_and_256_kibibytes_fit_and_one_more_does_not() {
        // One message alone and 31 turns of two: with the pair they would be 65.
        let mut history = vec![said(User, "alone", Some("alone"))];
        for turn in 0..31 {
            let run = turn.to_string();
            history.push(said(User, &run, Some(&run)));
            history.push(said(Assistant, &run, Some(&run)));
        }
        let kept = contents(&prepare(&ORIGIN, &history).unwrap());
        assert_eq!((kept.len(), kept[0].as_str()), (64, "0"));
        // Three of the largest messages, and before them one that fills what is left.
        let largest = "x".repeat(MAX_CONTENT);
        let filled = |bytes: usize| {
            let filler = said(User, &"y".repeat(bytes), Some("filler"));
            let large = ["a", "b", "c"].map(|run| said(User, &largest, Some(run)));
            let history: Vec<_> = std::iter::once(filler).chain(large).collect();
            prepare(&ORIGIN, &history).unwrap()
        };
        let rest = 256 * 1024 - filled(0).canonical.len();
        let full = filled(rest);
        assert_eq!((full.canonical.len(), full.message_count), (256 * 1024, 6));
        assert_eq!(filled(rest + 1).message_count, 5);
    }

    #[test]
    fn a_turn_with_an_invalid_message_is_left_out_whole() {
        let history = [
            said(User, "old", Some("a")),
            said(Assistant, "old", Some("a")),
            said(User, "bad", Some("b")),
            said(Assistant, &"x".repeat(MAX_CONTENT + 1), Some("b")),
            said(User, "new", Some("c")),
            said(Assistant, "new", Some("c")),
        ];
        assert_eq!(
            contents(&prepare(&ORIGIN, &history).unwrap()),
            ["old", "old", "new", "new", "please", "started"]
        );
    }

    #[test]
    fn messages_without_a_run_make_turns_that_begin_where_the_person_speaks() {
        let history = [
            said(Assistant, "tail", None),
            said(User, "1", None),
            said(Assistant, "1", None),
            said(User, "2", None),
            said(Assistant, &"x".repeat(MAX_CONTENT + 1), None),
        ];
        assert_eq!(
            contents(&prepare(&ORIGIN, &history).unwrap()),
            ["tail", "1", "1", "please", "started"]
        );
    }

    #[test]
    fn the_origins_own_messages_are_not_taken_twice() {
        let history = [said(User, "please", Some("run-9"))];
        assert_eq!(prepare(&ORIGIN, &history).unwrap().message_count, 2);
    }

    #[test]
    fn an_origin_turn_that_does_not_fit_fails_the_turn() {
        let exact = "x".repeat(MAX_CONTENT);
        let over = "x".repeat(MAX_CONTENT + 1);
        let with = |user| prepare(&OriginTurn { user, ..ORIGIN }, &[]);
        assert!(with(&exact).is_ok());
        assert_eq!(with(&over), Err(SnapshotError::OriginTooLarge));
        // Within the bound of a message, but not once its control characters are written as JSON.
        let escaped = "\u{1}".repeat(MAX_CONTENT);
        assert_eq!(with(&escaped), Err(SnapshotError::OriginTooLarge));
        let unnamed = OriginTurn { run: "", ..ORIGIN };
        assert_eq!(prepare(&unnamed, &[]), Err(SnapshotError::Names));
    }

    #[test]
    fn a_blob_is_read_only_as_what_it_is() {
        let prepared = prepare(&ORIGIN, &[]).unwrap();
        let bytes = prepared.canonical.as_bytes();
        let at = |bytes: &[u8], digest: &str, conversation: &str| {
            read(bytes, digest, conversation, "run-9", "run-9").unwrap_err()
        };
        let other_day = "slack:C:T#2030-01-02";
        assert_eq!(
            at(bytes, &prepared.digest, other_day),
            SnapshotError::Foreign
        );
        assert_eq!(
            at(&bytes[1..], &prepared.digest, ORIGIN.conversation),
            SnapshotError::Digest
        );
        assert_eq!(
            at(&[0xff], &prepared.digest, ORIGIN.conversation),
            SnapshotError::Form
        );
        for (from, to) in [
            ("\"schemaVersion\":1", "\"schemaVersion\":2"),
            ("\"role\":\"assistant\"", "\"role\":\"user\""),
            ("\"role\":\"assistant\"", "\"role\":\"owner\""),
            (
                "\"historyBoundary\":\"run-9\"",
                "\"historyBoundary\":\"run-8\"",
            ),
            ("\"schemaVersion\":1", "\"schemaVersion\":1,\"x\":1"),
            (
                "\"capturedAt\":\"2030-01-02T03:04:05.000Z\"",
                "\"capturedAt\":\"2030-01-02T03:04:06.000Z\"",
            ),
        ] {
            let forged = prepared.canonical.replacen(from, to, 1);
            assert_ne!(forged, prepared.canonical, "{from}");
            let digest = binding::snapshot_digest(&forged);
            assert_eq!(
                at(forged.as_bytes(), &digest, ORIGIN.conversation),
                SnapshotError::Form,
                "{to}"
            );
        }
    }

    fn message() -> impl Strategy<Value = SnapshotMessage> {
        let role = prop_oneof![
            Just(User),
            Just(Assistant),
            Just(Tool),
            Just(SnapshotRole::System)
        ];
        let size = prop_oneof![9 => 0_usize..300, 2 => 20_000_usize..70_000];
        (role, size, proptest::option::of(0_u8..12)).prop_map(|(role, size, run)| {
            said(
                role,
                &"y".repeat(size),
                run.map(|run| format!("r{run}")).as_deref(),
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_history_gives_a_snapshot_that_is_read_back(history in proptest::collection::vec(message(), 0..90)) {
            let prepared = prepare(&ORIGIN, &history).unwrap();
            prop_assert!(prepared.canonical.len() <= MAX_BYTES);
            let snapshot = open(&prepared);
            prop_assert_eq!(snapshot.messages.len(), prepared.message_count as usize);
            // Whole turns: of each run that is there, every message is there.
            for run in snapshot.messages.iter().filter_map(|m| m.run_id.as_deref()).filter(|run| *run != "run-9") {
                let of = |messages: &[SnapshotMessage]| messages.iter().filter(|m| m.run_id.as_deref() == Some(run)).count();
                prop_assert_eq!(of(&snapshot.messages), of(&history));
            }
        }
    }
}
