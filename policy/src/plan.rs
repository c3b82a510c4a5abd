//! The view and the Landlock rules of one process, grant by grant.

use crate::bundle::Bundle;
use crate::compile::CompileError;
use crate::context::{Context, Inside};
use crate::profile::{Access, Proc, Profile, Subject, Variant};
use crate::rights;
use crate::spec::{Entry, OWN, Place, View};
use crate::words::Words;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Where the scratch directory is inside a view.
const SCRATCH: &str = "/scratch";
/// Where a server finds what its run has in its own scratch directory.
const OUTBOUND: &str = "/scratch/outbound";
/// As above.
const ATTACHMENTS: &str = "/scratch/attachments";
/// Where the state directory is inside a view.
const STATE: &str = "/state";
/// Where its own temporary directory is inside a view.
pub(crate) const TEMPORARY: &str = "/tmp";

/// The file system of one process, as it comes together.
pub(crate) struct Plan<'a> {
    profile: &'a Profile,
    context: &'a Context,
    variant: Variant,
    pub(crate) inside: Inside,
    /// By path inside; a path sorts before what lies in it.
    entries: BTreeMap<PathBuf, Entry>,
    /// Those of them that another process of its kind may have otherwise.
    own: BTreeSet<PathBuf>,
    pub(crate) rules: BTreeMap<PathBuf, u64>,
    hides: Vec<Entry>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(profile: &'a Profile, context: &'a Context, variant: Variant) -> Self {
        Plan {
            profile,
            context,
            variant,
            inside: Inside::default(),
            entries: BTreeMap::new(),
            own: BTreeSet::new(),
            rules: BTreeMap::new(),
            hides: Vec::new(),
        }
    }

    pub(crate) fn grant_all(&mut self) -> Result<(), CompileError> {
        for name in &self.profile.devices {
            self.device(&Path::new("/dev").join(name));
        }
        if self.profile.temporary_bytes > 0 && !self.variant.degraded {
            let bytes = self.profile.temporary_bytes;
            let path = PathBuf::from(TEMPORARY);
            self.own.insert(path.clone());
            self.entries
                .insert(path.clone(), Entry::Temporary { path, bytes });
            self.rule(Path::new(TEMPORARY), rights::of(Access::WriteExec, true));
        }
        let mut programs = false;
        for grant in &self.profile.grants {
            let access = grant.access.unwrap_or(Access::Read);
            match grant.what {
                Subject::Workspace => {
                    self.inside.workspace = self.named(&self.context.workspace, None, access)?;
                }
                Subject::Scratch => {
                    self.inside.scratch =
                        self.named(&self.context.scratch, Some(SCRATCH), access)?;
                }
                Subject::State => {
                    self.inside.state = self.named(&self.context.state, Some(STATE), access)?;
                }
                Subject::Outbound | Subject::Attachments => {
                    let folders = self.context.request.as_ref();
                    let (source, place) = match grant.what {
                        Subject::Outbound => (folders.map(|own| &own.outbound), OUTBOUND),
                        _ => (folders.map(|own| &own.attachments), ATTACHMENTS),
                    };
                    self.named(&source.cloned(), Some(place), access)?;
                }
                Subject::Declared => {
                    for declared in &self.context.declared {
                        self.show(&declared.path, &declared.path, declared.access)?;
                    }
                }
                // Without a network they are of no use, and each costs a mount.
                Subject::Resolver | Subject::Certificates if !self.variant.network => {}
                Subject::Loader | Subject::Programs | Subject::Resolver | Subject::Certificates => {
                    programs |= grant.what == Subject::Programs;
                    if let Some(bundle) = grant.what.bundle().and_then(Bundle::named) {
                        self.bundle(bundle);
                    }
                }
            }
        }
        self.hide()?;
        if self.variant.degraded {
            let own = matches!(self.profile.proc, Proc::Own);
            let path = Path::new(if own { "/proc/self" } else { "/proc" });
            self.rule(path, rights::of(Access::Read, true));
        } else {
            self.rule(Path::new("/proc"), rights::of(Access::Read, true));
            if self.entries.keys().any(|path| path.starts_with("/etc")) {
                // A view's /etc has nothing but what was meant to be read.
                self.rules.retain(|path, _| !path.starts_with("/etc"));
                self.rule(Path::new("/etc"), rights::of(Access::Read, true));
            }
            if programs {
                self.rule(Path::new("/"), rights::listing());
            }
        }
        Ok(())
    }

    fn rule(&mut self, path: &Path, rights: u64) {
        *self.rules.entry(path.to_owned()).or_default() |= rights;
    }

    fn device(&mut self, path: &Path) {
        if !path.exists() {
            return;
        }
        let entry = Entry::Show {
            source: path.to_owned(),
            path: path.to_owned(),
            directory: false,
            write: true,
            execute: false,
            device: true,
        };
        self.entries.insert(path.to_owned(), entry);
        self.rule(path, rights::device());
    }

    /// Shows a path of the context, at a fixed place where the view has one.
    fn named(
        &mut self,
        source: &Option<PathBuf>,
        place: Option<&str>,
        access: Access,
    ) -> Result<Option<PathBuf>, CompileError> {
        let Some(source) = source else {
            return Ok(None);
        };
        let place = place.filter(|_| !self.variant.degraded);
        let path = place.map_or_else(|| source.clone(), PathBuf::from);
        self.show(source, &path, access)?;
        Ok(Some(path))
    }

    fn show(&mut self, source: &Path, path: &Path, access: Access) -> Result<(), CompileError> {
        check(source)?;
        check(path)?;
        let refuse = |reason| {
            Err(CompileError::Path {
                path: source.to_owned(),
                reason,
            })
        };
        let (Ok(real), Ok(metadata)) = (std::fs::canonicalize(source), std::fs::metadata(source))
        else {
            return refuse("it must exist and be reachable for the user that monod runs as");
        };
        // What lies in a workspace may have been made by an agent: a link there would make this
        // grant one of the link's target. Links of the operator are resolved when the
        // configuration is read.
        if real != source {
            return refuse("a granted path must not go through a symbolic link");
        }
        let directory = metadata.is_dir();
        if !directory && !metadata.is_file() {
            return refuse("only directories and regular files can be granted");
        }
        let write = matches!(access, Access::Write | Access::WriteExec);
        let execute = matches!(access, Access::ReadExec | Access::WriteExec);
        let covered = source == path && path.ancestors().skip(1).any(|above| {
            matches!(self.entries.get(above), Some(Entry::Show { source, write: w, execute: x, .. })
                    if source == above && *w == write && (*x || !execute))
        });
        if !covered {
            let entry = Entry::Show {
                source: source.to_owned(),
                path: path.to_owned(),
                directory,
                write,
                execute,
                device: false,
            };
            self.own.insert(path.to_owned());
            self.entries.insert(path.to_owned(), entry);
        }
        self.rule(path, rights::of(access, directory));
        Ok(())
    }

    fn bundle(&mut self, bundle: &Bundle) {
        for place in bundle.places() {
            let path = &place.path;
            let entry = match &place.link {
                Some(target) => Entry::Link {
                    path: path.clone(),
                    target: target.clone(),
                },
                None => {
                    // Two bundles may show one place; what one needs the other doesn't take away.
                    let before = self.entries.get(path);
                    let executed = matches!(before, Some(Entry::Show { execute: true, .. }));
                    Entry::Show {
                        source: place.real.clone(),
                        path: path.clone(),
                        directory: place.directory,
                        write: false,
                        execute: place.execute || executed,
                        device: false,
                    }
                }
            };
            self.insert_common(path.clone(), entry);
        }
        for (path, access, directory) in bundle.rules() {
            self.rule(path, rights::of(*access, *directory));
        }
        let copied = bundle.copied.iter().map(PathBuf::from);
        let copied = copied.map(|path| Entry::Copy { path });
        let written = bundle.written.iter();
        let written = written.map(|(path, text)| Entry::Text {
            path: path.into(),
            text: text.clone(),
        });
        for entry in copied.chain(written) {
            let (Entry::Copy { path } | Entry::Text { path, .. }) = &entry else {
                continue;
            };
            let path = path.clone();
            if self.variant.degraded && path.is_file() {
                self.rule(&path, rights::of(Access::Read, false));
            }
            self.insert_common(path, entry);
        }
    }

    fn insert_common(&mut self, path: PathBuf, entry: Entry) {
        self.own.remove(&path);
        self.entries.insert(path, entry);
    }

    /// Covers what must not be seen, wherever a granted path would show it.
    fn hide(&mut self) -> Result<(), CompileError> {
        let mut hides = BTreeMap::new();
        for hidden in &self.context.hidden {
            check(hidden)?;
            let shows = self.entries.values().filter_map(|entry| match entry {
                Entry::Show {
                    source,
                    path,
                    device: false,
                    ..
                } => hidden
                    .strip_prefix(source)
                    .ok()
                    .map(|rest| (source, path.join(rest))),
                _ => None,
            });
            for (granted, path) in shows {
                // The role's own state directory lies in what is hidden, not the other way round.
                let Ok(metadata) = std::fs::symlink_metadata(hidden) else {
                    continue;
                };
                if self.variant.degraded {
                    return Err(CompileError::Hidden {
                        hidden: hidden.clone(),
                        granted: granted.clone(),
                        role: self.profile.role,
                    });
                }
                hides.insert(path, metadata.is_dir());
            }
        }
        let mut outer: Option<PathBuf> = None;
        for (path, directory) in hides {
            // What lies in a hidden folder is hidden with it, and can't be covered any more.
            if outer.as_ref().is_some_and(|outer| path.starts_with(outer)) {
                continue;
            }
            outer = Some(path.clone());
            self.hides.push(Entry::Hide { path, directory });
        }
        Ok(())
    }

    /// The common part and what this process has beside it. Where each process is another user, so
    /// are the texts that say who it is.
    pub(crate) fn view(&mut self, words: &Words<'_>, other_users: bool) -> (View, Vec<Entry>) {
        let mut view = View {
            entries: Vec::new(),
            places: Vec::new(),
            for_programs: matches!(self.profile.proc, Proc::Full),
        };
        let mut own: Vec<Entry> = Vec::new();
        let mut texts = Vec::new();
        for (path, entry) in &self.entries {
            match entry {
                Entry::Text { path, text } if other_users && words.names_the_user(text) => {
                    let place = Path::new(OWN).join(path.file_name().unwrap_or_default());
                    view.entries.push(Entry::Link {
                        path: path.clone(),
                        target: place.clone(),
                    });
                    texts.push(Entry::Text {
                        path: place,
                        text: words.fill(text),
                    });
                }
                Entry::Text { path, text } => view.entries.push(Entry::Text {
                    path: path.clone(),
                    text: words.fill(text),
                }),
                entry if self.own.contains(path) => {
                    let mut above = path.ancestors().skip(1);
                    // Else it is put into what is mounted there before.
                    if !above.any(|above| self.own.contains(above)) {
                        view.places.push(Place {
                            path: path.clone(),
                            directory: !matches!(
                                entry,
                                Entry::Show {
                                    directory: false,
                                    ..
                                }
                            ),
                        });
                    }
                    own.push(entry.clone());
                }
                entry => view.entries.push(entry.clone()),
            }
        }
        if !texts.is_empty() {
            view.places.push(Place {
                path: OWN.into(),
                directory: true,
            });
            *self.rules.entry(OWN.into()).or_default() |= rights::of(Access::Read, true);
        }
        own.append(&mut texts);
        own.extend(self.hides.iter().cloned());
        (view, own)
    }
}

