//! The layout: where each inode is, and which data is elsewhere.
//!
//! Unaware of: how inodes are encoded.

use larder_model::{BLOCK_BYTES, PIECE_BYTES};

use super::bytes::{BLOCK, HEAD_BYTES};
use super::entries;
use crate::ImageError;
use crate::tree::{Attribute, HOLE, Node, NodeKind, Span, Tree};

/// The bytes of an inode.
pub(super) const INODE: usize = 64;
/// Inodes begin at multiples of this, in bytes, and their number is the offset divided by it.
const SLOT: usize = 32;
/// The bytes of the header of an inode's extended attributes.
const ATTRIBUTES_HEAD: usize = 12;
/// The most bytes of the extended attributes of an inode: the limit of its 16-bit field.
const ATTRIBUTES_BYTES_MAX: usize = 4 * (u16::MAX as usize - 1);
const NAMES_MAX: &str = "128 GiB of names";
const BYTES_MAX: &str = "16 TiB of names and bytes in one file";
/// The blocks of a piece other than a file's last one.
const PIECE_BLOCKS: u32 = (PIECE_BYTES / BLOCK_BYTES) as u32;

/// The layout of a file system.
pub(super) struct Layout {
    /// The number of each node's inode, which gives its offset. A hard link has the number of its
    /// file.
    slots: Vec<u32>,
    /// How the data of each directory is split, in the order of nodes.
    pub(super) directories: Vec<Split>,
    /// The bytes of each set of extended attributes, with the header.
    sets: Vec<usize>,
    /// The link count of each node. Hard links are counted with their file.
    pub(super) links: Vec<u32>,
    /// The block where the whole blocks of directories and links begin.
    pub(super) first_block: u32,
    /// The blocks of the metadata.
    pub(super) blocks: u32,
    /// The blocks of the device.
    pub(super) device_blocks: u32,
    /// The files that must be copied if there is no device and its blocks follow in this file.
    /// `None` if there is a device.
    pub(super) copies: Option<Copies>,
}

/// Files that are copied behind the device's blocks, because their pieces are not consecutive
/// there.
#[derive(Default)]
pub(super) struct Copies {
    /// Each node with the first block of its copy, counted from the device's first block, in the
    /// order of nodes.
    pub(super) files: Vec<(u32, u32)>,
    /// The blocks of all copies.
    pub(super) blocks: u64,
}

impl Copies {
    fn of(tree: &Tree, device_blocks: u32) -> Result<Copies, ImageError> {
        let mut copies = Copies::default();
        for (number, node) in tree.nodes.iter().enumerate() {
            let NodeKind::File { size, pieces, .. } = node.kind else { continue };
            let blocks = &tree.blocks[pieces.range()];
            let follows = |pair: &[u32]| pair[0].checked_add(PIECE_BLOCKS) == Some(pair[1]);
            if size == 0 || !blocks.contains(&HOLE) && blocks.windows(2).all(follows) {
                continue;
            }
            let start = u64::from(device_blocks) + copies.blocks;
            let start = u32::try_from(start).map_err(|_| ImageError::TooLarge(BYTES_MAX))?;
            copies.files.push((number as u32, start));
            copies.blocks += size.div_ceil(BLOCK as u64);
        }
        Ok(copies)
    }

    /// Returns the first block of a file's copy, if it has one.
    pub(super) fn start(&self, number: usize) -> Option<u32> {
        let found = self.files.binary_search_by_key(&(number as u32), |(node, _)| *node).ok()?;
        Some(self.files[found].1)
    }
}

/// How the data of a directory or link is split: whole blocks elsewhere, and a tail behind the
/// inode, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) blocks: u32,
    pub(super) tail: u32,
}

impl Split {
    /// Splits `bytes` of data; `before` is the size of the inode and its attributes. The tail must
    /// be in one block with the inode. If it does not fit, it gets a block of its own. For example,
    /// 4,200 bytes are one block and a tail of 104 bytes.
    fn of(bytes: u64, before: usize) -> Split {
        let (blocks, tail) = ((bytes / BLOCK as u64) as u32, (bytes % BLOCK as u64) as u32);
        if before + tail as usize <= BLOCK { Split { blocks, tail } } else { Split { blocks: blocks + 1, tail: 0 } }
    }
}

impl Layout {
    /// Returns a layout in which the device's blocks follow in the same file.
    pub(super) fn whole(tree: &Tree, device_blocks: u32) -> Result<Layout, ImageError> {
        let layout = Layout::of(tree, device_blocks, Some(Copies::of(tree, device_blocks)?))?;
        let blocks = u64::from(layout.blocks) + u64::from(device_blocks);
        match u32::try_from(blocks + layout.copies.iter().map(|copies| copies.blocks).sum::<u64>()) {
            Ok(_) => Ok(layout),
            Err(_) => Err(ImageError::TooLarge(BYTES_MAX)),
        }
    }

