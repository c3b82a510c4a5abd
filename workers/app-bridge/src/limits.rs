//! Every bound that the app-bridge enforces on a server, in one place, so that a test can lower it
//! and a reader can see the whole budget at once.

use std::time::Duration;

/// Bounds on one server and on one call.
///
/// All sizes are bytes. The defaults are the values of the specification where it names one
/// (`tools.mcpCallTimeoutMs`, `tools.mcpCallMaxTotalTimeoutMs`), and else leave a well-behaved
/// server an order of magnitude of room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte sent to a usable connection, `initialize` included.
    pub connect: Duration,
    /// How long an unanswered `server/discover` may hold up the fallback to `initialize`.
    pub discover: Duration,
    /// For the whole of `tools/list`, all pages together.
    pub list: Duration,
    /// A call that shows no progress for this long is given up.
    pub call_inactivity: Duration,
    /// A call is given up after this long whatever progress it shows.
    pub call_total: Duration,
    /// How long a write of a cancellation may block before the connection counts as wedged.
    pub cancel_write: Duration,
    /// One JSON-RPC message: a stdio line, an SSE event, a JSON reply.
    pub message: usize,
    /// The arguments of one call, as JSON.
    pub arguments: usize,
    /// One converted call result, as JSON.
    pub result: usize,
    /// Pages of one `tools/list`.
    pub pages: usize,
    /// Tools of one server; those beyond are left out with a warning.
    pub tools: usize,
    /// The input schema of one tool, as JSON.
    pub schema: usize,
    /// The description of one tool; longer ones are cut.
    pub description: usize,
    /// All tools of one server together, as JSON.
    pub listing: usize,
    /// Rounds of questions that a server may answer a call with (protocol 2026-07-28).
    pub input_rounds: usize,
    /// A page of an app, with its metadata; and the fresh listing that a call of an app needs.
    pub page: Duration,
    /// A call of an app.
    pub app_call: Duration,
    /// Servers are told that apps are shown, and their pages are read.
    pub apps: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            discover: Duration::from_secs(3),
            list: Duration::from_secs(30),
            call_inactivity: Duration::from_secs(120),
            call_total: Duration::from_secs(2_700),
            cancel_write: Duration::from_secs(2),
            // A page of 8 MiB in base64, with what JSON puts around it.
            message: 16 * MIB,
            arguments: 2 * MIB,
            result: 16 * MIB,
            pages: 64,
            tools: 512,
            schema: 256 * KIB,
            description: 16 * KIB,
            listing: 4 * MIB,
            input_rounds: 10,
            page: Duration::from_secs(10),
            app_call: Duration::from_secs(20),
            apps: true,
        }
    }
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Longest tool name; the protocol allows 128 characters.
pub const TOOL_NAME_MAX: usize = 128;
/// Text of an error or warning that travels to a person, in bytes.
pub const MESSAGE_MAX: usize = 512;
/// Text of one progress report, in bytes.
pub const PROGRESS_TEXT_MAX: usize = 512;
/// Progress reports that may wait for a slow reader; further ones are dropped, the call is not.
pub const PROGRESS_QUEUE: usize = 32;
/// Calls in flight on one connection.
pub const CALLS_PER_CONNECTION: usize = 16;

/// `text` cut to at most `max` bytes at a character boundary, control characters made spaces.
///
/// What a server writes reaches logs and terminals through warnings: it may not carry escapes.
pub fn printable(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if out.len() + c.len_utf8() > max {
            break;
        }
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_bounds_and_disarms() {
        assert_eq!(printable("a\x1b[31mb\n", 64), "a [31mb");
        assert_eq!(printable("ééé", 5), "éé");
        assert_eq!(printable("", 5), "");
    }
}
