//! Encoding a directory: blocks, and in each its entries of 12 bytes followed by their names.
//!
//! Unaware of: where the bytes go.

use super::bytes::BLOCK;
use super::entries::{ENTRY, Named, entries};
use super::layout::Layout;
use crate::ImageError;
use crate::tree::{NodeKind, Span, Tree};

/// Encodes directories, one after the other.
#[derive(Default)]
pub(super) struct Writer<'a> {
    block: Vec<Named<'a>>,
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Encodes a directory and passes each block to `put`. All blocks but the last are full.
    pub(super) fn write(
        &mut self,
        tree: &'a Tree,
        layout: &Layout,
        directory: u32,
        children: Span,
        mut put: impl FnMut(&[u8]) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let mut used = 0;
        self.block.clear();
        for entry in entries(tree, directory, children) {
            let more = ENTRY + entry.0.len();
            if used + more > BLOCK {
                fill(tree, layout, &self.block, &mut self.bytes);
                self.bytes.resize(BLOCK, 0);
                put(&self.bytes)?;
                self.block.clear();
                used = 0;
            }
            used += more;
            self.block.push(entry);
        }
        fill(tree, layout, &self.block, &mut self.bytes);
        put(&self.bytes)
    }
}

fn fill(tree: &Tree, layout: &Layout, block: &[Named<'_>], bytes: &mut Vec<u8>) {
    bytes.clear();
    let mut name_at = block.len() * ENTRY;
    for (name, node) in block {
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&layout.number_of(*node as usize).to_le_bytes());
        entry[8..10].copy_from_slice(&(name_at as u16).to_le_bytes());
        entry[10] = kind(tree, *node);
        bytes.extend_from_slice(&entry);
        name_at += name.len();
    }
    block.iter().for_each(|(name, _)| bytes.extend_from_slice(name));
}

/// Returns the file type that an entry has.
fn kind(tree: &Tree, node: u32) -> u8 {
    match tree.nodes[node as usize].kind {
        NodeKind::File { .. } => 1,
        NodeKind::Directory(_) => 2,
        NodeKind::Fifo => 5,
        NodeKind::Link(_) => 7,
        NodeKind::Again(file) => kind(tree, file),
    }
}
