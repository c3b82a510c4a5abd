//! The command line.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use ipc_proto::Role;
use std::path::PathBuf;

/// What every command takes stands apart from its own.
const EVERYWHERE: &str = "Options of every command";

/// Operate mono: see what runs and how it is confined, send messages, fetch files.
#[derive(Debug, Parser)]
#[command(
    name = "monoctl",
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  monoctl doctor\n  monoctl status\n  monoctl send \"What is in the workspace?\"\n  monoctl artifacts list\n\n\
                  Exit status: 0 done; 1 failed, degraded or unhealthy; 2 wrong command line;\n\
                  3 no daemon; 130 interrupted; 141 nobody reads the output. What follows ends with 0 when it is interrupted."
)]
pub(crate) struct Cli {
    /// Admin socket of the daemon [default: $MONO_SOCKET, .mono-agent/monod.sock, /run/mono/monod.sock]
    #[arg(long, global = true, value_name = "PATH", help_heading = EVERYWHERE)]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON for scripts
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
    /// Never colour the output ($NO_COLOR does the same)
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) no_color: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the daemon's health and what the kernel enforces on every worker
    #[command(
        after_help = "Exit status: 0 healthy, 1 degraded or unhealthy, 3 no daemon.\n\n\
        Examples:\n  monoctl status\n  monoctl status --json | jq '.workers[] | {role, sandbox}'"
    )]
    Status,
    /// Send a message to the agent and stream its answer
    Send(Send),
    /// Look at runs, or end one
    Runs {
        #[command(subcommand)]
        command: Runs,
    },
    /// List the files that the agent published, or fetch one
    Artifacts {
        #[command(subcommand)]
        command: Artifacts,
    },
    /// Look at apps of MCP servers, or close one
    Apps {
        #[command(subcommand)]
        command: Apps,
    },
    /// Look at MCP servers, or try one
    Mcp {
        #[command(subcommand)]
        command: Mcp,
    },
    /// Check or show a configuration, without a daemon
    Config {
        #[command(subcommand)]
        command: Config,
    },
    /// Log in to the web console, see who is logged in, or end a login
    Console {
        #[command(subcommand)]
        command: Console,
    },
    /// Look at durable continuations, and settle what nobody else can
    #[command(
        after_help = "Exit status: 0 done; 1 refused, or nobody could be asked; 2 wrong command line."
    )]
    Continuations {
        #[command(subcommand)]
        command: Continuations,
    },
    /// Show answers of background tasks that came later, for conversations of the terminal
    Letters(Letters),
    /// Look at the workers, or restart, drain and unpark one
    Worker {
        #[command(subcommand)]
        command: Worker,
    },
    /// Show the latest lines that the workers logged, and follow them
    #[command(
        after_help = "The daemon keeps the latest 4,096 lines; with systemd the journal has all of them.\n\n\
        Examples:\n  monoctl logs egress\n  monoctl logs --run 01998a4e-5f0c-7000-8000-000000000000\n  \
        monoctl logs --follow --json | jq -r 'select(.role == \"run\") | .text'"
    )]
    Logs {
        /// Only this role
        #[arg(value_parser = all_roles())]
        role: Option<String>,
        /// Only what was logged while working on this run
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// Go on with new lines as they come
        #[arg(short, long)]
        follow: bool,
    },
    /// Have the daemon read its configuration again
    #[command(
        after_help = "It is checked first; one with errors changes nothing. Workers that it changes are replaced one \
        by one, and running turns finish on the old ones. What takes a restart is named with both values.\n\n\
        With --exec the daemon also becomes the program that is on disk now, e.g. after an upgrade of the package: \
        the new program is asked first whether it would start, no turn and no connection is lost, and store and \
        artifact get their new programs when no turn is at work.\n\n\
        Exit status: 0 done, 1 refused or a new worker doesn't serve, 3 no daemon.\n\n\
        Examples:\n  monoctl reload && monoctl status\n  apt-get install ./mono.deb && monoctl reload --exec"
    )]
    Reload {
        /// Replace the programs too: the daemon's own and those of its workers
        #[arg(long)]
        exec: bool,
    },
    /// Check everything that the daemon needs, with a remedy for what is missing
    #[command(
        after_help = "Changes nothing and needs no daemon; asks one that runs. Exit status: 0 all is well, 1 something is missing.\n\n\
        Examples:\n  monoctl doctor\n  monoctl doctor --config mono-agent.config.json --json | jq '.findings[] | select(.state == \"missing\")'"
    )]
    Doctor {
        /// Configuration file [default: mono-agent.config.json, /etc/mono/mono-agent.config.json]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// File with variables, as for `monod --env-file`; exported ones are stronger
        #[arg(long, value_name = "FILE")]
        env_file: Option<PathBuf>,
    },
    /// Read the profiles that confine the workers
    Policy {
        #[command(subcommand)]
        command: Policy,
    },
    /// Watch workers, runs, memory and processor time; q quits
    #[command(
        after_help = "Memory and processor time are of a worker's process and of all below it.\n\n\
        Keys: q or Esc quits, the arrows scroll.\n\n\
        Examples:\n  monoctl top\n  monoctl top --once\n  monoctl top --json | jq -c '.workers[] | [.role, .cpu_percent]'"
    )]
    Top {
        /// Print one view as text and end
        #[arg(long)]
        once: bool,
    },
    /// The same as `worker unpark`
    #[command(
        after_help = "`monoctl status` shows parked workers with the last line they logged.\n\n\
        Example:\n  monoctl unpark egress"
    )]
    Unpark {
        /// Role of the worker, as `monoctl status` shows it
        #[arg(value_parser = roles())]
        role: String,
    },
    /// Stop the daemon in order and wait for its end
    #[command(after_help = "Running turns get a moment to finish.\n\nExample:\n  monoctl stop")]
    Stop,
    /// Show the version of this command and of the protocol it speaks
    #[command(after_help = "Example:\n  monoctl version --json")]
    Version,
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  monoctl completions bash > ~/.local/share/bash-completion/completions/monoctl"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of monoctl and monod into a folder
    #[command(
        hide = true,
        after_help = "For packages.\n\nExample:\n  monoctl man target/man"
    )]
    Man {
        /// The folder; made when it isn't there
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Console {
    /// Print a link that logs one browser in, and open it on a desktop
    #[command(
        after_help = "The link works once, for ten minutes. It is opened in a browser when this runs in a terminal of a desktop.\n\n\
        Examples:\n  monoctl console open\n  monoctl console open --print | wl-copy"
    )]
    Open {
        /// Only print it
        #[arg(long)]
        print: bool,
    },
    /// List the browsers that are logged in
    #[command(
        after_help = "Example:\n  monoctl console sessions --json | jq '.sessions[].userAgent'"
    )]
    Sessions,
    /// Log a browser out
    #[command(after_help = "Example:\n  monoctl console revoke 3f2a9c0d5b7e4f1a8c6d2e0b9a7f5c31")]
    Revoke {
        /// Session, from `monoctl console sessions`
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Continuations {
    /// Tell whether something needs attention
    #[command(
        after_help = "healthy: nothing needs attention. degraded: work is pending, something expired, or a delivered answer \
        is missing in its history. unhealthy: something is dead-lettered, or nobody knows whether it was delivered.\n\n\
        Example:\n  monoctl continuations health --json | jq -r .status"
    )]
    Health,
    /// List continuations, newest first
    #[command(
        after_help = "Where there are more, the command for the next page is printed.\n\n\
        Examples:\n  monoctl continuations list --limit 50\n  \
        monoctl continuations list --json | jq -r '.continuations[] | [.continuationId, .state] | @tsv'"
    )]
    List {
        /// Most entries to show, 1 to 500 and at most continuations.limits.operatorPageSize
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: Option<u32>,
        /// Go on where an earlier page ended; that one prints the command
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show one continuation
    #[command(
        after_help = "Example:\n  monoctl continuations show acd94f4c-2be7-4100-8525-94cbe0c2aade"
    )]
    Show {
        /// Continuation, from `monoctl continuations list`
        id: String,
    },
    /// Try a failed delivery once more
    #[command(
        after_help = "A synthesis is never repeated. One whose delivery is unknown is refused: resolve it instead, or, when you \
        have made sure that it did not arrive, allow it.\n\n\
        Example:\n  monoctl continuations retry acd94f4c-2be7-4100-8525-94cbe0c2aade"
    )]
    Retry {
        /// Continuation, from `monoctl continuations list`
        id: String,
        /// Even where it may have been delivered: the person may read it twice
        #[arg(long)]
        allow_unknown: bool,
    },
    /// Give a continuation up
    #[command(
        after_help = "Example:\n  monoctl continuations cancel acd94f4c-2be7-4100-8525-94cbe0c2aade"
    )]
    Cancel {
        /// Continuation, from `monoctl continuations list`
        id: String,
    },
    /// Say what became of a delivery that nobody knows of
    #[command(
        after_help = "Look into the channel first: nothing is posted by this but what `not-delivered` sends again.\n\n\
        Examples:\n  monoctl continuations resolve acd94f4c-2be7-4100-8525-94cbe0c2aade delivered 1764475200.000100\n  \
        monoctl continuations resolve acd94f4c-2be7-4100-8525-94cbe0c2aade not-delivered"
    )]
    Resolve {
        /// Continuation, from `monoctl continuations list`
        id: String,
        #[command(subcommand)]
        outcome: Outcome,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Outcome {
    /// It arrived; it is entered into its history
    #[command(
        after_help = "Example:\n  monoctl continuations resolve acd94f4c-2be7-4100-8525-94cbe0c2aade delivered 1764475200.000100"
    )]
    Delivered {
        /// The message's id in its channel
        delivery_id: Option<String>,
    },
    /// It did not arrive; it is sent again
    #[command(
        after_help = "Example:\n  monoctl continuations resolve acd94f4c-2be7-4100-8525-94cbe0c2aade not-delivered"
    )]
    NotDelivered,
    /// It is given up
    #[command(
        after_help = "Example:\n  monoctl continuations resolve acd94f4c-2be7-4100-8525-94cbe0c2aade dead-lettered"
    )]
    DeadLettered,
}

