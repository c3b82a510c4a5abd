//! Stands in for a worker in tests of the launcher: does what its arguments say, in order, and
//! prints a line `argument = outcome` for each. Not installed.
#![forbid(unsafe_code)]

use ipc_proto::Role;
use mono_sys::attempt::{Hopeless, hopeless};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use policy::probe::Outside;
use policy::{inforce, probe, stage2};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

fn main() {
    for argument in std::env::args().skip(1) {
        let (what, object) = argument.split_once(':').unwrap_or((&argument, ""));
        let outcome = match act(what, object) {
            Ok(text) => text,
            Err(error) => match error.raw_os_error() {
                Some(errno) => format!("{:?}", Errno::from_raw(errno)),
                None => format!("{error}"),
            },
        };
        println!("{argument} = {outcome}");
    }
}

/// Descriptors in one message, which is what the kernel allows.
const IN_ONE: usize = 253;

/// Sends itself descriptors and receives none, until the kernel takes no more.
fn send_descriptors() -> io::Result<String> {
    // Held on their way until this process ends.
    let (ours, theirs) = UnixStream::pair()?;
    std::mem::forget(theirs);
    let raw = [ours.as_raw_fd(); IN_ONE];
    for _ in 0..1_000 {
        let rights = [ControlMessage::ScmRights(&raw)];
        let parts = [IoSlice::new(b"x")];
        let flags = MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(ours.as_raw_fd(), &parts, &rights, flags, None)?;
    }
    Ok("no end".to_owned())
}

fn act(what: &str, object: &str) -> io::Result<String> {
    let done = |()| "done".to_owned();
    match what {
        "read" => {
            let mut text = String::new();
            File::open(object)?.take(200).read_to_string(&mut text)?;
            Ok(text.trim_end().replace('\n', "|"))
        }
        "list" => {
            let entries = fs::read_dir(object)?.flatten();
            let mut names: Vec<_> = entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            Ok(names.join(" "))
        }
        "stat" => fs::symlink_metadata(object).map(|_| "there".into()),
        "write" => {
            let mut file = OpenOptions::new().create(true).append(true).open(object)?;
            file.write_all(b"written").map(done)
        }
        "truncate" => OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(object)
            .map(|_| done(())),
        "remove" => fs::remove_file(object).map(done),
        "set-user-id" => fs::set_permissions(object, Permissions::from_mode(0o4755)).map(done),
        "make-set-user-id" => {
            let mut options = OpenOptions::new();
            options
                .create_new(true)
                .write(true)
                .mode(0o4755)
                .open(object)
                .map(|_| done(()))
        }
        "tcp" => {
            let address: SocketAddr = object.parse().map_err(io::Error::other)?;
            TcpStream::connect_timeout(&address, Duration::from_millis(300)).map(|_| done(()))
        }
        "udp" => UdpSocket::bind("0.0.0.0:0")?
            .send_to(b"x", object)
            .map(|_| done(())),
        "loopback" => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let mut stream = TcpStream::connect(listener.local_addr()?)?;
            stream.write_all(b"x")?;
            listener.accept().map(|_| done(()))
        }
        "resolve" => {
            let found = (object, 80)
                .to_socket_addrs()?
                .map(|address| address.ip().to_string());
            Ok(found.collect::<Vec<_>>().join(" "))
        }
        "hold" => {
            println!("held");
            io::stdin().read(&mut [0]).map(|_| done(()))
        }
        "send-descriptors" => send_descriptors(),
        "unix" => UnixStream::connect(object).map(|_| done(())),
        "run" => {
            let output = Command::new("/bin/sh").args(["-c", object]).output()?;
            let text = String::from_utf8_lossy(&output.stdout)
                .trim_end()
                .replace('\n', "|");
            Ok(format!("{} {text}", output.status))
        }
        "thread" => std::thread::Builder::new()
            .spawn(|| "done".to_owned())?
            .join()
            .map_err(|_| io::Error::other("panicked")),
        "hopeless" => {
            let call = Hopeless::ALL.iter().find(|call| call.name() == object);
            Err(call.map_or_else(|| io::Error::other("no such call"), |call| hopeless(*call)))
        }
        "status" => {
            let status = inforce::OwnStatus::open()?.read()?;
            Ok(format!(
                "uid {} gid {} seccomp {} nnp {} caps {:x} obtainable {:x}",
                status.uid,
                status.gid,
                status.seccomp,
                status.no_new_privs,
                status.capabilities,
                status.obtainable
            ))
        }
        "groups" => {
            let groups = nix::unistd::getgroups()?;
            Ok(groups
                .iter()
                .map(|group| group.to_string())
                .collect::<Vec<_>>()
                .join(" "))
        }
        "pid" => Ok(std::process::id().to_string()),
        "directory" => std::env::current_dir().map(|path| path.display().to_string()),
        "environment" => {
            let variables = std::env::vars().map(|(name, value)| format!("{name}={value}"));
            Ok(variables.collect::<Vec<_>>().join("|"))
        }
        "descriptors" => {
            let open = (0..1024)
                .filter(|number| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok());
            Ok(open
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
                .join(" "))
        }
        "stage2" => {
            let confinement = stage2::apply(role(object)?).map_err(io::Error::other)?;
            let filters = confinement.in_force.filters;
            Ok(format!(
                "landlock {} filters {filters}",
                confinement.landlock > 0
            ))
        }
        "probes" => {
            let (name, place) = object.split_once(':').unwrap_or((object, ""));
            let outside = Outside {
                state_root: Some(place.into()),
                admin_socket: Some(format!("{place}/monod.sock").into()),
                supervisor: Some(nix::unistd::getppid().as_raw()).filter(|pid| *pid > 1),
            };
            let outcomes = probe::run(role(name)?, &outside).map_err(io::Error::other)?;
            match probe::verdict(&outcomes) {
                Ok(()) => Ok(format!("{} held", outcomes.len())),
                Err(hole) => Ok(format!("hole: {} {}", hole.name, hole.outcome)),
            }
        }
        _ => Err(io::Error::other("no such action")),
    }
}

fn role(name: &str) -> io::Result<Role> {
    let role = Role::ALL.into_iter().find(|role| role.name() == name);
    role.ok_or_else(|| io::Error::other("no such role"))
}
