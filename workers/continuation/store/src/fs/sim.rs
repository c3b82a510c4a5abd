//! A file system in memory that can be cut off from its power.
//!
//! What is written or named is there at once for who asks, and is lost at a crash unless it was
//! synced: of the writes to a file that were not synced any subset survives, each of them torn at
//! any sector; of the changes of a folder's names any subset. Closing a file syncs nothing.

use super::{Folder, Fs, FsFile};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Pseudo-random numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.any() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone, Default)]
struct Node {
    /// What a reader sees.
    seen: Arc<Vec<u8>>,
    /// What is certainly on the disk.
    stable: Arc<Vec<u8>>,
    /// Written since, in order.
    pending: Vec<(usize, Arc<Vec<u8>>)>,
}

impl Node {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        put(Arc::make_mut(&mut self.seen), at, bytes);
        self.pending.push((at, Arc::new(bytes.to_vec())));
    }

    fn sync(&mut self) {
        // All that is seen, unless a failed sync has made the disk forget some of it.
        let stable = Arc::make_mut(&mut self.stable);
        for (at, bytes) in self.pending.drain(..) {
            put(stable, at, &bytes);
        }
    }

    /// What a power cut leaves.
    fn crash(&self, chance: &mut Chance) -> Self {
        let mut left = Arc::clone(&self.stable);
        let all = chance.below(3);
        for (at, bytes) in &self.pending {
            let keep = match all {
                0 => false,
                1 => true,
                _ => chance.once_in(2),
            };
            if !keep {
                continue;
            }
            let data = Arc::make_mut(&mut left);
            if chance.once_in(3) {
                tear(data, *at, bytes, chance);
            } else {
                put(data, *at, bytes);
            }
        }
        Self {
            seen: Arc::clone(&left),
            stable: left,
            pending: Vec::new(),
        }
    }
}

fn put(data: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[at..end].copy_from_slice(bytes);
}

/// Only some of the sectors.
fn tear(data: &mut Vec<u8>, at: usize, bytes: &[u8], chance: &mut Chance) {
    let mut from = 0;
    while from < bytes.len() {
        let to = ((at + from) / SECTOR * SECTOR + SECTOR - at).min(bytes.len());
        if chance.once_in(2) {
            put(data, at + from, &bytes[from..to]);
        }
        from = to;
    }
}

