//! The command line against itself, its help and the handbook.

#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn nobody_is_offered_a_worker_that_there_is_not() {
    let help = help_of(&["monoctl", "worker", "drain", "--help"]);
    let scripts = [Shell::Bash, Shell::Zsh, Shell::Fish].map(completions);
    for text in scripts.iter().chain([&help]) {
        assert!(text.contains("channel-openai") && !text.contains("channel-slack"));
    }
    let roles = "store artifact continuation egress app-bridge channel-openai channel-console channel-webhook";
    for (when, values) in [
        (
            "worker; and __fish_seen_subcommand_from show",
            format!("{roles} run mcp-server metrics"),
        ),
        (
            "worker; and __fish_seen_subcommand_from drain",
            format!("{roles} metrics"),
        ),
        ("logs", format!("{roles} run mcp-server metrics")),
        ("completions", "bash elvish fish powershell zsh".to_owned()),
    ] {
        let line = format!(
            "complete -c monoctl -n \"__fish_monoctl_using_subcommand {when}\" -f -a \"{values}\"\n"
        );
        assert!(scripts[2].contains(&line), "{line}");
    }
    // A run worker is one of many.
    assert!(!help.contains("run,"), "{help}");
    assert!(Cli::try_parse_from(["monoctl", "policy", "explain", "channel-slack"]).is_ok());
}

#[test]
fn what_every_command_takes_stands_apart() {
    let help = help_of(&["monoctl", "runs", "list", "--help"]);
    let (own, everywhere) = help.split_once(EVERYWHERE).unwrap_or_default();
    assert!(own.contains("--limit") && own.contains("--cursor") && !own.contains("--socket"));
    assert!(everywhere.contains("--socket") && everywhere.contains("--json"));
}

fn help_of(words: &[&str]) -> String {
    Cli::try_parse_from(words)
        .err()
        .map_or_else(String::new, |e| e.to_string())
}

#[test]
fn every_command_teaches_with_an_example() {
    fn check(command: &clap::Command) {
        let subcommands: Vec<_> = command.get_subcommands().collect();
        if subcommands.is_empty() {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains("Example") && help.contains("monoctl "),
                "{}",
                command.get_name()
            );
        }
        subcommands.into_iter().for_each(check);
    }
    check(&Cli::command());
}

/// The words of a line as a shell takes them, up to what is no word of this command any more: a pipe,
/// a redirection, another command, or a remark behind several spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut spaces = 0;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ' ') => {
                spaces += 1;
                if spaces > 1 {
                    break;
                }
                words.push(String::new());
                continue;
            }
            (None, '|' | '>' | '&' | '(' | '`') => break,
            (_, c) => words.last_mut().unwrap().push(c),
        }
        spaces = 0;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Calls of this command in a text: each line of an example, and what stands in code marks alone.
fn calls(text: &str) -> Vec<Vec<String>> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.extend(line.split_once("monoctl ").map(|(_, rest)| words(rest)));
        } else {
            let code = line.split('`').skip(1).step_by(2);
            let calls = code.filter_map(|code| code.strip_prefix("monoctl "));
            found.extend(calls.map(words));
        }
    }
    found
}

/// No part of it is left to the reader, such as `[ROLE]` or `COMMAND`.
fn is_whole(call: &[String]) -> bool {
    let open = |word: &String| word.contains('[') || ["…", "COMMAND", "----"].contains(&&**word);
    !call.is_empty() && !call.iter().any(open)
}

#[test]
fn what_the_handbook_tells_to_type_is_understood() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    pages.extend(docs.map(|entry| entry.unwrap().path()));
    pages.retain(|page| page.extension().is_some_and(|e| e == "md"));
    let mut tried = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for call in calls(&text).into_iter().filter(|call| is_whole(call)) {
            tried += 1;
            understood(&call, &page.display().to_string());
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn what_the_help_tells_to_type_is_understood() {
    fn check(command: &clap::Command, tried: &mut usize) {
        let help = command.get_after_help().map(ToString::to_string);
        let lines = help.iter().flat_map(|help| help.lines());
        for line in lines.filter(|line| line.starts_with("  ")) {
            if let Some((_, rest)) = line.split_once("monoctl ") {
                *tried += 1;
                understood(&words(rest), command.get_name());
            }
        }
        command
            .get_subcommands()
            .for_each(|below| check(below, tried));
    }
    let mut tried = 0;
    check(&Cli::command(), &mut tried);
    assert!(tried > 30, "{tried}");
}

/// Or it names no more than the beginning, as in "`monoctl apps` lists, shows, closes and audits".
fn understood(call: &[String], place: &str) {
    use clap::error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument,
        MissingSubcommand,
    };
    let words = call.iter().map(|word| match word.as_str() {
        "ROLE" => "store",
        "SHELL" => "bash",
        word => word,
    });
    let line = std::iter::once("monoctl").chain(words);
    if let Err(e) = Cli::try_parse_from(line) {
        let named_only = matches!(
            e.kind(),
            DisplayHelp
                | DisplayHelpOnMissingArgumentOrSubcommand
                | MissingRequiredArgument
                | MissingSubcommand
        );
        assert!(named_only, "{place}: monoctl {}: {e}", call.join(" "));
    }
}
