//! The log of security events, as far as apps are concerned.

use super::manifest::Manifest;
use super::vault::Card;

/// What a decision is about.
pub(super) struct About<'a> {
    app: &'a str,
    server: &'a str,
    run: &'a str,
}

impl<'a> From<&'a Card> for About<'a> {
    fn from(card: &'a Card) -> Self {
        Self {
            app: &card.id,
            server: &card.server,
            run: &card.run,
        }
    }
}

impl<'a> From<&'a Manifest> for About<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        Self {
            app: &manifest.id,
            server: &manifest.server,
            run: &manifest.run,
        }
    }
}

/// A decision about an app, in the log of security events (facts 6.9). What is done is in the
/// host's words: a method of the protocol, or `claim` or `stand-down`.
pub(super) fn security<'a>(about: impl Into<About<'a>>, done: &str, decision: &str, code: &str) {
    let About { app, server, run } = about.into();
    let (operation, method) = match done {
        "claim" | "stand-down" => (done, ""),
        method => ("mcp-apps.call", method),
    };
    if decision == "allow" {
        tracing::info!(
            operation,
            method,
            decision,
            app,
            server,
            run,
            "security event"
        );
    } else {
        tracing::warn!(
            operation,
            method,
            decision,
            code,
            app,
            server,
            run,
            "security event"
        );
    }
}
