//! What becomes of a reply's parts on a destination that delivers none of them
//! (spec s0, "Machine delivery outcome wire contract").
//!
//! Two total functions over JSON that nobody has checked: [`of_parts`] turns a run's parts into
//! outcomes, [`sanitise`] reads outcomes that somebody else made. Both emit a dense array of at most
//! [`MAX_PARTS`] records in which every text is one of the constants below. An entry that is not
//! what it should be becomes a record of its own, so it changes none of its neighbours.

use crate::reply::{FAILURE_CODES, MAX_PARTS, failure_message};
use serde::Serialize;
use serde_json::{Map, Value};

/// Destinations that carry text only have this code for every part.
const UNSUPPORTED: &str = "unsupported_destination";
/// The code of the overflow record.
const TOO_MANY: &str = "reply_part_too_large";
/// The fixed overflow message.
const OVERFLOW_MESSAGE: &str =
    "Additional reply parts exceeded the bounded delivery outcome limit.";
/// The one status.
const FAILED: &str = "failed";
/// Largest count that a JavaScript reader takes without loss.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// What kind of part it was.
const ATTACHMENT: &str = "attachment";
const MCP_APP: &str = "mcp_app";
const FAILURE: &str = "failure";
const UNKNOWN: &str = "unknown";
const PART_TYPES: [&str; 4] = [ATTACHMENT, MCP_APP, FAILURE, UNKNOWN];

/// One record of `reply_part_outcomes`: exactly these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartOutcome {
    /// Dense zero-based output position.
    pub part_index: usize,
    /// `attachment`, `mcp_app`, `failure` or `unknown`.
    pub part_type: &'static str,
    /// Always `failed`.
    pub status: &'static str,
    /// One of [`FAILURE_CODES`].
    pub code: &'static str,
    /// Reconstructed from type and code.
    pub message: &'static str,
    /// Only on the overflow record: how many parts it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affected_part_count: Option<u64>,
}

/// The outcomes of a run's parts, given as the JSON array that a run ends with. Empty, which leaves
/// the field out, for no parts and for what is no array.
#[must_use]
pub fn of_parts(parts: &Value) -> Vec<PartOutcome> {
    bounded(parts, |part| {
        let kind = part.get("type").and_then(Value::as_str);
        match kind.and_then(|kind| PART_TYPES.into_iter().find(|known| *known == kind)) {
            Some(FAILURE) => known_code(part.get("code")).map(|code| (FAILURE, code)),
            Some(kind) => Some((kind, UNSUPPORTED)),
            None => None,
        }
    })
}

/// Outcomes that somebody else made, made anew. Its own output passes unchanged.
#[must_use]
pub fn sanitise(outcomes: &Value) -> Vec<PartOutcome> {
    let mut out = bounded(outcomes, ordinary);
    // The one place where a count belongs.
    if let Some(entries) = outcomes.as_array().filter(|all| all.len() == MAX_PARTS)
        && let Some(count) = entries.last().and_then(overflow_count)
        && let Some(last) = out.last_mut()
    {
        *last = overflow(count);
    }
    out
}

/// The first 20 entries, or the first 19 and how many there are beside them.
fn bounded(
    entries: &Value,
    read: impl Fn(&Value) -> Option<(&'static str, &'static str)>,
) -> Vec<PartOutcome> {
    let entries = entries.as_array().map(Vec::as_slice).unwrap_or_default();
    let over = entries.len() > MAX_PARTS;
    let kept = if over { MAX_PARTS - 1 } else { entries.len() };
    let mut out: Vec<_> = entries[..kept]
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let (part_type, code) = read(entry).unwrap_or((UNKNOWN, UNSUPPORTED));
            PartOutcome {
                part_index: index,
                part_type,
                status: FAILED,
                code,
                message: message(part_type, code),
                affected_part_count: None,
            }
        })
        .collect();
    if over {
        out.push(overflow((entries.len() - kept) as u64));
    }
    out
}

fn overflow(count: u64) -> PartOutcome {
    PartOutcome {
        part_index: MAX_PARTS - 1,
        part_type: UNKNOWN,
        status: FAILED,
        code: TOO_MANY,
        message: OVERFLOW_MESSAGE,
        affected_part_count: Some(count),
    }
}

