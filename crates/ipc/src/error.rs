//! What can go wrong between the two.

use std::error::Error;
use std::fmt;
use std::io;

use larder_model::DecodeError;

/// Trouble with the other side. None of it fails a build, nor ends `larderd`.
#[derive(Debug)]
pub enum IpcError {
    /// Nobody listens, or nobody answered in time.
    Io(io::Error),
    /// What came is no message of ours.
    Malformed(DecodeError),
    /// At the other end is somebody else.
    Stranger(u32),
    /// More descriptors came than were announced, or more were announced than are taken.
    TooMany,
    /// The other side left in the middle of a message.
    Ended,
    /// The message has no place here.
    Unexpected,
    /// The time for a whole message is over.
    Late,
    /// `larderd` takes nothing that is handed over.
    TakesNothing,
}

impl fmt::Display for IpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpcError::Io(error) => error.fmt(f),
            IpcError::Malformed(error) => error.fmt(f),
            IpcError::Stranger(user) => write!(f, "user {user} is at the other end"),
            IpcError::TooMany => f.write_str("too many descriptors"),
            IpcError::Ended => f.write_str("it left in the middle of a message"),
            IpcError::Unexpected => f.write_str("a message that has no place here"),
            IpcError::Late => f.write_str("it took too long"),
            IpcError::TakesNothing => f.write_str("it gives hits only (`--hits-only`, or `handover = \"off\"`)"),
        }
    }
}

impl Error for IpcError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            IpcError::Io(error) => error.source(),
            IpcError::Malformed(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for IpcError {
    fn from(error: io::Error) -> Self {
        IpcError::Io(error)
    }
}

impl From<DecodeError> for IpcError {
    fn from(error: DecodeError) -> Self {
        IpcError::Malformed(error)
    }
}
