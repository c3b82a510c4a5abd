//! Addresses of continuations to what is asked of the daemon. Pure: who answers is elsewhere.

use super::error::ApiError;
use super::query::{cursor, number, parameter};
use http::request::Parts;
use ipc_proto::console::{Act, Look};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Largest body of a change in bytes: a receipt's id is the longest thing in it.
pub(super) const MAX_BODY: usize = 4 * 1024;
/// Longest id in bytes. The continuation worker knows which there are.
const MAX_ID: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Retry {
    #[serde(default)]
    allow_unknown: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resolution {
    kind: String,
    delivery_id: Option<String>,
}

/// What a path below `operator` shows.
///
/// # Errors
/// `not_found`, or `invalid_page_limit` for what is no number.
pub(super) fn look(parts: &Parts, path: &[&str]) -> Result<Look, ApiError> {
    match path {
        ["continuation-health"] => Ok(Look::ContinuationHealth),
        ["continuations"] => {
            // None at all is the configured size; nothing in its place is no number.
            let limit = match parameter(parts, "limit") {
                None => None,
                Some(_) => number(parts, "limit")
                    .ok()
                    .flatten()
                    .map(Some)
                    .ok_or_else(|| {
                        let message = "\"limit\" must be a whole number.";
                        ApiError::new(400, "invalid_page_limit", message)
                    })?,
            };
            let cursor = cursor(parts, "cursor");
            Ok(Look::Continuations { limit, cursor })
        }
        ["continuations", id] => Ok(Look::Continuation { id: named(id)? }),
        ["continuations", id, "captured"] => Ok(Look::CapturedText { id: named(id)? }),
        _ => Err(ApiError::not_found("address")),
    }
}

/// What a change below `operator` does. An empty body is an empty object.
///
/// # Errors
/// `not_found`, or `invalid_request` for a body that can't be read.
pub(super) fn act(path: &[&str], body: &[u8]) -> Result<Act, ApiError> {
    let ["continuations", id, verb] = path else {
        return Err(ApiError::not_found("address"));
    };
    let id = named(id)?;
    match *verb {
        "retry" => {
            let Retry { allow_unknown } = read(body)?;
            Ok(Act::RetryContinuation { id, allow_unknown })
        }
        "cancel" => {
            let Cancel {} = read(body)?;
            Ok(Act::CancelContinuation { id })
        }
        "resolve" => {
            let Resolution { kind, delivery_id } = read(body)?;
            Ok(Act::ResolveContinuation {
                id,
                kind,
                delivery_id,
            })
        }
        _ => Err(ApiError::not_found("address")),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|e| ApiError::invalid(format!("The body can't be read: {e}.")))
}

fn named(id: &str) -> Result<String, ApiError> {
    if id.is_empty() || id.len() > MAX_ID {
        return Err(ApiError::not_found("continuation"));
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parts(query: &str) -> Parts {
        let uri = format!("/api/v1/operator/continuations{query}");
        let request = http::Request::get(uri).body(()).unwrap();
        request.into_parts().0
    }

    #[test]
    fn every_address_is_one_look() {
        let id = || "c1".to_owned();
        let plain = parts("");
        for (path, expected) in [
            (&["continuation-health"][..], Look::ContinuationHealth),
            (&["continuations", "c1"], Look::Continuation { id: id() }),
            (
                &["continuations", "c1", "captured"],
                Look::CapturedText { id: id() },
            ),
        ] {
            assert_eq!(look(&plain, path).unwrap(), expected, "{path:?}");
        }
        let long = "x".repeat(MAX_ID + 1);
        for path in [
            &["continuations", ""][..],
            &["continuations", &long],
            &["continuations", "c1", "retry"],
            &["continuations", "c1", "captured", "more"],
            &["nothing"],
        ] {
            assert_eq!(look(&plain, path).unwrap_err().status, 404, "{path:?}");
        }
        let longest = "x".repeat(MAX_ID);
        assert!(look(&plain, &["continuations", &longest]).is_ok());
    }

    #[test]
    fn a_page_has_the_size_that_was_asked_for_or_the_configured_one() {
        let page = |query: &str| look(&parts(query), &["continuations"]);
        let expected = |limit, cursor: Option<&str>| Look::Continuations {
            limit,
            cursor: cursor.map(str::to_owned),
        };
        assert_eq!(page("").unwrap(), expected(None, None));
        assert_eq!(page("?cursor=").unwrap(), expected(None, None));
        let both = page("?limit=7&cursor=a%2Bb").unwrap();
        assert_eq!(both, expected(Some(7), Some("a+b")));
        for query in ["?limit=", "?limit=x", "?limit=-1", "?limit=99999999999"] {
            let error = page(query).unwrap_err();
            assert_eq!((error.status, &*error.code), (400, "invalid_page_limit"));
        }
    }

    #[test]
    fn a_change_is_what_its_body_says_and_no_more() {
        let id = || "c1".to_owned();
        let retry = |allow_unknown| Act::RetryContinuation {
            id: id(),
            allow_unknown,
        };
        let resolve = |kind: &str, delivery_id: Option<&str>| Act::ResolveContinuation {
            id: id(),
            kind: kind.to_owned(),
            delivery_id: delivery_id.map(str::to_owned),
        };
        let cancel = Act::CancelContinuation { id: id() };
        for (verb, body, expected) in [
            ("retry", "", retry(false)),
            ("retry", "{}", retry(false)),
            ("retry", r#"{"allowUnknown":true}"#, retry(true)),
            ("cancel", "", cancel),
            (
                "resolve",
                r#"{"kind":"not_delivered"}"#,
                resolve("not_delivered", None),
            ),
            (
                "resolve",
                r#"{"kind":"delivered","deliveryId":"m1"}"#,
                resolve("delivered", Some("m1")),
            ),
        ] {
            let path = ["continuations", "c1", verb];
            assert_eq!(act(&path, body.as_bytes()).unwrap(), expected, "{body}");
        }
        for (verb, body) in [
            ("retry", "["),
            ("retry", r#"{"allowUnknown":"yes"}"#),
            // What nobody knows is not silently left out: it may have been the point.
            ("retry", r#"{"allow_unknown":true}"#),
            ("cancel", r#"{"destination":"web:1"}"#),
            ("resolve", ""),
            (
                "resolve",
                r#"{"kind":"delivered","conversationId":"web:1"}"#,
            ),
        ] {
            let error = act(&["continuations", "c1", verb], body.as_bytes()).unwrap_err();
            let expected = (400, "invalid_request");
            assert_eq!((error.status, &*error.code), expected, "{verb} {body}");
        }
        for path in [
            &["continuations", "c1", "delete"][..],
            &["continuations", "c1"],
            &["runs", "r1", "cancel"],
        ] {
            assert_eq!(act(path, b"{}").unwrap_err().status, 404, "{path:?}");
        }
    }
}
