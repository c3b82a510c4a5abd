//! The body of a webhook request, at an endpoint with settings of its own and at one without.
#![no_main]

use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::settings::WebhookEndpoint;
use libfuzzer_sys::fuzz_target;
use mono_channel::webhook::request::{Limits, parse};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        attachment_bytes: 64,
        callback_hosts: CallbackHosts {
            public: vec!["hooks.example".to_owned()],
            private: vec!["127.0.0.1:80".to_owned()],
        },
        reserved: ipc_proto::rooms::Reserved(vec!["c".to_owned()]),
    };
    for own in [false, true] {
        let set = |text: &str| own.then(|| text.to_owned());
        let endpoint = WebhookEndpoint {
            name: "e".to_owned(),
            path: "/e".to_owned(),
            bearer: false,
            secret: false,
            wait: own,
            conversation: set("c"),
            model: set("p:m"),
            effort: set("low"),
            prompt: set("prompt"),
            callback_url: set("https://hooks.example/"),
        };
        match parse(bytes, &endpoint, &limits) {
            Ok(got) => {
                assert!(!got.input.content.is_empty());
                assert!(!own || got.conversation.is_some_and(|id| id.as_str() == "c"));
                // Whatever was asked for, a result goes to these and nowhere else.
                let host = got.callback.as_ref().and_then(|url| url.host_str());
                assert!(host.is_none_or(|host| host == "hooks.example" || host == "127.0.0.1"));
            }
            Err(refusal) => assert!((400..500).contains(&refusal.status)),
        }
    }
});
