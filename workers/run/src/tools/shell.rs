//! `Bash` and `Exec`: commands through the process runner.

use super::path::{MAX_PATH, Places};
use super::{ToolOutput, ToolState};
use crate::process::output::{MAX_CAPTURED, MAX_SHOWN_CHARS, excerpt};
use crate::process::{DEFAULT_TIMEOUT, Ending, Finished, MAX_TIMEOUT, Runner, Spec};
use serde::Deserialize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest command line or argument list in bytes; the kernel takes 128 KiB in one string.
const MAX_COMMAND: usize = 128 * 1024 - 1;
/// Arguments of `Exec`.
const MAX_ARGS: usize = 1024;
/// A legacy `timeout` up to this many is seconds, above it milliseconds (facts 4.1).
const LEGACY_SECONDS: u64 = 600;

/// What the model is told about `Bash`.
pub const BASH_DESCRIPTION: &str = "Run a command with bash in the sandbox: the workspace and the \
scratch directory ($TMPDIR) are writable, the system is read-only, there is no network and no input. \
120 s unless timeout_ms says otherwise (at most 600000). Up to 20,000 characters of output are shown, \
its beginning and its end. Processes that the command leaves behind are ended with it; background: true \
starts one that runs on while you work, at the longest until this turn ends.";
/// What the model is told about `Exec`.
pub const EXEC_DESCRIPTION: &str = "Run a program with arguments, without a shell: nothing is expanded or \
interpreted. Otherwise the same as Bash.";

/// What both tools take.
#[derive(Debug, Deserialize)]
struct Common {
    workdir: Option<String>,
    timeout_ms: Option<u64>,
    timeout: Option<u64>,
    max_output_chars: Option<usize>,
    #[serde(default)]
    background: bool,
}

/// Arguments of `Bash`. Its `description` is for people who read along.
#[derive(Debug, Deserialize)]
pub struct BashArgs {
    command: String,
    #[serde(flatten)]
    common: Common,
}

/// Arguments of `Exec`.
#[derive(Debug, Deserialize)]
pub struct ExecArgs {
    executable: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(flatten)]
    common: Common,
}

