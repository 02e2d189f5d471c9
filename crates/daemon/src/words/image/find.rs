//! Exact, fallback or miss, in the store and on the remotes: the key itself in both before any fallback, and of a
//! fallback the newest in both.

use anyhow::{Context, Result};
use larder_image::{Found, Image, find_here, newest_of};
use larder_model::{ImageKey, ImageRecord, listed_prefix};
use larder_mount::Rung;
use larder_store::{Lease, Store};

use super::far::FarImages;

/// What was found, and whether it is known from a remote only.
pub(super) fn find(
    store: &Store,
    far: Option<&FarImages>,
    key: &ImageKey,
    fallbacks: &[String],
) -> Result<(Found, bool)> {
    let here = find_here(store, key, fallbacks)?;
    let Some(far) = far.filter(|_| !matches!(here, Found::Exact(_))) else { return Ok((here, false)) };
    let exact = far.images(&key.digest())?.into_iter().find(|record| record.key == *key);
    if let Some(record) = exact {
        return Ok((Found::Exact(record), true));
    }
    for fallback in fallbacks {
        let near = store.images()?.into_iter().map(|image| image.record);
        let near: Vec<ImageRecord> = near.filter(|record| record.needed().all(|blob| store.has_blob(&blob))).collect();
        let listed = listed_prefix(fallback).map_or(Ok(Vec::new()), |list| far.images(&list))?;
        let (near, listed) = (newest_of(&near, fallback), newest_of(&listed, fallback));
        let is_far = near.map_or(0, |record| record.created_ms) < listed.map_or(0, |record| record.created_ms);
        if let Some(record) = if is_far { listed } else { near } {
            return Ok((Found::Fallback(record.clone()), is_far));
        }
    }
    Ok((Found::Miss, false))
}

/// Whether some of an image's bytes have to be fetched before all of it is in the store.
pub(super) fn is_far(store: &Store, record: &ImageRecord) -> bool {
    store.packs_of(record).map_or(true, |packs| packs.iter().any(|pack| !store.has_blob(pack)))
}

/// The ways to mount an image that may be taken without being asked for, best first; `is_far` is asked only if the first
/// is not possible. By the kernel everything costs less than by a server, but all bytes have to be here before.
///
/// A squashfs file has to be made first, which takes as long as unpacking: only where somebody wants that.
pub(super) fn ways(is_far: impl FnOnce() -> bool) -> impl Iterator<Item = Rung> {
    let others = move || if is_far() { [Rung::LazyFuse, Rung::Mount] } else { [Rung::Mount, Rung::LazyFuse] };
    std::iter::once(Rung::Lazy).chain(std::iter::once_with(others).flatten())
}

/// An image that was found: its trees are here, and nobody evicts it as long as the lease lives.
pub(super) struct Opened {
    pub(super) found: Found,
    pub(super) lease: Lease,
    pub(super) image: Image,
}

/// Find an image, fetch its trees where they are not here, and open it; none where there is nothing.
pub(super) fn open(
    store: &Store,
    far: Option<&FarImages>,
    key: &ImageKey,
    fallbacks: &[String],
) -> Result<Option<Opened>> {
    let (found, was_far) = find(store, far, key, fallbacks)?;
    let Some(record) = found.record() else { return Ok(None) };
    let (lease, image) = opened(store, far.filter(|_| was_far), record)?;
    Ok(Some(Opened { found, lease, image }))
}

/// Open an image by its record; where remotes are given its trees are fetched from them.
pub(super) fn opened(store: &Store, far: Option<&FarImages>, record: &ImageRecord) -> Result<(Lease, Image)> {
    let lease = store.lease_image(&record.image())?;
    if let Some(far) = far {
        brought(store, far, record)?;
    }
    Ok((lease, Image::open(store, record.clone())?))
}

/// Fetch what an image needs beside its packs, and keep its record.
pub(super) fn brought(store: &Store, far: &FarImages, record: &ImageRecord) -> Result<()> {
    far.fetch(store, record.needed()).context("the image's tree could not be fetched")?;
    let is_whole = |known: &ImageRecord| known.needed().all(|blob| store.has_blob(&blob));
    let known = store.image(&record.key)?.filter(is_whole);
    if known.is_none_or(|known| known.created_ms <= record.created_ms) {
        store.keep_image(record, far.origin_of(record), false)?;
    }
    Ok(())
}
