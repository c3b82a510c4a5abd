//! `Glob`: paths by pattern.

use super::ToolOutput;
use super::path::Places;
use super::walk::{Budget, walk};
use globset::GlobBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Results shown when the model names no limit (facts 4.1).
const DEFAULT_LIMIT: usize = 100;
/// Results of one call (facts 4.1).
const MAX_RESULTS: usize = 1000;
/// Characters shown.
const MAX_CHARS: usize = 20_000;
/// Longest pattern in bytes.
const MAX_PATTERN: usize = 1024;

/// What the model is told about the tool.
pub const DESCRIPTION: &str = "Find files and directories by a glob pattern relative to path (default: \
the workspace), such as \"**/*.rs\" or \"src/*\". Results are in the order of their names; directories \
end in /. What .gitignore leaves out and .git itself are not searched. 100 results by default.";

/// Arguments.
#[derive(Debug, Deserialize)]
pub struct Args {
    pattern: String,
    path: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
    max_matches: Option<usize>,
    max_output_chars: Option<usize>,
}

/// JSON Schema of [`Args`].
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": { "type": "string", "minLength": 1, "maxLength": MAX_PATTERN },
            "path": { "type": "string", "minLength": 1, "maxLength": super::path::MAX_PATH, "description": "Directory to search in." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "Most results to show." },
            "offset": { "type": "integer", "minimum": 0, "description": "Results to skip." },
            "max_matches": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "Stop searching after so many matches." },
            "max_output_chars": { "type": "integer", "minimum": 1, "maximum": MAX_CHARS }
        },
        "required": ["pattern"],
        "additionalProperties": false
    })
}

/// Searches.
///
/// # Errors
/// A sentence for the model.
pub fn run(places: &Places, args: &Args, budget: Budget) -> Result<ToolOutput, String> {
    let root = places.root(args.path.as_deref())?;
    if !root.is_dir() {
        return Err(format!(
            "{} is not a directory; give a directory as path.",
            places.show(&root)
        ));
    }
    let pattern = args.pattern.strip_prefix("./").unwrap_or(&args.pattern);
    if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
        return Err(
            "The pattern is relative to path and can't hold \"..\"; put the directory into path."
                .to_owned(),
        );
    }
    let glob = GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| format!("The pattern is not a glob: {error}."))?
        .compile_matcher();
    let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
    let most = args.max_matches.unwrap_or(MAX_RESULTS);
    let mut found = 0;
    let mut shown = Vec::new();
    let mut more = false;
    let stopped = walk(&root, None, budget, |entry| {
        let Ok(inside) = entry.path().strip_prefix(&root) else {
            return true;
        };
        if !glob.is_match(inside) {
            return true;
        }
        // One match further is looked for, so that "there are more" is known and not guessed.
        if found >= most || shown.len() >= limit {
            more = true;
            return false;
        }
        found += 1;
        if found > args.offset {
            let slash = if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                "/"
            } else {
                ""
            };
            shown.push(format!("{}{slash}", places.show(entry.path())));
        }
        true
    });
    let cut = fit(&mut shown, args.max_output_chars.unwrap_or(MAX_CHARS));
    let mut out = shown.join("\n");
    if shown.is_empty() {
        out.push_str(if found > 0 {
            "[No more matches.]"
        } else {
            "[No match.]"
        });
    }
    if more || cut {
        let _ = if found >= most && !cut {
            write!(out, "\n[Stopped after {most} matches; narrow the pattern.]")
        } else {
            write!(
                out,
                "\n[There are more matches; go on with offset {}.]",
                args.offset + shown.len()
            )
        };
    }
    if let Some(stopped) = stopped {
        let _ = write!(out, "\n{}", stopped.note());
    }
    Ok(ToolOutput::success(out))
}

/// Drops lines from the end until they fit; the first one stays. True when some were dropped.
pub(super) fn fit(lines: &mut Vec<String>, max_chars: usize) -> bool {
    let mut chars = 0;
    let fitting = lines
        .iter()
        .take_while(|line| {
            chars += line.chars().count() + 1;
            chars <= max_chars + 1
        })
        .count()
        .max(1);
    let cut = fitting < lines.len();
    lines.truncate(fitting);
    cut
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio_util::sync::CancellationToken;

    fn glob(files: &[&str], args: Value) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let args: Args = super::super::args::check(&schema(), args)?;
        let places = Places::new(dir.path(), "/scratch");
        run(&places, &args, Budget::new(CancellationToken::new())).map(|out| out.text)
    }

    #[test]
    fn patterns_are_relative_to_the_path_and_stars_stop_at_slashes() {
        let files = ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt"];
        let table = [
            (json!({"pattern": "*.rs"}), "a.rs"),
            (
                json!({"pattern": "**/*.rs"}),
                "a.rs\nsrc/b.rs\nsrc/deep/c.rs",
            ),
            (
                json!({"pattern": "./src/*"}),
                "src/b.rs\nsrc/d.txt\nsrc/deep/",
            ),
            (
                json!({"pattern": "*.{rs,txt}", "path": "src"}),
                "src/b.rs\nsrc/d.txt",
            ),
            (json!({"pattern": "*.py"}), "[No match.]"),
        ];
        for (args, expected) in table {
            assert_eq!(glob(&files, args.clone()).unwrap(), expected, "{args}");
        }
    }

    #[test]
    fn pages_lead_on_and_end() {
        let files = ["a", "b", "c"];
        let table = [
            (
                json!({"pattern": "*", "limit": 2}),
                "a\nb\n[There are more matches; go on with offset 2.]",
            ),
            (json!({"pattern": "*", "limit": 2, "offset": 2}), "c"),
            (json!({"pattern": "*", "limit": 3}), "a\nb\nc"),
            (json!({"pattern": "*", "offset": 9}), "[No more matches.]"),
            (
                json!({"pattern": "*", "max_matches": 2}),
                "a\nb\n[Stopped after 2 matches; narrow the pattern.]",
            ),
            (
                json!({"pattern": "*", "max_output_chars": 3}),
                "a\nb\n[There are more matches; go on with offset 2.]",
            ),
        ];
        for (args, expected) in table {
            assert_eq!(glob(&files, args.clone()).unwrap(), expected, "{args}");
        }
    }

    #[test]
    fn a_hundred_results_unless_asked_and_a_thousand_at_most() {
        let names: Vec<String> = (0..1001).map(|n| format!("f{n:04}")).collect();
        let files: Vec<&str> = names.iter().map(String::as_str).collect();
        let lines = |args| {
            glob(&files, args)
                .unwrap()
                .lines()
                .filter(|line| line.starts_with('f'))
                .count()
        };
        assert_eq!(lines(json!({"pattern": "*"})), DEFAULT_LIMIT);
        assert_eq!(
            lines(json!({"pattern": "*", "limit": MAX_RESULTS})),
            MAX_RESULTS
        );
        assert!(
            glob(&files, json!({"pattern": "*", "limit": MAX_RESULTS + 1}))
                .unwrap_err()
                .contains("limit")
        );
    }

    #[test]
    fn patterns_that_can_match_nothing_are_refused_with_advice() {
        for pattern in ["/etc/*", "../*", "a/../b"] {
            assert!(
                glob(&[], json!({"pattern": pattern}))
                    .unwrap_err()
                    .contains("path"),
                "{pattern}"
            );
        }
        assert!(
            glob(&[], json!({"pattern": "a[" }))
                .unwrap_err()
                .contains("not a glob")
        );
        assert!(
            glob(&["f"], json!({"pattern": "*", "path": "f"}))
                .unwrap_err()
                .contains("not a directory")
        );
    }
}
