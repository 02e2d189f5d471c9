//! The bytes of an inode and of what follows it.

use super::layout::{INODE, suffix};
use super::{BLOCK, Layout, directory, put16, put32, put64};
use crate::tree::{HOLE, Kind, Node, Span, Tree};

/// All inodes have 64 bytes: the short form has no times.
const LONG: u16 = 1;
const LAYOUT_PLAIN: u16 = 0;
const LAYOUT_INLINE: u16 = 2;
const LAYOUT_CHUNKS: u16 = 4;
/// Chunks are listed with their device, and are 2^8 blocks: a piece.
const CHUNKS: u32 = 0x20 | 8;
/// The first device behind this one.
const DATA: u16 = 1;
const FILE: u16 = 0o100_000;
const DIRECTORY: u16 = 0o40_000;
const LINK: u16 = 0o120_000;
const FIFO: u16 = 0o10_000;

/// Write a node's inode, and what it has elsewhere. Another name has none of its own.
pub(super) fn write(bytes: &mut [u8], tree: &Tree, layout: &Layout, number: usize, node: &Node, owner: (u32, u32)) {
    let at = layout.place(number);
    let split = layout.split(tree, number);
    let inline = if split.tail > 0 { LAYOUT_INLINE } else { LAYOUT_PLAIN };
    let block = layout.first_block(number);
    let (form, kind, size, told) = match node.kind {
        Kind::Again(_) => return,
        Kind::File { size: 0, .. } => (LAYOUT_PLAIN, FILE, 0, 0),
        Kind::File { size, .. } => (LAYOUT_CHUNKS, FILE, size, CHUNKS),
        Kind::Directory(children) => (inline, DIRECTORY, directory::size(tree, children) as u64, block),
        Kind::Link(target) => (inline, LINK, target.range().len() as u64, block),
        Kind::Fifo => (LAYOUT_PLAIN, FIFO, 0, 0),
    };
    let set = layout.set_bytes(node.set);
    let (user, group) = if node.owner == 0 { owner } else { tree.owners[node.owner as usize] };
    put16(bytes, at, LONG | form << 1);
    put16(bytes, at + 2, if set == 0 { 0 } else { 1 + ((set - 12) / 4) as u16 });
    put16(bytes, at + 4, kind | node.mode);
    put64(bytes, at + 8, size);
    put32(bytes, at + 16, told);
    put32(bytes, at + 20, number as u32 + 1);
    put32(bytes, at + 24, user);
    put32(bytes, at + 28, group);
    put64(bytes, at + 32, node.modified.0 as u64);
    put32(bytes, at + 40, node.modified.1);
    put32(bytes, at + 44, layout.links[number]);
    attributes(bytes, tree, node.set, at + INODE);
    let behind = at + INODE + set;
    let start = block as usize * BLOCK;
    match node.kind {
        Kind::File { pieces, .. } => chunks(bytes, tree, pieces, behind.next_multiple_of(8)),
        Kind::Directory(children) => directory::write(tree, layout, number as u32, children, |block, part| {
            let to = if block < split.blocks { start + block * BLOCK } else { behind };
            bytes[to..to + part.len()].copy_from_slice(part);
        }),
        Kind::Link(target) => {
            let to = if split.blocks > 0 { start } else { behind };
            bytes[to..to + target.range().len()].copy_from_slice(tree.target(target));
        }
        Kind::Fifo | Kind::Again(_) => {}
    }
}

fn attributes(bytes: &mut [u8], tree: &Tree, set: u32, at: usize) {
    let mut to = at + 12;
    for (name, value) in &tree.sets[set as usize] {
        let (prefix, rest) = suffix(name);
        bytes[to] = rest.len() as u8;
        bytes[to + 1] = prefix;
        put16(bytes, to + 2, value.len() as u16);
        bytes[to + 4..to + 4 + rest.len()].copy_from_slice(rest);
        let value_at = to + 4 + rest.len();
        bytes[value_at..value_at + value.len()].copy_from_slice(value);
        to = at + (value_at + value.len() - at).next_multiple_of(4);
    }
}

fn chunks(bytes: &mut [u8], tree: &Tree, pieces: Span, at: usize) {
    for (number, &block) in tree.blocks[pieces.range()].iter().enumerate() {
        let to = at + number * 8;
        put16(bytes, to + 2, if block == HOLE { 0 } else { DATA });
        put32(bytes, to + 4, block);
    }
}
