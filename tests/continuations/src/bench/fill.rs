//! A full store: 10,000 records that wait, and 50,000 tombstones.

use super::server::open;
use anyhow::Result;
use continuation_record::sample::claimed;
use continuation_record::{
    CompletionKind, Mode, OriginContextState, Receipt, ReceiptKind, Record, State, Time,
};
use continuation_service::ambient::{Ambient as _, Machine};
use continuation_store::Store;
use continuation_store::fs::RealFs;
use std::convert::Infallible;
use std::path::Path;

pub(super) const ACTIVE: usize = 10_000;
pub(super) const SETTLED: usize = 50_000;

/// Fills the store in a folder.
pub(super) fn fill(folder: &Path) -> Result<()> {
    let store = open(folder)?;
    let now = Machine::default().wall();
    for from in (0..ACTIVE + SETTLED).step_by(200) {
        let records = (from..from + 200).map(|number| record(number, number >= ACTIVE, now));
        put(&store, records.collect())?;
    }
    store.close()?;
    Ok(())
}

fn put(store: &Store<RealFs>, records: Vec<Record>) -> Result<()> {
    loop {
        let update = store.update(|txn| {
            for record in &records {
                txn.put(record.clone());
            }
            Ok::<_, Infallible>(())
        });
        match update.wait() {
            Err(continuation_store::UpdateError::Busy) => {
                store.checkpoint()?;
            }
            other => return Ok(other?),
        }
    }
}

fn record(number: usize, settled: bool, now: Time) -> Record {
    let waits = Record {
        continuation_id: uuid::Uuid::new_v4().to_string(),
        server_name: "detached:work-control".to_owned(),
        origin_run_id: format!("detached:work-control:filled-{number}"),
        origin_conversation_id: "slack:C1:T1".to_owned(),
        reply_to_conversation_id: Some("slack:C1:T1".to_owned()),
        history_boundary: None,
        origin_context_state: OriginContextState::DetachedLatest,
        mode: Mode::NotifyIfActionable,
        route_name: Some("attention".to_owned()),
        task_key: format!("filled-{number}"),
        task_hash: format!("{number:064x}"),
        created_at: now,
        updated_at: now,
        deadline: now.plus_ms(20 * 24 * 3_600_000),
        ..claimed(0)
    };
    if !settled {
        return waits;
    }
    Record {
        state: State::Delivered,
        origin_context_state: OriginContextState::Scrubbed,
        completion_kind: Some(CompletionKind::Synthesized),
        result_idempotency_key: Some("key".to_owned()),
        result_payload_hash: Some("c".repeat(64)),
        synthesis_attempts: 1,
        delivery_attempts: 1,
        receipt: Some(Receipt {
            kind: ReceiptKind::Delivered,
            delivered_at: now,
            delivery_id: Some("1764470000.000100".to_owned()),
            channel_id: Some("C1".to_owned()),
            history_recorded: Some(true),
            history_error_code: None,
        }),
        compacted_at: Some(now),
        ..waits
    }
}
