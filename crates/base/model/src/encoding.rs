//! The primitives of every format: a `Writer` that appends to a buffer, and a `Reader` that borrows
//! from one and checks every length against the bytes that are left.
//!
//! ```text
//! u8               one byte
//! number           LEB128, at most 10 bytes, shortest form only
//! bytes            number of bytes, then the bytes
//! digest           32 bytes
//! ```

use std::error::Error;
use std::fmt;

use crate::{Blob, Digest};

/// Why bytes could not be decoded. A `usize` or `at` is an offset in bytes, unless stated
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the value does.
    Truncated(usize),
    /// A number is longer than 64 bits, or not in its shortest form.
    Number(usize),
    /// A tag that this version does not know.
    Tag {
        /// The unknown tag.
        tag: u8,
        /// The offset of the tag, in bytes.
        at: usize,
    },
    /// A count or length is above its limit.
    Limit {
        /// The limit.
        limit: u64,
        /// The offset of the count or length, in bytes.
        at: usize,
    },
    /// The bytes were written by another version of larder.
    Version(u8),
    /// This many bytes are left after the last value.
    Trailing(usize),
    /// The digest at the end is not the digest of the bytes before it.
    Damaged,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated(at) => write!(f, "truncated at byte {at}"),
            DecodeError::Number(at) => write!(f, "malformed number at byte {at}"),
            DecodeError::Tag { tag, at } => write!(f, "unknown tag {tag} at byte {at}"),
            DecodeError::Limit { limit, at } => write!(f, "value above the limit of {limit} at byte {at}"),
            DecodeError::Version(version) => write!(f, "format version {version} is not supported by this larder"),
            DecodeError::Trailing(count) => write!(f, "{count} bytes after the end"),
            DecodeError::Damaged => f.write_str("digest does not match"),
        }
    }
}

impl Error for DecodeError {}

