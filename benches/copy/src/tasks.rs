//! What is done with the bytes of a file by programs rather than by the kernel, so that the size of a buffer matters:
//! they are hashed, hashed and written elsewhere, compressed, and decompressed.

use crate::memory::Mapped;
use crate::ways::{Format, KB, MB, ZSTD_LEVEL, compress, compress_block, decompress, shown, useful};
use anyhow::Result;
use larder_model::{Digest, DigestWriter};
use larder_store::Stamps;
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::Path;

/// Buffers that a file is read through.
const BUFFERS_BYTES: &[usize] = &[4 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, MB];
/// What is compressed at once.
const BLOCKS_BYTES: &[usize] = &[16 * KB, 64 * KB, 256 * KB, MB];

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The file's BLAKE3
    Hash,
    /// Its BLAKE3, and its bytes in a new file
    Keep,
    /// It is compressed, and what comes of it dropped
    Compress,
    /// The same, back
    Decompress,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As larder does it: `Stamps::hash`, which keeps no stamp here.
    Larder,
    /// Read through a buffer of so many bytes.
    Read(usize),
    /// Mapped, its pages there before they are touched or not.
    Map(bool),
    /// The kernel fills the new file (`larder_sys::copy_bytes`), and that is read through a buffer of so many bytes.
    CopyThenRead(usize),
    /// In blocks of so many bytes, each for itself.
    Blocks(Format, usize),
    /// As one stream, read through a buffer of so many bytes and handed on in another one as large.
    Stream(Format, usize),
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) how: How,
}

/// All that differ for a file of this size, in the order in which they are shown.
pub(crate) fn tasks(kind: Kind, size_bytes: usize) -> Vec<Task> {
    let each = |sizes: &[usize], how: fn(usize) -> How| useful(sizes, size_bytes).into_iter().map(how).collect();
    let blocks = |format| useful(BLOCKS_BYTES, size_bytes).into_iter().map(move |bytes| How::Blocks(format, bytes));
    let streams = |format| useful(BUFFERS_BYTES, size_bytes).into_iter().map(move |bytes| How::Stream(format, bytes));
    let how: Vec<How> = match kind {
        Kind::Hash => {
            let read: Vec<How> = each(BUFFERS_BYTES, How::Read);
            [vec![How::Larder], read, vec![How::Map(false), How::Map(true)]].concat()
        }
        Kind::Keep => [each(BUFFERS_BYTES, How::Read), each(BUFFERS_BYTES, How::CopyThenRead)].concat(),
        Kind::Compress => blocks(Format::Lz4).chain(blocks(Format::Zstd)).collect(),
        Kind::Decompress => {
            let of = |format| blocks(format).chain(streams(format));
            of(Format::Lz4).chain(of(Format::Zstd)).collect()
        }
    };
    how.into_iter().map(|how| Task { kind, how }).collect()
}

impl Kind {
    /// Its word in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Keep => "hash and write",
            Self::Compress => "compress",
            Self::Decompress => "decompress",
        }
    }
}

impl Task {
    /// What its way is called in tables.
    pub(crate) fn name(&self) -> String {
        let format = |format| if format == Format::Lz4 { "lz4" } else { "zstd" };
        match self.how {
            How::Larder => "larder".to_owned(),
            How::Read(bytes) => format!("read {}", shown(bytes)),
            How::Map(false) => "mmap".to_owned(),
            How::Map(true) => "mmap populated".to_owned(),
            How::CopyThenRead(bytes) => format!("copied, then read {}", shown(bytes)),
            How::Blocks(of, bytes) => format!("{}, blocks of {}", format(of), shown(bytes)),
            How::Stream(of, bytes) => format!("{}, a stream, {}", format(of), shown(bytes)),
        }
    }

    /// What the file holds that it begins with, where `bytes` are what it is about; `None` for these themselves.
    pub(crate) fn stored(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        match (self.kind, self.how) {
            (Kind::Decompress, How::Blocks(format, block_bytes)) => compress(bytes, format, block_bytes).map(Some),
            (Kind::Decompress, How::Stream(Format::Zstd, _)) => Ok(Some(zstd::encode_all(bytes, ZSTD_LEVEL)?)),
            (Kind::Decompress, How::Stream(Format::Lz4, _)) => {
                let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
                frame.write_all(bytes)?;
                Ok(Some(frame.finish()?))
            }
            _ => Ok(None),
        }
    }

