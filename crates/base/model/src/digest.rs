//! Digest and Blob: how bytes are named by their content.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// A BLAKE3 digest, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// The name of a content in the content-addressed store: its digest and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blob {
    /// Digest of the bytes.
    pub digest: Digest,
    /// The number of bytes.
    pub size_bytes: u64,
}

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the digest as 64 lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(DIGITS[usize::from(byte >> 4)] as char);
            text.push(DIGITS[usize::from(byte & 15)] as char);
        }
        text
    }

    /// Returns a slot number below `count`: the first eight bytes as a little-endian integer,
    /// modulo `count`.
    pub fn place_among(&self, count: u64) -> u64 {
        self.0.first_chunk().copied().map_or(0, u64::from_le_bytes) % count
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex()[..12])
    }
}

/// The error for a text that is not 64 hexadecimal digits.
#[derive(Debug)]
pub struct ParseDigestError(String);

impl fmt::Display for ParseDigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a digest: {:?} (64 hexadecimal digits are expected)", self.0)
    }
}

impl Error for ParseDigestError {}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseDigestError(text.to_owned());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(bad());
        }
        let value = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0]).ok_or_else(bad)? << 4 | value(pair[1]).ok_or_else(bad)?;
        }
        Ok(Digest(bytes))
    }
}

/// Computes the digest of bytes that come in pieces.
#[derive(Default)]
pub struct DigestWriter(blake3::Hasher);

impl DigestWriter {
    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of everything added so far, and the next 32 bytes of BLAKE3's output.
    /// These cannot be computed from the digest.
    pub fn finish_longer(&self) -> (Digest, [u8; 32]) {
        let (mut digest, mut more, mut output) = ([0; 32], [0; 32], self.0.finalize_xof());
        output.fill(&mut digest);
        output.fill(&mut more);
        (Digest(digest), more)
    }

    /// Returns the digest of everything added so far.
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_back() {
        let d = Digest::of(b"larder");
        assert_eq!(d.hex().parse::<Digest>().expect("own text"), d);
        assert!("xyz".parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }

    #[test]
    fn pieces_are_the_whole() {
        let mut w = DigestWriter::default();
        w.update(b"lar");
        w.update(b"der");
        assert_eq!(w.finish(), Digest::of(b"larder"));
        assert_eq!(w.finish_longer().0, Digest::of(b"larder"));
    }
}
