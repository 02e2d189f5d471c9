//! Encoding inodes and what follows them, in the order of nodes.
//!
//! Unaware of: where the bytes go.

use super::bytes::{BLOCK, put16, put32, put64};
use super::directory;
use super::layout::{INODE, Layout, Split, suffix};
use super::out::Out;
use crate::ImageError;
use crate::tree::{HOLE, Node, NodeKind, Span, Tree};

/// The long form of an inode, with 64 bytes, because the short form has no times.
const LONG: u16 = 1;
const LAYOUT_PLAIN: u16 = 0;
const LAYOUT_INLINE: u16 = 2;
const LAYOUT_CHUNKS: u16 = 4;
/// The chunk format: entries with a device number, for chunks of 2^8 blocks, the size of a piece.
const CHUNKS: u32 = 0x20 | 8;
/// The number of the data device.
const DATA: u16 = 1;
const FILE: u16 = 0o100_000;
const DIRECTORY: u16 = 0o40_000;
const LINK: u16 = 0o120_000;
const FIFO: u16 = 0o10_000;

/// Encodes inodes. Files of the saver belong to `owner`.
pub(super) struct Inodes<'a> {
    tree: &'a Tree,
    layout: &'a Layout,
    owner: (u32, u32),
    /// The directories that have not been encoded yet.
    splits: std::slice::Iter<'a, Split>,
    /// The next whole block that directories and links can use.
    block: u32,
    directories: directory::Writer<'a>,
}

impl<'a> Inodes<'a> {
    pub(super) fn new(tree: &'a Tree, layout: &'a Layout, owner: (u32, u32)) -> Self {
        let (splits, block) = (layout.directories.iter(), layout.first_block);
        Inodes { tree, layout, owner, splits, block, directories: directory::Writer::default() }
    }

    /// Encodes a node's inode and its data. Must be called once for each node, in order. A hard
    /// link has no inode of its own.
    pub(super) fn write(&mut self, number: usize, node: &Node, out: &mut Out<'_>) -> Result<(), ImageError> {
        let (tree, layout) = (self.tree, self.layout);
        let split = match node.kind {
            NodeKind::Again(_) => return Ok(()),
            NodeKind::Directory(_) => self.splits.next().copied().unwrap_or_default(),
            NodeKind::Link(target) => layout.split_link(node, target),
            _ => Split::default(),
        };
        out.inodes.zeros_to(layout.place(number));
        out.inodes.add(&self.inode(number, node, split));
        self.attributes(node.set, out);
        match node.kind {
            NodeKind::File { pieces, .. } if layout.is_listed(node) => chunks(tree, pieces, out),
            NodeKind::Directory(children) => {
                let mut left = split.blocks;
                self.directories.write(tree, layout, number as u32, children, |part| {
                    let elsewhere = left > 0;
                    left = left.saturating_sub(1);
                    out.put(elsewhere, part)
                })?;
            }
            NodeKind::Link(target) => out.put(split.blocks > 0, tree.target(target))?,
            _ => {}
        }
        self.block += split.blocks;
        out.write_what_is_much()
    }

    fn inode(&self, number: usize, node: &Node, split: Split) -> [u8; INODE] {
        let (tree, layout) = (self.tree, self.layout);
        let inline = if split.tail > 0 { LAYOUT_INLINE } else { LAYOUT_PLAIN };
        let bytes = u64::from(split.blocks) * BLOCK as u64 + u64::from(split.tail);
        let block = if split.blocks > 0 { self.block } else { 0 };
        let (form, kind, size, told) = match node.kind {
            NodeKind::File { size: 0, .. } => (LAYOUT_PLAIN, FILE, 0, 0),
            NodeKind::File { size, .. } if layout.is_listed(node) => (LAYOUT_CHUNKS, FILE, size, CHUNKS),
            NodeKind::File { size, pieces, .. } => {
                let copy = layout.copies.as_ref().and_then(|copies| copies.start(number));
                let start = copy.unwrap_or_else(|| tree.blocks[pieces.range().start]);
                (LAYOUT_PLAIN, FILE, size, layout.blocks + start)
            }
            NodeKind::Directory(_) => (inline, DIRECTORY, bytes, block),
            NodeKind::Link(target) => (inline, LINK, target.range().len() as u64, block),
            NodeKind::Fifo | NodeKind::Again(_) => (LAYOUT_PLAIN, FIFO, 0, 0),
        };
        let set = layout.set_bytes(node.set);
        let (user, group) = if node.owner == 0 { self.owner } else { tree.owners[node.owner as usize] };
        let mut inode = [0; INODE];
        put16(&mut inode, 0, LONG | form << 1);
        put16(&mut inode, 2, if set == 0 { 0 } else { 1 + ((set - 12) / 4) as u16 });
        put16(&mut inode, 4, kind | node.mode);
        put64(&mut inode, 8, size);
        put32(&mut inode, 16, told);
        put32(&mut inode, 20, number as u32 + 1);
        put32(&mut inode, 24, user);
        put32(&mut inode, 28, group);
        put64(&mut inode, 32, node.modified.0 as u64);
        put32(&mut inode, 40, node.modified.1);
        put32(&mut inode, 44, layout.links[number]);
        inode
    }

    fn attributes(&self, set: u32, out: &mut Out<'_>) {
        if set == 0 {
            return;
        }
        let mut bytes = vec![0; 12];
        for (name, value) in &self.tree.sets[set as usize] {
            let (prefix, rest) = suffix(name);
            bytes.extend([rest.len() as u8, prefix]);
            bytes.extend((value.len() as u16).to_le_bytes());
            bytes.extend_from_slice(rest);
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        out.inodes.add(&bytes);
    }
}

fn chunks(tree: &Tree, pieces: Span, out: &mut Out<'_>) {
    out.inodes.zeros_to(out.inodes.end().next_multiple_of(8));
    for &block in &tree.blocks[pieces.range()] {
        let mut chunk = [0; 8];
        put16(&mut chunk, 2, if block == HOLE { 0 } else { DATA });
        put32(&mut chunk, 4, block);
        out.inodes.add(&chunk);
    }
}
