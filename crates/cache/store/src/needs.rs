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
//! As in `near`, the file is sparse and the last writer of a slot wins. A wrong value costs waiting
//! or memory, and nothing else.
//!
//! Unaware of: what the numbers are used for.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use larder_model::Digest;

use crate::layout::open_plain;
use crate::{Store, StoreError};

const SLOTS: u64 = 1 << 16;
const SLOT_BYTES: usize = 16;
const NAME_BYTES: usize = 8;
const NOTED_BYTES: usize = 12;

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
        slot(&file, command).or_else(|| slot(&file, kind))
    }

    /// Notes the peak of a run.
    pub fn note_needed(&self, command: &Digest, kind: &Digest, peak_kb: u64) -> Result<(), StoreError> {
        let path = self.file("needs");
        let mut options = OpenOptions::new();
        let file = self.open_or_make(&path, options.read(true).write(true).create(true).truncate(false))?;
        let write = |key, now_kb| {
            file.write_all_at(&encoded(key, now_kb), offset_bytes(key)).map_err(StoreError::writing(&path))
        };
        if slot(&file, command).is_none_or(|before| before.abs_diff(peak_kb) > before / ROUGHLY) {
            write(command, peak_kb)?;
        }
        let before = slot(&file, kind);
        let now_kb = before.map_or(peak_kb, |before| peak_kb.max(before - before.saturating_sub(peak_kb) / FORGOTTEN));
        if before != Some(now_kb) { write(kind, now_kb) } else { Ok(()) }
    }
}

fn slot(file: &File, key: &Digest) -> Option<u64> {
    let mut slot = [0; SLOT_BYTES];
    file.read_exact_at(&mut slot, offset_bytes(key)).ok()?;
    let number: [u8; 4] = slot[NAME_BYTES..NOTED_BYTES].try_into().ok()?;
    let peak_kb = u64::from(u32::from_le_bytes(number));
    (encoded(key, peak_kb) == slot).then_some(peak_kb)
}

fn encoded(key: &Digest, peak_kb: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..NAME_BYTES].copy_from_slice(&key.0[key.0.len() - NAME_BYTES..]);
    slot[NAME_BYTES..NOTED_BYTES].copy_from_slice(&u32::try_from(peak_kb).unwrap_or(u32::MAX).to_le_bytes());
    let check = Digest::of(&slot[..NOTED_BYTES]);
    slot[NOTED_BYTES..].copy_from_slice(&check.0[..SLOT_BYTES - NOTED_BYTES]);
    slot
}

fn offset_bytes(key: &Digest) -> u64 {
    key.place_among(SLOTS) * SLOT_BYTES as u64
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

    #[test]
    fn exact_bytes() {
        let slot = encoded(&Digest([7; 32]), 0x0102_0304);
        assert_eq!(slot[..12], [7, 7, 7, 7, 7, 7, 7, 7, 4, 3, 2, 1]);
        let mut damaged = slot;
        damaged[9] ^= 1;
        let dir = tempfile::tempdir().expect("makes a directory");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(dir.path().join("needs"));
        let file = file.expect("opens");
        let key = Digest([7; 32]);
        file.write_all_at(&slot, offset_bytes(&key)).expect("writes");
        assert_eq!(super::slot(&file, &key), Some(0x0102_0304));
        file.write_all_at(&damaged, offset_bytes(&key)).expect("writes");
        assert_eq!(super::slot(&file, &key), None);
    }
}
