//! Tables with one value for each key, which the last writer sets: a sparse file of slots with a
//! fixed size.
//!
//! ```text
//! slot: the last KEY bytes of the key's digest (`near`: the first), then VALUE bytes, then the
//!       first bytes of the digest of both, up to SLOT bytes
//! ```
//!
//! The first eight bytes of the key's digest choose the slot: little-endian, modulo the number of
//! slots. A slot is written by one system call, and the last writer wins. A reader that finds a
//! slot of another key, or a half-written one, finds nothing.
//!
//! Unaware of: where the file is, and what the values mean.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use larder_model::Digest;

/// The layout of a table whose slots have `SLOT` bytes.
pub(crate) struct Slots<const VALUE: usize, const SLOT: usize> {
    pub(crate) count: u64,
    /// Which bytes of a key's digest are in its slot.
    pub(crate) key: Range<usize>,
}

impl<const VALUE: usize, const SLOT: usize> Slots<VALUE, SLOT> {
    /// Returns the value of a key.
    pub(crate) fn read(&self, file: &File, key: &Digest) -> Option<[u8; VALUE]> {
        let mut slot = [0; SLOT];
        file.read_exact_at(&mut slot, self.offset_bytes(key)).ok()?;
        let value = slot[self.key.len()..][..VALUE].try_into().ok()?;
        (self.encode(key, &value) == slot).then_some(value)
    }

    /// Sets the value of a key.
    pub(crate) fn write(&self, file: &File, key: &Digest, value: &[u8; VALUE]) -> io::Result<()> {
        file.write_all_at(&self.encode(key, value), self.offset_bytes(key))
    }

    fn encode(&self, key: &Digest, value: &[u8; VALUE]) -> [u8; SLOT] {
        let mut slot = [0; SLOT];
        let (content, check) = slot.split_at_mut(self.key.len() + VALUE);
        let (of, noted) = content.split_at_mut(self.key.len());
        of.copy_from_slice(&key.0[self.key.clone()]);
        noted.copy_from_slice(value);
        check.copy_from_slice(&Digest::of(content).0[..check.len()]);
        slot
    }

    fn offset_bytes(&self, key: &Digest) -> u64 {
        key.place_among(self.count) * SLOT as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_bytes() {
        let table = Slots::<4, 16> { count: 8, key: 24..32 };
        let key = Digest([7; 32]);
        let slot = table.encode(&key, &[4, 3, 2, 1]);
        assert_eq!(slot[..12], [7, 7, 7, 7, 7, 7, 7, 7, 4, 3, 2, 1]);
        assert_eq!(slot[12..], Digest::of(&slot[..12]).0[..4]);
        let file = tempfile::tempfile().expect("opens");
        table.write(&file, &key, &[4, 3, 2, 1]).expect("writes");
        assert_eq!(table.read(&file, &key), Some([4, 3, 2, 1]));
        let mut damaged = slot;
        damaged[9] ^= 1;
        file.write_all_at(&damaged, table.offset_bytes(&key)).expect("writes");
        assert_eq!(table.read(&file, &key), None);
    }
}
