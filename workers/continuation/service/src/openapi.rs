//! The document of the surface, OpenAPI 3.1: made from one table, so that it names the calls that there are.

use serde_json::{Map, Value, json};

/// Which capability a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// A running turn's claim token.
    Claim,
    /// A detached service's bearer.
    Service,
    /// A continuation's result token.
    Result,
    /// The operator's token.
    Operator,
}

impl Capability {
    const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claimToken",
            Self::Service => "serviceBearer",
            Self::Result => "resultToken",
            Self::Operator => "operatorToken",
        }
    }

    /// The code for a wrong one.
    #[must_use]
    pub const fn refusal(self) -> &'static str {
        match self {
            Self::Claim => "invalid_claim_capability",
            Self::Service => "invalid_service_capability",
            Self::Result => "invalid_result_capability",
            Self::Operator => "invalid_operator_capability",
        }
    }
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The method.
    pub method: &'static str,
    /// The path, with `{id}` for a continuation's id.
    pub path: &'static str,
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Who may call.
    pub capability: Capability,
    /// The body's schema, and whether it must be there.
    pub body: Option<(&'static str, bool)>,
    /// Status and schema of a success.
    pub success: (u16, &'static str),
    /// Refusals of its own by status. Those that every call has are not repeated.
    pub refusals: &'static [(u16, &'static [&'static str])],
}

const CLAIM_FIELDS: &[&str] = &[
    "invalid_json",
    "invalid_body",
    "invalid_taskKey",
    "invalid_taskHash",
    "invalid_deadline",
    "deadline_too_far",
];
const DETACHED_FIELDS: &[&str] = &[
    "missing_service_name",
    "invalid_route",
    "invalid_json",
    "invalid_body",
    "invalid_taskKey",
    "invalid_taskHash",
    "invalid_deadline",
    "deadline_too_far",
];
const RESULT_REFUSALS: &[(u16, &[&str])] = &[
    NOT_FOUND,
    (
        400,
        &[
            "invalid_json",
            "invalid_body",
            "invalid_idempotencyKey",
            "missing_payload",
            "payload_hash_mismatch",
        ],
    ),
    (408, &["request_timeout"]),
    (409, &["result_conflict", "result_not_accepted"]),
    (410, &["continuation_expired"]),
    (413, &["payload_too_large"]),
];
const FULL: (u16, &[&str]) = (429, &["active_continuation_limit", "active_origin_limit"]);
const NOT_FOUND: (u16, &[&str]) = (404, &["not_found"]);
const SLOW: (u16, &[&str]) = (408, &["request_timeout"]);
const LARGE: (u16, &[&str]) = (413, &["payload_too_large"]);

/// Refusals that every call has, besides its capability's.
pub const COMMON: &[(u16, &[&str])] = &[
    (401, &["missing_capability", "invalid_capability"]),
    (403, &["forbidden_host", "forbidden_origin"]),
    (500, &["internal_error"]),
    (503, &["service_stopping", "service_busy"]),
];

/// Every call.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/v1/continuations/claim",
        name: "claim",
        summary: "Claims a continuation for the turn that the token belongs to. Repeats are idempotent.",
        capability: Capability::Claim,
        body: Some(("Claim", true)),
        success: (200, "Claimed"),
        refusals: &[
            (400, CLAIM_FIELDS),
            SLOW,
            (409, &["claim_conflict"]),
            LARGE,
            FULL,
        ],
    },
    Operation {
        method: "post",
        path: "/v1/continuations/detached/claim",
        name: "claimDetached",
        summary: "Claims a continuation on a named route, without a turn. Repeats are idempotent.",
        capability: Capability::Service,
        body: Some(("DetachedClaim", true)),
        success: (200, "Claimed"),
        refusals: &[
            (400, DETACHED_FIELDS),
            (403, &["unknown_named_route"]),
            SLOW,
            (409, &["claim_conflict"]),
            LARGE,
            FULL,
        ],
    },
    Operation {
        method: "put",
        path: "/v1/continuations/{id}/result",
        name: "putResult",
        summary: "Submits the one result. Repeats are idempotent.",
        capability: Capability::Result,
        body: Some(("Result", true)),
        success: (202, "Accepted"),
        refusals: RESULT_REFUSALS,
    },
    Operation {
        method: "post",
        path: "/v1/continuations/{id}/result",
        name: "postResult",
        summary: "The same as PUT.",
        capability: Capability::Result,
        body: Some(("Result", true)),
        success: (202, "Accepted"),
        refusals: RESULT_REFUSALS,
    },
    Operation {
        method: "get",
        path: "/v1/continuations/{id}/status",
        name: "status",
        summary: "How a continuation stands.",
        capability: Capability::Result,
        body: None,
        success: (200, "Status"),
        // Of a path that no id can stand in; an unknown id is 401.
        refusals: &[NOT_FOUND],
    },
    Operation {
        method: "get",
        path: "/v1/operator/continuations",
        name: "list",
        summary: "A page of all continuations, newest first.",
        capability: Capability::Operator,
        body: None,
        success: (200, "Page"),
        refusals: &[(400, &["invalid_page_limit", "invalid_page_cursor"])],
    },
    Operation {
        method: "get",
        path: "/v1/operator/health",
        name: "health",
        summary: "How it stands with all continuations together.",
        capability: Capability::Operator,
        body: None,
        success: (200, "Health"),
        refusals: &[],
    },
    Operation {
        method: "get",
        path: "/v1/operator/continuations/{id}",
        name: "show",
        summary: "One continuation.",
        capability: Capability::Operator,
        body: None,
        success: (200, "Status"),
        refusals: &[NOT_FOUND],
    },
    Operation {
        method: "get",
        path: "/v1/operator/continuations/{id}/captured",
        name: "captured",
        summary: "The text of a delivered capture, and of nothing else.",
        capability: Capability::Operator,
        body: None,
        success: (200, "Captured"),
        refusals: &[NOT_FOUND],
    },
    Operation {
        method: "post",
        path: "/v1/operator/continuations/{id}/retry",
        name: "retry",
        summary: "Tries a delivery again; an unknown one only by an explicit word.",
        capability: Capability::Operator,
        body: Some(("Retry", false)),
        success: (200, "Status"),
        refusals: &[
            (400, &["invalid_json", "invalid_body"]),
            NOT_FOUND,
            SLOW,
            (
                409,
                &[
                    "delivery_unknown",
                    "not_retryable",
                    "synthesis_not_retryable",
                    "resolution_in_progress",
                ],
            ),
            LARGE,
        ],
    },
    Operation {
        method: "post",
        path: "/v1/operator/continuations/{id}/cancel",
        name: "cancel",
        summary: "Ends a continuation that is neither over nor being worked on.",
        capability: Capability::Operator,
        body: Some(("Nothing", false)),
        success: (200, "Status"),
        refusals: &[
            (400, &["invalid_json", "invalid_body"]),
            NOT_FOUND,
            SLOW,
            (409, &["already_terminal", "continuation_in_flight"]),
            LARGE,
        ],
    },
    Operation {
        method: "post",
        path: "/v1/operator/continuations/{id}/resolve",
        name: "resolve",
        summary: "Says what became of a delivery whose outcome is unknown.",
        capability: Capability::Operator,
        body: Some(("Resolution", true)),
        success: (200, "Status"),
        refusals: &[
            (400, &["invalid_json", "invalid_body", "invalid_resolution"]),
            NOT_FOUND,
            SLOW,
            (409, &["not_delivery_unknown", "resolution_in_progress"]),
            LARGE,
        ],
    },
];

