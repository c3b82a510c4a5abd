//! The configuration: one JSON file, the environment, and the defaults, in that order of weakness.
//!
//! - [`load`] gives a [`Config`] with absolute paths, or every problem at once with its place.
//! - [`fields`] is the one key table; validation, [`schema`], [`docs_markdown`] and `config show` come
//!   from it.
//! - [`check`] tells, section by section, what is ready and what waits for a setting.
//!
//! Nothing here touches the network, writes a file or keeps a secret longer than it must.

#![forbid(unsafe_code)]

mod check;
mod config;
mod diagnostic;
mod docs;
mod env;
mod field;
mod form;
pub mod json;
mod load;
mod mcp;
mod paths;
mod report;
mod rules;
mod schema;
mod secret;
mod shape;
mod table;
mod value;
mod walk;

pub use check::{Report, SectionReport, Status, check};
pub use config::*;
pub use diagnostic::{Diagnostic, Errors, Severity};
pub use docs::docs_markdown;
pub use env::{Env, read_env_file};
pub use field::{Base, ENV_PREFIX, Fallback, Field, Form, Kind};
pub use form::is_loopback;
pub use load::{Loaded, load};
pub use report::{FieldReport, Origin};
pub use rules::TOOL_NAMES;
pub use schema::schema;
pub use secret::{Secret, SecretSource};
pub use table::{field, fields};
