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
//! The file outlives evicted images. It is needed because a signature proves the origin of an image,
//! but not that it is the newest.

use larder_model::ImageKey;

use crate::layout::open_plain;
use crate::slots::Slots;
use crate::{Store, StoreError};

const TIMES: Slots<8, 32> = Slots { count: 1 << 14, key: 16..32 };

impl Store {
    /// Returns when the newest image of this key that was seen here was saved, in milliseconds
    /// since 1970, or 0.
    pub fn newest_image_ms(&self, key: &ImageKey) -> u64 {
        let read = || TIMES.read(&open_plain(&self.file("images").join("newest")).ok()?.0, &key.digest());
        read().map_or(0, u64::from_le_bytes)
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
        let file = self.open_to_write(&path)?;
        TIMES.write(&file, &key.digest(), &saved_ms.to_le_bytes()).map_err(StoreError::writing(&path))
    }
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
}
