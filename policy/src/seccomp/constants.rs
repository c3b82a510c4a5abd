//! Argument values by name, so that the data files read like the manual.

/// The value of a name, of a number (decimal or `0x…`), or of several joined by `|`.
pub(super) fn value_of(text: &str) -> Option<u64> {
    text.split('|')
        .try_fold(0, |all, part| Some(all | single(part.trim())?))
}

fn single(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    NAMED
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
}

/// The number of an error name.
pub(crate) fn errno_of(name: &str) -> Option<u16> {
    ERRORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

macro_rules! libc_constants {
    ($kind:ty: $($name:ident)*) => { &[$((stringify!($name), libc::$name as $kind)),*] };
}

const ERRORS: &[(&str, u16)] = libc_constants! { u16:
    EACCES EAFNOSUPPORT EBADF ECONNREFUSED EFAULT EINVAL ENETUNREACH ENOENT ENOSYS ENOTTY EPERM EROFS ESRCH
    EXDEV
};

/// Every flag of `clone` that asks for a namespace.
const CLONE_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

#[allow(
    clippy::unnecessary_cast,
    reason = "C libraries differ in the types of some"
)]
const NAMED: &[(&str, u64)] = &[
    ("AF_INET", libc::AF_INET as u64),
    ("AF_INET6", libc::AF_INET6 as u64),
    ("AF_UNIX", libc::AF_UNIX as u64),
    ("IPPROTO_TCP", libc::IPPROTO_TCP as u64),
    ("IPPROTO_UDP", libc::IPPROTO_UDP as u64),
    ("SOCK_DGRAM", libc::SOCK_DGRAM as u64),
    ("SOCK_STREAM", libc::SOCK_STREAM as u64),
    ("CLONE_NAMESPACES", CLONE_NAMESPACES),
    ("CLONE_NEWCGROUP", libc::CLONE_NEWCGROUP as u64),
    ("CLONE_NEWIPC", libc::CLONE_NEWIPC as u64),
    ("CLONE_NEWNET", libc::CLONE_NEWNET as u64),
    ("CLONE_NEWNS", libc::CLONE_NEWNS as u64),
    ("CLONE_NEWPID", libc::CLONE_NEWPID as u64),
    ("CLONE_NEWUSER", libc::CLONE_NEWUSER as u64),
    ("CLONE_NEWUTS", libc::CLONE_NEWUTS as u64),
    ("CLONE_THREAD", libc::CLONE_THREAD as u64),
    ("AT_EMPTY_PATH", libc::AT_EMPTY_PATH as u64),
    // Of the kernel: a C library may count O_PATH in.
    ("O_ACCMODE", 3),
    ("O_CREAT", libc::O_CREAT as u64),
    ("O_TRUNC", libc::O_TRUNC as u64),
    ("S_ISGID", libc::S_ISGID as u64),
    ("S_ISUID", libc::S_ISUID as u64),
    ("F_SETOWN", libc::F_SETOWN as u64),
    // Not in libc; the numbers are of include/uapi/asm-generic/fcntl.h.
    ("F_SETSIG", 10),
    ("F_SETOWN_EX", 15),
    ("FIOCLEX", libc::FIOCLEX as u64),
    ("FIONBIO", libc::FIONBIO as u64),
    ("FIONREAD", libc::FIONREAD as u64),
    ("TCGETS", libc::TCGETS as u64),
    ("TIOCLINUX", libc::TIOCLINUX as u64),
    ("TIOCSTI", libc::TIOCSTI as u64),
    ("PROT_EXEC", libc::PROT_EXEC as u64),
    ("ADDR_NO_RANDOMIZE", libc::ADDR_NO_RANDOMIZE as u64),
    ("PR_CAPBSET_READ", libc::PR_CAPBSET_READ as u64),
    ("PR_GET_DUMPABLE", libc::PR_GET_DUMPABLE as u64),
    ("PR_GET_NAME", libc::PR_GET_NAME as u64),
    ("PR_GET_NO_NEW_PRIVS", libc::PR_GET_NO_NEW_PRIVS as u64),
    ("PR_GET_SECCOMP", libc::PR_GET_SECCOMP as u64),
    ("PR_SET_NAME", libc::PR_SET_NAME as u64),
    ("PR_SET_VMA", libc::PR_SET_VMA as u64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_unions_are_understood_and_nothing_else() {
        assert_eq!(value_of("0x1f"), Some(31));
        assert_eq!(value_of("12"), Some(12));
        assert_eq!(value_of("O_CREAT | 0x400000"), Some(0x40_0040));
        assert_eq!(value_of("O_CRAET"), None);
        assert_eq!(value_of(""), None);
        assert_eq!(errno_of("EPERM"), Some(1));
        assert_eq!(errno_of("EWHAT"), None);
    }
}
