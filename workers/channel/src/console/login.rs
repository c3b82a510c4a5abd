//! One-time links and the sessions that they begin. No I/O, no clock; secrets are kept as hashes.

use http::HeaderMap;
use http::header::COOKIE;
use ipc_proto::console::{MAX_SESSIONS, Session};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// How long a link may be used, in milliseconds.
pub const LINK_MS: i64 = 10 * 60 * 1000;
/// Links that are not used yet; the oldest goes first.
pub const MAX_LINKS: usize = 16;
/// How long a session holds, in milliseconds.
pub const SESSION_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// How exactly it is known when a session was last seen, in milliseconds: not every request is to
/// write.
const SEEN_MS: i64 = 60 * 60 * 1000;
/// Name of the cookie.
pub const COOKIE_NAME: &str = "mono_session";
/// Longest name of a browser in characters.
const MAX_USER_AGENT: usize = 200;

/// What the console knows of its logins.
#[derive(Debug, Default)]
pub struct Logins {
    links: Vec<Link>,
    sessions: Vec<Session>,
}

#[derive(Debug)]
struct Link {
    hash: String,
    expires_at: i64,
}

/// 244 random bits from the system's source.
fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn hash(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Looks at every entry, and at every byte of each: the time says nothing about what is there.
fn position<'a>(hash: &str, all: impl Iterator<Item = &'a str>) -> Option<usize> {
    let mut found = None;
    for (at, one) in all.enumerate() {
        if bool::from(one.as_bytes().ct_eq(hash.as_bytes())) {
            found = Some(at);
        }
    }
    found
}

impl Logins {
    /// Takes what the store has kept.
    pub fn load(&mut self, sessions: Vec<Session>) {
        self.sessions = sessions;
    }

    /// A new one-time token.
    pub fn mint(&mut self, now: i64) -> String {
        self.links.retain(|link| link.expires_at > now);
        if self.links.len() >= MAX_LINKS {
            self.links.remove(0);
        }
        let token = secret();
        self.links.push(Link {
            hash: hash(&token),
            expires_at: now + LINK_MS,
        });
        token
    }

    /// True while a token may be used.
    #[must_use]
    pub fn holds_link(&self, token: &str, now: i64) -> bool {
        let at = position(&hash(token), self.links.iter().map(|link| &*link.hash));
        at.is_some_and(|at| self.links[at].expires_at > now)
    }

    /// Uses a token up: the cookie's secret and the session to be kept. `None` for one that was
    /// used, is over its time or never was.
    pub fn spend(&mut self, token: &str, user_agent: &str, now: i64) -> Option<(String, Session)> {
        let at = position(&hash(token), self.links.iter().map(|link| &*link.hash))?;
        if self.links.remove(at).expires_at <= now {
            return None;
        }
        let secret = secret();
        let shown = user_agent.chars().filter(|c| !c.is_control());
        let session = Session {
            id: Uuid::new_v4().simple().to_string(),
            hash: hash(&secret),
            created_at: now,
            last_seen_at: now,
            expires_at: now + SESSION_MS,
            user_agent: shown.take(MAX_USER_AGENT).collect(),
        };
        Some((secret, session))
    }

    /// Takes a session in that the store has kept; above the bound the one that was longest not
    /// seen goes, as in the store.
    pub fn enter(&mut self, session: Session) {
        self.sessions.push(session);
        if self.sessions.len() > MAX_SESSIONS {
            let oldest = self.sessions.iter().enumerate();
            if let Some((at, _)) = oldest.min_by_key(|(_, session)| session.last_seen_at) {
                self.sessions.remove(at);
            }
        }
    }

    /// The session of a request; with true when the store is to be told that it was seen.
    pub fn admit(&mut self, headers: &HeaderMap, now: i64) -> Option<(Session, bool)> {
        let secret = cookie(headers)?;
        let at = position(&hash(secret), self.sessions.iter().map(|s| &*s.hash))?;
        let session = &mut self.sessions[at];
        if session.expires_at <= now {
            return None;
        }
        let news = now - session.last_seen_at > SEEN_MS;
        if news {
            session.last_seen_at = now;
        }
        Some((session.clone(), news))
    }

    /// True while a session may be used.
    #[must_use]
    pub fn holds(&self, id: &str, now: i64) -> bool {
        let mut own = self.sessions.iter().filter(|s| s.id == id);
        own.any(|session| session.expires_at > now)
    }

    /// Ends a session. False when there is none.
    pub fn end(&mut self, id: &str) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|session| session.id != id);
        self.sessions.len() < before
    }

    /// Those that hold, the latest first.
    #[must_use]
    pub fn list(&self, now: i64) -> Vec<Session> {
        let holding = self.sessions.iter().filter(|s| s.expires_at > now);
        let mut all: Vec<Session> = holding.cloned().collect();
        all.sort_by_key(|session| std::cmp::Reverse(session.created_at));
        all
    }
}

