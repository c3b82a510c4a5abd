//! What the service is configured with, checked before anything starts (spec s1, "Configure a trusted
//! continuation server").

use continuation_record::Mode;
use continuation_record::token::{Token, TokenDigest};
use std::collections::HashMap;
use std::time::Duration;

/// The furthest deadline from now.
pub const MAX_DEADLINE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most records on a page, whatever is configured.
pub const MAX_PAGE: usize = 500;
/// Fewest characters of a detached service's bearer.
pub const MIN_BEARER: usize = 16;
/// Longest name of a route or service in characters.
pub const MAX_NAME: usize = 128;
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Bounds on what is admitted and done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Records that are not settled, those of unknown delivery included. 1 to 1,000,000.
    pub max_active: usize,
    /// The same for one run, or one service on one route. 1 to `max_active`.
    pub max_active_per_origin: usize,
    /// Records that are worked on at once. 1 to 256.
    pub max_concurrent: usize,
    /// Time for one synthesis, at most a day.
    pub synthesis_timeout: Duration,
    /// Time for one delivery, at most a day.
    pub delivery_timeout: Duration,
    /// Records on one page of an operator. 1 to 500.
    pub page_size: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_active: 10_000,
            max_active_per_origin: 500,
            max_concurrent: 16,
            synthesis_timeout: Duration::from_secs(600),
            delivery_timeout: Duration::from_secs(120),
            page_size: 100,
        }
    }
}

/// A destination that the host owns and a service names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Not [`Mode::Reply`].
    pub mode: Mode,
    /// Required, but for [`Mode::Silent`], where it is forbidden.
    pub conversation: Option<String>,
}

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The host as it stands in result and status addresses: `localhost`, `127.0.0.1` or `::1`.
    pub host: String,
    /// The fixed port; never 0.
    pub port: u16,
    /// Bounds.
    pub limits: Limits,
    /// Routes by name. A map with no names of its own: `constructor` is a route only if someone configured it.
    pub routes: HashMap<String, Route>,
    /// Digests of the detached services' bearers by name.
    pub services: HashMap<String, TokenDigest>,
    /// How long a step of the wall clock is not believed.
    pub clock_grace: Duration,
    /// How long a client may send nothing of a body that it announced.
    pub body_stall: Duration,
    /// How long a body may take in all.
    pub body_total: Duration,
    /// How long a stop waits for what is being worked on.
    pub drain: Duration,
}

impl Settings {
    /// Everything by default, on this port.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            limits: Limits::default(),
            routes: HashMap::new(),
            services: HashMap::new(),
            clock_grace: Duration::from_secs(15 * 60),
            body_stall: Duration::from_secs(10),
            body_total: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }

    /// Enters a detached service; its bearer is not kept.
    ///
    /// # Errors
    /// When the name or the bearer is out of bounds, or the name comes twice.
    pub fn service(&mut self, name: &str, bearer: &Token) -> Result<(), SettingsError> {
        named("detachedServices.name", name)?;
        if bearer.as_str().chars().count() < MIN_BEARER || bearer.as_str().len() > 512 {
            return Err(SettingsError::Bearer(name.to_owned()));
        }
        match self.services.insert(name.to_owned(), bearer.digest()) {
            None => Ok(()),
            Some(_) => Err(SettingsError::Twice(name.to_owned())),
        }
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// The first that is broken.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "::1") {
            return Err(SettingsError::Host);
        }
        if self.port == 0 {
            return Err(SettingsError::Port);
        }
        let limits = &self.limits;
        let within = |key: &'static str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(SettingsError::Limit { key, most })
            }
        };
        within("maxActiveRecords", limits.max_active, 1_000_000)?;
        within(
            "maxActivePerOrigin",
            limits.max_active_per_origin,
            limits.max_active,
        )?;
        within("maxConcurrent", limits.max_concurrent, 256)?;
        within("operatorPageSize", limits.page_size, MAX_PAGE)?;
        for (key, time) in [
            ("synthesisTimeoutMs", limits.synthesis_timeout),
            ("deliveryTimeoutMs", limits.delivery_timeout),
        ] {
            if time.is_zero() || time > MAX_TIMEOUT {
                return Err(SettingsError::Timeout(key));
            }
        }
        for (name, route) in &self.routes {
            named("namedRoutes", name)?;
            let has_place = route
                .conversation
                .as_deref()
                .is_some_and(|c| !c.trim().is_empty());
            let fits = match route.mode {
                Mode::Reply => false,
                Mode::NotifyIfActionable | Mode::Capture => has_place,
                Mode::Silent => route.conversation.is_none(),
            };
            if !fits {
                return Err(SettingsError::Route(name.clone()));
            }
        }
        Ok(())
    }

    /// The address below which results and statuses are, without a slash at the end.
    #[must_use]
    pub fn base(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        format!("http://{host}:{}/v1/continuations", self.port)
    }
}

