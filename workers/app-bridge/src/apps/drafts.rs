//! Apps of calls that have no result yet: the page that a tool declares, shown while a model still
//! writes the tool's arguments and while the call goes on (`ui/notifications/tool-input-partial`).
//!
//! A draft is in memory alone and can do nothing but draw: no request is made in its name. With the
//! call's result the page is read as always; if it is the same page, the record takes over the
//! draft's name, so that the view that is open goes on with it. Whatever else comes of the call,
//! the draft goes.

use super::capture::Read;
use super::desk::{Answered, Desk, locked};
use super::heal::{Tail, heal};
use super::manifest::{MAX_STATE, Manifest};
use super::redact::redact;
use super::refusal::{Refusal, Stop};
use super::security::security;
use crate::listing::size;
use crate::servers::{Servers, Starter};
use ipc_proto::apps::{Act, Claim, Opened};
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Drafts of one run; an older one makes room.
pub const MAX_OF_RUN: usize = 4;
/// Drafts of all runs; a further one is not made.
pub const MAX_DRAFTS: usize = 32;
/// Bytes of all their pages; likewise.
pub const MAX_BYTES: usize = 24 << 20;

/// The page of a call that has no result.
#[derive(Debug, Clone)]
pub struct Draft {
    pub(super) manifest: Arc<Manifest>,
    html: Arc<str>,
    /// The call's arguments, once it is made.
    input: Option<Arc<Value>>,
}

impl Draft {
    /// A record that the page that is open can go on with: the very page, of the same tool, through
    /// the same connection.
    pub(super) fn becomes(&self, record: &Manifest) -> bool {
        let Manifest {
            connection,
            pool,
            server,
            tool,
            uri,
            html_hash,
            wishes,
            ..
        } = &*self.manifest;
        (connection, pool, server, &tool.name, uri, html_hash, wishes)
            == (
                &record.connection,
                &record.pool,
                &record.server,
                &record.tool.name,
                &record.uri,
                &record.html_hash,
                &record.wishes,
            )
    }

    fn is_claimed(&self, claim: &Claim) -> bool {
        let Manifest {
            id,
            connection,
            run,
            delivery,
            ..
        } = &*self.manifest;
        (id, connection, run, delivery)
            == (
                &claim.invocation,
                &claim.connection,
                &claim.run,
                &claim.delivery,
            )
    }
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub struct Drafts(Vec<Draft>);

impl Drafts {
    /// True when there was room.
    fn add(&mut self, draft: Draft) -> bool {
        let own = |other: &Draft| other.manifest.run == draft.manifest.run;
        if self.0.iter().filter(|other| own(other)).count() >= MAX_OF_RUN
            && let Some(oldest) = self.0.iter().position(own)
        {
            self.0.remove(oldest);
        }
        let bytes: usize = self.0.iter().map(|draft| draft.html.len()).sum();
        let fits = self.0.len() < MAX_DRAFTS && bytes + draft.html.len() <= MAX_BYTES;
        if fits {
            self.0.push(draft);
        }
        fits
    }

    fn of_run(&self, run: &str, id: &str) -> Option<usize> {
        let own = |draft: &Draft| draft.manifest.run == run && draft.manifest.id == id;
        self.0.iter().position(own)
    }

    fn has(&self, id: &str) -> bool {
        self.0.iter().any(|draft| draft.manifest.id == id)
    }
}

impl Desk {
    /// The page that a tool declares, before the tool is called, if it declares one that can be had.
    pub async fn draft<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        scope: &RunScope,
        server: &str,
        tool: &str,
    ) -> Option<ReplyPart> {
        if self.is_left() {
            return None;
        }
        let settings = servers.settings(server)?;
        let settings = Some(settings).filter(|settings| settings.apps.is_some())?;
        let connection = servers.connection(scope, server).await?;
        let about = Read {
            scope,
            settings,
            tool,
            connection: &connection,
        };
        let (manifest, html) = match self.read_for(&about, None).await {
            Ok(read) => read?,
            Err(error) => {
                tracing::info!(server, run = %scope.run, "a call goes without a draft of its app: {error}");
                return None;
            }
        };
        let part = manifest.part();
        let draft = Draft {
            manifest: Arc::new(manifest),
            html: html.into(),
            input: None,
        };
        let added = locked(&self.drafts).add(draft);
        self.end_lost_views();
        added.then_some(part)
    }

