//! The client of durable continuations: what a service needs to claim work and submit its result, and what an
//! operator or an embedding program needs to look and to act. It speaks HTTP to this machine and to no other.
//!
//! ```no_run
//! # async fn example() -> Result<(), continuation_client::Error> {
//! use continuation_client::{Claim, ClaimCapability, Payload};
//! let capability = ClaimCapability::from_environment()?;
//! let claimed = capability
//!     .claim(&Claim {
//!         task_key: "report-7".into(),
//!         task_hash: "sha256-of-the-task".into(),
//!         deadline: "2030-01-02T03:04:05Z".into(),
//!     })
//!     .await?;
//! // Hours later, perhaps in another process that kept `claimed`:
//! let payload = Payload::parse(r#"{"summary":"done"}"#).map_err(|_| continuation_client::Error::Payload)?;
//! claimed.result()?.submit("report-7-result", &payload).await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod claim;
mod operator;
mod wire;

pub use claim::{Accepted, Claim, ClaimCapability, Claimed, Detached, Results};
pub use continuation_record::Payload;
pub use continuation_record::token::{Secret, Token};
pub use operator::{Operator, Page, Resolution, Status};
pub use wire::{Endpoint, Error};
