//! What the channels are told, with the keys that they check or sign with.

use super::shows_apps;
use super::{ComposeError, Descriptors, callback_hosts, named_listener, secret};
use ipc_proto::rooms::Reserved;
use ipc_proto::settings::{
    ConsoleSettings, OpenaiSettings, RoleSettings, WebhookEndpoint, WebhookSettings,
};
use mono_config::{Config, SecretSource};
use std::os::fd::OwnedFd;

/// Beginnings of the places to which an answer can be delivered later.
pub(super) fn reachable(config: &Config) -> Vec<String> {
    let mut all = vec!["terminal".to_owned()];
    if config.console.enabled {
        all.push("web".to_owned());
    }
    if config.webhook.enabled {
        all.push("webhook".to_owned());
    }
    all
}

pub(super) fn openai(
    config: &Config,
    listener: Option<OwnedFd>,
) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let api = &config.openai_api;
    let mut descriptors = named_listener(listener);
    if let Some(source) = &api.api_key {
        descriptors.push(("bearer".to_owned(), secret("openaiApi.apiKey", source)?));
    }
    let settings = OpenaiSettings {
        base_path: api.base_path.clone(),
        model_id: api.model_id.clone(),
        bearer: api.api_key.is_some(),
        reserved: given_to_endpoints(config),
    };
    Ok((RoleSettings::ChannelOpenai(settings), descriptors))
}

/// Largest file that a run publishes (spec s0).
const MAX_REPLY_FILE: u64 = ipc_proto::reply::MAX_FILE as u64;

pub(super) fn console(config: &Config) -> ConsoleSettings {
    let runtime = &config.runtime;
    let model = runtime.model.to_string();
    let mut models = vec![model.clone()];
    let further = runtime.fallbacks.iter().map(|f| &f.model);
    for model in further.chain(offered(config)) {
        let name = model.to_string();
        if !models.contains(&name) {
            models.push(name);
        }
    }
    let folder = runtime.workspace.file_name();
    ConsoleSettings {
        allowed_hosts: config.console.allowed_hosts.clone(),
        label: folder.map_or_else(
            || "mono".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        model,
        models,
        max_reply_bytes: MAX_REPLY_FILE,
        shows_apps: shows_apps(config),
    }
}

/// Conversations of webhook endpoints: no client of another door goes on in them.
pub(crate) fn given_to_endpoints(config: &Config) -> Reserved {
    let webhook = &config.webhook;
    let endpoints = webhook.endpoints.iter().filter(|_| webhook.enabled);
    Reserved(
        endpoints
            .filter_map(|e| e.conversation_id.clone())
            .collect(),
    )
}

/// Models that requests may ask for beside the chain.
pub(super) fn offered(config: &Config) -> impl Iterator<Item = &mono_config::ModelName> {
    let webhook = &config.webhook;
    let endpoints = webhook.endpoints.iter().filter(|_| webhook.enabled);
    endpoints.filter_map(|endpoint| endpoint.model.as_ref())
}

/// Descriptors of one packet bound the keys that endpoints have of their own: the settings, the
/// listener and the channel's two keys come along.
pub(super) const MAX_ENDPOINT_KEYS: usize = 12;

pub(super) fn webhook(
    config: &Config,
    listener: Option<OwnedFd>,
) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let webhook = &config.webhook;
    let mut descriptors = Vec::new();
    if let Some(listener) = listener {
        descriptors.push(("listener".to_owned(), listener));
    }
    let mut add = |name: String, key: &str, source: &Option<SecretSource>| {
        if let Some(source) = source {
            descriptors.push((name, secret(key, source)?));
        }
        Ok::<_, ComposeError>(())
    };
    add("bearer:0".into(), "webhook.apiKey", &webhook.api_key)?;
    let signing = &webhook.callback.secret;
    add("secret:0".into(), "webhook.callback.secret", signing)?;
    let own = webhook.endpoints.iter();
    let own =
        own.map(|e| usize::from(e.api_key.is_some()) + usize::from(e.callback_secret.is_some()));
    let own: usize = own.sum();
    if own > MAX_ENDPOINT_KEYS {
        return Err(ComposeError::EndpointKeys(own));
    }
    let wait = |mode| mode == mono_config::WebhookMode::Sync;
    let mut endpoints = vec![WebhookEndpoint {
        name: "webhook".to_owned(),
        path: webhook.path.clone(),
        bearer: webhook.api_key.is_some(),
        secret: signing.is_some(),
        wait: wait(webhook.default_mode),
        conversation: None,
        model: None,
        effort: None,
        prompt: None,
        callback_url: None,
    }];
    for (index, endpoint) in webhook.endpoints.iter().enumerate() {
        let n = index + 1;
        let key = |part: &str| format!("webhook.endpoints[{index}].{part}");
        add(format!("bearer:{n}"), &key("apiKey"), &endpoint.api_key)?;
        add(
            format!("secret:{n}"),
            &key("callbackSecret"),
            &endpoint.callback_secret,
        )?;
        endpoints.push(WebhookEndpoint {
            name: endpoint.name.clone(),
            path: endpoint.path.clone(),
            bearer: endpoint.api_key.is_some(),
            secret: endpoint.callback_secret.is_some(),
            wait: wait(endpoint.mode.unwrap_or(webhook.default_mode)),
            conversation: endpoint.conversation_id.clone(),
            model: endpoint.model.as_ref().map(ToString::to_string),
            effort: endpoint.effort.map(|e| e.as_str().to_owned()),
            prompt: endpoint.prompt.clone(),
            callback_url: endpoint.callback_url.clone(),
        });
    }
    let callback = &webhook.callback;
    let settings = WebhookSettings {
        endpoints,
        retention_ms: webhook.retention_ms,
        max_stored: webhook.max_stored_requests,
        max_run_ms: webhook.max_run_ms,
        max_attachment_bytes: webhook.max_attachment_bytes,
        callback_hosts: callback_hosts(config),
        callback_attempts: callback.attempts,
        callback_backoff_ms: callback.backoff_ms,
        callback_max_backoff_ms: callback.max_backoff_ms,
        callback_timeout_ms: callback.timeout_ms,
    };
    Ok((RoleSettings::ChannelWebhook(settings), descriptors))
}

