//! The Remote Execution API: a shared cache of another build system also stores larder's objects.
//!
//! Such a server names content by its SHA-256, and action results by the digest of an action. An
//! object of larder is stored as an action result:
//!
//! ```text
//! action digest = SHA-256 and length of ACTION_TAG and the key's path      no other client uses it
//! ActionResult  = stdout_raw: the object                                   up to INLINE_BYTES_MAX
//!               | one output file, "object": its SHA-256 and size          a blob of the CAS
//! ```
//! The result is written after the blob. A result with an exit code other than zero counts as
//! missing, because larder never writes one. Replacing an object overwrites its result; the last
//! writer wins.
//!
//! Unaware of: what objects contain.

mod cas;
mod channel;
mod pack;
mod upload;

use crate::remote::each;
use crate::{
    Abilities, Answer, Body, Fetched, Key, Put, Remote, RemoteError, RemoteUrl, SMALL_BYTES_MAX, Stored, Trouble, body,
    whole,
};
use bazel_remote_apis::build::bazel::remote::execution::v2 as api;
use bytes::Bytes;
use channel::{Calls, Server};
use futures::stream::StreamExt;
use reqwest::header::HeaderMap;
use rustls::ClientConfig;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use tonic::Code;

const ACTION_TAG: &str = "larder object 1\n";
/// The most bytes of an object that is stored in its result, so that it takes one request. Servers
/// keep results in memory.
const INLINE_BYTES_MAX: usize = 8 << 10;
const OBJECT_NAME: &str = "object";

pub(crate) struct Grpc {
    server: Server,
}

/// The content of a result.
enum ResultContent {
    /// The object itself.
    Here(Bytes),
    /// The blob that is the object.
    There(api::Digest),
}

impl Grpc {
    pub(crate) fn new(
        url: &RemoteUrl,
        address: &str,
        instance: &str,
        tls: Option<ClientConfig>,
        headers: HeaderMap,
        seed: u64,
    ) -> Result<Self, RemoteError> {
        Ok(Grpc { server: Server::new(url, address, instance, tls, headers, seed)? })
    }

    /// Fetches the result of a key. The API has no batch for results.
    async fn result(&self, calls: &Calls, key: Key) -> Result<Option<ResultContent>, RemoteError> {
        let request = api::GetActionResultRequest {
            instance_name: self.server.instance.clone(),
            action_digest: Some(action_digest(key)),
            inline_stdout: true,
            ..Default::default()
        };
        let result = match calls.results().get_action_result(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(self.server.failed(Some(key), &status)),
        };
        if result.exit_code != 0 {
            return Ok(None);
        }
        let file = result.output_files.into_iter().find(|file| file.path == OBJECT_NAME);
        Ok(Some(match (file.and_then(|file| file.digest), result.stdout_digest) {
            (Some(digest), _) => ResultContent::There(digest),
            // A server may have moved inline content into a blob.
            (None, Some(digest)) if result.stdout_raw.is_empty() && digest.size_bytes > 0 => {
                ResultContent::There(digest)
            }
            (None, _) => ResultContent::Here(result.stdout_raw.into()),
        }))
    }

    async fn results(&self, calls: &Calls, keys: &[Key]) -> Result<Vec<Option<ResultContent>>, RemoteError> {
        each(keys, |&key| self.result(calls, key)).await
    }

    async fn write_result(&self, calls: &Calls, key: Key, found: ResultContent) -> Result<(), RemoteError> {
        let mut result = api::ActionResult {
            execution_metadata: Some(api::ExecutedActionMetadata { worker: "larder".into(), ..Default::default() }),
            ..Default::default()
        };
        match found {
            ResultContent::Here(bytes) => result.stdout_raw = bytes.into(),
            ResultContent::There(digest) => result.output_files.push(api::OutputFile {
                path: OBJECT_NAME.into(),
                digest: Some(digest),
                ..Default::default()
            }),
        }
        let request = api::UpdateActionResultRequest {
            instance_name: self.server.instance.clone(),
            action_digest: Some(action_digest(key)),
            action_result: Some(result),
            ..Default::default()
        };
        let written = calls.results().update_action_result(request).await;
        written.map(drop).map_err(|status| self.server.failed(Some(key), &status))
    }

    /// Returns the size of a blob, or an error if the server sent a negative one.
    fn size(&self, key: Key, digest: &api::Digest) -> Result<u64, RemoteError> {
        u64::try_from(digest.size_bytes)
            .map_err(|_| RemoteError::failed(&self.server.name, Some(key), Trouble::Damaged, "the size is negative"))
    }

    async fn fetch(&self, key: Key) -> Result<Fetched, RemoteError> {
        let calls = self.server.calls(key).await?;
        match self.result(&calls, key).await? {
            None => Ok(None),
            Some(ResultContent::Here(bytes)) => Ok(Some((Some(bytes.len() as u64), whole(bytes)))),
            Some(ResultContent::There(digest)) => {
                let size = self.size(key, &digest)?;
                let body = self.server.read(&calls, key, &digest, size).await?;
                Ok(body.map(|body| (Some(size), body::exactly(self.server.name.clone(), key, size, body))))
            }
        }
    }

