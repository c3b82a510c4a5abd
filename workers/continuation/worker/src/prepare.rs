//! From the settings and the descriptors that come with them to what the service is started with.

use continuation_record::Mode;
use continuation_record::token::{MAX_BEARER, Token};
use continuation_service::{Limits, Route, Settings};
use continuation_store::Retention;
use ipc_proto::settings::{ContinuationSettings, NamedRouteSettings};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The service's settings; `port` is the listener's own.
///
/// # Errors
/// A sentence for the operator.
pub fn settings(
    from: &ContinuationSettings,
    port: u16,
    bearers: Vec<Token>,
) -> Result<Settings, String> {
    let mut settings = Settings::new(from.host.clone(), port);
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    settings.limits = Limits {
        max_active: count(from.max_active_records),
        max_active_per_origin: count(from.max_active_per_origin),
        max_concurrent: from.max_concurrent,
        synthesis_timeout: Duration::from_millis(from.synthesis_timeout_ms),
        delivery_timeout: Duration::from_millis(from.delivery_timeout_ms),
        page_size: from.operator_page_size,
    };
    for (name, route) in &from.named_routes {
        settings.routes.insert(name.clone(), route_of(route)?);
    }
    if bearers.len() != from.detached_services.len() {
        return Err("a detached service has no bearer".to_owned());
    }
    for (name, bearer) in from.detached_services.iter().zip(&bearers) {
        settings.service(name, bearer).map_err(|e| e.to_string())?;
    }
    settings.check().map_err(|e| e.to_string())?;
    Ok(settings)
}

fn route_of(route: &NamedRouteSettings) -> Result<Route, String> {
    let mode = match route.mode.as_str() {
        "notify_if_actionable" => Mode::NotifyIfActionable,
        "capture" => Mode::Capture,
        "silent" => Mode::Silent,
        other => return Err(format!("{other:?} is no mode of a named route")),
    };
    Ok(Route {
        mode,
        conversation: route.conversation_id.clone(),
    })
}

/// What is kept of settled records.
#[must_use]
pub fn retention(from: &ContinuationSettings) -> Retention {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let age = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Retention {
        terminal_max_records: count(from.terminal_max_records),
        terminal_max_age_ms: age(from.terminal_max_age_ms),
        captured_text_max_records: count(from.captured_text_max_records),
        captured_text_max_age_ms: age(from.captured_text_max_age_ms),
    }
}

/// A detached service's bearer, from its descriptor; white space around it is no part of it.
///
/// # Errors
/// A sentence, without the bearer.
pub fn bearer(fd: OwnedFd) -> Result<Token, String> {
    let mut text = String::new();
    let most = MAX_BEARER as u64 + 2;
    let read = File::from(fd).take(most).read_to_string(&mut text);
    let _ = read.map_err(|e| format!("it can't be read: {e}"))?;
    let bearer = text.trim();
    if bearer.len() > MAX_BEARER || !bearer.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("it is too long, or not plain text".to_owned());
    }
    Ok(Token::from(bearer.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Seek as _, Write as _};

    fn from() -> ContinuationSettings {
        ContinuationSettings {
            host: "127.0.0.1".into(),
            port: 4319,
            max_active_records: 10_000,
            max_active_per_origin: 500,
            max_concurrent: 16,
            synthesis_timeout_ms: 600_000,
            delivery_timeout_ms: 120_000,
            operator_page_size: 100,
            terminal_max_records: 50_000,
            terminal_max_age_ms: 31_536_000_000,
            captured_text_max_records: 1_000,
            captured_text_max_age_ms: 2_592_000_000,
            named_routes: [(
                "daily".to_owned(),
                NamedRouteSettings {
                    mode: "capture".into(),
                    conversation_id: Some("terminal:a".into()),
                },
            )]
            .into(),
            detached_services: vec!["work".into()],
            channels: vec![],
        }
    }

    fn token(text: &str) -> Result<Token, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        bearer(file.into())
    }

    #[test]
    fn the_defaults_are_the_services_own() {
        let bearers = vec![token("0123456789abcdef\n").unwrap()];
        let made = settings(&from(), 4319, bearers).unwrap();
        let own = Settings::new("127.0.0.1", 4319);
        assert_eq!(made.limits, own.limits);
        assert_eq!(retention(&from()), Retention::default());
        assert_eq!((made.routes.len(), made.services.len()), (1, 1));
    }

    #[test]
    fn what_the_service_would_refuse_is_refused_before_it_starts() {
        let short = || vec![token("0123456789abcde").unwrap()];
        assert!(settings(&from(), 4319, short()).is_err());
        assert!(settings(&from(), 4319, vec![]).is_err());
        let mut bad = from();
        bad.named_routes.get_mut("daily").unwrap().mode = "reply".into();
        let bearers = vec![token("0123456789abcdef").unwrap()];
        assert!(settings(&bad, 4319, bearers).is_err());
        for text in [&*"x".repeat(513), "a b", "ä"] {
            assert!(token(text).is_err());
        }
    }
}
