//! Judgements: for each program, whether the preloaded library sees all that it does.
//!
//! Unaware of: how a judgement is made and what follows from it.

use larder_model::{Digest, Judgement};

use crate::layout::{Contents, read_plain};
use crate::{Store, StoreError};

/// The maximum size of a file with a judgement, in bytes. A judgement has a few hundred accesses.
const JUDGEMENT_BYTES_MAX: u64 = 4 << 20;

impl Store {
    /// Returns the judgement stored under `key`, if it can be read. A judgement that was handed
    /// over is used only if this process cannot write the store, and there is no other one than
    /// `Again`.
    pub fn judgement(&self, key: &Digest) -> Option<Judgement> {
        let read = |table| {
            let bytes = read_plain(&self.path_of(table, key), JUDGEMENT_BYTES_MAX).ok()?;
            Judgement::decode(&bytes).ok()
        };
        let own = read(Contents::Judgements);
        match own {
            None | Some(Judgement::Again) if self.is_only_read() => read(Contents::JudgementsHandedOver).or(own),
            own => own,
        }
    }

    /// Stores a judgement that was handed over, apart from the others.
    pub fn keep_judgement_handed_over(&self, key: &Digest, judgement: &Judgement) -> Result<(), StoreError> {
        self.put_judgement(Contents::JudgementsHandedOver, key, judgement)
    }

    /// Stores `judgement` under `key`.
    pub fn keep_judgement(&self, key: &Digest, judgement: &Judgement) -> Result<(), StoreError> {
        self.put_judgement(Contents::Judgements, key, judgement)
    }

    fn put_judgement(&self, table: Contents, key: &Digest, judgement: &Judgement) -> Result<(), StoreError> {
        self.put_file(&self.path_of(table, key), &judgement.encode())
    }
}
