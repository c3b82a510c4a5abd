//! What a disk looks like before each call, and what was promised until then.

use continuation_record::Record;
use continuation_store::fs::{Call, Chance, Folder, SimFs, World};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

/// All records, by name.
pub(super) type Records = BTreeMap<String, Record>;

/// A sync that is only claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// Of the log.
    Log,
    /// Of the packs.
    Packs,
    /// Of the records' files, one by one and all at once.
    Files,
    /// Of the names in the folder of records.
    Names,
    /// Of the names in the state folder.
    Root,
}

impl Lie {
    pub(super) fn tell(self, fs: &SimFs) {
        fs.deaf(move |call, folder, name| match self {
            Self::Log => call == Call::Sync && name.contains("log") || name.starts_with('.'),
            Self::Packs => call == Call::Sync && folder == Folder::Packs,
            Self::Files => {
                call == Call::SyncAll || (call == Call::Sync && folder == Folder::Records)
            }
            Self::Names => call == Call::SyncFolder && folder == Folder::Records,
            Self::Root => call == Call::SyncFolder && folder == Folder::Root,
        });
    }
}

/// What the store was asked and what it has promised, change by change.
#[derive(Debug, Clone, Default)]
pub(super) struct Story {
    /// What there is after each change; first what there was before.
    pub(super) states: Vec<Arc<Records>>,
    /// The last change that was promised.
    pub(super) promised: usize,
    /// The secret, once the store was open.
    pub(super) secret: Option<[u8; 32]>,
}

/// One moment.
#[derive(Debug, Clone)]
pub(super) struct Image {
    world: World,
    /// The number of the call that was to come.
    pub(super) call: usize,
    pub(super) story: Story,
}

impl Image {
    /// Some of what was not synced is lost; or nothing, since the process alone was killed.
    pub(super) fn lose(&self, chance: &mut Chance) -> (World, &'static str) {
        if chance.once_in(12) {
            (self.world.killed(), "killed")
        } else {
            (self.world.crash(chance), "power cut")
        }
    }
}

/// All moments of a scene.
#[derive(Debug, Default)]
pub(super) struct Images(pub(super) Vec<Image>);

/// Collects them.
#[derive(Debug, Clone, Default)]
pub(super) struct Camera {
    images: Arc<Mutex<Images>>,
    story: Arc<Mutex<Story>>,
}

impl Camera {
    pub(super) fn watch(&self, fs: &SimFs) {
        let camera = self.clone();
        fs.watch(move |world, _| {
            camera.shoot(world);
            Ok(())
        });
    }

    fn shoot(&self, world: &World) {
        let story = self.story(|story| story.clone());
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        let call = images.0.len();
        images.0.push(Image {
            world: world.clone(),
            call,
            story,
        });
    }

    pub(super) fn story<T>(&self, use_: impl FnOnce(&mut Story) -> T) -> T {
        use_(&mut self.story.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All of it, and the end.
    pub(super) fn develop(self, fs: &SimFs) -> Images {
        fs.unwatch();
        self.shoot(&fs.world());
        std::mem::take(&mut self.images.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Two equal disks are one point.
pub(super) fn digest(world: &World) -> u64 {
    let mut hash = DefaultHasher::new();
    for folder in Folder::ALL.into_iter().chain([Folder::Root]) {
        world.has(folder).hash(&mut hash);
        for name in world.names(folder) {
            // Temporary names are random.
            if !name.starts_with('.') {
                name.hash(&mut hash);
            }
            world.bytes(folder, &name).hash(&mut hash);
        }
    }
    hash.finish()
}
