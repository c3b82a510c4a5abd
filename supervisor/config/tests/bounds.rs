//! Every number's default and bounds, and every other limit of the key table.
#![allow(clippy::unwrap_used)]

use mono_config::{Diagnostic, Env, Fallback, Field, Kind, fields, load};
use serde_json::{Value, json};

/// Key, default, smallest, largest. The default is null where the key has none.
fn numbers() -> Vec<(&'static str, Value, Value, Value)> {
    const DAY: i64 = 86_400_000;
    const HOUR: i64 = 3_600_000;
    let row = |key, default: Value, min: i64, max: i64| (key, default, json!(min), json!(max));
    let none = Value::Null;
    vec![
        row("runtime.maxTurns", none.clone(), 0, 100),
        row("runtime.fallbacks[].attempts", json!(1), 1, 10),
        row("runtime.retry.primaryAttempts", json!(2), 1, 10),
        row("runtime.retry.backoffMs", json!(1000), 0, DAY),
        row("runtime.retry.maxBackoffMs", json!(15000), 0, DAY),
        row(
            "runtime.session.idleTimeoutMs",
            json!(1_800_000),
            1000,
            365 * DAY,
        ),
        (
            "runtime.compaction.triggerRatio",
            json!(0.7),
            json!(0.2),
            json!(0.95),
        ),
        row(
            "runtime.compaction.keepRecentTokens",
            none.clone(),
            4000,
            200_000,
        ),
        row(
            "runtime.compaction.summaryMaxTokens",
            none.clone(),
            1000,
            64_000,
        ),
        row(
            "runtime.compaction.minSavingsTokens",
            none.clone(),
            0,
            500_000,
        ),
        row(
            "runtime.compaction.contextWindowOverride",
            none.clone(),
            32_000,
            10_000_000,
        ),
        row("concurrency.maxConcurrentRuns", none.clone(), 1, 1000),
        row("concurrency.maxPendingRuns", none.clone(), 0, 100_000),
        row("providers.piNative.piMaxRetries", json!(2), 0, 8),
        row("providers.piNative.maxRetryDelayMs", json!(60_000), 0, DAY),
        row("providers.<id>.maxAdvertisedModels", json!(100), 1, 10_000),
        row("context.skillMaxBytes", json!(48_000), 256, 1_000_000),
        row("tools.gateway.maxSessions", json!(32), 1, 256),
        row("tools.gateway.maxBackends", json!(16), 1, 64),
        row("tools.mcpCallTimeoutMs", json!(120_000), 1, DAY),
        row("tools.mcpCallMaxTotalTimeoutMs", json!(2_700_000), 1, DAY),
        row("tools.web.search.maxRequestsPerRun", json!(4), 1, 20),
        row(
            "tools.mcpServers.<name>.sandbox.memoryMaxBytes",
            json!(4_294_967_296_i64),
            67_108_864,
            70_368_744_177_664,
        ),
        row(
            "sandbox.memoryMaxBytes",
            json!(4_294_967_296_i64),
            67_108_864,
            70_368_744_177_664,
        ),
        row("artifacts.retention.maxAgeDays", json!(365), 1, 3650),
        row("artifacts.retention.maxCount", json!(50_000), 1, 1_000_000),
        row("artifacts.memoryRetention.maxAgeDays", json!(7), 1, 3650),
        row(
            "artifacts.memoryRetention.maxCount",
            json!(5000),
            1,
            1_000_000,
        ),
        row("continuations.port", json!(4319), 1, 65_535),
        row(
            "continuations.limits.maxActiveRecords",
            json!(10_000),
            1,
            1_000_000,
        ),
        row(
            "continuations.limits.maxActivePerOrigin",
            json!(500),
            1,
            1_000_000,
        ),
        row("continuations.limits.maxConcurrent", json!(16), 1, 256),
        row(
            "continuations.limits.synthesisTimeoutMs",
            json!(600_000),
            1,
            DAY,
        ),
        row(
            "continuations.limits.deliveryTimeoutMs",
            json!(120_000),
            1,
            DAY,
        ),
        row("continuations.limits.operatorPageSize", json!(100), 1, 500),
        row(
            "continuations.retention.terminalMaxRecords",
            json!(50_000),
            0,
            10_000_000,
        ),
        row(
            "continuations.retention.terminalMaxAgeMs",
            json!(31_536_000_000_i64),
            0,
            3650 * DAY,
        ),
        row(
            "continuations.retention.capturedTextMaxRecords",
            json!(1000),
            0,
            1_000_000,
        ),
        row(
            "continuations.retention.capturedTextMaxAgeMs",
            json!(2_592_000_000_i64),
            0,
            3650 * DAY,
        ),
        row("memory.maxBytes", json!(64_000), 1024, 100_000_000),
        row("memory.embeddings.dim", json!(768), 1, 65_536),
        row("memory.embeddings.timeoutMs", json!(10_000), 1, 600_000),
        row(
            "memory.embeddings.circuitBreaker.failures",
            json!(3),
            1,
            1000,
        ),
        row(
            "memory.embeddings.circuitBreaker.cooldownMs",
            json!(30_000),
            1,
            DAY,
        ),
        row("memory.llm.timeoutMs", json!(60_000), 1000, 600_000),
        row(
            "interaction.askUser.timeoutMs",
            json!(600_000),
            1000,
            365 * DAY,
        ),
        row("interaction.bridge.port", json!(0), 0, 65_535),
        row("metrics.port", json!(9464), 0, 65_535),
        row("console.port", json!(5050), 0, 65_535),
        row("traceability.heartbeatMs", json!(10_000), 250, DAY),
        row("traceability.staleAfterMs", json!(30_000), 1000, 7 * DAY),
        row("openaiApi.port", json!(0), 0, 65_535),
        row("webhook.port", json!(0), 0, 65_535),
        row("webhook.retentionMs", json!(300_000), 1, DAY),
        row("webhook.maxStoredRequests", json!(100), 1, 10_000),
        row("webhook.maxRunMs", json!(1_200_000), 0, DAY),
        row(
            "webhook.maxAttachmentBytes",
            json!(20_971_520),
            0,
            104_857_600,
        ),
        row("webhook.callback.attempts", json!(5), 1, 10),
        row("webhook.callback.backoffMs", json!(1000), 0, DAY),
        row("webhook.callback.maxBackoffMs", json!(60_000), 0, DAY),
        row("webhook.callback.timeoutMs", json!(10_000), 1, 60_000),
        row("cron.notifyFailureCooldownHours", json!(6), 0, 8760),
        row("cron.preflightTimeoutMs", json!(5000), 1, 60_000),
        row(
            "cron.jobs[].notifyFailureCooldownHours",
            none.clone(),
            0,
            8760,
        ),
        row("cron.jobs[].preflightTimeoutMs", none.clone(), 1, 60_000),
        row("tui.port", json!(0), 0, 65_535),
        row("slack.threadContext.maxMessages", json!(15), 1, 30),
        row("slack.threadContext.requestLimit", json!(15), 1, 100),
        row("slack.threadContext.timeoutMs", json!(4000), 1, 600_000),
        row("slack.heartbeatIntervalMs", json!(30_000), 0, HOUR),
        row("slack.heartbeatTimeoutMs", json!(90_000), 0, HOUR),
        row("slack.reconnectInitialBackoffMs", json!(500), 0, HOUR),
        row("slack.reconnectMaxBackoffMs", json!(30_000), 0, HOUR),
        row("slack.reconnectStabilityMs", json!(30_000), 0, HOUR),
        row("slack.reconnectStartupGraceMs", json!(10_000), 0, HOUR),
        row("slack.drainDeadlineMs", json!(5000), 0, HOUR),
        row("telegram.pollWatchdogMs", json!(120_000), 1000, DAY),
        row(
            "telegram.attachments.maxBytes",
            json!(20_971_520),
            0,
            104_857_600,
        ),
        row(
            "telegram.attachments.downloadTimeoutMs",
            json!(30_000),
            1,
            HOUR,
        ),
        row(
            "telegram.attachments.maxUploadBytes",
            json!(20_971_520),
            0,
            104_857_600,
        ),
        row("a2a.provider.port", json!(4201), 0, 65_535),
        row(
            "a2a.provider.maxRequestBytes",
            json!(1_000_000),
            1024,
            100_000_000,
        ),
        row(
            "a2a.provider.idempotency.retentionMs",
            json!(2_592_000_000_i64),
            1,
            3650 * DAY,
        ),
        row(
            "a2a.provider.idempotency.maxRecords",
            json!(10_000),
            1,
            1_000_000,
        ),
    ]
}

