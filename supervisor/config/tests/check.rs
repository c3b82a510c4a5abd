//! The report of `config check`.
#![allow(clippy::unwrap_used)]

use mono_config::{Env, Report, Status, check};
use std::path::Path;

fn report(config: &str, env: &[(&str, &str)]) -> (Report, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("me.md"), "me").unwrap();
    let file = folder.path().join("c.json");
    std::fs::write(&file, config).unwrap();
    let env: Env = env
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let report = check(&file, &env);
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        before,
        "a check creates nothing"
    );
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains(folder.path().to_str().unwrap()), "{json}");
    (report, json)
}

fn status(report: &Report, id: &str) -> Status {
    report
        .sections
        .iter()
        .find(|section| section.id == id)
        .unwrap_or_else(|| panic!("{id}"))
        .status
}

const HEAD: &str = "\"context\": {\"identityPath\": \"me.md\"}";

#[test]
fn a_minimal_configuration_is_ready() {
    let (report, json) = report(
        &format!("{{\"runtime\": {{\"model\": \"demo:scripted\"}}, {HEAD}}}"),
        &[],
    );
    assert!(report.ok && !report.needs_attention(), "{report}");
    assert_eq!(status(&report, "memory"), Status::Disabled);
    assert_eq!(status(&report, "openaiApi"), Status::Disabled);
    assert!(
        report
            .sections
            .iter()
            .all(|section| section.id != "secrets")
    );
    assert!(json.starts_with("{\"ok\":true,\"sections\":[{\"id\":\"runtime\",\"status\":\"ok\",\"details\":[\"model: demo:scripted\"]}"), "{json}");
    assert!(report.to_string().ends_with("the configuration is valid"));
}

#[test]
fn a_file_of_servers_is_shown_where_it_was_found_with_its_servers() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(folder.path().join("me.md"), "me").unwrap();
    let file = folder.path().join("c.json");
    let runtime = "\"runtime\": {\"model\": \"demo:scripted\", \"workspace\": \"work\"}";
    let tools = "\"tools\": {\"mcpConfigPath\": \"./mcp.json\"}";
    std::fs::write(&file, format!("{{{runtime}, {HEAD}, {tools}}}")).unwrap();
    let told = || check(&file, &Env::new()).to_string();
    let missing = told();
    assert!(
        missing.contains("an MCP config file is missing: ./work/mcp.json"),
        "{missing}"
    );
    let servers = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://b.example/sse"},
        "c": {"url": "https://c.example/mcp"}}}"#;
    std::fs::write(workspace.join("mcp.json"), servers).unwrap();
    let found = told();
    for line in [
        "MCP config: ./work/mcp.json",
        "MCP server: a (stdio)",
        "MCP server: b (sse)",
        "MCP server: c (http)",
    ] {
        assert!(found.contains(line), "{found}");
    }
}

#[test]
fn webhooks_are_served_and_what_they_do_not_do_is_said() {
    let with = |webhook: &str| {
        report(
            &format!(
                "{{\"runtime\": {{\"model\": \"demo:scripted\"}}, {HEAD}, \"webhook\": {webhook}}}"
            ),
            &[],
        )
    };
    let (plain, _) = with("{\"enabled\": true}");
    assert_eq!(status(&plain, "webhook"), Status::Ok);
    let (notifying, json) = with(
        "{\"enabled\": true, \"dir\": \".\", \"endpoints\": [{\"name\": \"a\", \"path\": \"/a\", \"notify\": true}]}",
    );
    assert_eq!(status(&notifying, "webhook"), Status::Ok);
    assert!(
        json.contains("[WARN] webhook.endpoints[].notify") && json.contains("[WARN] webhook.dir")
    );
    let key =
        "{\"enabled\": true, \"callback\": {\"hosts\": [\"a.example\"], \"secretFile\": \"none\"}}";
    let (waiting, _) = with(key);
    assert_eq!(status(&waiting, "webhook"), Status::Waiting);
}

#[test]
fn a_missing_key_waits_and_a_set_one_is_ready() {
    let config = format!("{{\"runtime\": {{\"model\": \"anthropic:claude-sonnet-5\"}}, {HEAD}}}");
    let (waiting, _) = report(&config, &[]);
    assert!(waiting.ok && waiting.needs_attention());
    assert_eq!(status(&waiting, "providers"), Status::Waiting);
    assert!(
        waiting
            .to_string()
            .ends_with("the configuration is valid, but needs attention")
    );
    let (ready, json) = report(&config, &[("ANTHROPIC_API_KEY", "sk-hunter2-hunter2")]);
    assert_eq!(status(&ready, "providers"), Status::Ok);
    assert!(!json.contains("hunter2"));
}

#[test]
fn an_empty_allowlist_waits() {
    let config = format!(
        "{{\"runtime\": {{\"model\": \"demo:scripted\"}}, {HEAD}, \"tools\": {{\"allowedTools\": []}}}}"
    );
    assert_eq!(status(&report(&config, &[]).0, "tools"), Status::Waiting);
}

#[test]
fn errors_stand_in_their_sections() {
    let config = format!(
        "{{\"runtime\": {{}}, {HEAD}, \"tools\": {{\"allowedTool\": []}}, \"openaiApi\": {{\"enabled\": true, \"host\": \"::\"}}, \"x\": 1}}"
    );
    let (report, json) = report(&config, &[]);
    assert!(!report.ok);
    for id in ["configuration", "runtime", "tools", "openaiApi"] {
        assert_eq!(status(&report, id), Status::Error, "{id}");
    }
    assert_eq!(status(&report, "context"), Status::Ok);
    assert!(json.contains("./c.json:1:"), "{json}");
    assert!(report.to_string().ends_with("the configuration has errors"));
}

#[test]
fn what_is_no_json_is_one_error() {
    let (report, _) = report("{", &[]);
    assert!(!report.ok);
    assert_eq!(report.sections.len(), 1);
    assert_eq!(status(&report, "configuration"), Status::Error);
    assert!(!check(Path::new("/nonexistent/c.json"), &Env::new()).ok);
}

#[test]
fn a_literal_secret_is_advice_in_its_own_section() {
    let config = format!(
        "{{\"runtime\": {{\"model\": \"demo:scripted\"}}, {HEAD}, \"openaiApi\": {{\"enabled\": true, \"apiKey\": \"hunter2hunter2\"}}}}"
    );
    let (report, json) = report(&config, &[]);
    let secrets = report
        .sections
        .iter()
        .find(|section| section.id == "secrets")
        .unwrap();
    assert_eq!(secrets.status, Status::Ok);
    assert!(secrets.details[0].starts_with("[WARN] "), "{secrets:?}");
    assert_eq!(status(&report, "openaiApi"), Status::Ok);
    assert!(!json.contains("hunter2"));
}
