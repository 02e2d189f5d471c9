//! An EROFS image, read as the kernel reads it: names, attributes, and where the bytes of files are.
//!
//! Only uncompressed images with at most one further device, which is all that larder writes. Whatever the bytes are,
//! reading them ends with what they say or with an error: nothing is allocated by a number that was read without a limit.
//!
//! The file is read for each question, by `pread`: what is asked often is in the kernel's memory, once for all servers of
//! an image, and a server of a million names needs no memory for them.
//!
//! Unaware of: FUSE, and whether the bytes of files have arrived.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 128;
const MAGIC: u32 = 0xe0f5_e1e2;
/// Blocks of 512 bytes to 64 KiB.
const BLOCK_BITS: std::ops::RangeInclusive<u8> = 9..=16;
/// Inodes are numbered by slots of so many bytes.
const SLOT: u64 = 32;
const DEVICE_BYTES: u64 = 128;
const ENTRY: usize = 12;
/// Before the attributes of an inode.
const ATTRIBUTES_HEAD: usize = 12;
/// Incompatible features that are read: none of them has to do with compression, but for the first, which says that
/// lengths of compressed data may be followed by zeros.
const FEATURES: u32 = 0x1 | 0x4 | 0x8;
/// A symbolic link's target, bytes: Linux' own limit.
const TARGET_BYTES_MAX: u64 = 4095;
/// A name, bytes: the same.
const NAME_BYTES_MAX: usize = 255;
/// The block of a chunk of which nothing is written.
const HOLE: u32 = u32::MAX;
/// Chunks of which each says its device have at most so many bits: 1 MiB, which is what the kernel asks a FUSE server for
/// at once.
const CHUNK_BITS_MAX: u32 = 20;
/// One request reads at most so many chunks: 16 MiB of chunks of 4 KiB.
const CHUNKS_MAX: u64 = 4096;

pub(crate) const KIND_MASK: u16 = 0o170_000;
pub(crate) const FILE: u16 = 0o100_000;
pub(crate) const DIRECTORY: u16 = 0o40_000;
pub(crate) const LINK: u16 = 0o120_000;

/// An image's metadata, opened.
#[derive(Debug)]
pub(crate) struct Erofs {
    file: File,
    block_bits: u8,
    root: u64,
    /// Where inodes are counted from, bytes.
    inodes_at: u64,
    /// Where attributes are that several inodes have, bytes.
    shared_at: u64,
    device: Option<Device>,
    /// The time of inodes that have none of their own.
    built: (i64, u32),
    /// How many inodes there are, and blocks, for `statfs`.
    pub(crate) inodes: u64,
    pub(crate) blocks: u64,
}

/// The device that holds the bytes of files.
#[derive(Clone, Copy, Debug)]
struct Device {
    blocks: u64,
    /// Its first block as it is counted on from those of the metadata; 0 if it is not.
    counted_from: u64,
}

/// How the bytes of an inode lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Blocks one after the other, from this one on.
    Plain(u32),
    /// The same, and the rest behind the inode.
    Inline(u32),
    /// Chunks of so many bits, listed behind the inode: with their device, or only their block.
    Chunks { bits: u32, with_device: bool },
}

/// What is known of a file, directory or link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    /// Kind and permission bits.
    pub(crate) mode: u16,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
    layout: Layout,
    /// Where its attributes begin, bytes of the image, and how many they take.
    attributes_at: u64,
    attributes_bytes: usize,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) number: u64,
    /// As EROFS numbers kinds.
    pub(crate) kind: u8,
}

/// Where some bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Nowhere: they are zeros.
    Hole,
    /// In the image of the metadata, from this byte on.
    Metadata(u64),
    /// On the device.
    Data(u64),
}

/// Some bytes of a file that are at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) from: From,
    pub(crate) length: u64,
}

/// A chunk of a file that is on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Of the file's chunks.
    pub(crate) number: u64,
    /// Its bytes on the device, in whole blocks.
    pub(crate) bytes: Range<u64>,
    /// Where in the metadata the number of the device is, two bytes.
    pub(crate) device_at: u64,
}

impl Inode {
    pub(crate) fn is(&self, kind: u16) -> bool {
        self.mode & KIND_MASK == kind
    }

    /// Where what follows the inode and its attributes begins.
    fn behind(&self) -> u64 {
        self.attributes_at + self.attributes_bytes as u64
    }
}

