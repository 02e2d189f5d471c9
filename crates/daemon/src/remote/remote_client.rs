//! The client of all remotes together. It also writes downloads into the store.
//!
//! Unaware of: which caller asks, and when.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use larder_config::{Settings, masked};
use larder_model::{Blob, Digest, Fingerprint, ImageRecord, Manifest, Single};
use larder_remote::{
    BelievedImage, Bundle, Counts, Key, One, Options, Reading, Remote, RemoteError, RemoteUrl, Remotes, Share, Sink,
    Trouble, Unpacked, Used, connect, leaf,
};
use larder_store::{Receiving, Store, StoreError};

use super::keys::{exposed, keys};

/// All remotes, the nearest first.
pub(crate) struct RemoteClient {
    remotes: Remotes,
    /// How many rejected objects [`RemoteClient::refused`] has already returned.
    told: AtomicU64,
}

/// The outcome of an upload that did not fail.
pub(super) enum Sending {
    /// Uploaded. Holds the bytes of blobs and records that were not there before.
    Sent(u64),
    /// All remotes already had them.
    There,
    /// Nothing was uploaded, because no entry may be shared. For example, a blob is gone, or the
    /// entry was downloaded and only entries made here are signed.
    Needless,
}

/// The reason why a download or an upload failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Failure {
    why: String,
    /// The problem is the service as a whole, not this machine or one object.
    pub(super) of_service: bool,
    /// A retry would fail in the same way.
    pub(super) is_final: bool,
    /// One remote failed while another one succeeded.
    pub(super) of_one: bool,
    /// The error is probably temporary: the remote is unreachable, busy or stalled.
    pub(crate) may_pass: bool,
    /// The remote cannot be reached at all.
    pub(super) is_unreachable: bool,
    /// A person has to change something before it can succeed: permissions, the password, the
    /// bucket.
    pub(super) is_for_people: bool,
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Self {
        let of_service = error.trouble().is_some_and(|trouble| trouble.is_of_service());
        let is_final = matches!(error.trouble(), Some(Trouble::TooLarge | Trouble::Unable));
        let is_unreachable = matches!(error.trouble(), Some(Trouble::Unreachable));
        let is_for_people = error.trouble().is_some_and(Trouble::is_for_people);
        let may_pass =
            matches!(error.trouble(), Some(Trouble::Unreachable | Trouble::Busy | Trouble::Stalled | Trouble::Open));
        Failure { why: error.to_string(), of_service, is_final, of_one: false, may_pass, is_unreachable, is_for_people }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::ours(error)
    }
}

impl Failure {
    pub(super) fn ours(why: impl fmt::Display) -> Failure {
        Failure {
            why: why.to_string(),
            of_service: false,
            is_final: false,
            of_one: false,
            may_pass: false,
            is_unreachable: false,
            is_for_people: false,
        }
    }
}

/// Returns the options of the settings. If a key cannot be read, no remote may be used, because it
/// would be unknown which records to trust.
fn options(settings: &Settings) -> Result<Options, String> {
    Ok(Options {
        variable: Arc::new(|name| std::env::var(name).ok()),
        seed: larder_sys::random_u64(),
        read_only: settings.remote_read_only,
        keys: keys(settings)?,
        ..Options::default()
    })
}

/// Opens one remote of the settings without the layers around it. Returns it, and true if it is
/// read-only.
pub(crate) fn open(url: &str, settings: &Settings) -> Result<(Arc<dyn Remote>, bool), String> {
    let options = options(settings)?;
    let parsed = url.parse::<RemoteUrl>();
    let opened = parsed.and_then(|url| Ok((leaf(&url, &options)?, url)));
    let (leaf, url) = opened.map_err(|error| error.to_string())?;
    Ok((leaf, url.read_only || settings.remote_read_only))
}

