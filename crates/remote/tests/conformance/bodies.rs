//! Bodies for the tests: in pieces, broken, or without an end.

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use larder_remote::{Body, Key, RemoteError};
use std::io;
use std::sync::Arc;

/// Returns a body in pieces of `piece` bytes.
pub(crate) fn pieces(bytes: &Bytes, piece: usize) -> Body {
    let starts = (0..bytes.len()).step_by(piece);
    let all: Vec<_> = starts.map(|at| Ok(bytes.slice(at..(at + piece).min(bytes.len())))).collect();
    stream::iter(all).boxed()
}

/// Returns a body that fails after these bytes.
pub(crate) fn broken(key: Key, bytes: Bytes) -> Body {
    let error = RemoteError::Here { key, source: Arc::new(io::Error::other("broken on purpose")) };
    stream::iter([Ok(bytes), Err(error)]).boxed()
}

/// Returns a body that stalls after these bytes.
pub(crate) fn stuck(bytes: Bytes) -> Body {
    stream::iter([Ok(bytes)]).chain(stream::pending()).boxed()
}
