//! `monoctl man`: the manual pages, from the same definitions that read the command lines.

use crate::cli::Cli;
use crate::error::CtlError;
use crate::screen::Screen;
use clap::CommandFactory;
use clap_mangen::Man;
use std::path::Path;

/// The supervisor's command line. Its page is written here, so that the supervisor itself needs
/// nothing to write pages with.
#[path = "../../monod/src/cli.rs"]
mod monod;
mod stub;

/// Writes `monod.8`, `monoctl.1`, `mono-mcp-stub.1`, and a page for each command, such as `monoctl-runs-list.1`.
pub(crate) fn run(folder: &Path, screen: &mut Screen) -> Result<u8, CtlError> {
    std::fs::create_dir_all(folder).map_err(CtlError::Output)?;
    let mut pages = Vec::new();
    collect(Cli::command(), None, &mut pages);
    let pages = pages
        .into_iter()
        .map(|(name, command)| (name, "1", command));
    let daemon = ("monod".to_owned(), "8", monod::Arguments::command());
    for (name, section, command) in pages.chain([daemon]) {
        let page = Man::new(command)
            .section(section)
            .manual("mono")
            .title(name.to_uppercase());
        let mut text = Vec::new();
        page.render(&mut text).map_err(CtlError::Output)?;
        let path = folder.join(format!("{name}.{section}"));
        std::fs::write(&path, text).map_err(CtlError::Output)?;
        screen.line(&path.display().to_string())?;
    }
    let path = folder.join(format!("{}.1", stub::NAME));
    std::fs::write(&path, stub::page(stub::HELP).render()).map_err(CtlError::Output)?;
    screen.line(&path.display().to_string())?;
    Ok(0)
}

/// A command and all below it, by the name of its page.
fn collect(command: clap::Command, above: Option<&str>, pages: &mut Vec<(String, clap::Command)>) {
    let name = match above {
        Some(above) => format!("{above}-{}", command.get_name()),
        None => command.get_name().to_owned(),
    };
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        collect(below.clone(), Some(&name), pages);
    }
    let called = name.replace('-', " ");
    pages.push((name, command.bin_name(called)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_no_hidden_one() {
        let mut pages = Vec::new();
        collect(Cli::command(), None, &mut pages);
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["monoctl", "monoctl-send", "monoctl-runs-list"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(!names.contains(&"monoctl-man"), "{names:?}");
    }
}
