//! A request's body: read within its bounds and read as JSON.

use crate::error::Rejection;
use axum::body::Body;
use bytes::BytesMut;
use continuation_record::canonical::{Json, Text};
use continuation_record::validate::units;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use std::time::Duration;

/// Largest body of a claim and of what an operator sends.
pub(crate) const MAX_CLAIM: usize = 16 * 1024;
/// Largest body of a result.
pub(crate) const MAX_RESULT: usize = 256 * 1024;

/// How long a body may stand still, and take in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) stall: Duration,
    pub(crate) total: Duration,
}

/// Reads the whole body.
///
/// # Errors
/// 413 when it is over `most`; 408 when it stands still or takes too long; 400 when it breaks off.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    most: usize,
    patience: Patience,
) -> Result<Vec<u8>, Rejection> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > most as u64) {
        return Err(Rejection::too_large(most));
    }
    tokio::time::timeout(patience.total, collect(body, most, patience.stall))
        .await
        .unwrap_or_else(|_| Err(too_slow()))
}

async fn collect(mut body: Body, most: usize, stall: Duration) -> Result<Vec<u8>, Rejection> {
    let mut bytes = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(stall, body.frame());
        let Some(frame) = frame.await.map_err(|_| too_slow())? else {
            return Ok(bytes.into());
        };
        let frame = frame.map_err(|_| invalid_json("the request's body broke off"))?;
        // Trailers say nothing here.
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        if bytes.len() + piece.len() > most {
            return Err(Rejection::too_large(most));
        }
        bytes.extend_from_slice(&piece);
    }
}

fn too_slow() -> Rejection {
    Rejection::new(
        StatusCode::REQUEST_TIMEOUT,
        "request_timeout",
        "the request's body did not arrive in time",
    )
}

fn invalid_json(message: &str) -> Rejection {
    Rejection::field("invalid_json", message)
}

/// A JSON object that a request holds.
#[derive(Debug, Clone)]
pub struct Fields(Json);

impl Fields {
    /// Reads an object. Of a key that comes twice the last one counts, as for every JavaScript client.
    ///
    /// # Errors
    /// `invalid_json`, also for what is nested too deep, is not UTF-8, or has a number beyond a double;
    /// `invalid_body` when it is no object.
    pub fn parse(bytes: &[u8]) -> Result<Self, Rejection> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| invalid_json("the request's body must be UTF-8"))?;
        let json = Json::parse(text)
            .map_err(|e| invalid_json(&format!("the request's body must be JSON: {e}")))?;
        match json {
            Json::Object(_) => Ok(Self(json)),
            _ => Err(Rejection::field(
                "invalid_body",
                "the request's body must be a JSON object",
            )),
        }
    }

    /// What stands under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)
    }

    /// A text that isn't blank and has at most `most` UTF-16 code units.
    ///
    /// # Errors
    /// 400 with this code.
    pub fn text(&self, key: &str, most: usize, code: &'static str) -> Result<&str, Rejection> {
        let text = match self.get(key) {
            Some(Json::Text(Text::Whole(text))) => Some(text.as_str()),
            _ => None,
        };
        text.filter(|text| !text.trim().is_empty() && units(text) <= most)
            .ok_or_else(|| {
                Rejection::field(
                    code,
                    &format!("{key} must be a text of 1 to {most} characters"),
                )
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use futures_util::stream;
    use proptest::prelude::*;

    const PATIENCE: Patience = Patience {
        stall: Duration::from_secs(10),
        total: Duration::from_secs(60),
    };

    async fn collected(body: Body, most: usize) -> Result<Vec<u8>, Rejection> {
        read(&HeaderMap::new(), body, most, PATIENCE).await
    }

    #[tokio::test]
    async fn a_body_up_to_its_bound_is_read_and_a_byte_more_is_not() {
        assert_eq!(
            collected(Body::from(vec![b'x'; 9]), 9).await.unwrap().len(),
            9
        );
        let over = collected(Body::from(vec![b'x'; 10]), 9).await.unwrap_err();
        assert_eq!(
            (over.status.as_u16(), over.code),
            (413, "payload_too_large")
        );
        // Without reading any of it where the length is announced.
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, "10".parse().unwrap());
        let pending = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let over = read(&headers, pending, 9, PATIENCE).await.unwrap_err();
        assert_eq!(over.status.as_u16(), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_drips_is_given_up() {
        let pending = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let start = tokio::time::Instant::now();
        assert_eq!(
            collected(pending, 9).await.unwrap_err().code,
            "request_timeout"
        );
        assert_eq!(start.elapsed(), PATIENCE.stall);
        let drip = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        });
        let start = tokio::time::Instant::now();
        let slow = collected(Body::from_stream(drip), 900).await.unwrap_err();
        assert_eq!(slow.status.as_u16(), 408);
        assert_eq!(start.elapsed(), PATIENCE.total);
    }

    #[test]
    fn hostile_bodies_are_refused_with_their_codes() {
        let code = |bytes: &[u8]| Fields::parse(bytes).unwrap_err().code;
        for bytes in [
            b"".as_slice(),
            b"{",
            b"\xff",
            b"{\"a\":\"\xc3\"}",
            b"{\"a\":1e999}",
            b"{\"a\":-1e999}",
            b"{\"a\":NaN}",
            b"{} {}",
            b"{\"a\":1,}",
            b"\xef\xbb\xbf{}",
        ] {
            assert_eq!(code(bytes), "invalid_json", "{bytes:?}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(code(deep.as_bytes()), "invalid_json");
        for bytes in ["null", "[]", "1", "\"x\"", "[{}]"] {
            assert_eq!(code(bytes.as_bytes()), "invalid_body", "{bytes}");
        }
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let fields = Fields::parse(br#"{"taskKey":"a","taskKey":"b"}"#).unwrap();
        assert_eq!(fields.text("taskKey", 9, "x").unwrap(), "b");
    }

    #[test]
    fn texts_are_counted_as_their_senders_count_them() {
        let of = |value: &str| {
            let fields = Fields::parse(format!("{{\"k\":{value}}}").as_bytes()).unwrap();
            fields.text("k", 4, "invalid_k").map(str::to_owned)
        };
        assert_eq!(of(r#""abcd""#).unwrap(), "abcd");
        assert_eq!(of(r#""😀😀""#).unwrap(), "😀😀");
        for bad in [
            r#""abcde""#,
            r#""😀😀a""#,
            r#""""#,
            r#"" \n""#,
            "null",
            "1",
            "[]",
            r#""\ud800""#,
        ] {
            assert_eq!(of(bad).unwrap_err().code, "invalid_k", "{bad}");
        }
        let none = Fields::parse(b"{}").unwrap();
        // A key that every JavaScript object seems to have is just not there.
        for key in ["k", "constructor", "__proto__", "toString"] {
            assert!(none.get(key).is_none());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Fields::parse(&bytes);
        }

        #[test]
        fn nearly_json_does_not_either(text in "[\\[\\]{}:,\"\\\\u0-9dDeE.+\\- a-c]{0,60}") {
            let _ = Fields::parse(text.as_bytes());
        }
    }
}
