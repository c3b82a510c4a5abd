use crate::kit::*;
use ipc_proto::ConversationId;
use mono_store::{Limits, Store, StoreError, letters};

fn id(text: &str) -> ConversationId {
    ConversationId::parse(text).unwrap()
}

fn texts_of(store: &mut Store, conversation: Option<&str>, after: u64) -> Vec<(u64, String)> {
    let conversation = conversation.map(id);
    let page = store.letters(conversation.as_ref(), after, 100).unwrap();
    let letters = page.letters.into_iter();
    letters.map(|letter| (letter.number, letter.text)).collect()
}

#[test]
fn a_letter_is_left_once_and_read_from_where_one_was() {
    let dir = state();
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    store.leave_letter(&id("a"), "k1", "one", 1).unwrap();
    store.leave_letter(&id("a"), "k1", "one", 9).unwrap();
    store.leave_letter(&id("b"), "k2", "two", 2).unwrap();
    store.leave_letter(&id("a"), "k3", "three", 3).unwrap();
    for (conversation, text) in [("a", "other"), ("b", "one")] {
        let again = store.leave_letter(&id(conversation), "k1", text, 4);
        assert!(matches!(again, Err(StoreError::Conflict(_))));
    }
    drop(store);
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    let all = texts_of(&mut store, None, 0);
    assert_eq!(
        all,
        [(1, "one".into()), (2, "two".into()), (3, "three".into())]
    );
    assert_eq!(texts_of(&mut store, Some("a"), 1), [(3, "three".into())]);
    let page = store.letters(Some(&id("a")), 0, 1).unwrap();
    assert_eq!((page.letters.len(), page.newest), (1, 3));
    let letter = &page.letters[0];
    assert_eq!(
        (&*letter.conversation_id, &*letter.delivery_id, &*letter.at),
        ("a", "k1", "1970-01-01T00:00:00.001Z")
    );
    assert!(store.letters(None, u64::MAX, 1).unwrap().letters.is_empty());
    for limit in [0, letters::PAGE + 1] {
        assert!(store.letters(None, 0, limit).is_err());
    }
}

#[test]
fn the_ten_thousand_newest_letters_are_kept() {
    let dir = state();
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    store.leave_letter(&id("a"), "k1", "first", 1).unwrap();
    store.leave_letter(&id("a"), "k2", "second", 1).unwrap();
    drop(store);
    let many = "WITH RECURSIVE n (i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                INSERT INTO letters (key, conversation, text, created_at)
                SELECT 'k' || i, 'a', 'x', 1 FROM n";
    raw(dir.path()).execute(many, []).unwrap();
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    let oldest = |store: &mut Store| store.letters(None, 0, 1).unwrap().letters[0].number;
    assert_eq!(oldest(&mut store), 1);
    store.leave_letter(&id("a"), "k10001", "last", 1).unwrap();
    assert_eq!(oldest(&mut store), 2);
    assert_eq!(store.letters(None, 0, 1).unwrap().newest, 10_001);
}

#[test]
fn letters_are_bounded_in_bytes() {
    let dir = state();
    let mut store = Store::open(dir.path(), Limits::default()).unwrap();
    let large = "x".repeat(ipc_proto::edges::delivery::MAX_TEXT);
    assert!(
        store
            .leave_letter(&id("a"), "k", &format!("{large}x"), 1)
            .is_err()
    );
    let fit = letters::BYTES / large.len() as u64;
    for n in 0..=fit {
        store
            .leave_letter(&id("a"), &format!("k{n}"), &large, 1)
            .unwrap();
    }
    // The oldest went; pages are bounded in bytes too.
    let page = store.letters(None, 0, 100).unwrap();
    assert_eq!(page.letters[0].number, 2);
    assert!((page.letters.len() as u64) < fit);
    assert_eq!(page.newest, fit + 1);
}
