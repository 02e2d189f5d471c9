//! The weak fingerprint that was last recorded for each source file. `explain` compares a miss with
//! that record.
//!
//! ```text
//! near: 131,072 slots of 64 bytes; the slot of a subject is given by the first eight bytes of its
//!       digest (little-endian, modulo the number of slots):
//!   0…23  first bytes of the subject's digest
//!   24…55 the weak fingerprint
//!   56…63 first bytes of the digest of these 56 bytes
//! ```
//!
//! All subjects share one file, because creating a file costs more than the rest of what recording
//! a small compile takes.
//!
//! Unaware of: what a subject stands for (`lookup::subject`).

use larder_model::{Digest, Fingerprint};

use crate::layout::open_plain;
use crate::slots::Slots;
use crate::{Store, StoreError};

const FINGERPRINTS: Slots<32, 64> = Slots { count: 1 << 17, key: 0..24 };

impl Store {
    /// Notes `weak` as the fingerprint last recorded for the commands that `subject` stands for.
    pub fn note_neighbour(&self, subject: &Digest, weak: &Fingerprint) -> Result<(), StoreError> {
        let path = self.file("near");
        let file = self.open_to_write(&path)?;
        FINGERPRINTS.write(&file, subject, &weak.0).map_err(StoreError::writing(&path))
    }

    /// Returns the fingerprint last recorded for the commands that `subject` stands for.
    pub fn neighbour(&self, subject: &Digest) -> Option<Fingerprint> {
        let (file, _) = open_plain(&self.file("near")).ok()?;
        FINGERPRINTS.read(&file, subject).map(Digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_be_noted_is_found() {
        let dir = tempfile::tempdir().expect("makes a directory");
        let store = Store::open(dir.path()).expect("opens");
        let [one, other, weak, later] = [1, 2, 3, 4].map(|number| Digest([number; 32]));
        assert_eq!(store.neighbour(&one), None);
        store.note_neighbour(&one, &weak).expect("writes");
        store.note_neighbour(&other, &one).expect("writes");
        store.note_neighbour(&one, &later).expect("writes");
        assert_eq!((store.neighbour(&one), store.neighbour(&other)), (Some(later), Some(one)));
        let mut same_slot = one;
        same_slot.0[31] = 9;
        same_slot.0[20] = 9;
        assert_eq!(store.neighbour(&same_slot), None);
    }
}