/// The one cookie of ours. Two of them are none: who planted the second one is not known.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    let mut ours = pairs.filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    });
    match (ours.next(), ours.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// The header that gives a browser its session; an empty secret takes it away.
#[must_use]
pub fn set_cookie(secret: &str, secure: bool) -> String {
    let age = if secret.is_empty() {
        0
    } else {
        SESSION_MS / 1000
    };
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;

    fn with(cookies: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for line in cookies {
            map.append(COOKIE, HeaderValue::from_str(line).unwrap());
        }
        map
    }

    #[test]
    fn a_link_is_used_once_and_in_its_time() {
        let mut logins = Logins::default();
        let token = logins.mint(0);
        assert_eq!(token.len(), 64);
        assert!(logins.holds_link(&token, LINK_MS - 1) && !logins.holds_link(&token, LINK_MS));
        assert!(logins.spend("", "b", 1).is_none());
        assert!(logins.spend(&token[1..], "b", 1).is_none());
        let (secret, session) = logins.spend(&token, "b\n", LINK_MS - 1).unwrap();
        assert!(secret != token && secret.len() == 64);
        assert_eq!((&*session.user_agent, session.hash.len()), ("b", 64));
        assert!(!session.hash.contains(&secret));
        assert!(logins.spend(&token, "b", 1).is_none());
        let late = logins.mint(0);
        assert!(logins.spend(&late, "b", LINK_MS).is_none());
        assert!(
            logins.spend(&late, "b", 1).is_none(),
            "also late it was used up"
        );
    }

    #[test]
    fn few_links_wait_to_be_used() {
        let mut logins = Logins::default();
        let tokens: Vec<_> = (0..=MAX_LINKS).map(|_| logins.mint(0)).collect();
        assert!(!logins.holds_link(&tokens[0], 1));
        assert!(tokens[1..].iter().all(|token| logins.holds_link(token, 1)));
        let distinct: std::collections::BTreeSet<_> = tokens.iter().collect();
        assert_eq!(distinct.len(), tokens.len());
    }

    #[test]
    fn a_session_is_admitted_by_its_one_cookie() {
        let mut logins = Logins::default();
        let token = logins.mint(0);
        let (secret, session) = logins.spend(&token, "b", 0).unwrap();
        let own = format!("{COOKIE_NAME}={secret}");
        assert!(
            logins.admit(&with(&[&own]), 1).is_none(),
            "not before it is entered"
        );
        logins.enter(session.clone());
        for good in [
            vec![&*own],
            vec![&format!("a=b; {own} ;c=d")],
            vec!["x=1", &own],
        ] {
            assert_eq!(logins.admit(&with(&good), 1).unwrap().0.id, session.id);
        }
        let twice = format!("{own}; {own}");
        let hashed = format!("{COOKIE_NAME}={}", session.hash);
        for bad in [
            vec![],
            vec!["mono_session="],
            vec![&*twice],
            vec![&*own, &*own],
            vec![&*hashed],
        ] {
            assert!(logins.admit(&with(&bad), 1).is_none(), "{bad:?}");
        }
        assert!(logins.admit(&with(&[&own]), SESSION_MS).is_none());
        assert!(logins.holds(&session.id, 1) && !logins.holds(&session.id, SESSION_MS));
        assert!(logins.end(&session.id) && !logins.end(&session.id));
        assert!(logins.admit(&with(&[&own]), 1).is_none());
    }

    #[test]
    fn a_session_is_seen_by_the_hour() {
        let mut logins = Logins::default();
        let token = logins.mint(0);
        let (secret, session) = logins.spend(&token, "b", 0).unwrap();
        logins.enter(session);
        let own = with(&[&format!("{COOKIE_NAME}={secret}")]);
        assert!(!logins.admit(&own, SEEN_MS).unwrap().1);
        let (seen, news) = logins.admit(&own, SEEN_MS + 1).unwrap();
        assert!(news && seen.last_seen_at == SEEN_MS + 1);
        assert!(!logins.admit(&own, SEEN_MS + 2).unwrap().1);
    }

    #[test]
    fn sessions_are_few_and_the_idle_one_goes() {
        let mut logins = Logins::default();
        for n in 0..=MAX_SESSIONS as i64 {
            let token = logins.mint(n);
            let (_, session) = logins.spend(&token, "b", n).unwrap();
            logins.enter(session);
        }
        let kept = logins.list(MAX_SESSIONS as i64);
        assert_eq!(kept.len(), MAX_SESSIONS);
        assert!(kept.iter().all(|session| session.created_at > 0));
    }

    #[test]
    fn the_cookie_is_for_this_page_alone() {
        let given = set_cookie("s", false);
        assert_eq!(
            given,
            "mono_session=s; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict"
        );
        assert!(set_cookie("s", true).ends_with("; Secure"));
        assert!(set_cookie("", false).contains("Max-Age=0"));
    }
}
