//! The errors of the protocol.

use std::error::Error;
use std::fmt;
use std::io;

use larder_model::DecodeError;

/// An error in the exchange with the other side. None of these fails a build or stops `larderd`.
#[derive(Debug)]
pub enum IpcError {
    /// A system call failed. For example, no process listens on the socket, or no answer came in
    /// time.
    Io(io::Error),
    /// The received bytes are not a valid message.
    Malformed(DecodeError),
    /// The process at the other end runs as another user, with this user id.
    Stranger(u32),
    /// A limit is exceeded: a message passes or announces too many descriptors, or a parcel is too
    /// long.
    TooMany,
    /// The connection was closed before the expected message was complete.
    Ended,
    /// The message is valid, but not allowed at this point of the protocol.
    Unexpected,
    /// The time limit for a whole message has passed.
    Late,
    /// `larderd` accepts no hand-overs, because it was started with `--hits-only` or `handover =
    /// "off"`.
    TakesNothing,
}

impl fmt::Display for IpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpcError::Io(error) => error.fmt(f),
            IpcError::Malformed(error) => error.fmt(f),
            IpcError::Stranger(user) => write!(f, "another user (user id {user}) is at the other end of the socket"),
            IpcError::TooMany => f.write_str("too many files or bytes for one message"),
            IpcError::Ended => f.write_str("the connection was closed before a whole message came"),
            IpcError::Unexpected => f.write_str("an unexpected message came"),
            IpcError::Late => f.write_str("no whole message came in time"),
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
