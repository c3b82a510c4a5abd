//! What every record fulfils. The reader of the store refuses what does not, and the writer asks
//! the same question before it writes, so nothing is ever written that can't be read again.

use crate::record::{ContextRef, LastError, Mode, OriginContextState, Receipt, Record, State};

/// Longest file of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 2 * 1024 * 1024;
/// Longest compact text of a record, in bytes: with it the indented file stays within
/// [`MAX_RECORD_BYTES`].
pub const MAX_COMPACT_BYTES: usize = MAX_RECORD_BYTES - 8 * 1024;
/// Longest name of a continuation.
pub const MAX_ID: usize = 256;
/// Longest name of a server, `detached:` included.
pub const MAX_SERVER: usize = 512;
/// Longest name of a run, `detached:SERVICE:TASK` included.
pub const MAX_RUN: usize = 1_024;
/// Longest name of a conversation.
pub const MAX_CONVERSATION: usize = 2_048;
/// Longest name of a route.
pub const MAX_ROUTE: usize = 128;
/// Longest task key, task hash and idempotency key.
pub const MAX_KEY: usize = 256;
/// Longest answer.
pub const MAX_TEXT: usize = 200_000;
/// Longest error code.
pub const MAX_CODE: usize = 128;
/// Longest reason of an error.
pub const MAX_REASON: usize = 1_000;
/// Longest name that a channel gives to a post or a place.
pub const MAX_CHANNEL_NAME: usize = 2_048;
/// Longest name of a lease's owner.
pub const MAX_OWNER: usize = 128;
/// Largest number of attempts or deferrals.
pub const MAX_COUNT: u32 = 1_000_000;
/// Largest snapshot, in bytes.
pub const MAX_CONTEXT_BYTES: u64 = 256 * 1024;
/// Most messages in a snapshot.
pub const MAX_CONTEXT_MESSAGES: u32 = 64;

