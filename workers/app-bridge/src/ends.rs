//! How the processes of servers ended, as the supervisor tells. The end of a server's pipe comes
//! first, and says nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// From the end of a pipe to the supervisor's word about the process.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Processes whose end is awaited.
#[derive(Debug, Default)]
pub struct Ends {
    awaited: Mutex<HashMap<u64, watch::Sender<Option<String>>>>,
}

/// The end of one process.
#[derive(Debug, Clone)]
pub struct End(watch::Receiver<Option<String>>);

impl Ends {
    /// A process was started.
    pub fn expect(&self, process: u64) -> End {
        let (tell, told) = watch::channel(None);
        self.awaited().insert(process, tell);
        End(told)
    }

    /// A process has ended: `how` follows "it".
    pub fn told(&self, process: u64, how: String) {
        if let Some(tell) = self.awaited().remove(&process) {
            // Nobody may be waiting; who asks later finds it.
            tell.send_replace(Some(how));
        }
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<u64, watch::Sender<Option<String>>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// How the process ended; `None` when nobody tells in time.
    pub async fn how(&self) -> Option<String> {
        let mut told = self.0.clone();
        let told = told.wait_for(Option::is_some);
        let how = tokio::time::timeout(TOLD_WITHIN, told).await.ok()?.ok()?;
        how.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_end_is_known_before_after_and_not_at_all() {
        let ends = Ends::default();
        let (early, late, never) = (ends.expect(1), ends.expect(2), ends.expect(3));
        ends.told(1, "exited with 1".into());
        assert_eq!(early.how().await.unwrap(), "exited with 1");
        // Again: every call that was under way asks.
        assert_eq!(early.how().await.unwrap(), "exited with 1");
        let (how, ()) = tokio::join!(late.how(), async { ends.told(2, "left".into()) });
        assert_eq!(how.unwrap(), "left");
        assert_eq!(never.how().await, None);
        assert_eq!(ends.awaited().len(), 1);
        // One that was never started here, and one whose place is gone.
        ends.told(9, String::new());
        drop(ends);
        assert_eq!(never.how().await, None);
    }
}
