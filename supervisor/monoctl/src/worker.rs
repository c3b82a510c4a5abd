//! `monoctl worker`: the workers, one role at a time.

use crate::cli::Worker as Command;
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::status::{Status, Worker};
use crate::table::Rows;
use crate::terminal::{safe_line, size};
use ipc_proto::admin::Ask;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a new worker may take until it serves: the daemon itself waits 20 s for its `Ready`.
pub(crate) const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) async fn run(
    socket: Option<&Path>,
    command: Command,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    match command {
        Command::List => list(&daemon, screen).await,
        Command::Show { role } => show(&daemon, &role, screen).await,
        Command::Restart { role } => restart(&daemon, &role, screen).await,
        Command::Unpark { role } => {
            let ask = Ask::Unpark { role: role.clone() };
            let words = format!("{role} may start again; see `monoctl status`");
            order(&daemon, &ask, &words, screen).await
        }
        Command::Drain { role } => {
            let ask = Ask::Drain { role: role.clone() };
            let words = format!(
                "{role} finishes what it does and then stays parked; \
                 `monoctl worker unpark {role}` starts it again"
            );
            order(&daemon, &ask, &words, screen).await
        }
    }
}

async fn order(
    daemon: &Daemon,
    ask: &Ask,
    words: &str,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let (value, _) = daemon.ask::<Value>(ask, &[]).await?;
    if screen.is_json() {
        screen.json(&value)?;
    } else {
        screen.line(words)?;
    }
    Ok(0)
}

async fn list(daemon: &Daemon, screen: &mut Screen) -> Result<u8, CtlError> {
    let (status, value) = Status::ask(daemon).await?;
    if screen.is_json() {
        screen.json(&json!({ "workers": value.get("workers") }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&[
        "ROLE",
        "PID",
        "STATE",
        "RESTARTS",
        "MEMORY",
        "CONFINED",
        "LAST LINE",
    ]);
    for worker in &status.workers {
        rows.push([
            &worker.title(),
            &pid(worker),
            &worker.standing(),
            &worker.restarts.to_string(),
            &size(worker.rss_bytes),
            confined(worker),
            &worker.last_line,
        ]);
    }
    screen.line(&rows.text())?;
    Ok(0)
}

fn confined(worker: &Worker) -> &'static str {
    match (worker.pid, worker.weakness()) {
        (None, _) => "-",
        (Some(_), None) => "yes",
        (Some(_), Some(_)) => "NO",
    }
}

fn pid(worker: &Worker) -> String {
    worker
        .pid
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

async fn show(daemon: &Daemon, role: &str, screen: &mut Screen) -> Result<u8, CtlError> {
    let (status, value) = Status::ask(daemon).await?;
    let found: Vec<_> = status.of(role).collect();
    if found.is_empty() {
        return Err(none_of(role));
    }
    if screen.is_json() {
        let mut shown = json!({ "workers": of_role(&value, role) });
        if let Some(calls) = value["violations"].get(role) {
            shown["violations"] = calls.clone();
        }
        screen.json(&shown)?;
        return Ok(0);
    }
    for (index, worker) in found.into_iter().enumerate() {
        if index > 0 {
            screen.line("")?;
        }
        for (name, text) in facts(worker) {
            screen.line(&format!("{name:<13}{text}"))?;
        }
    }
    if let Some(calls) = status.forbidden(role) {
        screen.line(&format!(
            "\nended by forbidden system calls since the daemon started: {calls}"
        ))?;
    }
    Ok(0)
}

fn none_of(role: &str) -> CtlError {
    CtlError::Refused {
        code: "not_found".to_owned(),
        message: format!("no worker has the role {role} now; see `monoctl worker list`"),
    }
}

/// The workers of a role as the daemon sent them.
pub(crate) fn of_role<'a>(status: &'a Value, role: &str) -> Vec<&'a Value> {
    let all = status.get("workers").and_then(Value::as_array);
    let all = all.into_iter().flatten();
    all.filter(|worker| worker["role"] == role).collect()
}

