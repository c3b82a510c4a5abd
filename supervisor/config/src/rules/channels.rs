//! Rules of the channels.

use super::Rules;
use crate::form;
use serde_json::Value;
use std::collections::BTreeSet;

impl Rules<'_> {
    /// Off loopback nobody is served without a key. The bound address is checked again by the channel.
    pub(super) fn listeners(&mut self) {
        // (host, secret, the switch that the table lists for it, whether it serves)
        let a2a = self.a2a_enabled();
        let listeners = [
            (
                "openaiApi.host",
                "openaiApi.apiKey",
                None,
                self.flag("openaiApi.enabled"),
            ),
            (
                "webhook.host",
                "webhook.apiKey",
                Some("webhook.allowNonLoopback"),
                self.flag("webhook.enabled"),
            ),
            ("tui.host", "tui.apiKey", None, self.flag("tui.enabled")),
            (
                "a2a.provider.host",
                "a2a.provider.bearerToken",
                Some("a2a.provider.allowNonLoopback"),
                a2a,
            ),
        ];
        for (host, secret, switch, serves) in listeners {
            let Some(address) = self.text(host).map(str::to_string) else {
                continue;
            };
            if !serves || form::is_loopback(&address) {
                continue;
            }
            if self.get(secret).is_none() {
                self.error(
                    "key_required",
                    host,
                    format!("{address} is not a loopback address, and there is no key"),
                )
                .expected = Some(format!("{secret}File or {secret}Credential"));
            }
            if let Some(switch) = switch
                && !self.flag(switch)
            {
                self.error(
                    "not_allowed",
                    host,
                    format!("{address} is not a loopback address"),
                )
                .expected = Some(format!("{switch}: true"));
            }
        }
        // The console always has a login; what it needs is to know its own names.
        let console = self.text("console.host").map(str::to_string);
        if self.flag("console.enabled")
            && self.texts("console.allowedHosts").is_empty()
            && let Some(address) = console.filter(|address| !form::is_loopback(address))
        {
            let message = format!("{address} is not a loopback address, and no name is allowed");
            self.error("missing", "console.host", message).expected =
                Some("console.allowedHosts: what browsers will call it".into());
        }
        if a2a
            && self.flag("a2a.provider.requireBearer")
            && self.get("a2a.provider.bearerToken").is_none()
        {
            self.error(
                "key_required",
                "a2a.provider.requireBearer",
                "there is no bearer",
            )
            .expected =
                Some("a2a.provider.bearerTokenFile or a2a.provider.bearerTokenCredential".into());
        }
        let public = self
            .text("a2a.provider.publicBaseUrl")
            .and_then(form::web_url);
        let outside = public.is_some_and(|url| !url.host_str().is_some_and(form::is_loopback));
        if a2a && outside && !self.flag("a2a.provider.allowNonLoopback") {
            self.error(
                "not_allowed",
                "a2a.provider.publicBaseUrl",
                "not a loopback address",
            )
            .expected = Some("a2a.provider.allowNonLoopback: true".into());
        }
    }

    /// Results are signed, and go to declared hosts only.
    pub(super) fn callbacks(&mut self) {
        let section = "webhook.callback";
        let keys = [
            format!("{section}.hosts"),
            format!("{section}.privateHosts"),
        ];
        let declared: Vec<String> = keys.iter().flat_map(|key| self.texts(key)).collect();
        let secret = format!("{section}.secret");
        if self.flag("webhook.enabled")
            && let Some(key) = keys.iter().find(|key| !self.texts(key).is_empty())
            && self.get(&secret).is_none()
        {
            self.error("key_required", key, "there is no key to sign results with")
                .expected = Some(format!("{secret}File or {secret}Credential"));
        }
        for (index, endpoint) in self.records("webhook.endpoints").into_iter().enumerate() {
            let url = endpoint.get("callbackUrl").and_then(Value::as_str);
            let Some(url) = url.and_then(form::web_url) else {
                continue;
            };
            let host = url.host_str().unwrap_or_default();
            let bare = host.trim_matches(['[', ']']);
            let port = url.port_or_known_default().unwrap_or(0);
            let with_port = format!("{host}:{port}");
            let forms = [host, bare, with_port.as_str()];
            if !declared
                .iter()
                .any(|d| forms.iter().any(|f| d.eq_ignore_ascii_case(f)))
            {
                let key = format!("webhook.endpoints[{index}].callbackUrl");
                let message = format!("{with_port} is no declared callback host");
                self.error("not_allowed", &key, message).expected = Some(format!(
                    "the host in {section}.hosts or {section}.privateHosts"
                ));
            }
        }
    }

    /// The root switch wins over the older one.
    pub(crate) fn a2a_enabled(&self) -> bool {
        let said = |key| self.get(key).and_then(Value::as_bool);
        self.get("a2a").is_some()
            && said("a2a.enabled")
                .or(said("a2a.provider.enabled"))
                .unwrap_or(true)
    }

    /// Names and routes within a list are unique; a job has an expression from somewhere.
    pub(super) fn named_entries(&mut self) {
        for (list, parts) in [
            ("webhook.endpoints", &["name", "path"][..]),
            ("cron.jobs", &["id"][..]),
            ("telegram.commands", &["command"][..]),
        ] {
            for part in parts {
                let mut seen = BTreeSet::new();
                if (list, *part) == ("webhook.endpoints", "path") {
                    seen.extend(self.text("webhook.path").map(str::to_string));
                }
                for (index, entry) in self.records(list).into_iter().enumerate() {
                    let Some(name) = entry.get(part).and_then(Value::as_str) else {
                        continue;
                    };
                    if !seen.insert(name.to_string()) {
                        let shown: String = name.chars().take(64).collect();
                        self.error(
                            "duplicate",
                            &format!("{list}[{index}].{part}"),
                            format!("`{shown}` is taken"),
                        );
                    }
                }
            }
        }
        let common = self.get("cron.expression").is_some();
        for (index, job) in self.records("cron.jobs").into_iter().enumerate() {
            if !common && job.get("expression").is_none() {
                self.error(
                    "missing",
                    &format!("cron.jobs[{index}].expression"),
                    "required, and not there",
                )
                .expected = Some(form::expected(crate::field::Form::Cron).into());
            }
        }
    }
}