#[derive(Debug, Args)]
#[command(after_help = "The daemon keeps the newest 10,000.\n\n\
        Examples:\n  monoctl letters\n  monoctl letters --conversation plan --follow")]
pub(crate) struct Letters {
    /// Only of this conversation
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Only those after this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) after: u64,
    /// Go on with new ones as they come
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Worker {
    /// List the workers with the last line of each
    #[command(
        after_help = "Example:\n  monoctl worker list --json | jq -r '.workers[] | [.role, .pid, .state] | @tsv'"
    )]
    List,
    /// Show the workers of a role and what the kernel enforces on each
    #[command(after_help = "Example:\n  monoctl worker show egress")]
    Show {
        /// Role, as `monoctl worker list` shows it
        #[arg(value_parser = all_roles())]
        role: String,
    },
    /// End the worker of a role and wait until a fresh one serves
    #[command(
        after_help = "Calls that it works on are lost; `monoctl worker drain` lets them finish. The other workers go on.\n\n\
        Exit status: 0 another one serves, 1 it doesn't within 30 s, 3 no daemon.\n\n\
        Example:\n  monoctl worker restart egress"
    )]
    Restart {
        /// Role of an always-on worker
        #[arg(value_parser = always_on())]
        role: String,
    },
    /// Let a worker that failed too often, or that was drained, be started again
    #[command(
        after_help = "`monoctl status` shows parked workers with the last line they logged.\n\n\
        Example:\n  monoctl worker unpark egress"
    )]
    Unpark {
        /// Role of the worker
        #[arg(value_parser = roles())]
        role: String,
    },
    /// Let a worker finish what it does; then its role stays without one
    #[command(after_help = "New turns wait for the role, at most 30 s.\n\n\
        Example:\n  monoctl worker drain channel-openai\n  monoctl worker unpark channel-openai")]
    Drain {
        /// Role of an always-on worker
        #[arg(value_parser = always_on())]
        role: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// List the roles that have a profile
    #[command(after_help = "Example:\n  monoctl policy list")]
    List,
    /// Print a role's profile, and what the kernel has in force for its workers
    #[command(after_help = "Example:\n  monoctl policy show run --json | jq '.workers[].sandbox'")]
    Show {
        /// Role, from `monoctl policy list`
        #[arg(value_parser = all_roles())]
        role: String,
    },
    /// Say in words what a role may do; needs no daemon
    #[command(after_help = "Example:\n  monoctl policy explain egress | less")]
    Explain {
        /// Role, from `monoctl policy list`
        #[arg(value_parser = all_roles())]
        role: String,
    },
}

