//! What ties a claim to its origin: fingerprints, digests and the seal over the claim's immutable fields.
//!
//! The labels and inputs are a contract with state folders that earlier versions wrote; they must not change.

use crate::token::{Secret, same};
use crate::{Time, canonical};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const SNAPSHOT_LABEL: &str = "mono-agent-origin-context-v1";
const BINDING_LABEL: &str = "mono-agent-origin-context-binding-v2";
const GROUP_LABEL: &str = "mono-agent-origin-context-group-v1";
const MEMBERS_LABEL: &str = "mono-agent-origin-context-members-v1";

/// SHA-256 of the parts with one zero byte between them, in lower-case hex.
fn joined(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            hash.update([0]);
        }
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// The canonical text of values of ours, which always have one.
fn text(value: &Value) -> String {
    canonical::of(value).unwrap_or_default()
}

/// What a claim of a running turn is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The MCP server that claims.
    pub server: &'a str,
    /// The turn's run.
    pub run: &'a str,
    /// The conversation of the history, with its rollover bucket.
    pub conversation: &'a str,
    /// The physical conversation that gets the answer.
    pub reply_to: Option<&'a str>,
    /// The history's boundary; the run's id where the host names none.
    pub boundary: Option<&'a str>,
    /// The mode's name on the wire.
    pub mode: &'a str,
}

impl Origin<'_> {
    /// The claim's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        joined(&[
            "v1",
            self.server,
            self.run,
            self.conversation,
            self.reply_to.unwrap_or(""),
            self.boundary.unwrap_or(self.run),
            self.mode,
        ])
    }
}

/// The fingerprint of a claim without an origin: one service on one named route.
#[must_use]
pub fn detached_fingerprint(
    service: &str,
    route: &str,
    mode: &str,
    conversation: Option<&str>,
) -> String {
    joined(&[
        "v1-detached",
        service,
        route,
        mode,
        conversation.unwrap_or(""),
    ])
}

/// The digest of a snapshot, which is also its blob's name. `canonical` is its canonical JSON.
#[must_use]
pub fn snapshot_digest(canonical: &str) -> String {
    joined(&[SNAPSHOT_LABEL, canonical])
}

/// `originContextFingerprint`: one claim with one snapshot.
#[must_use]
pub fn binding_fingerprint(claim_fingerprint: &str, digest: &str) -> String {
    joined(&[BINDING_LABEL, claim_fingerprint, digest])
}

/// The key of the claims that one activation commits together.
#[must_use]
pub fn group_key(run: &str, conversation: &str, boundary: &str) -> String {
    let group = json!({
        "originRunId": run,
        "originConversationId": conversation,
        "historyBoundary": boundary,
    });
    joined(&[GROUP_LABEL, &text(&group)])
}

/// The digest of a group's members.
#[must_use]
pub fn members_digest<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    let mut ids: Vec<&str> = ids.into_iter().collect();
    // The order that wrote the ids of records that were taken over.
    ids.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    joined(&[MEMBERS_LABEL, &text(&json!(ids))])
}

/// The fields that the seal covers: all that a claim fixed, and the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// The record's id.
    pub continuation_id: &'a str,
    /// The claim's fingerprint.
    pub claim_fingerprint: &'a str,
    /// The MCP server, or `detached:` and the service.
    pub server_name: &'a str,
    /// The origin's run.
    pub origin_run_id: &'a str,
    /// The origin's conversation.
    pub origin_conversation_id: &'a str,
    /// Where the answer goes.
    pub reply_to_conversation_id: Option<&'a str>,
    /// The history's boundary.
    pub history_boundary: Option<&'a str>,
    /// The mode's name on the wire.
    pub mode: &'a str,
    /// The named route.
    pub route_name: Option<&'a str>,
    /// The service's key of the task.
    pub task_key: &'a str,
    /// The service's hash of the task.
    pub task_hash: &'a str,
    /// Digest of the result token.
    pub result_token_hash: &'a str,
    /// When it was claimed.
    pub created_at: Time,
    /// The deadline.
    pub deadline: Time,
    /// The snapshot's digest.
    pub digest: &'a str,
    /// The snapshot's canonical JSON in bytes.
    pub bytes: u64,
    /// The snapshot's messages.
    pub message_count: u32,
}