impl RemoteClient {
    /// Opens the remotes of the settings. A remote that cannot be opened is reported to `log` and
    /// skipped.
    pub(crate) fn open(settings: &Settings, log: &dyn Fn(&str)) -> RemoteClient {
        let mut all = Vec::new();
        let options = options(settings).unwrap_or_else(|error| {
            log(&format!("no remote is used, because a key cannot be read: {error}"));
            Options::default()
        });
        exposed(settings).iter().for_each(|why| log(why));
        let urls: &[String] = if keys(settings).is_ok() { &settings.remote } else { &[] };
        for url in urls {
            let parsed = url.parse::<RemoteUrl>();
            match parsed.and_then(|url| Ok((connect(&url, &options)?, url.read_only))) {
                Ok(one) => all.push(one),
                Err(error) => log(&format!("{} is not used: {error}", masked(url))),
            }
        }
        RemoteClient { remotes: Remotes::of(all, &options), told: AtomicU64::new(0) }
    }

    /// Returns true if anything is uploaded. A client that trusts only signed records but has no
    /// key uploads nothing, because its records would replace signed ones.
    pub(crate) fn writes(&self) -> bool {
        self.remotes.is_writable() && !self.remotes.would_not_believe_itself()
    }

    /// Returns true if a remote packs the records that are uploaded at the same time.
    pub(super) fn packs(&self) -> bool {
        let packs = |one: &One| !one.read_only && one.remote.abilities().writes_per_minute.is_some();
        self.remotes.each().iter().any(packs)
    }

    /// Returns true if uploads are signed.
    pub(crate) fn signs(&self) -> bool {
        self.remotes.signs()
    }

    /// Returns the manifest of a fingerprint, merged from the trusted entries of all remotes, and
    /// the number of the nearest remote that has some of it.
    pub(super) async fn records(&self, weak: &Fingerprint) -> Result<Option<(Vec<u8>, usize)>, Failure> {
        Ok(self.remotes.manifest(weak).await?)
    }

    /// Returns each remote's name and request counts, the nearest first.
    pub(super) fn counts(&self) -> Vec<(&str, &Counts)> {
        self.remotes.each().iter().map(|one| (one.remote.name(), &*one.counts)).collect()
    }

    /// Returns how many records and blobs were rejected since the last call.
    pub(super) fn refused(&self) -> u64 {
        const REFUSED: [Share; 5] = [Share::Damaged, Share::Foreign, Share::Unsigned, Share::Failed, Share::WrongBlobs];
        let now = REFUSED.into_iter().map(|share| self.remotes.tally().of(share)).sum();
        now - self.told.swap(now, Relaxed).min(now)
    }

    /// Downloads a blob into the store at `dir`. Returns the number of the remote that it came
    /// from.
    pub(crate) async fn blob(&self, blob: &Blob, dir: &Path) -> Result<usize, Failure> {
        let store = Store::open(dir)?;
        let mut sink = IntoStore { store: &store, blob, receiving: None };
        let from = self.remotes.blob(&blob.digest, blob.size_bytes, &mut sink).await?;
        from.ok_or_else(|| Failure::ours("no remote has a blob that a record needs"))
    }

    /// Uploads the records of a manifest and their blobs.
    pub(super) async fn publish(&self, manifest: &[u8], dir: &Path) -> Result<Sending, Failure> {
        let store = Store::open(dir)?;
        let manifest = Manifest::decode(manifest).map_err(Failure::ours)?;
        let file = |digest: &Digest| Some(store.blob_file(digest));
        let published = self.remotes.publish(&manifest, file).await;
        let of_one = published.entries > 0;
        // Errors that a retry may fix come before final ones.
        let mut failed: Vec<Failure> = published.failed.into_iter().map(Failure::from).collect();
        failed.sort_by_key(|failure| failure.is_final);
        match failed.into_iter().next() {
            Some(failure) => Err(Failure { of_one, ..failure }),
            None if published.entries == 0 => Ok(Sending::Needless),
            None if published.entries == published.entries_there && published.blobs == 0 => Ok(Sending::There),
            None => Ok(Sending::Sent(published.bytes + manifest.encode().len() as u64)),
        }
    }

    /// Copies a downloaded record from the store at `dir` to the remotes that are nearer than the
    /// one that had it.
    pub(super) async fn fill(&self, manifest: &[u8], needed: &[Blob], dir: &Path) -> Result<(), Failure> {
        let store = Store::open(dir)?;
        let manifest = Manifest::decode(manifest).map_err(Failure::ours)?;
        for entry in &manifest.entries {
            let file = |digest: &Digest| Some(store.blob_file(digest));
            self.remotes.fill(&manifest.weak, &entry.strong, needed, file).await;
        }
        Ok(())
    }

