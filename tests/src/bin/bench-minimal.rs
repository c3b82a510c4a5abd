//! `bench-minimal`: says one byte on its control channel and waits for its end. What is measured
//! around it is the start, and nothing of the program.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};

fn main() -> std::io::Result<()> {
    let mut channel = File::from(mono_sys::fd::take_fd(3)?);
    channel.write_all(b"!")?;
    channel.read(&mut [0]).map(drop)
}
