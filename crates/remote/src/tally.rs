//! Counts of rejected records and of conflicts between writers, for `larder stats`.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of events that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Lists and records that were damaged or missing.
    Damaged,
    /// Records that belong to another fingerprint.
    Foreign,
    /// Records without a signature of a trusted key, while signatures are required.
    Unsigned,
    /// Records of failed runs without a signature of a trusted key.
    Failed,
    /// Blobs that ended early or had the wrong digest.
    WrongBlobs,
    /// Lists that another writer changed between our read and our write.
    Contended,
    /// Records of ours that another writer overwrote, and that were put back.
    PutBack,
}

impl Share {
    /// All kinds, in the order of their counters.
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

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [AtomicU64; Share::ALL.len()],
}

impl Tally {
    /// Returns one of the counts.
    pub fn of(&self, share: Share) -> u64 {
        self.counts[share as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, share: Share, count: u64) {
        if count > 0 {
            self.counts[share as usize].fetch_add(count, Ordering::Relaxed);
        }
    }
}
