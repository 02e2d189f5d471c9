//! Where packs come from: the store, or another source, for example a download.
//!
//! Unaware of: remotes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder_model::{BLOCK_BYTES, Digest, Pack};
use larder_store::{Store, StoreError};

use crate::compress::Unpacker;
use crate::{Image, ImageError};

/// A pack's number and its compressed bytes, which are not verified yet.
pub type Arrived = (usize, Vec<u8>);

/// A source of packs. Several threads use it at once.
pub trait Packs: Sync {
    /// Returns the next of the requested packs, in any order, or `None` after the last one.
    fn next(&self) -> Option<Result<Arrived, ImageError>>;

    /// Reports that the bytes of a pack were wrong.
    fn refuse(&self, _number: usize) {}
}

/// Packs of the store.
pub struct LocalPacks<'a> {
    store: &'a Store,
    image: &'a Image,
    order: Vec<usize>,
    next: AtomicUsize,
}

impl<'a> LocalPacks<'a> {
    /// Returns a source of these packs, in this order.
    pub fn new(store: &'a Store, image: &'a Image, order: Vec<usize>) -> Self {
        LocalPacks { store, image, order, next: AtomicUsize::new(0) }
    }
}

impl Packs for LocalPacks<'_> {
    fn next(&self) -> Option<Result<Arrived, ImageError>> {
        let number = *self.order.get(self.next.fetch_add(1, Relaxed))?;
        let blob = self.image.packs.packs[number].blob;
        // The thread that unpacks it verifies it.
        let read = std::fs::read(self.store.blob_file(&blob.digest)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ImageError::Store(StoreError::BlobMissing(blob.digest)),
            _ => ImageError::io("read it", &self.store.blob_file(&blob.digest))(error),
        });
        Some(read.map(|bytes| (number, bytes)))
    }

    /// Reads the blob once more, whereupon the store removes it because its digest is wrong.
    /// Otherwise saving would believe that the store has the pack, and remotes would not be asked
    /// for it.
    fn refuse(&self, number: usize) {
        let blob = self.image.packs.packs[number].blob;
        let _ = self.store.blob_bytes(&blob, blob.size_bytes);
    }
}

/// Verifies a pack and unpacks its blocks into `to`.
pub(crate) fn open(pack: &Pack, bytes: &[u8], unpacker: &mut Unpacker, to: &mut Vec<u8>) -> Result<(), ImageError> {
    let damaged = || ImageError::PackDamaged(pack.blob.digest);
    if Digest::of(bytes) != pack.blob.digest {
        return Err(damaged());
    }
    let size = pack.blocks as usize * BLOCK_BYTES as usize;
    unpacker.unpack(bytes, size, to).filter(|()| to.len() == size).ok_or_else(damaged)
}
