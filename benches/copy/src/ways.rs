//! The ways to put a file in place: what moves the bytes, what is said to the kernel before, and how each is done.

use crate::memory::Mapped;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, FallocateFlags};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

pub(crate) const KB: usize = 1 << 10;
pub(crate) const MB: usize = 1 << 20;
/// Buffers of a copy by reading and writing.
const BUFFERS_BYTES: &[usize] = &[4 * KB, 16 * KB, 64 * KB, 256 * KB, MB];
/// What is compressed at once, and so the buffers of decompression.
const BLOCKS_BYTES: &[usize] = &[64 * KB, 256 * KB, MB];
/// A pipe as it is made, and as large as anybody may make it by default.
const PIPES_BYTES: &[usize] = &[64 * KB, MB];
/// The level of zstd: its fastest ordinary one.
pub(crate) const ZSTD_LEVEL: i32 = 1;

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// What larder does: `larder_sys::copy_bytes`.
    Larder,
    /// FICLONE.
    Reflink,
    CopyFileRange,
    Sendfile,
    /// Through a pipe of so many bytes.
    Splice(usize),
    /// With a buffer of so many bytes.
    ReadWrite(usize),
    /// Mapped, its pages there before they are touched or not, and written at once.
    Map(bool),
    Compressed(Format, usize),
}

/// How a stored file is compressed, in blocks that are compressed each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Lz4,
    Zstd,
}

/// What the kernel is told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    /// How large the new file will be: `fallocate`.
    Size,
    /// That the old one is read from front to back: `posix_fadvise`.
    Sequential,
    /// That all of it is wanted: `posix_fadvise`, which does what `readahead` does.
    WillNeed,
}

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) mover: Mover,
    pub(crate) told: Told,
}

/// All ways that differ for a file of this size: a larger buffer than the file is no other way.
pub(crate) fn ways(size_bytes: usize) -> Vec<Way> {
    use Mover::{CopyFileRange, Larder, Map, ReadWrite, Reflink, Sendfile, Splice};
    let useful = |sizes: &[usize]| useful(sizes, size_bytes);
    let mut movers = vec![Larder, Reflink, CopyFileRange, Sendfile];
    movers.extend(PIPES_BYTES.iter().map(|&bytes| Splice(bytes)));
    movers.extend(useful(BUFFERS_BYTES).into_iter().map(ReadWrite));
    movers.extend([Map(false), Map(true)]);
    for format in [Format::Lz4, Format::Zstd] {
        movers.extend(useful(BLOCKS_BYTES).into_iter().map(|bytes| Mover::Compressed(format, bytes)));
    }
    let mut ways: Vec<Way> = movers.into_iter().map(|mover| Way { mover, told: Told::Nothing }).collect();
    for mover in [CopyFileRange, ReadWrite(64 * KB), Splice(MB)] {
        ways.extend([Told::Size, Told::Sequential, Told::WillNeed].map(|told| Way { mover, told }));
    }
    ways
}

impl Way {
    /// What it is called in tables.
    pub(crate) fn name(&self) -> String {
        let mover = match self.mover {
            Mover::Larder => "larder".to_owned(),
            Mover::Reflink => "reflink".to_owned(),
            Mover::CopyFileRange => "copy_file_range".to_owned(),
            Mover::Sendfile => "sendfile".to_owned(),
            Mover::Splice(bytes) => format!("splice, pipe {}", shown(bytes)),
            Mover::ReadWrite(bytes) => format!("read, write {}", shown(bytes)),
            Mover::Map(false) => "mmap, write".to_owned(),
            Mover::Map(true) => "mmap populated, write".to_owned(),
            Mover::Compressed(Format::Lz4, bytes) => format!("lz4 {}, write", shown(bytes)),
            Mover::Compressed(Format::Zstd, bytes) => format!("zstd {}, write", shown(bytes)),
        };
        match self.told {
            Told::Nothing => mover,
            Told::Size => format!("{mover}, fallocate"),
            Told::Sequential => format!("{mover}, fadvise sequential"),
            Told::WillNeed => format!("{mover}, fadvise willneed"),
        }
    }

