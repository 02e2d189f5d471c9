//! The broker: a process with the right to mount, which mounts images for jobs that do not have it.
//! It mounts them in the mount namespaces of those jobs.
//!
//! | file | holds |
//! |---|---|
//! | `supply.rs` | where images come from: files that this process made itself |
//! | `policy.rs` | which users may mount where, and how much |
//! | `seats.rs` | limits on connections, requests and log lines of each user |
//! | `host.rs` | one mount of each image, shared by all jobs of the machine |
//! | `serve.rs` | accepts connections and answers one request on each |
//! | `message.rs` | requests and replies, and their encoding |
//! | `client.rs` | the client, which runs in the job |
//!
//! A client sends a name and a directory that it has opened. The kernel tells the broker which user
//! and which process connected (`SO_PEERCRED`, `SO_PEERPIDFD`), and so which mount namespace is
//! meant. The broker never resolves a path that a client sent.
//!
//! Unaware of: records and remotes; `Supply` hides them.

mod client;
mod host;
mod message;
mod policy;
mod seats;
mod serve;
mod supply;

pub use client::{Client, Wish};
pub use host::Programs;
#[cfg(feature = "fuzzing")]
pub(crate) use message::again;
pub use policy::{MOUNTS_MAX, Policy};
pub use serve::Broker;
pub use supply::{Lazily, Ready, Supplied, Supply, Traced};
