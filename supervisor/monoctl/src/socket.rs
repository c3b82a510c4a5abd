//! Where the daemon's socket is, and who is at its other end.

use crate::error::CtlError;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
    sockopt::PeerCredentials,
};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Below the current folder.
const HERE: &str = ".mono-agent/monod.sock";
/// Started by systemd.
const SYSTEM: &str = "/run/mono/monod.sock";

/// The socket: what was named, else `$MONO_SOCKET`, else the first that exists below `folder` and
/// in the system's place. What is named is taken even when it isn't there, so that the error
/// names it.
pub(crate) fn find(
    named: Option<&Path>,
    variable: Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Result<PathBuf, CtlError> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    if let Some(path) = variable.filter(|v| !v.is_empty()) {
        return Ok(path.into());
    }
    let tried = [PathBuf::from(HERE), PathBuf::from(SYSTEM)];
    match tried.iter().find(|path| exists(path)) {
        Some(path) => Ok(path.clone()),
        None => Err(CtlError::NoSocket {
            tried: tried.to_vec(),
        }),
    }
}

/// Connects, and makes sure that the process at the other end is ours or root's: a socket in a
/// folder that others may write to could be anybody's.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, CtlError> {
    let failed = |errno: Errno| {
        let path = path.to_owned();
        match errno {
            Errno::ENOENT => CtlError::NoSocket { tried: vec![path] },
            Errno::ECONNREFUSED => CtlError::NotListening { path },
            Errno::EACCES | Errno::EPERM => CtlError::Permission { path },
            other => CtlError::Connect {
                path,
                source: other.into(),
            },
        }
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(failed)?;
    let address = UnixAddr::new(path).map_err(failed)?;
    // On a Unix socket this is done at once, or fails when the daemon's queue is full.
    connect(fd.as_raw_fd(), &address).map_err(failed)?;
    let uid = getsockopt(&fd, PeerCredentials).map_err(failed)?.uid();
    if !trusted(uid, nix::unistd::geteuid().as_raw()) {
        return Err(CtlError::Stranger {
            path: path.to_owned(),
            uid,
        });
    }
    Ok(fd)
}

fn trusted(server: u32, us: u32) -> bool {
    server == us || server == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nix::sys::socket::{Backlog, bind, listen};

    #[test]
    fn the_strongest_name_wins() {
        let named = Path::new("/named");
        let var = || Some(OsString::from("/var"));
        let at = |path: &'static str| move |p: &Path| p == Path::new(path);
        assert_eq!(find(Some(named), var(), at(HERE)).unwrap(), named);
        assert_eq!(find(None, var(), at(HERE)).unwrap(), Path::new("/var"));
        assert_eq!(
            find(None, Some("".into()), |_| true).unwrap(),
            Path::new(HERE)
        );
        assert_eq!(find(None, None, at(SYSTEM)).unwrap(), Path::new(SYSTEM));
        let none = find(None, None, |_| false).unwrap_err();
        assert_eq!(none.status(), 3);
        let text = none.to_string();
        assert!(
            text.contains(HERE) && text.contains(SYSTEM) && text.contains("cargo xtask demo"),
            "{text}"
        );
    }

    #[test]
    fn only_our_own_and_roots_daemon_are_spoken_to() {
        assert!(trusted(1000, 1000) && trusted(0, 1000) && trusted(0, 0));
        assert!(!trusted(1001, 1000) && !trusted(1000, 0));
    }

    #[test]
    fn every_way_of_not_being_there_names_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let missing = open(&path).unwrap_err();
        assert!(matches!(&missing, CtlError::NoSocket { .. }) && missing.status() == 3);
        let fd = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let deaf = open(&path).unwrap_err();
        assert!(
            matches!(&deaf, CtlError::NotListening { .. })
                && deaf.to_string().contains("monod --config")
        );
        listen(&fd, Backlog::new(1).unwrap()).unwrap();
        assert!(open(&path).is_ok());
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(open(&file).unwrap_err().status(), 3);
        let long = PathBuf::from(format!("/{}", "x".repeat(200)));
        assert_eq!(open(&long).unwrap_err().status(), 3);
    }
}
