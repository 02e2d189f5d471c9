//! What wrapper and `larderd` say to each other over the socket in the store's directory.
//!
//! | file | holds |
//! |---|---|
//! | `frame.rs` | the short messages on the socket, and their bytes |
//! | `parcel.rs` | what a wrapper hands over, and its bytes |
//! | `incoming.rs` | what comes, put together to messages |
//! | `client.rs` | handing over without waiting; asking and stopping; asking for a fetch |
//! | `server.rs` | the other side: one request from one connection, what follows a fetch; nothing believed |
//!
//! A frame is a few bytes. Everything large is in files that are passed as descriptors: the parcel first, then a file
//! for each blob that it names. So nobody waits until somebody has read.
//!
//! Unaware of: where the socket is, how anything is stored, what is recorded.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod client;
mod error;
mod frame;
#[cfg(target_os = "linux")]
mod incoming;
mod parcel;
#[cfg(target_os = "linux")]
mod server;

#[cfg(target_os = "linux")]
pub use client::{Fetching, Told, ask, ask_remotes, flush_remotes, hand_over, listens, note_recorded, note_use, stop};
pub use error::IpcError;
pub use frame::{
    Caller, DIRECTORY_BYTES_MAX, Expect, FRAME_BYTES_MAX, Frame, HEADER_BYTES, Nothing, Remotes, State,
    TROUBLE_BYTES_MAX, Terms, Unshared,
};
pub use parcel::{BLOBS_MAX, Handed, PARCEL_BYTES_MAX, Parcel};
#[cfg(target_os = "linux")]
pub use server::{Recorded, Request, Session, Step, answer, receive, say};
