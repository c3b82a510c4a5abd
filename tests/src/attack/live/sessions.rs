//! Daemons with hostile workers: started, listened to, compared with how they were.

use crate::attack::live::control::Attack;
use crate::attack::live::worker::{MARK, TARGET};
use crate::attack::live::{Outcomes, ROLES, bridge, channel, secrets};
use crate::attack::outcome::Outcome;
use crate::daemon::{Daemon, Setup, wait_for};
use crate::model::Model;
use crate::processes::below;
use crate::work::let_claim;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The programs that a daemon starts by way of its launcher.
const WORKERS: [&str; 8] = [
    "mono-store",
    "mono-artifact",
    "mono-egress",
    "mono-app-bridge",
    "mono-channel",
    "mono-continuation",
    "mono-metrics",
    "mono-run",
];
/// An outcome comes within this, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(90);
/// Lines of a daemon's log that are shown with a failure.
const SHOWN: usize = 40;
/// How the supervisor names the forbidden call of an attack.
const FORBIDDEN: &str = "ended by a forbidden system call: ptrace";
/// A daemon with its workers has no more processes than this.
const FEW: usize = 16;

/// A folder of programs with the hostile one in place of some.
pub(super) fn libexec(programs: &Path, hostile: &[&str]) -> Result<TempDir> {
    let folder = TempDir::with_prefix("mono-libexec-")?;
    for name in WORKERS.into_iter().chain(["mono-launch"]) {
        let of = if hostile.contains(&name) {
            "attack-worker"
        } else {
            name
        };
        symlink(programs.join(of), folder.path().join(name))?;
    }
    Ok(folder)
}

pub(super) fn setup(libexec: &TempDir, attack: &str) -> Result<Setup> {
    let folder = libexec.path().to_string_lossy().into_owned();
    Ok(Setup::new()?
        .argument("--libexec")
        .argument(&folder)
        .environment("MONO_LOG", &format!("info,{TARGET}{attack}=info")))
}

/// Has the daemon start what it doesn't without being told.
fn with_every_role(setup: &mut Setup) -> Result<()> {
    for key in ["console", "webhook", "metrics"] {
        setup.config[key] = json!({ "enabled": true, "port": 0 });
    }
    let_claim(setup, &[])
}

/// The lines of a worker that the supervisor has logged, with their levels.
fn lines<'a>(log: &'a str, role: &str) -> Vec<&'a str> {
    let wanted = [format!("role={role}"), format!("role=\"{role}\"")];
    let is_of = |line: &&str| {
        wanted.iter().any(|wanted| {
            let mut after = line.split(wanted.as_str()).skip(1);
            after.any(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    };
    // The last one may not be there in full.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter(is_of).collect()
}

/// What a worker has reported of an attack: `over NAME OUTCOME`.
fn over<'a>(lines: &[&'a str], name: &str) -> Option<&'a str> {
    let wanted = format!("{MARK} over {name} ");
    lines.iter().find_map(|line| {
        let (_, rest) = line.split_once(&wanted)?;
        Some(rest)
    })
}

pub(super) fn outcome(words: Option<&str>) -> Outcome {
    let word = words
        .and_then(|words| words.split(' ').next())
        .unwrap_or("");
    word.parse()
        .unwrap_or_else(|_| Outcome::Odd(word.to_owned()))
}

pub(super) fn until<T>(daemon: &Daemon, what: &str, wish: impl Fn(&str) -> Option<T>) -> Result<T> {
    until_in(&|| daemon.log(), what, wish)
}

fn until_in<T>(
    log: &dyn Fn() -> String,
    what: &str,
    wish: impl Fn(&str) -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let looked = Instant::now();
        if let Some(found) = wish(&log()) {
            return Ok(found);
        }
        if Instant::now() > deadline {
            let log = log();
            let last = log.lines().rev().take(SHOWN).collect::<Vec<_>>();
            let last: Vec<_> = last.into_iter().rev().collect();
            bail!("not in time: {what}\n{}", last.join("\n"));
        }
        // Who looks at a log of many megabytes leaves most of the time to those who write it.
        std::thread::sleep(looked.elapsed().max(Duration::from_millis(10)));
    }
}

