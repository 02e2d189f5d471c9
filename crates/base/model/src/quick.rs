//! Hash tables of paths and numbers that live for one run. A fast hash without protection against
//! chosen keys is enough, because the keys come from the build itself and no attacker profits from
//! collisions. With the standard hash, tables took half of the instructions of a small compile's
//! miss.
//!
//! Unaware of: what the tables hold.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map with the fast hash.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
/// A hash set with the fast hash.
pub type Set<K> = HashSet<K, BuildHasherDefault<Quick>>;

/// A hash that takes eight bytes at a time: it multiplies to 128 bits and combines the two halves
/// with exclusive or ("folded multiply", as in wyhash and foldhash).
#[derive(Clone, Copy)]
pub struct Quick(u64);

impl Default for Quick {
    /// Starts with the fractional digits of pi, as foldhash does.
    fn default() -> Self {
        Quick(0x243f_6a88_85a3_08d3)
    }
}

impl Quick {
    /// The golden ratio as a 64-bit fraction.
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

    /// Names like those in builds are put into as many buckets as there are names. About 63 of 100
    /// buckets should be used, which is what random numbers give.
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
