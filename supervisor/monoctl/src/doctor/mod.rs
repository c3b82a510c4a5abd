//! `monoctl doctor`: everything that the daemon needs, and what to do about what is missing.
//!
//! Looks and changes nothing. What can be judged without the machine is judged by pure functions.

mod daemon;
mod machine;
mod place;

use crate::error::CtlError;
use crate::screen::{Colour, Screen};
use crate::terminal::safe;
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it must be.
    Ok,
    /// Worth knowing; nothing depends on it.
    Info,
    /// The daemon can't start, or can't protect, until this is set right.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// A fixed word for scripts.
    pub(crate) check: &'static str,
    pub(crate) state: State,
    /// What was found.
    pub(crate) detail: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Ok,
            detail: detail.into(),
            remedy: None,
        }
    }

    pub(crate) fn info(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            state: State::Info,
            ..Self::ok(check, detail)
        }
    }

    pub(crate) fn missing(
        check: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            state: State::Missing,
            detail: detail.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Exit status 0 when nothing is missing, 1 otherwise.
pub(crate) async fn run(
    socket: Option<&Path>,
    config: Option<&Path>,
    env_file: Option<&Path>,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let (mut findings, loaded) = place::configuration(config, env_file);
    let path = place::socket_path(socket, loaded.as_ref());
    let user = place::daemons_user(path.as_deref());
    findings.splice(0..0, machine::all(user == 0));
    if let Some(loaded) = &loaded {
        findings.push(place::state(&loaded.config.runtime.state_dir, user));
        findings.push(place::workspace(&loaded.config.runtime.workspace, user));
        let config = &loaded.config;
        findings.extend(place::disk(&[
            ("runtime.stateDir", &config.runtime.state_dir),
            ("artifacts.dir", &config.artifacts.dir),
            ("runtime.workspace", &config.runtime.workspace),
        ]));
    }
    findings.extend(daemon::look(path.as_deref()).await);
    let ok = findings.iter().all(|f| f.state != State::Missing);
    if screen.is_json() {
        screen.json(&json!({ "ok": ok, "findings": findings }))?;
    } else {
        show(&findings, screen)?;
    }
    Ok(u8::from(!ok))
}

fn show(findings: &[Finding], screen: &mut Screen) -> Result<(), CtlError> {
    const INDENT: &str = "\n                      ";
    for finding in findings {
        let word = match finding.state {
            State::Ok => screen.paint("ok     ", Colour::Good),
            State::Info => "info   ".to_owned(),
            State::Missing => screen.paint("MISSING", Colour::Bad),
        };
        let detail = safe(&finding.detail).replace('\n', INDENT);
        screen.line(&format!("{word}  {:<12} {detail}", finding.check))?;
        if let Some(remedy) = &finding.remedy {
            let remedy = safe(remedy).replace('\n', INDENT);
            screen.line(&format!("{:21} > {remedy}", ""))?;
        }
    }
    let missing = findings.iter().filter(|f| f.state == State::Missing);
    screen.line(&match missing.count() {
        0 => "nothing is missing".to_owned(),
        count => format!("{count} missing; each has its remedy beside it"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn a_remedy_stands_below_what_is_missing() {
        let (mut screen, out, _) = screen(false, false);
        let findings = [
            Finding::ok("kernel", "6.18"),
            Finding::missing("landlock", "none\nat all", "boot\u{7} another kernel"),
        ];
        show(&findings, &mut screen).unwrap();
        assert_eq!(
            out.text(),
            "ok       kernel       6.18\n\
             MISSING  landlock     none\n                      at all\n\
             \x20                     > boot\\u{7} another kernel\n\
             1 missing; each has its remedy beside it\n"
        );
    }
}
