//! What a configuration needs of the machine is looked at before somebody waits for it.
#![allow(clippy::unwrap_used)]

use mono_config::{Diagnostic, Env, check, load};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A folder with a configuration of the two required keys and `rest`, a key file and a program.
fn folder(rest: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("me.md"), "me").unwrap();
    std::fs::write(path("key"), "0123456789abcdef").unwrap();
    let config = format!(
        "{{\"runtime\": {{\"model\": \"demo:scripted\"}}, \"context\": {{\"identityPath\": \"me.md\"}},\n{rest}}}"
    );
    std::fs::write(path("c.json"), config).unwrap();
    folder
}

fn told(folder: &Path) -> Vec<Diagnostic> {
    match load(&folder.join("c.json"), &Env::new()) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors.diagnostics,
    }
}

fn codes(rest: &str) -> Vec<(String, String)> {
    let folder = folder(rest);
    std::fs::set_permissions(folder.path().join("key"), PermissionsExt::from_mode(0o600)).unwrap();
    let told = told(folder.path());
    told.into_iter().map(|d| (d.code.into(), d.key)).collect()
}

fn pair(code: &str, key: &str) -> Vec<(String, String)> {
    vec![(code.to_owned(), key.to_owned())]
}

#[test]
fn two_listeners_on_one_port_are_an_error() {
    let both = |first: &str, second: &str| {
        format!(
            "\"openaiApi\": {{\"enabled\": true, {first}}}, \"metrics\": {{\"enabled\": true, {second}}}"
        )
    };
    let twice = both("\"port\": 9464", "\"host\": \"localhost\"");
    assert_eq!(codes(&twice), pair("duplicate", "metrics.port"));
    for good in [
        both("\"port\": 9463", "\"port\": 9464"),
        // The kernel chooses.
        both("\"port\": 0", "\"port\": 0"),
        both("\"port\": 9464, \"host\": \"::1\"", "\"port\": 9464"),
        "\"openaiApi\": {\"port\": 9464}, \"metrics\": {\"enabled\": true}".to_owned(),
    ] {
        assert_eq!(codes(&good), [], "{good}");
    }
    let own = "\"continuations\": {}, \"webhook\": {\"enabled\": true, \"port\": 4319}";
    assert_eq!(codes(own), pair("duplicate", "continuations.port"));
}

