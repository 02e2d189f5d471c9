//! Blobs of the CAS (content-addressable storage): finding missing ones, batches, streamed reads.
//!
//! Unaware of: what blobs contain.

use super::channel::{Calls, Server};
use super::content_digest;
use super::pack::Unpacker;
use crate::{Body, Key, RemoteError, SMALL_BYTES_MAX, Trouble, whole};
use bazel_remote_apis::build::bazel::remote::execution::v2 as api;
use bazel_remote_apis::google::bytestream::ReadRequest;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::collections::{HashMap, HashSet};
use tonic::Code;

/// The bytes that a blob takes in a batch besides its content: digest, lengths, status.
const OVERHEAD_BYTES: u64 = 256;
/// Smaller blobs are not compressed.
pub(super) const PACKED_BYTES_MIN: u64 = 16 << 10;
/// The most digests in one request.
const ASKED_MAX: usize = 1000;

impl Server {
    /// Returns the hashes of the blobs that do not exist.
    pub(super) async fn missing(
        &self,
        calls: &Calls,
        key: Key,
        digests: Vec<api::Digest>,
    ) -> Result<HashSet<String>, RemoteError> {
        let mut missing = HashSet::new();
        for some in digests.chunks(ASKED_MAX) {
            let request = api::FindMissingBlobsRequest {
                instance_name: self.instance.clone(),
                blob_digests: some.to_vec(),
                ..Default::default()
            };
            let answer = calls.blobs().find_missing_blobs(request).await;
            let answer = answer.map_err(|status| self.failed(Some(key), &status))?.into_inner();
            missing.extend(answer.missing_blob_digests.into_iter().map(|digest| digest.hash));
        }
        Ok(missing)
    }

    /// Uploads the missing ones of these blobs in batches. A blob that is too large for a batch is
    /// streamed.
    pub(super) async fn write_batches(
        &self,
        calls: &Calls,
        key: Key,
        blobs: Vec<(api::Digest, Bytes)>,
    ) -> Result<(), RemoteError> {
        if blobs.is_empty() {
            return Ok(());
        }
        let missing = self.missing(calls, key, blobs.iter().map(|(digest, _)| digest.clone()).collect()).await?;
        let mut seen = HashSet::new();
        let wanted =
            blobs.into_iter().filter(|(digest, _)| missing.contains(&digest.hash) && seen.insert(digest.hash.clone()));
        let (large, small): (Vec<_>, Vec<_>) =
            wanted.partition(|(_, bytes)| bytes.len() as u64 + OVERHEAD_BYTES > calls.batch_bytes_max);
        for (digest, bytes) in large {
            self.write_stream(calls, key, &digest, whole(bytes)).await?;
        }
        for batch in batches(small, calls.batch_bytes_max, |(_, bytes)| bytes.len() as u64) {
            let request = |(digest, bytes): (api::Digest, Bytes)| api::batch_update_blobs_request::Request {
                digest: Some(digest),
                data: bytes.into(),
                ..Default::default()
            };
            let request = api::BatchUpdateBlobsRequest {
                instance_name: self.instance.clone(),
                requests: batch.into_iter().map(request).collect(),
                ..Default::default()
            };
            let answer = calls.blobs().batch_update_blobs(request).await;
            let answer = answer.map_err(|status| self.failed(Some(key), &status))?.into_inner();
            for one in answer.responses {
                let status = one.status.unwrap_or_default();
                if status.code != 0 {
                    return Err(self.failed(Some(key), &tonic::Status::new(Code::from(status.code), status.message)));
                }
            }
        }
        Ok(())
    }

    /// Fetches blobs in batches and verifies their SHA-256. Blobs that are too large for a batch
    /// are streamed, and not verified here. Returns the blobs that exist, by hash.
    pub(super) async fn read_batches(
        &self,
        calls: &Calls,
        key: Key,
        digests: Vec<api::Digest>,
    ) -> Result<HashMap<String, Bytes>, RemoteError> {
        let mut found = HashMap::new();
        let fits = |digest: &api::Digest| digest.size_bytes as u64 + OVERHEAD_BYTES <= calls.batch_bytes_max;
        let (small, large): (Vec<_>, Vec<_>) = digests.into_iter().partition(fits);
        for digest in large {
            if let Some(body) = self.read_stream(calls, key, &digest).await? {
                let bytes = crate::collect(&self.name, key, body, SMALL_BYTES_MAX).await?;
                found.insert(digest.hash, bytes);
            }
        }
        for batch in batches(small, calls.batch_bytes_max, |digest| digest.size_bytes as u64) {
            let request = api::BatchReadBlobsRequest {
                instance_name: self.instance.clone(),
                digests: batch,
                ..Default::default()
            };
            let answer = calls.blobs().batch_read_blobs(request).await;
            let answer = answer.map_err(|status| self.failed(Some(key), &status))?.into_inner();
            for one in answer.responses {
                let (status, digest) = (one.status.unwrap_or_default(), one.digest.unwrap_or_default());
                match Code::from(status.code) {
                    Code::Ok if content_digest(&one.data) == digest => {
                        found.insert(digest.hash, one.data.into());
                    }
                    Code::Ok => {
                        let why = "the server returned a blob with another digest";
                        return Err(RemoteError::failed(&self.name, Some(key), Trouble::Damaged, why));
                    }
                    Code::NotFound => {}
                    code => return Err(self.failed(Some(key), &tonic::Status::new(code, status.message))),
                }
            }
        }
        Ok(found)
    }

