//! Copies a file while hashing exactly the bytes that are written.

use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

/// One read and write (facts 5.3).
pub const CHUNK: usize = 64 * 1024;
/// Chunks between the reader and the hasher: enough that neither waits for a hiccup of the other.
const DEPTH: usize = 16;
/// Below this a second thread costs more than it saves.
const PIPELINE_FROM: u64 = 512 * 1024;

/// Why a copy has no result.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source can't be read.
    #[error("the source can't be read: {0}")]
    Read(#[source] io::Error),
    /// The source has fewer or more bytes than it had, or its status changed.
    #[error("the source changed while it was copied")]
    Changed,
    /// The copy can't be written: no room, an I/O error.
    #[error("the copy can't be written: {0}")]
    Write(#[source] io::Error),
    /// The asker is gone.
    #[error("the copy was cancelled after {0} bytes")]
    Cancelled(u64),
}

/// Asked before every chunk, on the calling thread, with the bytes done so far; `false` cancels.
pub type Watch<'a> = dyn Fn(u64) -> bool + 'a;

/// Copies `size` bytes from the start of `source`, which must then be at its end. Positioned
/// reads: the offset of a descriptor is shared with whoever handed it over. Without `target` the
/// bytes are only hashed. Returns their SHA-256.
///
/// # Errors
/// [`CopyError`]; the target then holds an undefined part.
pub fn copy_hashed(
    source: impl AsFd,
    target: Option<&File>,
    size: u64,
    watch: &Watch<'_>,
) -> Result<[u8; 32], CopyError> {
    let mut reader = Reader {
        source: File::from(
            source
                .as_fd()
                .try_clone_to_owned()
                .map_err(CopyError::Read)?,
        ),
        size,
        at: 0,
        watch,
    };
    if size < PIPELINE_FROM || target.is_none() {
        return inline(&mut reader, target);
    }
    thread::scope(|scope| {
        let (full, chunks) = mpsc::sync_channel::<Vec<u8>>(DEPTH);
        let (empty, spare) = mpsc::channel::<Vec<u8>>();
        let hasher = thread::Builder::new()
            .name("sha256".to_owned())
            .spawn_scoped(scope, move || {
                let mut hash = Sha256::new();
                for chunk in chunks {
                    hash.update(&chunk);
                    // The reader may be done already and not want it back.
                    let _ = empty.send(chunk);
                }
                hash.finalize().into()
            });
        let Ok(hasher) = hasher else {
            // No thread to be had is no reason to fail.
            return inline(&mut reader, target);
        };
        loop {
            let mut chunk = spare.try_recv().unwrap_or_default();
            if !reader.fill(&mut chunk)? {
                break;
            }
            write(target, &chunk)?;
            if full.send(chunk).is_err() {
                break;
            }
        }
        drop(full);
        hasher
            .join()
            .map_err(|_| CopyError::Read(io::Error::other("the hashing thread ended early")))
    })
}

fn inline(reader: &mut Reader<'_>, target: Option<&File>) -> Result<[u8; 32], CopyError> {
    let mut hash = Sha256::new();
    let mut chunk = Vec::new();
    while reader.fill(&mut chunk)? {
        write(target, &chunk)?;
        hash.update(&chunk);
    }
    Ok(hash.finalize().into())
}

fn write(target: Option<&File>, chunk: &[u8]) -> Result<(), CopyError> {
    target
        .map_or(Ok(()), |mut file| file.write_all(chunk))
        .map_err(CopyError::Write)
}

struct Reader<'a> {
    source: File,
    size: u64,
    at: u64,
    watch: &'a Watch<'a>,
}

impl Reader<'_> {
    /// Fills `chunk` with the next bytes; `false` at the announced and real end.
    fn fill(&mut self, chunk: &mut Vec<u8>) -> Result<bool, CopyError> {
        use std::os::unix::fs::FileExt as _;
        if !(self.watch)(self.at) {
            return Err(CopyError::Cancelled(self.at));
        }
        let left = self.size - self.at;
        // One byte more than is left, to see that the end is the end.
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        chunk.resize(want.max(1), 0);
        let mut filled = 0;
        while filled < chunk.len() {
            match self
                .source
                .read_at(&mut chunk[filled..], self.at + filled as u64)
            {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(CopyError::Read(e)),
            }
        }
        if filled != want {
            return Err(CopyError::Changed);
        }
        self.at += want as u64;
        Ok(want > 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::io::{Read as _, Seek as _};
    use std::sync::Mutex;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn pattern(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * 31 % 251) as u8).collect()
    }

    fn check(size: usize) {
        let bytes = pattern(size);
        let expected: [u8; 32] = Sha256::digest(&bytes).into();
        // The offset stands at the end after writing: positioned reads don't care.
        let source = file(&bytes);
        let mut target = tempfile::tempfile().unwrap();
        assert_eq!(
            copy_hashed(&source, Some(&target), size as u64, &|_| true).unwrap(),
            expected
        );
        assert_eq!(
            copy_hashed(&source, None, size as u64, &|_| true).unwrap(),
            expected
        );
        let mut copied = Vec::new();
        target.rewind().unwrap();
        target.read_to_end(&mut copied).unwrap();
        assert!(copied == bytes, "{size}");
    }

    #[test]
    fn every_size_around_the_borders_is_copied_and_hashed() {
        let border = usize::try_from(PIPELINE_FROM).unwrap();
        for size in [
            0,
            1,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            border - 1,
            border,
            border + 1,
            3_000_000,
        ] {
            check(size);
        }
    }

    #[test]
    fn a_source_that_is_shorter_or_longer_than_announced_has_changed() {
        for size in [10, 2_000_000] {
            let source = file(&pattern(size));
            let target = tempfile::tempfile().unwrap();
            for announced in [size as u64 - 1, size as u64 + 1] {
                let outcome = copy_hashed(&source, Some(&target), announced, &|_| true);
                assert!(
                    matches!(outcome, Err(CopyError::Changed)),
                    "{size} {announced}"
                );
            }
        }
    }

    #[test]
    fn a_cancelled_copy_ends_at_the_next_chunk() {
        for size in [200_000u64, 4_000_000] {
            let source = file(&pattern(size as usize));
            let target = tempfile::tempfile().unwrap();
            let seen = Mutex::new(Vec::new());
            let outcome = copy_hashed(&source, Some(&target), size, &|at| {
                seen.lock().unwrap().push(at);
                at < 2 * CHUNK as u64
            });
            assert!(matches!(outcome, Err(CopyError::Cancelled(at)) if at == 2 * CHUNK as u64));
            assert_eq!(
                seen.into_inner().unwrap(),
                [0, CHUNK as u64, 2 * CHUNK as u64]
            );
        }
    }

    #[test]
    fn an_unwritable_target_is_a_write_error() {
        let source = file(&pattern(2_000_000));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let outcome = copy_hashed(&source, Some(&full), 2_000_000, &|_| true);
        assert!(
            matches!(outcome, Err(CopyError::Write(e)) if e.kind() == io::ErrorKind::StorageFull)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_size_is_copied_and_hashed(size in 0usize..1_500_000) {
            check(size);
        }
    }

    #[test]
    fn the_watch_is_called_from_the_asking_thread() {
        thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
        HERE.set(true);
        let source = file(&pattern(1_000_000));
        let target = tempfile::tempfile().unwrap();
        assert!(copy_hashed(&source, Some(&target), 1_000_000, &|_| HERE.get()).is_ok());
    }
}
