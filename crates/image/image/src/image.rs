//! An opened image of the store: its packs and trees, checked against each other.
//!
//! Unaware of: how an image was found, where its packs are.

use larder_model::{Blob, DecodeError, ImageRecord, PackList, PieceList};
use larder_store::{Lease, Store};

use crate::ImageError;
use crate::compress::{Unpacker, unpacked_size};
use crate::tree::{NodeKind, ROOM_PER_BYTE, Tree};

/// The most bytes of a tree or list in the store.
const PART_BYTES_MAX: u64 = 512 << 20;
/// The most bytes of an unpacked tree. That is enough for more than ten million names.
const TREE_BYTES_MAX: usize = 512 << 20;
/// The most bytes of an unpacked tree for each compressed byte. Trees of package managers have 3 to
/// 12.
const TREE_RATIO_MAX: usize = 64;
/// The bytes that an unpacked tree may always have. For example, a tree of a single file of 16 TiB
/// has one byte for each piece of 1 MiB, and compresses to almost nothing.
const TREE_BYTES_ALWAYS: usize = 16 << 20;

/// An opened image.
pub struct Image {
    /// Its record.
    pub record: ImageRecord,
    /// The list of its packs, which hold the bytes of its files.
    pub packs: PackList,
    /// A tree for each saved path; empty if the image was opened without trees.
    pub trees: Vec<Tree>,
    /// How many files had their set-user-id, set-group-id or capabilities removed.
    pub rights_dropped: u64,
    /// Keeps the image from being evicted.
    _lease: Lease,
}

impl Image {
    /// Opens an image whose trees and lists are in the store; its packs may be elsewhere.
    /// Set-user-id, set-group-id and capabilities are removed from its files, because otherwise a
    /// user that can save images could give files the rights of the user that restores them.
    pub fn open(store: &Store, record: ImageRecord) -> Result<Image, ImageError> {
        let mut image = Image::open_with_rights(store, record)?;
        image.rights_dropped = image.trees.iter_mut().map(Tree::drop_rights).sum();
        Ok(image)
    }

    /// Opens an image with all rights that were saved.
    pub fn open_with_rights(store: &Store, record: ImageRecord) -> Result<Image, ImageError> {
        let mut image = Image::without_trees(store, record)?;
        for saved in &image.record.saved {
            let tree = tree(store, &saved.tree)?;
            if !tree.fits(&image.packs) {
                return Err(ImageError::PackMissing(saved.tree.digest));
            }
            image.trees.push(tree);
        }
        Ok(image)
    }

    /// Opens an image without its trees, for a mount whose metadata was made from the trees before.
    pub fn without_trees(store: &Store, record: ImageRecord) -> Result<Image, ImageError> {
        let lease = store.lease_image(&record.image())?;
        let packs = PackList::decode(&store.blob_bytes(&record.packs, PART_BYTES_MAX)?);
        let packs = packs.map_err(ImageError::damaged("list of packs"))?;
        Ok(Image { record, packs, trees: Vec::new(), rights_dropped: 0, _lease: lease })
    }

    /// Frees the trees, which take most of the image's memory.
    pub fn forget_trees(&mut self) {
        self.trees = Vec::new();
    }

    /// Returns the packs of an image and the pieces in them.
    pub(crate) fn contents(store: &Store, record: &ImageRecord) -> Result<(PackList, PieceList), ImageError> {
        let packs = PackList::decode(&store.blob_bytes(&record.packs, PART_BYTES_MAX)?);
        let pieces = PieceList::decode(&store.blob_bytes(&record.pieces, PART_BYTES_MAX)?);
        let packs = packs.map_err(ImageError::damaged("list of packs"))?;
        let pieces = pieces.map_err(ImageError::damaged("list of pieces"))?;
        if !pieces.fits(&packs) {
            return Err(ImageError::Damaged { what: "list of pieces", why: DecodeError::Damaged });
        }
        Ok((packs, pieces))
    }