/// Defaults that are no numbers.
fn others() -> Vec<(&'static str, Value)> {
    vec![
        ("runtime.workspace", json!(".")),
        ("runtime.session.mode", json!("continuous")),
        ("runtime.session.isolateProactive", json!(false)),
        ("runtime.session.rollover", json!("none")),
        ("runtime.session.rolloverNotice", json!(false)),
        ("runtime.compaction.enabled", json!(true)),
        ("runtime.compaction.fixedOverheadEnabled", json!(true)),
        ("providers.piNative.transport", json!("auto")),
        ("context.selectedSkills", json!([])),
        ("context.skillDisclosure", json!("full")),
        ("tools.allowedTools", json!(["*"])),
        ("tools.disallowedTools", json!([])),
        ("tools.appEndpoint", json!(false)),
        ("tools.gateway.enabled", json!(false)),
        ("tools.mcpRequestContextServers", json!([])),
        ("tools.continuationServers", json!([])),
        ("tools.web.search.backends", json!(["parallel", "ollama"])),
        ("tools.web.fetch.browserCommand", json!("agent-browser")),
        ("continuations.host", json!("127.0.0.1")),
        ("continuations.stateDir", json!(".mono-agent/continuations")),
        ("artifacts.dir", json!(".mono-agent/artifacts")),
        ("artifacts.retention.dryRun", json!(false)),
        ("memory.mode", json!("lite")),
        ("memory.path", json!(".mono-agent/memory")),
        ("memory.embeddings.provider", json!("ollama")),
        ("memory.embeddings.model", json!("nomic-embed-text:v1.5")),
        ("memory.recallTool.enabled", json!(true)),
        ("memory.rememberTool.enabled", json!(true)),
        ("memory.consolidation.enabled", json!(true)),
        ("memory.consolidation.cron", json!("0 */2 * * *")),
        ("interaction.bridge.host", json!("127.0.0.1")),
        ("interaction.progress.enabled", json!(true)),
        ("sandbox.mode", json!("native")),
        ("sandbox.network.mode", json!("none")),
        ("sandbox.network.allowlist", json!([])),
        ("sandbox.readableRoots", json!(["."])),
        ("sandbox.writableRoots", json!(["."])),
        (
            "sandbox.denyWrite",
            json!([".env", ".env.*", ".git/config", ".git/hooks/**"]),
        ),
        ("sandbox.fallback", json!("fail-closed")),
        ("metrics.enabled", json!(false)),
        ("console.enabled", json!(false)),
        ("console.host", json!("127.0.0.1")),
        ("console.allowedHosts", json!([])),
        ("metrics.host", json!("127.0.0.1")),
        ("traceability.globalDiscovery", json!(true)),
        ("cron.enabled", json!(false)),
        ("cron.dir", json!("cron")),
        ("cron.timezone", json!("UTC")),
        ("cron.notify", json!(false)),
        ("cron.operatorActions.enabled", json!(false)),
        ("webhook.enabled", json!(false)),
        ("webhook.host", json!("127.0.0.1")),
        ("webhook.path", json!("/webhook/invoke")),
        ("webhook.allowNonLoopback", json!(false)),
        ("webhook.defaultMode", json!("sync")),
        ("webhook.dir", json!("webhook")),
        ("openaiApi.enabled", json!(false)),
        ("openaiApi.host", json!("127.0.0.1")),
        ("openaiApi.basePath", json!("/v1")),
        ("openaiApi.modelId", json!("agent")),
        ("slack.threadContext.enabled", json!(true)),
        ("slack.threadContext.includeBotMessages", json!(true)),
        ("telegram.groupMode", json!("any")),
        ("telegram.sendTools.scope", json!("producing-conversation")),
        ("telegram.sendTools.pathScope", json!("run-output")),
        ("tui.enabled", json!(true)),
        ("tui.basePath", json!("/gui")),
        ("tui.host", json!("127.0.0.1")),
        ("a2a.provider.host", json!("127.0.0.1")),
        ("a2a.provider.allowNonLoopback", json!(false)),
    ]
}

