//! The command line. `monoctl man` reads it too, so it stands alone.

use clap::Parser;
use std::path::PathBuf;

/// The supervisor of mono: hosts AI agents with every duty in its own sandboxed process.
///
/// Start it with a configuration and talk to it with `monoctl`.
#[derive(Debug, Parser)]
#[command(
    name = "monod",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  monod --check\n  monod --config mono-agent.config.json\n  monoctl send \"hello\"\n\n\
                  Exit status: 0 after an orderly stop or a good --check; 1 when it can't start; 2 wrong command line."
)]
pub(crate) struct Arguments {
    /// The configuration, a JSON file.
    #[arg(long, value_name = "FILE", default_value = "mono-agent.config.json")]
    pub(crate) config: PathBuf,
    /// A file with variables (`NAME=value` in each line) to start with. Exported ones are stronger; no
    /// `.env` is read that is not named here.
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// The file whose variables this program was executed with.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) env_taken: Option<PathBuf>,
    /// The admin socket [default: `monod.sock` in the state directory].
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The folder that holds mono-launch and the workers [default: the folder of this program].
    #[arg(long, value_name = "DIR")]
    pub(crate) libexec: Option<PathBuf>,
    /// Run although the kernel can't give everything that the policy asks for. What is missing
    /// shows in every status.
    #[arg(long)]
    pub(crate) allow_degraded: bool,
    /// Check the configuration and what the kernel offers, say what is missing, then exit: 0 when
    /// the daemon would start, 1 when not.
    #[arg(long)]
    pub(crate) check: bool,
    /// With `--check`: also fail unless this program takes over what a running one of this format
    /// leaves.
    #[arg(long, value_name = "FORMAT", hide = true)]
    pub(crate) takes_over: Option<u32>,
    /// Go on with what an earlier image of this process left on standard input (`monoctl reload
    /// --exec` does this).
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
}
