//! The right to claim continuations (spec s1, "Trusted request binding"): for each run whose servers
//! may, a channel to the continuation worker that is bound to that run. What comes over it goes to
//! the server that it is for and nowhere else.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipc_proto::edges::continuation::{CLAIM_HEADERS, Claim, Continuation, Reply, Request};
use ipc_proto::{CallError, Client, RunId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the continuation worker may take.
const ISSUED_WITHIN: Duration = Duration::from_secs(20);

/// Channels by run.
#[derive(Debug, Default)]
pub struct Claims(Mutex<HashMap<RunId, Client<Continuation>>>);

impl Claims {
    fn channels(&self) -> MutexGuard<'_, HashMap<RunId, Client<Continuation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Servers of this run may claim.
    pub fn enter(&self, run: RunId, channel: Client<Continuation>) {
        self.channels().insert(run, channel);
    }

    /// The run has ended.
    pub fn leave(&self, run: &RunId) {
        self.channels().remove(run);
    }

    /// What a server of a run may claim with.
    ///
    /// # Errors
    /// A sentence: the server is not to be started without it.
    pub async fn issue(&self, run: &RunId, server: &str) -> Result<Claim, String> {
        let channel = self.channels().get(run).cloned();
        let channel =
            channel.ok_or("the continuation worker is not there, so it could not claim")?;
        let request = Request::Issue {
            server: server.to_owned(),
        };
        match channel.call(&request, &[], ISSUED_WITHIN).await {
            Ok((Reply::Issued { claim }, _)) => Ok(claim),
            Ok(_) => Err("the continuation worker answered something else".to_owned()),
            Err(CallError::Fault(fault)) => Err(format!("it may not claim: {fault}")),
            Err(e) => Err(format!("it could not claim: {e}")),
        }
    }
}

/// Takes the four headers away that are the host's, whoever configured them.
pub fn without_claim(headers: &mut HeaderMap) {
    for name in CLAIM_HEADERS {
        headers.remove(name);
    }
}

/// Sets the four headers.
///
/// # Errors
/// When a value is no header's; it is not repeated.
pub fn with_claim(headers: &mut HeaderMap, claim: &Claim) -> Result<(), String> {
    for (name, value) in CLAIM_HEADERS.into_iter().zip(claim.values()) {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("what it may claim with does not fit into {name}"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::edges::continuation::ClaimToken;

    fn claim(token: &str) -> Claim {
        Claim {
            url: "http://127.0.0.1:4319/v1/continuations/claim".into(),
            token: ClaimToken(token.into()),
            fingerprint: "f".into(),
            mode: "reply".into(),
        }
    }

    #[test]
    fn the_hosts_headers_take_the_place_of_configured_ones() {
        let mut headers = HeaderMap::new();
        headers.append(CLAIM_HEADERS[1], HeaderValue::from_static("forged"));
        headers.append(CLAIM_HEADERS[1], HeaderValue::from_static("twice"));
        headers.append("authorization", HeaderValue::from_static("own"));
        without_claim(&mut headers);
        assert_eq!(headers.len(), 1);
        with_claim(&mut headers, &claim("t")).unwrap();
        assert_eq!(
            (headers.len(), headers[CLAIM_HEADERS[1]].as_bytes()),
            (5, &b"t"[..])
        );
        assert!(!format!("{headers:?}").contains("\"t\""));
        assert!(with_claim(&mut headers, &claim("a\nb")).is_err());
    }

    #[tokio::test]
    async fn without_a_channel_nothing_is_issued() {
        let run = RunId::new();
        assert!(Claims::default().issue(&run, "work").await.is_err());
    }
}
