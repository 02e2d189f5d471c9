//! Finds an image in the store and on the remotes: exact key, fallback or miss. The key itself is
//! searched in both before any fallback. Of a fallback, the newest image of both is taken.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use larder_image::{FoundImage, Image, Rights, find_here, newest_of};
use larder_model::{Blob, ImageRecord, listed_prefix};
use larder_mount::Backend;
use larder_mount::lazy::is_whole;
use larder_store::{Lease, Live, Store};

use super::key::Wanted;
use super::paths::{is_repository, shown};
use super::remote_images::RemoteImages;
use crate::cli::ImageRestore;
use crate::say;
use crate::surroundings::Surroundings;

/// Drops the images whose signer is not trusted any more, before any image is searched.
pub(super) fn drop_untrusted(around: &Surroundings) {
    let trust = &around.settings().remote_trust;
    let dropped = match around.store() {
        Ok(store) if !trust.is_empty() => store.drop_untrusted_images(trust).map_err(anyhow::Error::from),
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

/// A search for an image, in the store and on the remotes.
pub(super) struct Search<'a> {
    pub(super) store: Store,
    pub(super) remotes: Option<Arc<RemoteImages>>,
    wanted: &'a Wanted,
}

impl<'a> Search<'a> {
    /// Opens the store and the remotes of the settings.
    pub(super) fn new(around: &Surroundings, wanted: &'a Wanted) -> Result<Search<'a>> {
        let store = around.store()?;
        let remotes = RemoteImages::open(around, &store)?.map(Arc::new);
        Ok(Search { store, remotes, wanted })
    }

    /// Finds the image. The second value is true if it is known from a remote only.
    pub(super) fn find(&self) -> Result<(FoundImage, bool)> {
        let Search { store, remotes, wanted: Wanted { key, fallbacks } } = self;
        let here = find_here(store, key, fallbacks)?;
        let Some(remotes) = remotes.as_ref().filter(|_| !matches!(here, FoundImage::Exact(_))) else {
            return Ok((here, false));
        };
        let exact = remotes.images(&key.digest())?.into_iter().find(|record| record.key == *key);
        if let Some(record) = exact {
            return Ok((FoundImage::Exact(record), true));
        }
        for fallback in fallbacks {
            let near = store.images()?.into_iter().map(|image| image.record);
            let near: Vec<ImageRecord> = near.filter(|record| has_needed(store, record)).collect();
            let listed = listed_prefix(fallback).map_or(Ok(Vec::new()), |list| remotes.images(&list))?;
            let (near, listed) = (newest_of(&near, fallback), newest_of(&listed, fallback));
            let is_far = near.map_or(0, |record| record.created_ms) < listed.map_or(0, |record| record.created_ms);
            if let Some(record) = if is_far { listed } else { near } {
                return Ok((FoundImage::Fallback(record.clone()), is_far));
            }
        }
        Ok((FoundImage::Miss, false))
    }

    /// Finds the image, downloads its trees if they are missing here, and opens it. Returns `None`
    /// if there is no such image.
    pub(super) fn open(&self, rights: Rights) -> Result<Option<Opened>> {
        let store = &self.store;
        let (found, was_far) = self.find()?;
        let Some(record) = found.record() else { return Ok(None) };
        let lease = store.lease_image(&record.image())?;
        if let Some(remotes) = self.remotes.as_ref().filter(|_| was_far) {
            fetch_all_but_packs(store, remotes, record)?;
        }
        let image = match rights {
            Rights::Kept => Image::open_with_rights(store, record.clone())?,
            Rights::Dropped => Image::open(store, record.clone())?,
        };
        Ok(Some(Opened { found, lease, image }))
    }

    /// Fails if a pack is neither in the store nor on a remote. Then the image is a miss, as for
    /// `restore`, because parts of the mount could not be read.
    pub(super) fn has_all(&self, record: &ImageRecord) -> Result<()> {
        self.remotes.as_ref().map_or(Ok(()), |remotes| has_all(&self.store, remotes, record))
    }

    /// Fails if the image's own names decide where it goes, and a tree of it has a `.git`.
    pub(super) fn holds_no_repository(&self, how: &ImageRestore) -> Result<()> {
        let opened = if is_bound(how) { self.open(Rights::Dropped)? } else { None };
        opened.map_or(Ok(()), |opened| holds_no_repository(&opened.image))
    }

    /// Returns the mount methods that may be used for an image without the user's choice, best
    /// first. A mount by the kernel is cheaper than one by a server, but all bytes have to be
    /// written out before. That is only looked at if the first method is not possible.
    ///
    /// A squashfs file has to be made first, which takes as long as unpacking. So it is made only if
    /// the user asks for it.
    pub(super) fn ways(&self, record: &ImageRecord) -> impl Iterator<Item = Backend> {
        let others = move || match mount_waits(&self.store, record) {
            true => [Backend::LazyFuse, Backend::Mount],
            false => [Backend::Mount, Backend::LazyFuse],
        };
        std::iter::once(Backend::Lazy).chain(std::iter::once_with(others).flatten())
    }
}

fn has_needed(store: &Store, record: &ImageRecord) -> bool {
    record.needed().all(|blob| store.has_blob(&blob))
}

/// A larger image is not written out while a job waits for its mount. Writing took 2.1 s for
/// 100,000 files with 304 MiB on two processors, so this many bytes take 0.2 s.
const WRITTEN_AT_ONCE_BYTES: u64 = 32 << 20;

/// Returns true if a mount by [`Backend::Mount`] would have to wait: for bytes that only a remote has,
/// or because a large image has to be written out.
fn mount_waits(store: &Store, record: &ImageRecord) -> bool {
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

fn has_all(store: &Store, remotes: &RemoteImages, record: &ImageRecord) -> Result<()> {
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

/// An image that was found. Its trees are in the store, and it is not evicted while the lease
/// exists.
pub(super) struct Opened {
    pub(super) found: FoundImage,
    pub(super) lease: Lease,
    pub(super) image: Image,
}

/// Downloads everything that an image needs except its packs, and stores its record.
pub(super) fn fetch_all_but_packs(store: &Store, remotes: &RemoteImages, record: &ImageRecord) -> Result<()> {
    remotes.fetch(store, record.needed()).context("the image's tree could not be downloaded")?;
    let known = store.image(&record.key)?.filter(|known| has_needed(store, known));
    if known.is_none_or(|known| known.created_ms <= record.created_ms) {
        store.keep_image(record, remotes.origin_of(record), false)?;
    }
    Ok(())
}

/// Returns true if the image's own names decide where it goes, so that it may only go below the
/// working directory.
pub(super) fn is_bound(how: &ImageRestore) -> bool {
    how.paths.is_empty() && !how.anywhere
}

/// Fails if a tree of the image has a `.git`, because the next `git` there would run its
/// configuration and hooks.
pub(super) fn holds_no_repository(image: &Image) -> Result<()> {
    for (saved, tree) in image.record.saved.iter().zip(&image.trees) {
        if let Some(number) = tree.nodes.iter().position(|node| is_repository(tree.name(node))) {
            let (path, below) = (shown(&saved.path), shown(&tree.path(number as u32)));
            bail!("{path}: not restored, because it contains {below}: type the path to restore it, or add --anywhere");
        }
    }
    Ok(())
}
