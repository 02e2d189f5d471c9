//! For each key of an image, when the newest image was saved that this store has seen. So an
//! attacker cannot make a client restore an older image.
//!
//! ```text
//! images/newest: 16,384 slots of 32 bytes; the slot of a key is given by the first eight bytes of
//!                its digest (little-endian, modulo the number of slots):
//!   0…15  the last bytes of the digest
//!   16…23 milliseconds since 1970, little-endian
//!   24…31 first bytes of the digest of these 24 bytes
//! ```
//!
//! As in `near`, the file is sparse and the last writer of a slot wins. It outlives evicted images.
//! It is needed because a signature proves the origin of an image, but not that it is the newest.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use larder_model::{Digest, ImageKey};

use crate::layout::open_plain;
use crate::{Store, StoreError};

const SLOTS: u64 = 1 << 14;
const SLOT_BYTES: usize = 32;
const NAME_BYTES: usize = 16;
const NOTED_BYTES: usize = 24;

impl Store {
    /// Returns when the newest image of this key that was seen here was saved, in milliseconds
    /// since 1970, or 0.
    pub fn newest_image_ms(&self, key: &ImageKey) -> u64 {
        let read = || slot(&open_plain(&self.file("images").join("newest")).ok()?.0, &key.digest());
        read().unwrap_or(0)
    }

    /// Notes that an image of this key was seen that was saved at `saved_ms`. At most `now_ms` is
    /// noted, because otherwise a date in the future would exclude all later images.
    pub fn note_newest_image(&self, key: &ImageKey, saved_ms: u64, now_ms: u64) -> Result<(), StoreError> {
        let saved_ms = saved_ms.min(now_ms);
        if saved_ms <= self.newest_image_ms(key) { Ok(()) } else { self.set_newest_image(key, saved_ms) }
    }

    /// Forgets the time, so that the next image of this key may be older.
    pub(crate) fn forget_newest_image(&self, key: &ImageKey) -> Result<(), StoreError> {
        if self.newest_image_ms(key) == 0 { Ok(()) } else { self.set_newest_image(key, 0) }
    }

    fn set_newest_image(&self, key: &ImageKey, saved_ms: u64) -> Result<(), StoreError> {
        let path = self.file("images").join("newest");
        let file = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false))?;
        let digest = key.digest();
        file.write_all_at(&encoded(&digest, saved_ms), offset_bytes(&digest)).map_err(StoreError::writing(&path))
    }
}

fn slot(file: &File, key: &Digest) -> Option<u64> {
    let mut slot = [0; SLOT_BYTES];
    file.read_exact_at(&mut slot, offset_bytes(key)).ok()?;
    let number: [u8; 8] = slot[NAME_BYTES..NOTED_BYTES].try_into().ok()?;
    let saved_ms = u64::from_le_bytes(number);
    (encoded(key, saved_ms) == slot).then_some(saved_ms)
}

fn encoded(key: &Digest, saved_ms: u64) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..NAME_BYTES].copy_from_slice(&key.0[key.0.len() - NAME_BYTES..]);
    slot[NAME_BYTES..NOTED_BYTES].copy_from_slice(&saved_ms.to_le_bytes());
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
    fn the_newest_that_was_seen_is_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let [one, other] = ["one", "other"].map(|key| key.parse::<ImageKey>().expect("a key"));
        assert_eq!(store.newest_image_ms(&one), 0);
        for (saved_ms, newest_ms) in [(5, 5), (3, 5), (8, 8), (1000, 100)] {
            store.note_newest_image(&one, saved_ms, 100).expect("notes");
            assert_eq!(store.newest_image_ms(&one), newest_ms);
        }
        assert_eq!(store.newest_image_ms(&other), 0);
        store.forget_newest_image(&one).expect("forgets");
        assert_eq!(store.newest_image_ms(&one), 0);
    }

    #[test]
    fn exact_bytes() {
        let slot = encoded(&Digest([7; 32]), 0x0102_0304_0506_0708);
        assert_eq!(slot[..NOTED_BYTES], [[7; 8], [7; 8], [8, 7, 6, 5, 4, 3, 2, 1]].concat());
    }
}
