//! What jobs touch of an image, kept with it: in the store, and on the remotes where those are written to. The next job
//! has that first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use larder_image::Image;
use larder_model::{AccessTrace, ImageRecord, Origin};
use larder_mount::broker::Traced;
use larder_mount::lazy::Trace;
use larder_store::Store;

use super::far::FarImages;
use crate::say;

/// A trace, bytes: of 16 TiB in packs of a mebibyte, five bytes each.
const TRACE_BYTES_MAX: u64 = 128 << 20;

/// What earlier jobs touched, as far as that is known and can be read.
pub(super) fn known(store: &Store, image: &Image) -> Option<AccessTrace> {
    let bytes = store.blob_bytes(&image.record.trace?, TRACE_BYTES_MAX).ok()?;
    AccessTrace::decode(&bytes).ok()
}

/// Who keeps it. It takes a thread: whoever unmounts does not wait for remotes.
pub(super) fn keeper(store: PathBuf, far: Option<Arc<FarImages>>, image: Arc<Image>) -> Traced {
    let kept = kept(store, far, image);
    Arc::new(move |trace: &Trace| {
        let (kept, trace) = (kept.clone(), trace.clone());
        std::thread::spawn(move || kept(&trace));
    })
}

/// The same by the thread that calls it, for a process that ends then.
pub(super) fn kept(store: PathBuf, far: Option<Arc<FarImages>>, image: Arc<Image>) -> Traced {
    Arc::new(move |trace: &Trace| {
        let touched = AccessTrace::of(&trace.ranges, &image.packs);
        if let Err(error) = keep(&store, far.as_deref(), &image, touched) {
            say::tell(&say::one_line(&format!("what was touched of {} is not kept: {error:#}", image.record.key)));
        }
    })
}

fn keep(store: &Path, far: Option<&FarImages>, image: &Image, touched: AccessTrace) -> Result<()> {
    let store = Store::open(store)?;
    let same = |record: &ImageRecord| record.image() == image.record.image();
    // Another image may have been saved under the key since; it keeps its own.
    let Some(record) = store.image(&image.record.key)?.filter(same) else { return Ok(()) };
    // Of another path of the image, or by another job meanwhile: both are needed.
    let before = record.trace.and_then(|trace| store.blob_bytes(&trace, TRACE_BYTES_MAX).ok());
    let before = before.and_then(|bytes| AccessTrace::decode(&bytes).ok()).filter(|before| !before.is_carried);
    let trace = before.unwrap_or_default().and(touched.packs.into_iter());
    let blob = store.put_blob(&mut trace.encode().as_slice())?;
    let record = ImageRecord { trace: Some(blob), ..record };
    let origin = store.image_origin(&record.key).unwrap_or(Origin::Fetched(None));
    store.keep_image(&record, origin, false)?;
    // Only what was saved here is signed: what others saved stays as they signed it.
    let Some(far) = far.filter(|far| far.writes() && (origin == Origin::Own || !far.signs())) else { return Ok(()) };
    // Another machine may have saved under the key since: that one stays.
    let is_newer = |listed: &ImageRecord| {
        listed.key == record.key && listed.created_ms >= record.created_ms && listed.image() != record.image()
    };
    if far.images(&record.key.digest())?.iter().any(is_newer) {
        return Ok(());
    }
    far.publish_record(&record, &store.packs_of(&record)?).map(drop)
}