fn default_of(field: &Field) -> Value {
    match field.default {
        Fallback::Unset | Fallback::Meaning(_) => Value::Null,
        Fallback::Bool(b) => json!(b),
        Fallback::Int(n) => json!(n),
        Fallback::Number(n) => json!(n),
        Fallback::Text(text) => json!(text),
        Fallback::Texts(texts) => json!(texts),
    }
}

/// The value put at the key pattern, map members called `x`, into the two required keys.
fn document(pattern: &str, value: Value) -> (String, Value) {
    let mut value = value;
    for part in pattern.split('.').rev() {
        let part = if part.starts_with('<') { "x" } else { part };
        value = match part.strip_suffix("[]") {
            Some(name) => json!({name: [value]}),
            None => json!({part: value}),
        };
    }
    let mut whole =
        json!({"runtime": {"model": "demo:scripted"}, "context": {"identityPath": "me.md"}});
    merge(&mut whole, value);
    let key: Vec<&str> = pattern
        .split('.')
        .map(|part| if part.starts_with('<') { "x" } else { part })
        .collect();
    (key.join(".").replace("[]", "[0]"), whole)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The errors that are about exactly this key (or a value in it).
fn errors(pattern: &str, value: Value) -> Vec<Diagnostic> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("me.md"), "me").unwrap();
    let (key, document) = document(pattern, value);
    let file = folder.path().join("c.json");
    std::fs::write(&file, document.to_string()).unwrap();
    match load(&file, &Env::new()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .diagnostics
            .into_iter()
            .filter(|d| d.is_error() && d.key == key)
            .collect(),
    }
}

