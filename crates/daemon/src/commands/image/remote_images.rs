//! The client of remotes for images.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, anyhow};
use futures::stream::{self, StreamExt, TryStreamExt};
use larder_config::Settings;
use larder_image::{Arrived, Image, ImageError, Packs, Progress, Saved, Step};
use larder_model::{Blob, Digest, ImageRecord, Origin};
use larder_remote::BelievedImage;
use larder_store::Store;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::bar;
use super::end::now_ms;
use crate::remote::remote_client::{Failure, RemoteClient};
use crate::remote::runtime;
use crate::say;
use crate::surroundings::Surroundings;

/// The number of packs that are downloaded at once: with 20 ms per request and a third of a MiB per
/// pack, that is half a gigabyte per second.
const PACKS_AT_ONCE: usize = 32;
/// The number of downloaded packs that may wait to be unpacked.
const PACKS_WAITING: usize = 32;

/// The remotes, and the runtime of their transfers.
pub(super) struct RemoteImages {
    runtime: Runtime,
    way: Way,
    /// The signers of the images that were listed, by the digest of the record.
    signers: Mutex<HashMap<Digest, Digest>>,
}

/// The state that each transfer needs.
#[derive(Clone)]
struct Way {
    remotes: Arc<RemoteClient>,
    dir: PathBuf,
    /// Downloaded bytes that are not yet counted as part of the store's size.
    brought: Arc<AtomicU64>,
}

impl RemoteImages {
    /// Opens the remotes of the settings, or returns `None` if there are none.
    pub(super) fn open(around: &Surroundings, store: &Store) -> Result<Option<RemoteImages>> {
        RemoteImages::with_settings(around.settings(), store)
    }

    /// Opens the remotes of these settings, or returns `None` if there are none.
    pub(super) fn with_settings(settings: &Settings, store: &Store) -> Result<Option<RemoteImages>> {
        if settings.remote.is_empty() {
            return Ok(None);
        }
        let runtime = runtime()?;
        let inside = runtime.enter();
        let remotes = Arc::new(RemoteClient::open(settings, &say::tell));
        drop(inside);
        let way = Way { remotes, dir: store.directory().to_owned(), brought: Arc::default() };
        Ok(Some(RemoteImages { runtime, way, signers: Mutex::default() }))
    }

    /// Returns the images of a key or a prefix, except those that are older than one that this
    /// store has seen under the same key. A signature proves whose image it is, but anyone who can
    /// write to a remote can restore an old one.
    pub(super) fn images(&self, list: &Digest) -> Result<Vec<ImageRecord>> {
        let listed = self.runtime.block_on(self.way.remotes.images(list)).map_err(|error| anyhow!("{error}"))?;
        let store = Store::open(&self.way.dir)?;
        let mut images = Vec::new();
        for BelievedImage { record, signer } in listed {
            let newest_ms = store.newest_image_ms(&record.key);
            if record.created_ms < newest_ms {
                let key = &record.key;
                say::tell(&format!(
                    "{key}: a remote has an image that is older than one that was seen here before, so it is not used; \
                     to accept it, run `larder image drop {key}`"
                ));
                continue;
            }
            // If this fails, only the check for older images is lost.
            let _ = store.note_newest_image(&record.key, record.created_ms, now_ms());
            if let Some(signer) = signer {
                let mut signers = self.signers.lock();
                signers.insert(Digest::of(&record.encode()), signer);
            }
            images.push(record);
        }
        Ok(images)
    }

    /// Returns the origin of a listed image: its remote, and its signer if it was signed.
    pub(super) fn origin_of(&self, record: &ImageRecord) -> Origin {
        let signers = self.signers.lock();
        Origin::Fetched(signers.get(&Digest::of(&record.encode())).copied())
    }

    /// Returns true if uploads are signed.
    pub(super) fn signs(&self) -> bool {
        self.way.remotes.signs()
    }

    /// Downloads the blobs that are missing in the store.
    pub(super) fn fetch(&self, store: &Store, blobs: impl Iterator<Item = Blob>) -> Result<()> {
        let missing: Vec<Blob> = blobs.filter(|blob| !store.has_blob(blob)).collect();
        bar::during(|progress| {
            progress.begin(Step::Fetch, missing.iter().map(|blob| blob.size_bytes).sum());
            let fetch = |blob: Blob| async move {
                self.way.bring(&blob).await?;
                progress.add(blob.size_bytes);
                Ok::<(), anyhow::Error>(())
            };
            let all = stream::iter(missing).map(fetch).buffer_unordered(PACKS_AT_ONCE).try_collect::<()>();
            self.runtime.block_on(all)
        })
    }

