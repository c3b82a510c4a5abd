//! Claim capabilities: what a running turn gives to each MCP server that is selected, and takes back before it
//! decides whether an origin snapshot is needed (spec s1, "Trusted request binding").

use continuation_record::Mode;
use continuation_record::binding::Origin;
use continuation_record::token::{Token, TokenDigest};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Most capabilities at once. Runs are bounded elsewhere; this bounds a host that forgets to close.
pub const MAX_BINDINGS: usize = 65_536;

/// Runs that are known to have been closed, the newest.
const MAX_CLOSED: usize = 4_096;

/// What a capability is bound to. The host says all of it; nothing comes from a model or a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The turn's run.
    pub run: String,
    /// The MCP server.
    pub server: String,
    /// The conversation of the history, with its rollover bucket.
    pub conversation: String,
    /// The physical conversation that gets the answer.
    pub reply_to: Option<String>,
    /// The history's boundary; the run where none is named.
    pub boundary: Option<String>,
    /// What becomes of the result.
    pub mode: Mode,
}

/// A capability that was given out.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) bound: Bound,
    pub(crate) fingerprint: String,
    gate: Mutex<Gate>,
    idle: Notify,
}

#[derive(Debug, Default)]
struct Gate {
    closed: bool,
    admitted: usize,
}

impl Binding {
    fn new(bound: Bound) -> Self {
        let origin = Origin {
            server: &bound.server,
            run: &bound.run,
            conversation: &bound.conversation,
            reply_to: bound.reply_to.as_deref(),
            boundary: bound.boundary.as_deref(),
            mode: bound.mode.name(),
        };
        Self {
            fingerprint: origin.fingerprint(),
            bound,
            gate: Mutex::default(),
            idle: Notify::new(),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn boundary(&self) -> &str {
        self.bound.boundary.as_deref().unwrap_or(&self.bound.run)
    }

    /// Admits one claim whose body is complete; `None` once the capability is closed.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let mut gate = self.gate();
        if gate.closed {
            return None;
        }
        gate.admitted += 1;
        Some(Admitted(self.clone()))
    }

    fn close(&self) {
        self.gate().closed = true;
    }

    /// Waits until each admitted claim is durable or refused.
    async fn drained(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            // Before the look, so that the last one's word is not missed.
            idle.as_mut().enable();
            if self.gate().admitted == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// A claim that is being entered; closing waits for it.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Binding>);

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut gate = self.0.gate();
        gate.admitted -= 1;
        if gate.admitted == 0 {
            self.0.idle.notify_waiters();
        }
    }
}

/// All capabilities that are given out, by the digests of their tokens.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    inner: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    by_token: HashMap<TokenDigest, Arc<Binding>>,
    by_run: HashMap<String, Vec<TokenDigest>>,
    closed: Closed,
    stopped: bool,
}

/// Runs that were closed. Whoever asks in the name of one comes too late: nobody would take back what it gets.
#[derive(Debug, Default)]
struct Closed {
    runs: HashSet<String>,
    order: VecDeque<String>,
}

impl Closed {
    fn enter(&mut self, run: &str) {
        if !self.runs.insert(run.to_owned()) {
            return;
        }
        self.order.push_back(run.to_owned());
        if self.order.len() > MAX_CLOSED
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }
}

impl Bindings {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives out a capability; `None` once all or the run's are taken back, or when there are too many.
    pub(crate) fn issue(&self, bound: Bound, token: &Token) -> Option<Arc<Binding>> {
        let mut tables = self.tables();
        let over = tables.stopped || tables.closed.runs.contains(&bound.run);
        if over || tables.by_token.len() >= MAX_BINDINGS {
            return None;
        }
        let binding = Arc::new(Binding::new(bound));
        let digest = token.digest();
        tables
            .by_run
            .entry(binding.bound.run.clone())
            .or_default()
            .push(digest);
        tables.by_token.insert(digest, binding.clone());
        Some(binding)
    }

    /// The capability of a token that was sent. The table is searched by the digest, which says nothing about
    /// the token; the comparison takes no shortcut either.
    pub(crate) fn find(&self, sent: &str) -> Option<Arc<Binding>> {
        let digest = TokenDigest::of(sent);
        let tables = self.tables();
        let (known, binding) = tables.by_token.get_key_value(&digest)?;
        let open = known.matches(&digest) && !binding.gate().closed;
        open.then(|| binding.clone())
    }

    /// Whether a run can still claim.
    pub(crate) fn is_open(&self, run: &str) -> bool {
        let bindings = self.of_run(run);
        bindings.iter().any(|binding| !binding.gate().closed)
    }

    /// A run's capabilities.
    pub(crate) fn of_run(&self, run: &str) -> Vec<Arc<Binding>> {
        let tables = self.tables();
        let digests = tables.by_run.get(run).map_or(&[][..], Vec::as_slice);
        digests
            .iter()
            .filter_map(|digest| tables.by_token.get(digest).cloned())
            .collect()
    }