    /// What the arguments of a draft's call say so far, as the page may have it.
    pub fn partial<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        run: &str,
        id: &str,
        text: &str,
    ) -> Option<Map<String, Value>> {
        let manifest = {
            let drafts = locked(&self.drafts);
            drafts.0.get(drafts.of_run(run, id)?)?.manifest.clone()
        };
        let settings = servers.settings(&manifest.server)?.apps.as_ref()?;
        if settings.exact_results {
            return heal(text, Tail::Characters);
        }
        let healed = heal(text, Tail::Words)?;
        let egress = self.granted(&manifest).egress();
        match redact(Value::Object(healed), egress).0 {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        }
    }

    /// The call of a draft is made.
    pub fn call_begins(&self, run: &str, id: &str, arguments: &Map<String, Value>) {
        let input = Value::Object(arguments.clone());
        if size(&input) > MAX_STATE / 2 {
            return;
        }
        let mut drafts = locked(&self.drafts);
        if let Some(at) = drafts.of_run(run, id) {
            drafts.0[at].input = Some(Arc::new(input));
        }
    }

    /// A run's draft.
    #[must_use]
    pub fn find_draft(&self, run: &str, id: &str) -> Option<Draft> {
        let drafts = locked(&self.drafts);
        drafts.0.get(drafts.of_run(run, id)?).cloned()
    }

    /// The call of a draft is over, whatever came of it.
    pub fn end_draft(&self, run: &str, id: &str) {
        let mut drafts = locked(&self.drafts);
        if let Some(at) = drafts.of_run(run, id) {
            drafts.0.remove(at);
        }
        drop(drafts);
        self.end_lost_views();
    }

    /// A run has ended, and its drafts with it.
    pub(super) fn end_drafts(&self, run: &str) {
        locked(&self.drafts)
            .0
            .retain(|draft| draft.manifest.run != run);
        self.end_lost_views();
    }

    /// Ends the views of what is gone, or has no rights any more.
    pub(super) fn end_lost_views(&self) {
        let apps = locked(&self.views).apps();
        for app in apps {
            let draft = locked(&self.drafts).has(&app);
            if !draft && self.vault.card(&app).is_none_or(|card| card.closed) {
                locked(&self.views).close_all(&app);
            }
        }
    }

    /// The draft that a message names, in every respect, as long as there is no record in its place.
    pub(super) fn claimed_draft(&self, claim: &Claim) -> Option<Draft> {
        if self.vault.card(&claim.invocation).is_some() {
            return None;
        }
        let drafts = locked(&self.drafts);
        drafts
            .0
            .iter()
            .find(|draft| draft.is_claimed(claim))
            .cloned()
    }

    /// Answers about a draft: it is shown, and asks for nothing.
    pub(super) fn answer_of_draft<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        draft: Draft,
        act: &Act,
    ) -> Answered {
        let manifest = draft.manifest.clone();
        let connected = self.connected(servers, &manifest).is_ok();
        let result = match act {
            Act::Html => return Answered::Page(draft.html.as_bytes().to_vec()),
            Act::Show => {
                let input = draft.input.as_deref().cloned().unwrap_or_default();
                let mut record = self.record_of(servers, manifest, (input, Value::Null), connected);
                record.draft = true;
                serde_json::to_value(record).map_err(|_| unreadable())
            }
            Act::Open => {
                security(&*manifest, "claim", "allow", "");
                let opened = Opened {
                    view: locked(&self.views).open(&manifest.id),
                    connected,
                    capability: manifest.capability.clone(),
                };
                serde_json::to_value(opened).map_err(|_| unreadable())
            }
            Act::Close { view } => {
                let mut views = locked(&self.views);
                if views.life(view, &manifest.id).is_some() {
                    views.close(view);
                }
                Ok(Value::Object(Map::new()))
            }
            _ => {
                security(&*manifest, "", "deny", "app_forbidden");
                let message = "The app may ask for something once its call has a result.";
                Err(Refusal::new("app_forbidden", message))
            }
        };
        Answered::Json(self.told(result.map_err(Stop::from)))
    }
}

fn unreadable() -> Refusal {
    Refusal::new("app_missing", "The app can't be read.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::apps::manifest::tests::sample;

    fn draft(n: usize, run: &str, bytes: usize) -> Draft {
        let mut manifest = sample(&format!("{n:032x}"));
        manifest.run = run.to_owned();
        Draft {
            manifest: Arc::new(manifest),
            html: "x".repeat(bytes).into(),
            input: None,
        }
    }

    #[test]
    fn drafts_have_bounds_for_a_run_for_all_and_in_bytes() {
        let mut drafts = Drafts::default();
        for n in 0..=MAX_OF_RUN {
            assert!(drafts.add(draft(n, "r", 1)));
        }
        assert_eq!(drafts.0.len(), MAX_OF_RUN);
        assert!(!drafts.has(&format!("{:032x}", 0)) && drafts.has(&format!("{:032x}", 1)));
        for n in 0..MAX_DRAFTS - MAX_OF_RUN {
            assert!(drafts.add(draft(100 + n, &format!("r{n}"), 1)));
        }
        assert!(!drafts.add(draft(999, "other", 1)));
        let mut drafts = Drafts::default();
        assert!(drafts.add(draft(1, "a", MAX_BYTES - 1)));
        assert!(!drafts.add(draft(2, "b", 2)) && drafts.add(draft(3, "b", 1)));
    }

    #[test]
    fn only_the_very_page_goes_on() {
        let draft = draft(1, "r", 1);
        let same = |change: fn(&mut Manifest)| {
            let mut record = (*draft.manifest).clone();
            record.id = "another".into();
            record.capability = "another".into();
            record.created_at += 1;
            change(&mut record);
            draft.becomes(&record)
        };
        assert!(same(|_| ()));
        assert!(!same(|record| record.html_hash = "another".into()));
        assert!(!same(|record| record.connection = "another".into()));
        assert!(!same(|record| record.server = "another".into()));
        assert!(!same(|record| record.tool.name = "another".into()));
        assert!(!same(|record| record.uri = "ui://another".into()));
        assert!(!same(|record| record.pool = "another".into()));
        assert!(!same(
            |record| record.wishes.connect = vec!["https://a".into()]
        ));
    }

    #[test]
    fn a_draft_is_its_message_s_in_every_respect() {
        let draft = draft(1, "r", 1);
        let claim = Claim {
            invocation: draft.manifest.id.clone(),
            connection: draft.manifest.connection.clone(),
            delivery: draft.manifest.delivery.clone(),
            run: "r".into(),
        };
        assert!(draft.is_claimed(&claim));
        let other = |change: fn(&mut Claim)| {
            let mut other = claim.clone();
            change(&mut other);
            draft.is_claimed(&other)
        };
        assert!(!other(|claim| claim.invocation.push('x')));
        assert!(!other(|claim| claim.connection.push('x')));
        assert!(!other(|claim| claim.delivery.push('x')));
        assert!(!other(|claim| claim.run.push('x')));
    }
}
