//! A model service for tests: speaks the three wires and misbehaves on request.
//!
//! It listens on loopback, needs no key, has no think time, and answers what directives in the newest
//! user message that carries any tell it to; without one it says `pong`.
//!
//! | directive | effect |
//! |---|---|
//! | `[[mock:text hello]]` | answers `hello` |
//! | `[[mock:think hmm]]` | reasons `hmm` before its answer |
//! | `[[mock:tool NAME {"a":1}]]` | calls the tool (exact name, or a name that ends with it), then answers; the n-th after n tool results |
//! | `[[mock:bigtool NAME 2097152]]` | as `tool`, with an argument `message` of that many bytes |
//! | `[[mock:echo]]` | its text repeats the last tool result |
//! | `[[mock:long 5000]]` | answers that many words |
//! | `[[mock:delay 2000]]`, `[[mock:gap 50]]` | milliseconds before the answer; between stream events |
//! | `[[mock:piece 5]]` | cuts its answer into events of that many characters |
//! | `[[mock:status 429 7]]` | refuses with that status, and `retry-after` if a second number is there |
//! | `[[mock:flaky 2 503 0]]` | refuses so the first two times that it sees this message, then works |
//! | `[[mock:cut 2]]` | drops the connection after two stream events |
//! | `[[mock:cut-first 1 2]]` | the first time only, drops the connection after two stream events |
//! | `[[mock:malformed]]` | sends one event that is no JSON |
//! | `[[mock:garbage]]` | answers 200 with bytes that are no event stream |
//! | `[[mock:hang]]`, `[[mock:stall 2]]` | never answers; falls silent after two stream events |
//! | `[[mock:hold 2 /a/file]]` | falls silent after two stream events until that file is there, for a minute at most |
//! | `[[mock:leak]]` | refuses with 400 and quotes the key it was given |
//!
//! `[[mock@MODEL:…]]` holds for requests for that model only. `GET /v1/models`, `/stats`, `/health`
//! and `POST /reset` are for the tests' own book-keeping.

mod conversation;
mod directive;
mod server;
mod wires;

pub use server::{MockModel, Seen, Stats};