#[test]
fn a_key_that_everybody_can_read_is_told() {
    let config = "\"providers\": {\"m\": {\"baseUrl\": \"https://m.example/v1\", \"apiKeyFile\": \"key\"}},
        \"webhook\": {\"endpoints\": [{\"name\": \"a\", \"path\": \"/a\", \"apiKeyFile\": \"key\"}]}";
    let folder = folder(config);
    for (mode, exposed) in [(0o600, false), (0o640, false), (0o604, true), (0o666, true)] {
        let key = folder.path().join("key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        let told = told(folder.path());
        let keys: Vec<_> = told.iter().map(|d| (d.code, &*d.key)).collect();
        let expected: &[_] = match exposed {
            true => &[
                ("key_exposed", "providers.m.apiKeyFile"),
                ("key_exposed", "webhook.endpoints[0].apiKeyFile"),
            ],
            false => &[],
        };
        assert_eq!(keys, expected, "{mode:o}");
        assert!(told.iter().all(|d| d.line == Some(2) || d.line == Some(3)));
        assert!(
            told.iter()
                .all(|d| d.suggestion.as_deref() == Some("chmod 600 it"))
        );
    }
}

#[test]
fn a_server_that_can_not_start_is_told() {
    let server = |of: &str| format!("\"tools\": {{\"mcpServers\": {{\"s\": {of}}}}}");
    let program = "tools.mcpServers.s.command";
    for missing in ["/nowhere/server", "no-such-program-anywhere"] {
        let found = codes(&server(&format!("{{\"command\": \"{missing}\"}}")));
        assert_eq!(found, pair("missing_program", program));
    }
    for there in ["sh", "/bin/sh", "./decided/later"] {
        let found = codes(&server(&format!("{{\"command\": \"{there}\"}}")));
        assert_eq!(found, [], "{there}");
    }
    let roots =
        "{\"command\": \"sh\", \"sandbox\": {\"readableRoots\": [\"/usr\", \"/nowhere/at/all\"]}}";
    assert_eq!(
        codes(&server(roots)),
        pair(
            "missing_folder",
            "tools.mcpServers.s.sandbox.readableRoots[1]"
        )
    );
}

#[test]
fn a_route_that_leads_nowhere_is_told() {
    let key = "continuations.namedRoutes.r.conversationId";
    let route = |mode: &str, to: &str, rest: &str| {
        format!(
            "\"continuations\": {{\"namedRoutes\": {{\"r\": {{\"mode\": \"{mode}\", \"conversationId\": \"{to}\"}}}}}}{rest}"
        )
    };
    let console = ", \"console\": {\"enabled\": true}";
    for (mode, to, rest, good) in [
        ("notify_if_actionable", "terminal:plan", "", true),
        ("notify_if_actionable", "web:1", console, true),
        ("notify_if_actionable", "web:1", "", false),
        ("notify_if_actionable", "web:", console, false),
        ("notify_if_actionable", "webhook:deploys:x", "", false),
        ("notify_if_actionable", "terminal", "", false),
        ("notify_if_actionable", "plan", "", false),
        // What is kept for verification goes nowhere.
        ("capture", "plan", "", true),
    ] {
        let found = codes(&route(mode, to, rest));
        let expected = if good {
            vec![]
        } else {
            pair("unreachable_route", key)
        };
        assert_eq!(found, expected, "{mode} {to} {rest}");
    }
}

#[test]
fn what_waits_is_told_in_words() {
    let config = "\"openaiApi\": {\"enabled\": true, \"apiKeyFile\": \"key\"}, \"runtime\": {\"model\": \"anthropic:x\"}";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("me.md"), "me").unwrap();
    let text = format!("{{\"context\": {{\"identityPath\": \"me.md\"}}, {config}}}");
    std::fs::write(path("c.json"), text).unwrap();
    let waiting = |says: &str| {
        let report = check(&path("c.json"), &Env::new());
        assert!(report.ok && report.needs_attention());
        let lines: Vec<_> = report.waiting().collect();
        assert_eq!(
            lines,
            [
                "waiting: providers: anthropic: ANTHROPIC_API_KEY is not set".to_owned(),
                format!("waiting: openaiApi: {says}"),
            ]
        );
    };
    waiting("there is no key file ./key");
    std::fs::create_dir(path("key")).unwrap();
    waiting("the key file ./key is a folder");
    std::fs::remove_dir(path("key")).unwrap();
    std::fs::write(path("key"), "").unwrap();
    waiting("the key file ./key is empty");
}

#[test]
fn whoever_has_no_configuration_is_told_how_to_begin() {
    let folder = tempfile::tempdir().unwrap();
    let told = load(&folder.path().join("c.json"), &Env::new()).unwrap_err();
    let [missing] = told.diagnostics.as_slice() else {
        panic!("{told}");
    };
    let smallest = missing.expected.as_deref().unwrap();
    let begins = smallest.find('{').unwrap();
    // What is printed works.
    std::fs::write(folder.path().join("identity.md"), "me").unwrap();
    std::fs::write(folder.path().join("c.json"), &smallest[begins..]).unwrap();
    load(&folder.path().join("c.json"), &Env::new()).unwrap();
    let folder = folder_of_identity();
    let text = load(&folder.path().join("c.json"), &Env::new()).unwrap_err();
    let text = text.to_string();
    assert!(
        text.contains("context.identityPath: that is a folder"),
        "{text}"
    );
    assert!(
        text.contains("runtime.workspace: there is no such folder"),
        "{text}"
    );
    assert!(
        text.contains("help: make it (mkdir), or name another"),
        "{text}"
    );
}

fn folder_of_identity() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("me.md")).unwrap();
    let config = "{\"runtime\": {\"model\": \"demo:scripted\", \"workspace\": \"none\"}, \"context\": {\"identityPath\": \"me.md\"}}";
    std::fs::write(folder.path().join("c.json"), config).unwrap();
    folder
}