impl Operation {
    /// All its refusals by status.
    #[must_use]
    pub fn all_refusals(&self) -> Vec<(u16, Vec<&'static str>)> {
        let mut all: Vec<(u16, Vec<&'static str>)> = Vec::new();
        let own = self.refusals.iter().chain(COMMON);
        let capability = (401, [self.capability.refusal()].to_vec());
        let own = own.map(|(status, codes)| (*status, codes.to_vec()));
        for (status, codes) in own.chain([capability]) {
            match all.iter_mut().find(|(known, _)| *known == status) {
                Some((_, known)) => known.extend(codes),
                None => all.push((status, codes)),
            }
        }
        all.sort_by_key(|(status, _)| *status);
        all
    }

    fn describe(&self) -> Value {
        let mut parameters = Vec::new();
        if self.path.contains("{id}") {
            parameters.push(json!({
                "name": "id", "in": "path", "required": true,
                "description": "The continuation's id.",
                "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,256}$" },
            }));
        }
        if self.capability == Capability::Service {
            parameters.push(json!({
                "name": "X-Mono-Agent-Service-Name", "in": "header", "required": true,
                "description": "The detached service's configured name.",
                "schema": { "type": "string", "minLength": 1, "maxLength": 256 },
            }));
        }
        if self.name == "list" {
            parameters.push(json!({
                "name": "limit", "in": "query",
                "description": "Lowers the configured size of a page.",
                "schema": { "type": "integer", "minimum": 1, "maximum": 500 },
            }));
            parameters.push(json!({
                "name": "cursor", "in": "query",
                "description": "`nextCursor` of the page before; opaque.",
                "schema": { "type": "string", "minLength": 1, "maxLength": 512 },
            }));
        }
        let mut responses = Map::new();
        let (status, schema) = self.success;
        responses.insert(status.to_string(), answer("Done.", schema));
        for (status, codes) in self.all_refusals() {
            let mut told = answer(&format!("`{}`", codes.join("`, `")), "Error");
            told["x-codes"] = codes.into();
            responses.insert(status.to_string(), told);
        }
        let mut described = json!({
            "operationId": self.name,
            "summary": self.summary,
            "security": [{ self.capability.name(): [] }],
            "parameters": parameters,
            "responses": responses,
        });
        if let Some((schema, required)) = self.body {
            described["requestBody"] = json!({
                "required": required,
                "content": { "application/json": { "schema": reference(schema) } },
            });
        }
        described
    }
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn answer(description: &str, schema: &str) -> Value {
    json!({
        "description": description,
        "headers": {
            "Cache-Control": { "required": true, "schema": { "const": "no-store" } },
            "X-Content-Type-Options": { "required": true, "schema": { "const": "nosniff" } },
        },
        "content": { "application/json": { "schema": reference(schema) } },
    })
}

fn text(most: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": most })
}

fn time() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$" })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn closed(required: &[&str], properties: Value) -> Value {
    let mut schema = object(required, properties);
    schema["additionalProperties"] = false.into();
    schema
}

