//! What the app-bridge is told: MCP servers, their apps, the gateway.

use crate::request::is_told;
use ipc_proto::settings::{
    AppBridgeSettings, AppRule, AppsSettings, GatewaySettings, McpServerSettings, McpTransport,
    ServerApps, Verdict,
};
use mono_config::{AppDecision, Config, McpTransport as Transport};
use std::collections::BTreeMap;

/// True when any configured MCP server is reached over the network.
pub(crate) fn has_http_servers(config: &Config) -> bool {
    config
        .tools
        .mcp_servers
        .values()
        .any(|s| !matches!(s.transport, Transport::Stdio { .. }))
}

/// True for a server that may claim continuations.
fn may_claim(config: &Config, server: &str) -> bool {
    let selected = &config.tools.continuation_servers;
    config.continuations.enabled && selected.iter().any(|name| name == server)
}

/// True when some server is told of the request that it works for.
pub(super) fn tells_any(config: &Config) -> bool {
    let mut listed = config.tools.mcp_request_context_servers.iter();
    listed.any(|name| is_told(config, name))
}

/// Where nobody could see an app, servers are told of none.
pub(crate) fn shows_apps(config: &Config) -> bool {
    config.apps.enabled && config.console.enabled
}

pub(super) fn app_bridge(config: &Config) -> AppBridgeSettings {
    let plain = |headers: &BTreeMap<String, mono_config::Secret>| {
        headers
            .iter()
            .map(|(k, v)| (k.clone(), v.expose().to_owned()))
            .collect()
    };
    let tools = &config.tools;
    let servers = tools
        .mcp_servers
        .iter()
        .map(|(name, server)| McpServerSettings {
            name: name.clone(),
            transport: match &server.transport {
                Transport::Stdio { .. } => McpTransport::Stdio,
                Transport::Http { url, headers } => McpTransport::Http {
                    url: url.clone(),
                    headers: plain(headers),
                },
                Transport::Sse { url, headers } => McpTransport::Sse {
                    url: url.clone(),
                    headers: plain(headers),
                },
            },
            shared: server.shared,
            per_run: is_told(config, name) || may_claim(config, name),
            context: is_told(config, name),
            claims: may_claim(config, name),
            apps: (shows_apps(config) && server.apps.enabled).then_some(ServerApps {
                exact_results: server.apps.exact_results,
                webrtc: server.apps.webrtc,
            }),
        })
        .collect();
    let rule = |rule: &mono_config::AppRule| AppRule {
        tool: rule.tool.clone(),
        decision: match rule.decision {
            AppDecision::Allow => Verdict::Allow,
            AppDecision::Ask => Verdict::Ask,
            AppDecision::Deny => Verdict::Deny,
        },
    };
    AppBridgeSettings {
        servers,
        progress_port_is_fixed: config.interaction.bridge.port != 0,
        call_timeout_ms: tools.mcp_call_timeout_ms,
        call_max_total_ms: tools.mcp_call_max_total_timeout_ms,
        apps: AppsSettings {
            max_age_days: config.artifacts.retention.max_age_days,
            allowed_origins: config.apps.allowed_origins.clone(),
            clipboard: config.apps.clipboard_write,
            rules: config.apps.rules.iter().map(rule).collect(),
        },
        gateway: tools.gateway.enabled.then_some(GatewaySettings {
            max_sessions: tools.gateway.max_sessions,
            max_backends: tools.gateway.max_backends,
            shows_apps: config.console.enabled,
        }),
    }
}
