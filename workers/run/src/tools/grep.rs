//! `Grep`: lines by regular expression, through ripgrep's own libraries.

use super::ToolOutput;
use super::path::Places;
use super::walk::{Budget, Stopped, walk};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::types::{Types, TypesBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Bytes of a searched file (facts 4.1); larger ones are counted and left out.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Lines of context (facts 4.1).
const MAX_CONTEXT: usize = 20;
/// Result lines shown when the model names no limit.
const DEFAULT_HEAD: usize = 250;
/// Result lines of one call (facts 4.1).
const MAX_HEAD: usize = 1000;
/// Matches of one call.
const MAX_MATCHES: u64 = 100_000;
/// Characters of one line shown: a minified file must not fill the page.
const MAX_LINE_CHARS: usize = 500;
/// Characters shown.
const MAX_CHARS: usize = 20_000;
/// Longest pattern in bytes.
const MAX_PATTERN: usize = 8192;
/// Memory of a compiled pattern in bytes.
const MAX_PROGRAM: usize = 10 * 1024 * 1024;

/// What the model is told about the tool.
pub const DESCRIPTION: &str = "Search files for a regular expression (Rust syntax: no look-around, no \
back-references). output_mode: files_with_matches (default), content (path:line:text, with context \
lines), or count. Narrow by path, glob (\"*.ts\", \"!test/**\") and type (\"rust\", \"py\"). What .gitignore \
leaves out, .git, binary files and files over 16 MiB are not searched.";

/// What is reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    FilesWithMatches,
    Content,
    Count,
}

/// Arguments.
#[derive(Debug, Deserialize)]
pub struct Args {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    r#type: Option<String>,
    #[serde(default)]
    output_mode: Mode,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    case_insensitive: bool,
    #[serde(default)]
    multiline: bool,
    head_limit: Option<usize>,
    #[serde(default)]
    offset: usize,
    max_matches: Option<u64>,
    max_output_chars: Option<usize>,
}

/// JSON Schema of [`Args`].
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": { "type": "string", "minLength": 1, "maxLength": MAX_PATTERN },
            "path": { "type": "string", "minLength": 1, "maxLength": super::path::MAX_PATH, "description": "File or directory; default: the workspace." },
            "glob": { "type": "string", "minLength": 1, "maxLength": 1024 },
            "type": { "type": "string", "minLength": 1, "maxLength": 64 },
            "output_mode": { "type": "string", "enum": ["files_with_matches", "content", "count"] },
            "context": { "type": "integer", "minimum": 0, "maximum": MAX_CONTEXT, "description": "Lines before and after each match." },
            "case_insensitive": { "type": "boolean" },
            "multiline": { "type": "boolean", "description": "Let a match span lines; . matches line ends." },
            "head_limit": { "type": "integer", "minimum": 1, "maximum": MAX_HEAD, "description": "Most result lines to show." },
            "offset": { "type": "integer", "minimum": 0, "description": "Result lines to skip." },
            "max_matches": { "type": "integer", "minimum": 1, "maximum": MAX_MATCHES, "description": "Stop after so many matching lines." },
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
    let matcher = matcher(args)?;
    let searcher = SearcherBuilder::new()
        .multi_line(args.multiline)
        .before_context(args.context)
        .after_context(args.context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(
            usize::try_from(MAX_FILE).unwrap_or(usize::MAX) + 64 * 1024,
        ))
        .build();
    let head = args.head_limit.unwrap_or(DEFAULT_HEAD);
    let mut search = Search {
        places,
        searcher,
        matcher,
        mode: args.output_mode,
        skip: args.offset,
        room: head,
        matches_left: args.max_matches.unwrap_or(MAX_MATCHES),
        lines: Vec::new(),
        any: false,
        more: false,
        too_large: 0,
    };
    let mut stopped = None;
    if root.is_dir() {
        let filters = filters(&root, args)?;
        stopped = walk(&root, Some(filters), budget, |entry| {
            if entry.file_type().is_some_and(|kind| kind.is_file()) {
                search.file(entry.path());
            }
            search.wants_more()
        });
    } else {
        places
            .open_file(&root, MAX_FILE)
            .map_err(|e| e.to_string())?;
        search.file(&root);
    }
    Ok(ToolOutput::success(search.report(args, stopped)))
}

fn matcher(args: &Args) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(args.case_insensitive)
        .multi_line(true)
        .dot_matches_new_line(args.multiline)
        .size_limit(MAX_PROGRAM)
        .dfa_size_limit(MAX_PROGRAM);
    if !args.multiline {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(&args.pattern).map_err(|error| {
        format!("The pattern is not a regular expression of this tool: {error}. Escape special characters with \\.")
    })
}

