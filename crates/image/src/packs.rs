//! Packs as they come: from the store, or from wherever somebody else has them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder_model::{BLOCK_BYTES, Digest, Pack};
use larder_store::{Store, StoreError};

use crate::squeeze::Unpacker;
use crate::{Image, ImageError};

/// A pack's number and its compressed bytes, which nobody has verified yet.
pub type Arrived = (usize, Vec<u8>);

/// Where packs come from. Several threads ask.
pub trait Packs: Sync {
    /// The next of those that were asked for, in whatever order they come; none once all did.
    fn next(&self) -> Option<Result<Arrived, ImageError>>;

    /// The bytes of this one were wrong.
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
    /// These of them, in this order.
    pub fn new(store: &'a Store, image: &'a Image, order: Vec<usize>) -> Self {
        LocalPacks { store, image, order, next: AtomicUsize::new(0) }
    }
}

impl Packs for LocalPacks<'_> {
    fn next(&self) -> Option<Result<Arrived, ImageError>> {
        let number = *self.order.get(self.next.fetch_add(1, Relaxed))?;
        let blob = self.image.packs.packs[number].blob;
        // Verified by whoever unpacks it, in his own thread.
        let read = std::fs::read(self.store.blob_file(&blob.digest)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ImageError::Store(StoreError::BlobMissing(blob.digest)),
            _ => ImageError::io("read it", &self.store.blob_file(&blob.digest))(error),
        });
        Some(read.map(|bytes| (number, bytes)))
    }

    /// It goes: else whoever saves believes that it is there, and whoever has remotes does not ask them.
    fn refuse(&self, number: usize) {
        let blob = self.image.packs.packs[number].blob;
        let _ = self.store.blob_bytes(&blob, blob.size_bytes);
    }
}

/// A pack's blocks, once its bytes are found to be right.
pub(crate) fn open(pack: &Pack, bytes: &[u8], unpacker: &mut Unpacker, to: &mut Vec<u8>) -> Result<(), ImageError> {
    let damaged = || ImageError::PackDamaged(pack.blob.digest);
    if Digest::of(bytes) != pack.blob.digest {
        return Err(damaged());
    }
    let size = pack.blocks as usize * BLOCK_BYTES as usize;
    unpacker.unpack(bytes, size, to).filter(|()| to.len() == size).ok_or_else(damaged)
}