fn states() -> Vec<&'static str> {
    continuation_record::State::ALL
        .map(continuation_record::State::name)
        .to_vec()
}

fn requests() -> Value {
    let deadline = json!({
        "type": "string", "minLength": 1, "maxLength": 64,
        "description": "ISO 8601 with a zone; in the future and at most 30 days away.",
    });
    let claim = json!({
        "taskKey": text(256),
        "taskHash": text(256),
        "deadline": deadline,
    });
    let mut detached = claim.clone();
    detached["route"] = text(256);
    json!({
        "Claim": object(&["taskKey", "taskHash", "deadline"], claim),
        "DetachedClaim": object(&["route", "taskKey", "taskHash", "deadline"], detached),
        "Result": object(&["idempotencyKey", "payload"], json!({
            "idempotencyKey": text(256),
            "payloadHash": {
                "type": "string", "pattern": "^[0-9a-f]{64}$",
                "description": "SHA-256 of the payload's canonical JSON, in lower-case hex.",
            },
            "payload": { "description": "Any JSON value; the whole body has at most 256 KiB." },
        })),
        "Nothing": { "type": "object" },
        "Retry": object(&[], json!({ "allowUnknown": { "type": "boolean" } })),
        "Resolution": object(&["kind"], json!({
            "kind": { "enum": ["delivered", "not_delivered", "dead_lettered"] },
            "deliveryId": text(256),
        })),
    })
}