/// All that is known of a worker, by name.
pub(crate) fn facts(worker: &Worker) -> Vec<(String, String)> {
    let fact = |name: &str, value: &str| (safe_line(name, 60), safe_line(value, 400));
    let unknown = || "?".to_owned();
    let mut facts = vec![
        fact("role", &worker.title()),
        fact("pid", &pid(worker)),
        fact("state", &worker.standing()),
        fact("restarts", &worker.restarts.to_string()),
        fact("memory", &size(worker.rss_bytes)),
    ];
    if let Some(used) = &worker.memory {
        let bytes = used.bytes.map_or_else(unknown, size);
        let text = format!("{bytes} of {}", size(used.limit_bytes));
        facts.push(fact("memory with all below it", &text));
    }
    if let Some(version) = worker.protocol {
        facts.push(fact("protocol", &version.to_string()));
    }
    if !worker.last_line.is_empty() {
        facts.push(fact("last line", &worker.last_line));
    }
    if worker.pid.is_some() {
        let confined = worker.weakness();
        let confined = confined.map_or_else(|| "yes".to_owned(), |why| format!("NO: {why}"));
        facts.push(fact("confined", &confined));
    }
    let Some(sandbox) = &worker.sandbox else {
        return facts;
    };
    let or_unknown = |value: Option<String>| value.unwrap_or_else(unknown);
    let filters = sandbox
        .seccomp_filters
        .map_or_else(unknown, |n| n.to_string());
    let seccomp = match sandbox.seccomp {
        Some(2) => format!("filter, {filters} stacked"),
        Some(1) => "strict".to_owned(),
        Some(_) => "NONE".to_owned(),
        None => unknown(),
    };
    let namespaces = sandbox.namespaces.as_deref().map(|list| match list {
        [] => "none of its own".to_owned(),
        list => list.join(" "),
    });
    facts.extend([
        fact("user", &or_unknown(sandbox.uid.map(|uid| uid.to_string()))),
        fact(
            "capabilities",
            &or_unknown(sandbox.capabilities.map(|bits| match bits {
                0 => "none".to_owned(),
                bits => format!("{bits:#x}"),
            })),
        ),
        fact(
            "no_new_privs",
            &or_unknown(sandbox.no_new_privs.map(|on| {
                let word = if on { "yes" } else { "NO" };
                word.to_owned()
            })),
        ),
        fact("seccomp", &seccomp),
        fact(
            "Landlock",
            &or_unknown(sandbox.landlock_abi.map(|abi| format!("ABI {abi}"))),
        ),
        fact("namespaces", &or_unknown(namespaces)),
    ]);
    for (probe, outcome) in &sandbox.probes {
        let outcome = outcome.as_str().unwrap_or("?");
        facts.push(fact("probe", &format!("{probe}: {outcome}")));
    }
    facts
}

/// What became of a role whose worker is being replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    /// It serves.
    Serves(i32),
    /// The daemon gave up, and this was the last line.
    Parked(String),
    /// The new one has ended before it served; the old one still does.
    Ended,
    /// The time is over.
    Late,
}

/// The process that serves a role.
pub(crate) fn serving(status: &Status, role: &str) -> Option<i32> {
    let mut serving = status.of(role).filter(|w| w.state == "serving");
    serving.find_map(|worker| worker.pid)
}

/// What became of it, if that can be told already.
fn decided(status: &Status, role: &str, old: Option<i32>) -> Option<Successor> {
    let alone = status.of(role).count() == 1;
    match serving(status, role) {
        Some(pid) if Some(pid) != old => return Some(Successor::Serves(pid)),
        // The daemon has started the new one before it answered.
        Some(_) if alone => return Some(Successor::Ended),
        _ => {}
    }
    // A role that was given up may have a successor on its way, beside its empty place.
    let parked = status.of(role).find(|w| w.state == "parked" && alone)?;
    Some(Successor::Parked(safe_line(&parked.last_line, 400)))
}

