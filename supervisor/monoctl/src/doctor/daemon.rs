//! The daemon, if one runs: its socket, its health, and what confines each of its workers.

use super::Finding;
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::status::{Memory, Status};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Looks at the socket and asks who serves it.
pub(super) async fn look(path: Option<&Path>) -> Vec<Finding> {
    let Some(path) = path else {
        let detail = "no daemon runs at a usual place; `monod --config FILE` starts one";
        return vec![Finding::info("socket", detail)];
    };
    let socket = socket(path);
    if socket.remedy.is_some() {
        return vec![socket];
    }
    let answer = match Daemon::connect(Some(path)).await {
        Ok(daemon) => Status::ask(&daemon).await,
        Err(e) => Err(e),
    };
    let mut findings = vec![socket];
    match answer {
        Ok((status, _)) => findings.extend(judge(&status)),
        Err(e @ (CtlError::NoSocket { .. } | CtlError::NotListening { .. })) => {
            findings.push(Finding::info("daemon", e.to_string()));
        }
        Err(e) => findings.push(Finding::missing(
            "daemon",
            e.to_string(),
            "see its log (journalctl -u monod); restart it if it doesn't answer",
        )),
    }
    findings
}

fn socket(path: &Path) -> Finding {
    const CHECK: &str = "socket";
    let shown = path.display();
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Finding::info(CHECK, format!("{shown} is not there"));
    };
    // A link to the socket is the operator's; the daemon itself refuses one at its own path.
    let Ok(target) = std::fs::metadata(path) else {
        return Finding::missing(
            CHECK,
            format!("{shown} leads nowhere"),
            format!("rm {shown}"),
        );
    };
    if !target.file_type().is_socket() {
        let remedy = format!("look at it, then remove it: rm {shown}");
        return Finding::missing(CHECK, format!("{shown} is no socket"), remedy);
    }
    let mode = target.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let remedy = format!("chmod 0600 {shown} (in a systemd unit: SocketMode=0600)");
        return Finding::missing(
            CHECK,
            format!("{shown} has mode {mode:04o}: others may connect"),
            remedy,
        );
    }
    Finding::ok(
        CHECK,
        format!("{shown}, mode {mode:04o}, owned by user {}", meta.uid()),
    )
}

