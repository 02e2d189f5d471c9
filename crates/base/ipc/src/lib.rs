//! The protocol between the wrapper (`larder`) and the daemon (`larderd`), over a Unix socket in
//! the store's directory.
//!
//! | file | holds |
//! |---|---|
//! | `frame.rs` | the messages on the socket, and their encoding |
//! | `parcel.rs` | the encoding of a hand-over: the outcome and the record of a run |
//! | `incoming.rs` | a receive buffer that assembles the received bytes into messages |
//! | `client.rs` | the client: handing over without waiting, asking, stopping, asking for a fetch |
//! | `server.rs` | the server: reads the request of a connection, and what follows a fetch |
//!
//! A frame is a few bytes long. Everything large is in files that are passed as descriptors. For
//! example, a hand-over passes the parcel's file first, and then one file for each blob that the
//! parcel names. So a sender never waits until the receiver has read the data.
//!
//! Unaware of: where the socket is, how anything is stored, what is recorded.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod client;
mod error;
mod frame;
mod incoming;
mod parcel;
mod server;

pub use client::{Fetching, Told, ask, ask_remotes, flush_remotes, hand_over, listens, note_recorded, note_use, stop};
pub use error::IpcError;
pub use frame::{
    Caller, DIRECTORY_BYTES_MAX, Expect, FRAME_BYTES_MAX, Frame, HEADER_BYTES, Nothing, Recorded, Remotes, State,
    TROUBLE_BYTES_MAX, Terms, Unshared,
};
pub use parcel::{BLOBS_MAX, Handed, PARCEL_BYTES_MAX, Parcel};
pub use server::{Request, Session, Step, answer, receive, say};