    /// Returns the images of a key or a prefix.
    pub(crate) async fn images(&self, list: &Digest) -> Result<Vec<BelievedImage>, Failure> {
        Ok(self.remotes.images(list).await?)
    }

    /// Returns for each blob whether the first writable remote has it.
    pub(crate) async fn has(&self, blobs: &[Blob]) -> Vec<bool> {
        let none = vec![false; blobs.len()];
        let Some(one) = self.remotes.each().iter().find(|one| !one.read_only) else { return none };
        let keys: Vec<Key> = blobs.iter().map(|blob| Key::blob(blob.digest)).collect();
        one.remote.has(&keys).await.unwrap_or(none)
    }

    /// Returns for each blob whether it is missing on every remote. If a remote cannot say, no blob
    /// counts as missing.
    pub(crate) async fn lacks(&self, blobs: &[Blob]) -> Vec<bool> {
        let mut lacks = vec![true; blobs.len()];
        for one in self.remotes.each() {
            let asked: Vec<usize> = (0..blobs.len()).filter(|&at| lacks[at]).collect();
            let keys: Vec<Key> = asked.iter().map(|&at| Key::blob(blobs[at].digest)).collect();
            match one.remote.has(&keys).await {
                Ok(has) => asked.iter().zip(has).for_each(|(&at, has)| lacks[at] = !has),
                Err(_) => return vec![false; blobs.len()],
            }
        }
        lacks
    }

    /// Uploads an image whose packs are in the store at `dir`. Calls `sends` before each pack.
    /// Returns the bytes that were not there before.
    pub(crate) async fn publish_image(
        &self,
        record: &ImageRecord,
        packs: &[Blob],
        dir: &Path,
        sends: impl Fn(&Digest) + Send + Sync,
    ) -> Result<u64, Failure> {
        let store = Store::open(dir)?;
        let file = |digest: &Digest| {
            sends(digest);
            Some(store.blob_file(digest))
        };
        let published = self.remotes.publish_image(record, packs, file).await;
        match published.failed.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(published.bytes),
        }
    }

    /// Returns the list of records that builds used, for the first of these commits that has one.
    pub(super) async fn used(&self, commits: &[Digest]) -> Result<Used, Failure> {
        Ok(self.remotes.used(commits).await?)
    }

    /// Downloads a bundle, or returns `None` if that fails.
    pub(super) async fn bundle(&self, bundle: &Bundle) -> Option<Unpacked> {
        self.remotes.bundle(bundle).await
    }

    /// Decodes the wanted records of a bundle, and calls `take` with each trusted one.
    pub(super) fn believed(
        &self,
        unpacked: &Unpacked,
        is_wanted: impl Fn(&Fingerprint) -> bool,
        take: impl FnMut(&Bytes, &Single<'_>),
    ) {
        self.remotes.believed(unpacked, is_wanted, take);
    }

    /// Adds `fresh` and `base`, the list with which the build began, to the list of a commit.
    /// Returns how many bytes of bundles were uploaded.
    pub(super) async fn publish_used(
        &self,
        commit: &Digest,
        fresh: &[Fingerprint],
        base: &Used,
        reading: &Reading<'_>,
    ) -> Result<u64, Failure> {
        Ok(self.remotes.publish_used(commit, fresh, base, reading).await?)
    }
}

/// Writes a downloaded blob into the store. `begin` is called again if another remote starts to
/// send the blob.
struct IntoStore<'a> {
    store: &'a Store,
    blob: &'a Blob,
    receiving: Option<Receiving<'a>>,
}

impl IntoStore<'_> {
    fn done(result: Result<(), StoreError>) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(ready(result.map_err(|error| io::Error::other(error.to_string()))))
    }
}

/// Writes without a separate thread, because it writes to the page cache and not to a disk.
impl Sink for IntoStore<'_> {
    fn begin(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Self::done(self.store.receive_blob(self.blob).map(|receiving| self.receiving = Some(receiving)))
    }

    fn more(&mut self, bytes: Bytes) -> BoxFuture<'_, io::Result<()>> {
        Self::done(self.receiving.as_mut().map_or(Ok(()), |receiving| receiving.write(&bytes)))
    }

    fn end(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Self::done(self.receiving.take().map_or(Ok(()), Receiving::finish))
    }
}
