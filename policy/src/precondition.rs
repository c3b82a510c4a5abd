//! What the machine must offer before the first worker is started, asked in advance so that an
//! operator gets all of it at once and with its remedy.

use crate::profile::LANDLOCK_FLOOR;
use thiserror::Error;

/// Something that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unmet {
    /// No Landlock at all.
    #[error(
        "this kernel offers no Landlock ({0}): boot with `lsm=…,landlock`, or use a kernel of 6.12 or newer that has it built in"
    )]
    NoLandlock(String),
    /// One that is too old.
    #[error(
        "this kernel's Landlock has ABI {found}, ABI {LANDLOCK_FLOOR} is needed (signals and abstract sockets are not confined before it): use a kernel of 6.12 or newer"
    )]
    OldLandlock {
        /// The kernel's.
        found: u32,
    },
    /// A setting that keeps ordinary users from making user namespaces.
    #[error(
        "`{setting}` is {value}, which keeps an ordinary user from making namespaces: set it to {needed} (sysctl), or run with --allow-degraded"
    )]
    Setting {
        /// The sysctl.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        needed: &'static str,
    },
}

/// Settings that refuse user namespaces: file, name, the refusing value, what is needed.
const SETTINGS: [(&str, &str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "user.max_user_namespaces",
        "0",
        "at least 64",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "kernel.unprivileged_userns_clone",
        "0",
        "1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "0, or install the AppArmor profile of the package",
    ),
];

/// Everything that is missing. Settings about namespaces matter when the supervisor is no root
/// and namespaces are wanted.
pub fn unmet(wants_user_namespaces: bool) -> Vec<Unmet> {
    let landlock = landlock(mono_sys::landlock::abi());
    let settings = SETTINGS.iter().filter(|_| wants_user_namespaces);
    let refused = settings.filter_map(|(file, setting, refusing, needed)| {
        let value = std::fs::read_to_string(file).ok()?.trim().to_owned();
        (value == *refusing).then_some(Unmet::Setting {
            setting,
            value,
            needed,
        })
    });
    landlock.into_iter().chain(refused).collect()
}

fn landlock(abi: std::io::Result<u32>) -> Option<Unmet> {
    match abi {
        Err(error) => Some(Unmet::NoLandlock(error.to_string())),
        Ok(found) if found < LANDLOCK_FLOOR => Some(Unmet::OldLandlock { found }),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_landlock_and_an_old_one_are_told_apart() {
        let none = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        assert!(matches!(landlock(Err(none)), Some(Unmet::NoLandlock(_))));
        assert_eq!(landlock(Ok(5)), Some(Unmet::OldLandlock { found: 5 }));
        assert_eq!(landlock(Ok(6)), None);
        assert_eq!(landlock(Ok(9)), None);
    }
}
