//! Finds an image in the store and on the remotes: exact key, fallback or miss. The key itself is
//! searched in both before any fallback. Of a fallback, the newest image of both is taken.

use std::fs;

use anyhow::{Context, Result, ensure};
use larder_image::{FoundImage, Image, Rights, find_here, newest_of};
use larder_model::{Blob, ImageKey, ImageRecord, listed_prefix};
use larder_mount::Backend;
use larder_mount::lazy::is_whole;
use larder_store::{Lease, Live, Store};

use super::remote_images::RemoteImages;
use crate::say;
use crate::surroundings::Surroundings;

/// Drops the images whose signer is not trusted any more, before any image is searched.
pub(super) fn drop_disbelieved(around: &Surroundings) {
    let trust = &around.settings().remote_trust;
    let dropped = match around.store() {
        Ok(store) if !trust.is_empty() => store.drop_disbelieved_images(trust).map_err(anyhow::Error::from),
        // The subcommand will report what is wrong with the store.
        _ => return,
    };
    match dropped {
        Ok(keys) => keys.iter().for_each(|key| {
            say::tell(&format!("{key}: dropped, because none of the keys in remote_trust signed it"));
        }),
        Err(error) => say::tell(&format!(
            "images without a trusted signature could not be dropped and may still be used: {error:#}"
        )),
    }
}

/// Finds an image. The second value is true if it is known from a remote only.
pub(super) fn find(
    store: &Store,
    remotes: Option<&RemoteImages>,
    key: &ImageKey,
    fallbacks: &[String],
) -> Result<(FoundImage, bool)> {
    let here = find_here(store, key, fallbacks)?;
    let Some(remotes) = remotes.filter(|_| !matches!(here, FoundImage::Exact(_))) else { return Ok((here, false)) };
    let exact = remotes.images(&key.digest())?.into_iter().find(|record| record.key == *key);
    if let Some(record) = exact {
        return Ok((FoundImage::Exact(record), true));
    }
    for fallback in fallbacks {
        let near = store.images()?.into_iter().map(|image| image.record);
        let near: Vec<ImageRecord> = near.filter(|record| record.needed().all(|blob| store.has_blob(&blob))).collect();
        let listed = listed_prefix(fallback).map_or(Ok(Vec::new()), |list| remotes.images(&list))?;
        let (near, listed) = (newest_of(&near, fallback), newest_of(&listed, fallback));
        let is_far = near.map_or(0, |record| record.created_ms) < listed.map_or(0, |record| record.created_ms);
        if let Some(record) = if is_far { listed } else { near } {
            return Ok((FoundImage::Fallback(record.clone()), is_far));
        }
    }
    Ok((FoundImage::Miss, false))
}

/// A larger image is not written out while a job waits for its mount. Writing took 2.1 s for
/// 100,000 files with 304 MiB on two processors, so this many bytes take 0.2 s.
const WRITTEN_AT_ONCE_BYTES: u64 = 32 << 20;

/// Returns true if a mount by [`Backend::Mount`] would have to wait: for bytes that only a remote has,
/// or because a large image has to be written out.
pub(super) fn mount_waits(store: &Store, record: &ImageRecord) -> bool {
    let is_large = record.size_bytes > WRITTEN_AT_ONCE_BYTES;
    is_far(store, record) || is_large && !is_written_out(store, record).unwrap_or(false)
}

/// Returns true if some of an image's bytes have to be downloaded before all of it is in the store.
fn is_far(store: &Store, record: &ImageRecord) -> bool {
    store.packs_of(record).map_or(true, |packs| packs.iter().any(|pack| !store.has_blob(pack)))
}

