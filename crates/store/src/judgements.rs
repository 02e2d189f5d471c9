//! What is known of how programs are observed: a judgement for each.

use larder_model::{Digest, Judgement};

use crate::layout::{Contents, read_plain};
use crate::{Store, StoreError};

/// A judgement has a few hundred looks.
const JUDGEMENT_BYTES_MAX: u64 = 4 << 20;

impl Store {
    /// The judgement kept under `key`, if there is one that can be read.
    pub fn judgement(&self, key: &Digest) -> Option<Judgement> {
        let bytes = read_plain(&self.path_of(Contents::Judgements, key), JUDGEMENT_BYTES_MAX).ok()?;
        Judgement::decode(&bytes).ok()
    }

    /// Keep `judgement` under `key`.
    pub fn keep_judgement(&self, key: &Digest, judgement: &Judgement) -> Result<(), StoreError> {
        let mut temporary = self.temporary()?;
        temporary.write_all(&judgement.encode())?;
        temporary.place(&self.path_of(Contents::Judgements, key))
    }
}
