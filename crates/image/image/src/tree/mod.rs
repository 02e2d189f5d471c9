//! Trees: the names below a saved path and their metadata. The content of files is not in a tree;
//! for each piece of a file it has the block of the image's device where the piece begins.
//!
//! ```text
//! tree   = u8 version, owners, sets, number of nodes, node of the top, group*
//! owners = number, (number user, number group)*                        the first is the saver
//! sets   = number, (number of attributes, (bytes name, bytes value)*)* the first is empty
//! group  = number of entries, (bytes name, node)*                      names sorted by their bytes
//! node   = u8 1…5, number mode, number owner, number set,
//!          signed seconds since the node before, number ns, …
//!          1 file: number size, piece*
//!          2 file with holes: number size, number of extents, extent*, piece*
//!          3 directory · 4 link: bytes target · 5 FIFO
//!        | u8 6, number of a node                                      a hard link to that node
//! extent = number of bytes since the end of the extent before, number of bytes of data
//! piece  = 0 (a hole) | 1 + signed blocks since the end of the piece before
//! signed = number: 2 × value, or for a negative value 2 × its absolute value − 1
//!          for example 1 → 2, −1 → 1
//! ```
//! There is a group for each directory: first that of the top, and the others in depth-first order.
//! A file has a piece for each MiB.
//!
//! Unaware of: packs, file systems.

mod decode;
mod encode;

pub(crate) use decode::ROOM_PER_BYTE;
use larder_model::{BLOCK_BYTES, PIECE_BYTES, PackList};
use std::ops::Range;

pub(crate) use encode::{Grower, NodeMetadata};

/// The most nodes of a tree.
pub(crate) const NODES_MAX: u64 = 1 << 26;
/// The most attributes of a node.
pub(crate) const ATTRIBUTES_MAX: u64 = 256;
/// The most bytes of an attribute's value: the limit of EROFS, one less than that of Linux.
pub(crate) const VALUE_BYTES_MAX: u64 = 65_535;
/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;
/// A file's capabilities: rights of a process that executes it, whichever user starts it.
const CAPABILITY: &[u8] = b"security.capability";
/// The block of a piece that is a hole.
pub(crate) const HOLE: u32 = u32::MAX;

/// A range of indices of one of a tree's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(crate) fn new(range: Range<usize>) -> Span {
        Span { start: range.start as u32, end: range.end as u32 }
    }

    /// Returns the indices.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The kind of a node, with the data of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A file.
    File {
        /// The size, in bytes.
        size: u64,
        /// Its pieces, in [`Tree::blocks`].
        pieces: Span,
        /// The parts that are not holes, in [`Tree::extents`]; empty if the file has no holes.
        extents: Span,
    },
    /// A directory, and its children, which are consecutive nodes.
    Directory(Span),
    /// A symbolic link, and its target in the tree's text.
    Link(Span),
    /// A FIFO.
    Fifo,
    /// A hard link to the node of this number.
    Again(u32),
}

/// A name and its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    name: Span,
    /// The node of its directory; the top is its own parent.
    pub parent: u32,
    /// Permission bits.
    pub mode: u16,
    /// Its owner, in [`Tree::owners`].
    pub owner: u32,
    /// Its extended attributes, in [`Tree::sets`].
    pub set: u32,
    /// The time of its last modification: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Its kind.
    pub kind: NodeKind,
}

/// A part of a file that is not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub length: u64,
}

/// An extended attribute: its whole name, such as `user.origin`, and its value.
pub type Attribute = (Vec<u8>, Vec<u8>);

/// A tree. The first node is the top: the saved path itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Users and groups; the first is the saver.
    pub owners: Vec<(u32, u32)>,
    /// Sets of extended attributes; the first is empty.
    pub sets: Vec<Vec<Attribute>>,
    /// The first block of each piece, or `u32::MAX` for a hole.
    pub blocks: Vec<u32>,
    /// Parts of files that are not holes.
    pub extents: Vec<Extent>,
    text: Vec<u8>,
}

/// Returns true if images keep attributes of this name. Others belong to the machine, for example
/// SELinux labels, or to the kernel, for example `trusted.overlay.opaque`.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    let of_user = name.strip_prefix(b"user.").is_some_and(|rest| !rest.is_empty());
    of_user || [&b"system.posix_acl_access"[..], b"system.posix_acl_default", CAPABILITY].contains(&name)
}

impl Tree {
    /// Removes what gives rights to a process that executes a file: set-user-id, set-group-id and
    /// capabilities. Returns how many nodes had any. Otherwise a stranger's tree that root restores
    /// could give that stranger root's rights.
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

    /// Returns a node's name; that of the top is empty.
    pub fn name(&self, node: &Node) -> &[u8] {
        &self.text[node.name.range()]
    }

    /// Returns the target of a link.
    pub fn target(&self, link: Span) -> &[u8] {
        &self.text[link.range()]
    }

    /// Returns a node's path below the top, without a leading slash; that of the top is empty.
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

    /// Returns whether each piece lies within one of these packs.
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
            NodeKind::File { size, pieces, .. } => {
                self.blocks[pieces.range()].iter().enumerate().all(|(at, &block)| is_within(size, at, block))
            }
            _ => true,
        })
    }
}

/// Returns how many pieces a file of this size has.
pub(crate) fn pieces_of(size: u64) -> u64 {
    size.div_ceil(PIECE_BYTES)
}

/// Returns the length of a piece of a file of this size, in bytes.
pub(crate) fn piece_length(size: u64, number: u64) -> u64 {
    (size - number * PIECE_BYTES).min(PIECE_BYTES)
}

/// Returns how many blocks this many bytes take.
pub(crate) fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
pub(crate) mod tests;