/// Type and code of an ordinary record: exactly its five fields, each of its kind.
fn ordinary(entry: &Value) -> Option<(&'static str, &'static str)> {
    let record = entry.as_object().filter(|record| record.len() == 5)?;
    shared_fields(record)
}

/// The count of an overflow record: an ordinary one of that type and code, and the count.
fn overflow_count(entry: &Value) -> Option<u64> {
    let record = entry.as_object().filter(|record| record.len() == 6)?;
    let count = record.get("affectedPartCount")?.as_u64()?;
    (shared_fields(record)? == (UNKNOWN, TOO_MANY) && (2..=MAX_COUNT).contains(&count))
        .then_some(count)
}

fn shared_fields(record: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    record.get("partIndex")?.as_u64()?;
    record.get("message")?.as_str()?;
    if record.get("status")?.as_str()? != FAILED {
        return None;
    }
    let kind = record.get("partType")?.as_str()?;
    let kind = PART_TYPES.into_iter().find(|known| *known == kind)?;
    Some((kind, known_code(record.get("code"))?))
}

fn known_code(code: Option<&Value>) -> Option<&'static str> {
    let code = code?.as_str()?;
    FAILURE_CODES.into_iter().find(|known| *known == code)
}

/// The constant of a type and a code.
fn message(part_type: &str, code: &str) -> &'static str {
    match (part_type, code) {
        (ATTACHMENT, UNSUPPORTED) => "Attachment reply parts are unsupported on this destination.",
        (MCP_APP, UNSUPPORTED) => "MCP App reply parts are unsupported on this destination.",
        _ => failure_message(code),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    const MALFORMED: (&str, &str, &str) = (
        "unknown",
        "unsupported_destination",
        "This reply part is unsupported on this destination.",
    );

    fn said(record: &PartOutcome) -> (&str, &str, &str) {
        (record.part_type, record.code, record.message)
    }

    fn record(kind: &str, code: &str) -> Value {
        json!({"partIndex": 0, "partType": kind, "status": "failed", "code": code, "message": "secret"})
    }

    #[test]
    fn the_ordinary_record_is_exact() {
        let outcomes = of_parts(&json!([{"type": "attachment", "name": "x.csv"}]));
        assert_eq!(
            serde_json::to_string(&outcomes).unwrap(),
            r#"[{"partIndex":0,"partType":"attachment","status":"failed","code":"unsupported_destination","message":"Attachment reply parts are unsupported on this destination."}]"#
        );
        assert_eq!(sanitise(&json!(outcomes)), outcomes);
    }

    #[test]
    fn parts_are_told_by_type_and_a_failure_keeps_its_listed_code() {
        for (part, expected) in [
            (
                json!({"type": "attachment", "code": "artifact_missing"}),
                ("attachment", "unsupported_destination"),
            ),
            (
                json!({"type": "mcp_app"}),
                ("mcp_app", "unsupported_destination"),
            ),
            (
                json!({"type": "unknown"}),
                ("unknown", "unsupported_destination"),
            ),
            (
                json!({"type": "failure", "code": "artifact_expired"}),
                ("failure", "artifact_expired"),
            ),
            (
                json!({"type": "failure", "code": "my_code"}),
                ("unknown", "unsupported_destination"),
            ),
            (
                json!({"type": "failure"}),
                ("unknown", "unsupported_destination"),
            ),
            (
                json!({"type": "video"}),
                ("unknown", "unsupported_destination"),
            ),
            (
                json!({"type": ["attachment"]}),
                ("unknown", "unsupported_destination"),
            ),
            (json!("attachment"), ("unknown", "unsupported_destination")),
            (json!(null), ("unknown", "unsupported_destination")),
        ] {
            let got = of_parts(&json!([part]));
            assert_eq!((got[0].part_type, got[0].code), expected, "{part}");
        }
    }

    #[test]
    fn every_code_has_a_message_of_its_own() {
        let all: BTreeSet<_> = FAILURE_CODES.iter().map(|c| failure_message(c)).collect();
        assert_eq!(all.len(), FAILURE_CODES.len());
    }

    #[test]
    fn each_malformed_record_is_an_unknown_failure_of_its_own() {
        let good = record("failure", "artifact_missing");
        let with = |key: &str, value: Value| {
            let mut record = good.clone();
            record[key] = value;
            record
        };
        let without = |key: &str| {
            let mut record = good.clone();
            record.as_object_mut().unwrap().remove(key);
            record
        };
        let bad = [
            json!(null),
            json!(true),
            json!(7),
            json!("failed"),
            json!([]),
            json!([good]),
            json!({}),
            with("extra", json!(1)),
            with("affectedPartCount", json!(2)),
            with("affectedPartCount", json!(null)),
            with("partType", json!("video")),
            with("partType", json!("Failure")),
            with("partType", json!(null)),
            with("code", json!("my_code")),
            with("code", json!(["artifact_missing"])),
            with("status", json!("delivered")),
            with("status", json!("pending")),
            with("status", json!(null)),
            with("message", json!(null)),
            with("message", json!({"text": "x"})),
            with("partIndex", json!(-1)),
            with("partIndex", json!(0.5)),
            with("partIndex", json!("0")),
            without("partIndex"),
            without("partType"),
            without("status"),
            without("code"),
            without("message"),
        ];
        for bad in bad {
            let got = sanitise(&json!([good, bad, good]));
            assert_eq!(got.len(), 3, "{bad}");
            assert_eq!(said(&got[1]), MALFORMED, "{bad}");
            for (index, kept) in [(0, &got[0]), (2, &got[2])] {
                assert_eq!(kept.part_index, index);
                assert_eq!((kept.part_type, kept.code), ("failure", "artifact_missing"));
            }
        }
    }

    #[test]
    fn no_array_and_an_empty_one_leave_the_field_out() {
        for nothing in [
            json!(null),
            json!({}),
            json!("[]"),
            json!(1),
            json!([]),
            json!({"length": 2}),
        ] {
            assert!(sanitise(&nothing).is_empty() && of_parts(&nothing).is_empty());
        }
    }

    #[test]
    fn above_twenty_the_rest_is_counted() {
        for (count, expected) in [(19, None), (20, None), (21, Some(2)), (500, Some(481))] {
            for got in [
                of_parts(&json!(vec![json!({"type": "attachment"}); count])),
                sanitise(&json!(vec![record("attachment", UNSUPPORTED); count])),
            ] {
                assert_eq!(got.len(), count.min(MAX_PARTS));
                assert_eq!(got.last().unwrap().affected_part_count, expected);
                if expected.is_some() {
                    assert_eq!(
                        said(&got[19]),
                        ("unknown", "reply_part_too_large", OVERFLOW_MESSAGE)
                    );
                    // A second hop keeps the count.
                    assert_eq!(sanitise(&json!(got)), got);
                }
            }
        }
    }

    #[test]
    fn a_count_belongs_to_the_last_of_twenty_only() {
        let overflow = |count: Value| {
            let mut record = record("unknown", TOO_MANY);
            record["affectedPartCount"] = count;
            record
        };
        let at = |position: usize, length: usize, count: Value| {
            let mut all = vec![record("attachment", UNSUPPORTED); length];
            all[position] = overflow(count);
            sanitise(&json!(all))
        };
        assert_eq!(at(19, 20, json!(5))[19].affected_part_count, Some(5));
        for (position, length) in [(0, 1), (18, 20), (18, 19)] {
            let got = at(position, length, json!(5));
            assert_eq!(said(&got[position]), MALFORMED);
            assert!(
                got.iter()
                    .all(|record| record.affected_part_count.is_none())
            );
        }
        for count in [
            json!(0),
            json!(1),
            json!(-2),
            json!(2.5),
            json!("3"),
            json!(null),
            json!(u64::MAX),
        ] {
            assert_eq!(said(&at(19, 20, count)[19]), MALFORMED);
        }
    }

    /// Any JSON of a few levels.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z_/<>]{0,12}".prop_map(Value::from),
            proptest::sample::select(FAILURE_CODES.to_vec()).prop_map(Value::from),
            proptest::sample::select(PART_TYPES.to_vec()).prop_map(Value::from),
            Just(Value::from(FAILED)),
        ];
        let key = prop_oneof![
            proptest::sample::select(vec![
                "partIndex",
                "partType",
                "status",
                "code",
                "message",
                "affectedPartCount",
                "type",
                "id",
            ])
            .prop_map(str::to_owned),
            "[a-z]{0,6}",
        ];
        leaf.prop_recursive(3, 64, 8, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                proptest::collection::vec((key.clone(), inner), 0..8)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// A record that is often of the shape that is expected.
    fn entry() -> impl Strategy<Value = Value> {
        let well_formed = (
            proptest::sample::select(PART_TYPES.to_vec()),
            proptest::sample::select(FAILURE_CODES.to_vec()),
            "[a-z/]{0,9}",
            proptest::option::of(any::<u32>()),
        )
            .prop_map(|(kind, code, message, count)| {
                let mut record = json!({"partIndex": 3, "partType": kind, "status": FAILED, "code": code, "message": message});
                if let Some(count) = count {
                    record["affectedPartCount"] = json!(count);
                }
                record
            });
        prop_oneof![any_json(), well_formed]
    }

    fn hostile() -> impl Strategy<Value = Value> {
        prop_oneof![
            9 => proptest::collection::vec(entry(), 0..32).prop_map(Value::from),
            1 => any_json(),
        ]
    }

    /// Every rule that holds for whatever comes in.
    fn holds(source: &Value, out: &[PartOutcome]) {
        let length = source.as_array().map_or(0, Vec::len);
        assert_eq!(out.len(), length.min(MAX_PARTS));
        for (index, record) in out.iter().enumerate() {
            assert_eq!(record.part_index, index);
            assert_eq!(record.status, "failed");
            assert!(PART_TYPES.contains(&record.part_type));
            assert!(FAILURE_CODES.contains(&record.code));
            if record.affected_part_count.is_none() {
                assert_eq!(record.message, message(record.part_type, record.code));
            } else {
                assert_eq!((index, length.max(MAX_PARTS)), (19, length));
                assert_eq!(said(record), (UNKNOWN, TOO_MANY, OVERFLOW_MESSAGE));
            }
        }
        if length > MAX_PARTS {
            assert_eq!(out[19].affected_part_count, Some((length - 19) as u64));
        }
        let json = serde_json::to_value(out).unwrap();
        assert!(json.as_array().unwrap().iter().all(Value::is_object));
        assert_eq!(sanitise(&json), out, "a second hop changes nothing");
    }

    proptest! {
        #[test]
        fn the_rules_hold_for_any_json(source in hostile()) {
            holds(&source, &sanitise(&source));
            let parts = of_parts(&source);
            holds(&source, &parts);
            prop_assert!(parts.iter().all(|record| record.part_type != FAILURE
                || source[record.part_index]["code"] == record.code));
        }

        #[test]
        fn an_entry_changes_none_of_its_neighbours(
            mut entries in proptest::collection::vec(entry(), 2..12),
            at in any::<proptest::sample::Index>(),
            other in entry(),
        ) {
            let at = at.index(entries.len());
            let before = sanitise(&json!(entries));
            entries[at] = other;
            let after = sanitise(&json!(entries));
            for index in (0..entries.len()).filter(|index| *index != at) {
                prop_assert_eq!(&before[index], &after[index]);
            }
        }

        #[test]
        fn what_a_producer_wrote_never_passes(text in "[A-Z]{6,20}", kind in 0..4usize, count in 1..30usize) {
            let part = json!({
                "type": PART_TYPES[kind], "id": text, "name": text, "message": text, "code": "artifact_missing",
                "reference": {"scheme": text, "id": text}, "integrityId": text,
            });
            let mut outcome = record(PART_TYPES[kind], "artifact_missing");
            outcome["message"] = json!(text);
            for out in [of_parts(&json!(vec![part; count])), sanitise(&json!(vec![outcome; count]))] {
                prop_assert!(!serde_json::to_string(&out).unwrap().contains(&text));
            }
        }
    }
}
