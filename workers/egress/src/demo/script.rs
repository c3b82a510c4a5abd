//! From a person's words to a plan of tool calls.

use ipc_proto::chat::ToolSpec;
use serde_json::{Map, Value, json};

/// Most calls of one plan.
const MAX_STEPS: usize = 8;

/// What to do about a message.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Answer at once.
    Say(String),
    /// Call these, one after the other, then sum up.
    Call(Vec<Step>),
}

/// One tool call.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// One understood sentence.
enum Sentence {
    Step(Step),
    /// It needs a tool that is not on offer.
    Missing(&'static str),
    Say(String),
}

pub(super) fn plan(text: &str, tools: &[ToolSpec]) -> Plan {
    if let Some(summary) = finished_work(text) {
        return Plan::Say(format!("The background task has ended: {summary}"));
    }
    let mut steps = Vec::new();
    for clause in clauses(text) {
        match sentence(&clause, tools) {
            Some(Sentence::Step(step)) if steps.len() < MAX_STEPS => steps.push(step),
            Some(Sentence::Step(_)) | None => {}
            Some(Sentence::Say(words)) => return Plan::Say(words),
            Some(Sentence::Missing(tool)) => {
                return Plan::Say(format!(
                    "That needs the tool {tool}, and none like it is on offer in this run. \
                     Say \"tools\" to see what is."
                ));
            }
        }
    }
    if steps.is_empty() && text.to_ascii_lowercase().contains("demo") {
        steps = full_demo(tools);
    }
    if steps.is_empty() {
        Plan::Say(help(tools))
    } else {
        Plan::Call(steps)
    }
}

/// Begins the name of the tags between which the result of background work stands, as data.
const RESULT: &str = "<untrusted-continuation-result-";
/// Most characters of a result that are repeated.
const MAX_SUMMARY: usize = 2_000;

/// What came of background work, where the message is about that. Whatever the result says, it is
/// quoted and never followed.
fn finished_work(text: &str) -> Option<String> {
    let (_, framed) = text.split_once(RESULT)?;
    let mut lines = framed.lines();
    let (_, result) = (lines.next()?, lines.next()?);
    let result: Value = serde_json::from_str(result).ok()?;
    let summary = match result.get("summary").and_then(Value::as_str) {
        Some(summary) => summary.to_owned(),
        None => result.to_string(),
    };
    Some(summary.chars().take(MAX_SUMMARY).collect())
}

/// Sentences: lines, and within a line what "then" divides. What is written to a file may have
/// lines of its own: it goes on until a line that is a sentence itself.
fn clauses(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in text.lines() {
        let continues = out
            .last()
            .is_some_and(|last| verb(last).is_some_and(|(v, _)| v == "write"))
            && verb(line).is_none();
        match out.last_mut() {
            Some(last) if continues => {
                last.push('\n');
                last.push_str(line);
            }
            _ => {
                let marked = line
                    .replace(" and then ", "\u{0}")
                    .replace(", then ", "\u{0}");
                out.extend(marked.split('\u{0}').map(|s| s.trim().to_owned()));
            }
        }
    }
    out
}

const VERBS: &[(&str, &str)] = &[
    ("echo ", "echo"),
    ("add ", "add"),
    ("sum ", "add"),
    ("what is the sum of ", "add"),
    ("write ", "write"),
    ("create ", "write"),
    ("read ", "read"),
    ("show ", "read"),
    ("list files", "list"),
    ("list the files", "list"),
    ("run ", "run"),
    ("$ ", "run"),
    ("fetch ", "fetch"),
    ("publish ", "publish"),
    ("send me ", "publish"),
    ("attach ", "publish"),
    ("start background work", "work"),
    ("roll", "roll"),
    ("call ", "call"),
    ("say ", "say"),
    ("tools", "tools"),
    ("list tools", "tools"),
];

/// The verb of a sentence and what follows it.
fn verb(clause: &str) -> Option<(&'static str, &str)> {
    let mut rest = clause.trim();
    for opening in ["please ", "can you ", "could you "] {
        if starts_with(rest, opening) {
            rest = rest[opening.len()..].trim_start();
        }
    }
    VERBS
        .iter()
        .find(|(word, _)| starts_with(rest, word))
        .map(|(word, verb)| (*verb, rest[word.len()..].trim()))
}

fn starts_with(text: &str, word: &str) -> bool {
    text.get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

fn sentence(clause: &str, tools: &[ToolSpec]) -> Option<Sentence> {
    let (verb, rest) = verb(clause)?;
    if mentions_demo(rest) {
        return None;
    }
    let named = |tool: &'static str, keys: &[&str], value: &str| {
        Some(match find(tools, tool) {
            Some(spec) => Sentence::Step(step(spec, keys, value)),
            None => Sentence::Missing(tool),
        })
    };
    match verb {
        "echo" => named("echo", &["message", "text"], unquote(rest)),
        "add" => add(rest, tools),
        "write" => write(rest, tools),
        "roll" => Some(match find(tools, "roll_dice") {
            Some(spec) => Sentence::Step(roll_step(spec, rest)),
            None => Sentence::Missing("roll_dice"),
        }),
        "read" => file_name(rest).and_then(|file| named("Read", &["file_path", "path"], file)),
        "list" => {
            let pattern = if rest.is_empty() {
                "**/*"
            } else {
                unquote(rest)
            };
            named("Glob", &["pattern"], pattern)
        }
        "run" => named("Bash", &["command"], unquote(rest)),
        "fetch" => named("WebFetch", &["url"], unquote(rest)),
        "publish" => {
            file_name(rest).and_then(|file| named("PublishReplyFile", &["path", "file_path"], file))
        }
        "work" => {
            let task = rest.trim_start_matches(':').trim();
            let task = if task.is_empty() {
                "count the items"
            } else {
                task
            };
            named("start_background_work", &["task"], task)
        }
        "call" => call(rest, tools),
        "say" => Some(Sentence::Say(rest.to_owned())),
        "tools" if rest.is_empty() => Some(Sentence::Say(offered(tools))),
        _ => None,
    }
}

/// "run the demo" is no shell command and "show a demo" no file.
fn mentions_demo(rest: &str) -> bool {
    let rest = rest.trim_end_matches(['.', '!']).to_ascii_lowercase();
    let last = rest.split_whitespace().next_back();
    let filler = |w: &str| matches!(w, "the" | "a" | "your" | "full" | "me" | "demo");
    last == Some("demo") && rest.split_whitespace().all(filler)
        || rest.starts_with("me ") && rest.contains("demo")
}

/// The offered tool of this name: exactly, behind a server's prefix, or as a part of the name.
fn find<'a>(tools: &'a [ToolSpec], name: &str) -> Option<&'a ToolSpec> {
    let wanted = name.to_ascii_lowercase();
    let is = |test: fn(&str, &str) -> bool| {
        tools
            .iter()
            .find(|t| test(&t.name.to_ascii_lowercase(), &wanted))
    };
    is(|name, wanted| name == wanted)
        .or_else(|| is(|name, wanted| name.ends_with(&format!("__{wanted}"))))
        .or_else(|| is(|name, wanted| name.contains(wanted)))
}

