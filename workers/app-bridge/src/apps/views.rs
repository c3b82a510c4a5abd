//! What people have open: views, what holds in each until it closes, and questions that wait for an
//! answer. Time is an argument.

use super::files::Offer;
use ipc_proto::apps::CONFIRM_MS;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Views of one app; the oldest makes room.
pub const MAX_VIEWS: usize = 8;
/// Views of all apps; likewise.
pub const MAX_ALL: usize = 256;
/// Questions of one app that wait.
pub const MAX_WAITING: usize = 4;
/// Files of one view that a person wants and whose bytes have not come yet.
pub const MAX_EXPECTED: usize = 20;
/// Between two messages that an app proposes (facts 6.8).
pub const MESSAGE_PAUSE: Duration = Duration::from_secs(3);

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// What was asked for.
    pub method: String,
    /// With what.
    pub params: Value,
    /// What an answer for the view would allow from then on.
    pub grant: Option<String>,
    view: String,
    since: Instant,
}

/// A file that a person wants, until its bytes are here.
#[derive(Debug)]
struct Expected {
    offer: Offer,
    view: String,
    since: Instant,
}

#[derive(Debug)]
struct View {
    app: String,
    opened: u64,
    grants: HashSet<String>,
    life: CancellationToken,
    message: Option<Instant>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Views {
    views: HashMap<String, View>,
    waiting: HashMap<String, Waiting>,
    expected: HashMap<String, Expected>,
    opened: u64,
}

/// A name that nobody guesses.
#[must_use]
pub fn new_name() -> String {
    Uuid::new_v4().simple().to_string()
}

impl Views {
    /// A new view of an app.
    pub fn open(&mut self, app: &str) -> String {
        let own = |view: &&View| view.app == app;
        if self.views.values().filter(own).count() >= MAX_VIEWS {
            self.close_oldest(Some(app));
        }
        if self.views.len() >= MAX_ALL {
            self.close_oldest(None);
        }
        self.opened += 1;
        let name = new_name();
        self.views.insert(
            name.clone(),
            View {
                app: app.to_owned(),
                opened: self.opened,
                grants: HashSet::new(),
                life: CancellationToken::new(),
                message: None,
            },
        );
        name
    }

    fn close_oldest(&mut self, app: Option<&str>) {
        let of = |view: &&View| app.is_none_or(|app| view.app == app);
        let oldest = self.views.iter().filter(|(_, view)| of(view));
        let oldest = oldest
            .min_by_key(|(_, view)| view.opened)
            .map(|(name, _)| name.clone());
        if let Some(name) = oldest {
            self.close(&name);
        }
    }

    /// Ends a view, with everything that it has under way, may do or waits for.
    pub fn close(&mut self, view: &str) {
        if let Some(view) = self.views.remove(view) {
            view.life.cancel();
        }
        self.waiting.retain(|_, waiting| waiting.view != view);
        self.expected.retain(|_, expected| expected.view != view);
    }

    /// Ends every view of an app.
    pub fn close_all(&mut self, app: &str) {
        let own = self.views.iter().filter(|(_, view)| view.app == app);
        let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
        for view in own {
            self.close(&view);
        }
    }

    /// Apps that somebody looks at.
    #[must_use]
    pub fn apps(&self) -> HashSet<String> {
        self.views.values().map(|view| view.app.clone()).collect()
    }

    /// Views of an app.
    #[must_use]
    pub fn count(&self, app: &str) -> usize {
        self.views.values().filter(|view| view.app == app).count()
    }

    /// Ends when the view does, if it is one of this app.
    #[must_use]
    pub fn life(&self, view: &str, app: &str) -> Option<CancellationToken> {
        let view = self.views.get(view).filter(|view| view.app == app)?;
        Some(view.life.clone())
    }

    /// True when a person has allowed this for the view.
    #[must_use]
    pub fn holds(&self, view: &str, grant: &str) -> bool {
        let view = self.views.get(view);
        view.is_some_and(|view| view.grants.contains(grant))
    }

    /// A person allows this until the view closes.
    pub fn grant(&mut self, view: &str, grant: String) {
        if let Some(view) = self.views.get_mut(view) {
            view.grants.insert(grant);
        }
    }

    /// A question to the person; none when the app has enough of them waiting.
    pub fn ask(
        &mut self,
        view: &str,
        method: &str,
        params: Value,
        grant: Option<String>,
        now: Instant,
    ) -> Option<String> {
        self.expire(now);
        let app = &self.views.get(view)?.app;
        let of_app = |waiting: &&Waiting| {
            let view = self.views.get(&waiting.view);
            view.is_some_and(|view| view.app == *app)
        };
        if self.waiting.values().filter(of_app).count() >= MAX_WAITING {
            return None;
        }
        let id = new_name();
        let waiting = Waiting {
            method: method.to_owned(),
            params,
            grant,
            view: view.to_owned(),
            since: now,
        };
        self.waiting.insert(id.clone(), waiting);
        Some(id)
    }

    /// The question of a view, once.
    pub fn answer(&mut self, view: &str, id: &str, now: Instant) -> Option<Waiting> {
        self.expire(now);
        if self.waiting.get(id)?.view != view {
            return None;
        }
        self.waiting.remove(id)
    }

