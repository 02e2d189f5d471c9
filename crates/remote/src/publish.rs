//! Publishing: uploading blobs first, and then the records that name them.
//!
//! Unaware of: the local store, when a record is published.

use crate::record::Item;
use crate::stack::verified;
use crate::{Key, Put, Remote, RemoteError, Remotes, Stored, Trouble, file_body};
use futures::stream::{self, FuturesUnordered, StreamExt};
use larder_model::{Blob, Content, Digest, Manifest, OutputKind, Streams};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How many blobs of a record are uploaded to a remote at once.
const UPLOADS_AT_ONCE: usize = 4;
/// How often an upload is tried.
const TRIES_MAX: u32 = 3;

/// The outcome of publishing on all remotes.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Uploaded blobs.
    pub blobs: u64,
    /// Bytes of the uploaded blobs.
    pub bytes: u64,
    /// Blobs that a remote had already.
    pub blobs_there: u64,
    /// Records that a remote has now.
    pub entries: u64,
    /// Those of `entries` that the remote had already, unchanged.
    pub entries_there: u64,
    /// Records that were not published. A blob is missing here, or the run failed and we do not
    /// sign, or signatures count and the record was fetched.
    pub passed_over: u64,
    /// One error for each remote that publishing failed on.
    pub failed: Vec<RemoteError>,
}

impl Published {
    fn add(&mut self, other: Published) {
        let Published { blobs, bytes, blobs_there, entries, entries_there, passed_over, failed } = other;
        self.blobs += blobs;
        self.bytes += bytes;
        self.blobs_there += blobs_there;
        self.entries += entries;
        self.entries_there += entries_there;
        self.passed_over += passed_over;
        self.failed.extend(failed);
    }
}

impl Remotes {
    /// Publishes the records of a manifest on every writable remote, on all of them at once: first
    /// the missing blobs, then the records. `blobs` returns the local file of a blob.
    pub async fn publish(
        &self,
        manifest: &Manifest<'_>,
        blobs: impl Fn(&Digest) -> Option<PathBuf> + Send + Sync,
    ) -> Published {
        let mut published = Published::default();
        let mut items = Vec::new();
        for entry in &manifest.entries {
            let opened = entry.open().ok();
            let item = opened.and_then(|(_, result)| {
                let item = Item::of(&manifest.weak, entry, result.exit_code, self.keys())?;
                Some((item, needed(&result)))
            });
            match item {
                Some(item) => items.push(item),
                None => published.passed_over += 1,
            }
        }
        // A slow remote does not delay the others.
        let mut under_way = FuturesUnordered::new();
        for remote in self.writable() {
            under_way.push(self.publish_alone(remote, &manifest.weak, &items, &blobs));
        }
        while let Some(one) = under_way.next().await {
            published.add(one);
        }
        published
    }

    async fn publish_alone(
        &self,
        remote: &dyn Remote,
        weak: &Digest,
        items: &[(Item, Vec<Blob>)],
        blobs: &(impl Fn(&Digest) -> Option<PathBuf> + Send + Sync),
    ) -> Published {
        let mut published = Published::default();
        if let Err(error) = self.publish_on(remote, weak, items, blobs, &mut published).await {
            published.failed.push(error);
        }
        published
    }

    /// Publishes records with their blobs on one remote, and adds the outcome to `published`.
    pub(crate) async fn publish_on(
        &self,
        remote: &dyn Remote,
        weak: &Digest,
        items: &[(Item, Vec<Blob>)],
        blobs: &(impl Fn(&Digest) -> Option<PathBuf> + Send + Sync),
        published: &mut Published,
    ) -> Result<(), RemoteError> {
        let all: BTreeMap<Digest, u64> =
            items.iter().flat_map(|(_, needed)| needed).map(|blob| (blob.digest, blob.size_bytes)).collect();
        let (lacking, trouble) = self.send_missing(remote, &all, blobs, UPLOADS_AT_ONCE, published).await?;
        let is_whole = |needed: &[Blob]| needed.iter().all(|blob| !lacking.contains(&blob.digest));
        let whole: Vec<Item> =
            items.iter().filter(|(_, needed)| is_whole(needed)).map(|(item, _)| item.clone()).collect();
        published.passed_over += (items.len() - whole.len()) as u64;
        if !whole.is_empty() {
            let merged = self.add(remote, Key::manifest(*weak), &whole).await?;
            published.entries += whole.len() as u64;
            published.entries_there += if merged.there { whole.len() as u64 } else { 0 };
        }
        // A blob that is missing or damaged here is not an error of the remote.
        match trouble {
            Some(error) if error.trouble().is_some_and(|trouble| trouble != Trouble::Damaged) => Err(error),
            _ => Ok(()),
        }
    }