    /// Takes a run's capabilities back, gives it no more, and waits for the claims that were admitted before.
    pub(crate) async fn close(&self, run: &str) -> Vec<Arc<Binding>> {
        self.tables().closed.enter(run);
        let bindings = self.of_run(run);
        for binding in &bindings {
            binding.close();
        }
        for binding in &bindings {
            binding.drained().await;
        }
        bindings
    }

    /// Forgets a run whose origin is settled.
    pub(crate) fn forget(&self, run: &str) {
        let mut tables = self.tables();
        for digest in tables.by_run.remove(run).unwrap_or_default() {
            if let Some(binding) = tables.by_token.remove(&digest) {
                binding.close();
            }
        }
    }

    /// Takes all back, gives out no more, and says whose runs they were.
    pub(crate) async fn stop(&self) -> Vec<String> {
        let runs: Vec<String> = {
            let mut tables = self.tables();
            tables.stopped = true;
            tables.by_run.keys().cloned().collect()
        };
        for run in &runs {
            self.close(run).await;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn bound(run: &str, server: &str) -> Bound {
        Bound {
            run: run.into(),
            server: server.into(),
            conversation: "web:1".into(),
            reply_to: Some("web:1".into()),
            boundary: None,
            mode: Mode::Reply,
        }
    }

    fn token(byte: u8) -> Token {
        Token::claim(&[byte; 24])
    }

    #[test]
    fn a_token_is_its_own_servers_only() {
        let bindings = Bindings::default();
        bindings.issue(bound("run", "a"), &token(1)).unwrap();
        bindings.issue(bound("run", "b"), &token(2)).unwrap();
        assert_eq!(bindings.find(token(1).as_str()).unwrap().bound.server, "a");
        assert_eq!(bindings.find(token(2).as_str()).unwrap().bound.server, "b");
        assert!(bindings.find(token(3).as_str()).is_none());
        assert!(bindings.find("").is_none());
        assert_ne!(
            bindings.find(token(1).as_str()).unwrap().fingerprint,
            bindings.find(token(2).as_str()).unwrap().fingerprint
        );
    }

    #[tokio::test]
    async fn closing_refuses_new_claims_and_waits_for_those_that_were_admitted() {
        let bindings = Arc::new(Bindings::default());
        let binding = bindings.issue(bound("run", "a"), &token(1)).unwrap();
        let admitted = binding.admit().unwrap();
        let closing = tokio::spawn({
            let bindings = bindings.clone();
            async move { bindings.close("run").await.len() }
        });
        while binding.admit().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        assert!(bindings.find(token(1).as_str()).is_none());
        drop(admitted);
        assert_eq!(closing.await.unwrap(), 1);
        // Twice is once.
        assert_eq!(bindings.close("run").await.len(), 1);
    }

    /// A server that is still being started when its run ends would have a capability that nobody takes back.
    #[tokio::test]
    async fn a_run_that_was_closed_is_given_no_other_capability() {
        let bindings = Bindings::default();
        bindings.issue(bound("run", "a"), &token(1)).unwrap();
        bindings.close("run").await;
        bindings.forget("run");
        // Also one that had none.
        bindings.close("bare").await;
        assert!(bindings.issue(bound("run", "b"), &token(2)).is_none());
        assert!(bindings.issue(bound("bare", "b"), &token(3)).is_none());
        assert!(bindings.find(token(2).as_str()).is_none());
        for n in 0..MAX_CLOSED {
            bindings.close(&format!("other-{n}")).await;
        }
        assert_eq!(bindings.tables().closed.runs.len(), MAX_CLOSED);
        bindings.issue(bound("new", "a"), &token(4)).unwrap();
    }

    #[tokio::test]
    async fn runs_that_are_over_are_forgotten_and_a_stop_gives_out_no_more() {
        let bindings = Bindings::default();
        let held = bindings.issue(bound("over", "a"), &token(1)).unwrap();
        bindings.forget("over");
        assert!(held.admit().is_none());
        assert!(bindings.of_run("over").is_empty());
        bindings.issue(bound("going", "a"), &token(2)).unwrap();
        assert_eq!(bindings.stop().await, ["going"]);
        assert!(bindings.find(token(2).as_str()).is_none());
        assert!(bindings.issue(bound("new", "a"), &token(3)).is_none());
    }

    #[test]
    fn a_host_that_forgets_to_close_gets_65_536_capabilities_and_no_more() {
        let bindings = Bindings::default();
        let token = |number: u64| {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Token::claim(&bytes)
        };
        for number in 0..65_536 {
            let run = format!("run-{}", number / 2);
            assert!(bindings.issue(bound(&run, "a"), &token(number)).is_some());
        }
        assert!(bindings.issue(bound("more", "a"), &token(65_536)).is_none());
        bindings.forget("run-7");
        for (number, given) in [(65_536, true), (65_537, true), (65_538, false)] {
            let issued = bindings.issue(bound("more", "a"), &token(number));
            assert_eq!(issued.is_some(), given, "{number}");
        }
    }
}