/// A call with one text argument: under the first of `keys` that the tool knows, else under its
/// first text property.
fn step(spec: &ToolSpec, keys: &[&str], value: &str) -> Step {
    let key = property(spec, keys, "string");
    Step {
        tool: spec.name.clone(),
        arguments: json!({ key: value }),
    }
}

fn property(spec: &ToolSpec, keys: &[&str], kind: &str) -> String {
    let properties = spec
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    let known = |key: &&&str| properties.is_some_and(|p| p.contains_key(**key));
    let typed = || {
        properties?
            .iter()
            .find(|(_, s)| s.get("type").and_then(Value::as_str) == Some(kind))
    };
    match keys.iter().find(known) {
        Some(key) => (*key).to_owned(),
        None => typed().map_or(keys[0].to_owned(), |(key, _)| key.clone()),
    }
}

fn add(rest: &str, tools: &[ToolSpec]) -> Option<Sentence> {
    let numbers: Vec<Value> = rest
        .split(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-')))
        .filter_map(|word| serde_json::from_str(word.trim_end_matches('.')).ok())
        .filter(Value::is_number)
        .take(2)
        .collect();
    let [a, b] = numbers.try_into().ok()?;
    let Some(spec) = ["get-sum", "add", "sum"]
        .iter()
        .find_map(|name| find(tools, name))
    else {
        return Some(Sentence::Missing("get-sum"));
    };
    Some(Sentence::Step(Step {
        tool: spec.name.clone(),
        arguments: json!({"a": a, "b": b}),
    }))
}

/// As many dice as the sentence has a number for, else two.
fn roll_step(spec: &ToolSpec, rest: &str) -> Step {
    let mut words = rest.split(|c: char| !c.is_ascii_digit());
    let count = words.find_map(|word| word.parse::<u64>().ok()).unwrap_or(2);
    Step {
        tool: spec.name.clone(),
        arguments: json!({ "count": count }),
    }
}

fn write(rest: &str, tools: &[ToolSpec]) -> Option<Sentence> {
    let (name, content) = rest
        .split_once(": ")
        .or_else(|| rest.split_once(":\n"))
        .or_else(|| rest.split_once(' '))?;
    let file = file_name(name)?;
    let Some(spec) = find(tools, "Write") else {
        return Some(Sentence::Missing("Write"));
    };
    Some(Sentence::Step(write_step(
        spec,
        file,
        &format!("{}\n", content.trim()),
    )))
}

fn write_step(spec: &ToolSpec, file: &str, content: &str) -> Step {
    let mut arguments = Map::new();
    arguments.insert(
        property(spec, &["file_path", "path"], "string"),
        file.into(),
    );
    arguments.insert("content".into(), content.into());
    Step {
        tool: spec.name.clone(),
        arguments: Value::Object(arguments),
    }
}

/// `call NAME {json}`: any tool on offer.
fn call(rest: &str, tools: &[ToolSpec]) -> Option<Sentence> {
    let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
    let spec = find(tools, name.trim_matches('`'))?;
    let arguments = match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => {
            return Some(Sentence::Say(
                "The arguments after the tool's name must be a JSON object.".into(),
            ));
        }
    };
    Some(Sentence::Step(Step {
        tool: spec.name.clone(),
        arguments,
    }))
}

