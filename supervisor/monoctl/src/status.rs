//! `monoctl status`.

use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::{Colour, Screen};
use crate::table::Rows;
use crate::terminal::{safe_line, size};
use ipc_proto::admin::Ask;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What is shown of the daemon's answer. Fields that an older or newer daemon doesn't send are
/// shown as unknown, never as good.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) ok: bool,
    /// It was asked to end, and takes no new turn.
    pub(crate) stopping: bool,
    pub(crate) version: String,
    pub(crate) degraded: Vec<String>,
    pub(crate) uptime_ms: u64,
    pub(crate) protocol_violations: u64,
    /// Forbidden system calls that ended a process, by role and call.
    pub(crate) violations: BTreeMap<String, BTreeMap<String, u64>>,
    pub(crate) memory: Memory,
    pub(crate) runs: Runs,
    pub(crate) workers: Vec<Worker>,
    /// How it stands with the answers that come later; absent where there are none.
    pub(crate) continuations: Option<Continuations>,
}

/// What is shown of the health of continuations.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Continuations {
    pub(crate) status: String,
    pub(crate) pending: u64,
    pub(crate) due: u64,
}

/// How the limits of memory are enforced; empty when the daemon doesn't say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    pub(crate) enforcement: String,
    pub(crate) reason: Option<String>,
}

/// What a run or a server uses, with all below it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Used {
    pub(crate) bytes: Option<u64>,
    pub(crate) limit_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Runs {
    pub(crate) working: u64,
    pub(crate) waiting: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) role: String,
    /// The configured name of an MCP server.
    pub(crate) name: Option<String>,
    pub(crate) pid: Option<i32>,
    pub(crate) state: String,
    pub(crate) restarts: u64,
    pub(crate) protocol: Option<u16>,
    pub(crate) rss_bytes: u64,
    pub(crate) memory: Option<Used>,
    pub(crate) last_line: String,
    /// It has the program, or the settings, of before a reload.
    pub(crate) outdated: bool,
    pub(crate) sandbox: Option<Sandbox>,
}

impl Worker {
    /// An owner of files can't live beside its successor.
    pub(crate) fn waits_for_quiet(&self) -> bool {
        ["store", "artifact"].contains(&self.role.as_str())
    }
}

/// What the kernel enforces on a worker.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sandbox {
    pub(crate) seccomp: Option<u32>,
    pub(crate) seccomp_filters: Option<u32>,
    pub(crate) no_new_privs: Option<bool>,
    pub(crate) landlock_abi: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) capabilities: Option<u64>,
    /// Those that differ from the supervisor's.
    pub(crate) namespaces: Option<Vec<String>>,
    pub(crate) probes: BTreeMap<String, Value>,
}

impl Status {
    /// Asks for it; gives the answer as it came, too.
    pub(crate) async fn ask(daemon: &Daemon) -> Result<(Self, Value), CtlError> {
        let (value, _) = daemon.ask::<Value>(&Ask::Status, &[]).await?;
        let status =
            serde_json::from_value(value.clone()).map_err(|e| CtlError::NoAnswer(e.to_string()))?;
        Ok((status, value))
    }

    /// The forbidden system calls of a role, with how often; `None` when there was none.
    pub(crate) fn forbidden(&self, role: &str) -> Option<String> {
        let calls = self.violations.get(role)?.iter();
        let calls = calls.map(|(call, count)| format!("{} {count}", safe_line(call, 40)));
        let calls: Vec<_> = calls.collect();
        (!calls.is_empty()).then(|| calls.join(", "))
    }

    /// The workers of a role.
    pub(crate) fn of<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a Worker> {
        self.workers.iter().filter(move |w| w.role == role)
    }
}

impl Worker {
    /// Its state, and whether it is still of before a reload.
    pub(crate) fn standing(&self) -> String {
        let outdated = if self.outdated { ", outdated" } else { "" };
        format!("{}{outdated}", self.state)
    }

