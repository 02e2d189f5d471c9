//! Pseudo-random mutations of bytes, which are determined by one number.

/// An endless sequence of mutated seeds. It is the same for the same number.
pub struct Mutations {
    seeds: Vec<Vec<u8>>,
    state: u64,
}

const BYTES_MAX: usize = 16 << 10;
/// Numbers at which decoders have their limits.
const NUMBERS: [u64; 12] = [0, 1, 31, 32, 127, 128, 255, 4096, 65_536, 1 << 31, u32::MAX as u64, u64::MAX];
/// Pieces of text that have a meaning in one of the formats.
const PIECES: [&[u8]; 24] = [
    b"\\\n",
    b"\"",
    b"'",
    b"/*",
    b"*/",
    b"//",
    b"#include",
    b"<",
    b">",
    b"%:",
    b"R\"(",
    b"\0",
    b"\0\x01",
    b"=",
    b"@f",
    b"-",
    b"-o",
    b"[[",
    b"{",
    b"\xff",
    b"\xc3\xa9",
    b": ",
    b"$$",
    b"_Pragma(\"",
];

impl Mutations {
    /// Mutations of `seeds`, determined by `number`.
    pub fn new(seeds: Vec<Vec<u8>>, number: u64) -> Mutations {
        Mutations { seeds, state: number | 1 }
    }

    /// Returns the next number of SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit.max(1) as u64) as usize
    }

    fn seed(&mut self) -> Vec<u8> {
        let at = self.below(self.seeds.len());
        self.seeds.get(at).cloned().unwrap_or_default()
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        match self.random() % 9 {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.random() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, part));
            }
            4 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let count = 1 << self.below(4);
                drop(bytes.splice(at..at.max(end.min(at + count)), number[..count].iter().copied()));
            }
            5 => {
                let piece = PIECES[self.below(PIECES.len())];
                drop(bytes.splice(at..at, piece.iter().copied()));
            }
            6 => bytes.truncate(at),
            7 => {
                let other = self.seed();
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let random = self.random().to_le_bytes();
                drop(bytes.splice(at..at, random));
            }
        }
    }
}

impl Iterator for Mutations {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut bytes = self.seed();
        for _ in 0..1 + self.below(8) {
            self.change(&mut bytes);
        }
        bytes.truncate(BYTES_MAX);
        Some(bytes)
    }
}
