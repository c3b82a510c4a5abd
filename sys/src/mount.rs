//! The mount API by descriptor: mounts are made and configured detached, and attached when they
//! are complete, so no path is looked up twice and no half-configured mount is ever visible.

use nix::mount::{MntFlags, umount2};
use std::ffi::{CStr, CString};
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// What a mount forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// Writing.
    pub const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// Set-user-id programs and file capabilities.
    pub const NO_SUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Device nodes.
    pub const NO_DEVICES: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// Executing files and mapping them executable.
    pub const NO_EXEC: Self = Self(libc::MOUNT_ATTR_NOEXEC);
}

impl BitOr for Attributes {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Clones the mount tree at a file or directory, with everything mounted beneath, detached.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` over the mount namespace.
pub fn clone_tree(place: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE
        | OPEN_TREE_CLOEXEC
        | (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH) as libc::c_uint;
    let place = place.as_fd().as_raw_fd();
    // SAFETY: the path is a constant and the descriptor is borrowed for the call.
    fd_of(unsafe { libc::syscall(libc::SYS_open_tree, place, c"".as_ptr(), flags) })
}

const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Adds attributes to a mount and to every mount beneath it. None is ever taken away: what the
/// system's owner forbade on a mount stays forbidden.
///
/// # Errors
/// What the kernel says.
pub fn forbid(mount: impl AsFd, attributes: Attributes) -> io::Result<()> {
    set_attr(
        mount.as_fd(),
        c"",
        libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
        attributes.0,
        0,
    )
}

/// Adds attributes to the mount at `/` alone.
///
/// # Errors
/// What the kernel says.
pub fn forbid_on_root(attributes: Attributes) -> io::Result<()> {
    let here = CWD;
    set_attr(here, c"/", 0, attributes.0, 0)
}

/// Cuts every mount of this namespace from the propagation of the namespace it was copied from.
///
/// # Errors
/// What the kernel says.
pub fn make_private() -> io::Result<()> {
    set_attr(CWD, c"/", libc::AT_RECURSIVE, 0, libc::MS_PRIVATE)
}

/// Lets mounts that come and go in the namespace that this one was copied from do so here too, and
/// none of this one there.
///
/// # Errors
/// What the kernel says.
pub fn make_slave() -> io::Result<()> {
    set_attr(CWD, c"/", libc::AT_RECURSIVE, 0, libc::MS_SLAVE)
}

// SAFETY: AT_FDCWD is the kernel's constant for the current directory and is never closed.
const CWD: BorrowedFd<'static> = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };

fn set_attr(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: libc::c_int,
    set: u64,
    propagation: u64,
) -> io::Result<()> {
    let attr = MountAttr {
        set,
        clear: 0,
        propagation,
        userns_fd: 0,
    };
    // SAFETY: the path is null-terminated; the struct has the layout and the size that are passed.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory.as_raw_fd(),
            path.as_ptr(),
            flags,
            ptr::from_ref(&attr),
            size_of::<MountAttr>(),
        )
    })
}

/// Makes a file system of its own, detached: e.g. `tmpfs` with `("size", "1m")`.
///
/// # Errors
/// `EPERM` where the kernel does not let this user namespace mount it; the option that it dislikes
/// gives `EINVAL`.
pub fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: Attributes,
) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const SET_STRING: libc::c_uint = 1;
    const CREATE: libc::c_uint = 6;
    // SAFETY: null-terminated strings and integers throughout; the strings outlive the calls.
    unsafe {
        let context = fd_of(libc::syscall(
            libc::SYS_fsopen,
            kind.as_ptr(),
            FSOPEN_CLOEXEC,
        ))?;
        let context = context.as_raw_fd();
        let configure = |command: libc::c_uint, key: *const libc::c_char, value: *const _| {
            done(libc::syscall(
                libc::SYS_fsconfig,
                context,
                command,
                key,
                value,
                0,
            ))
        };
        for (key, value) in options {
            configure(SET_STRING, key.as_ptr(), value.as_ptr())?;
        }
        configure(CREATE, ptr::null(), ptr::null::<libc::c_char>())?;
        fd_of(libc::syscall(
            libc::SYS_fsmount,
            context,
            FSMOUNT_CLOEXEC,
            attributes.0,
        ))
    }
}

/// Attaches a detached mount at a path, on top of what is there.
///
/// # Errors
/// `ENOTDIR` when one is a directory and the other isn't; what the path lookup says.
pub fn attach(mount: impl AsFd, path: &Path) -> io::Result<()> {
    const FROM_EMPTY_PATH: libc::c_uint = 4;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both paths are null-terminated and outlive the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            FROM_EMPTY_PATH,
        )
    })
}

/// Makes a detached mount the root of this process and lets go of everything that was mounted
/// before. Descriptors of the old tree stay usable; paths don't reach it any more.
///
/// # Errors
/// What the kernel says; the process is then of no further use.
pub fn enter_root(root: impl AsFd) -> io::Result<()> {
    // The place doesn't matter: the old tree goes away two lines later.
    attach(&root, Path::new("/"))?;
    nix::unistd::fchdir(&root)?;
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")?;
    Ok(())
}

fn done(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn fd_of(result: libc::c_long) -> io::Result<OwnedFd> {
    done(result)?;
    // SAFETY: the callers pass the result of a call that returns a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}
