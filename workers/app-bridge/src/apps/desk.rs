//! Who answers about apps: whose it is, whether it is there, whether the asker may, and then what
//! is asked for. Everything is checked here, whatever the page has checked.

use super::audit::{Method, Phase};
use super::capture::pool_digest;
use super::drafts::Drafts;
use super::files::Content;
use super::manifest::Manifest;
use super::origins::{Grant, Origin, grant};
use super::rate::Rate;
use super::redact::redact;
use super::refusal::{Refusal, Stop, closed};
use super::security::security;
use super::vault::{Card, Vault, VaultError};
use super::views::Views;
use crate::servers::{Lease, Servers, Starter, place_of};
use ipc_proto::apps::{
    Act, AppAnswer, AppAsk, Claim, Decision, MEDIA_TYPE, Opened, REVISION, Record,
};
use ipc_proto::settings::{AppsSettings, McpServerSettings};
use jiff::Timestamp;
use nix::fcntl::Flock;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

/// Requests of one connection that are executed within a minute (spec s0).
pub const MAX_REQUESTS: usize = 60;
/// Requests of one connection that are looked at within a minute: each costs the server a listing.
pub const MAX_ATTEMPTS: usize = 240;
/// How long entries of the audit wait for others before they are synced.
const SYNC_AFTER: Duration = Duration::from_millis(200);
/// How often expired apps are looked for.
const TIDY: Duration = Duration::from_secs(60);
const DAY_MS: i64 = 86_400_000;

/// What has happened since the worker started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Results that got an app.
    pub captured: u64,
    /// Results whose app could not be had.
    pub not_captured: u64,
    /// Requests that were executed.
    pub executed: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Questions to people.
    pub asked: u64,
}

/// An answer to the console.
#[derive(Debug)]
pub enum Answered {
    /// As JSON.
    Json(AppAnswer),
    /// A page, as it is.
    Page(Vec<u8>),
}

/// What an app is claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// It is shown.
    See,
    /// Something is done in its name.
    Act,
}

/// A request of a page, with everything that was checked about its asker.
#[derive(Debug)]
pub struct Asked {
    /// The record.
    pub manifest: Arc<Manifest>,
    /// The view.
    pub view: String,
    /// Ends with the view, or with whoever waits for the answer.
    pub life: CancellationToken,
    /// What is wanted.
    pub method: String,
    /// With what.
    pub params: Value,
    /// The person has said yes to just this.
    pub confirmed: bool,
}

/// Apps.
#[derive(Debug)]
pub struct Desk {
    pub(super) vault: Arc<Vault>,
    pub(super) settings: AppsSettings,
    allowed: Vec<Origin>,
    pub(super) views: Mutex<Views>,
    pub(super) drafts: Mutex<Drafts>,
    executed: Mutex<Rate>,
    attempted: Mutex<Rate>,
    stats: Mutex<Stats>,
    /// By server and tool.
    pub(super) compiled: Mutex<HashMap<(String, String), super::authority::Compiled>>,
    /// The folder is this process's alone.
    pub(super) hold: Mutex<Option<Flock<OwnedFd>>>,
    /// It was, and runs of this process go on.
    pub(super) behind: Mutex<Option<Flock<OwnedFd>>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Work that waits for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let lost = |_| Refusal::new("app_missing", "The app could not be read.");
    tokio::task::spawn_blocking(work).await.map_err(lost)
}

impl Desk {
    /// With what the configuration says.
    #[must_use]
    pub fn new(vault: Vault, settings: AppsSettings) -> Self {
        let origins = settings.allowed_origins.iter();
        let allowed = origins.filter_map(|text| {
            let origin = Origin::parse(text);
            if origin.is_none() {
                tracing::error!(
                    origin = text,
                    "an allowed origin can't be read and allows nothing"
                );
            }
            origin
        });
        Self {
            allowed: allowed.collect(),
            vault: Arc::new(vault),
            settings,
            views: Mutex::default(),
            drafts: Mutex::default(),
            executed: Mutex::new(Rate::new(MAX_REQUESTS)),
            attempted: Mutex::new(Rate::new(MAX_ATTEMPTS)),
            stats: Mutex::default(),
            compiled: Mutex::default(),
            hold: Mutex::default(),
            behind: Mutex::default(),
        }
    }

