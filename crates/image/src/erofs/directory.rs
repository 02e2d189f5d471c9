//! Encoding a directory: blocks, and in each its entries of 12 bytes followed by their names. All
//! names of a directory, including `.` and `..`, are sorted by their bytes, because the kernel uses
//! a binary search.
//!
//! Unaware of: where the bytes go.

use std::ops::Range;

use super::{BLOCK, Layout};
use crate::ImageError;
use crate::tree::{Kind, Span, Tree};

const ENTRY: usize = 12;

/// An entry: its name and its node.
type Named<'a> = (&'a [u8], u32);

/// Returns all entries of a directory, sorted.
fn entries<'a>(tree: &'a Tree, directory: u32, children: Span) -> impl Iterator<Item = Named<'a>> {
    let parent = tree.nodes.get(directory as usize).map_or(0, |node| node.parent);
    let named = move |number: usize| (tree.name(&tree.nodes[number]), number as u32);
    // Few names sort before `.` and `..`.
    let Range { start, end } = children.range();
    let first = (start..end).take_while(|&number| named(number).0 < &b"."[..]).count() + start;
    let second = (first..end).take_while(|&number| named(number).0 < &b".."[..]).count() + first;
    let dots = [(&b"."[..], directory), (&b".."[..], parent)];
    let [before, between, behind] = [start..first, first..second, second..end].map(|range| range.map(named));
    before.chain([dots[0]]).chain(between).chain([dots[1]]).chain(behind)
}

/// Returns the size of a directory, in bytes.
pub(super) fn size(tree: &Tree, children: Span) -> u64 {
    let names: usize = tree.nodes[children.range()].iter().map(|node| ENTRY + tree.name(node).len()).sum();
    let all = names + 2 * ENTRY + b"...".len();
    // If everything fits into one block, the order does not change the size.
    if all <= BLOCK {
        return all as u64;
    }
    let (mut blocks, mut used) = (0, 0);
    for (name, _) in entries(tree, 0, children) {
        let more = ENTRY + name.len();
        if used + more > BLOCK {
            blocks += 1;
            used = 0;
        }
        used += more;
    }
    blocks * BLOCK as u64 + used as u64
}

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
        Kind::File { .. } => 1,
        Kind::Directory(_) => 2,
        Kind::Fifo => 5,
        Kind::Link(_) => 7,
        Kind::Again(file) => kind(tree, file),
    }
}
