//! The three pipes of a stdio server: bounded lines in, and the last line of its standard error.

use crate::limits::{MESSAGE_MAX, printable};
use rmcp::RoleClient;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A reader whose stream ends with an error when one line grows past a bound.
///
/// rmcp drops such a line and keeps the connection, so the call that the line answers would wait
/// for its inactivity limit and then be told the wrong reason.
pub struct BoundedLines<R> {
    inner: R,
    max: usize,
    line: usize,
    overflow: Overflow,
}

/// Says whether a peer was cut off because of an oversized message.
#[derive(Debug, Clone, Default)]
pub struct Overflow(Arc<AtomicBool>);

impl Overflow {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<R> BoundedLines<R> {
    /// `max` bytes a line, its newline not counted.
    pub fn new(inner: R, max: usize, overflow: Overflow) -> Self {
        Self {
            inner,
            max,
            line: 0,
            overflow,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let mut parts = buf.filled()[before..].split(|byte| *byte == b'\n');
        // The first part continues the line that the last read left open.
        let mut line = self.line + parts.next().map_or(0, <[u8]>::len);
        let mut longest = line;
        for part in parts {
            line = part.len();
            longest = longest.max(line);
        }
        self.line = line;
        if longest > self.max {
            self.overflow.set();
            // A failed read hands out nothing.
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::other("a message exceeds the accepted size")));
        }
        Poll::Ready(Ok(()))
    }
}

/// The stdio transport over a server's output and input, with every line bounded.
pub fn transport<R, W>(
    output: R,
    input: W,
    max_line: usize,
    overflow: &Overflow,
) -> AsyncRwTransport<RoleClient, BoundedLines<R>, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let lines = BoundedLines::new(output, max_line, overflow.clone());
    // Our bound fires first; rmcp's would drop the line and keep the caller waiting.
    AsyncRwTransport::new(lines, input).with_max_line_length(usize::MAX)
}

/// Lines that may follow one that names an error before it counts as history: what Node.js prints
/// below an error that nobody caught is about ten, and ends with its own version.
const BELOW_AN_ERROR: u32 = 24;

/// The most telling line of the latest that a server wrote to its standard error: the last one, or
/// the one shortly before it that names an error.
#[derive(Debug, Clone, Default)]
pub struct LastLine(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    line: String,
    /// How many lines have come below one that names an error; `None` when it names none.
    below: Option<u32>,
}

impl LastLine {
    /// Printable and at most [`MESSAGE_MAX`] bytes; empty when nothing was said.
    pub fn get(&self) -> String {
        self.words().line.clone()
    }

    fn set(&self, line: &[u8]) {
        let line = printable(&String::from_utf8_lossy(line), MESSAGE_MAX);
        if line.is_empty() {
            return;
        }
        let mut words = self.words();
        if names_an_error(&line) {
            *words = Words {
                line,
                below: Some(0),
            };
            return;
        }
        match words.below {
            Some(lines) if lines < BELOW_AN_ERROR => words.below = Some(lines + 1),
            _ => *words = Words { line, below: None },
        }
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As runtimes print it: `Error: …`, `TypeError: …`, `error: …`, `java.lang.Exception: …`.
fn names_an_error(line: &str) -> bool {
    ["rror: ", "rror [", "xception: "]
        .iter()
        .any(|word| line.contains(word))
}

/// Reads `stderr` to its end, so that the server never blocks on it, and keeps the last line.
/// Holds at most one bounded line, whatever the server writes.
pub async fn drain(server: String, mut stderr: impl AsyncRead + Unpin, last: LastLine) {
    let mut chunk = [0u8; 4096];
    let mut line: Vec<u8> = Vec::new();
    // A read error ends it like an end of file: there is nobody to tell.
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        for part in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
            let room = (4 * MESSAGE_MAX).saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                last.set(&line);
                let said = printable(&String::from_utf8_lossy(&line), MESSAGE_MAX);
                tracing::debug!(%server, line = %said, "stderr");
                line.clear();
            }
        }
    }
    last.set(&line);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    async fn read_all(chunks: &[&[u8]], max: usize) -> (io::Result<Vec<u8>>, bool) {
        let mut builder = tokio_test::io::Builder::new();
        for chunk in chunks {
            builder.read(chunk);
        }
        let overflow = Overflow::default();
        let mut reader = BoundedLines::new(builder.build(), max, overflow.clone());
        let mut out = Vec::new();
        let result = reader.read_to_end(&mut out).await;
        (result.map(|_| out), overflow.happened())
    }

    #[tokio::test]
    async fn lines_up_to_the_bound_pass_whatever_their_chunks() {
        let (read, overflow) = read_all(&[b"123", b"45\n1234", b"5\n", b"\n\n12345"], 5).await;
        assert_eq!(read.unwrap(), b"12345\n12345\n\n\n12345");
        assert!(!overflow);
    }

    #[tokio::test]
    async fn one_byte_more_ends_the_stream_and_says_so() {
        for chunks in [
            &[b"123456\n" as &[u8]] as &[&[u8]],
            &[b"123", b"456"],
            &[b"a\n123456\nb\n"],
        ] {
            let (read, overflow) = read_all(chunks, 5).await;
            assert!(read.is_err() && overflow, "{chunks:?}");
        }
    }

    #[tokio::test]
    async fn the_last_line_is_kept_and_disarmed() {
        let last = LastLine::default();
        assert_eq!(last.get(), "");
        drain(
            "s".into(),
            &b"first\n\x1b[31mno such module\n\n"[..],
            last.clone(),
        )
        .await;
        assert_eq!(last.get(), " [31mno such module");
        drain("s".into(), &b"unfinished"[..], last.clone()).await;
        assert_eq!(last.get(), "unfinished");
    }

    #[tokio::test]
    async fn a_line_that_names_an_error_says_more_than_what_is_printed_below_it() {
        let node = b"node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\n\
            Error: Cannot find module '/opt/x.js'\n    at Function._resolveFilename (loader:1225:15)\n    \
            at run_main:170:5 {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.20.2\n";
        let last = LastLine::default();
        drain("s".into(), &node[..], last.clone()).await;
        assert_eq!(last.get(), "Error: Cannot find module '/opt/x.js'");
        // A later error takes its place at once, and so much else in the end.
        last.set(b"TypeError: x");
        assert_eq!(last.get(), "TypeError: x");
        for n in 0..BELOW_AN_ERROR {
            last.set(format!("line {n}").as_bytes());
            assert_eq!(last.get(), "TypeError: x");
        }
        last.set(b"one more");
        assert_eq!(last.get(), "one more");
        last.set(b"ready");
        assert_eq!(last.get(), "ready");
    }

    #[tokio::test]
    async fn an_endless_line_is_bounded() {
        let last = LastLine::default();
        let endless = tokio::io::repeat(b'x').take(10 << 20);
        drain("s".into(), endless, last.clone()).await;
        assert_eq!(last.get().len(), MESSAGE_MAX);
    }

    proptest! {
        /// The reader refuses exactly the inputs that hold a line longer than the bound.
        #[test]
        fn refuses_exactly_the_long_lines(input in proptest::collection::vec(
            prop_oneof![3 => Just(b'a'), 1 => Just(b'\n')], 0..64), max in 0usize..8) {
            let long = input.split(|b| *b == b'\n').any(|line| line.len() > max);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let result = runtime.block_on(async {
                let mut out = Vec::new();
                BoundedLines::new(&input[..], max, Overflow::default())
                    .read_to_end(&mut out)
                    .await
            });
            prop_assert_eq!(result.is_err(), long);
        }
    }
}
