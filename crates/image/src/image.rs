//! An image of the store, opened: its packs and its trees, checked against each other.

use larder_model::{Blob, DecodeError, ImageRecord, PackList, PieceList};
use larder_store::{Lease, Store};

use crate::ImageError;
use crate::squeeze::{Unpacker, unpacked_size};
use crate::tree::{Kind, Tree};

/// A tree, a list, bytes as they are in the store.
const PART_BYTES_MAX: u64 = 512 << 20;
/// A tree, bytes unpacked: of more than ten million names.
const TREE_BYTES_MAX: usize = 512 << 20;
/// A tree has so many bytes for each byte that it is compressed to. Those of package managers have 3 to 12.
const TREE_RATIO_MAX: usize = 64;
/// So many bytes a tree may always have. A file of 16 TiB without a name has as many: a byte for each mebibyte, all alike.
const TREE_BYTES_ALWAYS: usize = 16 << 20;

/// See above.
pub struct Image {
    /// What the store says of it.
    pub record: ImageRecord,
    /// Where the bytes of its files are.
    pub packs: PackList,
    /// A tree for each saved path; none of an image without them.
    pub trees: Vec<Tree>,
    /// Names from which rights were taken away.
    pub rights_dropped: u64,
    /// As long as this lives, nobody evicts it.
    _lease: Lease,
}

impl Image {
    /// Open an image whose trees and lists are in the store. Its packs may be elsewhere. Its files have no set-user-id, no
    /// set-group-id and no capabilities, because whoever saved it would get the rights of whoever restores it.
    pub fn open(store: &Store, record: ImageRecord) -> Result<Image, ImageError> {
        let mut image = Image::open_with_rights(store, record)?;
        image.rights_dropped = image.trees.iter_mut().map(Tree::drop_rights).sum();
        Ok(image)
    }

    /// Open an image as it was saved.
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

    /// The same for whoever wants only its packs: what mounts need was made of its trees before.
    pub fn without_trees(store: &Store, record: ImageRecord) -> Result<Image, ImageError> {
        let lease = store.lease_image(&record.image())?;
        let packs = PackList::decode(&store.blob_bytes(&record.packs, PART_BYTES_MAX)?);
        let packs = packs.map_err(ImageError::damaged("list of packs"))?;
        Ok(Image { record, packs, trees: Vec::new(), rights_dropped: 0, _lease: lease })
    }

    /// Give up the trees, which take more memory than all else.
    pub fn forget_trees(&mut self) {
        self.trees = Vec::new();
    }

    /// The packs of an image and what is in them.
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

    /// The numbers of the packs that these saved paths need, in the order of the device. Of an image of one path that is
    /// all of them.
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

    /// Those of these packs that are not in the store.
    pub fn lacking(&self, store: &Store, packs: &[usize]) -> Vec<usize> {
        packs.iter().copied().filter(|&number| !store.has_blob(&self.packs.packs[number].blob)).collect()
    }

    /// Which saved path is meant by this name.
    pub fn saved_as(&self, name: &[u8]) -> Option<usize> {
        self.record.saved.iter().position(|saved| saved.path == name)
    }
}

/// Whether the saved path of this tree, which is in the store, is a directory.
pub fn is_directory(store: &Store, blob: &Blob) -> Result<bool, ImageError> {
    Ok(matches!(tree(store, blob)?.nodes[0].kind, Kind::Directory(_)))
}

fn tree(store: &Store, blob: &Blob) -> Result<Tree, ImageError> {
    unpack_tree(store.blob_bytes(blob, PART_BYTES_MAX)?)
}

/// The tree that these compressed bytes are. What that takes in memory is in proportion to them, whoever wrote them:
/// unpacked they are 64 times as many or 16 MiB at most, and the tree has 12 times that.
///
/// # Errors
///
/// If they are no tree, or would take more, or there is no memory.
pub fn unpack_tree(packed: Vec<u8>) -> Result<Tree, ImageError> {
    let bytes = unpacked(&packed)?;
    drop(packed);
    Tree::decode(&bytes).map_err(ImageError::damaged("tree"))
}

/// How many bytes a tree may have that is compressed to so many.
fn bytes_max(packed: usize) -> usize {
    packed.saturating_mul(TREE_RATIO_MAX).clamp(TREE_BYTES_ALWAYS, TREE_BYTES_MAX)
}

/// An error for a tree of so many bytes, compressed to so many, that could not be opened again.
pub(crate) fn check_tree(tree: &Tree, bytes: usize, packed: usize) -> Result<(), ImageError> {
    match bytes <= bytes_max(packed) && packed as u64 <= PART_BYTES_MAX && tree.is_readable(bytes) {
        true => Ok(()),
        false => {
            Err(ImageError::TooLarge("512 MiB of names and what is known of them, and 256 bytes of attributes of each"))
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