    /// Returns the numbers of the packs that these saved paths need, in the order of the device.
    /// For an image with one path these are all packs.
    pub fn needed(&self, saved: &[usize]) -> Vec<usize> {
        if self.record.saved.len() == 1 && saved == [0] {
            return (0..self.packs.packs.len()).collect();
        }
        let (mut needed, mut last) = (vec![false; self.packs.packs.len()], 0);
        for &block in saved.iter().flat_map(|&number| &self.trees[number].blocks) {
            if let Some(pack) = self.packs.of_next_block(block, &mut last) {
                needed[pack] = true;
            }
        }
        (0..needed.len()).filter(|&pack| needed[pack]).collect()
    }

    /// Returns which of these packs are not in the store.
    pub fn lacking(&self, store: &Store, packs: &[usize]) -> Vec<usize> {
        packs.iter().copied().filter(|&number| !store.has_blob(&self.packs.packs[number].blob)).collect()
    }
}

/// Returns whether the saved path of this tree is a directory.
pub fn is_directory(store: &Store, blob: &Blob) -> Result<bool, ImageError> {
    Ok(matches!(tree(store, blob)?.nodes[0].kind, NodeKind::Directory(_)))
}

fn tree(store: &Store, blob: &Blob) -> Result<Tree, ImageError> {
    unpack_tree(store.blob_bytes(blob, PART_BYTES_MAX)?)
}

/// Returns about how much memory the trees of an image take while they are decoded, in bytes, and
/// at most what [`unpack_tree`] allows. Fails if the store does not have a tree.
pub fn memory_of_trees(store: &Store, record: &ImageRecord) -> Result<u64, ImageError> {
    let mut all = 0u64;
    for saved in &record.saved {
        let packed = store.blob_bytes(&saved.tree, PART_BYTES_MAX)?;
        let bytes = unpacked_size(&packed).map_or(0, |size| size.min(bytes_max(packed.len())) as u64);
        all = all.saturating_add(bytes.saturating_mul(1 + ROOM_PER_BYTE as u64)).saturating_add(packed.len() as u64);
    }
    Ok(all)
}

/// Decodes a compressed tree. Its memory is limited in proportion to `packed`, because a stranger
/// may have made it: 64 times as many bytes or 16 MiB, whichever is more, and the tree has up to 12
/// times that. Fails if the bytes are not a tree, exceed these limits, or there is not enough
/// memory.
pub fn unpack_tree(packed: Vec<u8>) -> Result<Tree, ImageError> {
    let bytes = unpacked(&packed)?;
    drop(packed);
    Tree::decode(&bytes).map_err(ImageError::damaged("tree"))
}

/// Returns the most bytes that a tree of so many compressed bytes may have.
fn bytes_max(packed: usize) -> usize {
    packed.saturating_mul(TREE_RATIO_MAX).clamp(TREE_BYTES_ALWAYS, TREE_BYTES_MAX)
}

/// Returns an error if a tree of these sizes could not be opened again.
pub(crate) fn check_tree(tree: &Tree, bytes: usize, packed: usize) -> Result<(), ImageError> {
    match bytes <= bytes_max(packed) && packed as u64 <= PART_BYTES_MAX && tree.is_readable(bytes) {
        true => Ok(()),
        false => {
            Err(ImageError::TooLarge("512 MiB of names and their metadata, and 256 bytes of attributes for each name"))
        }
    }
}

fn unpacked(packed: &[u8]) -> Result<Vec<u8>, ImageError> {
    let damaged = |why| ImageError::Damaged { what: "tree", why };
    let size = unpacked_size(packed).ok_or_else(|| damaged(DecodeError::Damaged))?;
    let limit = bytes_max(packed.len());
    if size > limit {
        return Err(damaged(DecodeError::Limit { limit: limit as u64, at: 0 }));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| ImageError::no_memory("a tree"))?;
    Unpacker::new()?.unpack(packed, size, &mut bytes).ok_or_else(|| damaged(DecodeError::Damaged))?;
    Ok(bytes)
}
