//! A state folder as older versions left it.

use super::images::Records;
use anyhow::{Context as _, Result};
use continuation_record::sample::{at, claimed, delivered, id, received};
use continuation_record::validate::encode_file;
use continuation_record::{OriginContextState, Record};
use continuation_store::fs::{Folder, World};
use serde_json::{Map, Value, json};

/// A record as versions 1 and 2 had it, and as it has to become.
fn old(record: Record) -> Result<(Value, Record)> {
    let record = Record {
        origin_context_state: match record.history_boundary {
            Some(_) => OriginContextState::LegacyMissing,
            None => OriginContextState::DetachedLatest,
        },
        synthesis_deferrals: 0,
        completion_kind: None,
        ..record
    };
    let mut fields: Map<String, Value> = match serde_json::to_value(&record)? {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.remove("originContextState");
    fields.remove("synthesisDeferrals");
    Ok((Value::Object(fields), record))
}

fn file(number: usize) -> String {
    let digest = continuation_record::canonical::sha256_hex(id(number).as_bytes());
    format!("{digest}.json")
}

fn detached(number: usize) -> Record {
    Record {
        history_boundary: None,
        reply_to_conversation_id: None,
        route_name: Some("verification".to_owned()),
        ..claimed(number)
    }
}

/// The folder, and what has to come of it.
pub(super) fn folder() -> Result<(World, Records)> {
    let mut world = World::new();
    let mut records = Records::new();
    let mut keep = |record: &Record| {
        records.insert(record.continuation_id.clone(), record.clone());
    };
    world.place(
        Folder::Root,
        "continuation-secret",
        format!("{}\n", "A".repeat(43)).as_bytes(),
    );

    // Version 1: one file. Record 2 is also in version 2, the same.
    let mut first = Map::new();
    for record in [
        claimed(1),
        received(claimed(2), r#"{"a":"é"}"#),
        detached(3),
    ] {
        let (fields, becomes) = old(record)?;
        first.insert(becomes.continuation_id.clone(), fields);
        keep(&becomes);
    }
    let text = json!({ "schemaVersion": 1, "updatedAt": at(0), "records": first });
    world.place(
        Folder::Root,
        "continuations-v1.json",
        serde_json::to_string_pretty(&text)?.as_bytes(),
    );

    // Version 2: a folder, and a transaction that was interrupted.
    for record in [
        received(claimed(2), r#"{"a":"é"}"#),
        claimed(4),
        delivered(received(claimed(5), "1"), at(9)),
        claimed(6),
        claimed(7),
    ] {
        let (mut fields, becomes) = old(Record {
            origin_context_digest: None,
            ..record
        })?;
        if let Some(fields) = fields.as_object_mut() {
            fields.remove("completionKind");
        }
        let number = usize::from_str_radix(&becomes.continuation_id[24..], 16)?;
        world.place(
            Folder::Legacy,
            &file(number),
            format!("{}\n", serde_json::to_string_pretty(&fields)?).as_bytes(),
        );
        if number != 7 {
            keep(&becomes);
        }
    }
    let (written, becomes) = old(received(claimed(6), "[6]"))?;
    keep(&becomes);
    let transaction = json!({
        "schemaVersion": 2,
        "generation": "g2",
        "createdAt": at(1),
        "writes": [written],
        "deletes": [id(7)],
    });
    world.place(
        Folder::Root,
        "continuation-transaction-v2.json",
        transaction.to_string().as_bytes(),
    );

    // Version 3 from before the log: files, settled ones too, and a transaction.
    for record in [
        claimed(11),
        delivered(received(claimed(12), "1"), at(9)),
        claimed(13),
    ] {
        let number = usize::from_str_radix(&record.continuation_id[24..], 16)?;
        world.place(Folder::Records, &file(number), &encode_file(&record)?);
        if number != 13 {
            keep(&record);
        }
    }
    let written = received(claimed(14), "[14]");
    keep(&written);
    let transaction = json!({
        "schemaVersion": 3,
        "generation": "g3",
        "createdAt": at(1),
        "writes": [serde_json::to_value(&written)?],
        "deletes": [id(13)],
    });
    world.place(
        Folder::Root,
        "continuation-transaction-v3.json",
        transaction.to_string().as_bytes(),
    );
    world.place(Folder::Records, ".0123456789ab-1-left.tmp", b"{");
    let manifest = json!({
        "schemaVersion": 3,
        "generation": "g3",
        "updatedAt": at(1),
        "rollbackGuardRequired": false,
        "stats": {},
    });
    world.place(
        Folder::Root,
        "continuation-store-v3.json",
        manifest.to_string().as_bytes(),
    );
    world
        .bytes(Folder::Root, "continuation-store-v3.json")
        .context("the manifest is there")?;
    Ok((world, records))
}
