//! Where each inode is, and what of it is elsewhere.

use super::{BLOCK, DEVICE, DEVICE_BYTES, directory};
use crate::ImageError;
use crate::tree::{Attribute, Kind, Tree};

/// An inode, bytes.
pub(super) const INODE: usize = 64;
/// Inodes begin at multiples of this, and are numbered by it.
const SLOT: usize = 32;
/// What stands before the extended attributes of an inode, bytes.
const ATTRIBUTES_HEAD: usize = 12;
/// All extended attributes of an inode, bytes: what its 16 bits can say.
const ATTRIBUTES_BYTES_MAX: usize = 4 * (u16::MAX as usize - 1);

/// See above.
pub(super) struct Layout {
    /// For each node where its inode begins; another name has that of its file.
    places: Vec<u64>,
    /// For each node that has whole blocks elsewhere the first of them, by node number.
    blocks: Vec<(u32, u32)>,
    /// Bytes of each set of extended attributes, with what stands before them.
    sets: Vec<usize>,
    /// Names of each node: those that are further ones counted with their file.
    pub(super) links: Vec<u32>,
    /// Bytes of everything, whole blocks.
    pub(super) size: usize,
}

/// How the bytes of a directory or link lie: so many whole blocks elsewhere, and so many bytes behind the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) blocks: usize,
    pub(super) tail: usize,
}

impl Split {
    /// Of so many bytes, where so many stand before the tail. The tail must be in one block with its inode; a block of
    /// which it would be all but the inode is a block of its own.
    fn of(bytes: usize, before: usize) -> Split {
        match (bytes / BLOCK, bytes % BLOCK) {
            (blocks, tail) if before + tail <= BLOCK => Split { blocks, tail },
            (blocks, _) => Split { blocks: blocks + 1, tail: 0 },
        }
    }
}

impl Layout {
    pub(super) fn new(tree: &Tree) -> Result<Layout, ImageError> {
        let sets: Vec<usize> = tree.sets.iter().map(|set| set_bytes(set)).collect();
        if sets.iter().any(|&bytes| bytes > ATTRIBUTES_BYTES_MAX) {
            return Err(ImageError::TooLarge("256 KiB of extended attributes of a file where it is mounted"));
        }
        let mut layout = Layout {
            places: Vec::with_capacity(tree.nodes.len()),
            blocks: Vec::new(),
            sets,
            links: links(tree),
            size: 0,
        };
        let mut at = DEVICE + DEVICE_BYTES;
        let mut blocks = Vec::new();
        for (number, node) in tree.nodes.iter().enumerate() {
            if let Kind::Again(file) = node.kind {
                layout.places.push(layout.places[file as usize]);
                continue;
            }
            let before = INODE + layout.sets[node.set as usize];
            let split = layout.split(tree, number);
            let length = match node.kind {
                Kind::File { pieces, .. } => before.next_multiple_of(8) + 8 * pieces.range().len(),
                _ => before + split.tail,
            };
            // An inode is in one block, and so is what must be with it.
            let together = if split.tail > 0 { length } else { INODE };
            if at % BLOCK + together > BLOCK {
                at = at.next_multiple_of(BLOCK);
            }
            layout.places.push(at as u64);
            if split.blocks > 0 {
                blocks.push((number as u32, split.blocks));
            }
            at = (at + length).next_multiple_of(SLOT);
        }
        let mut next = at.div_ceil(BLOCK);
        for (number, count) in blocks {
            layout.blocks.push((number, next as u32));
            next += count;
        }
        if u32::try_from(next).is_err() {
            return Err(ImageError::TooLarge("16 TiB of names"));
        }
        layout.size = next * BLOCK;
        Ok(layout)
    }

    /// How the bytes of a node lie that are in this file at all.
    pub(super) fn split(&self, tree: &Tree, number: usize) -> Split {
        let node = &tree.nodes[number];
        let before = INODE + self.sets[node.set as usize];
        match node.kind {
            Kind::Directory(children) => Split::of(directory::size(tree, children), before),
            Kind::Link(target) => Split::of(target.range().len(), before),
            _ => Split { blocks: 0, tail: 0 },
        }
    }

    /// Where a node's inode begins.
    pub(super) fn place(&self, number: usize) -> usize {
        self.places[number] as usize
    }

    /// What a node's inode is called.
    pub(super) fn number_of(&self, number: usize) -> u64 {
        self.places[number] / SLOT as u64
    }

    /// The first of the whole blocks of a node.
    pub(super) fn first_block(&self, number: usize) -> u32 {
        let found = self.blocks.binary_search_by_key(&(number as u32), |(node, _)| *node);
        found.map_or(0, |at| self.blocks[at].1)
    }

    /// Bytes of a set of extended attributes, with what stands before them.
    pub(super) fn set_bytes(&self, set: u32) -> usize {
        self.sets[set as usize]
    }
}

fn set_bytes(set: &[Attribute]) -> usize {
    let entry = |(name, value): &Attribute| (4 + suffix(name).1.len() + value.len()).next_multiple_of(4);
    if set.is_empty() { 0 } else { ATTRIBUTES_HEAD + set.iter().map(entry).sum::<usize>() }
}

/// The beginnings of names of attributes that have numbers.
const PREFIXES: &[(&[u8], u8)] = &[
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// The number of a name's beginning, and the rest of it.
pub(super) fn suffix(name: &[u8]) -> (u8, &[u8]) {
    let found = PREFIXES.iter().find_map(|(prefix, number)| Some((*number, name.strip_prefix(*prefix)?)));
    found.unwrap_or((0, name))
}

/// How many names each node has: of a directory those of its directories, too.
fn links(tree: &Tree) -> Vec<u32> {
    let mut links = vec![1u32; tree.nodes.len()];
    for (number, node) in tree.nodes.iter().enumerate() {
        match node.kind {
            Kind::Again(file) => links[file as usize] += 1,
            Kind::Directory(_) => {
                links[number] += 1;
                if number > 0 {
                    links[node.parent as usize] += 1;
                }
            }
            _ => {}
        }
    }
    links
}
