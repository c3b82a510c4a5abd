//! What the measuring programs `bench-*` share.
//!
//! A measuring program prints one JSON object of a [`Figure`] on standard output. It measures its
//! baseline in the same run, in turns with the figure, so that what else the machine does weighs
//! on both.

mod bed;
pub mod bubblewrap;
mod http;
mod model;
mod samples;

pub use bed::{ArtifactWorker, Bed, Started, Worker};
pub use http::{Answer, Request, exchange, swallow};
pub use model::Model;
pub use samples::{Figure, Samples};

/// Ends a measuring program: the figure on standard output, or the reason on standard error.
#[must_use]
pub fn report(measured: anyhow::Result<Figure>) -> std::process::ExitCode {
    match measured {
        Ok(figure) => {
            println!("{}", figure.json());
            std::process::ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