    /// Fetches a blob; a small one as a batch of one. Returns `None` if it does not exist.
    pub(super) async fn read(
        &self,
        calls: &Calls,
        key: Key,
        digest: &api::Digest,
        size: u64,
    ) -> Result<Option<Body>, RemoteError> {
        if size <= SMALL_BYTES_MAX && size + OVERHEAD_BYTES <= calls.batch_bytes_max {
            let mut found = self.read_batches(calls, key, vec![digest.clone()]).await?;
            return Ok(found.remove(&digest.hash).map(whole));
        }
        self.read_stream(calls, key, digest).await
    }

    async fn read_stream(&self, calls: &Calls, key: Key, digest: &api::Digest) -> Result<Option<Body>, RemoteError> {
        let packed = calls.zstd && digest.size_bytes as u64 >= PACKED_BYTES_MIN;
        let request = ReadRequest { resource_name: self.resource("", packed, digest), ..Default::default() };
        let mut stream = match calls.streams().read(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(self.failed(Some(key), &status)),
        };
        // Some servers report a missing blob only with the first message of the stream.
        let first = match stream.message().await {
            Ok(first) => first,
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(self.failed(Some(key), &status)),
        };
        let name = self.name.clone();
        let broken = move |status: tonic::Status| {
            RemoteError::failed(&name, Some(key), Trouble::Cut, format!("{:?}: {}", status.code(), status.message()))
        };
        let all = stream::iter(first.map(Ok)).chain(stream.map_err(broken));
        let data = all.map_ok(|message| Bytes::from(message.data)).boxed();
        if !packed {
            return Ok(Some(data));
        }
        let unpacker = Unpacker::new().map_err(|error| RemoteError::here(key, error))?;
        let name = self.name.clone();
        let step = move |(mut data, mut unpacker): (Body, Unpacker)| {
            let name = name.clone();
            async move {
                let Some(bytes) = data.try_next().await? else { return Ok(None) };
                let unpacked = unpacker.unpack(&bytes);
                let unpacked =
                    unpacked.map_err(|error| RemoteError::failed(&name, Some(key), Trouble::Damaged, error))?;
                Ok(Some((unpacked, (data, unpacker))))
            }
        };
        Ok(Some(stream::try_unfold((data, unpacker), step).boxed()))
    }

    /// Returns the name of a blob for ByteStream. For a write, `upload` is inserted before it.
    pub(super) fn resource(&self, upload: &str, packed: bool, digest: &api::Digest) -> String {
        let instance = if self.instance.is_empty() { String::new() } else { format!("{}/", self.instance) };
        let how = if packed { "compressed-blobs/zstd" } else { "blobs" };
        format!("{instance}{upload}{how}/{}/{}", digest.hash, digest.size_bytes)
    }
}

/// Groups items in their order, so that each group has at most `most` bytes.
fn batches<T>(all: Vec<T>, most: u64, size: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    let mut batches: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for one in all {
        let cost = size(&one) + OVERHEAD_BYTES;
        match batches.last_mut() {
            Some(batch) if cost <= room => batch.push(one),
            _ => {
                batches.push(vec![one]);
                room = most;
            }
        }
        room = room.saturating_sub(cost);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_stay_below_the_limit() {
        let sizes = vec![100, 5000, 1, 9000, 9000, 20];
        let made = batches(sizes.clone(), 10_000, |size| *size);
        assert_eq!(made.concat(), sizes);
        for batch in made {
            assert!(batch.iter().map(|size| size + OVERHEAD_BYTES).sum::<u64>() <= 10_000, "{batch:?}");
        }
    }
}
