//! Mounting for those who may not: a process with rights mounts images for jobs without, among the mounts that those
//! jobs see.
//!
//! | file | holds |
//! |---|---|
//! | `supply.rs` | where images come from: the broker's own, never the client's |
//! | `policy.rs` | who may have what mounted where |
//! | `seats.rs` | how much each user has under way, and what is said of them |
//! | `host.rs` | one mount an image for all jobs of the machine |
//! | `serve.rs` | one request from one connection; nothing believed |
//! | `message.rs` | requests and replies, and their bytes |
//! | `client.rs` | the job's side |
//!
//! What a client says is a name and a directory that it has opened. Who it is the kernel says (`SO_PEERCRED`), which
//! mounts it sees, too (`SO_PEERPIDFD`). No path of a client's is looked up.

mod client;
mod host;
mod message;
mod policy;
mod seats;
mod serve;
mod supply;

pub use client::{Client, Wish};
pub use host::Programs;
pub use policy::{MOUNTS_MAX, Policy};
pub use serve::Broker;
#[cfg(feature = "fuzzing")]
pub(crate) use message::again;
pub use supply::{Lazily, Ready, Supplied, Supply, Traced};
