//! `--env-file`: variables that somebody named a file for, as if they had been exported.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The environment, as far as it can hold settings: a variable that isn't UTF-8 is none of ours.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Executes this program once more, in the same process, with the variables of the file beside its own,
/// which are stronger. So every later look at the environment finds them, also after a reload and in
/// the program that replaces this one; like those of a unit they are read once. Call it before anything
/// is opened.
///
/// Returns only what went wrong.
pub(crate) fn adopt(file: &Path) -> String {
    let mut env = environment();
    if let Err(errors) = mono_config::read_env_file(file, &mut env) {
        return errors.to_string();
    }
    let (program, file) = match (std::env::current_exe(), std::path::absolute(file)) {
        (Ok(program), Ok(file)) => (program, file),
        (Err(e), _) | (_, Err(e)) => return format!("where it is can't be read: {e}"),
    };
    let arguments = taken(std::env::args_os().skip(1), &file);
    let failed = Command::new(&program).args(arguments).envs(env).exec();
    format!("{} can't be executed: {failed}", program.display())
}

/// The command line, with the file as one that was read: agents don't see it all the same.
fn taken(arguments: impl Iterator<Item = OsString>, file: &Path) -> Vec<OsString> {
    let mut kept = vec!["--env-taken".into(), file.into()];
    let mut skip = false;
    for argument in arguments {
        let joined = argument.as_encoded_bytes().starts_with(b"--env-file=");
        if skip || joined {
            skip = false;
        } else if argument == "--env-file" {
            skip = true;
        } else {
            kept.push(argument);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_executed_has_the_same_command_line_with_the_file_as_read() {
        for (given, kept) in [
            ("--check --env-file a --config c", "--check --config c"),
            ("--env-file=a --config c", "--config c"),
            ("--config c --env-file --check", "--config c"),
            ("--config c", "--config c"),
        ] {
            let words = given.split(' ').map(OsString::from);
            let whole = format!("--env-taken /x {kept}");
            let expected: Vec<OsString> = whole.split(' ').map(OsString::from).collect();
            assert_eq!(taken(words, Path::new("/x")), expected, "{given}");
        }
    }
}
