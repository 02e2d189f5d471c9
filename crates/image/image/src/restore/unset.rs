//! Counts of metadata that could not be set.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of metadata that could not be set.
#[derive(Debug, Default)]
pub struct Unset {
    pub(super) owners: AtomicU64,
    pub(super) attributes: AtomicU64,
}

impl Unset {
    /// Returns how many files of other users now belong to the restoring user.
    pub fn owners(&self) -> u64 {
        self.owners.load(Relaxed)
    }

    /// Returns how many extended attributes the file system or the kernel rejected.
    pub fn attributes(&self) -> u64 {
        self.attributes.load(Relaxed)
    }
}
