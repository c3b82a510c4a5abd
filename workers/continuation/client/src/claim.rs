//! A service's calls: claim, detached claim, result, status.

use crate::operator::Status;
use crate::wire::{Endpoint, Error, Question};
use continuation_record::token::Token;
use continuation_record::{Payload, State, Time};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const CLAIM_URL: &str = "MONO_AGENT_CONTINUATION_CLAIM_URL";
const CLAIM_TOKEN: &str = "MONO_AGENT_CONTINUATION_CLAIM_TOKEN";

/// What a service says of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The service's key of the task, at most 256 characters.
    pub task_key: String,
    /// The service's hash of the task, at most 256 characters.
    pub task_hash: String,
    /// When the answer is of no use any more: in the future, at most 30 days away.
    pub deadline: String,
}

/// A claim that is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claimed {
    /// The continuation.
    pub continuation_id: String,
    /// Where the result goes.
    pub result_url: String,
    /// Where it can be asked about.
    pub status_url: String,
    /// The result token. Keep it like a password.
    pub token: String,
    /// When it expires.
    pub expires_at: Time,
    /// What the claim is bound to.
    pub fingerprint: String,
    /// Whether it was there before.
    #[serde(default)]
    pub replayed: bool,
}

/// A result that is durable.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The continuation.
    pub continuation_id: String,
    /// Its present state.
    pub state: State,
}

/// The capability that the host gives to a selected server for one request.
#[derive(Debug, Clone)]
pub struct ClaimCapability {
    endpoint: Endpoint,
    path: String,
    token: Token,
}

impl ClaimCapability {
    /// From address and token, as they stand in the headers of a request over HTTP.
    ///
    /// # Errors
    /// [`Error::Address`].
    pub fn new(url: &str, token: Token) -> Result<Self, Error> {
        let (endpoint, path) = Endpoint::of_url(url)?;
        Ok(Self {
            endpoint,
            path,
            token,
        })
    }

    /// From the environment, as a server over stdio gets it.
    ///
    /// # Errors
    /// [`Error::NoCapability`], [`Error::Address`].
    pub fn from_environment() -> Result<Self, Error> {
        let get = |name| std::env::var(name).map_err(|_| Error::NoCapability(name));
        Self::new(&get(CLAIM_URL)?, Token::from(get(CLAIM_TOKEN)?))
    }

    /// Claims. Must be done, and be answered, before the request that it belongs to is.
    ///
    /// # Errors
    /// [`Error::Refused`] with `claim_conflict`, `active_origin_limit` and others; repeats are safe.
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed, Error> {
        let body = serde_json::to_vec(claim).map_err(|_| Error::Answer)?;
        let question = Question::post(&self.path, &self.token, body);
        self.endpoint.ask(question).await
    }
}

/// A detached service: it claims without a turn, on the named routes.
#[derive(Debug, Clone)]
pub struct Detached {
    endpoint: Endpoint,
    service: String,
    bearer: Token,
}

#[derive(Serialize)]
struct OnRoute<'a> {
    route: &'a str,
    #[serde(flatten)]
    claim: &'a Claim,
}

impl Detached {
    /// A configured service with its bearer.
    #[must_use]
    pub fn new(endpoint: Endpoint, service: impl Into<String>, bearer: Token) -> Self {
        Self {
            endpoint,
            service: service.into(),
            bearer,
        }
    }

    /// Claims on a named route.
    ///
    /// # Errors
    /// [`Error::Refused`] with `unknown_named_route`, `claim_conflict` and others; repeats are safe.
    pub async fn claim(&self, route: &str, claim: &Claim) -> Result<Claimed, Error> {
        let body = serde_json::to_vec(&OnRoute { route, claim }).map_err(|_| Error::Answer)?;
        let mut question = Question::post("/v1/continuations/detached/claim", &self.bearer, body);
        question.service = Some(&self.service);
        self.endpoint.ask(question).await
    }
}

/// What may be done with a claimed continuation.
#[derive(Debug, Clone)]
pub struct Results {
    endpoint: Endpoint,
    result: String,
    status: String,
    token: Token,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Submission<'a> {
    idempotency_key: &'a str,
    payload_hash: String,
    payload: &'a RawValue,
}

impl Claimed {
    /// The way to submit the result and to ask about it.
    ///
    /// # Errors
    /// [`Error::Address`] when an address is not of this machine.
    pub fn result(&self) -> Result<Results, Error> {
        let (endpoint, result) = Endpoint::of_url(&self.result_url)?;
        let (other, status) = Endpoint::of_url(&self.status_url)?;
        if endpoint != other {
            return Err(Error::Address);
        }
        Ok(Results {
            endpoint,
            result,
            status,
            token: Token::from(self.token.clone()),
        })
    }
}

impl Results {
    /// Submits the one result, with the hash of its canonical form. Repeats are safe.
    ///
    /// # Errors
    /// [`Error::Refused`] with `result_conflict`, `continuation_expired` and others.
    pub async fn submit(&self, key: &str, payload: &Payload) -> Result<Accepted, Error> {
        let raw: &RawValue = serde_json::from_str(payload.text()).map_err(|_| Error::Payload)?;
        let submission = Submission {
            idempotency_key: key,
            payload_hash: payload.hash(),
            payload: raw,
        };
        let body = serde_json::to_vec(&submission).map_err(|_| Error::Payload)?;
        let mut question = Question::post(&self.result, &self.token, body);
        question.method = Method::PUT;
        self.endpoint.ask(question).await
    }

    /// How it stands.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn status(&self) -> Result<Status, Error> {
        let question = Question::get(&self.status, &self.token);
        self.endpoint.ask(question).await
    }
}
