//! A file system that ends after so many calls, as a process does that is killed.

use super::{Folder, Fs, FsFile};
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Passes calls on until they are used up; from then on each fails and does nothing.
#[derive(Debug)]
pub struct Counting<F> {
    inner: F,
    left: Arc<Left>,
}

#[derive(Debug)]
struct Left {
    made: AtomicU64,
    allowed: u64,
}

impl Left {
    fn take(&self) -> io::Result<()> {
        if self.made.fetch_add(1, Ordering::Relaxed) < self.allowed {
            Ok(())
        } else {
            Err(io::Error::other("the process ended here"))
        }
    }
}

/// A file of it.
#[derive(Debug)]
pub struct CountingFile<T> {
    inner: T,
    left: Arc<Left>,
}

impl<F: Fs> Counting<F> {
    /// Only so many calls are made.
    #[must_use]
    pub fn new(inner: F, allowed: u64) -> Self {
        let made = AtomicU64::new(0);
        Self {
            inner,
            left: Arc::new(Left { made, allowed }),
        }
    }

    /// A count of the calls that goes on when this is given away.
    pub fn count(&self) -> impl Fn() -> u64 + use<F> {
        let left = Arc::clone(&self.left);
        move || left.made.load(Ordering::Relaxed)
    }

    fn file(&self, inner: F::File) -> CountingFile<F::File> {
        CountingFile {
            inner,
            left: Arc::clone(&self.left),
        }
    }
}

impl<F: Fs> Fs for Counting<F> {
    type File = CountingFile<F::File>;

    fn own(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.left.take()?;
        self.inner.own()
    }

    fn has(&self, folder: Folder) -> io::Result<bool> {
        self.left.take()?;
        self.inner.has(folder)
    }

    fn make(&self, folder: Folder) -> io::Result<()> {
        self.left.take()?;
        self.inner.make(folder)
    }

    fn list(&self, folder: Folder) -> io::Result<Vec<String>> {
        self.left.take()?;
        self.inner.list(folder)
    }

    fn len(&self, folder: Folder, name: &str) -> io::Result<Option<u64>> {
        self.left.take()?;
        self.inner.len(folder, name)
    }

    fn read(&self, folder: Folder, name: &str, max: u64) -> io::Result<Option<Vec<u8>>> {
        self.left.take()?;
        self.inner.read(folder, name, max)
    }

    fn create(&self, folder: Folder, name: &str) -> io::Result<Self::File> {
        self.left.take()?;
        self.inner.create(folder, name).map(|file| self.file(file))
    }

    fn open(&self, folder: Folder, name: &str) -> io::Result<Option<Self::File>> {
        self.left.take()?;
        let file = self.inner.open(folder, name)?;
        Ok(file.map(|file| self.file(file)))
    }

    fn rename(&self, folder: Folder, from: &str, to: &str) -> io::Result<()> {
        self.left.take()?;
        self.inner.rename(folder, from, to)
    }

    fn remove(&self, folder: Folder, name: &str) -> io::Result<()> {
        self.left.take()?;
        self.inner.remove(folder, name)
    }

    fn sync_folder(&self, folder: Folder) -> io::Result<()> {
        self.left.take()?;
        self.inner.sync_folder(folder)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.left.take()?;
        self.inner.sync_all()
    }
}

impl<T: FsFile> FsFile for CountingFile<T> {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.left.take()?;
        self.inner.write_at(at, bytes)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.left.take()?;
        self.inner.read_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.left.take()?;
        self.inner.sync()
    }
}