fn named(key: &'static str, name: &str) -> Result<(), SettingsError> {
    if name.trim().is_empty() || name.encode_utf16().count() > MAX_NAME {
        return Err(SettingsError::Name(key));
    }
    Ok(())
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a loopback name.
    #[error("continuations.host must be localhost, 127.0.0.1 or ::1")]
    Host,
    /// Port 0.
    #[error(
        "continuations.port must be a fixed port from 1 to 65535: addresses that were given out must outlive a restart"
    )]
    Port,
    /// A number out of its bounds.
    #[error("continuations.limits.{key} must be from 1 to {most}")]
    Limit {
        /// The key.
        key: &'static str,
        /// The bound.
        most: usize,
    },
    /// A time out of its bounds.
    #[error("continuations.limits.{0} must be from 1 to 86400000")]
    Timeout(&'static str),
    /// A name out of its bounds.
    #[error("a name in continuations.{0} must have 1 to 128 characters")]
    Name(&'static str),
    /// A route whose conversation does not fit its mode.
    #[error(
        "continuations.namedRoutes.{0}: notify_if_actionable and capture need a conversationId, silent forbids one, and there is no other mode"
    )]
    Route(String),
    /// A bearer out of its bounds.
    #[error("the token of the detached service {0} must have 16 to 512 characters")]
    Bearer(String),
    /// A service twice.
    #[error("the detached service {0} is configured twice")]
    Twice(String),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(change: impl FnOnce(&mut Settings)) -> Result<(), SettingsError> {
        let mut settings = Settings::new("127.0.0.1", 4319);
        change(&mut settings);
        settings.check()
    }

    #[test]
    fn every_bound_of_the_configuration_holds_at_its_edge() {
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|s| s.port = 0), Err(SettingsError::Port));
        for host in ["0.0.0.0", "::", "example.org", "10.0.0.1", "", "127.0.0.2"] {
            assert_eq!(
                with(|s| s.host = host.into()),
                Err(SettingsError::Host),
                "{host}"
            );
        }
        type Edge = (fn(&mut Limits, usize), usize);
        let edges: [Edge; 4] = [
            (|l, n| l.max_active = n, 1_000_000),
            (|l, n| l.max_active_per_origin = n, 10_000),
            (|l, n| l.max_concurrent = n, 256),
            (|l, n| l.page_size = n, 500),
        ];
        for (set, most) in edges {
            assert_eq!(with(|s| set(&mut s.limits, most)), Ok(()), "{most}");
            for bad in [0, most + 1] {
                assert!(with(|s| set(&mut s.limits, bad)).is_err(), "{most} {bad}");
            }
        }
        let day = Duration::from_secs(86_400);
        let more = day + Duration::from_millis(1);
        assert_eq!(with(|s| s.limits.synthesis_timeout = day), Ok(()));
        assert!(with(|s| s.limits.synthesis_timeout = more).is_err());
        assert!(with(|s| s.limits.delivery_timeout = more).is_err());
        assert!(with(|s| s.limits.delivery_timeout = Duration::ZERO).is_err());
    }

    #[test]
    fn routes_have_a_conversation_exactly_where_their_mode_wants_one() {
        let route = |mode, conversation: Option<&str>| {
            with(|s| {
                let conversation = conversation.map(str::to_owned);
                s.routes.insert("r".into(), Route { mode, conversation });
            })
        };
        for (mode, without, with) in [
            (Mode::Reply, false, false),
            (Mode::NotifyIfActionable, false, true),
            (Mode::Capture, false, true),
            (Mode::Silent, true, false),
        ] {
            assert_eq!(route(mode, None).is_ok(), without, "{mode:?}");
            assert_eq!(route(mode, Some("web:1")).is_ok(), with, "{mode:?}");
            assert!(route(mode, Some(" ")).is_err(), "{mode:?}");
        }
        let long = "r".repeat(129);
        assert!(
            with(|s| {
                s.routes.insert(
                    long,
                    Route {
                        mode: Mode::Silent,
                        conversation: None,
                    },
                );
            })
            .is_err()
        );
    }

    #[test]
    fn a_bearer_has_at_least_sixteen_characters_and_a_service_one() {
        let mut settings = Settings::new("localhost", 1);
        let bearer = |n| Token::from("x".repeat(n));
        assert!(settings.service("a", &bearer(15)).is_err());
        assert!(settings.service("a", &bearer(513)).is_err());
        assert!(settings.service("", &bearer(16)).is_err());
        settings.service("a", &bearer(16)).unwrap();
        assert_eq!(
            settings.service("a", &bearer(17)),
            Err(SettingsError::Twice("a".into()))
        );
    }

    #[test]
    fn addresses_name_the_fixed_host_and_port() {
        assert_eq!(
            Settings::new("::1", 4319).base(),
            "http://[::1]:4319/v1/continuations"
        );
        assert_eq!(
            Settings::new("localhost", 1).base(),
            "http://localhost:1/v1/continuations"
        );
    }
}
