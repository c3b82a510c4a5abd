//! `bench-ipc`: 256 bytes there and back between two processes, through the protocol's client and
//! server and, for comparison, through a blocking socket pair with nothing around it.
//!
//! All of them run on one processor. Left alone, the scheduler puts a pair on one processor or on
//! two, by chance, and waking an idle processor takes several times as long as everything that is
//! measured here.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use ipc_proto::edges::bench::{Bench, Reply, Request};
use ipc_proto::{Client, Role, Server};
use mono_tests::bench::{Figure, Samples, report};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::Pid;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the payload.
const PAYLOAD: usize = 256;
/// Turns of both ways, after each other.
const TURNS: usize = 60;
/// Round trips of one way in one turn.
const TRIPS: usize = 1_000;
/// Round trips before the first one that counts.
const WARM_UP: usize = 2_000;
/// No round trip takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("serve-typed") => ended(serve_typed()),
        Some("serve-raw") => ended(serve_raw()),
        _ => report(measure()),
    }
}

fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("the answering process: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The channel of an answering process is its standard input.
fn channel() -> Result<OwnedFd> {
    Ok(std::io::stdin().as_fd().try_clone_to_owned()?)
}

fn answering(how: &str, channel: OwnedFd) -> Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg(how)
        .stdin(Stdio::from(channel))
        .spawn()
        .context("the answering process can't be started")
}

/// A runtime as every worker has it.
fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn serve_typed() -> Result<()> {
    runtime()?.block_on(async {
        let mut server = Server::<Bench>::new(channel()?, Role::Run)?;
        while let Some(call) = server.recv().await? {
            let Request::Echo { bytes } = call.request;
            call.responder.send(&Reply::Echoed { bytes }, &[]).await?;
        }
        Ok(())
    })
}

fn serve_raw() -> Result<()> {
    let channel = channel()?;
    let mut buffer = [0; PAYLOAD * 2];
    loop {
        let count = recv(channel.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        if count == 0 {
            return Ok(());
        }
        send(
            channel.as_raw_fd(),
            &buffer[..count],
            MsgFlags::MSG_NOSIGNAL,
        )?;
    }
}

fn raw_trips(channel: &OwnedFd, count: usize, samples: &mut Samples) -> Result<()> {
    let payload = [7_u8; PAYLOAD];
    let mut buffer = [0; PAYLOAD * 2];
    for _ in 0..count {
        let start = Instant::now();
        send(channel.as_raw_fd(), &payload, MsgFlags::MSG_NOSIGNAL)?;
        let got = recv(channel.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        samples.push(start.elapsed());
        ensure!(buffer[..got] == payload, "another payload came back");
    }
    Ok(())
}

async fn typed_trips(client: &Client<Bench>, count: usize, samples: &mut Samples) -> Result<()> {
    let request = Request::Echo {
        bytes: vec![7; PAYLOAD],
    };
    for _ in 0..count {
        let start = Instant::now();
        let (Reply::Echoed { bytes }, _) = client.call(&request, &[], PATIENCE).await?;
        samples.push(start.elapsed());
        let Request::Echo { bytes: sent } = &request;
        ensure!(&bytes == sent, "another payload came back");
    }
    Ok(())
}

/// Keeps this process, and those it starts, on the first processor that it may use.
fn stay_on_one_processor() -> Result<()> {
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own)?;
    let first = (0..CpuSet::count())
        .find(|processor| allowed.is_set(*processor).unwrap_or(false))
        .context("no processor is allowed")?;
    let mut one = CpuSet::new();
    one.set(first)?;
    Ok(sched_setaffinity(own, &one)?)
}

fn measure() -> Result<Figure> {
    stay_on_one_processor()?;
    let (ours, theirs) = ipc_proto::link::pair()?;
    let mut typed_end = answering("serve-typed", theirs)?;
    let (raw, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let mut raw_end = answering("serve-raw", theirs)?;
    let (mut typed, mut plain) = (Samples::default(), Samples::default());
    runtime()?.block_on(async {
        let client = Client::<Bench>::new(ours, Role::Store)?;
        let mut unused = Samples::default();
        typed_trips(&client, WARM_UP, &mut unused).await?;
        raw_trips(&raw, WARM_UP, &mut unused)?;
        for _ in 0..TURNS {
            typed_trips(&client, TRIPS, &mut typed).await?;
            raw_trips(&raw, TRIPS, &mut plain)?;
        }
        anyhow::Ok(())
    })?;
    drop(raw);
    for end in [&mut typed_end, &mut raw_end] {
        let status = end.wait()?;
        if !status.success() {
            bail!("the answering process ended with {status}");
        }
    }
    Ok(Figure::of("µs", 1e6, &typed, &plain))
}