#[derive(Debug, Clone)]
enum Change {
    Create(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

#[derive(Debug, Clone, Default)]
struct Names {
    seen: BTreeMap<String, usize>,
    stable: BTreeMap<String, usize>,
    pending: Vec<Change>,
}

impl Names {
    fn apply(names: &mut BTreeMap<String, usize>, change: &Change) {
        match change {
            Change::Create(name, node) => {
                names.insert(name.clone(), *node);
            }
            Change::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
            Change::Remove(name) => {
                names.remove(name);
            }
        }
    }

    fn change(&mut self, change: Change) {
        Self::apply(&mut self.seen, &change);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        self.stable = self.seen.clone();
        self.pending.clear();
    }

    fn crash(&self, chance: &mut Chance) -> Self {
        let mut left = self.stable.clone();
        let all = chance.below(3);
        for change in &self.pending {
            let keep = match all {
                0 => false,
                1 => true,
                _ => chance.once_in(2),
            };
            if keep {
                Self::apply(&mut left, change);
            }
        }
        Self {
            seen: left.clone(),
            stable: left,
            pending: Vec::new(),
        }
    }
}

/// All that is on the disk, and on its way there.
#[derive(Debug, Clone, Default)]
pub struct World {
    nodes: BTreeMap<usize, Node>,
    next: usize,
    folders: BTreeMap<Folder, Names>,
    /// Folders whose making is not durable yet.
    fresh: Vec<Folder>,
    owned: bool,
}

impl World {
    /// An empty state folder.
    #[must_use]
    pub fn new() -> Self {
        let mut world = Self::default();
        world.folders.insert(Folder::Root, Names::default());
        world
    }

    /// What a power cut leaves of it.
    #[must_use]
    pub fn crash(&self, chance: &mut Chance) -> Self {
        let mut left = Self::new();
        left.next = self.next;
        for (&folder, names) in &self.folders {
            if self.fresh.contains(&folder) && chance.once_in(2) {
                continue;
            }
            left.folders.insert(folder, names.crash(chance));
        }
        for names in left.folders.values() {
            for node in names.seen.values() {
                if let Some(was) = self.nodes.get(node) {
                    left.nodes.entry(*node).or_insert_with(|| was.crash(chance));
                }
            }
        }
        left
    }

    /// The same with nothing lost, as after a process was killed.
    #[must_use]
    pub fn killed(&self) -> Self {
        Self {
            owned: false,
            ..self.clone()
        }
    }

    /// Whether there is such a folder.
    #[must_use]
    pub fn has(&self, folder: Folder) -> bool {
        self.folders.contains_key(&folder)
    }

    /// The names in a folder.
    #[must_use]
    pub fn names(&self, folder: Folder) -> Vec<String> {
        self.folders
            .get(&folder)
            .map(|names| names.seen.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Puts a file there, durable.
    pub fn place(&mut self, folder: Folder, name: &str, bytes: &[u8]) {
        let node = self.next;
        self.next += 1;
        let data = Arc::new(bytes.to_vec());
        self.nodes.insert(
            node,
            Node {
                seen: Arc::clone(&data),
                stable: data,
                pending: Vec::new(),
            },
        );
        let names = self.folders.entry(folder).or_default();
        names.seen.insert(name.to_owned(), node);
        names.stable.insert(name.to_owned(), node);
    }

    /// A file's bytes.
    #[must_use]
    pub fn bytes(&self, folder: Folder, name: &str) -> Option<&[u8]> {
        let node = self.folders.get(&folder)?.seen.get(name)?;
        self.nodes.get(node).map(|node| node.seen.as_slice())
    }

    /// Changes a file's bytes behind the store's back, durably.
    pub fn spoil(&mut self, folder: Folder, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let node = self.folders.get(&folder).and_then(|n| n.seen.get(name));
        if let Some(node) = node.and_then(|node| self.nodes.get_mut(node)) {
            change(Arc::make_mut(&mut node.seen));
            node.stable = Arc::clone(&node.seen);
            node.pending.clear();
        }
    }

    /// Removes a file behind the store's back.
    pub fn lose(&mut self, folder: Folder, name: &str) {
        if let Some(names) = self.folders.get_mut(&folder) {
            names.seen.remove(name);
            names.stable.remove(name);
        }
    }
}

/// A call that changes something or makes it durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Of bytes.
    Write,
    /// Of a file.
    Sync,
    /// Of a file's name: made, given, removed.
    Name,
    /// Of a folder.
    SyncFolder,
    /// Of everything.
    SyncAll,
}

type See = dyn FnMut(&World, Call) -> Result<(), io::Error> + Send;
type Fails = dyn FnMut(Call) -> bool + Send;
type Answer = dyn FnMut(&World) -> io::Error + Send;

enum Watch {
    /// Sees every call, with the world as it is before it.
    Every(Box<See>),
    /// Sees the world only when it has decided that the call fails.
    Rare(Box<Fails>, Box<Answer>),
}

type Deaf = dyn Fn(Call, Folder, &str) -> bool + Send;

struct Inside {
    world: World,
    /// The name that a node was created with, for who asks what a call is about.
    born: BTreeMap<usize, (Folder, String)>,
    deaf: Option<Box<Deaf>>,
    lost: Option<Chance>,
}

/// A [`World`] in use.
#[derive(Clone)]
pub struct SimFs {
    inside: Arc<Mutex<Inside>>,
    watch: Arc<Mutex<Option<Watch>>>,
}

impl fmt::Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFs").finish_non_exhaustive()
    }
}

fn held<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimFs {
    /// Uses a world.
    #[must_use]
    pub fn new(world: World) -> Self {
        let inside = Inside {
            world,
            born: BTreeMap::new(),
            deaf: None,
            lost: None,
        };
        Self {
            inside: Arc::new(Mutex::new(inside)),
            watch: Arc::new(Mutex::new(None)),
        }
    }

    /// The world as it is.
    #[must_use]
    pub fn world(&self) -> World {
        held(&self.inside).world.clone()
    }

    /// Is asked before each call; an error is the call's answer, and the call is not made. A sync
    /// that fails so loses some of what it was to make durable for good.
    pub fn watch(&self, watch: impl FnMut(&World, Call) -> Result<(), io::Error> + Send + 'static) {
        *held(&self.watch) = Some(Watch::Every(Box::new(watch)));
    }

    /// Is asked before each call whether it fails, and only then shown the world; the error is the
    /// call's answer.
    pub fn watch_lazily(
        &self,
        fails: impl FnMut(Call) -> bool + Send + 'static,
        error: impl FnMut(&World) -> io::Error + Send + 'static,
    ) {
        *held(&self.watch) = Some(Watch::Rare(Box::new(fails), Box::new(error)));
    }

    /// Nobody is asked any more.
    pub fn unwatch(&self) {
        *held(&self.watch) = None;
    }

    /// Syncs for which this holds are claimed and not made: the control, which has to be found.
    pub fn deaf(&self, deaf: impl Fn(Call, Folder, &str) -> bool + Send + 'static) {
        held(&self.inside).deaf = Some(Box::new(deaf));
    }

    fn before(&self, call: Call, node: Option<usize>) -> io::Result<MutexGuard<'_, Inside>> {
        let mut watch = held(&self.watch);
        let answer = match watch.as_mut() {
            None => Ok(()),
            Some(Watch::Every(watch)) => {
                let world = held(&self.inside).world.clone();
                watch(&world, call)
            }
            Some(Watch::Rare(fails, error)) => {
                if fails(call) {
                    Err(error(&held(&self.inside).world))
                } else {
                    Ok(())
                }
            }
        };
        if let Err(e) = answer {
            let mut inside = held(&self.inside);
            if call == Call::Sync
                && let Some(node) = node
            {
                let mut chance = inside.lost.take().unwrap_or(Chance::new(7));
                if let Some(node) = inside.world.nodes.get_mut(&node) {
                    node.pending.retain(|_| chance.once_in(2));
                }
                inside.lost = Some(chance);
            }
            return Err(e);
        }
        drop(watch);
        Ok(held(&self.inside))
    }
}