fn with_common(mut properties: Value, required: &[&str]) -> Value {
    let max_ms = u64::try_from(MAX_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let common = json!({
        "workdir": { "type": "string", "minLength": 1, "maxLength": MAX_PATH, "description": "Directory to run in; default: the workspace." },
        "timeout_ms": { "type": "integer", "minimum": 1, "maximum": max_ms },
        "max_output_chars": { "type": "integer", "minimum": 1, "maximum": MAX_SHOWN_CHARS },
        "background": { "type": "boolean", "description": "Start it and go on; its output goes to a file." }
    });
    if let (Some(into), Value::Object(from)) = (properties.as_object_mut(), common) {
        into.extend(from);
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// JSON Schema of [`BashArgs`].
#[must_use]
pub fn bash_schema() -> Value {
    let max_ms = u64::try_from(MAX_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    with_common(
        json!({
            "command": { "type": "string", "minLength": 1, "maxLength": MAX_COMMAND },
            "description": { "type": "string", "maxLength": 1000, "description": "What the command does, in a few words." },
            "timeout": { "type": "integer", "minimum": 1, "maximum": max_ms, "description": "Deprecated: seconds up to 600, milliseconds above. Use timeout_ms." }
        }),
        &["command"],
    )
}

/// JSON Schema of [`ExecArgs`].
#[must_use]
pub fn exec_schema() -> Value {
    with_common(
        json!({
            "executable": { "type": "string", "minLength": 1, "maxLength": MAX_PATH, "description": "A name in PATH, or a path." },
            "args": { "type": "array", "maxItems": MAX_ARGS, "items": { "type": "string", "maxLength": MAX_COMMAND } }
        }),
        &["executable"],
    )
}

/// Runs a shell command.
///
/// # Errors
/// A sentence for the model when it can't be started.
pub async fn bash(
    places: &Places,
    runner: &Runner,
    cancel: &CancellationToken,
    args: BashArgs,
) -> Result<ToolOutput, String> {
    refuse_nul("command", &args.command)?;
    // `--` keeps a command that begins with a dash from being taken for an option.
    let argv = ["--noprofile", "--norc", "-c", "--", &args.command];
    let argv = argv.iter().map(OsString::from).collect();
    run(places, runner, cancel, "bash".into(), argv, args.common).await
}

/// Runs a program.
///
/// # Errors
/// A sentence for the model when it can't be started.
pub async fn exec(
    places: &Places,
    runner: &Runner,
    cancel: &CancellationToken,
    args: ExecArgs,
) -> Result<ToolOutput, String> {
    refuse_nul("executable", &args.executable)?;
    for arg in &args.args {
        refuse_nul("args", arg)?;
    }
    // A name is looked up in PATH, a path counts from the workspace, as everywhere else.
    let program = if args.executable.contains('/') {
        places
            .resolve("executable", &args.executable)
            .map_err(|e| e.to_string())?
            .into()
    } else {
        OsString::from(&args.executable)
    };
    let argv = args.args.iter().map(OsString::from).collect();
    run(places, runner, cancel, program, argv, args.common).await
}

fn refuse_nul(name: &str, text: &str) -> Result<(), String> {
    if text.contains('\0') {
        Err(format!("{name} can't hold a NUL character."))
    } else {
        Ok(())
    }
}

fn limit(common: &Common) -> Result<Option<Duration>, String> {
    match (common.timeout_ms, common.timeout) {
        (Some(_), Some(_)) => Err("Give timeout_ms or timeout, not both.".to_owned()),
        (Some(ms), None) => Ok(Some(Duration::from_millis(ms))),
        (None, Some(seconds)) if seconds <= LEGACY_SECONDS => {
            Ok(Some(Duration::from_secs(seconds)))
        }
        (None, Some(ms)) => Ok(Some(Duration::from_millis(ms))),
        (None, None) => Ok(None),
    }
}

async fn run(
    places: &Places,
    runner: &Runner,
    cancel: &CancellationToken,
    program: OsString,
    args: Vec<OsString>,
    common: Common,
) -> Result<ToolOutput, String> {
    let limit = limit(&common)?;
    let workdir = places
        .resolve("workdir", common.workdir.as_deref().unwrap_or("."))
        .map_err(|e| e.to_string())?;
    if !workdir.is_dir() {
        return Err(format!(
            "workdir {} is not a directory.",
            places.show(&workdir)
        ));
    }
    let spec = Spec {
        program,
        args,
        workdir,
    };
    if common.background {
        let started = runner
            .start_in_background(&spec, limit)
            .map_err(|e| e.to_string())?;
        return Ok(ToolOutput::success(format!(
            "Started in the background as number {} (process group {}). Its output goes to {}; the last line \
             there says how it ended. End it with: kill -- -{}",
            started.id,
            started.group,
            started.output.display(),
            started.group
        )));
    }
    let limit = limit.unwrap_or(DEFAULT_TIMEOUT);
    let finished = runner
        .run(&spec, limit, cancel)
        .await
        .map_err(|e| e.to_string())?;
    let shown = common.max_output_chars.unwrap_or(MAX_SHOWN_CHARS);
    Ok(report(runner, finished, limit, shown))
}

fn report(runner: &Runner, finished: Finished, limit: Duration, max_chars: usize) -> ToolOutput {
    let text = String::from_utf8_lossy(&finished.output);
    let cut = excerpt(&text, max_chars);
    let mut out = cut.head;
    if cut.omitted > 0 {
        let kept = keep(runner, &finished.output);
        let _ = write!(
            out,
            "\n[… {} characters left out{kept} …]\n{}",
            cut.omitted, cut.tail
        );
    }
    let mut note = |line: String| {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&line);
    };
    let state = match finished.ending {
        Ending::Exited(0) => ToolState::Success,
        Ending::Exited(code) => {
            note(format!("[exit code {code}]"));
            ToolState::ExitNonzero
        }
        Ending::Signalled(signal) => {
            note(format!("[ended by signal {signal}]"));
            ToolState::Signal
        }
        Ending::TimedOut => {
            note(format!(
                "[ended after {} ms: its time was over]",
                limit.as_millis()
            ));
            ToolState::Timeout
        }
        Ending::Flooded => {
            note(format!(
                "[ended: it printed more than {MAX_CAPTURED} bytes; send its output to a file]"
            ));
            ToolState::Error
        }
        Ending::Cancelled => {
            note("[ended: the run was cancelled]".to_owned());
            ToolState::Cancelled
        }
    };
    if finished.had_leftovers {
        note(
            "[processes that it left running were ended; use background: true to keep one]"
                .to_owned(),
        );
    }
    if finished.unconfirmed {
        note(
            "[some of its processes could not be seen to end; they end with this turn]".to_owned(),
        );
    }
    if out.is_empty() {
        out.push_str("[no output]");
    }
    ToolOutput {
        state,
        ..ToolOutput::success(out)
    }
}

/// Puts the whole output where the model can read on. Without room for it, the excerpt stands alone.
fn keep(runner: &Runner, output: &[u8]) -> String {
    let path = runner
        .scratch()
        .join(format!("output-{}.txt", runner.next_id()));
    match std::fs::write(&path, output) {
        Ok(()) => format!("; all of it is in {}", path.display()),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(args: Value) -> Result<Option<Duration>, String> {
        let mut args = args;
        args["command"] = json!("true");
        let args: BashArgs = super::super::args::check(&bash_schema(), args)?;
        limit(&args.common)
    }

    #[test]
    fn a_timeout_is_milliseconds_and_the_legacy_one_seconds_up_to_600() {
        let table = [
            (json!({}), None),
            (
                json!({"timeout_ms": 1500}),
                Some(Duration::from_millis(1500)),
            ),
            (
                json!({"timeout_ms": 600_000}),
                Some(Duration::from_secs(600)),
            ),
            (json!({"timeout": 600}), Some(Duration::from_secs(600))),
            (json!({"timeout": 601}), Some(Duration::from_millis(601))),
        ];
        for (args, expected) in table {
            assert_eq!(common(args.clone()), Ok(expected), "{args}");
        }
        for bad in [
            json!({"timeout_ms": 600_001}),
            json!({"timeout_ms": 0}),
            json!({"timeout": 1, "timeout_ms": 1}),
        ] {
            assert!(common(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_and_misplaced_arguments_are_refused() {
        assert!(common(json!({"shell": "zsh"})).is_err_and(|told| told.contains("shell")));
        let exec = super::super::args::check::<ExecArgs>(
            &exec_schema(),
            json!({"executable": "x", "timeout": 1}),
        );
        assert!(exec.is_err_and(|told| told.contains("timeout")));
        assert!(common(json!({"max_output_chars": MAX_SHOWN_CHARS + 1})).is_err());
        assert!(common(json!({"max_output_chars": MAX_SHOWN_CHARS})).is_ok());
        assert!(refuse_nul("command", "a\0b").is_err());
    }
}
