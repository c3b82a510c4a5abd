//! The machine: its disk, its clocks, and the process that runs on it.

use super::host::{Clock, Host};
use anyhow::{Context as _, Result};
use continuation_record::Time;
use continuation_record::token::TokenDigest;
use continuation_service::desk::{Desk, Parts};
use continuation_service::intake::Intake;
use continuation_service::keeper::Keeper as _;
use continuation_service::{Engine, Kept, Operator, Origins, Route, Settings, service};
use continuation_store::fs::{Call, Chance, Folder, SimFs, World};
use continuation_store::{Limits, Retention, Store};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// Small, so that everything turns over.
const LIMITS: Limits = Limits {
    log_bytes: 256 * 1024,
    context_bytes: 64 * 1024,
    pack_bytes: 64 * 1024,
    checkpoint_items: 32,
    packed_body: 1_500,
    held_bytes: 32 * 1024,
    group_bytes: 32 * 1024,
};
pub(super) const RETENTION: Retention = Retention {
    terminal_max_records: 40,
    terminal_max_age_ms: 40 * 24 * 3_600_000,
    captured_text_max_records: 5,
    captured_text_max_age_ms: 10 * 24 * 3_600_000,
};
/// Calls between two during which a checkpoint goes on.
const CHECKPOINT_EVERY: usize = 13;
/// The file of the store's secret and what is in it: with a secret by chance, tokens and the order of
/// snapshots would be others in each run of one seed.
const SECRET: (&str, &[u8]) = (
    "continuation-secret",
    b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n",
);
pub(super) const SERVICE: &str = "work-control";
pub(super) const BEARER: &str = "a bearer of enough characters";

/// What becomes of the process at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is killed; what was written is in the kernel.
    Killed,
    /// The power goes.
    Power,
    /// The disk refuses this one call.
    Refused,
}

#[derive(Debug, Default)]
struct Bomb {
    /// Calls until it happens.
    left: Option<usize>,
    end: Option<End>,
    /// The disk as it was then.
    world: Option<World>,
}

/// One process over the store.
pub(super) struct Process {
    pub(super) kept: Arc<Kept<SimFs>>,
    pub(super) store: Store<SimFs>,
    pub(super) desk: Arc<Desk>,
    pub(super) intake: Intake,
    pub(super) origins: Origins,
    pub(super) operator: Operator,
    pub(super) engine: Engine,
}

/// A machine that can be switched off.
pub(super) struct Machine {
    pub(super) clock: Arc<Clock>,
    pub(super) host: Arc<Host>,
    fs: SimFs,
    bomb: Arc<Mutex<Bomb>>,
    process: Option<Process>,
    honest: bool,
    runtime: tokio::runtime::Runtime,
    /// Calls so far.
    calls: Cell<usize>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn settings() -> Settings {
    let mut settings = Settings::new("127.0.0.1", 4319);
    settings.limits.max_active = 60;
    settings.limits.max_active_per_origin = 6;
    settings.limits.page_size = 500;
    for (name, mode, place) in [
        (
            "attention",
            continuation_record::Mode::NotifyIfActionable,
            true,
        ),
        ("capture", continuation_record::Mode::Capture, true),
        ("index", continuation_record::Mode::Silent, false),
    ] {
        let conversation = place.then(|| "slack:C1:T1".to_owned());
        settings
            .routes
            .insert(name.to_owned(), Route { mode, conversation });
    }
    settings
        .services
        .insert(SERVICE.to_owned(), TokenDigest::of(BEARER));
    settings
}

impl Machine {
    pub(super) fn new(seed: u64, honest: bool) -> Result<Self> {
        let mut world = World::new();
        world.place(Folder::Root, SECRET.0, SECRET.1);
        let mut machine = Self {
            honest,
            clock: Arc::new(Clock::new(seed)),
            host: Arc::default(),
            fs: SimFs::new(world),
            bomb: Arc::default(),
            process: None,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?,
            calls: Cell::default(),
        };
        machine.open()?;
        Ok(machine)
    }

    pub(super) fn process(&self) -> &Process {
        // It is there but for a moment in which nobody asks.
        #[allow(clippy::expect_used, reason = "a test's own mistake")]
        self.process.as_ref().expect("the process runs")
    }

