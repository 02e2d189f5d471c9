//! How much memory tools needed: the peak of one command, and that of its kind.
//!
//! ```text
//! needs: 65,536 slots of 16 bytes; the slot of a key is given by the first eight bytes of its
//!        digest (little-endian, modulo the number of slots):
//!   0…7   the last bytes of the digest
//!   8…11  the peak memory of one process, KiB, little-endian
//!   12…15 first bytes of the digest of these 12 bytes
//! ```
//!
//! A wrong value costs waiting or memory, and nothing else.
//!
//! Unaware of: what the numbers are used for.

use std::fs::File;

use larder_model::Digest;

use crate::layout::open_plain;
use crate::slots::Slots;
use crate::{Store, StoreError};

const PEAKS: Slots<4, 16> = Slots { count: 1 << 16, key: 24..32 };

/// If a command needs less than the noted peak of its kind, the peak is lowered by this fraction of
/// the difference.
const FORGOTTEN: u64 = 16;
/// A change of less than this fraction is not written.
const ROUGHLY: u64 = 8;

impl Store {
    /// Returns the peak memory of a process of this command in its last run, in KiB. If that is not
    /// known, returns approximately the highest peak of its kind.
    pub fn needed_kb(&self, command: &Digest, kind: &Digest) -> Option<u64> {
        let (file, _) = open_plain(&self.file("needs")).ok()?;
        peak_kb(&file, command).or_else(|| peak_kb(&file, kind))
    }

    /// Notes the peak of a run.
    pub fn note_needed(&self, command: &Digest, kind: &Digest, now_kb: u64) -> Result<(), StoreError> {
        let path = self.file("needs");
        let file = self.open_to_change(&path)?;
        let write = |key, kb: u64| {
            let kb = u32::try_from(kb).unwrap_or(u32::MAX);
            PEAKS.write(&file, key, &kb.to_le_bytes()).map_err(StoreError::writing(&path))
        };
        if peak_kb(&file, command).is_none_or(|before| before.abs_diff(now_kb) > before / ROUGHLY) {
            write(command, now_kb)?;
        }
        let before = peak_kb(&file, kind);
        let kind_kb = before.map_or(now_kb, |before| now_kb.max(before - before.saturating_sub(now_kb) / FORGOTTEN));
        if before != Some(kind_kb) { write(kind, kind_kb) } else { Ok(()) }
    }
}

fn peak_kb(file: &File, key: &Digest) -> Option<u64> {
    PEAKS.read(file, key).map(|bytes| u32::from_le_bytes(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_by_its_last_run_and_a_kind_by_its_largest() {
        let dir = tempfile::tempdir().expect("makes a directory");
        let store = Store::open(dir.path()).expect("opens");
        let [one, other, kind] = [1, 2, 3].map(|number| Digest([number; 32]));
        assert_eq!(store.needed_kb(&one, &kind), None);
        store.note_needed(&one, &kind, 100_000).expect("writes");
        assert_eq!(store.needed_kb(&other, &kind), Some(100_000));
        store.note_needed(&other, &kind, 20_000).expect("writes");
        assert_eq!(store.needed_kb(&one, &kind), Some(100_000));
        assert_eq!(store.needed_kb(&other, &kind), Some(20_000));
        assert_eq!(store.needed_kb(&Digest([9; 32]), &kind), Some(95_000));
        store.note_needed(&one, &kind, 30_000).expect("writes");
        assert_eq!(store.needed_kb(&one, &kind), Some(30_000));
        for _ in 0..60 {
            store.note_needed(&one, &kind, 1000).expect("writes");
        }
        assert!(store.needed_kb(&Digest([9; 32]), &kind).is_some_and(|kb| kb < 10_000));
    }
}
