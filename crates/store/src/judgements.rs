//! What is known of how programs are observed: a judgement for each.

use larder_model::{Digest, Judgement};

use crate::layout::{Contents, read_plain};
use crate::{Store, StoreError};

/// A judgement has a few hundred looks.
const JUDGEMENT_BYTES_MAX: u64 = 4 << 20;

impl Store {
    /// Returns the judgement kept under `key`, if there is one that can be read. What was handed over counts only for a
    /// process that cannot write the store, and only if nothing else is known.
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

    /// Keep a judgement that was handed over, apart from the others.
    pub fn keep_judgement_handed_over(&self, key: &Digest, judgement: &Judgement) -> Result<(), StoreError> {
        let mut temporary = self.temporary()?;
        temporary.write_all(&judgement.encode())?;
        temporary.place(&self.path_of(Contents::JudgementsHandedOver, key))
    }

    /// Keep `judgement` under `key`.
    pub fn keep_judgement(&self, key: &Digest, judgement: &Judgement) -> Result<(), StoreError> {
        let mut temporary = self.temporary()?;
        temporary.write_all(&judgement.encode())?;
        temporary.place(&self.path_of(Contents::Judgements, key))
    }
}