/// Why a record is refused. Never says what stands in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is no record at all.
    #[error("the record is not as its format has it, at line {line}, column {column}")]
    Format {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// It is too long.
    #[error("the record has {bytes} bytes, and at most {max} are allowed")]
    Long {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A field is empty, too long, or of another form.
    #[error("the record's field {0} is out of its bounds")]
    Field(&'static str),
    /// Two fields contradict each other.
    #[error("the record contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// Length as JavaScript counts it, in UTF-16 code units: the bounds of the contract are in these.
#[must_use]
pub fn units(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.encode_utf16().count()
    }
}

/// A record that may be kept.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn validate(record: &Record) -> Result<(), Invalid> {
    text("continuationId", &record.continuation_id, MAX_ID)?;
    text("serverName", &record.server_name, MAX_SERVER)?;
    text("originRunId", &record.origin_run_id, MAX_RUN)?;
    text(
        "originConversationId",
        &record.origin_conversation_id,
        MAX_CONVERSATION,
    )?;
    optional(
        "replyToConversationId",
        record.reply_to_conversation_id.as_deref(),
        MAX_CONVERSATION,
    )?;
    optional(
        "historyBoundary",
        record.history_boundary.as_deref(),
        MAX_RUN,
    )?;
    optional("routeName", record.route_name.as_deref(), MAX_ROUTE)?;
    text("taskKey", &record.task_key, MAX_KEY)?;
    text("taskHash", &record.task_hash, MAX_KEY)?;
    digest("claimFingerprint", Some(&record.claim_fingerprint))?;
    digest("resultTokenHash", Some(&record.result_token_hash))?;
    optional(
        "resultIdempotencyKey",
        record.result_idempotency_key.as_deref(),
        MAX_KEY,
    )?;
    digest("resultPayloadHash", record.result_payload_hash.as_deref())?;
    optional(
        "synthesizedText",
        record.synthesized_text.as_deref(),
        MAX_TEXT,
    )?;
    optional("leaseOwner", record.lease_owner.as_deref(), MAX_OWNER)?;
    for (field, count) in [
        ("synthesisAttempts", record.synthesis_attempts),
        ("synthesisDeferrals", record.synthesis_deferrals),
        ("deliveryAttempts", record.delivery_attempts),
    ] {
        hold(count <= MAX_COUNT, Invalid::Field(field))?;
    }
    record.last_error.as_ref().map_or(Ok(()), error)?;
    record.receipt.as_ref().map_or(Ok(()), receipt)?;
    context(record)?;
    result(record)?;
    end(record)
}

fn error(error: &LastError) -> Result<(), Invalid> {
    text("lastError.code", &error.code, MAX_CODE)?;
    hold(
        units(&error.reason) <= MAX_REASON,
        Invalid::Field("lastError.reason"),
    )
}

fn receipt(receipt: &Receipt) -> Result<(), Invalid> {
    optional(
        "receipt.deliveryId",
        receipt.delivery_id.as_deref(),
        MAX_CHANNEL_NAME,
    )?;
    optional(
        "receipt.channelId",
        receipt.channel_id.as_deref(),
        MAX_CHANNEL_NAME,
    )?;
    optional(
        "receipt.historyErrorCode",
        receipt.history_error_code.as_deref(),
        MAX_CODE,
    )
}

fn context(record: &Record) -> Result<(), Invalid> {
    digest(
        "originContextDigest",
        record.origin_context_digest.as_deref(),
    )?;
    digest(
        "originContextFingerprint",
        record.origin_context_fingerprint.as_deref(),
    )?;
    digest(
        "originContextBindingMac",
        record.origin_context_binding_mac.as_deref(),
    )?;
    if let Some(count) = record.origin_context_message_count {
        hold(
            (1..=MAX_CONTEXT_MESSAGES).contains(&count),
            Invalid::Field("originContextMessageCount"),
        )?;
    }
    if let Some(reference) = &record.origin_context_ref {
        bound(record, reference)?;
    }
    let referenced = record.origin_context_ref.is_some();
    match record.origin_context_state {
        OriginContextState::Pending => hold(
            record.history_boundary.is_some(),
            Invalid::Contradiction("a pending origin without a history boundary"),
        ),
        OriginContextState::Pinned => hold(
            referenced && record.history_boundary.is_some(),
            Invalid::Contradiction("a pinned origin without its snapshot"),
        ),
        OriginContextState::Abandoned => Ok(()),
        OriginContextState::DetachedLatest | OriginContextState::LegacyMissing => hold(
            !referenced,
            Invalid::Contradiction("a snapshot of an origin that has none"),
        ),
        OriginContextState::Scrubbed => hold(
            // One that an operator sends again has its text, and needs no snapshot for that.
            !referenced
                && (!record.state.is_pending()
                    || matches!(record.state, State::ReadyToDeliver | State::DeliveryRetry)),
            Invalid::Contradiction("a scrubbed origin that still has its snapshot or needs it"),
        ),
    }
}

fn bound(record: &Record, reference: &ContextRef) -> Result<(), Invalid> {
    digest("originContextRef.digest", Some(&reference.digest))?;
    hold(
        reference.schema_version == 1,
        Invalid::Field("originContextRef.schemaVersion"),
    )?;
    hold(
        (1..=MAX_CONTEXT_BYTES).contains(&reference.bytes),
        Invalid::Field("originContextRef.bytes"),
    )?;
    hold(
        (1..=MAX_CONTEXT_MESSAGES).contains(&reference.message_count),
        Invalid::Field("originContextRef.messageCount"),
    )?;
    hold(
        record.origin_context_digest.as_ref() == Some(&reference.digest)
            && record.origin_context_message_count == Some(reference.message_count)
            && record.origin_context_fingerprint.is_some()
            && record.origin_context_binding_mac.is_some(),
        Invalid::Contradiction("a snapshot that is not bound"),
    )
}

fn result(record: &Record) -> Result<(), Invalid> {
    let keyed = record.result_idempotency_key.is_some();
    hold(
        keyed == record.result_payload_hash.is_some(),
        Invalid::Contradiction("a result with a key or a hash alone"),
    )?;
    hold(
        keyed || record.result_payload.is_none(),
        Invalid::Contradiction("a payload without a key"),
    )?;
    match record.state {
        State::Claimed => hold(!keyed, Invalid::Contradiction("a result, yet only claimed")),
        State::ResultReceived | State::Synthesizing => hold(
            keyed && record.result_payload.is_some(),
            Invalid::Contradiction("its state needs a payload"),
        ),
        State::ReadyToDeliver | State::DeliveryRetry => hold(
            keyed && record.synthesized_text.is_some(),
            Invalid::Contradiction("its state needs a text"),
        ),
        _ => Ok(()),
    }
}

fn end(record: &Record) -> Result<(), Invalid> {
    hold(
        record.receipt.is_some() == (record.state == State::Delivered),
        Invalid::Contradiction("a receipt without delivery, or the other way round"),
    )?;
    hold(
        record.lease_owner.is_some() == record.lease_until.is_some(),
        Invalid::Contradiction("a lease with an owner or an end alone"),
    )?;
    hold(
        record.lease_owner.is_none() || record.state.is_pending(),
        Invalid::Contradiction("a lease of what is over"),
    )?;
    hold(
        record.compacted_at.is_none() || record.result_payload.is_none(),
        Invalid::Contradiction("a payload that was dropped"),
    )?;
    hold(
        record.mode != Mode::Silent || record.synthesized_text.is_none(),
        Invalid::Contradiction("a text that nobody asked for"),
    )
}

/// Reads a record as it stands in a file, indented or not.
///
/// # Errors
/// When it is too long, not of the format, or not [valid](validate).
pub fn decode(bytes: &[u8]) -> Result<Record, Invalid> {
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(Invalid::Long {
            bytes: bytes.len(),
            max: MAX_RECORD_BYTES,
        });
    }
    let record: Record = serde_json::from_slice(bytes).map_err(|e| Invalid::Format {
        line: e.line(),
        column: e.column(),
    })?;
    validate(&record)?;
    Ok(record)
}

