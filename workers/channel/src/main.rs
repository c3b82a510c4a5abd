#![forbid(unsafe_code)]

use ipc_proto::Role;
use ipc_proto::settings::RoleSettings;
use std::process::ExitCode;
use worker_kit::KitError;

fn main() -> ExitCode {
    worker_kit::run(
        &[
            Role::ChannelOpenai,
            Role::ChannelWebhook,
            Role::ChannelConsole,
        ],
        |starting| async move {
            match starting.settings.clone() {
                RoleSettings::ChannelOpenai(settings) => {
                    mono_channel::openai::run(starting, settings).await
                }
                RoleSettings::ChannelConsole(settings) => {
                    mono_channel::console::run(starting, settings).await
                }
                RoleSettings::ChannelWebhook(settings) => {
                    mono_channel::webhook::run(starting, settings).await
                }
                _ => Err(KitError::worker(format!(
                    "no settings for {}",
                    starting.role
                ))),
            }
        },
    )
}
