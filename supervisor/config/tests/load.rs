//! The examples load, and mistakes are told with their places.
#![allow(clippy::unwrap_used)]

use mono_config::{
    Config, Diagnostic, Env, Errors, Loaded, McpTransport, Origin, SecretSource, Wire, load,
};
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// A folder with an identity file and this configuration in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(config: &str) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("me.md"), "me").unwrap();
        let folder = Folder(folder);
        folder.write("c.json", config);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn load(&self, env: &[(&str, &str)]) -> Result<Loaded, Errors> {
        let env: Env = env
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        load(&self.0.path().join("c.json"), &env)
    }
}

/// A configuration with the two required keys and `rest`.
fn with(rest: &str) -> String {
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!(",\n{rest}")
    };
    let runtime = if rest.contains("\"runtime\"") {
        ""
    } else {
        "\"runtime\": {\"model\": \"demo:scripted\"},\n"
    };
    format!("{{\n{runtime}\"context\": {{\"identityPath\": \"me.md\"}}{rest}\n}}")
}

fn good(rest: &str, env: &[(&str, &str)]) -> Loaded {
    match Folder::new(&with(rest)).load(env) {
        Ok(loaded) => loaded,
        Err(errors) => panic!("{errors}"),
    }
}

fn bad(rest: &str, env: &[(&str, &str)]) -> Vec<Diagnostic> {
    let errors = Folder::new(&with(rest)).load(env).expect_err(rest);
    errors
        .diagnostics
        .into_iter()
        .filter(Diagnostic::is_error)
        .collect()
}

/// (code, key) of each error.
fn codes(problems: &[Diagnostic]) -> Vec<(&str, &str)> {
    problems.iter().map(|d| (d.code, d.key.as_str())).collect()
}

#[test]
fn the_minimal_example_loads_without_a_warning() {
    let loaded = load(&examples().join("mono-agent.config.json"), &Env::new()).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let config = loaded.config;
    assert_eq!(config.runtime.model.to_string(), "demo:scripted");
    assert_eq!(config.runtime.workspace, examples());
    assert_eq!(config.runtime.state_dir, examples().join(".mono-agent"));
    assert_eq!(config.context.identity_path, examples().join("identity.md"));
    assert_eq!(
        config.artifacts.dir,
        examples().join(".mono-agent/artifacts")
    );
    assert!(!config.continuations.enabled && config.sandbox.is_none() && config.memory.is_none());
    assert_eq!(config.run_memory_max(), 4 << 30);
    let ids: Vec<_> = config.providers.by_id.keys().map(String::as_str).collect();
    assert_eq!(ids, ["demo", "lmstudio", "ollama"]);
    assert_eq!(config.providers.get("demo").unwrap().wire, Some(Wire::Demo));
    assert_eq!(
        config.providers.get("ollama").unwrap().base_url.as_deref(),
        Some("http://127.0.0.1:11434/v1")
    );
}

#[test]
fn the_full_example_loads() {
    let env = Env::from([
        (
            "WORK_CONTROL_CONTINUATION_TOKEN".to_string(),
            "0123456789abcdef".to_string(),
        ),
        (
            "CREDENTIALS_DIRECTORY".to_string(),
            "/run/credentials/mono".to_string(),
        ),
    ]);
    let loaded = load(&examples().join("full.config.json"), &env)
        .map_err(|e| e.to_string())
        .unwrap();
    // Its servers are not on every machine, and a route of it leads to a channel that is not served.
    let machine = ["missing_program", "missing_folder", "unreachable_route"];
    let told: Vec<_> = (loaded.warnings.iter())
        .filter(|d| !machine.contains(&d.code))
        .collect();
    assert!(told.is_empty(), "{told:#?}");
    let config: Config = loaded.config;
    let servers: Vec<_> = config
        .tools
        .mcp_servers
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        servers,
        ["everything", "legacy", "transcribe", "work-control"]
    );
    let everything = &config.tools.mcp_servers["everything"];
    assert!(
        everything.shared
            && matches!(&everything.transport, McpTransport::Stdio { command, .. } if command == "npx")
    );
    assert_eq!(everything.sandbox.readable_roots, [examples()]);
    assert_eq!(everything.sandbox.memory_max_bytes, 4 << 30);
    assert_eq!(config.run_memory_max(), 8 << 30);
    assert!(matches!(
        config.tools.mcp_servers["legacy"].transport,
        McpTransport::Sse { .. }
    ));
    let Some(SecretSource::Credential { path, .. }) =
        &config.providers.get("anthropic").unwrap().api_key
    else {
        panic!("a credential")
    };
    assert_eq!(
        path.as_deref(),
        Some(Path::new("/run/credentials/mono/anthropic-key"))
    );
    assert_eq!(
        config.providers.get("openai").unwrap().wire,
        Some(Wire::OpenaiResponses)
    );
    assert_eq!(config.interaction.ask_user.timeout_ms, None);
    assert_eq!(
        config.telegram.unwrap().allowed_chat_ids,
        ["-100200300", "42"]
    );
    assert!(config.a2a.unwrap().config.is_some() && config.continuations.enabled);
}

