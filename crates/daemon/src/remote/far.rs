//! What is asked of remotes.
//!
//! Unaware of: who asks, and when.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::TryStreamExt;
use larder_config::{Settings, masked};
use larder_model::{Blob, Digest, Fingerprint, Manifest};
use larder_remote::{Key, Put, Remote, RemoteError, RemoteUrl, SMALL_BYTES_MAX, collect, file_body, whole};
use larder_store::Store;

use super::arrival::Alone;
use super::queue::End;

/// All remotes, the nearest first.
pub(crate) struct Far {
    remotes: Vec<Arc<dyn Remote>>,
    read_only: bool,
}

fn said(error: RemoteError) -> String {
    error.to_string()
}

impl Far {
    /// Those of the settings. What cannot be opened is said to `log`, and done without.
    pub(crate) fn open(settings: &Settings, log: &dyn Fn(&str)) -> Far {
        let mut remotes: Vec<Arc<dyn Remote>> = Vec::new();
        for text in &settings.remote {
            match open(text) {
                Ok(remote) => remotes.push(remote),
                Err(error) => log(&format!("{} is done without: {error}", masked(text))),
            }
        }
        Far { remotes, read_only: settings.remote_read_only }
    }

    /// Whether anything is sent.
    pub(crate) fn writes(&self) -> bool {
        !self.read_only && self.remotes.iter().any(|remote| remote.abilities().writable)
    }
}

impl Far {
    /// The bytes of the manifest of a fingerprint, of which nothing is known; of the nearest remote that has one.
    pub(crate) async fn records(&self, weak: &Fingerprint) -> Result<Option<Vec<u8>>, String> {
        let mut found = self.many_records(&[*weak]).await?;
        Ok(found.pop().flatten())
    }

    /// The same of several, in their order.
    pub(crate) async fn many_records(&self, weaks: &[Fingerprint]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let mut found = vec![None; weaks.len()];
        let mut failed = None;
        for remote in &self.remotes {
            let absent: Vec<usize> = (0..weaks.len()).filter(|at| found[*at].is_none()).collect();
            let keys: Vec<Key> = absent.iter().map(|at| Key::manifest(weaks[*at])).collect();
            if keys.is_empty() {
                break;
            }
            match remote.get_small(&keys).await {
                Ok(came) => absent.into_iter().zip(came).for_each(|(at, bytes)| found[at] = bytes.map(|b| b.to_vec())),
                Err(error) => failed = Some(said(error)),
            }
        }
        match failed {
            Some(why) if found.iter().all(Option::is_none) => Err(why),
            _ => Ok(found),
        }
    }

    /// Fetch a blob into the store at `dir`.
    pub(crate) async fn blob(&self, blob: &Blob, dir: &Path) -> Result<(), String> {
        let mut failed = "no remote has a blob that a record needs".to_owned();
        for remote in &self.remotes {
            match self.blob_of(remote, blob, dir).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn blob_of(&self, remote: &Arc<dyn Remote>, blob: &Blob, dir: &Path) -> Result<bool, String> {
        let Some((_, mut body)) = remote.get(Key::blob(blob.digest)).await.map_err(said)? else { return Ok(false) };
        let store = Store::open(dir).map_err(|error| error.to_string())?;
        let mut receiving = store.receive_blob(blob).map_err(|error| error.to_string())?;
        while let Some(bytes) = body.try_next().await.map_err(said)? {
            receiving.write(&bytes).map_err(|error| error.to_string())?;
        }
        receiving.finish().map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Send a record and what it needs: blobs first.
    pub(super) async fn publish(&self, weak: &Fingerprint, record: Alone, dir: &Path) -> End {
        let mut sent = 0;
        for remote in self.remotes.iter().filter(|remote| remote.abilities().writable) {
            match publish_to(remote, weak, &record, dir).await {
                Ok(bytes) => sent += bytes,
                Err(error) => return End::Failed(error),
            }
        }
        End::Sent(sent)
    }

    /// The lists of what builds of these commits used, in their order.
    pub(crate) async fn used(&self, commits: &[Digest]) -> Result<Vec<Option<Bytes>>, String> {
        let keys: Vec<Key> = commits.iter().map(|commit| Key::used(*commit)).collect();
        let mut found = vec![None; commits.len()];
        for remote in &self.remotes {
            let came = remote.get_small(&keys).await.map_err(said)?;
            found.iter_mut().zip(came).for_each(|(found, came)| *found = found.take().or(came));
        }
        Ok(found)
    }

    /// Send such a list.
    pub(crate) async fn publish_used(&self, commit: &Digest, bytes: Vec<u8>) -> Result<(), String> {
        let bytes = Bytes::from(bytes);
        for remote in self.remotes.iter().filter(|remote| remote.abilities().writable) {
            let put = remote.put(Key::used(*commit), bytes.len() as u64, whole(bytes.clone()), Put::Replace);
            put.await.map_err(said)?;
        }
        Ok(())
    }
}

async fn publish_to(remote: &Arc<dyn Remote>, weak: &Fingerprint, record: &Alone, dir: &Path) -> Result<u64, String> {
    let store = Store::open(dir).map_err(|error| error.to_string())?;
    let keys: Vec<Key> = record.blobs.iter().map(|blob| Key::blob(blob.digest)).collect();
    let there = remote.has(&keys).await.map_err(said)?;
    let mut sent = 0;
    for (blob, _) in record.blobs.iter().zip(there).filter(|(_, there)| !there) {
        let key = Key::blob(blob.digest);
        let body = file_body(key, store.blob_file(&blob.digest));
        remote.put(key, blob.size_bytes, body, Put::IfAbsent).await.map_err(said)?;
        sent += blob.size_bytes;
    }
    let key = Key::manifest(*weak);
    let old = match remote.get(key).await.map_err(said)? {
        Some((_, body)) => collect(remote.name(), key, body, SMALL_BYTES_MAX).await.map_err(said)?,
        None => Bytes::new(),
    };
    let new = Manifest::decode(&record.manifest).map_err(|error| error.to_string())?;
    let mut merged = match Manifest::decode(&old) {
        Ok(old) if old.weak == *weak => old,
        _ => Manifest { entries: Vec::new(), ..new.clone() },
    };
    new.entries.iter().for_each(|entry| merged.add(entry.clone()));
    let bytes = merged.encode();
    sent += bytes.len() as u64;
    let put = remote.put(key, bytes.len() as u64, whole(Bytes::from(bytes)), Put::Replace);
    put.await.map_err(said)?;
    Ok(sent)
}

/// One of them.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Remote>, RemoteError> {
    url.parse::<RemoteUrl>().and_then(|url| open_stub(&url))
}

fn open_stub(_: &RemoteUrl) -> Result<Arc<dyn Remote>, RemoteError> {
    unimplemented!()
}