    /// Its role, with the name of its MCP server.
    pub(crate) fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{} ({name})", self.role),
            None => self.role.clone(),
        }
    }

    /// What is missing of its confinement, or isn't known; `None` when all is in force.
    pub(crate) fn weakness(&self) -> Option<String> {
        self.pid?;
        let Some(sandbox) = &self.sandbox else {
            return Some("the kernel doesn't say what confines it".to_owned());
        };
        let checks = [
            (sandbox.seccomp == Some(2), "no system-call filter"),
            (
                sandbox.no_new_privs == Some(true),
                "no_new_privs is not set",
            ),
            (
                sandbox.landlock_abi.is_some_and(|abi| abi > 0),
                "no Landlock",
            ),
            (sandbox.capabilities == Some(0), "it has capabilities"),
            (sandbox.uid.is_some_and(|uid| uid != 0), "it is root"),
            (
                sandbox.probes.values().all(is_refused),
                "a probe was not refused",
            ),
        ];
        let weak = checks.into_iter().filter(|(good, _)| !good);
        let weak: Vec<_> = weak.map(|(_, what)| what).collect();
        (!weak.is_empty()).then(|| weak.join(", "))
    }
}

/// Exit status 0 for a healthy daemon, 1 for any other.
pub(crate) async fn run(socket: Option<&Path>, screen: &mut Screen) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    let (status, value) = Status::ask(&daemon).await?;
    if screen.is_json() {
        screen.json(&value)?;
    } else {
        show(&status, screen)?;
    }
    Ok(u8::from(!status.ok))
}

fn show(status: &Status, screen: &mut Screen) -> Result<(), CtlError> {
    let health = match (status.ok, status.degraded.is_empty()) {
        (true, _) => screen.paint("healthy", Colour::Good),
        (false, false) => screen.paint("DEGRADED", Colour::Bad),
        (false, true) => screen.paint("UNHEALTHY", Colour::Bad),
    };
    let version = safe_line(&status.version, 40);
    let Runs { working, waiting } = status.runs;
    let stopping = if status.stopping { ", stopping" } else { "" };
    screen.line(&format!(
        "monod {version}  {health}{stopping}  {working} at work, {waiting} waiting"
    ))?;
    for reason in &status.degraded {
        screen.line(&format!("  {}", safe_line(reason, 400)))?;
    }
    let mut rows = Rows::new(&[
        "ROLE",
        "PID",
        "STATE",
        "RESTARTS",
        "RSS",
        "UID",
        "SECCOMP",
        "NNP",
        "LANDLOCK",
        "NAMESPACES",
        "PROBES",
    ]);
    for worker in &status.workers {
        rows.push(cells(worker));
    }
    screen.line(&rows.text())?;
    if let Some(continuations) = &status.continuations {
        let Continuations {
            status,
            pending,
            due,
        } = continuations;
        let status = match &**status {
            "healthy" => screen.paint("healthy", Colour::Good),
            "degraded" => "degraded".to_owned(),
            "unhealthy" => screen.paint("UNHEALTHY", Colour::Bad),
            _ => "unknown".to_owned(),
        };
        screen.line(&format!(
            "continuations: {status}, {pending} pending, {due} due (`monoctl continuations health`)"
        ))?;
    }
    for worker in &status.workers {
        if worker.state == "parked" {
            let role = safe_line(&worker.role, 40);
            let last = safe_line(&worker.last_line, 400);
            screen.line(&format!(
                "{role} is parked: {last}\n  lift it with `monoctl worker unpark {role}`"
            ))?;
        }
    }
    for role in status.violations.keys() {
        if let Some(calls) = status.forbidden(role) {
            let role = safe_line(role, 40);
            screen.line(&format!("{role}: ended by forbidden system calls: {calls}"))?;
        }
    }
    for (worker, probe, outcome) in failed_probes(status) {
        screen.line(&format!("{worker}: probe {probe}: {outcome}"))?;
    }
    Ok(())
}

