//! `bench-minimal`: says one byte on its control channel and waits for its end. What is measured
//! around it is the start, and nothing of the program.
#![forbid(unsafe_code)]

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

fn main() -> std::io::Result<()> {
    let channel = mono_sys::fd::take_fd(3)?;
    nix::unistd::write(&channel, b"!")?;
    let mut end = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut end, PollTimeout::NONE)?;
    Ok(())
}