    async fn there(&self, keys: &[Key]) -> Result<Vec<bool>, RemoteError> {
        let Some(&first) = keys.first() else { return Ok(Vec::new()) };
        let calls = self.server.calls(first).await?;
        let found = self.results(&calls, keys).await?;
        let digests = found.iter().filter_map(|found| match found {
            Some(ResultContent::There(digest)) => Some(digest.clone()),
            _ => None,
        });
        let missing = self.server.missing(&calls, first, digests.collect()).await?;
        let is_there = |found: &Option<ResultContent>| match found {
            None => false,
            Some(ResultContent::Here(_)) => true,
            Some(ResultContent::There(digest)) => !missing.contains(&digest.hash),
        };
        Ok(found.iter().map(is_there).collect())
    }

    async fn store(&self, key: Key, size: u64, body: Body, how: Put) -> Result<Stored, RemoteError> {
        if how == Put::IfAbsent && self.there(&[key]).await? == [true] {
            return Ok(Stored::Existed);
        }
        let calls = self.server.calls(key).await?;
        let found = if size <= INLINE_BYTES_MAX as u64 {
            ResultContent::Here(body::collect(&self.server.name, key, body, size).await?)
        } else if size <= SMALL_BYTES_MAX {
            let bytes = body::collect(&self.server.name, key, body, size).await?;
            let digest = content_digest(&bytes);
            self.server.write_batches(&calls, key, vec![(digest.clone(), bytes)]).await?;
            ResultContent::There(digest)
        } else {
            ResultContent::There(self.server.write_large(&calls, key, size, body).await?)
        };
        self.write_result(&calls, key, found).await?;
        Ok(Stored::New)
    }

    async fn fetch_small(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, RemoteError> {
        let Some(&first) = keys.first() else { return Ok(Vec::new()) };
        let calls = self.server.calls(first).await?;
        let found = self.results(&calls, keys).await?;
        let mut wanted = Vec::new();
        for (found, &key) in found.iter().zip(keys) {
            if let Some(ResultContent::There(digest)) = found {
                if self.size(key, digest)? > SMALL_BYTES_MAX {
                    let why = format!("{} bytes are too many for a batch", digest.size_bytes);
                    return Err(RemoteError::failed(&self.server.name, Some(key), Trouble::TooLarge, why));
                }
                wanted.push(digest.clone());
            }
        }
        let blobs = self.server.read_batches(&calls, first, wanted).await?;
        let bytes = |found| match found {
            ResultContent::Here(bytes) => Some(bytes),
            ResultContent::There(digest) => blobs.get(&digest.hash).cloned(),
        };
        Ok(found.into_iter().map(|found| found.and_then(bytes)).collect())
    }

    async fn store_small(&self, objects: &[(Key, Bytes)], how: Put) -> Result<Vec<Stored>, RemoteError> {
        let Some((first, _)) = objects.first() else { return Ok(Vec::new()) };
        let calls = self.server.calls(*first).await?;
        let keys: Vec<Key> = objects.iter().map(|(key, _)| *key).collect();
        let there = match how {
            Put::IfAbsent => self.there(&keys).await?,
            Put::Replace => vec![false; keys.len()],
        };
        let new = || objects.iter().zip(&there).filter(|(_, there)| !**there).map(|((key, bytes), _)| (*key, bytes));
        let large = new().filter(|(_, bytes)| bytes.len() > INLINE_BYTES_MAX);
        let blobs = large.map(|(_, bytes)| (content_digest(bytes), bytes.clone())).collect();
        self.server.write_batches(&calls, *first, blobs).await?;
        let write = |(key, bytes): (Key, &Bytes)| {
            let found = match bytes.len() > INLINE_BYTES_MAX {
                true => ResultContent::There(content_digest(bytes)),
                false => ResultContent::Here(bytes.clone()),
            };
            self.write_result(&calls, key, found)
        };
        each(new(), write).await?;
        Ok(there.into_iter().map(|there| if there { Stored::Existed } else { Stored::New }).collect())
    }
}

fn action_digest(key: Key) -> api::Digest {
    content_digest(format!("{ACTION_TAG}{}", key.path()).as_bytes())
}

fn content_digest(bytes: &[u8]) -> api::Digest {
    digest_of(Sha256::digest(bytes).into(), bytes.len() as u64)
}

fn digest_of(hash: [u8; 32], size: u64) -> api::Digest {
    api::Digest { hash: larder_model::Digest(hash).hex(), size_bytes: size as i64 }
}

impl Remote for Grpc {
    fn name(&self) -> &str {
        &self.server.name
    }

    fn abilities(&self) -> Abilities {
        Abilities::LAST_WINS
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(self.fetch(key))
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = body::exactly(Arc::clone(&self.server.name), key, size, body).boxed();
        Box::pin(self.store(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(self.there(keys))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        Box::pin(self.fetch_small(keys))
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        Box::pin(self.store_small(objects, how))
    }
}
