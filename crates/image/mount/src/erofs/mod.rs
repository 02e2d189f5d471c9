//! Reads an EROFS image: names, attributes, and the positions of the bytes of files.
//!
//! It only reads uncompressed images with at most one device besides the metadata, which is all
//! that larder writes. Damaged images lead to an error or to wrong contents, never to a crash: each
//! number that was read has a limit before memory is allocated for it.
//!
//! A server reads the file by `pread` for each question. What is asked often is in the kernel's
//! page cache, once for all servers of an image. So a server of a million names needs no memory for
//! them. [`Windows`] are for a reader of the whole file.
//!
//! Unaware of: FUSE, and whether the bytes of files are local yet.

mod bytes;
mod directory;
mod source;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

pub(crate) use self::directory::{DirectoryEntry, entry};
pub(crate) use self::source::{Source, Windows};

use self::bytes::{Attribute, attribute, attribute_bytes, damaged, u16_at, u32_at, u64_at};
use self::directory::{NAME_BYTES_MAX, find};

const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 128;
const MAGIC: u32 = 0xe0f5_e1e2;
/// The base-2 logarithm of the block size: 512 bytes to 64 KiB.
const BLOCK_BITS: std::ops::RangeInclusive<u8> = 9..=16;
/// Inodes are numbered by slots of this many bytes.
const SLOT: u64 = 32;
const DEVICE_BYTES: u64 = 128;
/// The size of the header before the extended attributes of an inode, in bytes.
const ATTRIBUTES_HEAD: usize = 12;
/// The incompatible features that are supported: `LZ4_0PADDING` (0x1), `CHUNKED_FILE` (0x4) and
/// `DEVICE_TABLE` (0x8). The first one only concerns compressed data, of which there is none.
const FEATURES: u32 = 0x1 | 0x4 | 0x8;
/// The limit for the target of a symbolic link, in bytes. It is Linux' own limit.
const TARGET_BYTES_MAX: u64 = 4095;
/// The block number of a chunk that is a hole.
const HOLE: u32 = u32::MAX;
/// The limit for the chunk size of files that name a device for each chunk, as a base-2 logarithm:
/// 1 MiB, which is the most that the kernel requests of a FUSE server at once.
const CHUNK_BITS_MAX: u32 = 20;
/// The limit for chunks in one request: 16 MiB of chunks of 4 KiB.
const CHUNKS_MAX: u64 = 4096;

pub(crate) const KIND_MASK: u16 = 0o170_000;
pub(crate) const FILE: u16 = 0o100_000;
pub(crate) const DIRECTORY: u16 = 0o40_000;
pub(crate) const LINK: u16 = 0o120_000;

/// The open metadata of an image.
#[derive(Debug)]
pub(crate) struct Erofs<S = File> {
    file: S,
    block_bits: u8,
    root: u64,
    /// The position of inode 0, in bytes.
    inodes_at: u64,
    /// The position of the extended attributes that several inodes share, in bytes.
    shared_at: u64,
    device: Option<Device>,
    /// The modification time of short inodes, which have no time of their own.
    built: (i64, u32),
    /// The number of inodes and blocks, for `statfs`.
    pub(crate) inodes: u64,
    pub(crate) blocks: u64,
}

/// The device that holds the bytes of files.
#[derive(Clone, Copy, Debug)]
struct Device {
    blocks: u64,
    /// The number of its first block, if its blocks are numbered after those of the metadata. It is
    /// 0 if only chunks refer to its blocks.
    counted_from: u64,
}

/// Where the bytes of an inode are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Consecutive blocks, from this block on.
    Plain(u32),
    /// Consecutive blocks from this block on, except the last partial block, which follows the
    /// inode.
    Inline(u32),
    /// Chunks of 2^`bits` bytes. Their list follows the inode. Each entry has a device and a block
    /// if `with_device` is true, otherwise only a block.
    Chunks { bits: u32, with_device: bool },
}

/// The attributes of a file, directory or symbolic link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    /// File type and permission bits, as in `st_mode`.
    pub(crate) mode: u16,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
    layout: Layout,
    /// The position and the length of the extended attributes in the image, in bytes.
    attributes_at: u64,
    attributes_bytes: usize,
}

