//! A tree as the metadata of an EROFS file system, whose data is on a device of its own: that can be mounted before any
//! of it is there. We write it ourselves, since what others made would be read by the kernel, and since no tool writes
//! it from a list of names (docs/images.md, "EROFS").
//!
//! ```text
//! 0      nothing
//! 1024   superblock, 128 bytes
//! 1152   the one device, 128 bytes; room for two more, each 128 bytes that begin with "larder: spare"
//! 1536   inodes, the top's first, each at a multiple of 32: 64 bytes, extended attributes, then
//!          a file with bytes: 8 bytes for each piece · a link: its target ·
//!          a directory: what of it fills no block
//! …      whole blocks of directories, and of links that are too long
//! ```
//! Unaware of: where the device is, who mounts.

mod directory;
mod inode;
mod layout;
mod out;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_model::{BLOCK_BYTES, PIECE_BYTES};

use self::inode::Inodes;
use self::layout::Layout;
use self::out::Out;
use crate::ImageError;
use crate::tree::{HOLE, Kind, Tree};

const BLOCK: usize = BLOCK_BYTES as usize;
const SUPERBLOCK: usize = 1024;
const DEVICE: usize = 1152;
const DEVICE_BYTES: usize = 128;
/// Room for two more devices. An image that is mounted before its bytes are there has them: `larder-mount` adds them.
const SPARE: &[u8] = b"larder: spare";
const SPARES: usize = 2;
/// What stands before the first inode.
const HEAD_BYTES: usize = DEVICE + (1 + SPARES) * DEVICE_BYTES;
const MAGIC: u32 = 0xe0f5_e1e2;
const BLOCK_BITS: u8 = 12;
/// Files are lists of chunks; there is a table of devices.
const FEATURES: u32 = 0x4 | 0x8;

/// Write the file system into an empty file: of `tree`, with data on a device of `device_blocks`. Files of the saver are
/// `owner`'s.
///
/// Each piece of a file says on which device it is (Linux 5.16), so that it can be read from another device until its
/// bytes are there.
pub fn metadata(tree: &Tree, device_blocks: u32, owner: (u32, u32), into: &File) -> Result<(), ImageError> {
    write(tree, &Layout::new(tree, device_blocks)?, owner, into)
}

/// The same without a device, for kernels before 5.16: what would be on it is expected in this file, behind what is
/// written here. There a file can only be one stretch of blocks, so files whose pieces do not follow each other are laid
/// down a second time at the end: see `Whole::end`.
pub fn whole(tree: &Tree, device_blocks: u32, owner: (u32, u32), into: &File) -> Result<Whole, ImageError> {
    let layout = Layout::whole(tree, device_blocks)?;
    write(tree, &layout, owner, into)?;
    let copies = layout.copies.unwrap_or_default();
    let bytes = |block: u32| (u64::from(layout.blocks) + u64::from(block)) * BLOCK_BYTES;
    let mut ranges = Vec::new();
    for &(node, start) in &copies.files {
        let Kind::File { size, pieces, .. } = tree.nodes[node as usize].kind else { continue };
        for (number, &block) in tree.blocks[pieces.range()].iter().enumerate().filter(|(_, block)| **block != HOLE) {
            let done = number as u64 * PIECE_BYTES;
            ranges.push((bytes(block), bytes(start) + done, PIECE_BYTES.min(size - done)));
        }
    }
    let size_bytes = bytes(device_blocks) + copies.blocks * BLOCK_BYTES;
    Ok(Whole { device_at: bytes(0), size_bytes, copies: ranges })
}

/// A file system in one file, of which only the names are written.
pub struct Whole {
    /// Where the blocks of the device begin, bytes.
    pub device_at: u64,
    /// Of the file.
    pub size_bytes: u64,
    /// From where to where how many bytes are laid down a second time.
    copies: Vec<(u64, u64, u64)>,
}

impl Whole {
    /// Once the blocks of the device are there: lay down those files that are not one stretch of them.
    pub fn end(&self, file: &File) -> Result<(), ImageError> {
        let mut bytes = Vec::new();
        for &(from, to, count) in &self.copies {
            bytes.resize(count as usize, 0);
            let copied = file.read_exact_at(&mut bytes, from).and_then(|()| file.write_all_at(&bytes, to));
            copied.map_err(ImageError::io("write it", Path::new("(what is mounted)")))?;
        }
        Ok(())
    }
}

fn write(tree: &Tree, layout: &Layout, owner: (u32, u32), into: &File) -> Result<(), ImageError> {
    let mut out = Out::new(u64::from(layout.first_block) * BLOCK_BYTES, BLOCK_BYTES, into);
    out.inodes.add(&head(tree, layout));
    let mut inodes = Inodes::new(tree, layout, owner);
    for (number, node) in tree.nodes.iter().enumerate() {
        inodes.write(number, node, &mut out)?;
    }
    out.end()
}

/// Superblock and device.
fn head(tree: &Tree, layout: &Layout) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    put32(&mut bytes, SUPERBLOCK, MAGIC);
    bytes[SUPERBLOCK + 12] = BLOCK_BITS;
    put16(&mut bytes, SUPERBLOCK + 14, layout.number_of(0) as u16);
    put64(&mut bytes, SUPERBLOCK + 16, tree.nodes.len() as u64);
    put32(&mut bytes, SUPERBLOCK + 36, layout.blocks);
    if let Some(copies) = &layout.copies {
        // Without a device, and all files one stretch: nothing that Linux 5.4 does not know.
        put32(&mut bytes, SUPERBLOCK + 36, layout.blocks + layout.device_blocks + copies.blocks as u32);
        return bytes;
    }
    put32(&mut bytes, SUPERBLOCK + 80, FEATURES);
    put16(&mut bytes, SUPERBLOCK + 86, 1);
    put16(&mut bytes, SUPERBLOCK + 88, (DEVICE / DEVICE_BYTES) as u16);
    put32(&mut bytes, DEVICE + 64, layout.device_blocks);
    for spare in 1..=SPARES {
        let at = DEVICE + spare * DEVICE_BYTES;
        bytes[at..at + SPARE.len()].copy_from_slice(SPARE);
    }
    bytes
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests;