/// Places that a view makes itself, or that no process gets.
const RESERVED: [&str; 6] = ["/proc", "/dev", "/sys", "/.landlock", "/.hidden", OWN];

fn check(path: &Path) -> Result<(), CompileError> {
    let refuse = |reason| {
        Err(CompileError::Path {
            path: path.to_owned(),
            reason,
        })
    };
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return refuse("a granted path must be absolute and without `..`");
    }
    if path.to_str().is_none_or(|text| text.contains('\0')) {
        return refuse("a granted path must be valid UTF-8");
    }
    if path == Path::new("/") {
        return refuse("the root of the file system can't be granted; name what is needed");
    }
    if RESERVED.iter().any(|reserved| path.starts_with(reserved)) {
        return refuse("this place is made by the sandbox itself; choose another");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::compile::compile;
    use crate::context::{RequestFolders, Server};
    use crate::identity::{DEFAULT_BASE, Identity};
    use ipc_proto::Role;

    fn shown(context: &Context) -> Vec<(String, PathBuf, bool, bool)> {
        let launch = compile(Role::McpServer, context).unwrap();
        let shown = launch.spec.own.into_iter().filter_map(|entry| match entry {
            Entry::Show {
                source,
                path,
                write,
                execute,
                ..
            } => Some((path.to_str().unwrap().to_owned(), source, write, execute)),
            _ => None,
        });
        shown.collect()
    }

    #[test]
    fn a_server_has_the_folders_of_its_request_where_the_run_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (outbound, attachments) = (real.join("run/outbound"), real.join("run/attachments"));
        for folder in [&outbound, &attachments, &real.join("own")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let mut context = Context {
            scratch: Some(real.join("own")),
            server: Some(Server {
                command: "/bin/true".into(),
                arguments: vec![],
                directory: None,
            }),
            identity: Some(Identity::of(Role::McpServer, 0, DEFAULT_BASE, None)),
            ..Context::default()
        };
        let scratch = || ("/scratch".to_owned(), real.join("own"), true, true);
        assert_eq!(shown(&context), [scratch()]);
        context.request = Some(RequestFolders {
            outbound: outbound.clone(),
            attachments: attachments.clone(),
        });
        assert_eq!(
            shown(&context),
            [
                scratch(),
                (ATTACHMENTS.into(), attachments.clone(), false, false),
                (OUTBOUND.into(), outbound.clone(), true, false),
            ]
        );
        // What a run put in their place is no grant.
        std::fs::remove_dir(&attachments).unwrap();
        std::os::unix::fs::symlink("/etc", &attachments).unwrap();
        assert!(compile(Role::McpServer, &context).is_err());
    }
}