/// The position of some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A hole: the bytes are zeros.
    Hole,
    /// In the metadata, from this byte on.
    Metadata(u64),
    /// On the device, from this byte on.
    Data(u64),
}

/// Some bytes of a file that are consecutive in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) from: From,
    pub(crate) length: u64,
}

/// A chunk of a file whose bytes are on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The index of the chunk in the file.
    pub(crate) number: u64,
    /// Its bytes on the device, rounded up to whole blocks.
    pub(crate) bytes: Range<u64>,
    /// The position in the metadata of the two bytes with the chunk's device number.
    pub(crate) device_at: u64,
}

impl Inode {
    pub(crate) fn is(&self, kind: u16) -> bool {
        self.mode & KIND_MASK == kind
    }

    /// Returns the position of the first byte after the inode and its attributes.
    fn behind(&self) -> u64 {
        self.attributes_at + self.attributes_bytes as u64
    }
}

impl Erofs {
    /// Opens an image's metadata and checks its superblock.
    pub(crate) fn open(path: &Path) -> io::Result<Erofs> {
        Erofs::of(File::open(path)?)
    }
}

impl<S: Source> Erofs<S> {
    /// Checks the superblock of an image's metadata.
    pub(crate) fn of(file: S) -> io::Result<Erofs<S>> {
        let mut head = [0; SUPERBLOCK_BYTES];
        file.read_exact(&mut head, SUPERBLOCK)?;
        if u32_at(&head, 0) != MAGIC {
            return Err(damaged("it is not an EROFS image"));
        }
        let block_bits = head[12];
        if !BLOCK_BITS.contains(&block_bits) || u32_at(&head, 80) & !FEATURES != 0 {
            return Err(damaged("it has features that are not read here"));
        }
        let device = match u16_at(&head, 86) {
            0 => None,
            1 => {
                let mut slot = [0; 72];
                file.read_exact(&mut slot, u64::from(u16_at(&head, 88)) * DEVICE_BYTES)?;
                Some(Device { blocks: u32_at(&slot, 64).into(), counted_from: u32_at(&slot, 68).into() })
            }
            _ => return Err(damaged("it has several devices")),
        };
        let at = |offset: usize| u64::from(u32_at(&head, offset)) << block_bits;
        Ok(Erofs {
            block_bits,
            root: u16_at(&head, 14).into(),
            inodes_at: at(40),
            shared_at: at(44),
            built: (u64_at(&head, 24) as i64, u32_at(&head, 32)),
            inodes: u64_at(&head, 16),
            blocks: u64::from(u32_at(&head, 36)) + device.map_or(0, |device| device.blocks),
            device,
            file,
        })
    }

    /// Returns the inode number of the root directory.
    pub(crate) fn root(&self) -> u64 {
        self.root
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        1 << self.block_bits
    }