/// One attack from every worker at once.
pub(super) fn control(programs: &Path, attack: &Attack) -> Result<Outcomes> {
    let libexec = libexec(programs, &WORKERS)?;
    let mut setup = setup(&libexec, attack.name)?;
    with_every_role(&mut setup)?;
    let mut daemon = setup.launch()?;
    let pid = daemon.pid();
    let mut all = Outcomes::new();
    for role in ROLES {
        let came = until(&daemon, &format!("{} of {role}", attack.name), |log| {
            let lines = lines(log, role);
            if let Some(words) = over(&lines, attack.name) {
                return Some(outcome(Some(words)));
            }
            // Ended before it could say so: its reason, then its end.
            let reason = lines.iter().any(|line| line.contains("ERROR"));
            let end = lines
                .iter()
                .any(|line| line.contains("WARN") && line.contains("SIGKILL"));
            let quiet = attack.name == "packet-of-nothing";
            // Said by who ended it, and again of the process that ended.
            let forbidden = lines.iter().filter(|line| line.contains(FORBIDDEN)).count();
            if forbidden >= 2 {
                return (attack.name == "forbidden-call").then_some(Outcome::Ended);
            }
            (end && (reason || quiet)).then_some(Outcome::Ended)
        })?;
        let made = || BTreeMap::from([(attack.name.to_owned(), came.clone())]);
        all.insert(role.to_owned(), made());
    }
    // Whatever its workers do, it answers its operator.
    daemon.wait_until("answering", |status| status["workers"].is_array())?;
    anyhow::ensure!(daemon.pid() == pid, "the daemon is another one");
    daemon.kill_daemon()?;
    Ok(all)
}

fn listed(daemon: &Daemon, role: &str, names: &[&str]) -> Result<BTreeMap<String, Outcome>> {
    let mut all = BTreeMap::new();
    for name in names {
        let words = until(daemon, name, |log| {
            over(&lines(log, role), name).map(|words| outcome(Some(words)))
        })?;
        all.insert((*name).to_owned(), words);
    }
    Ok(all)
}

/// A hostile channel worker.
pub(super) fn channel(programs: &Path) -> Result<Outcomes> {
    let libexec = libexec(programs, &["mono-channel"])?;
    let mut setup = setup(&libexec, "channel-by-list")?;
    setup.config["concurrency"] = json!({ "maxConcurrentRuns": 1, "maxPendingRuns": 8 });
    let mut daemon = setup.start()?;
    let role = "channel-openai";
    let mut found = listed(&daemon, role, &channel::NAMES)?;
    // The operator's own turn finds its place when the queue is empty again.
    let deadline = Instant::now() + PATIENCE;
    let answered = loop {
        let sent = daemon.send("terminal:after", "hello")?;
        if sent.code == 0 || Instant::now() > deadline {
            break sent.code == 0;
        }
    };
    let last = found.get_mut(channel::NAMES[7]).context("no flood")?;
    if !answered {
        *last = Outcome::Odd("the_queue_stays_full".into());
    }
    daemon.kill_daemon()?;
    Ok(Outcomes::from([(role.to_owned(), found)]))
}

/// A hostile app-bridge.
pub(super) fn bridge(programs: &Path) -> Result<Outcomes> {
    let libexec = libexec(programs, &["mono-app-bridge"])?;
    let setup = setup(&libexec, "bridge-by-list")?;
    let setup = setup.server(bridge::SERVER, "/bin/cat".as_ref(), &[], &[]);
    let mut daemon = setup.launch()?;
    let role = "app-bridge";
    let mut found = listed(&daemon, role, &bridge::NAMES[..3])?;
    found.extend(listed(&daemon, role, &bridge::NAMES[3..])?);
    // It ends, and with it all that it had started. The next one may have started as many meanwhile.
    let started = below(daemon.pid());
    anyhow::ensure!(started.len() > FEW, "no servers were started");
    daemon.kill(daemon.worker(role)?)?;
    let deadline = Instant::now() + PATIENCE;
    let left = || started.iter().filter(|process| process.is_alive()).count();
    while left() > FEW && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    if left() > FEW {
        found.insert(bridge::NAMES[3].to_owned(), Outcome::Done);
    }
    daemon.wait_until("answering", |status| status["workers"].is_array())?;
    daemon.kill_daemon()?;
    Ok(Outcomes::from([(role.to_owned(), found)]))
}

