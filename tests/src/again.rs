//! Registries that are slow or fail now and then are asked again.

use std::time::Duration;

/// Times that something is tried.
const ATTEMPTS: u32 = 3;
/// Before the second attempt; twice as long before the third.
const PAUSE: Duration = Duration::from_secs(5);

/// Tries it until it succeeds; after the last attempt, its error.
///
/// # Errors
/// As the last attempt.
pub(crate) fn as_often(attempt: impl Fn() -> Result<(), String>) -> Result<(), String> {
    for before in 1..ATTEMPTS {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(reason) => {
                eprintln!("tried again: {reason}");
                std::thread::sleep(PAUSE * before);
            }
        }
    }
    attempt()
}