fn filters(root: &Path, args: &Args) -> Result<(Override, Types), String> {
    let mut overrides = OverrideBuilder::new(root);
    if let Some(glob) = &args.glob {
        overrides
            .add(glob)
            .map_err(|error| format!("glob is not a glob: {error}."))?;
    }
    let overrides = overrides
        .build()
        .map_err(|error| format!("glob is not a glob: {error}."))?;
    let mut types = TypesBuilder::new();
    types.add_defaults();
    if let Some(name) = &args.r#type {
        types.select(name);
    }
    let types = types.build().map_err(|_| {
        "type is not a known file type; use glob, such as \"*.ext\", instead.".to_owned()
    })?;
    Ok((overrides, types))
}

struct Search<'a> {
    places: &'a Places,
    searcher: Searcher,
    matcher: RegexMatcher,
    mode: Mode,
    skip: usize,
    room: usize,
    matches_left: u64,
    lines: Vec<String>,
    any: bool,
    more: bool,
    too_large: usize,
}

impl Search<'_> {
    fn wants_more(&self) -> bool {
        !self.more
    }

    fn file(&mut self, path: &Path) {
        let file = match self.places.open_file(path, MAX_FILE) {
            Ok((file, _)) => file,
            Err(super::path::PathError::TooLarge { .. }) => {
                self.too_large += 1;
                return;
            }
            // Gone meanwhile, or not readable: left out, as ripgrep does.
            Err(_) => return,
        };
        let shown = self.places.show(path);
        let mut searcher = self.searcher.clone();
        let matcher = self.matcher.clone();
        let mut sink = FileSink {
            search: self,
            shown: &shown,
            count: 0,
            last_line: 0,
        };
        let _ = searcher.search_file(&matcher, &file, &mut sink);
        let count = sink.count;
        match self.mode {
            Mode::Count if count > 0 => self.add(format!("{shown}: {count}")),
            Mode::FilesWithMatches if count > 0 => self.add(shown),
            _ => {}
        }
    }

    fn add(&mut self, line: String) {
        self.any = true;
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.room > 0 {
            self.room -= 1;
            self.lines.push(line);
        } else {
            self.more = true;
        }
    }

    fn report(mut self, args: &Args, stopped: Option<Stopped>) -> String {
        let cut = super::glob::fit(&mut self.lines, args.max_output_chars.unwrap_or(MAX_CHARS));
        let mut out = self.lines.join("\n");
        if self.lines.is_empty() {
            out.push_str(if self.any {
                "[No more results.]"
            } else {
                "[No match.]"
            });
        }
        if cut || (self.more && self.room == 0) {
            let next = args.offset + self.lines.len();
            let _ = write!(out, "\n[There are more results; go on with offset {next}.]");
        } else if self.more {
            let _ = write!(out, "\n[Stopped after max_matches.]");
        }
        if self.too_large > 0 {
            let _ = write!(
                out,
                "\n[{} files over 16 MiB were not searched.]",
                self.too_large
            );
        }
        if let Some(stopped) = stopped {
            let _ = write!(out, "\n{}", stopped.note());
        }
        out
    }
}

struct FileSink<'a, 'b> {
    search: &'a mut Search<'b>,
    shown: &'a str,
    count: u64,
    last_line: u64,
}

impl FileSink<'_, '_> {
    fn line(&mut self, number: u64, separator: char, bytes: &[u8]) {
        // A gap between two groups of context lines shows as ripgrep shows it.
        if self.last_line > 0 && number > self.last_line + 1 && separator_matters(self.search) {
            self.search.add("--".to_owned());
        }
        self.last_line = number;
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let mut line = format!("{}{separator}{number}{separator}", self.shown);
        match text.char_indices().nth(MAX_LINE_CHARS) {
            None => line.push_str(text),
            Some((at, _)) => {
                let _ = write!(line, "{}… [line cut]", &text[..at]);
            }
        }
        self.search.add(line);
    }
}

fn separator_matters(search: &Search<'_>) -> bool {
    search.searcher.before_context() > 0
}