/// Appends values to a buffer.
#[derive(Default)]
pub struct Writer {
    /// The bytes written so far.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// Begins with the version of a format.
    pub fn versioned(version: u8) -> Writer {
        Writer { bytes: vec![version] }
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Appends a number (LEB128), in its shortest form.
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends the length of `value` and its bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// Appends a digest, without a length.
    pub fn digest(&mut self, value: &Digest) {
        self.bytes.extend_from_slice(&value.0);
    }

    /// Appends the digest and the size of a blob.
    pub fn blob(&mut self, blob: &Blob) {
        self.digest(&blob.digest);
        self.number(blob.size_bytes);
    }

    /// Appends the digest of everything written so far, which [`Reader::sealed`] checks, and
    /// returns the bytes.
    pub fn seal(mut self) -> Vec<u8> {
        let digest = Digest::of(&self.bytes);
        self.digest(&digest);
        self.bytes
    }
}

/// Takes values from the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { whole: bytes, at: 0 }
    }

    /// Reads what [`Writer::seal`] wrote, after checking the digest at the end.
    pub fn sealed(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let Some(body) = bytes.len().checked_sub(32) else { return Err(DecodeError::Truncated(bytes.len())) };
        if Digest::of(&bytes[..body]).0 != bytes[body..] {
            return Err(DecodeError::Damaged);
        }
        Ok(Reader::new(&bytes[..body]))
    }

    /// Starts behind the first byte of `bytes`, which must be this version of a format.
    pub fn versioned(bytes: &'a [u8], version: u8) -> Result<Self, DecodeError> {
        match bytes.first() {
            Some(&found) if found == version => Ok(Reader { whole: bytes, at: 1 }),
            Some(&other) => Err(DecodeError::Version(other)),
            None => Err(DecodeError::Truncated(0)),
        }
    }

    /// Reads what [`Writer::seal`] wrote and what begins with this version of a format, which is
    /// checked first.
    pub fn versioned_and_sealed(bytes: &'a [u8], version: u8) -> Result<Self, DecodeError> {
        Reader::versioned(bytes, version)?;
        Ok(Reader { at: 1, ..Reader::sealed(bytes)? })
    }

    /// Returns the offset of the next byte to read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Takes the next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.whole.len());
        let end = end.ok_or(DecodeError::Truncated(self.at))?;
        let bytes = &self.whole[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// Takes one byte that must be 0 or 1.
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.unknown_tag(other)),
        }
    }

    /// Takes a number (LEB128).
    #[inline]
    pub fn number(&mut self) -> Result<u64, DecodeError> {
        // Most numbers are below 128 and take one byte.
        match self.whole.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_number(),
        }
    }

    /// Takes a number of at most `limit`.
    pub fn number_up_to(&mut self, limit: u64) -> Result<u64, DecodeError> {
        let at = self.position();
        let number = self.number()?;
        if number > limit { Err(DecodeError::Limit { limit, at }) } else { Ok(number) }
    }

    /// Takes a number of at most 32 bits.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.number_up_to(u32::MAX.into()).map(|number| number as u32)
    }

    fn long_number(&mut self) -> Result<u64, DecodeError> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 || bits << shift >> shift != bits || byte == 0 && shift > 0 {
                return Err(DecodeError::Number(start));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Number(start))
    }

    /// Takes a number of items that follow. Returns an error if it is larger than the number of
    /// bytes left, because each item takes at least one byte.
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        let at = self.at;
        let count = self.number()?;
        let left = (self.whole.len() - self.at) as u64;
        if count > left {
            return Err(DecodeError::Limit { limit: left, at });
        }
        Ok(count as usize)
    }

    /// Takes a number of at most `limit` items that follow.
    pub fn count_up_to(&mut self, limit: u64) -> Result<usize, DecodeError> {
        let at = self.at;
        match self.count()? {
            count if count as u64 > limit => Err(DecodeError::Limit { limit, at }),
            count => Ok(count),
        }
    }

    /// Takes a byte that is the index of a value in `all`.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T, DecodeError> {
        let code = self.u8()?;
        all.get(usize::from(code)).copied().ok_or(self.unknown_tag(code))
    }

    /// Takes a digest and a size of at most `limit_bytes`.
    pub fn blob(&mut self, limit_bytes: u64) -> Result<Blob, DecodeError> {
        Ok(Blob { digest: self.digest()?, size_bytes: self.number_up_to(limit_bytes)? })
    }

    /// Takes a length and that many bytes. Returns an error if the length is above `limit`.
    #[inline]
    pub fn bytes(&mut self, limit: u64) -> Result<&'a [u8], DecodeError> {
        let at = self.at;
        let length = self.number()?;
        if length > limit {
            return Err(DecodeError::Limit { limit, at });
        }
        self.take(length as usize)
    }

    /// Takes a digest.
    pub fn digest(&mut self) -> Result<Digest, DecodeError> {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.take(32)?);
        Ok(Digest(bytes))
    }

    /// Returns the error for a tag that was just read.
    pub fn unknown_tag(&self, tag: u8) -> DecodeError {
        DecodeError::Tag { tag, at: self.at.saturating_sub(1) }
    }

    /// Returns an error unless all bytes were taken.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.whole.len() - self.at {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: u64, expect: &[u8]) {
        let mut w = Writer::default();
        w.number(value);
        assert_eq!(w.bytes, expect);
        assert_eq!(Reader::new(expect).number(), Ok(value));
    }

    #[test]
    fn numbers() {
        check(0, &[0]);
        check(127, &[127]);
        check(128, &[0x80, 1]);
        check(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for bytes in [&[0x80][..], &[0x80, 0], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert!(Reader::new(bytes).number().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_length_never_passes_the_end() {
        assert!(Reader::new(&[200, 1, 0]).bytes(1 << 20).is_err());
        assert!(Reader::new(&[3, 1, 2, 3]).bytes(2).is_err());
        assert!(Reader::new(&[9, 0]).count().is_err());
    }

    #[test]
    fn a_seal_sees_every_flipped_bit() {
        let mut w = Writer::default();
        w.bytes(b"abc");
        let whole = w.seal();
        assert!(Reader::sealed(&whole).is_ok());
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Reader::sealed(&damaged).is_err());
        }
    }
}
