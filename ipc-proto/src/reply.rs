//! The reply model: text plus ordered parts (facts 5.1; spec s0, "Reply files and MCP Apps").

use serde::{Deserialize, Serialize};

/// Files and apps together per run (spec s0, "Publishing a reply file").
pub const MAX_PARTS: usize = 20;

/// Codes that a reply part's failure may carry (spec s0, "Machine delivery outcome wire contract").
pub const FAILURE_CODES: [&str; 10] = [
    "app_capability_mismatch",
    "app_connection_closed",
    "app_resource_invalid",
    "artifact_expired",
    "artifact_integrity_failed",
    "artifact_missing",
    "artifact_publish_failed",
    "artifact_too_large",
    "reply_part_too_large",
    "unsupported_destination",
];

/// The opaque reference of a reply file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactReference {
    /// Always `mono-agent-artifact`.
    pub scheme: String,
    /// The artifact's id, ≤ 128 bytes.
    pub id: String,
}

/// One part of a reply beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReplyPart {
    /// A published file.
    #[serde(rename_all = "camelCase")]
    Attachment {
        /// The part's id.
        id: String,
        /// Where its owner finds it.
        reference: ArtifactReference,
        /// Display name, ≤ 240 bytes.
        name: String,
        /// `type/subtype`.
        media_type: String,
        /// Size in bytes.
        size_bytes: u64,
        /// `sha256:<hex>`.
        integrity_id: String,
        /// RFC 3339 time after which it is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<String>,
    },
    /// A part that could not be made or delivered.
    #[serde(rename_all = "camelCase")]
    Failure {
        /// The part's id.
        id: String,
        /// One of [`FAILURE_CODES`].
        code: String,
        /// A constant chosen by code.
        message: String,
        /// The part that failed, when there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        related_part_id: Option<String>,
    },
}

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
    /// Only on the overflow record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affected_part_count: Option<usize>,
}

/// The fixed overflow message (spec s0).
const OVERFLOW_MESSAGE: &str =
    "Additional reply parts exceeded the bounded delivery outcome limit.";

fn outcome(index: usize, part: &ReplyPart) -> PartOutcome {
    let (part_type, code, message) = match part {
        ReplyPart::Attachment { .. } => (
            "attachment",
            "unsupported_destination",
            "Attachment reply parts are unsupported on this destination.",
        ),
        ReplyPart::Failure { code, .. } => {
            match FAILURE_CODES.iter().find(|known| *known == code) {
                Some(known) => ("failure", *known, failure_message(known)),
                None => (
                    "unknown",
                    "unsupported_destination",
                    "This reply part is unsupported on this destination.",
                ),
            }
        }
    };
    PartOutcome {
        part_index: index,
        part_type,
        status: "failed",
        code,
        message,
        affected_part_count: None,
    }
}

/// The constant that goes with a failure code; producer text is never copied (spec s0).
#[must_use]
pub fn failure_message(code: &str) -> &'static str {
    match code {
        "app_capability_mismatch" => {
            "The app needs a capability that this destination does not have."
        }
        "app_connection_closed" => "The app's connection is closed.",
        "app_resource_invalid" => "The app's resource is not valid.",
        "artifact_expired" => "The file is no longer kept.",
        "artifact_integrity_failed" => "The file did not pass its integrity check.",
        "artifact_missing" => "The file is missing.",
        "artifact_publish_failed" => "The file could not be published.",
        "artifact_too_large" => "The file is larger than the limit.",
        "reply_part_too_large" => "The reply holds more parts than the limit.",
        _ => "This reply part is unsupported on this destination.",
    }
}

/// Outcomes for a destination that delivers no parts natively: at most 20, dense, fixed messages;
/// above 20 the first 19 and one counted aggregate. Empty for no parts (the field is left out).
#[must_use]
pub fn outcomes(parts: &[ReplyPart]) -> Vec<PartOutcome> {
    let kept = if parts.len() > MAX_PARTS {
        MAX_PARTS - 1
    } else {
        parts.len()
    };
    let mut out: Vec<_> = parts
        .iter()
        .take(kept)
        .enumerate()
        .map(|(i, p)| outcome(i, p))
        .collect();
    if parts.len() > MAX_PARTS {
        out.push(PartOutcome {
            part_index: MAX_PARTS - 1,
            part_type: "unknown",
            status: "failed",
            code: "reply_part_too_large",
            message: OVERFLOW_MESSAGE,
            affected_part_count: Some(parts.len() - (MAX_PARTS - 1)),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn failure(code: &str) -> ReplyPart {
        ReplyPart::Failure {
            id: "secret-id".into(),
            code: code.into(),
            message: "/etc/producer text".into(),
            related_part_id: None,
        }
    }

    fn attachment() -> ReplyPart {
        ReplyPart::Attachment {
            id: "p".into(),
            reference: ArtifactReference {
                scheme: "mono-agent-artifact".into(),
                id: "a".into(),
            },
            name: "x.csv".into(),
            media_type: "text/csv".into(),
            size_bytes: 1,
            integrity_id: "sha256:00".into(),
            expires_at: None,
        }
    }

    #[test]
    fn the_ordinary_record_is_exact() {
        let json = serde_json::to_string(&outcomes(&[attachment()])).unwrap();
        assert_eq!(
            json,
            r#"[{"partIndex":0,"partType":"attachment","status":"failed","code":"unsupported_destination","message":"Attachment reply parts are unsupported on this destination."}]"#
        );
    }

    #[test]
    fn producer_text_ids_and_unknown_codes_never_pass() {
        let parts = [failure("artifact_missing"), failure("my_code")];
        let out = outcomes(&parts);
        assert_eq!(out[0].code, "artifact_missing");
        assert_eq!(
            (out[1].part_type, out[1].code),
            ("unknown", "unsupported_destination")
        );
        let json = serde_json::to_string(&out).unwrap();
        assert!(
            !json.contains("producer") && !json.contains("secret") && !json.contains("my_code")
        );
    }

    #[test]
    fn twenty_one_parts_become_nineteen_and_a_count() {
        let out = outcomes(&vec![attachment(); 21]);
        assert_eq!(out.len(), 20);
        assert_eq!(out[19].affected_part_count, Some(2));
        assert_eq!(
            (out[19].part_type, out[19].code, out[19].message),
            ("unknown", "reply_part_too_large", OVERFLOW_MESSAGE)
        );
        assert_eq!(
            outcomes(&vec![attachment(); 20])[19].affected_part_count,
            None
        );
        assert!(outcomes(&[]).is_empty());
    }

    #[test]
    fn every_code_has_a_message_of_its_own() {
        let all: std::collections::BTreeSet<_> =
            FAILURE_CODES.iter().map(|c| failure_message(c)).collect();
        assert_eq!(all.len(), FAILURE_CODES.len());
    }
}
