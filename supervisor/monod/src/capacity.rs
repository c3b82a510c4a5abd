//! How much the supervisor takes on at once, whatever the configuration says: each run, server and
//! worker holds descriptors and memory, and who asks for them may be anybody.

use crate::run::Origin;
use ipc_proto::channel::Fault;

/// Runs at work and waiting together: each holds descriptors.
const MAX_RUNS: usize = 4096;
/// Bytes of the inputs that wait for a process: they are memory.
const MAX_WAITING_BYTES: u64 = 512 * 1024 * 1024;
/// Servers at once; each is a process tree of somebody else's code.
const MAX_SERVERS: usize = 128;
/// Idle, confined, never used run workers that wait: a turn then pays one message and no start.
const POOL: usize = 2;
/// Run workers that start at once: a burst of runs must not turn into a burst of starts.
const STARTING_AT_ONCE: usize = 4;

/// Says whether one more run may be taken in beside those that work and wait, each with its origin
/// and the bytes of its input that still wait. Runs that only put a later answer into words have a bound of
/// their own, `most_words`, beside the channels'.
///
/// # Errors
/// `queue_full`, with the bound that is reached.
pub(crate) fn admit_run(
    runs: impl Iterator<Item = (Origin, u64)>,
    most_words: usize,
    (origin, bytes): (Origin, u64),
) -> Result<(), Fault> {
    let (mut count, mut words, mut waiting) = (0, 0, bytes);
    for (origin, bytes) in runs {
        count += 1;
        words += usize::from(origin.is_words_only());
        waiting = bytes.saturating_add(waiting);
    }
    let refuse = |message: String| Err(Fault::new("queue_full", message));
    if count >= MAX_RUNS {
        refuse(format!(
            "{MAX_RUNS} runs are at work or waiting already; try again later"
        ))
    } else if waiting > MAX_WAITING_BYTES {
        refuse("the messages that wait are too large together; try again later".to_owned())
    } else if origin.is_words_only() && words >= most_words {
        refuse("continuations.limits.maxConcurrent answers are put into words already".to_owned())
    } else {
        Ok(())
    }
}

/// Says whether one more server may be started beside so many.
///
/// # Errors
/// A sentence for who asked.
pub(crate) fn admit_server(running: usize) -> Result<(), String> {
    if running < MAX_SERVERS {
        Ok(())
    } else {
        Err(format!("{MAX_SERVERS} MCP servers are running already"))
    }
}

/// True when one more run worker is to be started: `idle` have no run, of which `starting` are not
/// ready yet, and `wanted` runs wait for one.
#[must_use]
pub(crate) const fn wants_run_worker(idle: usize, starting: usize, wanted: usize) -> bool {
    idle < POOL + wanted && starting < STARTING_AT_ONCE
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::input::ProcessId;
    use ipc_proto::Role;

    const WORDS: Origin = Origin::Channel(ProcessId(1), Role::Continuation);
    const CONSOLE: Origin = Origin::Channel(ProcessId(2), Role::ChannelConsole);

    fn refusal(runs: &[(Origin, u64)], asked: (Origin, u64)) -> Option<String> {
        let fault = admit_run(runs.iter().copied(), 3, asked).err()?;
        assert_eq!(fault.code, "queue_full");
        Some(fault.message)
    }

    #[test]
    fn inputs_wait_up_to_a_bound_in_bytes() {
        let half = MAX_WAITING_BYTES / 2;
        assert_eq!(refusal(&[], (CONSOLE, MAX_WAITING_BYTES)), None);
        assert_eq!(refusal(&[(Origin::Admin, half)], (CONSOLE, half)), None);
        for runs in [
            &[(CONSOLE, half), (WORDS, 1)][..],
            &[(CONSOLE, u64::MAX)],
            &[(CONSOLE, u64::MAX), (CONSOLE, u64::MAX)],
        ] {
            assert!(
                refusal(runs, (CONSOLE, half))
                    .unwrap()
                    .contains("too large")
            );
        }
        assert_eq!(MAX_WAITING_BYTES, 1 << 29);
    }

    #[test]
    fn four_thousand_and_ninety_six_runs_are_at_work_or_wait() {
        let full = vec![(CONSOLE, 0); 4096];
        assert_eq!(refusal(&full[1..], (Origin::Admin, 0)), None);
        assert!(refusal(&full, (Origin::Admin, 0)).unwrap().contains("4096"));
    }

    #[test]
    fn later_answers_are_put_into_words_within_a_bound_that_binds_nobody_else() {
        let words = [(WORDS, 0); 3];
        let crowd = [(CONSOLE, 0); 9];
        assert_eq!(refusal(&words[1..], (WORDS, 0)), None);
        let said = refusal(&words, (WORDS, 0)).unwrap();
        assert!(said.contains("maxConcurrent"), "{said}");
        for origin in [CONSOLE, Origin::Admin] {
            assert_eq!(refusal(&words, (origin, 0)), None);
        }
        assert_eq!(refusal(&crowd, (WORDS, 0)), None);
    }

    #[test]
    fn a_hundred_and_twenty_eight_servers_run_at_most() {
        assert!(admit_server(127).is_ok());
        assert!(admit_server(128).unwrap_err().contains("128"));
    }

    #[test]
    fn two_run_workers_wait_and_a_burst_of_runs_starts_four_at_once() {
        for (idle, starting, wanted, more) in [
            (0, 0, 0, true),
            (1, 1, 0, true),
            (2, 0, 0, false),
            (2, 2, 0, false),
            // One for each run that waits, and those for the next ones.
            (2, 2, 1, true),
            (3, 3, 100, true),
            (4, 4, 100, false),
            (101, 3, 100, true),
            (102, 3, 100, false),
        ] {
            let found = wants_run_worker(idle, starting, wanted);
            assert_eq!(found, more, "{idle} {starting} {wanted}");
        }
    }
}
