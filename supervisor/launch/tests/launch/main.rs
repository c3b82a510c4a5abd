//! Starts a probe under real profiles and looks at what it could do. Run by root, each process
//! gets a user of its own; run by an ordinary user, a user namespace. One test runs all others
//! again the second way.
#![allow(clippy::unwrap_used)]

mod cost;
mod degraded;
mod failures;
mod fixture;
mod programs;
mod staying;
mod workers;

use fixture::{BINARIES, Fixture, is_root};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What distributions call `nobody`: a user with nothing.
const NOBODY: u32 = 65534;

#[test]
fn everything_holds_for_an_ordinary_user_too() {
    if !is_root() {
        // Then every other test of this program has just shown it.
        return;
    }
    let fixture = Fixture::new();
    let place = fixture.copy_binaries();
    let own_name = std::env::current_exe()
        .unwrap()
        .file_name()
        .unwrap()
        .to_owned();
    let output = Command::new(place.join(own_name))
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_clear()
        .env(BINARIES, &place)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
    assert!(text.contains(" passed"), "{text}");
}
