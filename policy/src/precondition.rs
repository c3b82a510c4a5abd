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
    /// Filters that can't tell the supervisor of a call.
    #[error(
        "this kernel's filters of system calls offer {0} and no notification of another process (`user_notif`): use a kernel of 6.12 or newer with CONFIG_SECCOMP_FILTER"
    )]
    NoNotification(String),
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

/// What the kernel's filters can do.
const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";

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
    let notification = notification(&std::fs::read_to_string(ACTIONS).unwrap_or_default());
    landlock
        .into_iter()
        .chain(notification)
        .chain(refused)
        .collect()
}

fn notification(actions: &str) -> Option<Unmet> {
    let mut offered = actions.split_whitespace();
    let all = if actions.trim().is_empty() {
        "nothing"
    } else {
        actions.trim()
    };
    (!offered.any(|action| action == "user_notif")).then(|| Unmet::NoNotification(all.to_owned()))
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
    fn filters_must_be_able_to_notify() {
        assert_eq!(notification("errno user_notif allow\n"), None);
        for (actions, shown) in [("errno allow\n", "errno allow"), ("", "nothing")] {
            let unmet = notification(actions);
            assert_eq!(unmet, Some(Unmet::NoNotification(shown.to_owned())));
        }
    }

    #[test]
    fn no_landlock_and_an_old_one_are_told_apart() {
        let none = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        assert!(matches!(landlock(Err(none)), Some(Unmet::NoLandlock(_))));
        assert_eq!(landlock(Ok(5)), Some(Unmet::OldLandlock { found: 5 }));
        assert_eq!(landlock(Ok(6)), None);
        assert_eq!(landlock(Ok(9)), None);
    }
}
