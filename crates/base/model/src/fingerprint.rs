//! Fingerprints, and the one walk over an Action that both computes and explains them.
//!
//! A value becomes part of the key by being given to a `Walk`. `FingerprintWalk` hashes the values,
//! and `ExplainWalk` keeps them. So `larder explain` answers "why did this miss" with the code that
//! made the key, and cannot omit a value. (The idea is n2's: one trait with a hashing and an
//! explaining implementation.)

use crate::{Digest, DigestWriter};

/// The digest of an Action: *weak* without its observations, *strong* with them.
pub type Fingerprint = Digest;

/// Receives each keyed value with its name, in a fixed order.
pub trait Walk {
    /// Receives one keyed value. The name keeps two values apart whose bytes are equal.
    fn field(&mut self, name: &str, value: &[u8]);
}

/// Hashes the names and values that it receives. Each is preceded by its length, so two different
/// walks never hash the same bytes.
#[derive(Default)]
pub struct FingerprintWalk(DigestWriter);

impl FingerprintWalk {
    /// Returns the digest of the walk.
    pub fn finish(&self) -> Fingerprint {
        self.0.finish()
    }

    /// Returns the digest of the walk, and the key for digests of the values of variables.
    pub fn finish_with_key(&self) -> (Fingerprint, ValueKey) {
        let (weak, key) = self.0.finish_longer();
        (weak, ValueKey(key))
    }
}

/// The key with which a record's digests of the values of variables are made.
///
/// A record names each variable that the tool asked for, with a digest of its value, so that a hit
/// can compare it. Records are on remotes, and a plain digest of a short value, such as a PIN,
/// could be found by trying. So the digest is keyed, with BLAKE3's output for the whole action
/// beyond the 32 bytes that are the weak fingerprint. Another machine that looks up the same action
/// has this key. A reader of the remote has only the fingerprint, from which the key cannot be
/// computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ValueKey([u8; 32]);

impl ValueKey {
    /// An all-zero key for tests, and for values that are only compared within one process.
    pub const ZERO: ValueKey = ValueKey([0; 32]);

    /// Returns the keyed digest of a value.
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

/// One keyed value, kept for an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name of the value.
    pub name: String,
    /// The bytes of the value, as keyed.
    pub value: Vec<u8>,
}

/// Keeps the names and values that it receives.
#[derive(Default)]
pub struct ExplainWalk {
    /// The values in the order of the walk.
    pub fields: Vec<Field>,
}

impl Walk for ExplainWalk {
    fn field(&mut self, name: &str, value: &[u8]) {
        self.fields.push(Field { name: name.to_owned(), value: value.to_vec() });
    }
}
