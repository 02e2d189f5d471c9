//! What was not believed, and what others' writing cost: numbers for `larder stats`.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Lists and records that were damaged, or gone.
    Damaged,
    /// Records of another fingerprint.
    Foreign,
    /// Records that nobody whom we believe signed.
    Unsigned,
    /// Records of failed runs that nobody whom we believe signed.
    Failed,
    /// Blobs that were cut or had other bytes than their name says.
    WrongBlobs,
    /// Lists that somebody else wrote between our look and our write.
    Contended,
    /// Records of ours that somebody else overwrote, and that were put back.
    PutBack,
}

impl Share {
    /// All of them, in their order.
    pub const ALL: [Share; 7] = [
        Share::Damaged,
        Share::Foreign,
        Share::Unsigned,
        Share::Failed,
        Share::WrongBlobs,
        Share::Contended,
        Share::PutBack,
    ];
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [AtomicU64; Share::ALL.len()],
}

impl Tally {
    /// How many of these there were.
    pub fn of(&self, share: Share) -> u64 {
        self.counts[share as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, share: Share, count: u64) {
        if count > 0 {
            self.counts[share as usize].fetch_add(count, Ordering::Relaxed);
        }
    }
}