fn refused(pattern: &str, value: Value, code: &str) {
    let found = errors(pattern, value.clone());
    let codes: Vec<&str> = found.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, [code], "{pattern} = {:.60}", value.to_string());
    assert!(
        found[0].expected.is_some() && found[0].line.is_some(),
        "{pattern}"
    );
}

#[test]
fn numbers_have_their_defaults_and_bounds() {
    for (key, default, min, max) in numbers() {
        let field = mono_config::field(key).unwrap_or_else(|| panic!("{key}"));
        assert_eq!(default_of(field), default, "{key}");
        assert!(errors(key, min.clone()).is_empty(), "{key} refuses {min}");
        assert!(errors(key, max.clone()).is_empty(), "{key} refuses {max}");
        let (below, above) = match (min.as_i64(), max.as_i64()) {
            (Some(min), Some(max)) => (json!(min - 1), json!(max + 1)),
            _ => (
                json!(min.as_f64().unwrap() - 0.01),
                json!(max.as_f64().unwrap() + 0.01),
            ),
        };
        refused(key, below, "out_of_range");
        refused(key, above, "out_of_range");
        refused(key, json!("x"), "wrong_type");
    }
}

#[test]
fn no_number_is_left_out_of_this_test() {
    let known: Vec<&str> = numbers().iter().map(|(key, ..)| *key).collect();
    for field in fields() {
        let number = matches!(
            field.kind,
            Kind::Int { .. } | Kind::Millis { .. } | Kind::Number { .. }
        );
        assert_eq!(number, known.contains(&field.key), "{}", field.key);
    }
}

#[test]
fn other_defaults() {
    for (key, default) in others() {
        assert_eq!(
            default_of(mono_config::field(key).unwrap_or_else(|| panic!("{key}"))),
            default,
            "{key}"
        );
    }
}

