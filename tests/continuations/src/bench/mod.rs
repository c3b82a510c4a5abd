//! What the store and the service of continuations do in a second, each beside a baseline of the
//! same run. The service listens as in the product; the host behind it answers at once or never.

mod appends;
mod figures;
mod fill;
mod load;
mod server;

pub use figures::measure;
pub use server::serve;