    /// A person wants this file of a view; gives the name that its bytes come under. None when
    /// enough are on their way.
    pub fn expect(&mut self, view: &str, offer: Offer, now: Instant) -> Option<String> {
        self.expire(now);
        let of_view = |expected: &&Expected| expected.view == view;
        let full = self.expected.values().filter(of_view).count() >= MAX_EXPECTED;
        if full || !self.views.contains_key(view) {
            return None;
        }
        let id = new_name();
        let expected = Expected {
            offer,
            view: view.to_owned(),
            since: now,
        };
        self.expected.insert(id.clone(), expected);
        Some(id)
    }

    /// The file of a view that has come, once.
    pub fn expected(&mut self, view: &str, id: &str, now: Instant) -> Option<Offer> {
        self.expire(now);
        if self.expected.get(id)?.view != view {
            return None;
        }
        self.expected.remove(id).map(|expected| expected.offer)
    }

    fn expire(&mut self, now: Instant) {
        let most = Duration::from_millis(CONFIRM_MS);
        let fresh = |since: Instant| now.saturating_duration_since(since) < most;
        self.waiting.retain(|_, waiting| fresh(waiting.since));
        self.expected.retain(|_, expected| fresh(expected.since));
    }

    /// True when the view may propose a message now, which counts.
    pub fn may_speak(&mut self, view: &str, now: Instant) -> bool {
        let Some(view) = self.views.get_mut(view) else {
            return false;
        };
        let since = view.message.map(|at| now.saturating_duration_since(at));
        if since.is_some_and(|since| since < MESSAGE_PAUSE) {
            return false;
        }
        view.message = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ninth_view_closes_the_first_and_what_it_had() {
        let mut views = Views::default();
        let first = views.open("a");
        let other = views.open("b");
        let life = views.life(&first, "a").unwrap();
        assert!(views.life(&first, "b").is_none());
        for _ in 1..=MAX_VIEWS {
            views.open("a");
        }
        assert!(life.is_cancelled() && views.life(&first, "a").is_none());
        assert_eq!(views.count("a"), MAX_VIEWS);
        assert!(views.life(&other, "b").is_some());
    }

    #[test]
    fn what_holds_for_a_view_ends_with_it() {
        let mut views = Views::default();
        let (one, two) = (views.open("a"), views.open("a"));
        views.grant(&one, "@s/t".into());
        assert!(views.holds(&one, "@s/t") && !views.holds(&two, "@s/t"));
        assert!(!views.holds(&one, "@s/u"));
        views.close(&one);
        assert!(!views.holds(&one, "@s/t"));
    }

    #[test]
    fn a_question_is_answered_once_by_its_view_and_in_time() {
        let t = Instant::now();
        let mut views = Views::default();
        let (one, two) = (views.open("a"), views.open("a"));
        let ask = |views: &mut Views, view: &str, at| views.ask(view, "m", json!({}), None, at);
        let id = ask(&mut views, &one, t).unwrap();
        assert!(views.answer(&two, &id, t).is_none());
        assert_eq!(views.answer(&one, &id, t).unwrap().method, "m");
        assert!(views.answer(&one, &id, t).is_none());
        let late = ask(&mut views, &one, t).unwrap();
        let over = t + Duration::from_millis(CONFIRM_MS);
        assert!(views.answer(&one, &late, over).is_none());
        for n in 0..MAX_WAITING {
            let view = if n % 2 == 0 { &one } else { &two };
            assert!(ask(&mut views, view, t).is_some());
        }
        assert!(ask(&mut views, &two, t).is_none());
        assert!(ask(&mut views, &two, over).is_some());
        let last = ask(&mut views, &one, over).unwrap();
        views.close(&one);
        assert!(views.answer(&one, &last, over).is_none());
    }

    #[test]
    fn a_file_is_expected_once_of_its_view_and_for_a_while() {
        let t = Instant::now();
        let mut views = Views::default();
        let (one, two) = (views.open("a"), views.open("a"));
        let offer = || Offer {
            name: "a.csv".into(),
            media_type: None,
            bytes: 3,
        };
        let id = views.expect(&one, offer(), t).unwrap();
        assert!(views.expected(&two, &id, t).is_none());
        assert_eq!(views.expected(&one, &id, t), Some(offer()));
        assert!(views.expected(&one, &id, t).is_none());
        let over = t + Duration::from_millis(CONFIRM_MS);
        let late = views.expect(&one, offer(), t).unwrap();
        assert!(views.expected(&one, &late, over).is_none());
        for _ in 0..MAX_EXPECTED {
            assert!(views.expect(&one, offer(), over).is_some());
        }
        assert!(views.expect(&one, offer(), over).is_none());
        let other = views.expect(&two, offer(), over).unwrap();
        views.close(&two);
        assert!(views.expected(&two, &other, over).is_none());
        assert!(views.expect(&two, offer(), over).is_none());
    }

    #[test]
    fn messages_come_three_seconds_apart() {
        let t = Instant::now();
        let mut views = Views::default();
        let view = views.open("a");
        assert!(views.may_speak(&view, t));
        assert!(!views.may_speak(&view, t + Duration::from_millis(2_999)));
        assert!(views.may_speak(&view, t + MESSAGE_PAUSE));
        assert!(!views.may_speak("none", t));
    }
}