    /// Returns a layout with a device.
    pub(super) fn new(tree: &Tree, device_blocks: u32) -> Result<Layout, ImageError> {
        Layout::of(tree, device_blocks, None)
    }

    fn of(tree: &Tree, device_blocks: u32, copies: Option<Copies>) -> Result<Layout, ImageError> {
        let sets: Vec<usize> = tree.sets.iter().map(|set| set_bytes(set)).collect();
        if sets.iter().any(|&bytes| bytes > ATTRIBUTES_BYTES_MAX) {
            return Err(ImageError::TooLarge("256 KiB of extended attributes for a file that is mounted"));
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(tree.nodes.len()).map_err(|_| ImageError::no_memory("the metadata of a mount"))?;
        let mut layout = Layout {
            slots,
            directories: Vec::new(),
            sets,
            links: links(tree),
            first_block: 0,
            blocks: 0,
            device_blocks,
            copies,
        };
        let (mut at, mut blocks) = (HEAD_BYTES, 0u64);
        for node in &tree.nodes {
            if let NodeKind::Again(file) = node.kind {
                layout.slots.push(layout.slots[file as usize]);
                continue;
            }
            let split = layout.split(tree, node);
            let before = layout.before(node);
            let (length, together) = match node.kind {
                NodeKind::File { pieces, .. } if layout.is_listed(node) => {
                    (before.next_multiple_of(8) + 8 * pieces.range().len(), INODE)
                }
                _ if split.tail > 0 => (before + split.tail as usize, before + split.tail as usize),
                _ => (before, INODE),
            };
            // An inode must not cross a block boundary, nor must a tail that belongs to it.
            if at % BLOCK + together > BLOCK {
                at = at.next_multiple_of(BLOCK);
            }
            layout.slots.push(u32::try_from(at / SLOT).map_err(|_| ImageError::TooLarge(NAMES_MAX))?);
            if matches!(node.kind, NodeKind::Directory(_)) {
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

    /// Returns how the data of a node is split, if it is in this file. For a directory it is called
    /// only once, because it adds up all names.
    fn split(&self, tree: &Tree, node: &Node) -> Split {
        match node.kind {
            NodeKind::Directory(children) => Split::of(entries::size(tree, children), self.before(node)),
            NodeKind::Link(target) => self.split_link(node, target),
            _ => Split::default(),
        }
    }

    /// Returns how the target of a link is split.
    pub(super) fn split_link(&self, node: &Node, target: Span) -> Split {
        Split::of(target.range().len() as u64, self.before(node))
    }

    /// Returns the bytes of an inode and its extended attributes.
    fn before(&self, node: &Node) -> usize {
        INODE + self.sets[node.set as usize]
    }

    /// Returns whether a file's inode lists the position of each piece.
    ///
    /// With a device every file with data does: if the image is mounted before its data is there,
    /// each entry can be changed to read from another device. Without a device a file is one run of
    /// blocks, and its inode has the first of them.
    pub(super) fn is_listed(&self, node: &Node) -> bool {
        self.copies.is_none() && matches!(node.kind, NodeKind::File { size, .. } if size > 0)
    }

    /// Returns the offset of a node's inode, in bytes.
    pub(super) fn place(&self, number: usize) -> u64 {
        u64::from(self.slots[number]) * SLOT as u64
    }

    /// Returns the number of a node's inode.
    pub(super) fn number_of(&self, number: usize) -> u64 {
        self.slots[number].into()
    }

    /// Returns the bytes of a set of extended attributes, with the header.
    pub(super) fn set_bytes(&self, set: u32) -> usize {
        self.sets[set as usize]
    }
}

fn set_bytes(set: &[Attribute]) -> usize {
    let entry = |(name, value): &Attribute| (4 + suffix(name).1.len() + value.len()).next_multiple_of(4);
    if set.is_empty() { 0 } else { ATTRIBUTES_HEAD + set.iter().map(entry).sum::<usize>() }
}

/// Prefixes of attribute names, and their numbers in EROFS.
const PREFIXES: &[(&[u8], u8)] = &[
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// Returns the number of a name's prefix, and the rest of the name.
pub(super) fn suffix(name: &[u8]) -> (u8, &[u8]) {
    let found = PREFIXES.iter().find_map(|(prefix, number)| Some((*number, name.strip_prefix(*prefix)?)));
    found.unwrap_or((0, name))
}

/// Returns the link count of each node. A directory also counts its subdirectories.
fn links(tree: &Tree) -> Vec<u32> {
    let mut links = vec![1u32; tree.nodes.len()];
    for (number, node) in tree.nodes.iter().enumerate() {
        match node.kind {
            NodeKind::Again(file) => links[file as usize] += 1,
            NodeKind::Directory(_) => {
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