fn cells(worker: &Worker) -> [String; 11] {
    let unknown = || "?".to_owned();
    let mut cells = [
        worker.title(),
        worker
            .pid
            .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        worker.standing(),
        worker.restarts.to_string(),
        size(worker.rss_bytes),
        "-".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
    ];
    if let Some(sandbox) = &worker.sandbox {
        cells[5] = sandbox.uid.map_or_else(unknown, |uid| uid.to_string());
        cells[6] = match sandbox.seccomp {
            Some(2) => "filter".to_owned(),
            Some(1) => "strict".to_owned(),
            Some(_) => "NONE".to_owned(),
            None => unknown(),
        };
        cells[7] = match sandbox.no_new_privs {
            Some(true) => "yes".to_owned(),
            Some(false) => "NO".to_owned(),
            None => unknown(),
        };
        cells[8] = match sandbox.landlock_abi {
            Some(0) => "NONE".to_owned(),
            Some(abi) => format!("ABI {abi}"),
            None => unknown(),
        };
        cells[9] = match sandbox.namespaces.as_deref() {
            None => unknown(),
            Some([]) => "none".to_owned(),
            Some(list) => list.join(","),
        };
        let refused = sandbox
            .probes
            .values()
            .filter(|outcome| is_refused(outcome))
            .count();
        cells[10] = match sandbox.probes.len() {
            0 => "none".to_owned(),
            all if refused == all => format!("{all} refused"),
            all => format!("{} of {all} NOT REFUSED", all - refused),
        };
    }
    cells
}

fn is_refused(outcome: &Value) -> bool {
    outcome == "refused"
}