impl Inside {
    fn names(&mut self, folder: Folder) -> io::Result<&mut Names> {
        self.world.folders.get_mut(&folder).ok_or_else(not_found)
    }

    fn is_deaf(&self, call: Call, folder: Folder, name: &str) -> bool {
        self.deaf
            .as_ref()
            .is_some_and(|deaf| deaf(call, folder, name))
    }
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

/// A file of a [`SimFs`].
#[derive(Debug)]
pub struct SimFile {
    fs: SimFs,
    node: usize,
}

struct Owner(Arc<Mutex<Inside>>);

impl Drop for Owner {
    fn drop(&mut self) {
        held(&self.0).world.owned = false;
    }
}

impl Fs for SimFs {
    type File = SimFile;

    fn own(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut inside = held(&self.inside);
        if inside.world.owned {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        inside.world.owned = true;
        Ok(Box::new(Owner(Arc::clone(&self.inside))))
    }

    fn has(&self, folder: Folder) -> io::Result<bool> {
        Ok(held(&self.inside).world.folders.contains_key(&folder))
    }

    fn make(&self, folder: Folder) -> io::Result<()> {
        let mut inside = self.before(Call::Name, None)?;
        if inside.world.folders.contains_key(&folder) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        inside.world.folders.insert(folder, Names::default());
        inside.world.fresh.push(folder);
        Ok(())
    }

    fn list(&self, folder: Folder) -> io::Result<Vec<String>> {
        Ok(held(&self.inside).world.names(folder))
    }

    fn len(&self, folder: Folder, name: &str) -> io::Result<Option<u64>> {
        let inside = held(&self.inside);
        let bytes = inside.world.bytes(folder, name);
        Ok(bytes.map(|bytes| bytes.len() as u64))
    }

    fn read(&self, folder: Folder, name: &str, max: u64) -> io::Result<Option<Vec<u8>>> {
        let inside = held(&self.inside);
        match inside.world.bytes(folder, name) {
            Some(bytes) if bytes.len() as u64 > max => {
                Err(io::Error::from(io::ErrorKind::FileTooLarge))
            }
            other => Ok(other.map(<[u8]>::to_vec)),
        }
    }

    fn create(&self, folder: Folder, name: &str) -> io::Result<SimFile> {
        let mut inside = self.before(Call::Name, None)?;
        let node = inside.world.next;
        let names = inside.names(folder)?;
        if names.seen.contains_key(name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        names.change(Change::Create(name.to_owned(), node));
        inside.world.next += 1;
        inside.world.nodes.insert(node, Node::default());
        inside.born.insert(node, (folder, name.to_owned()));
        Ok(SimFile {
            fs: self.clone(),
            node,
        })
    }

    fn open(&self, folder: Folder, name: &str) -> io::Result<Option<SimFile>> {
        let mut inside = held(&self.inside);
        let node = inside
            .world
            .folders
            .get(&folder)
            .and_then(|names| names.seen.get(name).copied());
        if let Some(node) = node {
            inside.born.insert(node, (folder, name.to_owned()));
        }
        Ok(node.map(|node| SimFile {
            fs: self.clone(),
            node,
        }))
    }

    fn rename(&self, folder: Folder, from: &str, to: &str) -> io::Result<()> {
        let mut inside = self.before(Call::Name, None)?;
        let names = inside.names(folder)?;
        let node = names.seen.get(from).copied().ok_or_else(not_found)?;
        names.change(Change::Rename(from.to_owned(), to.to_owned(), node));
        inside.born.insert(node, (folder, to.to_owned()));
        Ok(())
    }

    fn remove(&self, folder: Folder, name: &str) -> io::Result<()> {
        let mut inside = self.before(Call::Name, None)?;
        let names = inside.names(folder)?;
        if !names.seen.contains_key(name) {
            return Err(not_found());
        }
        names.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: Folder) -> io::Result<()> {
        let mut inside = self.before(Call::SyncFolder, None)?;
        if inside.is_deaf(Call::SyncFolder, folder, "") {
            return Ok(());
        }
        inside.names(folder)?.sync();
        if folder == Folder::Root {
            inside.world.fresh.clear();
        }
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut inside = self.before(Call::SyncAll, None)?;
        if inside.is_deaf(Call::SyncAll, Folder::Root, "") {
            return Ok(());
        }
        inside.world.nodes.values_mut().for_each(Node::sync);
        inside.world.folders.values_mut().for_each(Names::sync);
        inside.world.fresh.clear();
        Ok(())
    }
}

impl FsFile for SimFile {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inside = self.fs.before(Call::Write, Some(self.node))?;
        let node = inside.world.nodes.get_mut(&self.node);
        let at = usize::try_from(at).map_err(io::Error::other)?;
        node.ok_or_else(not_found)?.write(at, bytes);
        Ok(())
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let inside = held(&self.fs.inside);
        let node = inside.world.nodes.get(&self.node).ok_or_else(not_found)?;
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let there = node
            .seen
            .get(at..at + bytes.len())
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        bytes.copy_from_slice(there);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inside = self.fs.before(Call::Sync, Some(self.node))?;
        let born = inside.born.get(&self.node).cloned();
        if born.is_some_and(|(folder, name)| inside.is_deaf(Call::Sync, folder, &name)) {
            return Ok(());
        }
        let node = inside.world.nodes.get_mut(&self.node);
        node.ok_or_else(not_found)?.sync();
        Ok(())
    }
}
