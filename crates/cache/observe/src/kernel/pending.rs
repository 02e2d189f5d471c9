//! Calls that were let go on and whose effect is not checked yet.
//!
//! Unaware of: how an effect is checked.

use super::process::Caller;

/// What can be seen once a call has done what was foreseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The path exists. The event of this index still lacks the identity of the new file.
    Made { event: usize },
    /// The path exists.
    There,
    /// The path does not exist.
    Gone,
    /// The process runs the program of this device and inode.
    Runs { image: (u64, u64) },
}

/// A call that was let go on and whose effect is not checked yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) caller: Caller,
    pub(super) path: Vec<u8>,
    pub(super) expected: Expected,
}
