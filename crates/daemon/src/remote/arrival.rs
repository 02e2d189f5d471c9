//! What came from a remote, into the store: a record with all that it needs. Blobs come first, so that whoever finds
//! the record finds them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures::stream::{self, StreamExt, TryStreamExt};
use larder_model::{Blob, Digest, Fingerprint, Manifest};
use larder_store::Remote;
use tokio::runtime::Handle;

use super::far::Failure;
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

/// The newest record of a manifest, alone.
pub(super) fn newest(bytes: &[u8]) -> Option<Alone> {
    let strong = Manifest::decode(bytes).ok()?.entries.first()?.strong;
    alone(bytes, &strong)
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
    ) -> Result<u64, Failure> {
        let come: u64 = missing.iter().map(|blob| blob.size_bytes).sum();
        let fetch = |blob: Blob| {
            let shared = Arc::clone(self);
            async move { shared.far().blob(&blob, &shared.dir).await }
        };
        stream::iter(missing).map(fetch).buffer_unordered(BLOBS_AT_ONCE).try_collect::<()>().await?;
        let shared = Arc::clone(self);
        let record =
            move || shared.store()?.take_record(&alone.manifest, &alone.blobs, subject.as_ref()).map_err(Failure::ours);
        let taken = on_disk(&Handle::current(), record).await;
        let grown = taken.unwrap_or_else(|| Err(Failure::ours("larderd ends")))?;
        self.grown.fetch_add(grown + come, Relaxed);
        self.count(Remote::BytesIn, come);
        Ok(come)
    }
}