/// The roles that are started confined.
fn all_roles() -> PossibleValuesParser {
    parser(|role| role != Role::Monod)
}

/// The roles of workers that are ours.
fn roles() -> PossibleValuesParser {
    parser(|role| !matches!(role, Role::Monod | Role::McpServer))
}

/// Those of them that have one worker all the time.
fn always_on() -> PossibleValuesParser {
    parser(|role| !matches!(role, Role::Monod | Role::McpServer | Role::Run))
}

fn parser(has: impl Fn(Role) -> bool) -> PossibleValuesParser {
    let roles = Role::ALL.into_iter().filter(|role| has(*role));
    roles
        .map(|role| PossibleValue::new(role.name()).hide(NOT_YET.contains(&role)))
        .collect::<Vec<_>>()
        .into()
}

/// A script that completes this command line in a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut command = offered(Cli::command());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "monoctl", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        for below in command.get_subcommands() {
            let when = format!("__fish_monoctl_using_subcommand {}", below.get_name());
            fish_values(below, &when, &mut script);
        }
    }
    script
}

/// What may stand in a place without a name: the generator for fish knows only options.
fn fish_values(command: &clap::Command, when: &str, script: &mut String) {
    for place in command.get_positionals() {
        let values = place.get_possible_values();
        let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        if !names.is_empty() {
            let names = names.join(" ");
            script.push_str(&format!(
                "complete -c monoctl -n \"{when}\" -f -a \"{names}\"\n"
            ));
        }
    }
    for below in command.get_subcommands() {
        let name = below.get_name();
        let when = format!("{when}; and __fish_seen_subcommand_from {name}");
        fish_values(below, &when, script);
    }
}

