//! What is dropped when a continuation is settled. How many settled ones are kept, and for how long, is the
//! store's to decide, which has them in order.

use crate::record::{OriginContextState, Receipt, ReceiptKind, Record, State};
use crate::time::Time;

/// Drops what a settled record is not kept for: its payload, its snapshot, and its text unless that is what
/// it was for ([`keeps_text`]). Belongs into the change that settles it.
pub fn settle(record: &mut Record, at: Time) {
    record.result_payload = None;
    if !keeps_text(record) {
        record.synthesized_text = None;
    }
    scrub_context(record);
    record.lease_owner = None;
    record.lease_until = None;
    record.next_attempt_at = None;
    record.delivery_started_at = None;
    record.compacted_at = Some(at);
}

/// Lets go of the snapshot. Its digest and size stay, for whoever audits.
pub fn scrub_context(record: &mut Record) {
    let had_one = matches!(
        record.origin_context_state,
        OriginContextState::Pending | OriginContextState::Pinned
    );
    if had_one || record.origin_context_ref.is_some() {
        record.origin_context_state = OriginContextState::Scrubbed;
    }
    record.origin_context_ref = None;
}

/// Whether a settled record's text is kept for a bounded time: captured ones, which are read by whoever
/// verifies, and dead letters, which an operator may send again.
#[must_use]
pub fn keeps_text(record: &Record) -> bool {
    record.state == State::DeadLettered || is_captured(record)
}

/// Whether it is settled by a captured text.
#[must_use]
pub fn is_captured(record: &Record) -> bool {
    let captured = |receipt: &Receipt| receipt.kind == ReceiptKind::Captured;
    record.state == State::Delivered && record.receipt.as_ref().is_some_and(captured)
}