/// Returns true if an earlier mount has already written out everything that [`Backend::Mount`] reads.
fn is_written_out(store: &Store, record: &ImageRecord) -> Result<bool> {
    let id = record.image();
    for saved in 0..record.saved.len() {
        let (directory, data) = (store.live_file(&id, Live::Lazy(saved))?, store.live_file(&id, Live::Data(saved))?);
        let is_complete = || fs::metadata(&data).is_ok_and(|found| is_whole(&directory, &data, found.len()));
        if !store.live_file(&id, Live::Whole(saved))?.exists() && !is_complete() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The largest number of packs that are checked on remotes before an image is mounted. If an image
/// has more, an evenly spaced sample is checked. This many packs hold about 1.3 GB.
const ASKED_MAX: usize = 4096;

/// Fails if a pack is neither in the store nor on a remote. Then the image is a miss, as for
/// `restore`, because parts of the mount could not be read.
pub(super) fn has_all(store: &Store, remotes: Option<&RemoteImages>, record: &ImageRecord) -> Result<()> {
    let Some(remotes) = remotes else { return Ok(()) };
    remotes.fetch(store, std::iter::once(record.packs)).context("the image's list of packs could not be downloaded")?;
    let missing: Vec<Blob> = store.packs_of(record)?.into_iter().filter(|pack| !store.has_blob(pack)).collect();
    let step = missing.len().div_ceil(ASKED_MAX).max(1);
    let asked: Vec<Blob> = missing.into_iter().step_by(step).collect();
    let lacking = remotes.lacks(&asked).into_iter().filter(|lacks| *lacks).count();
    ensure!(
        lacking == 0,
        "{}: {lacking} of {} that are not here are on no remote any more: the image is not used and must be saved again",
        record.key,
        say::count(asked.len() as u64, "pack", "packs")
    );
    Ok(())
}

/// Returns the mount methods that may be used without the user's choice, best first. `mount_waits`
/// is called only if the first is not possible. A mount by the kernel is cheaper than one by a
/// server, but all bytes have to be written out before.
///
/// A squashfs file has to be made first, which takes as long as unpacking. So it is made only if
/// the user asks for it.
pub(super) fn ways(mount_waits: impl FnOnce() -> bool) -> impl Iterator<Item = Backend> {
    let others =
        move || if mount_waits() { [Backend::LazyFuse, Backend::Mount] } else { [Backend::Mount, Backend::LazyFuse] };
    std::iter::once(Backend::Lazy).chain(std::iter::once_with(others).flatten())
}

/// An image that was found. Its trees are in the store, and it is not evicted while the lease
/// exists.
pub(super) struct Opened {
    pub(super) found: FoundImage,
    pub(super) lease: Lease,
    pub(super) image: Image,
}

/// Finds an image, downloads its trees if they are missing here, and opens it. Returns `None` if
/// there is no such image.
pub(super) fn open(
    store: &Store,
    remotes: Option<&RemoteImages>,
    key: &ImageKey,
    fallbacks: &[String],
    rights: Rights,
) -> Result<Option<Opened>> {
    let (found, was_far) = find(store, remotes, key, fallbacks)?;
    let Some(record) = found.record() else { return Ok(None) };
    let lease = store.lease_image(&record.image())?;
    if let Some(remotes) = remotes.filter(|_| was_far) {
        brought(store, remotes, record)?;
    }
    let image = match rights {
        Rights::Kept => Image::open_with_rights(store, record.clone())?,
        Rights::Dropped => Image::open(store, record.clone())?,
    };
    Ok(Some(Opened { found, lease, image }))
}

/// Downloads everything that an image needs except its packs, and stores its record.
pub(super) fn brought(store: &Store, remotes: &RemoteImages, record: &ImageRecord) -> Result<()> {
    remotes.fetch(store, record.needed()).context("the image's tree could not be downloaded")?;
    let is_whole = |known: &ImageRecord| known.needed().all(|blob| store.has_blob(&blob));
    let known = store.image(&record.key)?.filter(is_whole);
    if known.is_none_or(|known| known.created_ms <= record.created_ms) {
        store.keep_image(record, remotes.origin_of(record), false)?;
    }
    Ok(())
}