/// The command line without the hidden values, which not every shell's script leaves out by itself.
fn offered(command: clap::Command) -> clap::Command {
    let shown = |arg: clap::Arg| {
        let values = arg.get_possible_values();
        let shown: Vec<_> = values.into_iter().filter(|v| !v.is_hide_set()).collect();
        match shown.is_empty() {
            true => arg,
            false => arg.value_parser(shown),
        }
    };
    command.mut_args(shown).mut_subcommands(offered)
}

/// Channels that have a profile and no worker yet: taken, and offered to nobody.
const NOT_YET: [Role; 4] = [
    Role::ChannelA2a,
    Role::ChannelCron,
    Role::ChannelSlack,
    Role::ChannelTelegram,
];

#[derive(Debug, Args)]
#[command(
    after_help = "The answer goes to standard output; tool calls, warnings and files to standard error.\n\
        With --json every line is a frame of the operator's protocol, and the last one of type\n\
        finish, with a message of {ok, run, text, parts, usage, model}, or error, with a failure.\n\n\
        Examples:\n  monoctl send \"Summarise README.md\"\n  git diff | monoctl send --new -\n  \
        monoctl send --file chart.png \"What does this chart say?\"\n  \
        monoctl send --conversation plan --json \"Go on\" | tail -n1 | jq -r .message.text"
)]
pub(crate) struct Send {
    /// The message; `-` reads it from standard input
    pub(crate) text: String,
    /// Conversation to go on with; its history is kept
    #[arg(
        long,
        value_name = "ID",
        default_value = "terminal",
        conflicts_with = "new"
    )]
    pub(crate) conversation: String,
    /// Begin a conversation of its own
    #[arg(long)]
    pub(crate) new: bool,
    /// Stay after the answer, and print what background tasks answer later
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Attach an image (PNG, JPEG, GIF or WebP); may be repeated
    #[arg(long = "file", value_name = "IMAGE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print the answer to a terminal as it is, control sequences included
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// List runs, newest first
    #[command(
        after_help = "Examples:\n  monoctl runs list --status failed\n  monoctl runs list --conversation terminal --json"
    )]
    List {
        /// Only this conversation
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// Only this status
        #[arg(long, value_parser = ["running", "succeeded", "failed", "cancelled", "interrupted"])]
        status: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show one run with its tool calls and its answer
    #[command(after_help = "Example:\n  monoctl runs show 01998a4e-5f0c-7000-8000-000000000000")]
    Show {
        /// Run, from `monoctl runs list`
        run: String,
    },
    /// End a run that works or waits
    #[command(after_help = "Example:\n  monoctl runs cancel 01998a4e-5f0c-7000-8000-000000000000")]
    Cancel {
        /// Run, from `monoctl runs list`
        run: String,
    },
}

