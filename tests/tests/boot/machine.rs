//! A machine of its own with a real systemd, and the package that is installed there.

use crate::ALWAYS_ON;
use mono_tests::daemon::programs;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// How long anything may take that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(120);
/// A daemon ends in less (its own bounds are 13 s), with room for a slow machine; after 30 s systemd would end
/// it, and say that this was no success.
const STOP_WITHIN: Duration = Duration::from_secs(40);

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

pub(crate) fn succeed(command: &mut Command) -> String {
    let out = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// When something of the package changed last.
fn newest(path: &Path) -> SystemTime {
    let own = fs::metadata(path).unwrap().modified().unwrap();
    if !path.is_dir() {
        return own;
    }
    let below = fs::read_dir(path)
        .unwrap()
        .map(|e| newest(&e.unwrap().path()));
    below.max().unwrap_or(own).max(own)
}

/// The package of the built programs; made once for all tests.
pub(crate) fn package() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    let _lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive)
        .map_err(|(_, e)| e)
        .unwrap();
    succeed(&mut Command::new(repository().join("tests/boot/need.sh")));
    let package = folder.join("mono.deb");
    let mut parts = vec![
        repository().join("packaging"),
        repository().join("docs/systemd.md"),
        repository().join("supervisor/monod/Cargo.toml"),
    ];
    for entry in fs::read_dir(programs()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("mono") && path.extension().is_none() && path.is_file() {
            parts.push(path);
        }
    }
    let changed = parts.iter().map(|path| newest(path)).max().unwrap();
    if package.exists() && newest(&package) > changed {
        return package;
    }
    let told = succeed(
        Command::new(env!("CARGO"))
            .args([
                "run",
                "--quiet",
                "--package",
                "xtask",
                "--",
                "package",
                "--debug",
            ])
            .arg("--programs")
            .arg(programs())
            .arg("--output")
            .arg(folder.join("new"))
            .current_dir(repository()),
    );
    fs::rename(told.lines().last().unwrap(), &package).unwrap();
    package
}

/// A running machine; gone with all its processes when dropped.
pub(crate) struct Machine {
    folder: TempDir,
    outer: Child,
    first: String,
}

