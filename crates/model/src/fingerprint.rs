//! Fingerprints, and the one walk over an Action that both makes them and explains them.
//!
//! A value is keyed by being given to a `Walk`. `FingerprintWalk` hashes it, `ExplainWalk` keeps it, so "why did this
//! miss" is answered by the same code that made the key and cannot leave anything out. (The idea is n2's: one trait,
//! a terse and a telling hash behind it.)

use crate::{Digest, DigestWriter};

/// The digest of an Action: weak before its observations are known, strong with them.
pub type Fingerprint = Digest;

/// Receives each value that is keyed, by name, in a fixed order.
pub trait Walk {
    /// One keyed value. `name` tells two values apart that would otherwise be the same bytes.
    fn field(&mut self, name: &str, value: &[u8]);
}

/// Hashes what it is given. Names and values are told apart by their lengths, so no two walks give the same bytes.
#[derive(Default)]
pub struct FingerprintWalk(DigestWriter);

impl FingerprintWalk {
    /// The digest of the walk.
    pub fn finish(&self) -> Fingerprint {
        self.0.finish()
    }

    /// The digest of the walk, and the key for values that are observed beside it.
    pub fn finish_with_key(&self) -> (Fingerprint, ValueKey) {
        let (weak, key) = self.0.finish_longer();
        (weak, ValueKey(key))
    }
}

/// The key of the digests of variables' values in a record.
///
/// A record names a variable that the tool asked for and has a digest of its value, so that a hit can compare it. The
/// digest of a short value, such as a PIN, could be found by trying, and records lie on remotes. So the digest is keyed
/// with BLAKE3's output for the whole action, beyond the 32 bytes that are the weak fingerprint. Another machine
/// that asks for the same action has this key. A reader of the remote has the fingerprint only, which does not tell it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ValueKey([u8; 32]);

impl ValueKey {
    /// A key for tests, and for values that are compared within one process.
    pub const ZERO: ValueKey = ValueKey([0; 32]);

    /// The keyed digest of a value.
    pub fn digest(&self, value: &[u8]) -> Digest {
        Digest(*blake3::keyed_hash(&self.0, value).as_bytes())
    }
}

impl Walk for FingerprintWalk {
    fn field(&mut self, name: &str, value: &[u8]) {
        self.0.update(&(name.len() as u32).to_le_bytes());
        self.0.update(name.as_bytes());
        self.0.update(&(value.len() as u64).to_le_bytes());
        self.0.update(value);
    }
}

/// One keyed value, kept for explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is.
    pub name: String,
    /// Its bytes, as keyed.
    pub value: Vec<u8>,
}

/// Keeps what it is given.
#[derive(Default)]
pub struct ExplainWalk {
    /// In the order of the walk.
    pub fields: Vec<Field>,
}

impl Walk for ExplainWalk {
    fn field(&mut self, name: &str, value: &[u8]) {
        self.fields.push(Field { name: name.to_owned(), value: value.to_vec() });
    }
}