/// Entries that a listing shows unless told.
const PAGE: u32 = 20;

#[derive(Debug, Args)]
pub(crate) struct Page {
    /// Most entries to show, 1 to 100
    #[arg(long, value_name = "NUMBER", default_value_t = PAGE, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Go on where an earlier page ended; that one prints the command
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

impl Page {
    /// The limit as it was written, for the command of the next page.
    pub(crate) fn said(limit: u32) -> Option<String> {
        (limit != PAGE).then(|| limit.to_string())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Apps {
    /// List apps that are kept, newest first
    #[command(after_help = "Example:\n  monoctl apps list --limit 5")]
    List {
        #[command(flatten)]
        page: Page,
    },
    /// Show an app: where it came from, what it may reach, what it does not get
    #[command(after_help = "Example:\n  monoctl apps show 3f2a… --json | jq .refused")]
    Show {
        /// App, from `monoctl apps list` or an answer
        id: String,
    },
    /// End an app's views and what they do, and let it do nothing any more
    #[command(after_help = "Example:\n  monoctl apps close 3f2a…")]
    Close {
        /// App, from `monoctl apps list`
        id: String,
    },
    /// Show what was done in an app's name
    #[command(after_help = "Example:\n  monoctl apps audit 3f2a…")]
    Audit {
        /// App, from `monoctl apps list`
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the configured servers and their connections
    #[command(after_help = "Example:\n  monoctl mcp list")]
    List,
    /// Connect to a server as a run would, and list its tools
    #[command(
        after_help = "Exit status: 0 it answered, 1 it did not.\n\nExample:\n  monoctl mcp probe files"
    )]
    Probe {
        /// Its name in the configuration
        server: String,
    },
    /// Count what apps and the gateway have done since the worker started
    #[command(after_help = "Example:\n  monoctl mcp stats --json")]
    Stats,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Artifacts {
    /// List published files, newest first
    #[command(after_help = "Example:\n  monoctl artifacts list --limit 5")]
    List {
        #[command(flatten)]
        page: Page,
    },
    /// Fetch a published file after checking its size and SHA-256
    #[command(
        after_help = "Examples:\n  monoctl artifacts get 3f2a… -o weekly.csv\n  monoctl artifacts get 3f2a… -o - | less"
    )]
    Get {
        /// Opaque id, from `monoctl artifacts list` or an answer
        id: String,
        /// File to write; `-` is standard output, where nothing but the file comes then
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Tell, section by section, what is ready and what is wrong
    #[command(
        after_help = "Writes nothing, and reads no .env that nobody named. Exit status: 0 usable, 1 errors.\n\n\
        Example:\n  monoctl config check --config mono-agent.config.json"
    )]
    Check {
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Print the JSON Schema of the configuration, for editors
    #[command(after_help = "Example:\n  monoctl config schema > mono-agent.schema.json")]
    Schema,
    /// Show every value with its origin; secrets only as set or unset
    #[command(
        after_help = "Example:\n  monoctl config show --json | jq '.fields[] | select(.origin != \"default\")'"
    )]
    Show {
        #[command(flatten)]
        file: ConfigFile,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file [default: mono-agent.config.json, /etc/mono/mono-agent.config.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File with variables, as for `monod --env-file`; exported ones are stronger
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
