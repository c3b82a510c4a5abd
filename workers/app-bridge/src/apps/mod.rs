//! MCP Apps: pages of servers that show the result of a call. The authority over them; the page
//! that shows them only relays (spec s0, "MCP Apps"; spec s2).
//!
//! [`meta`], [`origins`], [`redact`], [`heal`], [`rules`], [`rate`] and [`quota`] are pure. [`vault`] and
//! [`audit`] are what is on the disk, [`capture`] is how an app comes there and [`drafts`] what is shown
//! before, [`views`] is what a person has open, and [`desk`] answers, with [`authority`] for what needs a server.

pub mod audit;
pub mod authority;
mod books;
pub mod capture;
pub mod desk;
pub mod drafts;
pub mod files;
pub mod folder;
pub mod handover;
pub mod heal;
pub mod house;
pub mod manifest;
pub mod meta;
pub mod operator;
pub mod origins;
pub mod proposals;
pub mod quota;
pub mod rate;
pub mod redact;
pub mod refusal;
pub mod rules;
mod security;
pub mod space;
pub mod stand;
pub mod vault;
pub mod views;
