//! Running what was not meant to run: memory, memory files, files, programs of the system.

use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::{Outcome, RAN};
use mono_sys::{attempt, hostile};
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use nix::unistd::{execve, execveat};
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(super) const ACTIONS: &[Action] = &[
    action("map-executable-memory", |_| {
        Outcome::of(attempt::executable_memory())
    }),
    action("make-memory-executable", |_| {
        Outcome::of(hostile::protect_executable())
    }),
    action("execute-memory-file", |_| {
        executed(memory_file().and_then(|file| by_descriptor(&file)))
    }),
    action("execute-memory-file-by-path", |_| {
        executed(memory_file().and_then(|file| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            by_path(path.as_ref())
        }))
    }),
    action("execute-own-file", |f| {
        executed(own_file(f, "program").and_then(|path| by_path(&path)))
    }),
    action("execute-own-file-by-descriptor", |f| {
        executed(own_file(f, "program").and_then(|path| {
            let file = open(&path, OFlag::O_PATH, Mode::empty())?;
            by_descriptor(&file)
        }))
    }),
    action("execute-own-file-by-loader", |f| {
        // The loader is a program that may be executed where libraries are; it maps any file.
        executed(own_file(f, "program").and_then(|path| {
            let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
            let mut last = Err(io::Error::from(nix::errno::Errno::ENOENT));
            for loader in loader {
                if Path::new(loader).exists() || last.is_err() {
                    last = with_arguments(loader.as_ref(), &[path.as_os_str().as_bytes()]);
                }
            }
            last
        }))
    }),
    action("execute-system-program", |_| {
        executed(with_arguments("/bin/sh".as_ref(), &[b"-c", b"exit 42"]))
    }),
    action("execute-own-program-again", |_| {
        executed(with_arguments("/proc/self/exe".as_ref(), &[b"ran"]))
    }),
];

/// Code in a fresh process image answers by its exit status, so an answer here is a refusal.
fn executed(result: io::Result<Infallible>) -> Outcome {
    Outcome::of(result)
}

fn by_descriptor(file: &OwnedFd) -> io::Result<Infallible> {
    let none: [CString; 0] = [];
    let name = [c"attack".to_owned()];
    Ok(execveat(
        file.as_fd(),
        c"",
        &name,
        &none,
        AtFlags::AT_EMPTY_PATH,
    )?)
}

fn by_path(path: &Path) -> io::Result<Infallible> {
    with_arguments(path, &[])
}

fn with_arguments(path: &Path, arguments: &[&[u8]]) -> io::Result<Infallible> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut all = vec![path.clone()];
    for argument in arguments {
        all.push(CString::new(*argument)?);
    }
    let none: [CString; 0] = [];
    Ok(execve(&path, &all, &none)?)
}

fn memory_file() -> io::Result<OwnedFd> {
    let file = memfd_create(c"attack", MFdFlags::MFD_CLOEXEC)?;
    let mut writer = std::fs::File::from(file);
    writer.write_all(&program())?;
    Ok(writer.into())
}

fn own_file(f: &Facts, name: &str) -> io::Result<std::path::PathBuf> {
    let path = f.place().join(name);
    let mut options = OpenOptions::new();
    let options = options.create(true).truncate(true).write(true).mode(0o755);
    options.open(&path)?.write_all(&program())?;
    Ok(path)
}

/// The smallest program that says that it ran: a static ELF file of 128 bytes or so.
fn program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    #[cfg(target_arch = "x86_64")]
    let (machine, code): (u16, Vec<u8>) = {
        // mov edi, RAN; mov eax, 60; syscall
        let mut code = vec![0xbf];
        code.extend(RAN.to_le_bytes());
        code.extend([0xb8, 60, 0, 0, 0, 0x0f, 0x05]);
        (62, code)
    };
    #[cfg(target_arch = "aarch64")]
    let (machine, code): (u16, Vec<u8>) = {
        // mov x0, #RAN; mov x8, #93; svc #0
        let words = [0xd280_0000 | (RAN as u32) << 5, 0xd280_0ba8, 0xd400_0001];
        (
            183,
            words
                .iter()
                .flat_map(|word: &u32| word.to_le_bytes())
                .collect(),
        )
    };
    let size = HEADERS + code.len() as u64;
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |elf: &mut Vec<u8>, value: u16| elf.extend(value.to_le_bytes());
    let word = |elf: &mut Vec<u8>, value: u32| elf.extend(value.to_le_bytes());
    let long = |elf: &mut Vec<u8>, value: u64| elf.extend(value.to_le_bytes());
    // The file header: executable, machine, version, entry, program headers at 64, no sections.
    half(&mut elf, 2);
    half(&mut elf, machine);
    word(&mut elf, 1);
    long(&mut elf, BASE + HEADERS);
    long(&mut elf, 64);
    long(&mut elf, 0);
    word(&mut elf, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut elf, value);
    }
    // One segment with all of it, readable and executable.
    word(&mut elf, 1);
    word(&mut elf, 5);
    for value in [0, BASE, BASE, size, size, 0x1000] {
        long(&mut elf, value);
    }
    elf.extend(code);
    elf
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn the_small_program_runs_where_nothing_is_in_its_way() {
        let place = tempfile::tempdir().unwrap();
        let facts = Facts {
            own: Some(place.path().to_owned()),
            ..Facts::default()
        };
        let path = own_file(&facts, "program").unwrap();
        let status = Command::new(path).status().unwrap();
        assert_eq!(status.code(), Some(RAN));
    }
}
