//! The agent's own tools (facts 4.1, 4.5). One file per tool: what the model is told, a strict
//! schema, the bounds, the work.

pub mod args;
pub mod fetch;
pub mod glob;
pub mod grep;
pub mod path;
pub mod picture;
pub mod publish;
pub mod read;
pub mod shell;
pub mod walk;
pub mod write;

use crate::owners::{Artifacts, Fetch, Lost};
use crate::policy::Gated;
use crate::process::Runner;
use ipc_proto::chat::ToolSpec;
use ipc_proto::reply::ReplyPart;
use path::Places;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use walk::Budget;

/// Time for a file tool. Its own bounds are shorter; this one is for a file system that hangs.
const FILE_TOOL_TIME: Duration = Duration::from_secs(60);

/// How a call ended, as the store records it (facts 4.5, "SessionHistory").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolState {
    /// It did what was asked.
    Success,
    /// Refused before anything was done.
    Rejected,
    /// It failed.
    Error,
    /// A command's exit status was not zero.
    ExitNonzero,
    /// Its time was over.
    Timeout,
    /// A command was ended by a signal.
    Signal,
    /// The run was cancelled.
    Cancelled,
}

impl ToolState {
    /// The recorded name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Rejected => "rejected",
            Self::Error => "error",
            Self::ExitNonzero => "exit_nonzero",
            Self::Timeout => "timeout",
            Self::Signal => "signal",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An image for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` and the like.
    pub media_type: String,
    /// Base64.
    pub data: String,
}

/// What a tool hands back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Text for the model.
    pub text: String,
    /// Images for the model.
    pub images: Vec<Image>,
    /// How it ended.
    pub state: ToolState,
}

impl ToolOutput {
    /// Text of a call that worked.
    #[must_use]
    pub fn success(text: String) -> Self {
        Self {
            text,
            images: Vec::new(),
            state: ToolState::Success,
        }
    }

    /// Text of a call that failed.
    #[must_use]
    pub fn error(text: String) -> Self {
        Self {
            state: ToolState::Error,
            ..Self::success(text)
        }
    }

    /// Text of a call that was refused before anything was done.
    #[must_use]
    pub fn rejected(text: String) -> Self {
        Self {
            state: ToolState::Rejected,
            ..Self::success(text)
        }
    }
}

/// The agent's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// A file as text or image.
    Read,
    /// A whole file.
    Write,
    /// Text in a file.
    Edit,
    /// Paths by pattern.
    Glob,
    /// Lines by regular expression.
    Grep,
    /// A shell command.
    Bash,
    /// A program.
    Exec,
    /// A page from the web.
    WebFetch,
    /// A file for the reply.
    PublishReplyFile,
}

impl Builtin {
    /// All of them, in the order that the model sees.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::Edit,
        Self::Glob,
        Self::Grep,
        Self::Bash,
        Self::Exec,
        Self::WebFetch,
        Self::PublishReplyFile,
    ];

    /// The name that the model uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Edit => "Edit",
            Self::Glob => "Glob",
            Self::Grep => "Grep",
            Self::Bash => "Bash",
            Self::Exec => "Exec",
            Self::WebFetch => "WebFetch",
            Self::PublishReplyFile => "PublishReplyFile",
        }
    }

    /// The tool of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// How the tool policy knows it.
    #[must_use]
    pub const fn gated(self) -> Gated<'static> {
        let server = match self {
            Self::PublishReplyFile => Some(publish::SERVER),
            _ => None,
        };
        Gated {
            name: self.name(),
            server,
        }
    }

    /// True when a call can change what another call of the same batch sees: those run one after
    /// the other (facts 3.6).
    #[must_use]
    pub const fn mutates(self) -> bool {
        !matches!(self, Self::Read | Self::Glob | Self::Grep | Self::WebFetch)
    }

    /// JSON Schema of the arguments.
    #[must_use]
    pub fn schema(self) -> Value {
        match self {
            Self::Read => read::schema(),
            Self::Write => write::write_schema(),
            Self::Edit => write::edit_schema(),
            Self::Glob => glob::schema(),
            Self::Grep => grep::schema(),
            Self::Bash => shell::bash_schema(),
            Self::Exec => shell::exec_schema(),
            Self::WebFetch => fetch::schema(),
            Self::PublishReplyFile => publish::schema(),
        }
    }

    /// The tool as it is offered to the model.
    #[must_use]
    pub fn spec(self) -> ToolSpec {
        let description = match self {
            Self::Read => read::DESCRIPTION,
            Self::Write => write::WRITE_DESCRIPTION,
            Self::Edit => write::EDIT_DESCRIPTION,
            Self::Glob => glob::DESCRIPTION,
            Self::Grep => grep::DESCRIPTION,
            Self::Bash => shell::BASH_DESCRIPTION,
            Self::Exec => shell::EXEC_DESCRIPTION,
            Self::WebFetch => fetch::DESCRIPTION,
            Self::PublishReplyFile => publish::DESCRIPTION,
        };
        ToolSpec {
            name: self.name().to_owned(),
            description: description.to_owned(),
            input_schema: self.schema(),
        }
    }
}

/// What a call of a built-in came to.
#[derive(Debug)]
pub struct Called {
    /// For the model.
    pub output: ToolOutput,
    /// A part for the reply.
    pub part: Option<ReplyPart>,
}

impl From<ToolOutput> for Called {
    fn from(output: ToolOutput) -> Self {
        Self { output, part: None }
    }
}

/// What the tools work with.
#[derive(Debug)]
pub struct Workshop<'a, F, A> {
    /// Directories.
    pub places: &'a Places,
    /// Commands.
    pub runner: &'a Runner,
    /// The way out.
    pub fetch: &'a F,
    /// Reply files.
    pub artifacts: &'a A,
    /// Ends what is under way.
    pub cancel: &'a CancellationToken,
}

impl<F: Fetch, A: Artifacts> Workshop<'_, F, A> {
    /// Calls a tool. What goes wrong inside is told to the model.
    ///
    /// # Errors
    /// Only when a worker is lost.
    pub async fn call(&self, tool: Builtin, arguments: Value) -> Result<Called, Lost> {
        let schema = tool.schema();
        Ok(match tool {
            Builtin::Read => {
                self.blocking(&schema, arguments, |places, args, _| {
                    read::run(places, &args)
                })
                .await
            }
            Builtin::Write => {
                self.blocking(&schema, arguments, |places, args, _| {
                    write::write(places, &args)
                })
                .await
            }
            Builtin::Edit => {
                self.blocking(&schema, arguments, |places, args, _| {
                    write::edit(places, &args)
                })
                .await
            }
            Builtin::Glob => {
                self.blocking(&schema, arguments, |places, args, budget| {
                    glob::run(places, &args, budget)
                })
                .await
            }
            Builtin::Grep => {
                self.blocking(&schema, arguments, |places, args, budget| {
                    grep::run(places, &args, budget)
                })
                .await
            }
            Builtin::Bash => match args::check(&schema, arguments) {
                Ok(args) => output(shell::bash(self.places, self.runner, self.cancel, args).await),
                Err(told) => ToolOutput::rejected(told),
            },
            Builtin::Exec => match args::check(&schema, arguments) {
                Ok(args) => output(shell::exec(self.places, self.runner, self.cancel, args).await),
                Err(told) => ToolOutput::rejected(told),
            },
            Builtin::WebFetch => match args::check(&schema, arguments) {
                Ok(args) => match self.unless_cancelled(fetch::run(self.fetch, args)).await {
                    Some(done) => done?,
                    None => cancelled(),
                },
                Err(told) => ToolOutput::rejected(told),
            },
            Builtin::PublishReplyFile => match args::check(&schema, arguments) {
                Ok(args) => {
                    let publish = publish::run(self.places, self.artifacts, args);
                    match self.unless_cancelled(publish).await {
                        Some(done) => {
                            let (output, part) = done?;
                            return Ok(Called { output, part });
                        }
                        None => cancelled(),
                    }
                }
                Err(told) => ToolOutput::rejected(told),
            },
        }
        .into())
    }

    async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            done = work => Some(done),
        }
    }

    /// Runs a tool of the file system on another thread: a slow disk must not stop the loop that
    /// answers the supervisor.
    async fn blocking<T: DeserializeOwned + Send + 'static>(
        &self,
        schema: &Value,
        arguments: Value,
        work: impl FnOnce(&Places, T, Budget) -> Result<ToolOutput, String> + Send + 'static,
    ) -> ToolOutput {
        let args = match args::check(schema, arguments) {
            Ok(args) => args,
            Err(told) => return ToolOutput::rejected(told),
        };
        let places = self.places.clone();
        let budget = Budget::new(self.cancel.clone());
        let task = tokio::task::spawn_blocking(move || work(&places, args, budget));
        tokio::select! {
            biased;
            done = task => match done {
                Ok(result) => output(result),
                Err(_) => ToolOutput::error("The tool broke down; this is an error of the agent itself.".to_owned()),
            },
            () = self.cancel.cancelled() => cancelled(),
            () = tokio::time::sleep(FILE_TOOL_TIME) => ToolOutput {
                state: ToolState::Timeout,
                ..ToolOutput::success("The file system did not answer within 60 s.".to_owned())
            },
        }
    }
}

fn cancelled() -> ToolOutput {
    ToolOutput {
        state: ToolState::Cancelled,
        ..ToolOutput::error("The run was cancelled.".to_owned())
    }
}

fn output(result: Result<ToolOutput, String>) -> ToolOutput {
    result.unwrap_or_else(ToolOutput::error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_strict_and_compiles() {
        for tool in Builtin::ALL {
            let schema = tool.schema();
            assert_eq!(
                schema["additionalProperties"],
                Value::Bool(false),
                "{}",
                tool.name()
            );
            assert!(
                jsonschema::validator_for(&schema).is_ok(),
                "{}",
                tool.name()
            );
            assert_eq!(Builtin::from_name(tool.name()), Some(tool));
            let told = args::check::<Value>(&schema, serde_json::json!({"surely_unknown": 1}));
            assert!(
                told.is_err_and(|told| told.contains("surely_unknown")),
                "{}",
                tool.name()
            );
        }
        assert_eq!(Builtin::from_name("read"), None);
    }
}
