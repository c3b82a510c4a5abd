//! The second sandbox stage and its proof.

use ipc_proto::Role;
use ipc_proto::edges::control::{Probe, SandboxReport};
use policy::probe::{Outcome, Outside};

/// No core dump and no `/proc/PID/{mem,environ}` for processes of the same user, from before the
/// settings arrive.
pub(crate) fn undumpable() -> Result<(), String> {
    nix::sys::prctl::set_dumpable(false).map_err(|e| format!("PR_SET_DUMPABLE: {e}"))
}

/// Applies the role's second stage, tries what must be refused, and reports what came of it.
pub(crate) fn confine(role: Role) -> Result<SandboxReport, String> {
    let path = |name| std::env::var_os(name).map(Into::into);
    let outside = Outside {
        state_root: path("MONO_PROBE_STATE"),
        admin_socket: path("MONO_PROBE_SOCKET"),
        // In a pid namespace of its own a worker has no number for the supervisor.
        supervisor: None,
    };
    let confinement = policy::stage2::apply(role).map_err(|e| e.to_string())?;
    let outcomes = policy::probe::run(role, &outside).map_err(|e| e.to_string())?;
    let probes = outcomes
        .into_iter()
        .filter(|tried| tried.outcome != Outcome::Skipped)
        .map(|tried| Probe {
            refused: tried.holds(),
            detail: format!("{:?}", tried.outcome),
            name: tried.name,
        })
        .collect();
    Ok(SandboxReport {
        seccomp: confinement.in_force.seccomp,
        seccomp_filters: confinement.in_force.filters,
        no_new_privs: confinement.in_force.no_new_privs,
        landlock_abi: confinement.landlock,
        uid: confinement.in_force.uid,
        capabilities: confinement.in_force.capabilities,
        probes,
    })
}
