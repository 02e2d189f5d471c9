//! What can go wrong between the two.

use std::io;

use larder_model::DecodeError;

/// Trouble with the other side. None of it fails a build, nor ends `larderd`.
#[derive(Debug, thiserror::Error)]
pub enum IpcError {
    /// Nobody listens, or nobody answered in time.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What came is no message of ours.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// At the other end is somebody else.
    #[error("user {0} is at the other end")]
    Stranger(u32),
    /// More descriptors came than were announced, or more were announced than are taken.
    #[error("too many descriptors")]
    TooMany,
    /// The other side left in the middle of a message.
    #[error("it left in the middle of a message")]
    Ended,
    /// The message has no place here.
    #[error("a message that has no place here")]
    Unexpected,
    /// The time for a whole message is over.
    #[error("it took too long")]
    Late,
}