    /// Fills the empty file `to` with the `size_bytes` that are in `from`, or that `from` holds compressed.
    pub(crate) fn put(&self, from: &File, to: &File, size_bytes: usize) -> Result<()> {
        match self.told {
            Told::Nothing => {}
            Told::Size => rustix::fs::fallocate(to, FallocateFlags::empty(), 0, size_bytes as u64)?,
            Told::Sequential => rustix::fs::fadvise(from, 0, NonZeroU64::new(size_bytes as u64), Advice::Sequential)?,
            Told::WillNeed => rustix::fs::fadvise(from, 0, NonZeroU64::new(size_bytes as u64), Advice::WillNeed)?,
        }
        match self.mover {
            Mover::Larder => moved(larder_sys::copy_bytes(from, to, size_bytes as u64)?, size_bytes),
            Mover::Reflink => Ok(rustix::fs::ioctl_ficlone(to, from)?),
            Mover::CopyFileRange => {
                in_steps(size_bytes, |rest| rustix::fs::copy_file_range(from, None, to, None, rest))
            }
            Mover::Sendfile => in_steps(size_bytes, |rest| rustix::fs::sendfile(to, from, None, rest)),
            Mover::Splice(pipe_bytes) => splice(from, to, size_bytes, pipe_bytes),
            Mover::ReadWrite(buffer_bytes) => read_write(from, to, size_bytes, buffer_bytes),
            Mover::Map(populate) => {
                let mut to = to;
                Ok(to.write_all(&Mapped::file(from, size_bytes, populate)?)?)
            }
            Mover::Compressed(format, block_bytes) => {
                let mut to = to;
                decompress(from, size_bytes, format, block_bytes, |bytes| Ok(to.write_all(bytes)?))
            }
        }
    }
}

/// The sizes of buffers, from the smallest to the first that holds all.
pub(crate) fn useful(sizes: &[usize], size_bytes: usize) -> Vec<usize> {
    let enough = sizes.iter().position(|&bytes| bytes >= size_bytes).unwrap_or(sizes.len() - 1);
    sizes[..=enough].to_vec()
}

/// A buffer's size in words.
pub(crate) fn shown(bytes: usize) -> String {
    if bytes < MB { format!("{} KB", bytes / KB) } else { format!("{} MB", bytes / MB) }
}

fn moved(done: u64, size_bytes: usize) -> Result<()> {
    ensure!(done == size_bytes as u64, "{done} of {size_bytes} bytes were moved");
    Ok(())
}

fn in_steps(size_bytes: usize, step: impl Fn(usize) -> rustix::io::Result<usize>) -> Result<()> {
    let mut done = 0;
    while done < size_bytes {
        match step(size_bytes - done)? {
            0 => break,
            count => done += count,
        }
    }
    moved(done as u64, size_bytes)
}

fn splice(from: &File, to: &File, size_bytes: usize, pipe_bytes: usize) -> Result<()> {
    let (out, into): (OwnedFd, OwnedFd) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if pipe_bytes != PIPES_BYTES[0] {
        rustix::pipe::fcntl_setpipe_size(&into, pipe_bytes)?;
    }
    in_steps(size_bytes, |rest| {
        let held = rustix::pipe::splice(from, None, &into, None, rest.min(pipe_bytes), SpliceFlags::MOVE)?;
        let mut left = held;
        while left > 0 {
            left -= rustix::pipe::splice(&out, None, to, None, left, SpliceFlags::MOVE)?;
        }
        Ok(held)
    })
}