#[test]
fn all_problems_come_in_one_go_with_their_places() {
    let problems = bad(
        "\"runtime\": {\"modle\": \"x\",\n \"maxTurns\": 101},\n\"tools\": {\"mcpCallTimeoutMs\": \"120\"},\n\"opnaiApi\": {},\n\"artifacts\": {\"dir\": 5, \"dir\": \"x\"}",
        &[("MONO_AGENT_RETRY_BACKOFF_MS", "soon")],
    );
    let told: Vec<_> = problems
        .iter()
        .map(|d| (d.code, d.key.as_str(), d.line, d.column))
        .collect();
    assert_eq!(
        told,
        [
            ("missing", "runtime.model", Some(3), Some(12)),
            ("unknown_key", "runtime.modle", Some(3), Some(13)),
            ("out_of_range", "runtime.maxTurns", Some(4), Some(14)),
            ("wrong_type", "tools.mcpCallTimeoutMs", Some(5), Some(31)),
            ("unknown_key", "opnaiApi", Some(6), Some(1)),
            ("duplicate_key", "artifacts.dir", Some(7), Some(25)),
            ("invalid_variable", "runtime.retry.backoffMs", None, None),
        ]
    );
    assert_eq!(
        problems[1].suggestion.as_deref(),
        Some("did you mean `model`?")
    );
    assert_eq!(
        problems[3].suggestion.as_deref(),
        Some("write \"120\" without quotes")
    );
    assert_eq!(
        problems[4].suggestion.as_deref(),
        Some("did you mean `openaiApi`?")
    );
    assert_eq!(
        problems[6].env.as_deref(),
        Some("MONO_AGENT_RETRY_BACKOFF_MS")
    );
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_default() {
    let env = [
        ("MONO_AGENT_MODEL", "ollama:qwen3:8b"),
        ("MONO_AGENT_MAX_TURNS", "7"),
        ("MONO_AGENT_EFFORT", ""),
        ("MONO_AGENT_OPENAI_API_KEY", "sk-very-secret-value"),
        (
            "MONO_AGENT_FALLBACKS_JSON",
            "[{\"model\": \"demo:scripted\", \"attempts\": 3}]",
        ),
        ("MONO_AGENT_ASK_USER_TIMEOUT_MS", "none"),
        ("MONO_AGENT_MCP_REQUEST_CONTEXT_SERVERS", ""),
        ("MONO_AGENT_DISALLOWED_TOOLS", " Bash , Exec,"),
    ];
    let loaded = good(
        "\"runtime\": {\"model\": \"demo:scripted\", \"maxTurns\": 3, \"effort\": \"low\"}",
        &env,
    );
    let runtime = &loaded.config.runtime;
    assert_eq!(
        (
            runtime.model.provider.as_str(),
            runtime.model.model.as_str()
        ),
        ("ollama", "qwen3:8b")
    );
    assert_eq!(runtime.max_turns, Some(7));
    assert_eq!(runtime.effort.unwrap().as_str(), "low");
    assert_eq!(runtime.fallbacks[0].attempts, 3);
    assert_eq!(loaded.config.interaction.ask_user.timeout_ms, None);
    assert_eq!(loaded.config.tools.disallowed_tools, ["Bash", "Exec"]);
    assert!(
        matches!(&loaded.config.openai_api.api_key, Some(SecretSource::Env { name }) if name == "MONO_AGENT_OPENAI_API_KEY")
    );
    let field = |key: &str| {
        let field = loaded.fields.iter().find(|field| field.key == key).unwrap();
        (field.value.clone(), field.origin)
    };
    assert_eq!(
        field("runtime.model"),
        ("\"ollama:qwen3:8b\"".into(), Origin::Env)
    );
    assert_eq!(field("runtime.effort"), ("\"low\"".into(), Origin::Json));
    assert_eq!(
        field("runtime.retry.primaryAttempts"),
        ("2".into(), Origin::Default)
    );
    assert_eq!(field("openaiApi.apiKey"), ("set".into(), Origin::Env));
    assert_eq!(field("webhook.apiKey"), ("unset".into(), Origin::Default));
    assert!(!format!("{loaded:?}").contains("very-secret"));
}

#[test]
fn servers_are_named_by_their_variables_and_their_headers_are_literal() {
    let folder = Folder::new(&with("\"tools\": {\"mcpConfigPath\": \"other.json\"}"));
    folder.write(
        "mcp.json",
        r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "$HOME ${TOKEN}"}},
            "b": {"url": "http://[::1]:9/mcp", "headers": {"x-b": "${TOKEN} $TOKEN"}}}}"#,
    );
    let env = [
        ("MONO_AGENT_MCP_CONFIG_PATH", "./mcp.json"),
        ("MONO_AGENT_MCP_REQUEST_CONTEXT_SERVERS", "a"),
        ("MONO_AGENT_CONTINUATION_SERVERS", "b"),
        ("TOKEN", "expanded"),
    ];
    let tools = folder.load(&env).unwrap().config.tools;
    assert_eq!(tools.mcp_request_context_servers, ["a"]);
    assert_eq!(tools.continuation_servers, ["b"]);
    let McpTransport::Stdio { env, .. } = &tools.mcp_servers["a"].transport else {
        panic!("{tools:?}")
    };
    assert_eq!(env["A"].expose(), "$HOME ${TOKEN}");
    let McpTransport::Http { headers, .. } = &tools.mcp_servers["b"].transport else {
        panic!("{tools:?}")
    };
    assert_eq!(headers["x-b"].expose(), "${TOKEN} $TOKEN");
}

