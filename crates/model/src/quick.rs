//! Tables of paths and numbers of one run. Their keys come of the build itself, so nobody gains by having them
//! collide, and a hash that costs little will do: of a small compile's miss, tables took half the instructions.
//!
//! Unaware of: what is kept.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// From such keys.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
/// Of such keys.
pub type Set<K> = HashSet<K, BuildHasherDefault<Quick>>;

/// A word at a time: exclusive or, multiply to twice as many bits, and fold these ("folded multiply", as wyhash and
/// foldhash do it).
#[derive(Clone, Copy)]
pub struct Quick(u64);

impl Default for Quick {
    /// The fractional part of pi, as foldhash begins.
    fn default() -> Self {
        Quick(0x243f_6a88_85a3_08d3)
    }
}

impl Quick {
    /// The golden ratio's bits.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(Quick::FACTOR);
        self.0 = (wide as u64) ^ (wide >> u64::BITS) as u64;
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_ne_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_ne_bytes(last));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as builds have them, in a table of as many buckets: about as few collide as by chance (63 of 100 buckets
    /// are taken).
    #[test]
    fn names_are_spread() {
        const COUNT: usize = 1 << 14;
        let hash = |name: &str| {
            let mut quick = Quick::default();
            quick.write(name.as_bytes());
            quick.finish() as usize % COUNT
        };
        for form in ["/usr/include/x86_64/part-", "/w/", "conftest", "a/very/long/path/to/some/where/else/with/file_"] {
            let taken: Set<usize> = (0..COUNT).map(|number| hash(&format!("{form}{number}.h"))).collect();
            assert!(taken.len() > COUNT * 60 / 100, "{form}: {} of {COUNT}", taken.len());
        }
    }
}