impl Sealed<'_> {
    /// `originContextBindingMac`: 64 lower-case hex digits.
    #[must_use]
    pub fn mac(&self, secret: &Secret) -> String {
        let fields: Value = json!({
            "version": 2,
            "continuationId": self.continuation_id,
            "claimFingerprint": self.claim_fingerprint,
            "serverName": self.server_name,
            "originRunId": self.origin_run_id,
            "originConversationId": self.origin_conversation_id,
            "replyToConversationId": self.reply_to_conversation_id,
            "historyBoundary": self.history_boundary,
            "mode": self.mode,
            "routeName": self.route_name,
            "taskKey": self.task_key,
            "taskHash": self.task_hash,
            "resultTokenHash": self.result_token_hash,
            "createdAt": self.created_at,
            "deadline": self.deadline,
            "originContextDigest": self.digest,
            "originContextBytes": self.bytes,
            "originContextMessageCount": self.message_count,
        });
        hex::encode(secret.seal(&[text(&fields).as_bytes()]))
    }

    /// Whether `mac` is this record's seal.
    #[must_use]
    pub fn verify(&self, secret: &Secret, mac: &str) -> bool {
        same(&self.mac(secret), mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin<'static> = Origin {
        server: "work-control",
        run: "run-1",
        conversation: "slack:C:T#2030-01-01",
        reply_to: Some("slack:C:T"),
        boundary: None,
        mode: "reply",
    };

    fn sealed() -> Sealed<'static> {
        Sealed {
            continuation_id: "c-1",
            claim_fingerprint: "f",
            server_name: "work-control",
            origin_run_id: "run-1",
            origin_conversation_id: "slack:C:T#2030-01-01",
            reply_to_conversation_id: Some("slack:C:T"),
            history_boundary: Some("run-1"),
            mode: "reply",
            route_name: None,
            task_key: "k",
            task_hash: "h",
            result_token_hash: "t",
            created_at: Time::from_ms(1_893_456_000_000),
            deadline: Time::from_ms(1_893_542_400_000),
            digest: "d",
            bytes: 123,
            message_count: 2,
        }
    }

    /// Calculated with another program from the inputs that the contract names.
    #[test]
    fn vectors() {
        assert_eq!(
            ORIGIN.fingerprint(),
            "ea2f3616179d7414683c87d121bcfbaedccf3b5ee80ce48b9128d1d21c21351c"
        );
        assert_eq!(
            detached_fingerprint("s", "r", "silent", None),
            "9650e0903afe4185d9563c7d7abb2393b2f74bec4239d9d4af806079c6126414"
        );
        assert_eq!(
            snapshot_digest("{}"),
            "6ee2e3e24c4b2e2de1b57792bd10080c00fa5e6c64ef597ac19368ea56c0bcb7"
        );
        assert_eq!(
            binding_fingerprint("f", "d"),
            "7ad4b6fd4a66fc877d8854f7650184332ed826833b666f5b6bb6243b648a25da"
        );
        assert_eq!(
            group_key("run-1", "c", "run-1"),
            "7098b6246670d4b57309421e40caa4c740d6a2a79d5b5a0350c5f19935445186"
        );
        assert_eq!(
            members_digest(["b", "a"]),
            "069c2740cf3c11fd9c5a0e2989f8361c8943b923a702929b47fd61bdb0e65f49"
        );
        assert_eq!(
            sealed().mac(&Secret::new(std::array::from_fn(|i| i as u8))),
            "a971313e416516f4a385b42c768df78c113738125b4be6287a990c8aa53c5cd5"
        );
    }

    #[test]
    fn the_boundary_is_the_run_where_none_is_named() {
        let named = Origin {
            boundary: Some("run-1"),
            ..ORIGIN
        };
        assert_eq!(ORIGIN.fingerprint(), named.fingerprint());
    }

    #[test]
    fn every_bound_field_changes_the_fingerprint() {
        let known = ORIGIN.fingerprint();
        for other in [
            Origin {
                server: "x",
                ..ORIGIN
            },
            Origin { run: "x", ..ORIGIN },
            Origin {
                conversation: "slack:C:T",
                ..ORIGIN
            },
            Origin {
                reply_to: None,
                ..ORIGIN
            },
            Origin {
                boundary: Some("x"),
                ..ORIGIN
            },
            Origin {
                mode: "capture",
                ..ORIGIN
            },
        ] {
            assert_ne!(known, other.fingerprint(), "{other:?}");
        }
    }

    #[test]
    fn every_sealed_field_changes_the_seal() {
        let secret = Secret::new([9; 32]);
        let mac = sealed().mac(&secret);
        assert!(sealed().verify(&secret, &mac));
        assert!(!sealed().verify(&Secret::new([8; 32]), &mac));
        assert!(!sealed().verify(&secret, &mac.to_uppercase()));
        assert!(!sealed().verify(&secret, ""));
        let s = sealed();
        for other in [
            Sealed {
                continuation_id: "x",
                ..s
            },
            Sealed {
                claim_fingerprint: "x",
                ..s
            },
            Sealed {
                server_name: "x",
                ..s
            },
            Sealed {
                origin_run_id: "x",
                ..s
            },
            Sealed {
                origin_conversation_id: "x",
                ..s
            },
            Sealed {
                reply_to_conversation_id: None,
                ..s
            },
            Sealed {
                history_boundary: None,
                ..s
            },
            Sealed { mode: "x", ..s },
            Sealed {
                route_name: Some("x"),
                ..s
            },
            Sealed { task_key: "x", ..s },
            Sealed {
                task_hash: "x",
                ..s
            },
            Sealed {
                result_token_hash: "x",
                ..s
            },
            Sealed {
                created_at: Time::ZERO,
                ..s
            },
            Sealed {
                deadline: Time::MAX,
                ..s
            },
            Sealed { digest: "x", ..s },
            Sealed { bytes: 124, ..s },
            Sealed {
                message_count: 3,
                ..s
            },
        ] {
            assert!(!other.verify(&secret, &mac), "{other:?}");
        }
    }
}
