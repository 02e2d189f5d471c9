//! Tree: the names below a saved path with all that is known of them, but for the bytes of files. Of those it says
//! which blocks of the image's device hold them.
//!
//! ```text
//! tree   = u8 version, owners, sets, number of nodes, node of the top, group*
//! owners = number, (number user, number group)*                        the first is who saved
//! sets   = number, (number of attributes, (bytes name, bytes value)*)* the first is empty
//! group  = number of entries, (bytes name, node)*                      names in the order of their bytes
//! node   = u8 1…5, number mode, number owner, number set, signed seconds since the node before, number ns, …
//!          1 file: number size, piece* · 2 file with holes: number size, number of extents, extent*, piece*
//!          3 directory · 4 link: bytes target · 5 FIFO
//!        | u8 6, number of a node                                      another name of that file
//! extent = number of bytes since the end of the extent before, number of bytes that are written
//! piece  = 0 where nothing is written | 1 + signed blocks since the end of the piece before
//! signed = number, twice the value, or of a negative one twice its distance from zero less one
//! ```
//! There is a group for each directory: the top's first, then in the order of a walk that goes down before it goes on.
//! A file has a piece for each mebibyte of it.
//!
//! Unaware of: packs, file systems, who reads it.

mod decode;
mod encode;

use larder_model::{BLOCK_BYTES, PIECE_BYTES, PackList};
use std::ops::Range;

pub(crate) use encode::{Grower, Known};

/// Nodes of a tree.
pub(crate) const NODES_MAX: u64 = 1 << 26;
/// Attributes of a name.
pub(crate) const ATTRIBUTES_MAX: u64 = 256;
/// The value of one, bytes: what EROFS can say, one less than what Linux allows.
pub(crate) const VALUE_BYTES_MAX: u64 = 65_535;
/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;
/// A file's capabilities: what a process that executes it may do, whoever started it.
const CAPABILITY: &[u8] = b"security.capability";
/// The block of a piece of which nothing is written.
pub(crate) const HOLE: u32 = u32::MAX;

/// A stretch of one of a tree's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(crate) fn new(range: Range<usize>) -> Span {
        Span { start: range.start as u32, end: range.end as u32 }
    }

    /// The numbers in it.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File {
        /// Bytes.
        size: u64,
        /// Its pieces, in [`Tree::blocks`].
        pieces: Span,
        /// Where it is written, in [`Tree::extents`]; nothing where all of it is.
        extents: Span,
    },
    /// A directory, and its names: nodes one after the other.
    Directory(Span),
    /// A symbolic link.
    Link(Span),
    /// A FIFO.
    Fifo,
    /// Another name of the file that this node is.
    Again(u32),
}

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    name: Span,
    /// The node of its directory; the top's own is the top.
    pub parent: u32,
    /// Permission bits.
    pub mode: u16,
    /// Whose it is, in [`Tree::owners`].
    pub owner: u32,
    /// Its extended attributes, in [`Tree::sets`].
    pub set: u32,
    /// When its content was last changed: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// What it is.
    pub kind: Kind,
}

/// A part of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins, bytes.
    pub offset: u64,
    /// How long it is, bytes.
    pub length: u64,
}

/// An extended attribute: its whole name, such as `user.origin`, and its value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// See above. The first node is the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Users and groups; the first is who saved.
    pub owners: Vec<(u32, u32)>,
    /// Sets of extended attributes; the first is empty.
    pub sets: Vec<Vec<Attribute>>,
    /// For each piece its first block.
    pub blocks: Vec<u32>,
    /// Parts of files that are written.
    pub extents: Vec<Extent>,
    text: Vec<u8>,
}

/// Returns true if an attribute of this name is kept in images. Others belong to the machine, as its labels do, or to its
/// kernel, as `trusted.overlay.opaque` does.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    let of_user = name.strip_prefix(b"user.").is_some_and(|rest| !rest.is_empty());
    of_user || [&b"system.posix_acl_access"[..], b"system.posix_acl_default", CAPABILITY].contains(&name)
}

impl Tree {
    /// Take away what gives rights to a process that executes a file: set-user-id, set-group-id and capabilities. Returns
    /// how many names had any. With them, restoring as root a tree that somebody else made would give that person root's
    /// rights.
    pub(crate) fn drop_rights(&mut self) -> u64 {
        let has_capability = |set: &Vec<Attribute>| set.iter().any(|(name, _)| name == CAPABILITY);
        let had: Vec<bool> = self.sets.iter().map(has_capability).collect();
        for set in &mut self.sets {
            set.retain(|(name, _)| name != CAPABILITY);
        }
        let mut dropped = 0;
        for node in &mut self.nodes {
            dropped += u64::from(node.mode & SET_ID != 0 || had[node.set as usize]);
            node.mode &= !SET_ID;
        }
        dropped
    }

    /// A node's name; the top has none.
    pub fn name(&self, node: &Node) -> &[u8] {
        &self.text[node.name.range()]
    }

    /// Where a link leads.
    pub fn target(&self, link: Span) -> &[u8] {
        &self.text[link.range()]
    }

    /// A node's path below the top, without a slash before it; the top's is empty.
    pub fn path(&self, number: u32) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = number;
        while at != 0 {
            let node = &self.nodes[at as usize];
            names.push(self.name(node));
            at = node.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Whether each piece lies within one of these packs.
    pub(crate) fn fits(&self, packs: &PackList) -> bool {
        let mut last = 0;
        let mut is_within = |size: u64, at: usize, block: u32| {
            let blocks = blocks_of(piece_length(size, at as u64));
            block == HOLE
                || packs.of_next_block(block, &mut last).is_some_and(|pack| {
                    u64::from(block) + blocks <= u64::from(packs.start(pack)) + u64::from(packs.packs[pack].blocks)
                })
        };
        self.nodes.iter().all(|node| match node.kind {
            Kind::File { size, pieces, .. } => {
                self.blocks[pieces.range()].iter().enumerate().all(|(at, &block)| is_within(size, at, block))
            }
            _ => true,
        })
    }
}

/// How many pieces a file of this size has.
pub(crate) fn pieces_of(size: u64) -> u64 {
    size.div_ceil(PIECE_BYTES)
}

/// How long a piece of a file of this size is, bytes.
pub(crate) fn piece_length(size: u64, number: u64) -> u64 {
    (size - number * PIECE_BYTES).min(PIECE_BYTES)
}

/// How many blocks so many bytes take.
pub(crate) fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
pub(crate) mod tests;
