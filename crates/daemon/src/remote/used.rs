//! The list of records that builds of a commit used, and its bytes on a remote.
//!
//! ```text
//! used = u8 format version, number of records, record*, digest of all before it
//! record = digest weak fingerprint, digest strong fingerprint
//! ```
//! What it says is a hint: a record that it names is verified like any, and one that it does not name is asked for.

use std::collections::HashSet;

use larder_model::{DecodeError, FORMAT_VERSION, Reader, Writer};
use larder_store::Upload;

/// Records that are listed, 64 bytes each: what fits into a small object with room to spare.
pub(crate) const USED_MAX: usize = 12_288;

/// Records in the order in which they were first used, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    list: Vec<Upload>,
    known: HashSet<Upload>,
}

impl Used {
    /// Add one; false where it is there. Beyond the limit it is not.
    pub(crate) fn add(&mut self, record: Upload) -> bool {
        let new = self.list.len() < USED_MAX && self.known.insert(record);
        if new {
            self.list.push(record);
        }
        new
    }

    /// Add all of another one, after what is there.
    pub(crate) fn extend(&mut self, other: &Used) {
        for record in &other.list {
            self.add(*record);
        }
    }

    pub(crate) fn contains(&self, record: &Upload) -> bool {
        self.known.contains(record)
    }

    pub(crate) fn records(&self) -> &[Upload] {
        &self.list
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(FORMAT_VERSION);
        w.number(self.list.len() as u64);
        for (weak, strong) in &self.list {
            w.digest(weak);
            w.digest(strong);
        }
        w.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Used, DecodeError> {
        let mut r = Reader::sealed(bytes)?;
        match r.u8()? {
            FORMAT_VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        let at = r.position();
        let count = r.count()?;
        if count > USED_MAX {
            return Err(DecodeError::Limit { limit: USED_MAX as u64, at });
        }
        let mut used = Used::default();
        for _ in 0..count {
            used.add((r.digest()?, r.digest()?));
        }
        r.finish()?;
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use larder_model::Digest;

    use super::*;

    fn record(n: u64) -> Upload {
        (Digest::of(&n.to_le_bytes()), Digest::of(b"strong"))
    }

    #[test]
    fn there_and_back_and_never_damaged() {
        let mut used = Used::default();
        assert!(used.add(record(1)) && used.add(record(2)) && !used.add(record(1)));
        let bytes = used.encode();
        assert_eq!(Used::decode(&bytes), Ok(used.clone()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(Used::decode(&damaged).is_err(), "byte {at}");
        }
        let mut other = Used::default();
        other.add(record(3));
        other.add(record(1));
        used.extend(&other);
        assert_eq!(used.records(), [record(1), record(2), record(3)]);
    }

    #[test]
    fn it_has_a_limit() {
        let mut used = Used::default();
        (0..USED_MAX as u64 + 5).for_each(|n| drop(used.add(record(n))));
        assert_eq!(used.records().len(), USED_MAX);
        assert!((used.encode().len() as u64) < larder_remote::SMALL_BYTES_MAX);
    }
}