    /// Does it with the file at `from`, about `size_bytes` bytes; gives what comes of it to `sink`: a digest, or bytes.
    /// Files are written to `to`.
    pub(crate) fn run(&self, from: &Path, to: &Path, size_bytes: usize, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut file = File::open(from)?;
        match (self.kind, self.how) {
            (Kind::Hash, How::Map(populate)) => {
                sink(&Digest::of(&Mapped::file(&file, size_bytes, populate)?).0);
            }
            (Kind::Hash, How::Read(bytes)) => sink(&hash(&mut file, bytes, |_| Ok(()))?.0),
            (Kind::Hash, _) => sink(&Stamps::none().hash(&mut file)?.0),
            (_, How::CopyThenRead(bytes)) => {
                let mut made = File::options().read(true).write(true).create_new(true).open(to)?;
                larder_sys::copy_bytes(&file, &made, size_bytes as u64)?;
                std::io::Seek::rewind(&mut made)?;
                sink(&hash(&mut made, bytes, |_| Ok(()))?.0);
            }
            (Kind::Compress, How::Blocks(format, block_bytes)) => {
                let mut block = Mapped::fresh(block_bytes.min(size_bytes))?;
                loop {
                    match fill(&mut file, &mut block)? {
                        0 => break,
                        count => sink(&compress_block(&block[..count], format)?),
                    }
                }
            }
            (_, How::Blocks(format, block_bytes)) => {
                decompress(&file, size_bytes, format, block_bytes, |bytes| {
                    sink(bytes);
                    Ok(())
                })?;
            }
            (_, How::Stream(format, bytes)) => {
                let plain = BufReader::with_capacity(bytes, file);
                match format {
                    Format::Lz4 => pass(lz4_flex::frame::FrameDecoder::new(plain), bytes, sink)?,
                    Format::Zstd => pass(zstd::stream::read::Decoder::with_buffer(plain)?, bytes, sink)?,
                }
            }
            (_, How::Read(bytes)) => {
                let mut made = File::create_new(to)?;
                sink(&hash(&mut file, bytes, |piece| made.write_all(piece))?.0);
            }
            (Kind::Keep | Kind::Compress | Kind::Decompress, How::Larder | How::Map(_)) => {
                anyhow::bail!("nothing is {} so", self.kind.word())
            }
        }
        Ok(())
    }

    /// Whether what came of it is right.
    pub(crate) fn is_right(&self, came: &[u8], to: &Path, bytes: &[u8]) -> Result<bool> {
        Ok(match (self.kind, self.how) {
            (Kind::Hash, _) => came == Digest::of(bytes).0,
            (Kind::Keep, _) => came == Digest::of(bytes).0 && fs::read(to)? == bytes,
            (Kind::Compress, How::Blocks(format, block_bytes)) => {
                // The same without the sizes that stand in front of blocks.
                let sizes = bytes.len().div_ceil(block_bytes) * size_of::<u32>();
                compress(bytes, format, block_bytes)?.len() == came.len() + sizes
            }
            _ => came == bytes,
        })
    }
}

fn hash(file: &mut File, buffer_bytes: usize, mut also: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<Digest> {
    let mut buffer = Mapped::fresh(buffer_bytes)?;
    let mut digest = DigestWriter::default();
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finish()),
            count => {
                digest.update(&buffer[..count]);
                also(&buffer[..count])?;
            }
        }
    }
}

/// As much as there is, up to all that has room.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..])? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

fn pass(mut from: impl Read, buffer_bytes: usize, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mut buffer = Mapped::fresh(buffer_bytes)?;
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => sink(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_task_does_what_it_is_called_for() {
        let dir = std::env::temp_dir().join(format!("larder-tasks-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("can be made");
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let (from, to) = (dir.join("from"), dir.join("to"));
        for task in Kind::value_variants().iter().flat_map(|kind| tasks(*kind, bytes.len())) {
            let stored = task.stored(&bytes).expect("compresses");
            fs::write(&from, stored.as_deref().unwrap_or(&bytes)).expect("can be written");
            let mut came = Vec::new();
            task.run(&from, &to, bytes.len(), &mut |piece| came.extend_from_slice(piece)).expect("can be done");
            assert!(task.is_right(&came, &to, &bytes).expect("can be read"), "{}", task.name());
            assert!(!task.is_right(b"another", &to, &bytes).expect("can be read"), "{}", task.name());
            let _ = fs::remove_file(&to);
        }
        fs::remove_dir_all(&dir).expect("removable");
    }

    #[test]
    fn a_buffer_larger_than_the_file_is_no_other_way() {
        let count = |size_bytes| tasks(Kind::Hash, size_bytes).len();
        assert_eq!((count(5_000), count(20_000_000)), (5, 10));
    }
}
