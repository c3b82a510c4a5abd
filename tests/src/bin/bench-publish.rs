//! `bench-publish`: a 20 MiB file to its durable reference, by the artifact worker under its
//! profile over its own channel; beside reading, hashing, writing and syncing the same file in one
//! loop.
//!
//! The loop makes no staging, no manifest, no rename and no check of where the file comes from.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use ipc_proto::edges::artifact::{Reply, Request, Root};
use mono_tests::bench::{ArtifactWorker, Bed, Figure, Samples, report};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Bytes of the file: the largest that can be published.
const SIZE: usize = 20 * 1024 * 1024;
/// Publications that count.
const ROUNDS: usize = 20;
/// Publications before.
const WARM_UP: usize = 2;
/// Bytes of one read and write, as in the worker.
const CHUNK: usize = 64 * 1024;
/// No publication takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    report(measure())
}

fn measure() -> Result<Figure> {
    let bed = Bed::new()?;
    let source = bed.at("workspace/file.bin");
    // No compression or hole of a file system makes it cheaper.
    let bytes: Vec<u8> = (0_u64..)
        .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(SIZE)
        .collect();
    std::fs::write(&source, &bytes)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut published, mut looped) = (Samples::new(), Samples::new());
    runtime.block_on(async {
        let worker = bed.serving_artifact_worker(1_000).await?;
        let unused = &mut Samples::new();
        for round in 0..WARM_UP + ROUNDS {
            let counts = round >= WARM_UP;
            let samples = if counts { &mut published } else { &mut *unused };
            publish(&worker, round as u64, &source, samples).await?;
            let samples = if counts { &mut looped } else { &mut *unused };
            samples.time(|| one_loop(&source, &bed.at("copy")))?;
            std::fs::remove_file(bed.at("copy"))?;
        }
        anyhow::Ok(())
    })?;
    Ok(Figure::of("ms", 1e3, &published, &looped)
        .with("measured_through", "the artifact worker under its profile"))
}

/// One publication in a run of its own, taken back afterwards.
async fn publish(
    worker: &ArtifactWorker,
    number: u64,
    source: &Path,
    samples: &mut Samples,
) -> Result<()> {
    let client = worker.run(number).await?;
    let request = Request::Publish {
        root: Root::Workspace,
        path: "file.bin".to_owned(),
        name: None,
        media_type: None,
    };
    let start = std::time::Instant::now();
    let file: OwnedFd = File::open(source)?.into();
    match client.call(&request, &[file], PATIENCE).await?.0 {
        Reply::Published { .. } => {}
        other => bail!("not published: {other:?}"),
    }
    // Only then it is on the disk, as the copy of the loop is.
    match client.call(&Request::Finalise, &[], PATIENCE).await?.0 {
        Reply::Finalised { .. } => samples.push(start.elapsed()),
        other => bail!("not finalised: {other:?}"),
    }
    client.call(&Request::Discard, &[], PATIENCE).await?;
    Ok(())
}

fn one_loop(source: &Path, target: &Path) -> std::io::Result<[u8; 32]> {
    let mut source = File::open(source)?;
    let mut target = File::create(target)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = source.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        hash.update(&chunk[..count]);
        target.write_all(&chunk[..count])?;
    }
    target.sync_all()?;
    Ok(hash.finalize().into())
}