    /// Returns how many bytes were downloaded since the last call.
    pub(super) fn take_brought(&self) -> u64 {
        self.way.brought.swap(0, Relaxed)
    }

    /// Returns for each blob whether the first writable remote has it.
    pub(super) fn has(&self, blobs: &[Blob]) -> Vec<bool> {
        self.runtime.block_on(self.way.remotes.has(blobs))
    }

    /// Returns true if anything is uploaded.
    pub(super) fn writes(&self) -> bool {
        self.way.remotes.writes()
    }

    /// Uploads an image. Returns the bytes that were not there before.
    pub(super) fn publish(&self, saved: &Saved) -> Result<u64> {
        self.publish_record(&saved.record, &saved.packs)
    }

    /// Uploads the record of an image, and those of its blobs that are missing on remotes. Returns
    /// the bytes that were not there before.
    pub(super) fn publish_record(&self, record: &ImageRecord, packs: &[Blob]) -> Result<u64> {
        let sizes: HashMap<Digest, u64> =
            record.blobs().chain(packs.iter().copied()).map(|blob| (blob.digest, blob.size_bytes)).collect();
        bar::during(|progress: &Progress| {
            progress.begin(Step::Send, 0);
            let sends = |digest: &Digest| progress.add(sizes.get(digest).copied().unwrap_or(0));
            let sent = self.way.remotes.publish_image(record, packs, &self.way.dir, sends);
            self.runtime.block_on(sent).map_err(|error| anyhow!("{error}"))
        })
    }

    /// Returns for each blob whether it is missing on every remote. If a remote cannot say, no blob
    /// counts as missing.
    pub(super) fn lacks(&self, blobs: &[Blob]) -> Vec<bool> {
        self.runtime.block_on(self.way.remotes.lacks(blobs))
    }

    /// Downloads one blob into the store.
    pub(super) fn bring(&self, blob: &Blob) -> Result<(), Failure> {
        self.runtime.block_on(self.way.bring(blob))
    }

    /// Starts to download these packs of an image in this order, and returns them as they arrive.
    pub(super) fn packs(&self, image: &Image, order: &[usize]) -> RemotePacks {
        let wanted: Vec<(usize, Blob)> = order.iter().map(|&number| (number, image.packs.packs[number].blob)).collect();
        let (sender, receiver) = mpsc::channel(PACKS_WAITING);
        let way = self.way.clone();
        self.runtime.spawn(async move {
            let fetch = |(number, blob): (usize, Blob)| way.pack(number, blob);
            let mut coming = stream::iter(wanted).map(fetch).buffer_unordered(PACKS_AT_ONCE);
            while let Some(arrived) = coming.next().await {
                let failed = arrived.is_err();
                // The receiver is gone, or must stop after an error.
                if sender.send(arrived).await.is_err() || failed {
                    break;
                }
            }
        });
        RemotePacks(Mutex::new(receiver))
    }
}

impl Way {
    /// Downloads a blob into the store.
    async fn bring(&self, blob: &Blob) -> Result<(), Failure> {
        self.remotes.blob(blob, &self.dir).await?;
        self.brought.fetch_add(blob.size_bytes, Relaxed);
        Ok(())
    }

    /// Downloads a pack into the store if it is missing there, and returns its bytes.
    async fn pack(&self, number: usize, blob: Blob) -> Result<Arrived, ImageError> {
        let store = Store::open(&self.dir)?;
        if !store.has_blob(&blob) {
            self.bring(&blob).await.map_err(|error| ImageError::Source(error.to_string()))?;
        }
        let read = tokio::task::spawn_blocking(move || store.blob_bytes(&blob, u64::MAX)).await;
        let bytes = read.map_err(|error| ImageError::Source(error.to_string()))??;
        Ok((number, bytes))
    }
}

/// Packs, as they arrive from remotes.
pub(super) struct RemotePacks(Mutex<mpsc::Receiver<Result<Arrived, ImageError>>>);

impl Packs for RemotePacks {
    fn next(&self) -> Option<Result<Arrived, ImageError>> {
        self.0.lock().blocking_recv()
    }
}