impl Machine {
    /// Boots, with the package at `/mnt/mono.deb`.
    pub(crate) fn boot() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test boots a systemd in namespaces, which needs root: run it as root, or leave \
             it out by name (cargo nextest run --workspace -E 'not binary(boot)')"
        );
        let package = package();
        let folder = TempDir::with_prefix("mono-boot-").unwrap();
        fs::create_dir(folder.path().join("share")).unwrap();
        fs::copy(package, folder.path().join("share/mono.deb")).unwrap();
        fs::copy(
            repository().join("tests/boot/connect.sh"),
            folder.path().join("share/connect.sh"),
        )
        .unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        // It ends with this test, also when that is killed.
        let outer = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "unshare"])
            .args(["--mount", "--propagation", "private"])
            .arg(repository().join("tests/boot/machine.sh"))
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut machine = Self {
            folder,
            outer,
            first: String::new(),
        };
        machine.wait("PID 1", |machine| {
            if let Some(status) = machine.outer.try_wait().unwrap() {
                panic!("the machine ended with {status}:\n{}", machine.log());
            }
            machine.first =
                fs::read_to_string(machine.folder.path().join("pid")).unwrap_or_default();
            !machine.first.is_empty()
        });
        let mut state = String::new();
        machine.wait("boot", |machine| {
            let out = machine.run(&["systemctl", "is-system-running"]);
            state = String::from_utf8_lossy(&out.stdout).trim().to_owned();
            ["running", "degraded"].contains(&state.as_str())
        });
        assert_eq!(
            state,
            "running",
            "{}",
            machine.sh("systemctl --failed; journalctl -b")
        );
        machine
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn wait(&mut self, what: &str, mut wish: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !wish(self) {
            if Instant::now() > deadline {
                let journal = self.run(&["journalctl", "--no-pager", "-n", "60"]);
                panic!(
                    "not in time: {what}\n{}\n{}",
                    self.log(),
                    String::from_utf8_lossy(&journal.stdout)
                );
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--all", "--target", self.first.trim(), "--"])
            .args([
                "env",
                "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "LC_ALL=C.UTF-8",
                "DEBIAN_FRONTEND=noninteractive",
            ])
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a script that must succeed; returns what it printed.
    pub(crate) fn sh(&self, script: &str) -> String {
        succeed(&mut self.command(&["sh", "-euc", script]))
    }

    pub(crate) fn json(&self, script: &str) -> Value {
        serde_json::from_str(&self.sh(script)).unwrap()
    }

    pub(crate) fn show(&self, unit: &str, property: &str) -> String {
        self.sh(&format!("systemctl show -P {property} {unit}"))
            .trim()
            .to_owned()
    }

    /// The processes of a unit.
    pub(crate) fn processes(&self, unit: &str) -> Vec<String> {
        let group = format!("/sys/fs/cgroup/system.slice/{unit}");
        let found = self.sh(&format!(
            "[ ! -d {group} ] || find {group} -name cgroup.procs -exec cat {{}} +"
        ));
        found.lines().map(str::to_owned).collect()
    }

    /// Starts the unit, and tells that it came up with every worker confined.
    pub(crate) fn start(&self, unit: &str) {
        let out = self.run(&["systemctl", "start", unit]);
        assert!(
            out.status.success(),
            "{}",
            self.sh(&format!("journalctl --no-pager -u {unit} -n 60"))
        );
        assert_eq!(self.show(unit, "SubState"), "running");
        assert!(self.show(unit, "StatusText").contains("confined workers"));
    }

    /// `monoctl status`, which must be healthy: every worker of the service is confined.
    pub(crate) fn workers(&self) -> Vec<Value> {
        let status = self.json("monoctl status --json");
        assert_eq!(status["ok"], true, "{status}");
        assert_eq!(status["degraded"], serde_json::json!([]), "{status}");
        let workers = status["workers"].as_array().unwrap().clone();
        let serving: Vec<_> = workers
            .iter()
            .filter(|w| w["state"] != "starting")
            .cloned()
            .collect();
        for worker in &serving {
            let sandbox = &worker["sandbox"];
            assert_eq!(sandbox["seccomp"], 2, "{worker}");
            assert_eq!(sandbox["no_new_privs"], true, "{worker}");
            assert_eq!(sandbox["capabilities"], 0, "{worker}");
            assert!(sandbox["landlock_abi"].as_u64().unwrap() >= 6, "{worker}");
            let namespaces: Vec<_> = sandbox["namespaces"].as_array().unwrap().iter().collect();
            for kind in ["ipc", "mnt", "pid", "uts"] {
                assert!(namespaces.iter().any(|n| *n == kind), "{worker}");
            }
            let probes = sandbox["probes"].as_object().unwrap();
            assert!(
                !probes.is_empty() && probes.values().all(|p| p == "refused"),
                "{worker}"
            );
        }
        serving
    }

    /// A reload: the configuration is read again by the same supervisor.
    pub(crate) fn reload(&self, unit: &str) {
        let before = self.show(unit, "MainPID");
        self.sh(&format!("systemctl reload {unit}"));
        assert_eq!(self.show(unit, "MainPID"), before);
        assert_eq!(self.show(unit, "SubState"), "running");
    }

    /// A scripted turn: the demo model writes a file and publishes it. Returns its run.
    pub(crate) fn turn(&self) -> String {
        let events = self.sh("monoctl send --new --json demo");
        let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
        let last = &last["message"];
        assert_eq!(last["ok"], true, "{events}");
        let id = last["parts"][0]["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{last}"));
        let file = self.sh(&format!("monoctl artifacts get {id} -o -"));
        assert!(file.starts_with("step,what,by"), "{file}");
        last["run"].as_str().unwrap().to_owned()
    }

    /// Stops units and tells that in time no process of theirs is left.
    pub(crate) fn stop(&self, service: &str, units: &str) {
        let before = self.processes(service);
        assert!(before.len() > ALWAYS_ON.len(), "{before:?}");
        let begun = Instant::now();
        self.sh(&format!("systemctl stop {units}"));
        assert!(begun.elapsed() < STOP_WITHIN, "{:?}", begun.elapsed());
        assert_eq!(self.show(service, "Result"), "success");
        assert_eq!(self.processes(service), Vec::<String>::new());
        for pid in before {
            assert!(
                !self
                    .run(&["test", "-e", &format!("/proc/{pid}")])
                    .status
                    .success(),
                "{pid}"
            );
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.first.is_empty() {
            let journal = self.run(&["journalctl", "--no-pager", "-n", "150"]);
            eprintln!(
                "--- journal ---\n{}",
                String::from_utf8_lossy(&journal.stdout)
            );
        }
        // Its script ends the machine and takes its control group down.
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.outer.id().cast_signed()),
            nix::sys::signal::Signal::SIGTERM,
        );
        let _ = self.outer.wait();
        let log = self.log();
        if !log.is_empty() {
            eprintln!("--- machine ---\n{log}");
        }
    }
}