/// True when the webhook channel is handed any key.
pub(crate) fn has_webhook_keys(config: &Config) -> bool {
    let openai = usize::from(config.openai_api.api_key.is_some());
    channel_secrets(config).len() > openai
}

/// Every secret of every channel.
pub(crate) fn channel_secrets(config: &Config) -> Vec<&SecretSource> {
    let webhook = &config.webhook;
    let channels = [
        &config.openai_api.api_key,
        &webhook.api_key,
        &webhook.callback.secret,
    ];
    let endpoints = webhook.endpoints.iter();
    let endpoints = endpoints.flat_map(|e| [&e.api_key, &e.callback_secret]);
    channels.into_iter().chain(endpoints).flatten().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;

    fn webhook_of(
        endpoints: usize,
        own: &str,
    ) -> Result<(RoleSettings, Descriptors), ComposeError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ID.md"), "x").unwrap();
        let endpoints: Vec<String> = (0..endpoints)
            .map(|n| format!(r#"{{"name":"{n}","path":"/{n}",{own}}}"#))
            .collect();
        let text = format!(
            r#"{{"runtime":{{"model":"demo:scripted"}},"context":{{"identityPath":"ID.md"}},
               "webhook":{{"enabled":true,"apiKey":"a-common-key","callback":{{"hosts":["a.example"],
               "secret":"a-common-secret!"}},"endpoints":[{}]}}}}"#,
            endpoints.join(",")
        );
        let file = folder.path().join("c.json");
        std::fs::write(&file, text).unwrap();
        let loaded = mono_config::load(&file, &BTreeMap::new()).unwrap();
        webhook(&loaded.config, None)
    }

    #[test]
    fn each_endpoint_is_told_of_its_keys_and_gets_them() {
        let own = r#""apiKey":"its-own-key","callbackSecret":"its-own-secret!!""#;
        let (settings, descriptors) = webhook_of(2, own).unwrap();
        let names: Vec<&str> = descriptors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "bearer:0", "secret:0", "bearer:1", "secret:1", "bearer:2", "secret:2"
            ]
        );
        let RoleSettings::ChannelWebhook(settings) = settings else {
            panic!("{settings:?}")
        };
        assert!(settings.endpoints.iter().all(|e| e.bearer && e.secret));
        assert!(!format!("{settings:?}").contains("its-own"), "{settings:?}");
        let (settings, _) = webhook_of(1, r#""notify":false"#).unwrap();
        let RoleSettings::ChannelWebhook(settings) = settings else {
            panic!("{settings:?}")
        };
        assert!(!settings.endpoints[1].bearer && !settings.endpoints[1].secret);
    }

    #[test]
    fn more_keys_than_a_packet_carries_are_refused() {
        let one = r#""apiKey":"its-own-key""#;
        let (_, descriptors) = webhook_of(MAX_ENDPOINT_KEYS, one).unwrap();
        // With the settings' own memory file and the listener.
        assert_eq!(descriptors.len() + 2, 16);
        let refused = webhook_of(MAX_ENDPOINT_KEYS + 1, one);
        assert!(matches!(refused, Err(ComposeError::EndpointKeys(13))));
    }
}
