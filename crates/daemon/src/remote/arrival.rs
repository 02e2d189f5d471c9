//! What came from a remote: which records of it are believed, and a record with all that it needs into the store.
//!
//! A record is bound to its weak fingerprint by the seal around both, its blobs to it by their digests. What a failed command left
//! is not believed: others write to a remote, and a shortage on their machine is not one here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures::stream::{self, StreamExt, TryStreamExt};
use larder_model::{Blob, Digest, Entry, Fingerprint, Manifest};
use larder_store::Remote;
use tokio::runtime::Handle;

use super::{Shared, on_disk};

/// Blobs of one record that are fetched at once.
const BLOBS_AT_ONCE: usize = 8;

/// One record by itself, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alone {
    /// A manifest with one entry.
    pub(super) manifest: Vec<u8>,
    pub(super) blobs: Vec<Blob>,
}

/// The manifest of `weak` without what is not believed, and how many records that were; `None` where nothing is left.
pub(super) fn believed(bytes: &[u8], weak: &Fingerprint) -> (Option<Vec<u8>>, u64) {
    let Ok(manifest) = Manifest::decode(bytes) else { return (None, 1) };
    if manifest.weak != *weak {
        return (None, 1);
    }
    let is_believed = |entry: &Entry| entry.open_to_read().is_ok_and(|(_, result)| result.exit_code == 0);
    let all = manifest.entries.len();
    let entries: Vec<Entry> = manifest.entries.iter().filter(|entry| is_believed(entry)).cloned().collect();
    let refused = (all - entries.len()) as u64;
    let left = (!entries.is_empty()).then(|| Manifest { entries, ..manifest }.encode());
    (left, refused)
}

/// One record of a manifest.
pub(super) fn alone(bytes: &[u8], strong: &Fingerprint) -> Option<Alone> {
    let manifest = Manifest::decode(bytes).ok()?;
    let entry = manifest.entries.iter().find(|entry| entry.strong == *strong)?.clone();
    let (_, result) = entry.open_to_read().ok()?;
    let mut blobs: Vec<Blob> = result.blobs().collect();
    blobs.sort_by_key(|blob| blob.digest.0);
    blobs.dedup();
    Some(Alone { manifest: Manifest { entries: vec![entry], ..manifest }.encode(), blobs })
}

impl Shared {
    /// Those of `blobs` that are not in the store.
    pub(super) fn missing(&self, blobs: &[Blob]) -> Vec<Blob> {
        let Ok(store) = self.store() else { return Vec::new() };
        blobs.iter().filter(|blob| !store.has_blob(blob)).copied().collect()
    }

    /// Fetch what is missing, and record it. Returns how many bytes came; an error is one line.
    pub(super) async fn take(
        self: &Arc<Self>,
        alone: Alone,
        missing: Vec<Blob>,
        subject: Option<Digest>,
    ) -> Result<u64, String> {
        let come: u64 = missing.iter().map(|blob| blob.size_bytes).sum();
        let fetch = |blob: Blob| {
            let shared = Arc::clone(self);
            async move { shared.far.blob(&blob, &shared.dir).await }
        };
        stream::iter(missing).map(fetch).buffer_unordered(BLOBS_AT_ONCE).try_collect::<()>().await?;
        let shared = Arc::clone(self);
        let record = move || {
            let store = shared.store().map_err(|error| error.to_string())?;
            let taken = store.take_record(&alone.manifest, &alone.blobs, subject.as_ref());
            taken.map_err(|error| error.to_string())
        };
        let grown = on_disk(&Handle::current(), record).await.ok_or("larderd ends")??;
        self.grown.fetch_add(grown + come, Relaxed);
        self.count(Remote::BytesIn, come);
        Ok(come)
    }
}