fn judge(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    let version = &status.version;
    for reason in &status.degraded {
        findings.push(Finding::missing(
            "daemon",
            format!("it runs degraded: {reason}"),
            "set right what `namespaces` says, then start it without --allow-degraded",
        ));
    }
    let parked = status.workers.iter().filter(|w| w.state == "parked");
    let parked: Vec<_> = parked.collect();
    for worker in &parked {
        findings.push(Finding::missing(
            "daemon",
            format!("{} is parked: {}", worker.title(), worker.last_line),
            format!("monoctl worker unpark {}", worker.role),
        ));
    }
    if findings.is_empty() && !status.ok {
        findings.push(Finding::missing(
            "daemon",
            format!("monod {version} is not healthy"),
            "monoctl status tells which worker it is; monoctl logs ROLE what it says",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("daemon", format!("monod {version} is healthy")));
    }
    let running: Vec<_> = status.workers.iter().filter(|w| w.pid.is_some()).collect();
    let mut weak = 0;
    for worker in &running {
        // A worker that is not ready yet has no second filter and did not probe.
        let Some(weakness) = worker.weakness().filter(|_| worker.state != "starting") else {
            continue;
        };
        weak += 1;
        findings.push(Finding::missing(
            "workers",
            format!(
                "{} (process {:?}): {weakness}",
                worker.title(),
                worker.pid.unwrap_or(0)
            ),
            format!(
                "monoctl worker restart {}; if it stays, report it",
                worker.role
            ),
        ));
    }
    if weak == 0 {
        let detail = format!("{} run, the kernel confines every one", running.len());
        findings.push(Finding::ok("workers", detail));
    }
    for role in status.violations.keys() {
        if let Some(calls) = status.forbidden(role) {
            let detail =
                format!("{role} made forbidden system calls and was ended each time: {calls}");
            findings.push(Finding::info("calls", detail));
        }
    }
    findings.extend(memory(&status.memory));
    findings
}

fn memory(memory: &Memory) -> Option<Finding> {
    let reason = memory.reason.as_deref().unwrap_or("it doesn't say why");
    Some(match memory.enforcement.as_str() {
        "" => return None,
        "cgroup" => Finding::ok(
            "memory",
            "the kernel keeps runs and servers to their limits",
        ),
        "watched" => Finding::info(
            "memory",
            format!(
                "the daemon watches the limits of runs and servers (watched), the kernel doesn't \
                 enforce them: {reason}"
            ),
        ),
        other => Finding::info(
            "memory",
            format!("limits are enforced by {other}: {reason}"),
        ),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::State;
    use super::*;
    use serde_json::{Value, json};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn judged(value: Value) -> Vec<(State, String)> {
        let status: Status = serde_json::from_value(value).unwrap();
        let all = judge(&status).into_iter();
        all.map(|f| (f.state, f.detail)).collect()
    }

    #[test]
    fn health_and_confinement_are_judged_apart() {
        let confined = json!({"seccomp": 2, "no_new_privs": true, "landlock_abi": 7, "uid": 5,
            "capabilities": 0});
        let worker = |state: &str, sandbox: &Value| json!({"role": "egress", "pid": 3, "state": state, "sandbox": sandbox});
        let good =
            judged(json!({"ok": true, "version": "1", "workers": [worker("serving", &confined)]}));
        assert!(
            good.iter().all(|(state, _)| *state == State::Ok),
            "{good:?}"
        );

        let weak = judged(json!({"ok": false, "workers": [worker("serving", &Value::Null)]}));
        let missing = weak.iter().filter(|(state, _)| *state == State::Missing);
        assert_eq!(missing.count(), 2, "{weak:?}");

        // What has just started can't be judged yet.
        let young = judged(json!({"ok": true, "workers": [worker("starting", &Value::Null)]}));
        assert!(
            young.iter().all(|(state, _)| *state == State::Ok),
            "{young:?}"
        );

        let tried = judged(json!({"ok": true, "violations": {"run": {"ptrace": 2}}}));
        let told = |(state, text): &(State, String)| {
            *state == State::Info && text.contains("run made") && text.contains("ptrace 2")
        };
        assert!(tried.iter().any(told), "{tried:?}");

        let parked = judged(json!({"ok": false, "degraded": ["no namespaces"],
            "workers": [{"role": "egress", "state": "parked", "last_line": "no key"}]}));
        assert!(
            parked[0].1.contains("degraded") && parked[1].1.contains("no key"),
            "{parked:?}"
        );
    }

    #[test]
    fn how_memory_is_limited_is_said_when_the_daemon_says_it() {
        let told = |memory: Value| {
            let findings = judged(json!({"ok": true, "memory": memory}));
            let mut about = findings
                .into_iter()
                .filter(|(_, text)| text.contains("limits"));
            about.next()
        };
        let kernel = told(json!({"enforcement": "cgroup"})).unwrap();
        assert!(
            kernel.0 == State::Ok && kernel.1.contains("the kernel keeps"),
            "{kernel:?}"
        );
        let watched = told(json!({"enforcement": "watched", "reason": "no controller"})).unwrap();
        assert!(
            watched.0 == State::Info && watched.1.ends_with("no controller"),
            "{watched:?}"
        );
        let newer = told(json!({"enforcement": "magic"})).unwrap();
        assert!(
            newer.0 == State::Info && newer.1.contains("magic"),
            "{newer:?}"
        );
        assert_eq!(told(json!({})), None);
    }

    #[test]
    fn only_a_private_socket_will_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert_eq!(socket(&path).state, State::Info);
        std::fs::write(&path, "").unwrap();
        assert_eq!(socket(&path).state, State::Missing);
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(socket(&path).remedy.unwrap().contains("chmod 0600"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(socket(&path).state, State::Ok);
    }
}