/// The compact text of a record that [`decode`] will read.
///
/// # Errors
/// When it is not [valid](validate) or longer than [`MAX_COMPACT_BYTES`].
pub fn encode(record: &Record) -> Result<Vec<u8>, Invalid> {
    validate(record)?;
    let text = serde_json::to_vec(record).map_err(|_| Invalid::Format { line: 0, column: 0 })?;
    if text.len() > MAX_COMPACT_BYTES {
        return Err(Invalid::Long {
            bytes: text.len(),
            max: MAX_COMPACT_BYTES,
        });
    }
    Ok(text)
}

/// The text of a record's file: indented, with a newline at its end.
///
/// # Errors
/// As [`encode`].
pub fn encode_file(record: &Record) -> Result<Vec<u8>, Invalid> {
    validate(record)?;
    let mut text =
        serde_json::to_vec_pretty(record).map_err(|_| Invalid::Format { line: 0, column: 0 })?;
    text.push(b'\n');
    if text.len() > MAX_RECORD_BYTES {
        return Err(Invalid::Long {
            bytes: text.len(),
            max: MAX_RECORD_BYTES,
        });
    }
    Ok(text)
}

fn hold(fulfilled: bool, otherwise: Invalid) -> Result<(), Invalid> {
    if fulfilled { Ok(()) } else { Err(otherwise) }
}

fn text(field: &'static str, text: &str, max: usize) -> Result<(), Invalid> {
    hold(
        !text.is_empty() && text.len() <= max * 3 && units(text) <= max,
        Invalid::Field(field),
    )
}

fn optional(field: &'static str, value: Option<&str>, max: usize) -> Result<(), Invalid> {
    value.map_or(Ok(()), |value| text(field, value, max))
}

fn digest(field: &'static str, value: Option<&str>) -> Result<(), Invalid> {
    let is_digest = |text: &str| {
        text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    hold(value.is_none_or(is_digest), Invalid::Field(field))
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