#[test]
fn whole_numbers_are_whole() {
    let key = "runtime.retry.primaryAttempts";
    assert!(errors(key, json!(3.0)).is_empty());
    for value in [json!(2.5), json!(true), json!([2]), json!(null), json!({})] {
        refused(key, value, "wrong_type");
    }
    refused("interaction.askUser.timeoutMs", json!(999), "out_of_range");
    assert!(errors("interaction.askUser.timeoutMs", json!(null)).is_empty());
}

#[test]
fn choices_take_their_words_and_no_other() {
    for field in fields() {
        match field.kind {
            Kind::Choice(of) => {
                for word in of {
                    assert!(
                        errors(field.key, json!(word))
                            .iter()
                            .all(|d| d.code != "not_a_choice"),
                        "{}",
                        field.key
                    );
                }
                refused(field.key, json!("no-such-word"), "not_a_choice");
            }
            Kind::IntChoice(of) => {
                assert!(errors(field.key, json!(of[0])).is_empty());
                refused(field.key, json!(99), "out_of_range");
            }
            Kind::Bool => {
                assert!(
                    errors(field.key, json!(true))
                        .iter()
                        .all(|d| d.code != "wrong_type"),
                    "{}",
                    field.key
                );
                refused(field.key, json!("true"), "wrong_type");
            }
            _ => {}
        }
    }
}

#[test]
fn every_length_has_its_limit() {
    for field in fields() {
        let many = |max: usize, value: Value| Value::Array(vec![value; max + 1]);
        match field.kind {
            Kind::Text { max, .. } => refused(field.key, json!("x".repeat(max + 1)), "too_long"),
            Kind::Path(_) | Kind::SecretFile => {
                refused(field.key, json!("x".repeat(4097)), "too_long")
            }
            Kind::SecretEnv => refused(field.key, json!("X".repeat(129)), "too_long"),
            Kind::SecretCredential => refused(field.key, json!("x".repeat(256)), "too_long"),
            Kind::List { max, .. } => refused(field.key, many(max, json!("x")), "too_many"),
            Kind::Records { max } => refused(field.key, many(max, json!({})), "too_many"),
            Kind::TextMap { max } | Kind::Map { max, .. } => {
                let value = if matches!(field.kind, Kind::Map { .. }) {
                    json!({})
                } else {
                    json!("x")
                };
                let map: serde_json::Map<_, _> = (0..=max)
                    .map(|n| (format!("n{n}"), value.clone()))
                    .collect();
                refused(field.key, Value::Object(map), "too_many");
            }
            _ => {}
        }
    }
}

#[test]
fn every_variable_sets_its_key() {
    for field in fields() {
        let Some(name) = field.env_name() else {
            continue;
        };
        let value = match (field.kind, field.key) {
            (Kind::Bool, _) => "false",
            (Kind::Int { .. }, _) => "1",
            (Kind::Millis { .. }, _) => "1000",
            (Kind::Choice(of), _) => of[0],
            (Kind::Records { .. }, _) => "[{\"model\": \"demo:scripted\"}]",
            (Kind::Map { .. }, _) => "{\"x\": {\"baseUrl\": \"http://127.0.0.1/v1\"}}",
            (_, "runtime.model") => "demo:scripted",
            (_, key) if key.ends_with("Path") || key.ends_with("path") => "/x",
            (_, "runtime.workspace") => ".",
            (_, key) if key.ends_with("host") => "127.0.0.1",
            (_, key) if key.ends_with("Servers") => "known",
            _ => "word",
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.md"), "me").unwrap();
        let (_, mut document) = document("tools.mcpServers.known.command", json!("x"));
        if field.key == "runtime.model" {
            document["runtime"] = json!({});
        }
        let file = folder.path().join("c.json");
        std::fs::write(&file, document.to_string()).unwrap();
        let env = Env::from([(name.clone(), value.to_string())]);
        let loaded = load(&file, &env).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let set = loaded.fields.iter().any(|report| {
            report.origin == mono_config::Origin::Env && report.key.starts_with(field.key)
        });
        assert!(set, "{name} doesn't set {}", field.key);
    }
}
