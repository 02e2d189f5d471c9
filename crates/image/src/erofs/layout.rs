//! Where each inode is, and what of it is elsewhere.

use larder_model::{BLOCK_BYTES, PIECE_BYTES};

use super::{BLOCK, HEAD_BYTES, directory};
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
const NAMES_MAX: &str = "128 GiB of names";
const BYTES_MAX: &str = "16 TiB of names and bytes in one file";
/// Of a piece of a file that has another after it.
const PIECE_BLOCKS: u32 = (PIECE_BYTES / BLOCK_BYTES) as u32;

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
    /// Blocks of the device.
    pub(super) device_blocks: u32,
    /// If there is no device, because its blocks follow in this file: the files that do not lie there in one stretch.
    pub(super) copies: Option<Copies>,
}

/// Files that are laid down a second time, behind the device's blocks, because their pieces do not follow each other.
#[derive(Default)]
pub(super) struct Copies {
    /// Each node with the block where it begins, counted on from the device's, in the order of nodes.
    pub(super) files: Vec<(u32, u32)>,
    /// Of all of them.
    pub(super) blocks: u64,
}

impl Copies {
    fn of(tree: &Tree, device_blocks: u32) -> Result<Copies, ImageError> {
        let mut copies = Copies::default();
        for (number, node) in tree.nodes.iter().enumerate() {
            let Kind::File { size, pieces, .. } = node.kind else { continue };
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

    /// The block where a file begins that is laid down a second time.
    pub(super) fn start(&self, number: usize) -> Option<u32> {
        let found = self.files.binary_search_by_key(&(number as u32), |(node, _)| *node).ok()?;
        Some(self.files[found].1)
    }
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
    /// With the device's blocks behind it in one file.
    pub(super) fn whole(tree: &Tree, device_blocks: u32) -> Result<Layout, ImageError> {
        let layout = Layout::of(tree, device_blocks, Some(Copies::of(tree, device_blocks)?))?;
        let blocks = u64::from(layout.blocks) + u64::from(device_blocks);
        match u32::try_from(blocks + layout.copies.iter().map(|copies| copies.blocks).sum::<u64>()) {
            Ok(_) => Ok(layout),
            Err(_) => Err(ImageError::TooLarge(BYTES_MAX)),
        }
    }

    /// With a device.
    pub(super) fn new(tree: &Tree, device_blocks: u32) -> Result<Layout, ImageError> {
        Layout::of(tree, device_blocks, None)
    }

    fn of(tree: &Tree, device_blocks: u32, copies: Option<Copies>) -> Result<Layout, ImageError> {
        let sets: Vec<usize> = tree.sets.iter().map(|set| set_bytes(set)).collect();
        if sets.iter().any(|&bytes| bytes > ATTRIBUTES_BYTES_MAX) {
            return Err(ImageError::TooLarge("256 KiB of extended attributes of a file where it is mounted"));
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(tree.nodes.len()).map_err(|_| ImageError::no_memory("what is to be mounted"))?;
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
            if let Kind::Again(file) = node.kind {
                layout.slots.push(layout.slots[file as usize]);
                continue;
            }
            let split = layout.split(tree, node);
            let before = layout.before(node);
            let (length, together) = match node.kind {
                Kind::File { pieces, .. } if layout.is_listed(node) => {
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

    /// Whether a file says for each of its pieces where that is. With a device all files with bytes do, because who mounts
    /// an image before its bytes are there changes for each piece where it is read from. Without a device the file is
    /// one stretch of blocks, and its inode says where that begins.
    pub(super) fn is_listed(&self, node: &Node) -> bool {
        self.copies.is_none() && matches!(node.kind, Kind::File { size, .. } if size > 0)
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
