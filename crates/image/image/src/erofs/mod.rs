//! Encoding a tree as the metadata of an EROFS file system. Its data is on a separate device, so
//! that it can be mounted before any data is there.
//!
//! We write it ourselves for two reasons. The kernel must not read metadata that a stranger made,
//! and no tool makes it from a list of names (docs/images.md, "EROFS").
//!
//! ```text
//! 0      nothing
//! 1024   superblock, 128 bytes
//! 1152   the data device, 128 bytes; two unused slots of 128 bytes that begin with "larder: spare"
//! 1536   inodes, the top's first, each at a multiple of 32: 64 bytes, extended attributes, then
//!          a file with bytes: 8 bytes for each piece · a link: its target ·
//!          a directory: its last part, if that fills no block
//! …      whole blocks of directories, and long targets of links
//! ```
//! Unaware of: where the device is, how it is mounted.

mod bytes;
mod directory;
mod entries;
mod inode;
mod layout;
mod out;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_model::{BLOCK_BYTES, PIECE_BYTES};

use self::bytes::{DEVICE, DEVICE_BYTES, HEAD_BYTES, SPARE, SPARES, SUPERBLOCK, put16, put32, put64};
use self::inode::Inodes;
use self::layout::Layout;
use self::out::Out;
use crate::ImageError;
use crate::tree::{HOLE, NodeKind, Tree};

const MAGIC: u32 = 0xe0f5_e1e2;
const BLOCK_BITS: u8 = 12;
/// Incompatible features that are used: files are lists of chunks, and there is a device table.
const FEATURES: u32 = 0x4 | 0x8;

/// Writes the metadata of `tree` into an empty file, with data on a device of `device_blocks`
/// blocks. Files of the saver belong to `owner`.
///
/// Each piece of a file has a device number (Linux 5.16), so that it can be read from another
/// device until its data is there.
pub fn metadata(tree: &Tree, device_blocks: u32, owner: (u32, u32), into: &File) -> Result<(), ImageError> {
    write(tree, &Layout::new(tree, device_blocks)?, owner, into)
}

/// Writes the metadata of a file system without a device, for kernels before 5.16. The device's
/// blocks must be written into the same file, behind the metadata. In such a file system a file is
/// one run of blocks, so that files with scattered pieces have to be copied to the end: see
/// [`Whole::end`].
pub fn whole(tree: &Tree, device_blocks: u32, owner: (u32, u32), into: &File) -> Result<Whole, ImageError> {
    let layout = Layout::whole(tree, device_blocks)?;
    write(tree, &layout, owner, into)?;
    let copies = layout.copies.unwrap_or_default();
    let bytes = |block: u32| (u64::from(layout.blocks) + u64::from(block)) * BLOCK_BYTES;
    let mut ranges = Vec::new();
    for &(node, start) in &copies.files {
        let NodeKind::File { size, pieces, .. } = tree.nodes[node as usize].kind else { continue };
        for (number, &block) in tree.blocks[pieces.range()].iter().enumerate().filter(|(_, block)| **block != HOLE) {
            let done = number as u64 * PIECE_BYTES;
            ranges.push((bytes(block), bytes(start) + done, PIECE_BYTES.min(size - done)));
        }
    }
    let size_bytes = bytes(device_blocks) + copies.blocks * BLOCK_BYTES;
    Ok(Whole { device_at: bytes(0), size_bytes, copies: ranges })
}

/// A file system in one file, of which only the metadata is written.
pub struct Whole {
    /// The offset of the device's blocks, in bytes.
    pub device_at: u64,
    /// The size of the file, in bytes.
    pub size_bytes: u64,
    /// The copies to make: source offset, destination offset, length, in bytes.
    copies: Vec<(u64, u64, u64)>,
}

impl Whole {
    /// Copies the files with scattered pieces. The device's blocks must have been written.
    pub fn end(&self, file: &File) -> Result<(), ImageError> {
        let mut bytes = Vec::new();
        for &(from, to, count) in &self.copies {
            bytes.resize(count as usize, 0);
            let copied = file.read_exact_at(&mut bytes, from).and_then(|()| file.write_all_at(&bytes, to));
            copied.map_err(ImageError::io("write it", Path::new("(the file to mount)")))?;
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

/// Returns the superblock and the device table.
fn head(tree: &Tree, layout: &Layout) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    put32(&mut bytes, SUPERBLOCK, MAGIC);
    bytes[SUPERBLOCK + 12] = BLOCK_BITS;
    put16(&mut bytes, SUPERBLOCK + 14, layout.number_of(0) as u16);
    put64(&mut bytes, SUPERBLOCK + 16, tree.nodes.len() as u64);
    put32(&mut bytes, SUPERBLOCK + 36, layout.blocks);
    if let Some(copies) = &layout.copies {
        // Without a device and with files in one run, no feature that Linux 5.4 lacks is used.
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

#[cfg(test)]
mod tests;
