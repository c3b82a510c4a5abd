//! What came of an attack.

use nix::errno::Errno;
use std::fmt;
use std::io;

/// What came of one action.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It worked.
    Done,
    /// The kernel took the call and refused only what made it harmless.
    Reached,
    /// There was nothing to attack in sight.
    Nothing,
    /// What it had started, or the channel that it spoke on, was ended.
    Ended,
    /// The other side answered as it answers everybody.
    Answered,
    /// The other side answered that it will not.
    Denied,
    /// It has no meaning here.
    Untried,
    /// The kernel's refusal, by its number.
    Refused(i32),
    /// A filter ended the process.
    Killed,
    /// The process ended otherwise.
    Died(String),
    /// Something that no action should come to; the words say what.
    Odd(String),
}

/// The status that tells that code which was not to run did run.
pub const RAN: i32 = 42;

impl Outcome {
    /// True when the attack succeeds, at least as far as it can without harm.
    #[must_use]
    pub fn is_breach(&self) -> bool {
        matches!(self, Self::Done | Self::Reached)
    }

    /// Done, or why not.
    pub fn of<T, E: Into<io::Error>>(result: Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) => Self::from(error.into()),
        }
    }

    /// As [`Outcome::of`], for a call that can't succeed: any other error than those by which a
    /// filter or a missing right refuses it shows that the kernel has taken it.
    pub fn of_hopeless(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc) if !REFUSALS.contains(&Errno::from_raw(libc)) => Self::Reached,
            _ => Self::from(error),
        }
    }
}

/// How calls are refused that don't even look at their arguments.
const REFUSALS: [Errno; 4] = [
    Errno::ENOSYS,
    Errno::EPERM,
    Errno::EACCES,
    Errno::EAFNOSUPPORT,
];

impl From<io::Error> for Outcome {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Refused(number),
            None => Self::Odd(error.to_string().replace(char::is_whitespace, "_")),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Reached => f.write_str("reached"),
            Self::Nothing => f.write_str("nothing"),
            Self::Ended => f.write_str("ended"),
            Self::Answered => f.write_str("answered"),
            Self::Denied => f.write_str("denied"),
            Self::Untried => f.write_str("-"),
            Self::Refused(number) => write!(f, "{:?}", Errno::from_raw(*number)),
            Self::Killed => f.write_str("killed"),
            Self::Died(how) => write!(f, "died:{how}"),
            Self::Odd(words) => write!(f, "odd:{words}"),
        }
    }
}

/// Error names that outcomes have; a name in a table that is none of them is a slip of the pen.
const NAMED: &[Errno] = &[
    Errno::EACCES,
    Errno::EADDRNOTAVAIL,
    Errno::EAFNOSUPPORT,
    Errno::EAGAIN,
    Errno::EBADF,
    Errno::EBUSY,
    Errno::ECHILD,
    Errno::ECONNREFUSED,
    Errno::EEXIST,
    Errno::EHOSTUNREACH,
    Errno::EINVAL,
    Errno::EIO,
    Errno::EISDIR,
    Errno::ELOOP,
    Errno::ENETUNREACH,
    Errno::ENODEV,
    Errno::ENOENT,
    Errno::ENOEXEC,
    Errno::ENOKEY,
    Errno::ENOMEM,
    Errno::ENOSYS,
    Errno::ENOTCONN,
    Errno::ENOTDIR,
    Errno::ENOTSUP,
    Errno::ENOTTY,
    Errno::ENXIO,
    Errno::EPERM,
    Errno::EPROTONOSUPPORT,
    Errno::EPROTOTYPE,
    Errno::EROFS,
    Errno::ESRCH,
    Errno::ETIMEDOUT,
    Errno::ETXTBSY,
    Errno::EXDEV,
];

impl std::str::FromStr for Outcome {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(how) = text.strip_prefix("died:") {
            return Ok(Self::Died(how.to_owned()));
        }
        if let Some(words) = text.strip_prefix("odd:") {
            return Ok(Self::Odd(words.to_owned()));
        }
        Ok(match text {
            "done" => Self::Done,
            "reached" => Self::Reached,
            "nothing" => Self::Nothing,
            "ended" => Self::Ended,
            "answered" => Self::Answered,
            "denied" => Self::Denied,
            "-" => Self::Untried,
            "killed" => Self::Killed,
            name => {
                let named = NAMED.iter().find(|errno| format!("{errno:?}") == name);
                Self::Refused(*named.ok_or_else(|| format!("`{name}` is no outcome"))? as i32)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_outcome_is_read_as_it_is_written() {
        let mut all = vec![
            Outcome::Done,
            Outcome::Reached,
            Outcome::Nothing,
            Outcome::Ended,
            Outcome::Answered,
            Outcome::Denied,
            Outcome::Untried,
            Outcome::Killed,
            Outcome::Died("signal_11".into()),
            Outcome::Odd("no_such_thing".into()),
        ];
        all.extend(NAMED.iter().map(|errno| Outcome::Refused(*errno as i32)));
        for outcome in all {
            assert_eq!(outcome.to_string().parse(), Ok(outcome));
        }
        assert!("EACCESS".parse::<Outcome>().is_err());
    }

    #[test]
    fn a_hopeless_call_that_the_kernel_looks_at_is_a_breach() {
        let of = |errno: Errno| Outcome::of_hopeless(io::Error::from(errno));
        assert!(of(Errno::EFAULT).is_breach());
        assert!(of(Errno::EINVAL).is_breach());
        assert_eq!(of(Errno::EPERM).to_string(), "EPERM");
        assert_eq!(of(Errno::ENOSYS).to_string(), "ENOSYS");
    }
}