/// The file in "the file `a b.txt`." or "a.txt, please".
fn file_name(rest: &str) -> Option<&str> {
    let mut rest = rest.trim();
    for filler in ["the file ", "file ", "the "] {
        if starts_with(rest, filler) {
            rest = rest[filler.len()..].trim_start();
        }
    }
    for quote in ['`', '"', '\''] {
        if let Some(quoted) = rest.strip_prefix(quote).and_then(|r| r.split(quote).next()) {
            return (!quoted.is_empty()).then_some(quoted);
        }
    }
    let word = rest
        .split_whitespace()
        .next()?
        .trim_end_matches([',', '.', '!', '?', ';', ':']);
    (!word.is_empty()).then_some(word)
}

fn unquote(text: &str) -> &str {
    for quote in ['`', '"', '\''] {
        let inner = text.strip_prefix(quote).and_then(|r| r.strip_suffix(quote));
        if let Some(inner) = inner.filter(|i| !i.contains(quote)) {
            return inner;
        }
    }
    text
}

/// Write a report, call tools of MCP servers, one of which has an app, publish the report: as far
/// as there are tools.
fn full_demo(tools: &[ToolSpec]) -> Vec<Step> {
    const FILE: &str = "demo-report.csv";
    const REPORT: &str = "step,what,by\n1,write this file,Write\n2,call a tool of an MCP server,echo\n\
                          3,publish this file,PublishReplyFile\n";
    let echo = |spec: &ToolSpec| step(spec, &["message", "text"], "hello from the demo model");
    let publish = |spec: &ToolSpec| {
        let mut step = step(spec, &["path", "file_path"], FILE);
        if property(spec, &["mediaType"], "none") == "mediaType"
            && spec.input_schema.pointer("/properties/mediaType").is_some()
        {
            step.arguments["mediaType"] = "text/csv".into();
        }
        step
    };
    let written = find(tools, "Write").map(|spec| write_step(spec, FILE, REPORT));
    let published = written
        .is_some()
        .then(|| find(tools, "PublishReplyFile").map(publish))
        .flatten();
    let rolled = find(tools, "roll_dice").map(|spec| roll_step(spec, ""));
    [written, find(tools, "echo").map(echo), rolled, published]
        .into_iter()
        .flatten()
        .collect()
}

fn offered(tools: &[ToolSpec]) -> String {
    if tools.is_empty() {
        return "No tools are on offer in this run.".to_owned();
    }
    let names: Vec<&str> = tools.iter().map(|t| t.name.as_str()).collect();
    format!("These tools are on offer: {}.", names.join(", "))
}

fn help(tools: &[ToolSpec]) -> String {
    format!(
        "I am a script and not a language model: I know a few sentences and call real tools with \
         them. Try one of these, several with \"then\" between them:\n\
         - demo\n\
         - echo hello\n\
         - add 2 3\n\
         - roll 3 dice\n\
         - write notes.txt: some text\n\
         - read notes.txt\n\
         - list files\n\
         - run uname -a\n\
         - fetch https://example.com/\n\
         - publish notes.txt\n\
         - start background work: count the files\n\
         - call TOOL {{\"argument\": \"value\"}}\n\
         {}\n\
         For real answers, set runtime.model to a model of a provider that you have a key for.",
        offered(tools)
    )
}