fn read_write(mut from: &File, mut to: &File, size_bytes: usize, buffer_bytes: usize) -> Result<()> {
    let mut buffer = Mapped::fresh(buffer_bytes)?;
    let mut done = 0;
    while done < size_bytes {
        let count = from.read(&mut buffer)?;
        ensure!(count > 0, "the file ended after {done} bytes");
        to.write_all(&buffer[..count])?;
        done += count;
    }
    Ok(())
}

/// Compresses `bytes`: for each block its compressed size as four bytes, little-endian, and the compressed bytes.
pub(crate) fn compress(bytes: &[u8], format: Format, block_bytes: usize) -> Result<Vec<u8>> {
    let mut made = Vec::new();
    for block in bytes.chunks(block_bytes) {
        let packed = compress_block(block, format)?;
        made.extend(u32::try_from(packed.len())?.to_le_bytes());
        made.extend(packed);
    }
    Ok(made)
}

/// Compresses one block.
pub(crate) fn compress_block(block: &[u8], format: Format) -> Result<Vec<u8>> {
    Ok(match format {
        Format::Lz4 => lz4_flex::block::compress(block),
        Format::Zstd => zstd::bulk::compress(block, ZSTD_LEVEL)?,
    })
}

/// Gives the `size_bytes` that `from` holds compressed to `to`, block by block.
pub(crate) fn decompress(
    mut from: &File,
    size_bytes: usize,
    format: Format,
    block_bytes: usize,
    mut to: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let out_bytes = block_bytes.min(size_bytes);
    let mut out = Mapped::fresh(out_bytes)?;
    let in_bytes = match format {
        Format::Lz4 => lz4_flex::block::get_maximum_output_size(out_bytes),
        Format::Zstd => zstd::zstd_safe::compress_bound(out_bytes),
    };
    let mut packed = Mapped::fresh(in_bytes + 4)?;
    let mut zstd = match format {
        Format::Lz4 => None,
        Format::Zstd => Some(zstd::bulk::Decompressor::new()?),
    };
    let mut done = 0;
    while done < size_bytes {
        let mut size = [0; 4];
        from.read_exact(&mut size)?;
        let packed = packed.get_mut(..u32::from_le_bytes(size) as usize).context("a block is too large")?;
        from.read_exact(packed)?;
        let count = match &mut zstd {
            None => lz4_flex::block::decompress_into(packed, &mut out)?,
            Some(zstd) => zstd.decompress_to_buffer(packed, &mut out[..])?,
        };
        ensure!(count > 0, "a block holds nothing");
        to(&out[..count])?;
        done += count;
    }
    moved(done as u64, size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_larger_than_the_file_is_no_other_way() {
        let names: Vec<String> = ways(50_000).iter().map(Way::name).collect();
        assert!(names.contains(&"read, write 64 KB".to_owned()));
        assert!(!names.contains(&"read, write 256 KB".to_owned()));
        assert!(!names.contains(&"zstd 256 KB, write".to_owned()));
        assert!(ways(20_000_000).len() > names.len());
    }

    #[test]
    fn every_way_that_the_file_system_has_gives_the_same_bytes() {
        let dir = std::env::temp_dir().join(format!("larder-copy-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("can be made");
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        for way in ways(bytes.len()) {
            let stored = match way.mover {
                Mover::Compressed(format, block_bytes) => compress(&bytes, format, block_bytes).expect("compresses"),
                _ => bytes.clone(),
            };
            std::fs::write(dir.join("from"), stored).expect("can be written");
            let from = File::open(dir.join("from")).expect("is there");
            let to = File::create(dir.join("to")).expect("can be made");
            match way.put(&from, &to, bytes.len()) {
                Err(error) if way.mover == Mover::Reflink || way.told == Told::Size => {
                    println!("{}: {error}", way.name())
                }
                done => {
                    done.expect("every file system can do that");
                    assert!(std::fs::read(dir.join("to")).expect("is there") == bytes, "{}", way.name());
                }
            }
        }
        std::fs::remove_dir_all(&dir).expect("removable");
    }
}
