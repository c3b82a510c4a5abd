//! `monoctl config`: needs no daemon and writes nothing.

use crate::cli::{Config, ConfigFile};
use crate::error::CtlError;
use crate::screen::Screen;
use crate::table::Rows;
use crate::terminal::safe;
use mono_config::{Env, Errors};
use serde_json::json;
use std::path::Path;

/// Where configurations are when none is named: here, or installed.
pub(crate) const USUAL: [&str; 2] = ["mono-agent.config.json", "/etc/mono/mono-agent.config.json"];

/// The usual place where there is one.
pub(crate) fn usual() -> Option<&'static Path> {
    USUAL.into_iter().map(Path::new).find(|path| path.exists())
}

impl ConfigFile {
    /// The named file, else a usual one; else the first of those, of which is then said that it is
    /// missing.
    fn path(&self) -> &Path {
        let named = self.config.as_deref();
        named.or(usual()).unwrap_or(Path::new(USUAL[0]))
    }
}

pub(crate) fn run(command: Config, screen: &mut Screen) -> Result<u8, CtlError> {
    match command {
        Config::Schema => {
            let schema = serde_json::to_string_pretty(&mono_config::schema())
                .map_err(std::io::Error::from)?;
            screen.line(&schema)?;
            Ok(0)
        }
        Config::Check { file } => match environment(file.env_file.as_deref()) {
            Ok(env) => check(&file, &env, screen),
            Err(errors) => refuse(&errors, screen),
        },
        Config::Show { file } => {
            match environment(file.env_file.as_deref())
                .and_then(|env| mono_config::load(file.path(), &env))
            {
                Ok(loaded) => show(&loaded, screen),
                Err(errors) => refuse(&errors, screen),
            }
        }
    }
}

/// The process's environment, and what a file adds that somebody named, as a daemon has it. None is
/// read unasked: in an agent's folder the agent may have written it. A variable that is not UTF-8
/// can't be one of ours.
pub(crate) fn environment(env_file: Option<&Path>) -> Result<Env, Errors> {
    let mut env: Env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    if let Some(file) = env_file {
        mono_config::read_env_file(file, &mut env)?;
    }
    Ok(env)
}

fn check(file: &ConfigFile, env: &Env, screen: &mut Screen) -> Result<u8, CtlError> {
    let report = mono_config::check(file.path(), env);
    if screen.is_json() {
        screen.json(&report)?;
    } else {
        screen.line(&safe(&report.to_string()))?;
    }
    Ok(u8::from(!report.ok))
}

fn show(loaded: &mono_config::Loaded, screen: &mut Screen) -> Result<u8, CtlError> {
    if screen.is_json() {
        screen
            .json(&json!({ "ok": true, "fields": loaded.fields, "warnings": loaded.warnings }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["KEY", "VALUE", "ORIGIN"]);
    for field in &loaded.fields {
        rows.push([field.key.as_str(), &field.value, &field.origin.to_string()]);
    }
    screen.line(&rows.text())?;
    for warning in &loaded.warnings {
        screen.aside(&warning.to_string())?;
    }
    Ok(0)
}

fn refuse(errors: &Errors, screen: &mut Screen) -> Result<u8, CtlError> {
    if screen.is_json() {
        screen.json(&json!({
            "ok": false,
            "error": { "kind": "config_invalid", "message": errors.to_string() },
            "errors": errors.diagnostics,
        }))?;
    } else {
        screen.aside(&errors.to_string())?;
    }
    Ok(1)
}
