//! How the launcher ends when it can't start a program: one code a step, so that the supervisor
//! knows what failed without reading a log.

/// A step of the launcher. Its code is the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Reading the spec from its sealed memory file.
    Spec = 101,
    /// A session of its own.
    Session,
    /// A resource limit.
    Limit,
    /// The host name of its own namespace.
    HostName,
    /// Detaching its mounts from the machine's.
    Private,
    /// Opening a granted path.
    Grant,
    /// Making the new root's file systems.
    FileSystem,
    /// Placing something in the new root.
    Place,
    /// Changing to the new root.
    Root,
    /// Loopback.
    Loopback,
    /// Preparing Landlock's rules.
    LandlockRule,
    /// Giving up capabilities.
    Capabilities,
    /// Becoming the role's user.
    User,
    /// Binding its life to the supervisor's.
    Supervisor,
    /// The directory it starts in.
    Directory,
    /// Never gaining privileges again.
    NoNewPrivileges,
    /// Entering the Landlock domain.
    Landlock,
    /// Installing the filter of system calls.
    Filter,
    /// Executing the program.
    Execute,
    /// Having the filter's calls heard by the supervisor.
    Listener,
}

impl Step {
    /// All steps by their codes. The order is that of the steps but for the last, which comes with
    /// the filter: a code never changes its meaning.
    pub const ALL: [Step; 20] = [
        Step::Spec,
        Step::Session,
        Step::Limit,
        Step::HostName,
        Step::Private,
        Step::Grant,
        Step::FileSystem,
        Step::Place,
        Step::Root,
        Step::Loopback,
        Step::LandlockRule,
        Step::Capabilities,
        Step::User,
        Step::Supervisor,
        Step::Directory,
        Step::NoNewPrivileges,
        Step::Landlock,
        Step::Filter,
        Step::Execute,
        Step::Listener,
    ];

    /// The exit status.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The step of an exit status.
    pub fn from_code(code: i32) -> Option<Self> {
        Step::ALL
            .into_iter()
            .find(|step| i32::from(step.code()) == code)
    }

    /// What was being done.
    pub const fn doing(self) -> &'static str {
        match self {
            Step::Spec => "reading the launch spec",
            Step::Session => "starting a session",
            Step::Limit => "setting a limit",
            Step::HostName => "setting the host name",
            Step::Private => "detaching mounts",
            Step::Grant => "opening a granted path",
            Step::FileSystem => "making a file system",
            Step::Place => "placing a path in the new root",
            Step::Root => "changing to the new root",
            Step::Loopback => "bringing up loopback",
            Step::LandlockRule => "preparing Landlock",
            Step::Capabilities => "giving up capabilities",
            Step::User => "becoming the role's user",
            Step::Supervisor => "watching the supervisor",
            Step::Directory => "entering the start directory",
            Step::NoNewPrivileges => "setting no_new_privs",
            Step::Landlock => "entering the Landlock domain",
            Step::Filter => "installing the system-call filter",
            Step::Execute => "executing the program",
            Step::Listener => "having forbidden system calls reported",
        }
    }

    /// What an operator can do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Step::Spec => {
                "mono-launch is started by monod and by nobody else; if it was, reinstall so that both are one version"
            }
            Step::Session | Step::NoNewPrivileges | Step::Supervisor => {
                "start monod again; if it stays, report it"
            }
            Step::Limit => {
                "raise the hard limit of the service (Limit…= in its unit, or ulimit -H)"
            }
            Step::HostName | Step::Private | Step::FileSystem | Step::Root | Step::Loopback => {
                "the kernel or an outer container refuses namespaces: allow them (see `monoctl status`, docs/security.md), or run with --allow-degraded"
            }
            Step::Grant => "the path must exist and be reachable for the user that monod runs as",
            Step::Place => {
                "no granted path may lie where another is a file; change the workspace or the declared paths"
            }
            Step::LandlockRule | Step::Landlock => {
                "a kernel of 6.12 or newer with Landlock enabled (lsm=…,landlock on its command line) is needed"
            }
            Step::Capabilities | Step::User => {
                "as root monod needs CAP_SETUID, CAP_SETGID and CAP_SETPCAP; give them, or start it as an ordinary user"
            }
            Step::Directory => {
                "the role's user must be able to enter it: check the modes of the workspace"
            }
            Step::Filter => "the kernel needs CONFIG_SECCOMP_FILTER",
            Step::Listener => {
                "if something around monod already takes notice of system calls (a container engine may), turn that off: the kernel lets only one do so; else raise the hard limit of open files (LimitNOFILE=)"
            }
            Step::Execute => {
                "the program must exist inside the sandbox and be executable for the role's user"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_come_back() {
        for (index, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(step.code()), 101 + index);
            assert_eq!(Step::from_code(i32::from(step.code())), Some(step));
        }
        assert_eq!(Step::from_code(0), None);
        assert_eq!(Step::from_code(100), None);
        assert_eq!(Step::from_code(121), None);
    }
}