#[test]
fn an_empty_allowed_tools_variable_is_an_explicit_empty_list() {
    let loaded = good(
        "\"tools\": {\"allowedTools\": [\"Read\"]}",
        &[("MONO_AGENT_ALLOWED_TOOLS", "")],
    );
    assert!(loaded.config.tools.allowed_tools.is_empty());
    assert_eq!(loaded.warnings[0].code, "no_tools");
    assert_eq!(good("", &[]).config.tools.allowed_tools, ["*"]);
}

#[test]
fn the_mcp_file_is_taken_from_the_workspace() {
    let folder = Folder::new(&with(
        "\"runtime\": {\"model\": \"demo:scripted\", \"workspace\": \"w\"}, \"tools\": {\"mcpConfigPath\": \"./mcp.json\"}",
    ));
    std::fs::create_dir(folder.0.path().join("w")).unwrap();
    let loaded = folder.load(&[]).unwrap();
    assert_eq!(loaded.warnings[0].code, "mcp_config_missing");
    assert!(
        loaded.warnings[0].message.contains("./w/mcp.json"),
        "{}",
        loaded.warnings[0]
    );
    folder.write(
        "w/mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"disabled\": true}}, \"other\": 1}",
    );
    let loaded = folder.load(&[]).unwrap();
    assert!(loaded.config.tools.mcp_servers.contains_key("a"));
    assert_eq!(
        (loaded.warnings[0].code, loaded.warnings[0].key.as_str()),
        ("unknown_key", "mcpServers.a.disabled")
    );
    folder.write(
        "w/mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"sh\",\n\"sandbox\": {\"network\": \"all\"}}}}",
    );
    let errors = folder.load(&[]).unwrap_err();
    assert_eq!(
        (errors.diagnostics[0].code, errors.diagnostics[0].line),
        ("grant_in_mcp_config", Some(2))
    );
    folder.write("w/mcp.json", "{\"mcpServers\": ");
    let errors = folder.load(&[]).unwrap_err();
    assert_eq!(errors.diagnostics[0].code, "syntax");
    assert!(
        errors.diagnostics[0]
            .file
            .as_deref()
            .unwrap()
            .ends_with("w/mcp.json")
    );
}

