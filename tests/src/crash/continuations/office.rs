//! The service over a folder, and a host that is known by what it said.

use crate::crash::say;
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use continuation_record::Mode;
use continuation_record::snapshot::SnapshotMessage;
use continuation_record::token::TokenDigest;
use continuation_service::ambient::Machine;
use continuation_service::desk::{Desk, Parts};
use continuation_service::engine::{Answer, Question, Step};
use continuation_service::host::{
    Commitment, Delivery, DeliveryRequest, Readiness, Synthesis, SynthesisRequest,
};
use continuation_service::intake::Intake;
use continuation_service::{Engine, Host, Kept, Operator, Origins, Route, Settings, service};
use continuation_store::fs::RealFs;
use continuation_store::{Limits, Retention, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) const SERVICE: &str = "work-control";
pub(super) const BEARER: &str = "a bearer of enough characters";
/// A place whose channel never says what became of a text.
pub(super) const SILENT_PLACE: &str = "slack:C2:T2";
/// The log is small, so that a scene's folder is quickly copied; everything else is as in the product.
const LIMITS: Limits = Limits {
    log_bytes: 256 * 1024,
    context_bytes: 256 * 1024 * 1024,
    pack_bytes: 16 * 1024 * 1024,
    checkpoint_items: 4096,
    packed_body: 4 * 1024,
    held_bytes: 8 * 1024 * 1024,
    group_bytes: 8 * 1024 * 1024,
};

/// What was done outside, which no crash undoes.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) committed: BTreeSet<String>,
    /// Times that a model was asked, by continuation.
    pub(super) asked: BTreeMap<String, usize>,
    /// Times that a text was posted, by key.
    pub(super) posted: BTreeMap<String, usize>,
}

/// The rest of the host: it says what it does before it answers.
#[derive(Debug, Default)]
pub(super) struct Others {
    done: Mutex<Done>,
    /// Nobody listens any more.
    quiet: bool,
}

impl Others {
    /// In a process that nobody listens to.
    pub(super) fn after(done: Done) -> Self {
        Self {
            done: Mutex::new(done),
            quiet: true,
        }
    }

    pub(super) fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells it, if somebody listens.
    pub(super) fn say(&self, line: &str) {
        if !self.quiet {
            say(line);
        }
    }

    /// A turn is in the history from now on.
    pub(super) fn commit(&self, run: &str) {
        self.say(&format!("committed {run}"));
        self.done().committed.insert(run.to_owned());
    }
}

#[async_trait]
impl Host for Others {
    async fn run_committed(&self, run: &str, _: &str, _: &str) -> Commitment {
        match self.done().committed.contains(run) {
            true => Commitment::Committed,
            false => Commitment::NotCommitted,
        }
    }

    async fn latest_history(&self, _: &str) -> Result<Vec<SnapshotMessage>, String> {
        Ok(Vec::new())
    }

    async fn commit_history(&self, _: &str, key: &str, _: &str) -> Result<(), String> {
        self.say(&format!("entered {key}"));
        Ok(())
    }

    async fn preflight(&self, _: &str) -> Readiness {
        Readiness::Ready
    }

    async fn synthesize(&self, request: SynthesisRequest) -> Synthesis {
        let id = request.continuation_id;
        self.say(&format!("asked {id}"));
        *self.done().asked.entry(id.clone()).or_default() += 1;
        Synthesis::Text(format!("the answer to {id}"))
    }

    async fn deliver(&self, request: DeliveryRequest) -> Delivery {
        let times = {
            let mut done = self.done();
            let times = done.posted.entry(request.key.clone()).or_default();
            *times += 1;
            *times
        };
        self.say(&format!("posted {}", request.key));
        if request.target == SILENT_PLACE && times == 1 {
            return Delivery::Unknown {
                code: "silent".to_owned(),
                reason: "the channel said nothing".to_owned(),
            };
        }
        Delivery::Delivered {
            delivery_id: Some("1".to_owned()),
            channel_id: None,
            history: None,
        }
    }
}

/// A process with everything that the worker has but its listener.
pub(super) struct Office {
    pub(super) store: Store<RealFs>,
    pub(super) kept: Arc<Kept<RealFs>>,
    pub(super) desk: Arc<Desk>,
    pub(super) host: Arc<Others>,
    pub(super) intake: Intake,
    pub(super) origins: Origins,
    pub(super) operator: Operator,
    pub(super) engine: Engine,
}

fn settings() -> Settings {
    let mut settings = Settings::new("127.0.0.1", 4319);
    for (name, mode, place) in [
        ("attention", Mode::NotifyIfActionable, Some("slack:C1:T1")),
        ("unheard", Mode::NotifyIfActionable, Some(SILENT_PLACE)),
        ("verification", Mode::Capture, Some("slack:C1:T1")),
        ("index", Mode::Silent, None),
    ] {
        let conversation = place.map(str::to_owned);
        let route = Route { mode, conversation };
        settings.routes.insert(name.to_owned(), route);
    }
    let digest = TokenDigest::of(BEARER);
    settings.services.insert(SERVICE.to_owned(), digest);
    settings
}

impl Office {
    /// Opens a folder; nothing is recovered yet.
    pub(super) fn open(folder: &Path, host: Others, retention: Retention) -> Result<Self> {
        let fs = RealFs::open(&folder.join("state"))?;
        let (store, _) = Store::open(fs, LIMITS).context("the store can't be opened")?;
        let kept = Arc::new(Kept::new(store.clone(), retention));
        let host = Arc::new(host);
        let desk = Desk::new(Parts {
            secret: kept.secret(),
            keeper: kept.clone(),
            settings: settings(),
            host: host.clone(),
            ambient: Arc::new(Machine::default()),
        });
        Ok(Self {
            intake: Intake::new(desk.clone()),
            origins: Origins::new(desk.clone()),
            operator: Operator::new(desk.clone()),
            engine: Engine::new(desk.clone()),
            store,
            kept,
            desk,
            host,
        })
    }

    /// What a start does about what was interrupted.
    pub(super) async fn recover(&self) -> Result<()> {
        Ok(service::recover(&self.desk).await?)
    }

    /// Asks the host.
    pub(super) async fn put(&self, question: Question) -> Answer {
        service::put(&*self.host, question, &settings().limits).await
    }

    /// The loop, until nothing is due.
    pub(super) async fn work(&self) -> Result<()> {
        loop {
            let due = self.engine.due(16);
            if due.is_empty() {
                return Ok(());
            }
            for id in due {
                let mut step = self.engine.start(&id).await?;
                while let Step::Ask(job, question) = step {
                    let answer = self.put(question).await;
                    step = self.engine.advance(job, answer).await?;
                }
            }
        }
    }
}
