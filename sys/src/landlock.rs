//! Which Landlock the kernel has. Rules themselves go through the `landlock` crate.

use std::io;

/// The Landlock ABI of this kernel, 1 or more.
///
/// # Errors
/// `ENOSYS` when it was built without Landlock, `EOPNOTSUPP` when Landlock was not enabled at boot,
/// `EPERM` when an outer sandbox forbids asking.
pub fn abi() -> io::Result<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: a null attribute of size 0 with this flag only asks for the version.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    u32::try_from(abi).map_err(|_| io::Error::last_os_error())
}
