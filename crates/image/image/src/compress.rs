//! Compression with Zstandard. On machines for which the library is not built there are no images.
//!
//! Unaware of: what is compressed.

use std::io::{self, BufRead, Read, Write};

use crate::ImageError;

/// The compression level of packs and trees. It saves three quarters of what the highest levels
/// save, in a fraction of their time.
const LEVEL: i32 = 3;

/// A reusable compressor.
pub(crate) struct Packer(inner::Packer);

/// A reusable decompressor.
pub(crate) struct Unpacker(inner::Unpacker);

impl Packer {
    pub(crate) fn new() -> Result<Self, ImageError> {
        inner::packer(LEVEL).map(Packer)
    }

    /// Compresses `bytes`.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
        inner::pack(&mut self.0, bytes)
    }
}

impl Unpacker {
    pub(crate) fn new() -> Result<Self, ImageError> {
        inner::unpacker().map(Unpacker)
    }

    /// Unpacks into `to`, which is cleared first. Returns `None` if there would be more than
    /// `limit` bytes, if the bytes are damaged, or if there is no memory for `limit` bytes.
    pub(crate) fn unpack(&mut self, bytes: &[u8], limit: usize, to: &mut Vec<u8>) -> Option<()> {
        to.clear();
        to.try_reserve_exact(limit).ok()?;
        inner::unpack(&mut self.0, bytes, limit, to)
    }
}

/// Returns the unpacked size that the bytes claim.
pub(crate) fn unpacked_size(bytes: &[u8]) -> Option<usize> {
    inner::unpacked_size(bytes)
}

/// A writer that compresses.
pub(crate) type Stream<W> = inner::Stream<W>;

/// Returns a writer that compresses into `to`.
pub(crate) fn writer<W: Write>(to: W) -> Result<Stream<W>, ImageError> {
    inner::writer(to, LEVEL)
}

/// Finishes a compressed stream and returns its destination.
pub(crate) fn end<W: Write>(stream: Stream<W>) -> io::Result<W> {
    inner::end(stream)
}

/// Returns a reader that decompresses `from`.
pub(crate) fn reader<'a>(from: impl BufRead + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
    inner::reader(from)
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod inner {
    use crate::ImageError;
    use std::io::{self, BufRead, Read, Write};

    pub(super) type Stream<W> = zstd::stream::write::Encoder<'static, W>;

    /// The logarithm of the most bytes that a stream may refer back: what `zstd --long=31` writes;
    /// `actions/cache` uses 30. The memory is reserved, but only the part that is used is touched.
    const WINDOW_LOG_MAX: u32 = 31;

    pub(super) fn writer<W: Write>(to: W, level: i32) -> Result<Stream<W>, ImageError> {
        let mut stream = Stream::new(to, level).map_err(failed)?;
        stream.include_checksum(true).map_err(failed)?;
        Ok(stream)
    }

    pub(super) fn end<W: Write>(stream: Stream<W>) -> io::Result<W> {
        stream.finish()
    }

    pub(super) fn reader<'a>(from: impl BufRead + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
        let mut stream = zstd::stream::read::Decoder::with_buffer(from).map_err(failed)?;
        stream.window_log_max(WINDOW_LOG_MAX).map_err(failed)?;
        Ok(Box::new(stream))
    }

    pub(super) type Packer = zstd::bulk::Compressor<'static>;
    pub(super) type Unpacker = zstd::bulk::Decompressor<'static>;

    pub(super) fn packer(level: i32) -> Result<Packer, ImageError> {
        zstd::bulk::Compressor::new(level).map_err(failed)
    }

    pub(super) fn unpacker() -> Result<Unpacker, ImageError> {
        zstd::bulk::Decompressor::new().map_err(failed)
    }

    pub(super) fn pack(packer: &mut Packer, bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
        packer.compress(bytes).map_err(failed)
    }

    pub(super) fn unpack(unpacker: &mut Unpacker, bytes: &[u8], limit: usize, to: &mut Vec<u8>) -> Option<()> {
        let count = unpacker.decompress_to_buffer(bytes, to).ok()?;
        (count <= limit).then_some(())
    }

    pub(super) fn unpacked_size(bytes: &[u8]) -> Option<usize> {
        zstd::zstd_safe::get_frame_content_size(bytes).ok()?.and_then(|size| size.try_into().ok())
    }

    fn failed(error: io::Error) -> ImageError {
        ImageError::Source(format!("compression: {error}"))
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod inner {
    use crate::ImageError;
    use std::io::{self, BufRead, BufWriter, Read, Write};

    pub(super) type Stream<W> = BufWriter<W>;

    pub(super) fn writer<W: Write>(_: W, _: i32) -> Result<Stream<W>, ImageError> {
        Err(ImageError::NotHere)
    }

    pub(super) fn end<W: Write>(stream: Stream<W>) -> io::Result<W> {
        stream.into_inner().map_err(|error| error.into_error())
    }

    pub(super) fn reader<'a>(_: impl BufRead + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
        Err(ImageError::NotHere)
    }

    pub(super) type Packer = ();
    pub(super) type Unpacker = ();

    pub(super) fn packer(_: i32) -> Result<Packer, ImageError> {
        Err(ImageError::NotHere)
    }

    pub(super) fn unpacker() -> Result<Unpacker, ImageError> {
        Err(ImageError::NotHere)
    }

    pub(super) fn pack(_: &mut Packer, _: &[u8]) -> Result<Vec<u8>, ImageError> {
        Err(ImageError::NotHere)
    }

    pub(super) fn unpacked_size(_: &[u8]) -> Option<usize> {
        None
    }

    pub(super) fn unpack(_: &mut Unpacker, _: &[u8], _: usize, _: &mut Vec<u8>) -> Option<()> {
        None
    }
}

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
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
