//! Where each inode is, and what of it is elsewhere.

use super::{BLOCK, DEVICE, DEVICE_BYTES, directory};
use crate::ImageError;
use crate::tree::{Attribute, HOLE, Kind, Node, Span, Tree};

/// An inode, bytes.
pub(super) const INODE: usize = 64;
/// Inodes begin at multiples of this, and are numbered by it.
const SLOT: usize = 32;
/// What stands before the extended attributes of an inode, bytes.
const ATTRIBUTES_HEAD: usize = 12;
/// All extended attributes of an inode, bytes: what its 16 bits can say.
const ATTRIBUTES_BYTES_MAX: usize = 4 * (u16::MAX as usize - 1);
/// Numbers of blocks have 32 bits; where the device has no more than this many, those that are counted on from all of
/// this file's have, too: what 67 million names take is far less than the other half.
pub(super) const DEVICE_BLOCKS_COUNTED_ON_MAX: u32 = 1 << 31;
const NAMES_MAX: &str = "128 GiB of names";

/// See above.
pub(super) struct Layout {
    /// For each node the number of its inode, which is where that begins; another name has that of its file.
    slots: Vec<u32>,
    /// For each directory how its bytes lie, in the order of nodes.
    pub(super) directories: Vec<Split>,
    /// Bytes of each set of extended attributes, with what stands before them.
    sets: Vec<usize>,
    /// Names of each node: those that are further ones counted with their file.
    pub(super) links: Vec<u32>,
    /// Where the whole blocks of directories and links begin, blocks.
    pub(super) first_block: u32,
    /// All of it, blocks.
    pub(super) blocks: u32,
    /// Blocks of the device, which are counted on from those.
    pub(super) device_blocks: u32,
}

/// How the bytes of a directory or link lie: so many whole blocks elsewhere, and so many bytes behind the inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) blocks: u32,
    pub(super) tail: u32,
}

impl Split {
    /// Of so many bytes, where so many stand before the tail. The tail must be in one block with its inode; a block of
    /// which it would be all but the inode is a block of its own.
    fn of(bytes: u64, before: usize) -> Split {
        let (blocks, tail) = ((bytes / BLOCK as u64) as u32, (bytes % BLOCK as u64) as u32);
        if before + tail as usize <= BLOCK { Split { blocks, tail } } else { Split { blocks: blocks + 1, tail: 0 } }
    }
}

impl Layout {
    pub(super) fn new(tree: &Tree, device_blocks: u32) -> Result<Layout, ImageError> {
        let sets: Vec<usize> = tree.sets.iter().map(|set| set_bytes(set)).collect();
        if sets.iter().any(|&bytes| bytes > ATTRIBUTES_BYTES_MAX) {
            return Err(ImageError::TooLarge("256 KiB of extended attributes of a file where it is mounted"));
        }
        let mut layout = Layout {
            slots: Vec::with_capacity(tree.nodes.len()),
            directories: Vec::new(),
            sets,
            links: links(tree),
            first_block: 0,
            blocks: 0,
            device_blocks,
        };
        let (mut at, mut blocks) = (DEVICE + DEVICE_BYTES, 0u64);
        for node in &tree.nodes {
            if let Kind::Again(file) = node.kind {
                layout.slots.push(layout.slots[file as usize]);
                continue;
            }
            let split = layout.split(tree, node);
            let before = layout.before(node);
            let (length, together) = match node.kind {
                Kind::File { pieces, .. } if layout.is_listed(tree, node) => {
                    (before.next_multiple_of(8) + 8 * pieces.range().len(), INODE)
                }
                _ if split.tail > 0 => (before + split.tail as usize, before + split.tail as usize),
                _ => (before, INODE),
            };
            // An inode is in one block, and so is what must be with it.
            if at % BLOCK + together > BLOCK {
                at = at.next_multiple_of(BLOCK);
            }
            layout.slots.push(u32::try_from(at / SLOT).map_err(|_| ImageError::TooLarge(NAMES_MAX))?);
            if matches!(node.kind, Kind::Directory(_)) {
                layout.directories.push(split);
            }
            blocks += u64::from(split.blocks);
            at = (at + length).next_multiple_of(SLOT);
        }
        let first = at.div_ceil(BLOCK) as u64;
        let too_large = |_| ImageError::TooLarge(NAMES_MAX);
        layout.first_block = u32::try_from(first).map_err(too_large)?;
        layout.blocks = u32::try_from(first + blocks).map_err(too_large)?;
        Ok(layout)
    }

    /// How the bytes of a node lie that are in this file at all. Of a directory that is asked only once: its names are
    /// counted.
    fn split(&self, tree: &Tree, node: &Node) -> Split {
        match node.kind {
            Kind::Directory(children) => Split::of(directory::size(tree, children), self.before(node)),
            Kind::Link(target) => self.split_link(node, target),
            _ => Split::default(),
        }
    }

    /// The same of a link.
    pub(super) fn split_link(&self, node: &Node, target: Span) -> Split {
        Split::of(target.range().len() as u64, self.before(node))
    }

    /// Bytes of an inode and its extended attributes.
    fn before(&self, node: &Node) -> usize {
        INODE + self.sets[node.set as usize]
    }

    /// Whether a file with bytes says for each piece where it is: else only where the one begins that it is. Files of a
    /// piece could all do that, but for those of which nothing is written, and those that lie too far behind.
    pub(super) fn is_listed(&self, tree: &Tree, node: &Node) -> bool {
        match node.kind {
            Kind::File { pieces, .. } if pieces.range().len() == 1 => {
                tree.blocks[pieces.range().start] == HOLE || self.device_blocks > DEVICE_BLOCKS_COUNTED_ON_MAX
            }
            Kind::File { size, .. } => size > 0,
            _ => false,
        }
    }

    /// Where a node's inode begins.
    pub(super) fn place(&self, number: usize) -> u64 {
        u64::from(self.slots[number]) * SLOT as u64
    }

    /// What a node's inode is called.
    pub(super) fn number_of(&self, number: usize) -> u64 {
        self.slots[number].into()
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