/// Waits until another process than `old` serves a role.
pub(crate) async fn successor(
    daemon: &Daemon,
    role: &str,
    old: Option<i32>,
    within: Duration,
) -> Result<Successor, CtlError> {
    let deadline = Instant::now() + within;
    loop {
        let (status, _) = Status::ask(daemon).await?;
        if let Some(become_of_it) = decided(&status, role, old) {
            return Ok(become_of_it);
        }
        if Instant::now() > deadline {
            return Ok(Successor::Late);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn restart(daemon: &Daemon, role: &str, screen: &mut Screen) -> Result<u8, CtlError> {
    let (before, _) = Status::ask(daemon).await?;
    let old = serving(&before, role);
    let ask = Ask::Restart {
        role: role.to_owned(),
    };
    daemon.ask::<Value>(&ask, &[]).await?;
    let outcome = successor(daemon, role, old, SERVES_WITHIN).await?;
    let was = old.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
    let (pid, words) = match &outcome {
        Successor::Serves(pid) => (
            Some(*pid),
            format!("{role} serves again: process {pid} in place of {was}"),
        ),
        Successor::Parked(last) => (None, format!("{role} is parked: {last}")),
        Successor::Ended | Successor::Late => (
            None,
            format!("{role} doesn't serve yet; see `monoctl logs {role}`"),
        ),
    };
    if screen.is_json() {
        screen.json(&json!({ "ok": pid.is_some(), "role": role, "pid": pid, "replaced": old }))?;
    } else if pid.is_some() {
        screen.line(&words)?;
    } else {
        screen.aside(&format!("monoctl: {words}"))?;
    }
    Ok(u8::from(pid.is_none()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Successor::{Ended, Parked, Serves};
    use super::*;

    fn text(worker: Value) -> String {
        let worker: Worker = serde_json::from_value(worker).unwrap();
        let facts = facts(&worker).into_iter();
        facts
            .map(|(name, text)| format!("{name}={text}\n"))
            .collect()
    }

    #[test]
    fn a_role_that_was_given_up_is_not_over_while_its_successor_starts() {
        let status = |workers: Vec<(&str, Option<i32>)>| -> Status {
            let workers: Vec<_> = (workers.into_iter())
                .map(|(state, pid)| json!({ "role": "egress", "state": state, "pid": pid, "last_line": "no key" }))
                .collect();
            serde_json::from_value(json!({ "workers": workers })).unwrap()
        };
        let parked = ("parked", None);
        for (workers, old, expected) in [
            (vec![parked], None, Some(Parked("no key".into()))),
            (vec![parked, ("starting", Some(2))], None, None),
            (vec![("serving", Some(2))], None, Some(Serves(2))),
            (
                vec![("serving", Some(1)), ("starting", Some(2))],
                Some(1),
                None,
            ),
            (
                vec![("draining", Some(1)), ("serving", Some(2))],
                Some(1),
                Some(Serves(2)),
            ),
            (vec![("serving", Some(1))], Some(1), Some(Ended)),
            (vec![("waiting", None)], Some(1), None),
        ] {
            assert_eq!(
                decided(&status(workers.clone()), "egress", old),
                expected,
                "{workers:?}"
            );
        }
    }

    #[test]
    fn a_workers_facts_are_complete_and_safe() {
        let text = text(json!({
            "role": "mcp-server", "name": "every\u{1b}thing", "pid": 7, "state": "serving", "restarts": 1,
            "protocol": 1, "rss_bytes": 2048, "memory": {"bytes": 4096, "limit_bytes": 4_294_967_296_u64}, "last_line": "a\nb",
            "sandbox": {"seccomp": 2, "seccomp_filters": 2, "no_new_privs": true, "landlock_abi": 7,
                "uid": 61_128, "capabilities": 0, "namespaces": ["mnt", "net"],
                "probes": {"socket": "refused"}}
        }));
        assert_eq!(
            text,
            "role=mcp-server (every\\u{1b}thing)\npid=7\nstate=serving\nrestarts=1\nmemory=2.0 KiB\n\
             memory with all below it=4.0 KiB of 4.0 GiB\nprotocol=1\nlast line=a b\nconfined=yes\nuser=61128\ncapabilities=none\nno_new_privs=yes\n\
             seccomp=filter, 2 stacked\nLandlock=ABI 7\nnamespaces=mnt net\nprobe=socket: refused\n"
        );
    }

    #[test]
    fn what_is_not_known_is_not_shown_as_good() {
        let text = text(json!({"role": "run", "pid": 7, "state": "idle", "sandbox": {}}));
        assert!(
            text.contains("confined=NO: no system-call filter"),
            "{text}"
        );
        for name in [
            "user",
            "capabilities",
            "no_new_privs",
            "seccomp",
            "Landlock",
            "namespaces",
        ] {
            assert!(text.contains(&format!("{name}=?\n")), "{name}: {text}");
        }
    }
}
