//! Puts downloaded records into the store: one record with its blobs, or the records of a bundle.
//! Blobs are written before the record, so that a reader of the record finds them. In the other
//! direction, it reads a record with its blobs for a bundle.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use larder_model::{Blob, Digest, Fingerprint};
use larder_remote::{Unpacked, Whole};
use larder_store::{Came, Remote, Store, StoreError};
use tokio::runtime::Handle;

use super::latency_model::Source;
use super::remote_client::Failure;
use super::shared::{Shared, on_disk};
use super::single_record::{Alone, each_once, newest};

/// The number of blobs of one record that are downloaded at once.
const BLOBS_AT_ONCE: usize = 8;

/// Between two checks of the store's size, prefetch may download one part in this many of the size
/// limit.
const AHEAD_PART: u64 = 4;

impl Shared {
    /// Returns the blobs that are not in the store.
    pub(super) fn missing(&self, blobs: &[Blob]) -> Vec<Blob> {
        let Ok(store) = self.store() else { return Vec::new() };
        blobs.iter().filter(|blob| !store.has_blob(blob)).copied().collect()
    }

    /// Returns true if these blobs may be prefetched. Prefetched data must not evict what builds
    /// asked for.
    pub(super) fn has_prefetch_room(&self, missing: &[Blob]) -> bool {
        let limit = self.how.max_size_bytes;
        limit == 0 || self.grown.load(Relaxed).saturating_add(bytes_of(missing)) <= limit / AHEAD_PART
    }

    /// Downloads the missing blobs and records the record. Returns the downloaded bytes, and the
    /// remote if all came from one. An error is one line.
    pub(super) async fn take(
        self: &Arc<Self>,
        alone: Alone,
        missing: Vec<Blob>,
        subject: Option<Digest>,
    ) -> Result<(u64, Source), Failure> {
        let come = bytes_of(&missing);
        let limit = self.how.max_size_bytes;
        if limit > 0 && come > limit {
            return Err(Failure::ours(format!("{come} bytes are more than the store may have")));
        }
        let fetch = |blob: Blob| {
            let shared = Arc::clone(self);
            async move { shared.client().blob(&blob, &shared.dir).await }
        };
        let came: Vec<usize> = stream::iter(missing).map(fetch).buffer_unordered(BLOBS_AT_ONCE).try_collect().await?;
        let from = came.first().copied().filter(|first| came.iter().all(|other| other == first));
        let shared = Arc::clone(self);
        let alone = Arc::new(alone);
        let of_record = Arc::clone(&alone);
        let record = move || {
            let Alone { manifest, blobs, .. } = &*of_record;
            shared.store()?.take_record(manifest, Came::Fetched, blobs, subject.as_ref()).map_err(Failure::ours)
        };
        let taken = on_disk(&Handle::current(), record).await;
        let grown = taken.unwrap_or_else(|| Err(Failure::ours("larderd is exiting")))?;
        self.grown.fetch_add(grown + come, Relaxed);
        self.count(Remote::BytesIn, come);
        let shared = Arc::clone(self);
        // In the background, because no client waits for it.
        tokio::spawn(async move { shared.client().fill(&alone.manifest, &alone.blobs, &shared.dir).await });
        Ok((come, from))
    }

    /// Stores those records of a bundle that `is_wanted`, and calls `kept` for each after it is
    /// stored. A record with a missing blob is skipped. Blocks on the disk.
    pub(super) fn take_bundle(
        &self,
        unpacked: &Unpacked,
        is_wanted: impl Fn(&Fingerprint) -> bool,
        mut kept: impl FnMut(&Fingerprint, &Bytes),
    ) {
        let Ok(store) = self.store() else { return };
        let here: HashMap<&Digest, &Bytes> = unpacked.blobs.iter().map(|(digest, blob)| (digest, blob)).collect();
        let (mut come, mut grown) = (0, 0);
        self.client().believed(unpacked, is_wanted, |manifest, single| {
            let keep = |blob: &Blob| match here.get(&blob.digest) {
                _ if store.has_blob(blob) => Some(0),
                Some(bytes) => keep_blob(&store, blob, bytes).ok(),
                None => None,
            };
            let blobs = each_once(single.result());
            let Some(size) = blobs.iter().map(keep).sum::<Option<u64>>() else { return };
            let Ok(more) = store.take_single(single, Came::Fetched, &blobs, None) else { return };
            (come, grown) = (come + size + manifest.len() as u64, grown + size + more);
            kept(&single.manifest().weak, manifest);
        });
        self.grown.fetch_add(grown, Relaxed);
        self.count(Remote::BytesIn, come);
    }

    /// Returns the newest record of a fingerprint with its blobs, if together they have at most
    /// `most_bytes` and the blobs are intact.
    pub(super) fn whole(&self, weak: &Fingerprint, most_bytes: u64) -> Option<Whole> {
        let store = self.store().ok()?;
        let Alone { manifest, blobs, .. } = newest(&store.read_manifest(weak, false).ok()??.bytes)?;
        if manifest.len() as u64 + blobs.iter().map(|blob| blob.size_bytes).sum::<u64>() > most_bytes {
            return None;
        }
        let read = |blob: &Blob| {
            let bytes = Bytes::from(std::fs::read(store.blob_file(&blob.digest)).ok()?);
            (Digest::of(&bytes) == blob.digest).then_some(bytes)
        };
        let blobs = blobs.iter().map(read).collect::<Option<_>>()?;
        Some(Whole { manifest, blobs })
    }
}

fn bytes_of(blobs: &[Blob]) -> u64 {
    blobs.iter().fold(0, |sum, blob| sum.saturating_add(blob.size_bytes))
}

fn keep_blob(store: &Store, blob: &Blob, bytes: &[u8]) -> Result<u64, StoreError> {
    let mut receiving = store.receive_blob(blob)?;
    receiving.write(bytes)?;
    receiving.finish()?;
    Ok(blob.size_bytes)
}
