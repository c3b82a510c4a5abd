//! The clocks, and the rest of the host as far as it is asked while something is recovered or resolved.

use async_trait::async_trait;
use continuation_record::Time;
use continuation_record::snapshot::SnapshotMessage;
use continuation_service::ambient::Ambient;
use continuation_service::host::{
    Commitment, Delivery, DeliveryRequest, Readiness, Synthesis, SynthesisRequest,
};
use continuation_store::fs::Chance;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two clocks and a source of chance.
#[derive(Debug)]
pub(super) struct Clock {
    now: Mutex<(Time, Duration)>,
    chance: Mutex<Chance>,
}

impl Clock {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Mutex::new((Time::from_ms(1_900_000_000_000), Duration::ZERO)),
            chance: Mutex::new(Chance::new(!seed)),
        }
    }

    /// Time passes on both clocks, and somebody sets the one on the wall.
    pub(super) fn pass(&self, time: Duration, jump: i64) {
        let mut now = held(&self.now);
        let ms = i64::try_from(time.as_millis()).unwrap_or(0);
        now.0 = now.0.plus_ms(ms).plus_ms(jump);
        now.1 += time;
    }
}

impl Ambient for Clock {
    fn wall(&self) -> Time {
        held(&self.now).0
    }

    fn elapsed(&self) -> Duration {
        held(&self.now).1
    }

    fn fill(&self, bytes: &mut [u8]) {
        let mut chance = held(&self.chance);
        for byte in bytes {
            *byte = chance.any().to_le_bytes()[0];
        }
    }
}

/// What the other processes know.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Runs whose turn is in the history.
    pub(super) committed: Mutex<BTreeSet<String>>,
    /// Runs that are still under way.
    pub(super) running: Mutex<BTreeSet<String>>,
    /// Every second entry into the history fails.
    pub(super) entries: Mutex<usize>,
}

impl Host {
    pub(super) fn commit(&self, run: &str) {
        held(&self.committed).insert(run.to_owned());
    }

    pub(super) fn is_committed(&self, run: &str) -> bool {
        held(&self.committed).contains(run)
    }

    pub(super) fn commitment(&self, run: &str) -> Commitment {
        if self.is_committed(run) {
            Commitment::Committed
        } else if held(&self.running).contains(run) {
            Commitment::Unknown
        } else {
            Commitment::NotCommitted
        }
    }

    pub(super) fn set_running(&self, run: &str, runs: bool) {
        let mut running = held(&self.running);
        if runs {
            running.insert(run.to_owned());
        } else {
            running.remove(run);
        }
    }
}

#[async_trait]
impl continuation_service::Host for Host {
    async fn run_committed(&self, run: &str, _: &str, _: &str) -> Commitment {
        self.commitment(run)
    }

    async fn latest_history(&self, _: &str) -> Result<Vec<SnapshotMessage>, String> {
        Err("the simulation answers this itself".to_owned())
    }

    async fn commit_history(&self, _: &str, _: &str, _: &str) -> Result<(), String> {
        let mut entries = held(&self.entries);
        *entries += 1;
        if entries.is_multiple_of(2) {
            Err("history_unavailable".to_owned())
        } else {
            Ok(())
        }
    }

    async fn preflight(&self, _: &str) -> Readiness {
        Readiness::Ready
    }

    async fn synthesize(&self, _: SynthesisRequest) -> Synthesis {
        Synthesis::Failed {
            code: "simulated".to_owned(),
            reason: "the simulation answers this itself".to_owned(),
        }
    }

    async fn deliver(&self, _: DeliveryRequest) -> Delivery {
        Delivery::Unknown {
            code: "simulated".to_owned(),
            reason: "the simulation answers this itself".to_owned(),
        }
    }
}
