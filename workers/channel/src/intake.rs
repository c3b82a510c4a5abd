//! Request bodies, read within bounds of size, time and memory.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of a body over the bound that are read and dropped, so that a client that writes first
/// and reads afterwards sees the refusal and not a reset connection.
pub const MAX_DRAIN: usize = 128 * 1024 * 1024;
/// Time for a whole body.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Why a body was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Over the bound of one body.
    TooLarge,
    /// Over the bound of all bodies together.
    Overloaded,
    /// Not whole within [`BODY_TIME`].
    TooSlow,
    /// The client broke off.
    BrokenOff,
}

impl Unread {
    /// How much of the rest is worth reading, for [`refuse`].
    #[must_use]
    pub fn drain(self) -> usize {
        match self {
            Self::TooLarge | Self::Overloaded => MAX_DRAIN,
            Self::TooSlow | Self::BrokenOff => 0,
        }
    }
}

/// The memory that bodies may take, over all connections.
#[derive(Debug)]
pub struct Intake(Semaphore);

impl Intake {
    /// For this many KiB at once.
    #[must_use]
    pub fn new(kib: usize) -> Self {
        Self(Semaphore::new(kib))
    }

    /// Reads a body of at most `most` bytes. The permit is its memory: to be held as long as the
    /// bytes are.
    ///
    /// # Errors
    /// [`Unread`]; the body is still there to be drained.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        body: &mut Body,
        most: usize,
    ) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), Unread> {
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > most as u64) {
            return Err(Unread::TooLarge);
        }
        tokio::time::timeout(BODY_TIME, self.collect(body, most))
            .await
            .unwrap_or(Err(Unread::TooSlow))
    }

    async fn collect(
        &self,
        body: &mut Body,
        most: usize,
    ) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), Unread> {
        let mut bytes = Vec::new();
        let mut held: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Unread::BrokenOff)?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > most {
                return Err(Unread::TooLarge);
            }
            let wanted = (bytes.len() + data.len()).div_ceil(1024);
            let more = wanted - held.as_ref().map_or(0, SemaphorePermit::num_permits);
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            let permit = self
                .0
                .try_acquire_many(more)
                .map_err(|_| Unread::Overloaded)?;
            match &mut held {
                Some(held) => held.merge(permit),
                None => held = Some(permit),
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, held))
    }
}

/// Answers with a refusal after dropping what the client still sends, at most `most` bytes.
pub async fn refuse(mut body: Body, mut response: Response, most: usize) -> Response {
    let mut dropped = 0;
    let draining = async {
        while dropped < most
            && let Some(Ok(frame)) = body.frame().await
        {
            dropped += frame.data_ref().map_or(0, bytes::Bytes::len);
        }
    };
    // In vain when it takes longer: the refusal goes out and the connection ends.
    let _ = tokio::time::timeout(BODY_TIME, draining).await;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures_util::stream;

    fn pieces(pieces: Vec<&'static str>) -> Body {
        Body::from_stream(stream::iter(
            pieces.into_iter().map(Ok::<_, std::io::Error>),
        ))
    }

    #[tokio::test]
    async fn a_body_is_bounded_by_its_announcement_and_by_what_comes() {
        let intake = Intake::new(1024);
        let none = HeaderMap::new();
        let mut body = pieces(vec!["ab", "cd"]);
        let (bytes, held) = intake.read(&none, &mut body, 4).await.unwrap();
        assert_eq!((&*bytes, held.unwrap().num_permits()), (&b"abcd"[..], 1));
        let mut body = pieces(vec!["ab", "cde"]);
        assert_eq!(
            intake.read(&none, &mut body, 4).await.err(),
            Some(Unread::TooLarge)
        );
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("5"))]);
        let mut body = pieces(vec![]);
        assert_eq!(
            intake.read(&announced, &mut body, 4).await.err(),
            Some(Unread::TooLarge)
        );
    }

    #[tokio::test]
    async fn all_bodies_together_are_bounded() {
        let intake = Intake::new(1);
        let none = HeaderMap::new();
        let mut first = pieces(vec!["a"]);
        let held = intake.read(&none, &mut first, 4096).await.unwrap();
        let mut second = pieces(vec!["b"]);
        assert_eq!(
            intake.read(&none, &mut second, 4096).await.err(),
            Some(Unread::Overloaded)
        );
        drop(held);
        let mut third = pieces(vec!["c"]);
        assert!(intake.read(&none, &mut third, 4096).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let intake = Intake::new(1);
        let mut body = Body::from_stream(stream::pending::<Result<&'static str, std::io::Error>>());
        let none = HeaderMap::new();
        assert_eq!(
            intake.read(&none, &mut body, 9).await.err(),
            Some(Unread::TooSlow)
        );
    }
}