#[test]
#[rustfmt::skip]
fn rules_between_keys() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("\"tools\": {\"allowedTools\": [\"Read\"], \"disallowedTools\": [\"Read\"]}", &[("invalid_tool_policy", "tools.disallowedTools[0]")]),
        ("\"tools\": {\"allowedTools\": [\"Read\", \"Read\"]}", &[("invalid_tool_policy", "tools.allowedTools[1]")]),
        ("\"tools\": {\"disallowedTools\": [\"run_history\", \"RunHistory\"]}", &[("invalid_tool_policy", "tools.disallowedTools[1]")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {}}}", &[("incomplete_server", "tools.mcpServers.a")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"command\": \"x\", \"url\": \"http://a\"}}}", &[("ambiguous_server", "tools.mcpServers.a")]),
        ("\"tools\": {\"mcpServers\": {\"a b\": {\"command\": \"x\"}}}", &[("wrong_form", "tools.mcpServers.a b")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"url\": \"http://a\", \"args\": [\"x\"]}}}", &[("misplaced_key", "tools.mcpServers.a.args")]),
        ("\"tools\": {\"continuationServers\": [\"a\"]}", &[("unknown_server", "tools.continuationServers[0]")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"url\": \"https://mcp.example/mcp\"}}, \"continuationServers\": [\"a\"]}", &[("unsupported_continuation_server", "tools.continuationServers[0]")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"url\": \"http://127.0.0.1/sse\"}}, \"continuationServers\": [\"a\"]}", &[("unsupported_continuation_server", "tools.continuationServers[0]")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"command\": \"a\"}}, \"continuationServers\": [\"b\"]}, \"continuations\": {\"enabled\": false}", &[("unknown_server", "tools.continuationServers[0]")]),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"url\": \"http://127.0.0.1.evil.example/\"}}, \"continuationServers\": [\"a\"]}", &[("unsupported_continuation_server", "tools.continuationServers[0]")]),
        ("\"openaiApi\": {\"enabled\": true, \"host\": \"0.0.0.0\"}", &[("key_required", "openaiApi.host")]),
        ("\"webhook\": {\"enabled\": true, \"host\": \"10.0.0.1\", \"apiKeyFile\": \"k\"}", &[("not_allowed", "webhook.host")]),
        ("\"webhook\": {\"enabled\": true, \"host\": \"10.0.0.1\", \"allowNonLoopback\": true}", &[("key_required", "webhook.host")]),
        ("\"openaiApi\": {\"apiKeyFile\": \"k\", \"apiKeyCredential\": \"c\"}", &[("several_secret_sources", "openaiApi.apiKeyCredential")]),
        ("\"runtime\": {\"model\": \"nobody:x\"}", &[("unknown_provider", "runtime.model")]),
        ("\"runtime\": {\"model\": \"demo:scripted\", \"fallbacks\": [{\"model\": \"nobody:x\"}]}", &[("unknown_provider", "runtime.fallbacks[0].model")]),
        ("\"providers\": {\"demo\": {\"baseUrl\": \"http://a\"}}", &[("reserved_provider", "providers.demo")]),
        ("\"providers\": {\"mine\": {}}", &[("missing", "providers.mine.baseUrl")]),
        ("\"continuations\": {\"namedRoutes\": {\"r\": {\"mode\": \"silent\", \"conversationId\": \"c\"}}}", &[("misplaced_key", "continuations.namedRoutes.r.conversationId")]),
        ("\"continuations\": {\"namedRoutes\": {\"r\": {\"mode\": \"capture\"}}}", &[("missing", "continuations.namedRoutes.r.conversationId")]),
        ("\"continuations\": {\"namedRoutes\": {\"r\": {\"mode\": \"reply\"}}}", &[("not_a_choice", "continuations.namedRoutes.r.mode")]),
        ("\"continuations\": {\"port\": 0}", &[("out_of_range", "continuations.port")]),
        ("\"continuations\": {\"host\": \"0.0.0.0\"}", &[("wrong_form", "continuations.host")]),
        ("\"interaction\": {\"bridge\": {\"host\": \"0.0.0.0\"}}", &[("wrong_form", "interaction.bridge.host")]),
        ("\"memory\": {\"mode\": \"journal\"}", &[("missing", "memory.embeddings")]),
        ("\"memory\": {\"embeddings\": {}}", &[("empty", "memory.embeddings")]),
        ("\"memory\": {\"mode\": \"bujo\", \"embeddings\": {\"dim\": 5}}", &[("missing", "memory.llm")]),
        ("\"memory\": {\"writeMode\": \"capture\"}", &[("wrong_mode", "memory.writeMode")]),
        ("\"sandbox\": {\"fallback\": \"unsafe-host-process\"}", &[("missing", "sandbox.fallback")]),
        ("\"cron\": {\"jobs\": [{\"id\": \"a\", \"prompt\": \"p\"}]}", &[("missing", "cron.jobs[0].expression")]),
        ("\"cron\": {\"expression\": \"0 0 * * *\", \"jobs\": [{\"id\": \"a\", \"prompt\": \"p\"}, {\"id\": \"a\", \"prompt\": \"p\"}]}", &[("duplicate", "cron.jobs[1].id")]),
        ("\"webhook\": {\"endpoints\": [{\"name\": \"a\", \"path\": \"/webhook/invoke\"}]}", &[("duplicate", "webhook.endpoints[0].path")]),
        ("\"webhook\": {\"enabled\": true, \"callback\": {\"hosts\": [\"a.example\"]}}", &[("key_required", "webhook.callback.hosts")]),
        ("\"webhook\": {\"enabled\": true, \"callback\": {\"privateHosts\": [\"::1\"]}}", &[("key_required", "webhook.callback.privateHosts")]),
        ("\"webhook\": {\"endpoints\": [{\"name\": \"a\", \"path\": \"/a\", \"callbackUrl\": \"https://b.example/\"}]}", &[("not_allowed", "webhook.endpoints[0].callbackUrl")]),
        ("\"a2a\": {\"provider\": {\"requireBearer\": true}}", &[("key_required", "a2a.provider.requireBearer")]),
        ("\"a2a\": {\"provider\": {\"publicBaseUrl\": \"https://a.example\"}}", &[("not_allowed", "a2a.provider.publicBaseUrl")]),
        ("\"a2a\": {\"surprise\": 1}", &[("unknown_key", "a2a.surprise")]),
        ("\"console\": {\"enabled\": true, \"host\": \"0.0.0.0\"}", &[("missing", "console.host")]),
        ("\"console\": {\"allowedHosts\": [\"http://a\"]}", &[("wrong_form", "console.allowedHosts[0]")]),
        ("\"web\": {}", &[("retired_key", "web")]),
        ("\"telegram\": {\"quietHours\": 5}", &[("wrong_type", "telegram.quietHours")]),
        ("\"runtime\": {\"model\": \"demo:scripted\", \"workspace\": \"none\"}", &[("missing_folder", "runtime.workspace")]),
    ];
    for (config, expected) in cases {
        let problems = bad(config, &[]);
        assert_eq!(codes(&problems), *expected, "{config}\n{problems:#?}");
        assert!(problems[0].line.is_some(), "{config}");
    }
}

#[test]
fn continuations_are_on_with_their_block_or_with_a_server_that_may_claim() {
    let server = |url: &str| {
        format!(
            "\"tools\": {{\"mcpServers\": {{\"a\": {{\"url\": \"{url}\"}}}}, \"continuationServers\": [\"a\"]}}"
        )
    };
    let local = server("http://127.0.0.1:9/mcp");
    for (config, on) in [
        ("", false),
        ("\"continuations\": {}", true),
        ("\"continuations\": {\"port\": 4000}", true),
        ("\"continuations\": {\"enabled\": true}", true),
        (
            "\"continuations\": {\"port\": 4000, \"enabled\": false}",
            false,
        ),
        (&local, true),
        (
            &format!("{local}, \"continuations\": {{\"enabled\": false}}"),
            false,
        ),
    ] {
        let config = good(config, &[]).config.continuations;
        assert_eq!(config.enabled, on, "{config:?}");
    }
    // With nothing but a server everything else is as documented.
    let config = good(&local, &[]).config.continuations;
    assert_eq!((config.host.as_str(), config.port), ("127.0.0.1", 4319));
    assert!(config.state_dir.ends_with(".mono-agent/continuations"));
    for host in ["localhost:9", "[::1]:9", "127.0.0.1"] {
        assert!(
            good(&server(&format!("http://{host}/mcp")), &[])
                .config
                .continuations
                .enabled
        );
    }
    for url in [
        "http://127.0.0.2:9/mcp",
        "http://0.0.0.0:9/mcp",
        "http://10.0.0.1:9/mcp",
        "http://localhost.example:9/mcp",
        "https://127.0.0.1:9/mcp",
    ] {
        let code = (
            "unsupported_continuation_server",
            "tools.continuationServers[0]",
        );
        assert_eq!(codes(&bad(&server(url), &[])), [code], "{url}");
    }
}

#[test]
fn a_short_bearer_of_a_detached_service_is_refused_without_showing_it() {
    let config =
        "\"continuations\": {\"detachedServices\": [{\"name\": \"a\", \"tokenEnv\": \"TOKEN\"}]}";
    let problems = bad(config, &[("TOKEN", "hunter2")]);
    assert_eq!(
        codes(&problems),
        [("weak_token", "continuations.detachedServices[0].tokenEnv")]
    );
    assert!(!format!("{problems:?}").contains("hunter2"));
    let unset = bad(config, &[]);
    assert_eq!(
        codes(&unset),
        [(
            "unset_variable",
            "continuations.detachedServices[0].tokenEnv"
        )]
    );
    let off = config.replace("{\"detached", "{\"enabled\": false, \"detached");
    for (config, env) in [
        (config, &[("TOKEN", "0123456789abcdef")][..]),
        // Nobody asks it for anything then.
        (&off, &[]),
        (&config.replace("tokenEnv", "tokenCredential"), &[]),
    ] {
        assert!(good(config, env).warnings.is_empty(), "{config}");
    }
    let none = config.replace(", \"tokenEnv\": \"TOKEN\"", "");
    assert_eq!(
        codes(&bad(&none, &[])),
        [("key_required", "continuations.detachedServices[0]")]
    );
}

#[test]
#[rustfmt::skip]
fn warnings() {
    type Variables<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(&str, Variables, &str)] = &[
        ("\"tools\": {\"allowedTools\": [\"Raed\"]}", &[], "unknown_tool"),
        ("\"tools\": {\"allowedTools\": []}", &[], "no_tools"),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"url\": \"https://a.example\", \"headers\": {\"Authorization\": \"Bearer abcdefghijk\"}}}}", &[], "secret_in_file"),
        ("\"tools\": {\"mcpServers\": {\"a\": {\"url\": \"https://a.example\"}}, \"mcpRequestContextServers\": [\"a\"]}", &[], "no_effect"),
        ("\"openaiApi\": {\"apiKey\": \"abcdefgh\"}", &[], "secret_in_file"),
        ("\"providers\": {\"m\": {\"baseUrl\": \"http://m.example/v1\", \"apiKeyFile\": \"k\"}}", &[], "key_in_clear"),
        ("\"providers\": {\"piAuthPath\": \"x\"}", &[], "not_used"),
        ("\"runtime\": {\"model\": \"demo:scripted\", \"retry\": {\"backoffMs\": 20000}}", &[], "odd_bounds"),
        ("", &[("MONO_AGENT_MODLE", "x")], "unknown_variable"),
    ];
    for (config, env, code) in cases {
        let loaded = good(config, env);
        let told: Vec<_> = loaded.warnings.iter().map(|d| d.code).collect();
        assert_eq!(told, [*code], "{config}");
    }
}

