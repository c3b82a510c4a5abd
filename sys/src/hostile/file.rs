//! What is done to files on ways that `std` and `nix` don't have.

use super::{done, fd};
use std::ffi::{CString, c_int, c_long};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Sets an extended attribute of a file.
///
/// # Errors
/// Why it was refused.
pub fn set_file_attribute(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let (path, name) = (
        CString::new(path.as_os_str().as_bytes())?,
        CString::new(name)?,
    );
    let (value, size) = (value.as_ptr(), value.len());
    // SAFETY: null-terminated strings and a value of the size that is passed.
    let result = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.cast(), size, 0) };
    done(result.into()).map(drop)
}

/// Most bytes of a handle (`MAX_HANDLE_SZ`), after its two words.
const HANDLE: usize = 128;

/// What the kernel calls a file beside its paths.
///
/// # Errors
/// `EOPNOTSUPP` on file systems without handles.
pub fn handle_of(path: &Path) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut handle = vec![0_u8; 8 + HANDLE];
    handle[..4].copy_from_slice(&(HANDLE as u32).to_ne_bytes());
    let mut mount: c_int = 0;
    // SAFETY: the buffer begins with the room that follows its two words.
    done(unsafe {
        call!(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            0,
        )
    })?;
    Ok(handle)
}

/// Opens a file by what [`handle_of`] said, on the mount that a descriptor is on (-1 for none).
///
/// # Errors
/// Why it was refused.
pub fn open_handle(mount: RawFd, handle: &[u8]) -> io::Result<OwnedFd> {
    if handle.len() != 8 + HANDLE {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the handle has the length that its first word says at most.
    fd(unsafe { call!(libc::SYS_open_by_handle_at, mount, handle.as_ptr(), flags) })
}

/// Opens a file with `openat2`, whose mode no filter sees: made with these mode bits.
///
/// # Errors
/// Why it was refused.
pub fn make_by_openat2(path: &Path, mode: u64) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let how: [u64; 3] = [
        (libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC) as u64,
        mode,
        0,
    ];
    // SAFETY: struct open_how is three 64-bit words.
    fd(unsafe {
        call!(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            how.as_ptr(),
            size_of_val(&how),
        )
    })
}