    /// Says what is kept, has what is written into the audit logs on the disk soon, all of them
    /// together, and removes what has expired. Never ends.
    pub async fn keep_house(self: Arc<Self>) {
        // A panic in one of them would have been told already.
        let vault = self.vault.clone();
        let _ = tokio::task::spawn_blocking(move || vault.give_back()).await;
        let mut tidying = tokio::time::interval(TIDY);
        loop {
            let vault = self.vault.clone();
            tokio::select! {
                () = self.vault.written() => {
                    tokio::time::sleep(SYNC_AFTER).await;
                    let _ = tokio::task::spawn_blocking(move || vault.sync_logs()).await;
                }
                _ = tidying.tick() => {
                    let tidy = move || vault.tidy(now_ms());
                    let _ = tokio::task::spawn_blocking(tidy).await;
                }
            }
        }
    }

    /// A run has ended: what of it was not kept goes, with the views of it.
    pub async fn settle(&self, run: &str) {
        let (vault, gone) = (self.vault.clone(), run.to_owned());
        // A panic in it would have been told already.
        let _ = tokio::task::spawn_blocking(move || vault.settle(&gone)).await;
        self.end_drafts(run);
    }

    /// As long as it lives, so does the hold on its folder.
    #[must_use]
    pub fn holding(self, hold: Flock<OwnedFd>) -> Self {
        *locked(&self.hold) = Some(hold);
        self
    }