#[test]
fn headers_are_warned_of_by_the_shared_names_and_forms() {
    use secret_signs::examples::{CREDENTIALS, FIGURES, ORDINARY, ORDINARY_NAMES, SECRET_NAMES};
    let warned = |name: &str, value: &str| {
        let headers = serde_json::json!({ name: value });
        let server = format!(r#"{{"url": "https://a.example", "headers": {headers}}}"#);
        let config = format!(r#""tools": {{"mcpServers": {{"a": {server}}}}}"#);
        let warnings = good(&config, &[]).warnings;
        assert!(warnings.iter().all(|d| d.code == "secret_in_file"));
        !warnings.is_empty()
    };
    for name in SECRET_NAMES {
        assert!(warned(name, "x"), "{name}");
    }
    for name in FIGURES.iter().chain(&ORDINARY_NAMES) {
        assert!(!warned(name, "x"), "{name}");
    }
    for text in CREDENTIALS.iter().filter(|text| !text.contains('\n')) {
        assert!(warned("a", text), "{text}");
    }
    for text in ORDINARY {
        assert!(!warned("a", text), "{text}");
    }
}

#[test]
fn no_message_shows_a_secret() {
    for config in [
        "\"openaiApi\": {\"apiKey\": {\"x\": \"hunter2-hunter2\"}}",
        "\"openaiApi\": {\"apiKey\": \"hunter2\\nhunter2\"}",
        "\"openaiApi\": {\"apiKey\": 1234567890}",
        "\"runtime\": {\"model\": \"sk-hunter2-abcdefghijkl\"}",
        "\"openaiApi\": {\"apiKey\": \"hunter2-hunter2\", \"port\": -1}",
        "\"tools\": {\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\"TOKEN\": \"hunter2\", \"B\": 1234567890}}}}",
    ] {
        let errors = Folder::new(&with(config)).load(&[]).expect_err(config);
        let told = format!("{errors}\n{errors:?}");
        assert!(
            !told.contains("hunter2") && !told.contains("1234567890"),
            "{told}"
        );
    }
    let loaded = good(
        "\"openaiApi\": {\"apiKey\": \"hunter2-hunter2\"}, \"tools\": {\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\"TOKEN\": \"hunter2\"}}}}",
        &[],
    );
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let Some(SecretSource::Literal { value }) = &loaded.config.openai_api.api_key else {
        panic!("a literal")
    };
    assert_eq!(value.expose(), "hunter2-hunter2");
}

#[test]
fn a_provider_elsewhere_is_not_sent_the_key_of_another() {
    let loaded = good(
        "\"runtime\": {\"model\": \"openai:gpt-5\"}, \"providers\": {\"openai\": {\"baseUrl\": \"https://else.example/v1\"}}",
        &[],
    );
    let openai = loaded.config.providers.get("openai").unwrap();
    assert!(openai.api_key.is_none());
    assert_eq!(openai.wire, Some(Wire::OpenaiChat));
    let loaded = good(
        "\"runtime\": {\"model\": \"anthropic:claude-sonnet-5\"}",
        &[],
    );
    let anthropic = loaded.config.providers.get("anthropic").unwrap();
    assert_eq!(anthropic.wire, Some(Wire::AnthropicMessages));
    assert!(
        matches!(&anthropic.api_key, Some(SecretSource::Env { name }) if name == "ANTHROPIC_API_KEY")
    );
}

#[test]
fn a_thousand_mistakes_are_told_in_a_hundred_lines() {
    let keys: Vec<String> = (0..1000).map(|n| format!("\"k{n}\": 1")).collect();
    let errors = Folder::new(&with(&keys.join(","))).load(&[]).unwrap_err();
    assert_eq!((errors.count(), errors.diagnostics.len()), (100, 101));
    assert!(
        errors
            .to_string()
            .contains("900 more problems are not shown")
    );
    // Warnings in a crowd don't hide an error.
    let folder = Folder::new(&with(
        "\"tools\": {\"mcpConfigPath\": \"mcp.json\"}, \"webhook\": {\"dir\": 5}",
    ));
    folder.write(
        "mcp.json",
        &format!(
            "{{\"mcpServers\": {{\"a\": {{\"command\": \"x\", {}}}}}}}",
            keys.join(",")
        ),
    );
    assert_eq!(folder.load(&[]).unwrap_err().count(), 1);
}

#[test]
fn a_server_in_both_files_is_reported_once() {
    let folder = Folder::new(&with(
        "\"tools\": {\"mcpConfigPath\": \"mcp.json\", \"mcpServers\": {\"a\": {\"shared\": true}, \"b\": {\"command\": \"cat\"}}}",
    ));
    folder.write("mcp.json", "{\"mcpServers\": {\"a\": {\"command\": \"sh\"}, \"b\": {\"command\": \"true\"}, \"c\": {\"command\": \"sh\"}}}");
    let loaded = folder.load(&[]).unwrap();
    let told: Vec<_> = loaded
        .warnings
        .iter()
        .map(|d| (d.code, d.key.as_str()))
        .collect();
    assert_eq!(told, [("duplicate_server", "tools.mcpServers.b")]);
    let mut keys: Vec<_> = loaded
        .fields
        .iter()
        .map(|field| field.key.as_str())
        .collect();
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all);
    let value = |key: &str| {
        loaded
            .fields
            .iter()
            .find(|field| field.key == key)
            .unwrap()
            .value
            .as_str()
    };
    assert_eq!(value("tools.mcpServers.a.shared"), "true");
    assert_eq!(value("tools.mcpServers.a.command"), "\"sh\"");
    assert_eq!(value("tools.mcpServers.b.command"), "\"cat\"");
    assert_eq!(value("tools.mcpServers.c.command"), "\"sh\"");
    // An entry that only gives rights to a server of the file can say nothing else.
    folder.write("c.json", &with("\"tools\": {\"mcpConfigPath\": \"mcp.json\", \"mcpServers\": {\"a\": {\"args\": [\"x\"]}}}"));
    assert_eq!(
        folder.load(&[]).unwrap_err().diagnostics[0].code,
        "misplaced_key"
    );
}

#[test]
fn files_that_are_no_configuration() {
    let folder = Folder::new("{}");
    let path = folder.0.path();
    let code = |name: &str| {
        let errors = load(&path.join(name), &Env::new()).unwrap_err();
        (
            errors.diagnostics[0].code,
            errors.diagnostics[0].line,
            errors.diagnostics[0].column,
        )
    };
    assert_eq!(code("none.json"), ("unreadable", Some(1), Some(1)));
    assert_eq!(code("."), ("unreadable", Some(1), Some(1)));
    std::fs::write(path.join("latin.json"), b"{\n \"a\": \"\xe4\"}").unwrap();
    assert_eq!(code("latin.json"), ("not_utf8", Some(2), Some(8)));
    std::fs::write(path.join("big.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    assert_eq!(code("big.json").0, "unreadable");
    std::fs::write(path.join("list.json"), "[]").unwrap();
    assert_eq!(code("list.json").0, "wrong_type");
    std::fs::write(path.join("empty.json"), "").unwrap();
    assert_eq!(code("empty.json").0, "syntax");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(path.join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(code("fifo").0, "unreadable");
}