impl Erofs {
    /// Opens an image's metadata.
    pub(crate) fn open(path: &Path) -> io::Result<Erofs> {
        let file = File::open(path)?;
        let mut head = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut head, SUPERBLOCK)?;
        if u32_at(&head, 0) != MAGIC {
            return Err(damaged("it is no EROFS image"));
        }
        let block_bits = head[12];
        if !BLOCK_BITS.contains(&block_bits) || u32_at(&head, 80) & !FEATURES != 0 {
            return Err(damaged("it has features that are not read here"));
        }
        let device = match u16_at(&head, 86) {
            0 => None,
            1 => {
                let mut slot = [0; 72];
                file.read_exact_at(&mut slot, u64::from(u16_at(&head, 88)) * DEVICE_BYTES)?;
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

    /// The number of the top directory's inode.
    pub(crate) fn root(&self) -> u64 {
        self.root
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        1 << self.block_bits
    }

    /// The inode of this number.
    pub(crate) fn inode(&self, number: u64) -> io::Result<Inode> {
        let at = number.checked_mul(SLOT).and_then(|at| at.checked_add(self.inodes_at));
        let at = at.ok_or_else(|| damaged("an inode is beyond its end"))?;
        let mut bytes = [0; 64];
        // A short one may be the last of the file.
        let count = read_some(&self.file, &mut bytes, at)?;
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

    /// The number of the inode that `name` stands for in a directory, if there is one.
    pub(crate) fn lookup(&self, directory: &Inode, name: &[u8]) -> io::Result<Option<u64>> {
        if name.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        // All names are in the order of their bytes: the block whose first name is the last that is not behind it.
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

    /// How many blocks the entries of a directory are in.
    pub(crate) fn directory_blocks(&self, directory: &Inode) -> u64 {
        directory.size.div_ceil(self.block_bytes())
    }

    /// One of these, in `buffer`, which is as long as a block.
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

    /// Where a link leads.
    pub(crate) fn target(&self, link: &Inode) -> io::Result<Vec<u8>> {
        if !link.is(LINK) || link.size > TARGET_BYTES_MAX {
            return Err(damaged("a link leads nowhere"));
        }
        let mut target = vec![0; link.size as usize];
        self.read_own(link, 0, &mut target)?;
        Ok(target)
    }

    /// Calls `each` for every extended attribute, until it says that it has what it wants.
    pub(crate) fn attributes(
        &self,
        inode: &Inode,
        mut each: impl FnMut(&'static [u8], &[u8], &[u8]) -> bool,
    ) -> io::Result<()> {
        if inode.attributes_bytes == 0 {
            return Ok(());
        }
        // At most 256 KiB, by the 16 bits of their number.
        let mut bytes = vec![0; inode.attributes_bytes];
        self.file.read_exact_at(&mut bytes, inode.attributes_at)?;
        let shared = usize::from(bytes[4]);
        let (listed, own) =
            bytes[ATTRIBUTES_HEAD..].split_at_checked(shared * 4).ok_or_else(|| damaged("attributes are cut"))?;
        for number in listed.chunks_exact(4) {
            let at = self.shared_at + u64::from(u32_at(number, 0)) * 4;
            let mut head = [0; 4];
            self.file.read_exact_at(&mut head, at)?;
            let mut one = vec![0; attribute_bytes(&head)];
            self.file.read_exact_at(&mut one, at)?;
            let Attribute { prefix, name, value, .. } = attribute(&one)?;
            if each(prefix, name, value) {
                return Ok(());
            }
        }
        let mut left = own;
        // What is behind the last one is zeros, or too short for another.
        while left.len() >= 4 && left[..4] != [0; 4] {
            let Attribute { taken, prefix, name, value } = attribute(left)?;
            if each(prefix, name, value) {
                return Ok(());
            }
            left = left.get(taken.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }

    /// Where the bytes of this range of a file are, in their order. The range ends with the file at most.
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
        self.file.read_exact_at(&mut listed, at.ok_or_else(|| damaged("a list of chunks has no end"))?)?;
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

    /// Calls `each` for every file, of which there may be several names, once.
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

    /// Calls `each` for every chunk of a file that is on the device.
    ///
    /// # Errors
    ///
    /// If bytes of the file are on the device, but the file does not say that for each chunk.
    pub(crate) fn chunks(&self, file: &Inode, mut each: impl FnMut(Chunk)) -> io::Result<()> {
        let (bits, width) = match file.layout {
            _ if file.size == 0 => return Ok(()),
            Layout::Chunks { bits, with_device: true } if bits <= CHUNK_BITS_MAX => (bits, 8),
            Layout::Chunks { .. } => return Err(damaged("a file does not say for each MiB which device it is on")),
            _ => {
                let parts = self.parts_of_blocks(file, 0..file.size)?;
                return match parts.iter().any(|part| matches!(part.from, From::Data(_))) {
                    true => Err(damaged("a file does not say for each MiB which device it is on")),
                    false => Ok(()),
                };
            }
        };
        let (list, count) = (file.behind().next_multiple_of(width), file.size.div_ceil(1 << bits));
        let mut listed = Vec::new();
        for first in (0..count).step_by(CHUNKS_MAX as usize) {
            listed.resize((CHUNKS_MAX.min(count - first) * width) as usize, 0);
            let at = list.checked_add(first * width).ok_or_else(|| damaged("a list of chunks has no end"))?;
            self.file.read_exact_at(&mut listed, at)?;
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

    /// How many bytes of an inode are not behind it.
    fn blocks_end(&self, inode: &Inode) -> u64 {
        match inode.layout {
            Layout::Inline(_) => (inode.size.div_ceil(self.block_bytes()).saturating_sub(1)) << self.block_bits,
            _ => inode.size,
        }
    }

    /// What is so many bytes behind the beginning of a block, on whichever device that is.
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
            // `mkfs.erofs` does not say how many it has.
            Some(Device { blocks: 0, .. }) => u64::MAX,
            device => device.map_or(0, |device| device.blocks << self.block_bits),
        };
        let end = at.and_then(|at| at.checked_add(length));
        match (at, end) {
            (Some(at), Some(end)) if end <= size => Ok(From::Data(at)),
            _ => Err(damaged("a file is beyond the end of its device")),
        }
    }

    /// Reads bytes of a directory or a link, which are in the metadata.
    fn read_own(&self, inode: &Inode, offset: u64, mut to: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(to.len() as u64);
        for part in self.parts(inode, offset..end)? {
            let From::Metadata(at) = part.from else { return Err(damaged("a directory is not in its metadata")) };
            let (now, later) = to.split_at_mut(part.length as usize);
            self.file.read_exact_at(now, at)?;
            to = later;
        }
        if to.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads bytes of the metadata as they are.
    pub(crate) fn read_metadata(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(to, at)
    }
}

/// The entry of this number in a block of a directory; none if there are fewer.
pub(crate) fn entry(block: &[u8], number: usize) -> io::Result<Option<Entry<'_>>> {
    let cut = || damaged("an entry of a directory is cut");
    let count = entries(block)?;
    if number >= count {
        return Ok(None);
    }
    let head = |number: usize| block.get(number * ENTRY..(number + 1) * ENTRY).ok_or_else(cut);
    let this = head(number)?;
    let start = usize::from(u16_at(this, 8));
    let end = if number + 1 < count { usize::from(u16_at(head(number + 1)?, 8)) } else { block.len() };
    let name = block.get(start..end).ok_or_else(cut)?;
    // Behind the last one there may be zeros.
    let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&b'/') {
        return Err(damaged("a name is none"));
    }
    Ok(Some(Entry { name, number: u64_at(this, 0), kind: this[10] }))
}

fn entries(block: &[u8]) -> io::Result<usize> {
    if block.len() < ENTRY {
        return Err(damaged("a block of a directory is cut"));
    }
    let first = usize::from(u16_at(block, 8));
    if first < ENTRY || first % ENTRY != 0 || first > block.len() {
        return Err(damaged("a block of a directory has no names"));
    }
    Ok(first / ENTRY)
}

/// The inode of a name in a block whose names are in order.
fn find(block: &[u8], name: &[u8]) -> io::Result<Option<u64>> {
    let (mut low, mut high) = (0, entries(block)?);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = entry(block, middle)?.ok_or_else(|| damaged("an entry is missing"))?;
        match found.name.cmp(name) {
            std::cmp::Ordering::Equal => return Ok(Some(found.number)),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Ok(None)
}

/// How many bytes an attribute takes, by its first four.
fn attribute_bytes(head: &[u8]) -> usize {
    4 + usize::from(head[0]) + usize::from(u16_at(head, 2))
}

/// An extended attribute as it stands in the metadata.
struct Attribute<'b> {
    /// How many bytes it takes there.
    taken: usize,
    /// The beginning of its name, which stands there as a number.
    prefix: &'static [u8],
    /// The rest of its name.
    name: &'b [u8],
    value: &'b [u8],
}

fn attribute(bytes: &[u8]) -> io::Result<Attribute<'_>> {
    let taken = attribute_bytes(bytes);
    let prefix: &[u8] = match bytes[1] {
        0 => b"",
        1 => b"user.",
        2 => b"system.posix_acl_access",
        3 => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        _ => return Err(damaged("an attribute has a name of an unknown kind")),
    };
    let rest = bytes.get(4..taken).ok_or_else(|| damaged("an attribute is cut"))?;
    let (name, value) = rest.split_at(usize::from(bytes[0]));
    Ok(Attribute { taken, prefix, name, value })
}

/// Adds a part behind those that are there: to the last one, if it goes on where that ends.
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

fn read_some(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < to.len() {
        match file.read_at(&mut to[count..], at + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
