use super::*;
use proptest::prelude::*;

#[test]
fn the_vectors_of_the_contract() {
    for (text, expected, hash) in [
        (
            r#"{"b":1,"10":2,"9":3,"01":4}"#,
            r#"{"9":3,"10":2,"01":4,"b":1}"#,
            "87d9050a29fbae75c0aba82c3c6a8a821c6f82c28bbf2be2cba4d3f05d4d910d",
        ),
        (
            "{\"\u{e000}\":1,\"\u{1f600}\":2}",
            "{\"\u{1f600}\":2,\"\u{e000}\":1}",
            "28c95d1bbb2209223307e62f489020e8f9e0cfa16adf2daf6d88127a1e8dd22a",
        ),
        (
            r#"{"x":[1.0,-0,1e21,1e-7,0.1,123456789012345680000]}"#,
            r#"{"x":[1,0,1e+21,1e-7,0.1,123456789012345680000]}"#,
            "ae5ad9a276d86e1b58246c70e366e8b4bc94ccaf7994f5e2f5b7605d2b5440fb",
        ),
        (
            r#"{"a":1,"a":2}"#,
            r#"{"a":2}"#,
            "7e8059f495589fcd981232cc11d00b00da3802c01d688fa1cf1f6bed6e5bb33c",
        ),
        (
            r#""\ud800""#,
            r#""\ud800""#,
            "8c0c59dd0d275aadcd462a5fe12eb352cbdfeaf961eae4f85a4660521df7d2f5",
        ),
    ] {
        let payload = Payload::parse(text).expect(text);
        assert_eq!(payload.text(), expected);
        assert_eq!(payload.hash(), hash, "{text}");
    }
}

#[test]
fn numbers_as_javascript_writes_them() {
    for (text, expected) in [
        ("100", "100"),
        ("-1.50", "-1.5"),
        ("1e20", "100000000000000000000"),
        ("1.5e21", "1.5e+21"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1.25e-10", "1.25e-10"),
        ("5e-324", "5e-324"),
        ("1e-400", "0"),
        ("9007199254740993", "9007199254740992"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("-0.0", "0"),
    ] {
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn strings_as_javascript_writes_them() {
    for (text, expected) in [
        (r#""\u003c\u2028\/""#, "\"<\u{2028}/\""),
        (r#""\u0001\u001F\u007f""#, "\"\\u0001\\u001f\u{7f}\""),
        (r#""\b\f\n\r\t\"\\""#, r#""\b\f\n\r\t\"\\""#),
        (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
        (
            r#""\uD83D\ud83d\ude00x\uDE00""#,
            "\"\\ud83d\u{1f600}x\\ude00\"",
        ),
        (r#""a\udc00é""#, "\"a\\udc00é\""),
    ] {
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn keys_that_look_like_indexes() {
    assert_eq!(
        canonical(r#"{"4294967295":1,"4294967294":2,"0":3,"00":4,"-1":5,"1e1":6,"":7}"#).as_deref(),
        Ok(r#"{"0":3,"4294967294":2,"":7,"-1":5,"00":4,"1e1":6,"4294967295":1}"#)
    );
    assert_eq!(
        canonical(r#"{"b":{"a":1},"a":0,"b":{"c":2}}"#).as_deref(),
        Ok(r#"{"a":0,"b":{"c":2}}"#)
    );
}

#[test]
fn what_is_no_json_is_refused() {
    for text in [
        "",
        " ",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "-",
        "nul",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "\"",
        "\"\u{1}\"",
        r#""\x""#,
        r#""\u12g4""#,
        "[",
        "{\"a\"}",
        "1 2",
        "NaN",
        "\u{feff}1",
    ] {
        assert!(
            matches!(canonical(text), Err(CanonicalError::Syntax(_))),
            "{text:?}"
        );
    }
    assert_eq!(canonical("[1e400]"), Err(CanonicalError::Number(1)));
}

#[test]
fn nesting_has_a_bound() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(canonical(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(
        canonical(&nested(MAX_DEPTH + 1)),
        Err(CanonicalError::Depth)
    );
    assert_eq!(canonical(&"[".repeat(1 << 20)), Err(CanonicalError::Depth));
}

#[test]
fn a_payload_has_a_bound() {
    let long = |bytes: usize| format!("\"{}\"", "a".repeat(bytes - 2));
    assert!(Payload::parse(&long(MAX_PAYLOAD_BYTES)).is_ok());
    assert_eq!(
        Payload::parse(&long(MAX_PAYLOAD_BYTES + 1)),
        Err(CanonicalError::Long)
    );
}

fn any_json() -> impl Strategy<Value = Json> {
    let text = prop_oneof![
        any::<String>().prop_map(Text::Whole),
        (0u32..40).prop_map(|n| Text::Whole(n.to_string())),
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<f64>()
            .prop_filter("finite", |n| n.is_finite())
            .prop_map(Json::Number),
        text.clone().prop_map(Json::Text),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            prop::collection::vec((text.clone(), inner), 0..6).prop_map(Json::Object),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_text_is_canonical(json in any_json()) {
        let once = canonical(&json.canonical()).expect("what was written is JSON");
        prop_assert_eq!(canonical(&once), Ok(once.clone()));
        // The library that reads our record files agrees that it is JSON.
        prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok());
    }

    #[test]
    fn no_text_does_harm(text in any::<String>()) {
        let _ = canonical(&text);
    }
}