fn failed_probes(status: &Status) -> Vec<(String, String, String)> {
    let mut failed = Vec::new();
    for worker in &status.workers {
        for (probe, outcome) in worker.sandbox.iter().flat_map(|sandbox| &sandbox.probes) {
            if !is_refused(outcome) {
                let shown = outcome
                    .as_str()
                    .map_or_else(|| outcome.to_string(), str::to_owned);
                failed.push((
                    safe_line(&worker.role, 40),
                    safe_line(probe, 100),
                    safe_line(&shown, 200),
                ));
            }
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;
    use serde_json::json;

    fn shown(value: Value) -> String {
        let (mut screen, out, _) = screen(false, false);
        show(&serde_json::from_value(value).unwrap(), &mut screen).unwrap();
        out.text()
    }

    #[test]
    fn a_healthy_daemon() {
        let text = shown(json!({
            "ok": true, "version": "0.1.0", "degraded": [], "runs": {"working": 1, "waiting": 0, "more": 1},
            "workers": [{
                "role": "store", "pid": 41, "state": "serving", "restarts": 0, "protocol": 1, "rss_bytes": 3_145_728,
                "sandbox": {"seccomp": 2, "no_new_privs": true, "landlock_abi": 7, "uid": 961,
                    "namespaces": ["mnt", "net"], "probes": {"open:/etc/shadow": "refused", "socket": "refused"}}
            }, {
                "role": "mcp-server", "name": "everything", "pid": 50, "state": "serving", "restarts": 0,
                "rss_bytes": 10, "sandbox": null
            }]
        }));
        assert_eq!(
            text,
            "monod 0.1.0  healthy  1 at work, 0 waiting\n \
             ROLE                     PID  STATE    RESTARTS  RSS      UID  SECCOMP  NNP  LANDLOCK  NAMESPACES  PROBES\n \
             store                    41   serving  0         3.0 MiB  961  filter   yes  ABI 7     mnt,net     2 refused\n \
             mcp-server (everything)  50   serving  0         10 B     -    -        -    -         -           -\n"
        );
    }

    #[test]
    fn forbidden_calls_are_named_by_role() {
        let text = shown(json!({"ok": true, "violations": {
            "run": {"bpf": 1, "ptrace": 2, "x\u{1b}[2J": 3}, "store": {}}}));
        let line = "\nrun: ended by forbidden system calls: bpf 1, ptrace 2, x\\u{1b}[2J 3\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("store:"), "{text}");
    }

    #[test]
    fn a_confined_worker_has_everything_and_nothing_unknown_counts() {
        let good = json!({"seccomp": 2, "no_new_privs": true, "landlock_abi": 7, "uid": 961,
            "capabilities": 0, "namespaces": null, "probes": {"socket": "refused"}});
        let weakness = |sandbox: Value| {
            let worker = json!({"role": "run", "pid": 1, "state": "idle", "sandbox": sandbox});
            serde_json::from_value::<Worker>(worker).unwrap().weakness()
        };
        assert_eq!(weakness(good.clone()), None);
        assert!(weakness(Value::Null).is_some());
        for (field, bad) in [
            ("seccomp", json!(0)),
            ("no_new_privs", json!(false)),
            ("landlock_abi", json!(0)),
            ("uid", json!(0)),
            ("capabilities", json!(1)),
            ("probes", json!({"socket": "NOT refused: it worked"})),
        ] {
            let mut sandbox = good.clone();
            sandbox[field] = bad;
            assert!(weakness(sandbox.clone()).is_some(), "{field}");
            sandbox.as_object_mut().unwrap().remove(field);
            assert_eq!(weakness(sandbox).is_some(), field != "probes", "{field}");
        }
        assert_eq!(Worker::default().weakness(), None);
    }

    #[test]
    fn a_worker_of_before_a_reload_says_so() {
        let text = shown(json!({ "ok": true, "workers": [
            {"role": "store", "pid": 1, "state": "serving", "outdated": true},
            {"role": "egress", "pid": 2, "state": "serving"}]}));
        let row = |role: &str| text.lines().find(|line| line.contains(role)).unwrap();
        assert!(row("store").contains(" serving, outdated "), "{text}");
        assert!(!row("egress").contains("outdated"), "{text}");
    }

    #[test]
    fn a_daemon_that_is_to_end_says_so() {
        let text =
            shown(json!({ "ok": true, "version": "x", "stopping": true, "runs": {"working": 1} }));
        assert!(
            text.starts_with("monod x  healthy, stopping  1 at work"),
            "{text}"
        );
    }

    #[test]
    fn what_is_wrong_is_said_and_nothing_unknown_looks_good() {
        let text = shown(json!({
            "ok": false, "version": "x", "degraded": ["no user namespaces: sysctl …"],
            "workers": [
                {"role": "egress", "state": "parked", "restarts": 5, "last_line": "no key\u{1b}[2J"},
                {"role": "run", "pid": 1, "state": "idle", "sandbox": {}},
                {"role": "run", "pid": 2, "state": "idle", "sandbox": {"seccomp": 0, "no_new_privs": false,
                    "landlock_abi": 0, "uid": 0, "probes": {"a": "refused", "b": "NOT refused: opened"}}}
            ]
        }));
        assert!(
            text.starts_with(
                "monod x  DEGRADED  0 at work, 0 waiting\n  no user namespaces: sysctl …\n"
            ),
            "{text}"
        );
        assert!(text.contains(
            "egress is parked: no key\\u{1b}[2J\n  lift it with `monoctl worker unpark egress`"
        ));
        assert!(
            text.contains("?    ?        ?    ?         ?           none"),
            "{text}"
        );
        assert!(
            text.contains("0    NONE     NO   NONE      ?           1 of 2 NOT REFUSED"),
            "{text}"
        );
        assert!(text.contains("run: probe b: NOT refused: opened"));
        assert!(shown(json!({"ok": false})).contains("UNHEALTHY"));
        assert!(shown(json!({})).contains("UNHEALTHY"));
    }
}
