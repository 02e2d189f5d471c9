//! One record of a manifest, in a manifest of its own.
//!
//! Unaware of: where the manifest comes from.

use larder_model::{ActionResult, Blob, Fingerprint, Manifest, Origin};

/// One record in a manifest of its own, and the blobs that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alone {
    /// An encoded manifest with one entry.
    pub(super) manifest: Vec<u8>,
    pub(super) origin: Origin,
    pub(super) blobs: Vec<Blob>,
}

/// Returns the newest record of a manifest.
pub(super) fn newest(bytes: &[u8]) -> Option<Alone> {
    let strong = Manifest::decode(bytes).ok()?.entries.first()?.strong;
    alone(bytes, &strong)
}

/// Returns the record of a manifest with this strong fingerprint.
pub(super) fn alone(bytes: &[u8], strong: &Fingerprint) -> Option<Alone> {
    let manifest = Manifest::decode(bytes).ok()?;
    let entry = manifest.entries.iter().find(|entry| entry.strong == *strong)?.clone();
    let (_, result) = entry.open_to_read().ok()?;
    let (blobs, origin) = (each_once(&result), entry.origin);
    Some(Alone { origin, manifest: Manifest { entries: vec![entry], ..manifest }.encode(), blobs })
}

pub(super) fn each_once(result: &ActionResult<'_>) -> Vec<Blob> {
    let mut blobs: Vec<Blob> = result.blobs().collect();
    blobs.sort_by_key(|blob| blob.digest.0);
    blobs.dedup();
    blobs
}