    /// Reads the inode of this number.
    pub(crate) fn inode(&self, number: u64) -> io::Result<Inode> {
        let at = number.checked_mul(SLOT).and_then(|at| at.checked_add(self.inodes_at));
        let at = at.ok_or_else(|| damaged("an inode is beyond its end"))?;
        let mut bytes = [0; 64];
        // A short inode (32 bytes) may be the last one of the file, so fewer than 64 bytes may be
        // left.
        let count = self.file.read_some(&mut bytes, at)?;
        let form = u16_at(&bytes, 0);
        let is_long = form & 1 == 1;
        let own = if is_long { 64 } else { 32 };
        if count < own {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let told = u32_at(&bytes, 16);
        let layout = match form >> 1 & 7 {
            0 => Layout::Plain(told),
            2 => Layout::Inline(told),
            4 => {
                let bits = u32::from(self.block_bits) + (told & 31);
                Layout::Chunks { bits, with_device: told & 32 != 0 }
            }
            _ => return Err(damaged("a file is compressed")),
        };
        let attributes = usize::from(u16_at(&bytes, 2));
        let attributes_bytes = if attributes == 0 { 0 } else { ATTRIBUTES_HEAD + (attributes - 1) * 4 };
        let mode = u16_at(&bytes, 4);
        let (attributes_at, number) = (at + own as u64, number);
        let common = Inode {
            number,
            mode,
            links: 0,
            size: 0,
            user: 0,
            group: 0,
            modified: self.built,
            layout,
            attributes_at,
            attributes_bytes,
        };
        let inode = match is_long {
            true => Inode {
                size: u64_at(&bytes, 8),
                user: u32_at(&bytes, 24),
                group: u32_at(&bytes, 28),
                modified: (u64_at(&bytes, 32) as i64, u32_at(&bytes, 40)),
                links: u32_at(&bytes, 44),
                ..common
            },
            false => Inode {
                links: u16_at(&bytes, 6).into(),
                size: u32_at(&bytes, 8).into(),
                user: u16_at(&bytes, 24).into(),
                group: u16_at(&bytes, 26).into(),
                ..common
            },
        };
        if inode.size > i64::MAX as u64 || inode.modified.1 >= 1_000_000_000 {
            return Err(damaged("an inode has a size or a time that cannot be"));
        }
        Ok(inode)
    }

    /// Returns the inode number of the entry `name` of a directory, or `None` if there is no such
    /// entry.
    pub(crate) fn lookup(&self, directory: &Inode, name: &[u8]) -> io::Result<Option<u64>> {
        if name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        // All names are sorted bytewise. A binary search finds the last block whose first name is
        // not greater than `name`.
        let mut buffer = vec![0; self.block_bytes() as usize];
        let (mut low, mut high) = (0, self.directory_blocks(directory));
        while low < high {
            let middle = low + (high - low) / 2;
            let block = self.directory_block(directory, middle, &mut buffer)?;
            let first = entry(block, 0)?.ok_or_else(|| damaged("a block of a directory is empty"))?;
            if name < first.name {
                high = middle;
                continue;
            }
            if high - low == 1 {
                return find(block, name);
            }
            low = middle;
        }
        Ok(None)
    }

    /// Returns the number of blocks that hold the entries of a directory.
    pub(crate) fn directory_blocks(&self, directory: &Inode) -> u64 {
        directory.size.div_ceil(self.block_bytes())
    }

    /// Reads one block of a directory into `buffer`, whose length is the block size.
    pub(crate) fn directory_block<'a>(
        &self,
        directory: &Inode,
        number: u64,
        buffer: &'a mut [u8],
    ) -> io::Result<&'a [u8]> {
        if !directory.is(DIRECTORY) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let offset = number << self.block_bits;
        let length = directory.size.saturating_sub(offset).min(self.block_bytes()) as usize;
        self.read_own(directory, offset, &mut buffer[..length])?;
        Ok(&buffer[..length])
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn target(&self, link: &Inode) -> io::Result<Vec<u8>> {
        if !link.is(LINK) || link.size > TARGET_BYTES_MAX {
            return Err(damaged("a link leads nowhere"));
        }
        let mut target = vec![0; link.size as usize];
        self.read_own(link, 0, &mut target)?;
        Ok(target)
    }

