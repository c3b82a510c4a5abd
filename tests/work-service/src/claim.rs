//! A claim: asked for while the host's call is under way, kept in a file of its own, answered later.

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for one request.
const WITHIN: Duration = Duration::from_secs(20);

/// What the host lets this call claim with.
#[derive(Debug, Clone)]
pub(crate) struct Capability {
    url: String,
    token: String,
    fingerprint: String,
}

impl Capability {
    /// From whatever knows the values by name; the mode is of no use to this service.
    pub(crate) fn from(value: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self {
            url: value("URL")?,
            token: value("TOKEN")?,
            fingerprint: value("FINGERPRINT")?,
        })
    }
}

/// A claim that the host has accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claim {
    /// The continuation.
    pub(crate) continuation_id: String,
    /// Where the result goes.
    pub(crate) result_url: String,
    /// Where it says how it stands.
    pub(crate) status_url: String,
    /// The bearer for both.
    pub(crate) token: String,
    /// What it is bound to.
    pub(crate) fingerprint: String,
    /// Our name of the task.
    #[serde(default)]
    pub(crate) task: String,
}

fn client() -> Result<Client> {
    // Fails only when it is installed already. No address here has TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().timeout(WITHIN).no_proxy();
    Ok(builder.tls_certs_only([]).build()?)
}

fn place(folder: &Path, task: &str) -> PathBuf {
    folder.join(format!("{}.json", hex::encode(Sha256::digest(task))))
}

/// Claims a task, whose result comes in time, and keeps what came.
///
/// # Errors
/// When the host refuses, with its code.
pub(crate) async fn claim(
    folder: &Path,
    capability: &Capability,
    task: &str,
    within: SignedDuration,
) -> Result<Claim> {
    let deadline = Timestamp::now() + within;
    let body = json!({
        "taskKey": task,
        "taskHash": hex::encode(Sha256::digest(task)),
        "deadline": format!("{deadline:.3}"),
    });
    let response = client()?
        .post(&capability.url)
        .bearer_auth(&capability.token)
        .json(&body)
        .send()
        .await?;
    let status = response.status();
    let answer: Value = response.json().await?;
    if !status.is_success() {
        bail!(
            "the host refused the claim: {status} {}",
            answer["error"]["code"]
        );
    }
    let mut claim: Claim = serde_json::from_value(answer)?;
    if claim.fingerprint != capability.fingerprint {
        bail!("the claim is bound to something else");
    }
    claim.task = task.to_owned();
    let path = place(folder, task);
    let new = path.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(&claim)?)?;
    std::fs::rename(&new, &path)?;
    Ok(claim)
}

/// What was claimed for a task.
///
/// # Errors
/// When there is nothing.
pub(crate) fn kept(folder: &Path, task: &str) -> Result<Claim> {
    let path = place(folder, task);
    let text = std::fs::read(&path).with_context(|| format!("nothing was claimed for {task:?}"))?;
    Ok(serde_json::from_slice(&text)?)
}

/// Submits a task's result; tells the host's answer.
///
/// # Errors
/// When the host can't be reached or refuses, with its code.
pub(crate) async fn submit(claim: &Claim, summary: &str) -> Result<Value> {
    let body = json!({
        "idempotencyKey": format!("{}-result", claim.continuation_id),
        "payload": { "summary": summary },
    });
    let sent = client()?
        .put(&claim.result_url)
        .bearer_auth(&claim.token)
        .json(&body)
        .send();
    answer(sent.await?).await
}

/// How a task stands at the host.
///
/// # Errors
/// As [`submit`].
pub(crate) async fn status(claim: &Claim) -> Result<Value> {
    let asked = client()?
        .get(&claim.status_url)
        .bearer_auth(&claim.token)
        .send();
    answer(asked.await?).await
}

async fn answer(response: reqwest::Response) -> Result<Value> {
    let status = response.status();
    let answer: Value = response.json().await?;
    if !status.is_success() {
        bail!("the host refused: {status} {}", answer["error"]["code"]);
    }
    Ok(answer)
}
