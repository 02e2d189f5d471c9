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
//! a small compile takes. The file is sparse. A slot is written by one system call, and the last
//! writer wins. A reader that finds a slot of another subject, or a half-written one, finds
//! nothing.
//!
//! Unaware of: what a subject stands for (`lookup::subject`).

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use larder_model::{Digest, Fingerprint};

use crate::layout::open_plain;
use crate::{Store, StoreError};

const SLOTS: u64 = 1 << 17;
const SLOT_BYTES: usize = 64;
const SUBJECT_BYTES: usize = 24;
const NOTED_BYTES: usize = 56;

impl Store {
    /// Notes `weak` as the fingerprint last recorded for the commands that `subject` stands for.
    pub fn note_neighbour(&self, subject: &Digest, weak: &Fingerprint) -> Result<(), StoreError> {
        let path = self.file("near");
        let file = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false))?;
        let mut slot = [&subject.0[..SUBJECT_BYTES], &weak.0].concat();
        slot.extend_from_slice(&Digest::of(&slot).0[..SLOT_BYTES - NOTED_BYTES]);
        file.write_all_at(&slot, offset_bytes(subject)).map_err(StoreError::writing(&path))
    }

    /// Returns the fingerprint last recorded for the commands that `subject` stands for.
    pub fn neighbour(&self, subject: &Digest) -> Option<Fingerprint> {
        let (file, _) = open_plain(&self.file("near")).ok()?;
        let mut slot = [0; SLOT_BYTES];
        file.read_exact_at(&mut slot, offset_bytes(subject)).ok()?;
        let (noted, check) = slot.split_at(NOTED_BYTES);
        let (of, weak) = noted.split_at(SUBJECT_BYTES);
        let holds = of == &subject.0[..SUBJECT_BYTES] && Digest::of(noted).0.starts_with(check);
        holds.then(|| weak.try_into().ok().map(Digest)).flatten()
    }
}

fn offset_bytes(subject: &Digest) -> u64 {
    subject.place_among(SLOTS) * SLOT_BYTES as u64
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