    /// Calls `each` with every extended attribute (prefix, name, value) until it returns true.
    pub(crate) fn attributes(
        &self,
        inode: &Inode,
        mut each: impl FnMut(&'static [u8], &[u8], &[u8]) -> bool,
    ) -> io::Result<()> {
        if inode.attributes_bytes == 0 {
            return Ok(());
        }
        // At most 256 KiB, because the count has 16 bits.
        let mut bytes = vec![0; inode.attributes_bytes];
        self.file.read_exact(&mut bytes, inode.attributes_at)?;
        let shared = usize::from(bytes[4]);
        let (listed, own) =
            bytes[ATTRIBUTES_HEAD..].split_at_checked(shared * 4).ok_or_else(|| damaged("attributes are cut"))?;
        for number in listed.chunks_exact(4) {
            let at = self.shared_at + u64::from(u32_at(number, 0)) * 4;
            let mut head = [0; 4];
            self.file.read_exact(&mut head, at)?;
            let mut one = vec![0; attribute_bytes(&head)];
            self.file.read_exact(&mut one, at)?;
            let Attribute { prefix, name, value, .. } = attribute(&one)?;
            if each(prefix, name, value) {
                return Ok(());
            }
        }
        let mut left = own;
        // Zeros may follow the last attribute, or fewer bytes than another one needs.
        while left.len() >= 4 && left[..4] != [0; 4] {
            let Attribute { taken, prefix, name, value } = attribute(left)?;
            if each(prefix, name, value) {
                return Ok(());
            }
            left = left.get(taken.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns where the bytes of this range of a file are, in order. The range is cut at the end
    /// of the file.
    pub(crate) fn parts(&self, file: &Inode, range: Range<u64>) -> io::Result<Vec<Part>> {
        let range = range.start..range.end.min(file.size);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let length = range.end - range.start;
        let Layout::Chunks { bits, with_device } = file.layout else {
            return self.parts_of_blocks(file, range);
        };
        let chunks = range.start >> bits..((range.end - 1) >> bits) + 1;
        if chunks.end - chunks.start > CHUNKS_MAX {
            return Err(damaged("a file has more chunks than are read at once"));
        }
        let width = if with_device { 8 } else { 4 };
        let list = file.behind().next_multiple_of(width);
        let mut listed = vec![0; ((chunks.end - chunks.start) * width) as usize];
        let at = chunks.start.checked_mul(width).and_then(|at| at.checked_add(list));
        self.file.read_exact(&mut listed, at.ok_or_else(|| damaged("a list of chunks has no end"))?)?;
        let mut parts: Vec<Part> = Vec::new();
        let (mut offset, mut left) = (range.start, length);
        for chunk in listed.chunks_exact(width as usize) {
            let (device, block) =
                if with_device { (u16_at(chunk, 2), u32_at(chunk, 4)) } else { (0, u32_at(chunk, 0)) };
            let within = offset & ((1 << bits) - 1);
            let count = left.min((1 << bits) - within);
            let from = match (block, device) {
                (HOLE, _) => From::Hole,
                (_, 0) => self.at_block(block, within, count)?,
                (_, 1) => self.on_device(u64::from(block), within, count)?,
                _ => return Err(damaged("a chunk is on a device that is not there")),
            };
            add(&mut parts, Part { from, length: count });
            offset += count;
            left -= count;
        }
        Ok(parts)
    }

    /// Calls `each` once for every regular file, even if it has several names.
    pub(crate) fn each_file(&self, mut each: impl FnMut(&Inode) -> io::Result<()>) -> io::Result<()> {
        let (mut directories, mut seen) = (vec![self.root], HashSet::from([self.root]));
        let mut buffer = vec![0; self.block_bytes() as usize];
        while let Some(number) = directories.pop() {
            let directory = self.inode(number)?;
            for block in 0..self.directory_blocks(&directory) {
                let (bytes, mut place) = (self.directory_block(&directory, block, &mut buffer)?, 0);
                while let Some(entry) = entry(bytes, place)? {
                    place += 1;
                    if matches!(entry.name, b"." | b"..") {
                        continue;
                    }
                    let inode = self.inode(entry.number)?;
                    if inode.is(DIRECTORY) && seen.insert(inode.number) {
                        directories.push(inode.number);
                    } else if inode.is(FILE) && (inode.links <= 1 || seen.insert(inode.number)) {
                        each(&inode)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `each` for every chunk of a file that is on the device. Fails if bytes of the file are
    /// on the device but not in chunks of at most 1 MiB with a device number.
    pub(crate) fn chunks(&self, file: &Inode, mut each: impl FnMut(Chunk)) -> io::Result<()> {
        let (bits, width) = match file.layout {
            _ if file.size == 0 => return Ok(()),
            Layout::Chunks { bits, with_device: true } if bits <= CHUNK_BITS_MAX => (bits, 8),
            Layout::Chunks { .. } => return Err(damaged("a file has data that is not in chunks of at most 1 MiB")),
            _ => {
                let parts = self.parts_of_blocks(file, 0..file.size)?;
                return match parts.iter().any(|part| matches!(part.from, From::Data(_))) {
                    true => Err(damaged("a file has data that is not in chunks of at most 1 MiB")),
                    false => Ok(()),
                };
            }
        };
        let (list, count) = (file.behind().next_multiple_of(width), file.size.div_ceil(1 << bits));
        let mut listed = Vec::new();
        for first in (0..count).step_by(CHUNKS_MAX as usize) {
            listed.resize((CHUNKS_MAX.min(count - first) * width) as usize, 0);
            let at = list.checked_add(first * width).ok_or_else(|| damaged("a list of chunks has no end"))?;
            self.file.read_exact(&mut listed, at)?;
            for (chunk, number) in listed.chunks_exact(width as usize).zip(first..) {
                let (device, block) = (u16_at(chunk, 2), u32_at(chunk, 4));
                if block == HOLE || device == 0 {
                    continue;
                }
                let length = (file.size - (number << bits)).min(1 << bits).next_multiple_of(self.block_bytes());
                let start = u64::from(block) << self.block_bits;
                each(Chunk { number, bytes: start..start + length, device_at: list + number * width + 2 });
            }
        }
        Ok(())
    }

    fn parts_of_blocks(&self, file: &Inode, range: Range<u64>) -> io::Result<Vec<Part>> {
        let mut parts = Vec::new();
        let split = self.blocks_end(file);
        let length = range.end - range.start;
        let before = split.saturating_sub(range.start).min(length);
        if before > 0 {
            let (Layout::Plain(block) | Layout::Inline(block)) = file.layout else { return Ok(parts) };
            parts.push(Part { from: self.at_block(block, range.start, before)?, length: before });
        }
        if length > before {
            let from = From::Metadata(file.behind() + (range.start + before - split));
            parts.push(Part { from, length: length - before });
        }
        Ok(parts)
    }

    /// How many bytes of an inode are in blocks. The rest follows the inode itself.
    fn blocks_end(&self, inode: &Inode) -> u64 {
        match inode.layout {
            Layout::Inline(_) => (inode.size.div_ceil(self.block_bytes()).saturating_sub(1)) << self.block_bits,
            _ => inode.size,
        }
    }

    /// Returns the position that is `within` bytes after the start of a block, in the metadata or
    /// on the device.
    fn at_block(&self, block: u32, within: u64, length: u64) -> io::Result<From> {
        let block = u64::from(block);
        match self.device {
            Some(Device { blocks, counted_from })
                if counted_from > 0 && (counted_from..counted_from + blocks).contains(&block) =>
            {
                self.on_device(block - counted_from, within, length)
            }
            _ => {
                let at = (block << self.block_bits).checked_add(within);
                at.map(From::Metadata).ok_or_else(|| damaged("a file is beyond the end"))
            }
        }
    }

    fn on_device(&self, block: u64, within: u64, length: u64) -> io::Result<From> {
        let at = (block << self.block_bits).checked_add(within);
        let size = match self.device {
            // `mkfs.erofs` does not write the number of blocks.
            Some(Device { blocks: 0, .. }) => u64::MAX,
            device => device.map_or(0, |device| device.blocks << self.block_bits),
        };
        let end = at.and_then(|at| at.checked_add(length));
        match (at, end) {
            (Some(at), Some(end)) if end <= size => Ok(From::Data(at)),
            _ => Err(damaged("a file is beyond the end of its device")),
        }
    }

    /// Reads bytes of a directory or a symbolic link, which must be in the metadata.
    fn read_own(&self, inode: &Inode, offset: u64, mut to: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(to.len() as u64);
        for part in self.parts(inode, offset..end)? {
            let From::Metadata(at) = part.from else { return Err(damaged("a directory is not in its metadata")) };
            let (now, later) = to.split_at_mut(part.length as usize);
            self.file.read_exact(now, at)?;
            to = later;
        }
        if to.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads bytes of the metadata file at this position.
    pub(crate) fn read_metadata(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact(to, at)
    }
}

/// Appends a part, or extends the last one if the new part continues it.
fn add(parts: &mut Vec<Part>, part: Part) {
    if let Some(last) = parts.last_mut() {
        let goes_on = match (last.from, part.from) {
            (From::Hole, From::Hole) => true,
            (From::Metadata(at), From::Metadata(next)) | (From::Data(at), From::Data(next)) => at + last.length == next,
            _ => false,
        };
        if goes_on {
            last.length += part.length;
            return;
        }
    }
    parts.push(part);
}
