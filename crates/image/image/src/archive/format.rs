//! The format of an archive, from its name, and its compression as a stream.
//!
//! Unaware of: what is in an archive.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::{ImageError, compress};

/// The bytes that are written at once (docs/performance.md, "Putting an output in place").
const WRITTEN_BYTES: usize = 256 << 10;
/// The bytes that are read at once. With a larger buffer 1 MB takes a fifth longer and 20 MB is not
/// faster (docs/performance.md, "Buffers").
const READ_BYTES: usize = 64 << 10;

/// A format of archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// tar.
    Tar(Packing),
    /// zip.
    Zip,
    /// A squashfs file, written and read by Debian's `squashfs-tools`.
    Squashfs,
}

/// The compression of a tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not compressed.
    None,
    /// Zstandard.
    Zstd,
    /// LZ4, with frames.
    Lz4,
    /// gzip.
    Gzip,
}

const ENDINGS: [(&str, Format); 9] = [
    (".tar.zst", Format::Tar(Packing::Zstd)),
    (".tzst", Format::Tar(Packing::Zstd)),
    (".tar.lz4", Format::Tar(Packing::Lz4)),
    (".tar.gz", Format::Tar(Packing::Gzip)),
    (".tgz", Format::Tar(Packing::Gzip)),
    (".tar", Format::Tar(Packing::None)),
    (".zip", Format::Zip),
    (".squashfs", Format::Squashfs),
    (".sqfs", Format::Squashfs),
];

impl Format {
    /// Returns the format by the ending of a file's name. Fails if the ending is unknown.
    pub fn of(file: &Path) -> Result<Format, ImageError> {
        let name = file.to_string_lossy().to_ascii_lowercase();
        let found = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
        found.map(|(_, format)| *format).ok_or_else(|| {
            let known = ENDINGS.map(|(ending, _)| ending).join(", ");
            ImageError::archive(file, format!("its name has no known ending; use one of {known}"))
        })
    }
}

/// A destination that must be finished.
pub(super) trait Sink: Write {
    fn finish(self: Box<Self>) -> io::Result<()>;
}

type Plain = BufWriter<Box<dyn Write + Send>>;

impl Sink for Plain {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()
    }
}

impl Sink for flate2::write::GzEncoder<Plain> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        (*self).finish()?.flush()
    }
}

impl Sink for lz4_flex::frame::FrameEncoder<Plain> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        (*self).finish().map_err(io::Error::from)?.flush()
    }
}

/// A stream, and the function that finishes it.
struct Ending<W: Write>(W, fn(W) -> io::Result<()>);

impl<W: Write> Write for Ending<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write> Sink for Ending<W> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        let Ending(stream, end) = *self;
        end(stream)
    }
}

/// Returns a destination that compresses into `to`.
pub(super) fn sink(to: Box<dyn Write + Send>, packing: Packing) -> Result<Box<dyn Sink>, ImageError> {
    let plain = BufWriter::with_capacity(WRITTEN_BYTES, to);
    Ok(match packing {
        Packing::None => Box::new(plain),
        Packing::Gzip => Box::new(flate2::write::GzEncoder::new(plain, flate2::Compression::default())),
        Packing::Lz4 => {
            let checked = lz4_flex::frame::FrameInfo::new().content_checksum(true);
            Box::new(lz4_flex::frame::FrameEncoder::with_frame_info(checked, plain))
        }
        Packing::Zstd => {
            let stream = compress::writer(plain)?;
            Box::new(Ending(stream, |stream| stream.finish()?.flush()))
        }
    })
}

/// Returns a reader that decompresses a file. Calls `seen` with the number of compressed bytes of
/// each read.
pub(super) fn source<'a>(
    file: File,
    packing: Packing,
    seen: impl Fn(u64) + 'a,
) -> Result<Box<dyn Read + 'a>, ImageError> {
    let plain = BufReader::with_capacity(READ_BYTES, Seen(file, seen));
    Ok(match packing {
        Packing::None => Box::new(plain),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(plain)),
        Packing::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(plain)),
        Packing::Zstd => compress::reader(plain)?,
    })
}

/// A file whose reads are reported to a function.
struct Seen<F>(File, F);

impl<F: Fn(u64)> Read for Seen<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        (self.1)(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_format() {
        let check = |name: &str, expect: Option<Format>| assert_eq!(Format::of(Path::new(name)).ok(), expect, "{name}");
        check("a.tar.zst", Some(Format::Tar(Packing::Zstd)));
        check("x/A.TGZ", Some(Format::Tar(Packing::Gzip)));
        check("a.tar", Some(Format::Tar(Packing::None)));
        check("a.zip", Some(Format::Zip));
        check("a.sqfs", Some(Format::Squashfs));
        check("a.rar", None);
        check("zip", None);
    }
}
