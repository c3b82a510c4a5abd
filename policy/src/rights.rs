//! Landlock rights by what may be done. Spelled out, so that an update of the crate that adds a
//! right shows as a difference here and not as a silent grant.

use crate::profile::Access;
use landlock::{AccessFs, AccessNet, BitFlags, make_bitflags};

/// All file rights that the floor ABI knows: handled, so refused where no rule grants them.
pub fn handled() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{
        Execute | WriteFile | ReadFile | ReadDir | RemoveDir | RemoveFile | MakeChar | MakeDir
        | MakeReg | MakeSock | MakeFifo | MakeBlock | MakeSym | Refer | Truncate | IoctlDev
    })
}

/// Rights that mean something for a file; the others are about what a directory holds.
fn on_files() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{Execute | WriteFile | ReadFile | Truncate | IoctlDev})
}

/// The rights beneath a directory, or on a file.
pub fn of(access: Access, directory: bool) -> u64 {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    // Never MakeChar and MakeBlock: no device can be made anywhere.
    let write = make_bitflags!(AccessFs::{
        WriteFile | Truncate | MakeReg | MakeDir | MakeSym | RemoveFile | RemoveDir | Refer
    });
    let execute = make_bitflags!(AccessFs::{Execute});
    let places = make_bitflags!(AccessFs::{MakeFifo | MakeSock});
    let rights = match access {
        Access::Read => read,
        Access::ReadExec => read | execute,
        Access::Write => read | write,
        Access::WriteExec => read | write | execute | places,
    };
    (if directory {
        rights
    } else {
        rights & on_files()
    })
    .bits()
}

/// Listing directories, for a view whose every directory is meant to be seen.
pub fn listing() -> u64 {
    make_bitflags!(AccessFs::{ReadDir}).bits()
}

/// Reading and writing a device, without driver requests.
pub fn device() -> u64 {
    make_bitflags!(AccessFs::{ReadFile | WriteFile}).bits()
}

/// Binding a TCP port.
pub fn bind() -> u64 {
    make_bitflags!(AccessNet::{BindTcp}).bits()
}

/// Binding and connecting TCP.
pub fn tcp() -> u64 {
    make_bitflags!(AccessNet::{BindTcp | ConnectTcp}).bits()
}

/// The rights of these bits; `None` with one beyond the floor ABI.
pub fn of_files(bits: u64) -> Option<BitFlags<AccessFs>> {
    BitFlags::from_bits(bits)
        .ok()
        .filter(|rights| handled().contains(*rights))
}

/// As [`of_files`], of the network.
pub fn of_net(bits: u64) -> Option<BitFlags<AccessNet>> {
    BitFlags::from_bits(bits)
        .ok()
        .filter(|rights| rights.bits() & !tcp() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landlock::{ABI, Access as _};

    #[test]
    fn everything_that_the_floor_abi_knows_is_handled() {
        assert_eq!(handled(), AccessFs::from_all(ABI::V6));
        assert_eq!(tcp(), AccessNet::from_all(ABI::V6).bits());
    }

    #[test]
    fn no_access_makes_devices_or_talks_to_drivers_and_only_two_execute() {
        let devices = make_bitflags!(AccessFs::{MakeChar | MakeBlock | IoctlDev}).bits();
        for access in [
            Access::Read,
            Access::ReadExec,
            Access::Write,
            Access::WriteExec,
        ] {
            for directory in [false, true] {
                let rights = of(access, directory);
                assert_eq!(rights & devices, 0);
                assert_eq!(rights & !handled().bits(), 0);
                let executes = rights & AccessFs::Execute as u64 != 0;
                assert_eq!(
                    executes,
                    matches!(access, Access::ReadExec | Access::WriteExec)
                );
            }
        }
        assert_eq!(of(Access::Read, false), AccessFs::ReadFile as u64);
    }
}
