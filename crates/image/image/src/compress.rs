//! Compression with Zstandard.
//!
//! Unaware of: what is compressed.

use std::io::{self, BufRead, Read, Write};

use zstd::bulk::{Compressor, Decompressor};
use zstd::stream::{read, write};

use crate::ImageError;

/// The compression level of packs and trees. It saves three quarters of what the highest levels
/// save, in a fraction of their time.
const LEVEL: i32 = 3;
/// The logarithm of the most bytes that a stream may refer back: what `zstd --long=31` writes;
/// `actions/cache` uses 30. The memory is reserved, but only the part that is used is touched.
const WINDOW_LOG_MAX: u32 = 31;

/// A reusable compressor.
pub(crate) struct Packer(Compressor<'static>);

/// A reusable decompressor.
pub(crate) struct Unpacker(Decompressor<'static>);

impl Packer {
    pub(crate) fn new() -> Result<Self, ImageError> {
        Compressor::new(LEVEL).map(Packer).map_err(failed)
    }

    /// Compresses `bytes`.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
        self.0.compress(bytes).map_err(failed)
    }
}

impl Unpacker {
    pub(crate) fn new() -> Result<Self, ImageError> {
        Decompressor::new().map(Unpacker).map_err(failed)
    }

    /// Unpacks into `to`, which is cleared first. Returns `None` if there would be more than
    /// `limit` bytes, if the bytes are damaged, or if there is no memory for `limit` bytes.
    pub(crate) fn unpack(&mut self, bytes: &[u8], limit: usize, to: &mut Vec<u8>) -> Option<()> {
        to.clear();
        to.try_reserve_exact(limit).ok()?;
        let count = self.0.decompress_to_buffer(bytes, to).ok()?;
        (count <= limit).then_some(())
    }
}

/// Returns the unpacked size that the bytes claim.
pub(crate) fn unpacked_size(bytes: &[u8]) -> Option<usize> {
    zstd::zstd_safe::get_frame_content_size(bytes).ok()?.and_then(|size| size.try_into().ok())
}

/// Returns a writer that compresses into `to`.
pub(crate) fn writer<W: Write>(to: W) -> Result<write::Encoder<'static, W>, ImageError> {
    let mut stream = write::Encoder::new(to, LEVEL).map_err(failed)?;
    stream.include_checksum(true).map_err(failed)?;
    Ok(stream)
}

/// Returns a reader that decompresses `from`.
pub(crate) fn reader<'a>(from: impl BufRead + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
    let mut stream = read::Decoder::with_buffer(from).map_err(failed)?;
    stream.window_log_max(WINDOW_LOG_MAX).map_err(failed)?;
    Ok(Box::new(stream))
}

fn failed(error: io::Error) -> ImageError {
    ImageError::Source(format!("compression: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_within_the_limit() {
        let bytes: Vec<u8> = (0..100_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let packed = Packer::new().expect("made").pack(&bytes).expect("packs");
        assert!(packed.len() < bytes.len());
        let (mut unpacker, mut back) = (Unpacker::new().expect("made"), Vec::new());
        unpacker.unpack(&packed, bytes.len(), &mut back).expect("unpacks");
        assert_eq!(back, bytes);
        assert_eq!(unpacked_size(&packed), Some(bytes.len()));
        assert!(unpacker.unpack(&packed, 1000, &mut Vec::new()).is_none());
        assert!(unpacker.unpack(&packed[..packed.len() / 2], bytes.len(), &mut back).is_none());
        assert!(unpacker.unpack(b"no such form", 9, &mut back).is_none());
    }
}
