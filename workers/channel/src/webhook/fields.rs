//! The members of a request's body, found without making a tree of it: one of many small values
//! would take sixteen times its bytes, and the bound on bodies counts only those.

use super::error::Refusal;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// What is known of a request; everything else is passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fields<'a> {
    /// The message.
    #[serde(borrow)]
    pub text: Option<&'a RawValue>,
    /// The conversation that it belongs to.
    #[serde(borrow)]
    pub conversation_id: Option<&'a RawValue>,
    /// `sync` or `async`.
    #[serde(borrow)]
    pub mode: Option<&'a RawValue>,
    /// `<provider>:<model>`.
    #[serde(borrow)]
    pub model: Option<&'a RawValue>,
    /// As `runtime.effort`.
    #[serde(borrow)]
    pub effort: Option<&'a RawValue>,
    /// The caller's own words.
    #[serde(borrow)]
    pub metadata: Option<&'a RawValue>,
    /// Where the result goes.
    #[serde(borrow)]
    pub callback_url: Option<&'a RawValue>,
    /// Files.
    #[serde(borrow)]
    pub attachments: Option<&'a RawValue>,
}

/// True for JSON of an object: a struct is also read from a list.
#[must_use]
pub fn is_object(json: &str) -> bool {
    json.starts_with('{')
}

impl<'a> Fields<'a> {
    /// Finds the members of a body.
    ///
    /// # Errors
    /// When it is no JSON object, or names a member twice.
    pub fn of(body: &'a [u8]) -> Result<Self, Refusal> {
        let whole: &RawValue = serde_json::from_slice(body)
            .map_err(|e| Refusal::invalid(format!("The body is not valid JSON: {e}.")))?;
        if !is_object(whole.get()) {
            return Err(Refusal::invalid("The body must be a JSON object."));
        }
        serde_json::from_str(whole.get())
            .map_err(|e| Refusal::invalid(format!("The body can't be read: {e}.")))
    }
}

/// A member's text; `None` when it is something else.
#[must_use]
pub fn text<'a>(raw: &'a RawValue) -> Option<Cow<'a, str>> {
    let json = raw.get();
    match serde_json::from_str::<&'a str>(json) {
        Ok(text) => Some(Cow::Borrowed(text)),
        // With escapes it has to be written anew.
        Err(_) => serde_json::from_str::<String>(json).ok().map(Cow::Owned),
    }
}

/// The first `N` members of a list; the others are passed over.
#[derive(Debug)]
pub struct First<'a, const N: usize>(pub Vec<&'a RawValue>);

impl<'de: 'a, 'a, const N: usize> Deserialize<'de> for First<'a, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<const N: usize>;

        impl<'de, const N: usize> Visitor<'de> for Members<N> {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while members.len() < N
                    && let Some(member) = list.next_element()?
                {
                    members.push(member);
                }
                if members.len() == N {
                    while list.next_element::<IgnoredAny>()?.is_some() {}
                }
                Ok(members)
            }
        }

        deserializer.deserialize_seq(Members::<N>).map(First)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_known_is_kept_and_not_as_a_tree() {
        let zeros = "[0".to_owned() + &",0".repeat(500_000) + "]";
        let body = format!(r#"{{"text":"hi","more":{zeros},"attachments":{zeros}}}"#);
        let fields = Fields::of(body.as_bytes()).unwrap();
        assert_eq!(text(fields.text.unwrap()).unwrap(), "hi");
        let list = fields.attachments.unwrap().get();
        // Borrowed from the body: nothing was copied.
        assert!(body.as_bytes().as_ptr_range().contains(&list.as_ptr()));
        let First::<3>(members) = serde_json::from_str(list).unwrap();
        assert_eq!(members.len(), 3);
        assert!(serde_json::from_str::<First<'_, 3>>(r#"{"a":1}"#).is_err());
        assert!(serde_json::from_str::<First<'_, 1>>("[1,2").is_err());
    }

    #[test]
    fn text_is_borrowed_unless_it_has_escapes() {
        let fields = Fields::of(br#" {"text":"a\u00e4","mode":"x","model":7,"effort":null} "#);
        let fields = fields.unwrap();
        assert_eq!(text(fields.text.unwrap()).unwrap(), "aä");
        assert!(matches!(
            text(fields.mode.unwrap()),
            Some(Cow::Borrowed("x"))
        ));
        assert!(text(fields.model.unwrap()).is_none() && fields.effort.is_none());
    }

    #[test]
    fn a_body_is_one_object_that_names_nothing_twice() {
        for body in [
            "",
            "[]",
            "null",
            r#"["hi"]"#,
            r#"{"text":"a","text":"b"}"#,
            "{} {}",
            "{\"text\":\"\u{1}\"}x",
        ] {
            assert_eq!(
                Fields::of(body.as_bytes()).unwrap_err().status,
                400,
                "{body}"
            );
        }
        assert!(Fields::of(b"{\"text\":\"\xff\"}").is_err());
    }
}