fn answers() -> Value {
    let count = || json!({ "type": "integer", "minimum": 0 });
    let counts: Map<String, Value> = states()
        .into_iter()
        .map(|state| (state.to_owned(), count()))
        .collect();
    let status_required = [
        "continuationId",
        "state",
        "mode",
        "taskKey",
        "createdAt",
        "updatedAt",
        "deadline",
        "attempts",
        "synthesisDeferrals",
        "originContext",
    ];
    json!({
        "Claimed": closed(
            &["continuationId", "resultUrl", "statusUrl", "token", "expiresAt", "fingerprint"],
            json!({
                "continuationId": text(256),
                "resultUrl": { "type": "string" },
                "statusUrl": { "type": "string" },
                "token": { "type": "string", "pattern": "^[A-Za-z0-9_-]{43}$" },
                "expiresAt": time(),
                "fingerprint": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
                "replayed": { "const": true },
            }),
        ),
        "Captured": closed(&["continuationId", "text"], json!({
            "continuationId": text(256),
            "text": text(200_000),
        })),
        "Accepted": closed(&["continuationId", "state", "accepted"], json!({
            "continuationId": text(256),
            "state": { "enum": states() },
            "accepted": { "const": true },
        })),
        "Status": closed(&status_required, json!({
            "continuationId": text(256),
            "state": { "enum": states() },
            "mode": { "enum": ["reply", "notify_if_actionable", "capture", "silent"] },
            "taskKey": text(256),
            "createdAt": time(),
            "updatedAt": time(),
            "deadline": time(),
            "attempts": closed(&["synthesis", "delivery"], json!({
                "synthesis": count(), "delivery": count(),
            })),
            "synthesisDeferrals": count(),
            "originContext": closed(&["state"], json!({
                "state": { "enum": ["pending", "pinned", "abandoned", "detached_latest", "legacy_missing", "scrubbed"] },
                "digest": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
                "messageCount": { "type": "integer", "minimum": 1, "maximum": 64 },
            })),
            "completionKind": { "enum": ["synthesized", "origin_context_unavailable"] },
            "nextAttemptAt": time(),
            "lastError": closed(&["code", "reason", "at"], json!({
                "code": text(128),
                "reason": { "type": "string", "maxLength": 1000 },
                "at": time(),
            })),
            "receipt": closed(&["kind", "deliveredAt"], json!({
                "kind": { "enum": ["delivered", "suppressed", "captured", "silent"] },
                "deliveredAt": time(),
                "deliveryId": { "type": "string" },
                "channelId": { "type": "string" },
                "historyRecorded": { "type": "boolean" },
                "historyErrorCode": text(128),
            })),
        })),
        "Page": closed(&["continuations", "pageSize"], json!({
            "continuations": { "type": "array", "maxItems": 500, "items": reference("Status") },
            "pageSize": { "type": "integer", "minimum": 1, "maximum": 500 },
            "nextCursor": { "type": "string", "minLength": 1, "maxLength": 512 },
        })),
        "Health": closed(&["status", "checkedAt", "counts", "pending", "due", "storage"], json!({
            "status": { "enum": ["healthy", "degraded", "unhealthy"] },
            "checkedAt": time(),
            "counts": closed(&states(), Value::Object(counts)),
            "pending": count(),
            "due": count(),
            "oldestPendingAt": time(),
            "clock": closed(&["steppedByMs", "heldForMs"], json!({
                "steppedByMs": { "type": "integer" }, "heldForMs": count(),
            })),
            "storage": object(
                &["format", "records", "active", "unresolvedDelivery", "deadLettered", "terminalTombstones",
                  "compacted", "capturedText", "historyDegraded", "limits"],
                json!({
                    "format": { "const": "per-record-v3" },
                    "records": count(), "active": count(), "unresolvedDelivery": count(),
                    "deadLettered": count(), "terminalTombstones": count(), "compacted": count(),
                    "capturedText": count(), "historyDegraded": count(),
                    "limits": { "type": "object" },
                }),
            ),
        })),
        "Error": closed(&["error"], json!({
            "error": closed(&["code", "message"], json!({
                "code": text(128), "message": { "type": "string" },
            })),
        })),
    })
}

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.describe();
    }
    let mut schemas = requests();
    if let (Value::Object(all), Value::Object(more)) = (&mut schemas, answers()) {
        all.extend(more);
    }
    let bearer = |description: &str| json!({ "type": "http", "scheme": "bearer", "description": description });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Durable continuations",
            "version": "1",
            "description": "Background work whose answer arrives once. Loopback only: the Host header must name this machine, and a request with an Origin header is refused. A wrong method on a known path is 404, but 405 for what operators read.",
        },
        "servers": [{ "url": "http://127.0.0.1:4319" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "claimToken": bearer("MONO_AGENT_CONTINUATION_CLAIM_TOKEN of the request that is under way."),
                "serviceBearer": bearer("The detached service's own."),
                "resultToken": bearer("`token` of the claim's answer."),
                "operatorToken": bearer("Derived from the owner-only secret."),
            },
        },
    })
}
