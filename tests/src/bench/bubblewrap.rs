//! The launch spec of a worker in the words of bubblewrap: the same namespaces, the same view of
//! the file system entry by entry, the same environment, the same first filter, `no_new_privs`.
//!
//! What bubblewrap has no words for is left out on its side, to its advantage: Landlock, limits,
//! `noexec`, a `/proc` or a root without devices and set-user-id programs.

use anyhow::{Context as _, Result};
use mono_sys::memfd::sealed_memfd;
use mono_sys::process::Namespaces;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policy::Launch;
use policy::spec::{Entry, SENTINEL};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// First number of the descriptors with contents; below it lies the control channel.
const FIRST: i32 = 4;

/// What the launcher makes beside the devices that are granted.
const DEVICE_LINKS: [(&str, &str); 6] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
    ("/dev/random", "urandom"),
];

/// A command line of bubblewrap with the descriptors that it names.
#[derive(Debug)]
pub struct Wrapping {
    /// Beginning with its own name.
    pub arguments: Vec<CString>,
    contents: Vec<OwnedFd>,
}

impl Wrapping {
    /// For `program` under `launch`.
    ///
    /// # Errors
    /// When a memory file can't be made or a path is no C string.
    pub fn of(launch: &Launch, program: &Path) -> Result<Self> {
        let mut this = Self {
            arguments: Vec::new(),
            contents: Vec::new(),
        };
        this.say(["bwrap", "--die-with-parent", "--new-session", "--as-pid-1"])?;
        for (namespace, option) in [
            (Namespaces::PID, "--unshare-pid"),
            (Namespaces::NET, "--unshare-net"),
            (Namespaces::IPC, "--unshare-ipc"),
            (Namespaces::UTS, "--unshare-uts"),
        ] {
            if launch.namespaces.contains(namespace) {
                this.say([option])?;
            }
        }
        let who = launch.spec.identity.as_ref().map(|who| (who.uid, who.gid));
        let mapped = launch.id_map.map(|ids| (ids.uid, ids.gid));
        if let Some((uid, gid)) = who.or(mapped) {
            // Also its only way to be another user.
            this.say(["--unshare-user", "--uid", &uid.to_string()])?;
            this.say(["--gid", &gid.to_string()])?;
        }
        this.say(["--hostname", "mono", "--proc", "/proc"])?;
        let view = launch.view.as_ref().context("a launch without a view")?;
        if view.for_programs {
            for (path, target) in DEVICE_LINKS {
                this.say(["--symlink", target, path])?;
            }
        }
        for entry in view.entries.iter().chain(&launch.spec.own) {
            this.entry(entry)?;
        }
        this.file(Path::new(SENTINEL), b"")?;
        // It executes by path, so the program has to be shown. It is named by the role alone,
        // which is what the program takes its role from, and found at the first attempt.
        let name = launch.spec.role.name();
        this.say(["--ro-bind"])?;
        this.path(program)?;
        this.say([&*format!("/{name}"), "--remount-ro", "/", "--clearenv"])?;
        for variable in &launch.spec.environment {
            let (name, value) = variable.split_once('=').context("a variable without =")?;
            this.say(["--setenv", name])?;
            match name {
                "PATH" => this.say([&*format!("/:{value}")])?,
                _ => this.say([value])?,
            }
        }
        let number = this.content(&with_execve(&launch.filter))?;
        // As another user it can't enter what is only that user's: bubblewrap stays root outside.
        let directory = match launch.id_map {
            Some(_) => launch.spec.directory.as_path(),
            None => Path::new("/"),
        };
        this.say(["--seccomp", &number, "--chdir"])?;
        this.path(directory)?;
        this.say(["--", name])?;
        this.say(launch.spec.arguments.iter().skip(1).map(String::as_str))?;
        Ok(this)
    }

    /// The descriptors with the numbers that the arguments name, for one start: they are read to
    /// their end, so each start needs fresh ones.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn contents(&self) -> Result<Vec<(OwnedFd, i32)>> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let again = self.contents.iter().zip(FIRST..).map(|(fd, number)| {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            Ok((open(&*path, flags, Mode::empty())?, number))
        });
        again.collect()
    }

    fn say<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> Result<()> {
        for word in words {
            self.arguments.push(CString::new(word)?);
        }
        Ok(())
    }

    fn path(&mut self, path: &Path) -> Result<()> {
        self.arguments
            .push(CString::new(path.as_os_str().as_bytes())?);
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<String> {
        self.contents.push(sealed_memfd(c"content", bytes)?);
        let last = i32::try_from(self.contents.len())? - 1;
        Ok((FIRST + last).to_string())
    }

    fn file(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let number = self.content(bytes)?;
        self.say(["--perms", "0444", "--file", &number])?;
        self.path(path)
    }

    fn entry(&mut self, entry: &Entry) -> Result<()> {
        match entry {
            Entry::Link { path, target } => {
                self.say(["--symlink"])?;
                self.path(target)?;
                self.path(path)
            }
            Entry::Text { path, text } => self.file(path, text.as_bytes()),
            Entry::Copy { path } => match std::fs::read(path) {
                Ok(bytes) => self.file(path, &bytes),
                Err(_) => Ok(()),
            },
            Entry::Show {
                source,
                path,
                write,
                device,
                ..
            } => {
                self.say([match (device, write) {
                    (true, _) => "--dev-bind",
                    (false, true) => "--bind",
                    (false, false) => "--ro-bind",
                }])?;
                self.path(source)?;
                self.path(path)
            }
            Entry::Temporary { path, bytes } => {
                self.say(["--size", &bytes.to_string(), "--perms", "1777", "--tmpfs"])?;
                self.path(path)
            }
            Entry::Hide { path, .. } => {
                self.say(["--perms", "0000", "--tmpfs"])?;
                self.path(path)
            }
        }
    }
}

/// The filter with one system call more before it: bubblewrap executes by path, which the filter
/// of a worker that is executed by descriptor refuses.
fn with_execve(filter: &[u8]) -> Vec<u8> {
    use policy::seccomp::{Instruction, to_bytes};
    let instruction = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let before = [
        // Load the number; execve is allowed; else on with the filter.
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, nix::libc::SYS_execve as u32),
        instruction(0x06, 0, 0, 0x7fff_0000),
    ];
    let mut bytes = to_bytes(&before);
    bytes.extend(filter);
    bytes
}

/// Bubblewrap's program, where it is installed.
#[must_use]
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("bwrap"))
        .find(|file| file.is_file())
}