impl Sink for FileSink<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.search.matches_left == 0 {
            self.search.more = true;
            return Ok(false);
        }
        self.search.matches_left -= 1;
        self.count += 1;
        match self.search.mode {
            Mode::FilesWithMatches => return Ok(false),
            Mode::Count => return Ok(true),
            Mode::Content => {}
        }
        let first = found.line_number().unwrap_or(1);
        for (index, line) in (0..).zip(found.lines()) {
            self.line(first + index, ':', line);
            if self.search.more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        if self.search.mode == Mode::Content {
            self.line(context.line_number().unwrap_or(1), '-', context.bytes());
        }
        Ok(!self.search.more)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio_util::sync::CancellationToken;

    fn grep(files: &[(&str, &[u8])], args: Value) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let args: Args = super::super::args::check(&schema(), args)?;
        let places = Places::new(dir.path(), "/scratch");
        run(&places, &args, Budget::new(CancellationToken::new())).map(|out| out.text)
    }

    const FILES: &[(&str, &[u8])] = &[
        ("a.rs", b"fn one() {}\nlet x = 1;\nfn two() {}\n"),
        ("b/c.py", b"def one():\n    pass\n"),
        ("d.bin", b"\0fn one"),
    ];

    #[test]
    fn modes_filters_and_context() {
        let table = [
            (json!({"pattern": "one"}), "a.rs\nb/c.py"),
            (json!({"pattern": "ONE"}), "[No match.]"),
            (
                json!({"pattern": "ONE", "case_insensitive": true, "type": "py"}),
                "b/c.py",
            ),
            (json!({"pattern": "fn", "output_mode": "count"}), "a.rs: 2"),
            (json!({"pattern": "one", "glob": "*.rs"}), "a.rs"),
            (json!({"pattern": "one", "glob": "!*.rs"}), "b/c.py"),
            (json!({"pattern": "one", "path": "b"}), "b/c.py"),
            (
                json!({"pattern": "^fn", "path": "a.rs", "output_mode": "content"}),
                "a.rs:1:fn one() {}\na.rs:3:fn two() {}",
            ),
            (
                json!({"pattern": "two", "output_mode": "content", "context": 1}),
                "a.rs-2-let x = 1;\na.rs:3:fn two() {}",
            ),
            (
                json!({"pattern": "one.*x", "output_mode": "content", "multiline": true}),
                "a.rs:1:fn one() {}\na.rs:2:let x = 1;",
            ),
        ];
        for (args, expected) in table {
            assert_eq!(grep(FILES, args.clone()).unwrap(), expected, "{args}");
        }
    }

    #[test]
    fn pages_lead_on_and_every_limit_holds() {
        let many = "hit\n".repeat(1100);
        let files: &[(&str, &[u8])] = &[("f", many.as_bytes())];
        let content = |extra: Value| {
            let mut args = json!({"pattern": "hit", "output_mode": "content"});
            args.as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            grep(files, args)
        };
        let hits = |text: &str| text.lines().filter(|line| line.starts_with('f')).count();
        assert_eq!(hits(&content(json!({})).unwrap()), DEFAULT_HEAD);
        let all = content(json!({"head_limit": MAX_HEAD})).unwrap();
        assert_eq!(hits(&all), MAX_HEAD);
        assert!(all.ends_with("[There are more results; go on with offset 1000.]"));
        let rest = content(json!({"head_limit": MAX_HEAD, "offset": 1000})).unwrap();
        assert!(hits(&rest) == 100 && !rest.contains('['));
        assert!(
            content(json!({"max_matches": 3}))
                .unwrap()
                .ends_with("f:3:hit\n[Stopped after max_matches.]")
        );
        let short = content(json!({"max_output_chars": 15})).unwrap();
        assert_eq!(
            short,
            "f:1:hit\nf:2:hit\n[There are more results; go on with offset 2.]"
        );
        for bad in [
            json!({"head_limit": MAX_HEAD + 1}),
            json!({"context": MAX_CONTEXT + 1}),
            json!({"head_limit": 0}),
        ] {
            assert!(content(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_large_files_left_out_loudly() {
        let long = "x".repeat(MAX_LINE_CHARS + 1);
        let shown = grep(
            &[("f", long.as_bytes())],
            json!({"pattern": "x", "output_mode": "content"}),
        )
        .unwrap();
        assert_eq!(
            shown,
            format!("f:1:{}… [line cut]", "x".repeat(MAX_LINE_CHARS))
        );
        let size = usize::try_from(MAX_FILE).unwrap();
        let mut big = vec![b'\n'; size];
        big[0] = b'x';
        assert_eq!(grep(&[("f", &big)], json!({"pattern": "x"})).unwrap(), "f");
        big.push(b'\n');
        let text = grep(&[("f", &big)], json!({"pattern": "x"})).unwrap();
        assert_eq!(
            text,
            "[No match.]\n[1 files over 16 MiB were not searched.]"
        );
    }

    #[test]
    fn bad_patterns_types_and_paths_are_explained() {
        assert!(
            grep(FILES, json!({"pattern": "("}))
                .unwrap_err()
                .contains("Escape")
        );
        assert!(grep(FILES, json!({"pattern": "a{1000}{1000}"})).is_err());
        assert!(
            grep(FILES, json!({"pattern": "x", "type": "klingon"}))
                .unwrap_err()
                .contains("glob")
        );
        assert!(
            grep(FILES, json!({"pattern": "x", "path": "nowhere"}))
                .unwrap_err()
                .contains("does not exist")
        );
    }
}