    /// Now and then a checkpoint goes on between what a call has staged and its durability.
    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let calls = self.calls.get();
        self.calls.set(calls + 1);
        if !calls.is_multiple_of(CHECKPOINT_EVERY) {
            return self.runtime.block_on(future);
        }
        let store = self.process().store.clone();
        self.runtime.block_on(async {
            let mut future = pin!(future);
            store.hold(true);
            let first = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
            // If the disk fails, the call is told so.
            let _ = store.checkpoint();
            store.hold(false);
            let _ = store.flush();
            match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => future.await,
            }
        })
    }

    pub(super) fn world(&self) -> World {
        self.fs.world()
    }

    /// At one of the next calls to the disk something happens.
    pub(super) fn arm(&self, chance: &mut Chance) {
        let mut bomb = held(&self.bomb);
        bomb.left = Some(chance.below(30));
        bomb.end = Some(match chance.below(8) {
            0 => End::Killed,
            1 => End::Refused,
            _ => End::Power,
        });
    }

    /// No process can be started any more.
    pub(super) const fn is_lost(&self) -> bool {
        self.process.is_none()
    }

    /// The process can't go on.
    pub(super) fn is_down(&self) -> bool {
        self.process.as_ref().is_none_or(|p| p.kept.is_failed())
    }

    /// What is on the disk after it went down, and whether that was for want of power.
    fn left(&self, chance: &mut Chance) -> World {
        let mut bomb = held(&self.bomb);
        let end = bomb.end.take();
        bomb.left = None;
        let world = bomb.world.take().unwrap_or_else(|| self.fs.world());
        match end {
            Some(End::Power) => world.crash(chance),
            _ => world.killed(),
        }
    }

    /// Starts a process on what is left, before it has recovered anything.
    pub(super) fn reopen(&mut self, chance: &mut Chance) -> Result<()> {
        let left = self.left(chance);
        self.process = None;
        self.fs = SimFs::new(left);
        self.open()
    }

    fn open(&mut self) -> Result<()> {
        if !self.honest {
            self.fs
                .deaf(|call, _, name| call == Call::Sync && name.contains("log"));
        }
        let (store, _) = Store::open_manual(self.fs.clone(), LIMITS)
            .context("the store can't be opened any more")?;
        let kept = Arc::new(Kept::new(store.clone(), RETENTION));
        let desk = Desk::new(Parts {
            keeper: kept.clone(),
            secret: kept.secret(),
            settings: settings(),
            host: self.host.clone(),
            ambient: self.clock.clone(),
        });
        self.process = Some(Process {
            store,
            kept,
            intake: Intake::new(desk.clone()),
            origins: Origins::new(desk.clone()),
            operator: Operator::new(desk.clone()),
            engine: Engine::new(desk.clone()),
            desk,
        });
        self.watch();
        Ok(())
    }

    /// What the start does about what was interrupted.
    pub(super) fn recover(&self) -> bool {
        self.run(service::recover(&self.process().desk)).is_ok()
    }

    fn watch(&self) {
        let bomb = Arc::clone(&self.bomb);
        self.fs.watch_lazily(
            move |_| {
                let mut bomb = held(&bomb);
                match bomb.left {
                    None => bomb.world.is_some(),
                    Some(0) => {
                        bomb.left = None;
                        true
                    }
                    Some(left) => {
                        bomb.left = Some(left - 1);
                        false
                    }
                }
            },
            {
                let bomb = Arc::clone(&self.bomb);
                move |world| {
                    let mut bomb = held(&bomb);
                    if bomb.world.is_none() && bomb.end != Some(End::Refused) {
                        bomb.world = Some(world.clone());
                    }
                    std::io::Error::from_raw_os_error(if bomb.end == Some(End::Refused) {
                        28
                    } else {
                        5
                    })
                }
            },
        );
    }

    pub(super) fn pass_time(&self, chance: &mut Chance) -> &'static str {
        let day = 24 * 3_600_000;
        let (real, jump) = match chance.below(24) {
            0 => (i64::try_from(chance.below(31)).unwrap_or(0) * day, 0),
            1 => (0, 31 * day),
            2 => (0, -31 * day),
            3 => (0, 3_600_000),
            4 => (0, -3_600_000),
            5..=9 => (3_600_000, 0),
            _ => (i64::try_from(chance.below(120_000)).unwrap_or(0), 0),
        };
        self.clock.pass(
            Duration::from_millis(u64::try_from(real).unwrap_or(0)),
            jump,
        );
        if jump == 0 {
            "time passes"
        } else {
            "the clock jumps"
        }
    }

    pub(super) fn now(&self) -> Time {
        self.process().desk.now()
    }
}