    /// Uploads those blobs of `all` (digest → size in bytes) that the remote lacks. Returns the
    /// digests that could not be uploaded, and the error of one of them.
    pub(crate) async fn send_missing(
        &self,
        remote: &dyn Remote,
        all: &BTreeMap<Digest, u64>,
        blobs: &(impl Fn(&Digest) -> Option<PathBuf> + Send + Sync),
        at_once: usize,
        published: &mut Published,
    ) -> Result<(Vec<Digest>, Option<RemoteError>), RemoteError> {
        let keys: Vec<Key> = all.keys().map(|&digest| Key::blob(digest)).collect();
        let mut there = if keys.is_empty() { Vec::new() } else { remote.has(&keys).await? };
        for (there, key) in there.iter_mut().zip(&keys) {
            *there &= !self.is_wrong(remote, key.digest);
        }
        // Collected first: a future that holds these closures across an await is not `Send`.
        let missing: Vec<Digest> =
            keys.iter().zip(&there).filter(|(_, there)| !**there).map(|(key, _)| key.digest).collect();
        published.blobs_there += there.iter().filter(|there| **there).count() as u64;
        let uploads: Vec<_> = missing
            .into_iter()
            .map(|digest| {
                let blob = Blob { digest, size_bytes: all[&digest] };
                let from = blobs(&digest);
                async move { (digest, self.upload(remote, blob, from).await) }
            })
            .collect();
        let mut lacking = Vec::new();
        let mut trouble = None;
        let mut uploads = stream::iter(uploads).buffer_unordered(at_once);
        while let Some((digest, outcome)) = uploads.next().await {
            match outcome {
                Ok(Stored::New) => {
                    published.blobs += 1;
                    published.bytes += all[&digest];
                }
                Ok(Stored::Existed) => published.blobs_there += 1,
                Err(error) => {
                    lacking.push(digest);
                    trouble = Some(error);
                }
            }
        }
        Ok((lacking, trouble))
    }

    async fn upload(&self, remote: &dyn Remote, blob: Blob, from: Option<PathBuf>) -> Result<Stored, RemoteError> {
        let key = Key::blob(blob.digest);
        let Some(path) = from else {
            return Err(RemoteError::here(key, std::io::ErrorKind::NotFound.into()));
        };
        let wrong = self.is_wrong(remote, blob.digest);
        let how = if wrong { Put::Replace } else { Put::IfAbsent };
        let mut attempt = 0;
        loop {
            let body = verified(remote.name().into(), key, Some(blob.size_bytes), file_body(key, path.clone()));
            match remote.put(key, blob.size_bytes, body, how).await {
                Err(error) if error.is_passing() && attempt + 1 < TRIES_MAX => {
                    self.backoff(attempt).await;
                    attempt += 1;
                }
                outcome => {
                    if wrong && outcome.is_ok() {
                        self.note_mended(remote, blob.digest);
                    }
                    return outcome;
                }
            }
        }
    }
}

/// Returns the blobs that a result names.
fn needed(result: &larder_model::ActionResult<'_>) -> Vec<Blob> {
    let streams: Vec<Content<'_>> = match result.streams {
        Streams::Apart { stdout, stderr } => vec![stdout, stderr],
        Streams::Together(both) => vec![both],
    };
    let files = result.outputs.iter().filter_map(|output| match output.kind {
        OutputKind::File { content, .. } => Some(content),
        _ => None,
    });
    let blob = |content| match content {
        Content::Blob(blob) => Some(blob),
        Content::Inline(_) => None,
    };
    streams.into_iter().chain(files).filter_map(blob).collect()
}
