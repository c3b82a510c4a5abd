//! System calls made only to see whether they are refused. Each has arguments with which it can
//! do nothing: whoever is let through gets another error than whoever is not.

use std::io;

/// Calls that have no effect and no access to memory with every argument −1: descriptors are
/// refused with `EBADF`, pointers with `EFAULT`, flags with `EINVAL`.
macro_rules! hopeless {
    ($($name:ident = $call:ident),* $(,)?) => {
        /// A call that a sandbox must refuse, with arguments that can't succeed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is named after its system call")]
        pub enum Hopeless { $($name),* }

        impl Hopeless {
            /// All of them.
            pub const ALL: &'static [Hopeless] = &[$(Hopeless::$name),*];

            /// The name of the system call.
            pub const fn name(self) -> &'static str {
                match self { $(Hopeless::$name => {
                    let (_, name) = stringify!($call).split_at(4);
                    name
                }),* }
            }

            const fn number(self) -> libc::c_long {
                match self { $(Hopeless::$name => libc::$call),* }
            }
        }
    };
}

hopeless! {
    Acct = SYS_acct,
    AddKey = SYS_add_key,
    Adjtimex = SYS_adjtimex,
    Bpf = SYS_bpf,
    Chroot = SYS_chroot,
    ClockSettime = SYS_clock_settime,
    Clone3 = SYS_clone3,
    DeleteModule = SYS_delete_module,
    Execve = SYS_execve,
    Execveat = SYS_execveat,
    FinitModule = SYS_finit_module,
    Fsconfig = SYS_fsconfig,
    Fsmount = SYS_fsmount,
    Fsopen = SYS_fsopen,
    Fspick = SYS_fspick,
    InitModule = SYS_init_module,
    IoUringEnter = SYS_io_uring_enter,
    IoUringRegister = SYS_io_uring_register,
    IoUringSetup = SYS_io_uring_setup,
    KexecLoad = SYS_kexec_load,
    Keyctl = SYS_keyctl,
    Listen = SYS_listen,
    MigratePages = SYS_migrate_pages,
    Mount = SYS_mount,
    MountSetattr = SYS_mount_setattr,
    MoveMount = SYS_move_mount,
    OpenByHandleAt = SYS_open_by_handle_at,
    OpenTree = SYS_open_tree,
    Openat = SYS_openat,
    Openat2 = SYS_openat2,
    PerfEventOpen = SYS_perf_event_open,
    PivotRoot = SYS_pivot_root,
    ProcessMrelease = SYS_process_mrelease,
    ProcessVmReadv = SYS_process_vm_readv,
    ProcessVmWritev = SYS_process_vm_writev,
    Ptrace = SYS_ptrace,
    Quotactl = SYS_quotactl,
    Reboot = SYS_reboot,
    RequestKey = SYS_request_key,
    Setdomainname = SYS_setdomainname,
    Sethostname = SYS_sethostname,
    Setns = SYS_setns,
    Settimeofday = SYS_settimeofday,
    Setuid = SYS_setuid,
    Socket = SYS_socket,
    Swapoff = SYS_swapoff,
    Swapon = SYS_swapon,
    Umount2 = SYS_umount2,
    Unshare = SYS_unshare,
    Userfaultfd = SYS_userfaultfd,
}

/// Makes the call. The answer is always an error; a process that a filter ends doesn't return.
pub fn hopeless(call: Hopeless) -> io::Error {
    const NONE: libc::c_long = -1;
    // SAFETY: see the list: with −1 everywhere the kernel finds no memory, file or object to act
    // on. It checks pointers itself and never touches this process through them.
    let result = unsafe { libc::syscall(call.number(), NONE, NONE, NONE, NONE, NONE, NONE) };
    if result >= 0 {
        // No call of the list can succeed; saying so is safer than trusting it.
        return io::Error::other(format!("{} succeeded with {result}", call.name()));
    }
    io::Error::last_os_error()
}

/// Asks for a new process with flags that contradict each other: `EINVAL` when processes may be
/// made, another error when a filter refuses that.
pub fn new_process() -> io::Error {
    // CLONE_SIGHAND without CLONE_VM is refused before anything is copied.
    let flags = libc::c_ulong::from((libc::CLONE_SIGHAND | libc::SIGCHLD) as u32);
    // SAFETY: the kernel refuses this combination, so there is never a second process.
    let result =
        unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    if result >= 0 {
        return io::Error::other("clone succeeded");
    }
    io::Error::last_os_error()
}

/// Executes a descriptor that doesn't exist: `EBADF` when programs may be executed by descriptor,
/// another error when a filter refuses that.
pub fn execute_descriptor() -> io::Error {
    let none = std::ptr::null::<*const libc::c_char>();
    // SAFETY: the path is a constant, null stands for an empty list, and descriptor -1 is never
    // a program.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            -1,
            c"".as_ptr(),
            none,
            none,
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// Maps one page of executable memory and gives it back.
///
/// # Errors
/// Why it was refused.
pub fn executable_memory() -> io::Result<()> {
    // SAFETY: a fresh anonymous page that nobody points to, unmapped again at once.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(page, 4096);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hopeless_call_succeeds_even_as_root_without_a_sandbox() {
        for call in Hopeless::ALL {
            let error = hopeless(*call);
            assert!(error.raw_os_error().is_some(), "{}: {error}", call.name());
        }
        assert_eq!(new_process().raw_os_error(), Some(libc::EINVAL));
        assert!(executable_memory().is_ok());
        assert_eq!(execute_descriptor().raw_os_error(), Some(libc::EBADF));
    }
}
