//! What older versions left is taken over whole, or not at all.

use crate::{SMALL, all, open, put};
use continuation_record::sample::{at, bound, claimed, context, delivered, id, received};
use continuation_record::validate::{MAX_RECORD_BYTES, encode_file};
use continuation_record::{OriginContextState, Record, canonical};
use continuation_store::fs::{Folder, SimFs, World};
use continuation_store::{OpenError, Store};
use serde_json::{Map, Value, json};

const SECRET: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
const GUARD: &str = "UPGRADED-TO-RECORDS-V3";
const FIRST: &str = "continuations-v1.json";
const MANIFEST: &str = "continuation-store-v3.json";

fn world() -> World {
    let mut world = World::new();
    world.place(Folder::Root, "continuation-secret", SECRET.as_bytes());
    world
}

/// As versions 1 and 2 had a record.
fn old(record: &Record) -> Value {
    let mut fields = match serde_json::to_value(record).expect("JSON") {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.remove("originContextState");
    fields.remove("synthesisDeferrals");
    Value::Object(fields)
}

/// As version 3 has it then.
fn new(record: Record) -> Record {
    Record {
        origin_context_state: match record.history_boundary {
            Some(_) => OriginContextState::LegacyMissing,
            None => OriginContextState::DetachedLatest,
        },
        ..record
    }
}

fn file(name: &str) -> String {
    format!("{}.json", canonical::sha256_hex(name.as_bytes()))
}

fn place_first(world: &mut World, records: &[&Record]) {
    let records: Map<_, _> = records
        .iter()
        .map(|record| (record.continuation_id.clone(), old(record)))
        .collect();
    let text = json!({ "schemaVersion": 1, "updatedAt": at(0), "records": records });
    world.place(Folder::Root, FIRST, text.to_string().as_bytes());
}

fn place_second(world: &mut World, record: &Record) {
    let name = file(&record.continuation_id);
    world.place(Folder::Legacy, &name, old(record).to_string().as_bytes());
}

fn place_third(world: &mut World, record: &Record) {
    let name = file(&record.continuation_id);
    let text = encode_file(record).expect("valid");
    world.place(Folder::Records, &name, &text);
}

fn transaction(version: u32, writes: &[Value], deletes: &[String]) -> String {
    json!({
        "schemaVersion": version,
        "generation": "generation",
        "createdAt": at(0),
        "writes": writes,
        "deletes": deletes,
    })
    .to_string()
}

fn refused(world: &World) -> OpenError {
    let fs = SimFs::new(world.clone());
    let error = Store::open_manual(fs.clone(), SMALL).expect_err("it is refused");
    // Neither the guard nor a record was made.
    assert!(!fs.world().names(Folder::Legacy).contains(&GUARD.to_owned()));
    for folder in [Folder::Records, Folder::Legacy] {
        assert_eq!(fs.world().names(folder), world.names(folder));
    }
    error
}

#[test]
fn version_1_becomes_version_3() {
    let mut world = world();
    let waits = claimed(1);
    let done = delivered(received(claimed(2), r#"{"a":"\ud800"}"#), at(9));
    let detached = Record {
        history_boundary: None,
        ..claimed(3)
    };
    // What is over in version 1 was never scrubbed of anything.
    let done = new(done);
    place_first(&mut world, &[&waits, &done, &detached]);
    let (fs, store, opened) = open(world);
    assert_eq!(opened.imported, 3);
    assert_eq!(all(&store), [new(detached), done, new(waits)]);
    assert_eq!(fs.world().names(Folder::Legacy), [GUARD]);
    let manifest = fs.world();
    let manifest = String::from_utf8_lossy(manifest.bytes(Folder::Root, MANIFEST).expect("there"))
        .into_owned();
    assert!(
        manifest.contains("\"rollbackGuardRequired\": true"),
        "{manifest}"
    );
    drop(store);
    // Once and for all: version 1 is not looked at again, whatever becomes of the records.
    let (fs, store, opened) = open(fs.world());
    assert_eq!(opened.imported, 0);
    put(&store, received(new(claimed(1)), "1")).expect("put");
    drop(store);
    let (_, store, opened) = open(fs.world());
    assert_eq!(opened.imported, 0);
    assert_eq!(all(&store).len(), 3);
}

#[test]
fn a_fresh_store_can_go_back_to_version_2_once() {
    let mut world = world();
    let (fs, store, _) = open(world.clone());
    store.close().expect("checkpoint");
    drop(store);
    // The older version ran meanwhile.
    world = fs.world();
    place_second(&mut world, &claimed(1));
    let (fs, store, opened) = open(world);
    assert_eq!(opened.imported, 1);
    assert_eq!(all(&store), [new(claimed(1))]);
    assert!(fs.world().names(Folder::Legacy).contains(&GUARD.to_owned()));
}

#[test]
fn version_3_from_before_the_log_goes_on_with_its_snapshots_and_marker() {
    let mut world = world();
    let text = context("turn");
    let digest = canonical::sha256_hex(format!("mono-agent-origin-context-v1\0{text}").as_bytes());
    let member = |number: usize| bound(claimed(number), &digest, &text);
    place_third(&mut world, &member(1));
    place_third(&mut world, &member(2));
    place_third(&mut world, &delivered(received(claimed(3), "1"), at(9)));
    world.place(Folder::Contexts, &format!("{digest}.json"), text.as_bytes());
    world.place(Folder::Contexts, &format!("{}.json", "0".repeat(64)), b"{}");
    let group = json!({
        "historyBoundary": "run-1",
        "originConversationId": "slack:D1:1.1#2026-07-14",
        "originRunId": "run-1",
    });
    let labelled = |label: &str, value: &Value| {
        let text = canonical::of(value).expect("JSON");
        canonical::sha256_hex(format!("{label}\0{text}").as_bytes())
    };
    let key = labelled("mono-agent-origin-context-group-v1", &group);
    let members = json!([id(1), id(2)]);
    let marker = json!({
        "schemaVersion": 1,
        "groupKey": key,
        "originRunId": "run-1",
        "originConversationId": "slack:D1:1.1#2026-07-14",
        "historyBoundary": "run-1",
        "snapshotDigest": digest,
        "memberCount": 2,
        "memberSetDigest": labelled("mono-agent-origin-context-members-v1", &members),
        "activatedAt": at(77),
    });
    world.place(
        Folder::Groups,
        &format!("{key}.json"),
        marker.to_string().as_bytes(),
    );
    let mut other = world.clone();
    let (fs, store, opened) = open(world);
    assert_eq!((opened.imported, opened.activated), (3, 1));
    for number in [1, 2] {
        let record = store.get(&id(number)).expect("read").expect("there");
        assert_eq!(record.origin_context_state, OriginContextState::Pinned);
        assert_eq!(record.updated_at, at(77));
    }
    assert_eq!(store.blob(&digest).expect("read"), Some(text.clone()));
    store.close().expect("checkpoint");
    assert_eq!(fs.world().names(Folder::Groups), Vec::<String>::new());
    assert_eq!(
        fs.world().names(Folder::Contexts),
        [format!("{digest}.json")]
    );
    // Settled ones are packed, and have no file any more.
    assert_eq!(fs.world().names(Folder::Records).len(), 2);

    // A member that the marker does not know.
    place_third(&mut other, &member(4));
    Store::open_manual(SimFs::new(other), SMALL).expect_err("another group");
}

#[test]
fn an_interrupted_transaction_happens() {
    let mut world = world();
    place_third(&mut world, &claimed(1));
    place_third(&mut world, &claimed(2));
    let written = received(claimed(1), "1");
    let text = transaction(
        3,
        &[serde_json::to_value(&written).expect("JSON")],
        &[id(2)],
    );
    world.place(
        Folder::Root,
        "continuation-transaction-v3.json",
        text.as_bytes(),
    );
    let (fs, store, _) = open(world);
    assert_eq!(all(&store), [written]);
    let names = fs.world().names(Folder::Root);
    assert!(!names.contains(&"continuation-transaction-v3.json".to_owned()));
}

#[test]
fn what_contradicts_itself_is_refused() {
    type Make = fn(&mut World);
    let cases: [(&str, Make); 9] = [
        ("versions 1 and 2", |w| {
            place_first(w, &[&claimed(1)]);
            place_second(w, &received(claimed(1), "1"));
        }),
        ("versions 2 and 3", |w| {
            place_second(w, &claimed(1));
            place_third(w, &claimed(1));
        }),
        ("another record's file", |w| {
            let text = encode_file(&claimed(1)).expect("valid");
            w.place(Folder::Records, &file(&id(2)), &text);
        }),
        ("a field of a later version", |w| {
            let mut fields = old(&claimed(1));
            fields["synthesisDeferrals"] = json!(1);
            w.place(Folder::Legacy, &file(&id(1)), fields.to_string().as_bytes());
        }),
        ("an unknown file in version 2", |w| {
            w.place(Folder::Legacy, "notes", b"");
        }),
        ("version 1 that says 2", |w| {
            let text = json!({ "schemaVersion": 2, "updatedAt": at(0), "records": {} });
            w.place(Folder::Root, FIRST, text.to_string().as_bytes());
        }),
        ("a transaction with a record twice", |w| {
            let record = serde_json::to_value(claimed(1)).expect("JSON");
            let text = transaction(3, &[record.clone(), record], &[]);
            w.place(
                Folder::Root,
                "continuation-transaction-v3.json",
                text.as_bytes(),
            );
        }),
        ("a transaction with a record in both", |w| {
            let record = serde_json::to_value(claimed(1)).expect("JSON");
            let text = transaction(3, &[record], &[id(1)]);
            w.place(
                Folder::Root,
                "continuation-transaction-v3.json",
                text.as_bytes(),
            );
        }),
        ("a transaction of nothing", |w| {
            place_second(w, &claimed(1));
            w.place(Folder::Root, "continuation-transaction-v2.json", b"{}\n");
        }),
    ];
    for (what, make) in cases {
        let mut world = world();
        make(&mut world);
        let error = refused(&world);
        assert!(!error.to_string().contains("task-1"), "{what}: {error}");
    }
}

/// The very same file within the bound and a byte beyond it: what is refused is its length.
fn within_and_beyond(most: usize, folder: Folder, name: &str, text: &str) {
    let of = |bytes: usize| {
        let mut world = world();
        let mut text = text.as_bytes().to_vec();
        text.resize(bytes, b' ');
        world.place(folder, name, &text);
        world
    };
    Store::open_manual(SimFs::new(of(most)), SMALL).expect("it is within the bound");
    refused(&of(most + 1));
}

#[test]
fn manifests_and_transactions_have_their_bounds() {
    let manifest = |generation: usize| {
        json!({
            "schemaVersion": 3,
            "generation": "g".repeat(generation),
            "updatedAt": at(0),
            "rollbackGuardRequired": false,
            "stats": {},
        })
        .to_string()
    };
    let transaction = |generation: usize| {
        transaction(3, &[], &[]).replace(
            "\"generation\":\"generation\"",
            &format!("\"generation\":\"{}\"", "g".repeat(generation)),
        )
    };
    let journal = "continuation-transaction-v3.json";
    for (name, of) in [
        (MANIFEST, &manifest as &dyn Fn(usize) -> String),
        (journal, &transaction),
    ] {
        let placed = |generation: usize| {
            let mut world = world();
            world.place(Folder::Root, name, of(generation).as_bytes());
            world
        };
        Store::open_manual(SimFs::new(placed(256)), SMALL).expect("it is within the bound");
        refused(&placed(257));
    }
    within_and_beyond(1024 * 1024, Folder::Root, MANIFEST, &manifest(1));
    within_and_beyond(16 * 1024 * 1024, Folder::Root, journal, &transaction(1));
}

#[test]
fn a_record_that_is_too_long_is_refused_before_anything_is_changed() {
    let record = claimed(2);
    let (name, old_text) = (file(&record.continuation_id), old(&record).to_string());
    within_and_beyond(MAX_RECORD_BYTES, Folder::Legacy, &name, &old_text);
    let text = encode_file(&record).expect("valid");
    let text = std::str::from_utf8(&text).expect("text");
    within_and_beyond(MAX_RECORD_BYTES, Folder::Records, &name, text);

    // Within the bound of a file, but with a text that no record has.
    let mut world = self::world();
    let full = delivered(received(claimed(3), "1"), at(9));
    let mut fields = old(&Record {
        compacted_at: None,
        ..full
    });
    let space = MAX_RECORD_BYTES - 1_000 - fields.to_string().len();
    fields["synthesizedText"] = json!("x".repeat(space));
    world.place(Folder::Legacy, &file(&id(3)), fields.to_string().as_bytes());
    refused(&world);
}

#[test]
fn an_unfinished_file_is_cleaned_and_never_taken_for_evidence() {
    let mut world = world();
    world.place(Folder::Legacy, ".0123456789ab-1-x.tmp", b"{");
    world.place(Folder::Records, ".0123456789ab-1-x.tmp", b"{");
    world.place(
        Folder::Groups,
        ".0123456789ab-1-x.tmp",
        &vec![b'{'; 128 * 1024],
    );
    let (fs, store, opened) = open(world);
    assert_eq!(opened.imported, 0);
    assert_eq!(all(&store), []);
    for folder in [Folder::Legacy, Folder::Records, Folder::Groups] {
        assert_eq!(fs.world().names(folder), Vec::<String>::new());
    }
}

#[test]
fn a_manifest_without_the_word_counts_as_guarded() {
    let mut world = world();
    place_second(&mut world, &claimed(1));
    place_third(&mut world, &received(claimed(1), "1"));
    let manifest =
        json!({ "schemaVersion": 3, "generation": "g", "updatedAt": at(0), "stats": {} });
    world.place(Folder::Root, MANIFEST, manifest.to_string().as_bytes());
    // Version 2 was taken over long ago, and version 3 has gone on since.
    let (_, store, _) = open(world);
    assert_eq!(all(&store), [received(claimed(1), "1")]);
}
