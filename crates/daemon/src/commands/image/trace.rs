//! Which parts of an image jobs read: the access trace. It is stored with the image, in the store
//! and on writable remotes, so that the next job gets these parts first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use larder_image::Image;
use larder_model::{AccessTrace, ImageRecord, Origin};
use larder_mount::broker::Traced;
use larder_mount::lazy::Trace;
use larder_store::Store;

use super::remote_images::RemoteImages;
use crate::say;

/// The largest size of a trace, in bytes: that of a 16 TiB image in packs of one MiB, with five
/// bytes for each pack.
const TRACE_BYTES_MAX: u64 = 128 << 20;

/// Returns the trace of earlier jobs, if there is one and it can be read.
pub(super) fn known(store: &Store, image: &Image) -> Option<AccessTrace> {
    let bytes = store.blob_bytes(&image.record.trace?, TRACE_BYTES_MAX).ok()?;
    AccessTrace::decode(&bytes).ok()
}

/// Returns a function that stores a trace in a thread of its own, so that unmounting does not wait
/// for remotes.
pub(super) fn keeper(store: PathBuf, remotes: Option<Arc<RemoteImages>>, image: Arc<Image>) -> Traced {
    let kept = kept(store, remotes, image);
    Arc::new(move |trace: &Trace| {
        let (kept, trace) = (kept.clone(), trace.clone());
        std::thread::spawn(move || kept(&trace));
    })
}

/// Returns a function that stores a trace in the calling thread, for a process that exits
/// afterwards.
pub(super) fn kept(store: PathBuf, remotes: Option<Arc<RemoteImages>>, image: Arc<Image>) -> Traced {
    Arc::new(move |trace: &Trace| {
        let touched = AccessTrace::of(&trace.ranges, &image.packs);
        if let Err(error) = keep(&store, remotes.as_deref(), &image, touched) {
            say::tell(&say::one_line(&format!(
                "the access trace of {} could not be stored: {error:#}",
                image.record.key
            )));
        }
    })
}

fn keep(store: &Path, remotes: Option<&RemoteImages>, image: &Image, touched: AccessTrace) -> Result<()> {
    let store = Store::open(store)?;
    let same = |record: &ImageRecord| record.image() == image.record.image();
    // If another image was saved under the key since, that one keeps its own trace.
    let Some(record) = store.image(&image.record.key)?.filter(same) else { return Ok(()) };
    // An existing trace may come from another path of the image, or from a job that ran at the same
    // time: the two are merged.
    let before = record.trace.and_then(|trace| store.blob_bytes(&trace, TRACE_BYTES_MAX).ok());
    let before = before.and_then(|bytes| AccessTrace::decode(&bytes).ok()).filter(|before| !before.is_carried);
    let trace = before.unwrap_or_default().and(touched.packs.into_iter());
    let blob = store.put_blob(&mut trace.encode().as_slice())?;
    let record = ImageRecord { trace: Some(blob), ..record };
    let origin = store.image_origin(&record.key).unwrap_or(Origin::Fetched(None));
    store.keep_image(&record, origin, false)?;
    // Only an image that was saved here may be signed here. An image from another machine keeps its
    // own signature.
    let Some(remotes) = remotes.filter(|remotes| remotes.writes() && (origin == Origin::Own || !remotes.signs()))
    else {
        return Ok(());
    };
    // If another machine has saved a newer image under the key, that one stays.
    let is_newer = |listed: &ImageRecord| {
        listed.key == record.key && listed.created_ms >= record.created_ms && listed.image() != record.image()
    };
    if remotes.images(&record.key.digest())?.iter().any(is_newer) {
        return Ok(());
    }
    remotes.publish_record(&record, &store.packs_of(&record)?).map(drop)
}