/// Everything that can be read in a daemon that holds secrets, by a server and by every worker.
pub(super) fn search(programs: &Path) -> Result<Outcomes> {
    let canaries = secrets::canaries();
    let model = Model::start()?;
    let libexec = libexec(programs, &WORKERS)?;
    let mut setup = Setup::new()?.model(model.address(), "openai-chat");
    let folder = setup.folder().to_owned();
    fs::write(folder.join("model.key"), &canaries.key)?;
    fs::set_permissions(folder.join("model.key"), PermissionsExt::from_mode(0o600))?;
    setup.config["providers"]["test"]["apiKeyFile"] = json!("model.key");
    with_every_role(&mut setup)?;
    // Somewhere in the configuration, where no worker has a use for it.
    let unused = format!("https://{}.invalid/v1", canaries.configuration);
    setup.config["providers"]["unused"] = json!({ "baseUrl": unused, "wire": "openai-chat" });
    let report = setup.workspace().join("found.txt");
    let program = programs.join("attack-worker");
    let place = report.to_string_lossy().into_owned();
    let mut daemon = setup
        .server("hostile", &program, &["search", &place], &[&program])
        .environment("MONO_SECRET", &canaries.environment)
        .start()?;
    // The server is started for the turn, and the turn is kept.
    let sent = daemon.send(
        "terminal:secret",
        &format!("keep {}", canaries.conversation),
    )?;
    anyhow::ensure!(sent.code == 0, "not answered: {}", sent.finish);
    wait_for("the server's report", || {
        fs::read_to_string(&report).is_ok_and(|text| text.ends_with('.'))
    })?;
    let mut all = Outcomes::from([(
        "mcp-server".to_owned(),
        as_outcomes(&fs::read_to_string(&report)?),
    )]);
    daemon.stop()?;

    // The same daemon with all its secrets, and not one honest worker.
    let log = folder.join("hostile.log");
    let mut child = Command::new(programs.join("monod"))
        .arg("--config")
        .arg(folder.join("mono-agent.config.json"))
        .arg("--socket")
        .arg(folder.join("monod.sock"))
        .arg("--libexec")
        .arg(libexec.path())
        .env("MONO_LOG", format!("info,{TARGET}search=info"))
        .env("MONO_SECRET", &canaries.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log)?)
        .spawn()?;
    let read = || fs::read_to_string(&log).unwrap_or_default();
    let mut found = Ok(());
    for role in ROLES {
        let words = until_in(&read, &format!("the search of {role}"), |log| {
            let wanted = format!("{MARK} found ");
            let said = |line: &&str| Some(line.split_once(&wanted)?.1.to_owned());
            lines(log, role).iter().find_map(said)
        });
        match words {
            Ok(words) => {
                all.insert(role.to_owned(), as_outcomes(&format!("found {words}")));
            }
            Err(e) => found = Err(e),
        }
    }
    child.kill()?;
    child.wait()?;
    found.map(|()| all)
}

/// `found KEY CONVERSATION.` as outcomes of the four searches.
fn as_outcomes(words: &str) -> BTreeMap<String, Outcome> {
    let found = words.split_once("found ").map_or("", |(_, rest)| rest);
    let found = found.split('.').next().unwrap_or("");
    secrets::SECRETS
        .into_iter()
        .map(|what| {
            let seen = found.split(' ').any(|word| word == what);
            let outcome = if seen {
                Outcome::Done
            } else {
                Outcome::Nothing
            };
            (secrets::search_name(what), outcome)
        })
        .collect()
}
