//! The contents of an image's files, one file after the other, from packs in the store.
//!
//! Unaware of: archive formats.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::Path;

use larder_model::{BLOCK_BYTES, PIECE_BYTES};
use larder_store::Store;

use crate::compress::Unpacker;
use crate::tree::{HOLE, Node, NodeKind, Tree, piece_length};
use crate::{Image, ImageError, packs};

/// The most unpacked packs in memory. Files in the order of names need one pack after the other,
/// except for contents that several files have.
const KEPT_MAX: usize = 16;

/// Reads the contents of an image's files.
pub(super) struct Contents<'a> {
    pub(super) image: &'a Image,
    store: &'a Store,
    unpacker: Unpacker,
    kept: VecDeque<(usize, Vec<u8>)>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(store: &'a Store, image: &'a Image) -> Result<Self, ImageError> {
        Ok(Contents { image, store, unpacker: Unpacker::new()?, kept: VecDeque::new() })
    }

    /// Returns the content of a file of a tree.
    pub(super) fn file<'b>(&'b mut self, tree: &'a Tree, node: &Node) -> Bytes<'a, 'b> {
        let (size, blocks) = match node.kind {
            NodeKind::File { size, pieces, .. } => (size, &tree.blocks[pieces.range()]),
            _ => (0, &[][..]),
        };
        Bytes { contents: self, size, blocks, at: 0 }
    }

    /// Returns the unpacked bytes of a pack from `block` on.
    fn rest_of_pack(&mut self, block: u32) -> Result<&[u8], ImageError> {
        let number = self.image.packs.of_block(block).ok_or(ImageError::TooLarge("the packs of its list"))?;
        let place = match self.kept.iter().position(|(kept, _)| *kept == number) {
            Some(place) => place,
            None => {
                let pack = &self.image.packs.packs[number];
                let packed = self.store.blob_bytes(&pack.blob, pack.blob.size_bytes)?;
                let mut raw = if self.kept.len() < KEPT_MAX {
                    Vec::new()
                } else {
                    self.kept.pop_front().map(|(_, raw)| raw).unwrap_or_default()
                };
                packs::open(pack, &packed, &mut self.unpacker, &mut raw)?;
                self.kept.push_back((number, raw));
                self.kept.len() - 1
            }
        };
        let start = u64::from(block - self.image.packs.start(number)) * BLOCK_BYTES;
        Ok(&self.kept[place].1[start as usize..])
    }
}

/// The content of a file. Holes are zeros.
pub(super) struct Bytes<'a, 'b> {
    contents: &'b mut Contents<'a>,
    size: u64,
    blocks: &'a [u32],
    at: u64,
}

impl Read for Bytes<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.size || buffer.is_empty() {
            return Ok(0);
        }
        let (number, offset) = (self.at / PIECE_BYTES, self.at % PIECE_BYTES);
        let left = piece_length(self.size, number) - offset;
        let count = left.min(buffer.len() as u64) as usize;
        let bytes = &mut buffer[..count];
        match self.blocks.get(number as usize) {
            None | Some(&HOLE) => bytes.fill(0),
            Some(&block) => {
                let raw = self.contents.rest_of_pack(block).map_err(io::Error::other)?;
                bytes.copy_from_slice(&raw[offset as usize..offset as usize + count]);
            }
        }
        self.at += count as u64;
        Ok(count)
    }
}

/// For `map_err`: returns the `ImageError` in an I/O error, or says that `to` could not be written.
pub(super) fn failed(to: &Path) -> impl Fn(io::Error) -> ImageError + Copy + '_ {
    move |error| match error.downcast::<ImageError>() {
        Ok(own) => own,
        Err(error) => ImageError::io("write it", to)(error),
    }
}
