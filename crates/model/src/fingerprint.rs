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