    /// Where apps are kept.
    #[must_use]
    pub fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    pub(super) fn keeps_ms(&self) -> i64 {
        i64::from(self.settings.max_age_days.max(1)) * DAY_MS
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut locked(&self.stats));
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *locked(&self.stats)
    }

    /// Answers the console; `content` is the file that came beside. `gone` is cancelled when nobody waits for the answer any more; what is
    /// under way then ends in order.
    pub async fn answer<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        ask: AppAsk,
        content: Option<Content>,
        gone: CancellationToken,
    ) -> Answered {
        let AppAsk { claim, act } = ask;
        if self.is_left() {
            let refused = Stop::Refused(closed());
            return Answered::Json(self.told(Err(refused)));
        }
        if let Some(draft) = self.claimed_draft(&claim) {
            return self.answer_of_draft(servers, draft, &act);
        }
        let result = match act {
            Act::Html => match self.page(&claim).await {
                Ok(page) => return Answered::Page(page),
                Err(refusal) => Err(refusal.into()),
            },
            Act::Show => self.show(servers, &claim).await.map_err(Stop::from),
            Act::Open => self.open(servers, &claim).map_err(Stop::from),
            Act::Close { view } => self.close(&claim, &view).map_err(Stop::from),
            Act::Request {
                view,
                capability,
                method,
                params,
            } => match self.admit(&claim, &view, &capability) {
                Ok((manifest, life)) => {
                    let asked = Asked {
                        manifest,
                        view,
                        life: life.clone(),
                        method,
                        params,
                        confirmed: false,
                    };
                    while_waited_for(self.request(servers, asked), &gone, &life).await
                }
                Err(refusal) => Err(refusal.into()),
            },
            Act::Decide {
                view,
                capability,
                confirmation,
                decision,
            } => match self.admit(&claim, &view, &capability) {
                Ok((manifest, life)) => {
                    let ends = life.clone();
                    let decided =
                        self.decide(servers, manifest, view, life, &confirmation, decision);
                    while_waited_for(decided, &gone, &ends).await
                }
                Err(refusal) => Err(refusal.into()),
            },
            Act::Hand {
                view,
                capability,
                file,
            } => match self.admit(&claim, &view, &capability) {
                Ok((manifest, life)) => {
                    let taking = self.take(servers, (&manifest, &life), (&view, &file), content);
                    while_waited_for(taking, &gone, &life).await
                }
                Err(refusal) => Err(refusal.into()),
            },
        };
        Answered::Json(self.told(result))
    }

    pub(super) fn told(&self, result: Result<Value, Stop>) -> AppAnswer {
        match result {
            Ok(result) => AppAnswer::Done { result },
            Err(Stop::Confirm(confirmation)) => {
                self.count(|stats| stats.asked += 1);
                AppAnswer::Confirm { confirmation }
            }
            Err(Stop::Refused(Refusal { code, message, rpc })) => {
                self.count(|stats| stats.refused += 1);
                AppAnswer::Refused {
                    code: code.to_owned(),
                    message,
                    rpc,
                }
            }
        }
    }

    /// Ownership: the record is the one that the message names, in every respect. Another's is
    /// told apart from none only after that much of it was known.
    fn owned(&self, claim: &Claim, to: To) -> Result<Card, Refusal> {
        let (card, acts) = (self.vault.seen(&claim.invocation)).ok_or(VaultError::Missing)?;
        let same = card.delivery == claim.delivery
            && card.run == claim.run
            && card.connection == claim.connection;
        if same && to == To::Act && !acts {
            Err(closed())
        } else if same {
            Ok(card)
        } else {
            security(&card, "claim", "deny", "app_forbidden");
            Err(Refusal::new(
                "app_forbidden",
                "This app is not part of that message.",
            ))
        }
    }

    fn record(&self, claim: &Claim, to: To) -> Result<(Card, Arc<Manifest>), Refusal> {
        let card = self.owned(claim, to)?;
        // A few kilobytes that were just written or read: no work for another thread.
        let manifest = self.vault.manifest(&card.id, now_ms())?;
        Ok((card, manifest))
    }

    /// Ownership, record, callback capability; with the record what ends the request.
    fn admit(
        &self,
        claim: &Claim,
        view: &str,
        capability: &str,
    ) -> Result<(Arc<Manifest>, CancellationToken), Refusal> {
        let (card, manifest) = self.record(claim, To::Act)?;
        let given = capability.as_bytes();
        let right: bool = given.ct_eq(manifest.capability.as_bytes()).into();
        let life = locked(&self.views).life(view, &manifest.id);
        let (true, Some(life)) = (right, life) else {
            security(&card, "", "deny", "app_forbidden");
            return Err(Refusal::new(
                "app_forbidden",
                "This view may not ask for anything.",
            ));
        };
        if card.closed {
            return Err(closed());
        }
        Ok((manifest, life.child_token()))
    }

    /// The server, its pool and the live connection of a record.
    pub(super) fn connected<'a, S: Starter>(
        &self,
        servers: &'a Arc<Servers<S>>,
        manifest: &Manifest,
    ) -> Result<(&'a McpServerSettings, Lease<S>), Refusal> {
        let settings = servers.settings(&manifest.server);
        let settings = settings.filter(|settings| settings.apps.is_some());
        let settings = settings
            .ok_or_else(|| Refusal::new("app_disabled", "Apps of this server are switched off."))?;
        let key = place_of(settings, &manifest.run, &manifest.conversation);
        if pool_digest(settings, &key) != manifest.pool {
            return Err(closed());
        }
        let lease = servers.lease(&manifest.connection).ok_or_else(closed)?;
        if lease.key != key {
            return Err(closed());
        }
        Ok((settings, lease))
    }

    fn is_connected<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        card: &Card,
        manifest: &Manifest,
    ) -> bool {
        !card.closed && self.connected(servers, manifest).is_ok()
    }

    /// What a page is granted now: the configuration may have changed since it came.
    pub(super) fn granted(&self, manifest: &Manifest) -> Grant {
        grant(&manifest.wishes, &self.allowed, self.settings.clipboard)
    }

    async fn show<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        claim: &Claim,
    ) -> Result<Value, Refusal> {
        let (card, manifest) = self.record(claim, To::See)?;
        let (vault, id) = (self.vault.clone(), card.id.clone());
        let state = blocking(move || vault.state(&id, now_ms())).await??;
        let connected = self.is_connected(servers, &card, &manifest);
        let record = self.record_of(servers, manifest, (state.input, state.result), connected);
        let broken = |_| Refusal::new("app_missing", "The app can't be read.");
        serde_json::to_value(record).map_err(broken)
    }

    /// What the console is told of an app: its grants as they are now, and without credentials
    /// unless the configuration says otherwise.
    pub(super) fn record_of<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        manifest: Arc<Manifest>,
        (input, result): (Value, Value),
        connected: bool,
    ) -> Record {
        let grant = self.granted(&manifest);
        let apps = servers
            .settings(&manifest.server)
            .and_then(|s| s.apps.clone());
        let exact = apps.as_ref().is_some_and(|apps| apps.exact_results);
        let (input, result, redacted) = if exact {
            (input, result, false)
        } else {
            let (input, one) = redact(input, grant.egress());
            let (result, two) = redact(result, grant.egress());
            (input, result, one || two)
        };
        let permissions = grant.permissions();
        let manifest = Arc::unwrap_or_clone(manifest);
        Record {
            invocation_id: manifest.id,
            connection_id: manifest.connection,
            server_name: manifest.server,
            tool_name: manifest.tool.name.clone(),
            resource_uri: manifest.uri,
            media_type: MEDIA_TYPE.to_owned(),
            protocol_version: REVISION.to_owned(),
            title: manifest.tool.title.clone(),
            description: manifest.tool.description.clone(),
            created_at: manifest.created_at,
            expires_at: manifest.expires_at,
            connected,
            html_bytes: manifest.html_bytes,
            input,
            result,
            csp: grant.origins,
            permissions,
            prefers_border: manifest.wishes.prefers_border,
            tool: manifest.tool,
            tools: manifest.tools,
            refused: grant.withheld,
            redacted,
            webrtc: apps.is_some_and(|apps| apps.webrtc),
            draft: false,
        }
    }

    async fn page(&self, claim: &Claim) -> Result<Vec<u8>, Refusal> {
        let (_, manifest) = self.record(claim, To::See)?;
        let vault = self.vault.clone();
        Ok(blocking(move || vault.html(&manifest, now_ms())).await??)
    }

    fn open<S: Starter>(&self, servers: &Arc<Servers<S>>, claim: &Claim) -> Result<Value, Refusal> {
        let card = self.owned(claim, To::See)?;
        let manifest = self.vault.manifest(&card.id, now_ms())?;
        let opened = Opened {
            view: locked(&self.views).open(&card.id),
            connected: self.is_connected(servers, &card, &manifest),
            capability: manifest.capability.clone(),
        };
        security(&card, "claim", "allow", "");
        serde_json::to_value(opened).map_err(|_| VaultError::Missing.into())
    }

    fn close(&self, claim: &Claim, view: &str) -> Result<Value, Refusal> {
        let card = self.owned(claim, To::See)?;
        let mut views = locked(&self.views);
        if views.life(view, &card.id).is_some() {
            views.close(view);
        }
        Ok(json!({}))
    }

    async fn decide<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        manifest: Arc<Manifest>,
        view: String,
        life: CancellationToken,
        confirmation: &str,
        decision: Decision,
    ) -> Result<Value, Stop> {
        let waiting = locked(&self.views).answer(&view, confirmation, Instant::now());
        let waiting = waiting.ok_or_else(|| {
            Refusal::new(
                "app_request_invalid",
                "Nothing of this name waits for an answer.",
            )
        })?;
        match (decision, waiting.grant) {
            (Decision::Deny, _) => {
                if let Some(method) = method_of(&waiting.method) {
                    self.note(servers, &manifest.id, method, Phase::Rejected);
                }
                security(&*manifest, &waiting.method, "deny", "app_declined");
                let refusal = Refusal::new("app_declined", "The person declined this.");
                return Err(refusal.into());
            }
            (Decision::View, Some(grant)) => locked(&self.views).grant(&view, grant),
            (Decision::View, None) => {
                let refusal = Refusal::new("app_request_invalid", "This is decided each time.");
                return Err(refusal.into());
            }
            (Decision::Once, _) => {}
        }
        let asked = Asked {
            manifest,
            view,
            life,
            method: waiting.method,
            params: waiting.params,
            confirmed: true,
        };
        self.request(servers, asked).await
    }

    /// True when one more request of this connection may be looked at.
    pub(super) fn may_try(&self, connection: &str) -> Result<(), Refusal> {
        rated(locked(&self.attempted).admit(connection, Instant::now()))
    }

    /// True when one more request of this connection may be executed.
    pub(super) fn may_execute(&self, connection: &str) -> Result<(), Refusal> {
        rated(locked(&self.executed).admit(connection, Instant::now()))
    }

    /// Apps whose current logs must stay: somebody looks at them, or their connection is there.
    pub(super) fn protected<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
    ) -> (HashSet<String>, HashSet<String>) {
        (locked(&self.views).apps(), servers.live())
    }
}

/// What is asked for. When nobody waits for it any more, it ends as when its view does: in order.
async fn while_waited_for<T>(
    work: impl Future<Output = T>,
    gone: &CancellationToken,
    life: &CancellationToken,
) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        () = gone.cancelled() => life.cancel(),
        done = &mut work => return done,
    }
    work.await
}

fn rated(admitted: bool) -> Result<(), Refusal> {
    if admitted {
        return Ok(());
    }
    let message = "The app asks too often. It may go on within a minute.";
    Err(Refusal::new("app_rate_limited", message))
}

/// The host's word for what a page wants.
pub(super) fn method_of(name: &str) -> Option<Method> {
    Some(match name {
        "tools/call" => Method::Call,
        "tools/list" => Method::List,
        "resources/read" => Method::Read,
        "ui/open-link" => Method::Link,
        "ui/update-model-context" => Method::Context,
        "ui/message" => Method::Message,
        "ui/download-file" => Method::Download,
        _ => return None,
    })
}
