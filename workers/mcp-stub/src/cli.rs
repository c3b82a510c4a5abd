//! The command line.

use crate::wire::{MAX_SERVER, SOCKET_NAME};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What `--help` prints. The manual page is made of it, too.
pub const HELP: &str = include_str!("help.txt");

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Relay to this server through the socket at this path.
    Relay {
        /// Named on the command line.
        socket: Option<PathBuf>,
        /// The configured name.
        server: String,
    },
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter();
    let (mut socket, mut server) = (None, None);
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().ok_or("an argument is not UTF-8")?;
        match text {
            "-h" | "--help" => return Ok(Command::Help),
            "-V" | "--version" => return Ok(Command::Version),
            "--socket" => {
                let path = arguments.next().ok_or("--socket needs a path")?;
                socket = Some(PathBuf::from(path));
            }
            _ if text.starts_with("--socket=") => {
                socket = text.strip_prefix("--socket=").map(PathBuf::from);
            }
            _ if text.starts_with('-') => return Err(format!("there is no option {text}")),
            _ if server.is_some() => return Err(format!("one server only; {text} is too much")),
            _ => server = Some(text.to_owned()),
        }
    }
    let server = server.ok_or("which server? Name one of tools.mcpServers; --help says more")?;
    if server.is_empty() || server.len() > MAX_SERVER {
        return Err(format!("a server's name has 1 to {MAX_SERVER} bytes"));
    }
    Ok(Command::Relay { socket, server })
}

/// Where the gateway's socket may be, in order.
#[must_use]
pub fn places(named: Option<&Path>, daemon: Option<OsString>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    if let Some(daemon) = daemon.filter(|path| !path.is_empty()) {
        return vec![Path::new(&daemon).with_file_name(SOCKET_NAME)];
    }
    [".mono-agent", "/run/mono"]
        .map(|folder| Path::new(folder).join(SOCKET_NAME))
        .into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(arguments: &[&str]) -> Result<Command, String> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_server_and_a_socket_in_any_order() {
        let relay = |socket: Option<&str>| Command::Relay {
            socket: socket.map(PathBuf::from),
            server: "s".into(),
        };
        assert_eq!(read(&["s"]), Ok(relay(None)));
        assert_eq!(read(&["--socket", "/x", "s"]), Ok(relay(Some("/x"))));
        assert_eq!(read(&["s", "--socket=/x"]), Ok(relay(Some("/x"))));
        assert_eq!(read(&["s", "--help"]), Ok(Command::Help));
        assert_eq!(read(&["-V"]), Ok(Command::Version));
        for wrong in [
            &[][..],
            &["a", "b"],
            &["--what", "a"],
            &["a", "--socket"],
            &[""],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_socket_is_the_one_that_is_named_or_the_one_beside_the_daemons() {
        let one = |path: &str| vec![PathBuf::from(path)];
        assert_eq!(
            places(Some(Path::new("/a")), Some("/b/m.sock".into())),
            one("/a")
        );
        assert_eq!(
            places(None, Some("/b/m.sock".into())),
            one("/b/gateway.sock")
        );
        assert_eq!(places(None, Some(OsString::new())).len(), 2);
    }
}
