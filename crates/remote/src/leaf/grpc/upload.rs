//! Uploads of large objects to the CAS.
//!
//! The CAS needs the digest of a blob before its first byte. So the body is copied to a temporary
//! file and hashed, and then streamed.
//!
//! Unaware of: what objects contain.

use super::cas::PACKED_BYTES_MIN;
use super::channel::{Calls, Server};
use super::digest_of;
use super::pack::Packer;
use crate::{Body, Key, RemoteError, Trouble, body};
use bazel_remote_apis::build::bazel::remote::execution::v2 as api;
use bazel_remote_apis::google::bytestream::WriteRequest;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

impl Server {
    /// Uploads a body of `size` bytes and returns its digest.
    pub(super) async fn write_large(
        &self,
        calls: &Calls,
        key: Key,
        size: u64,
        body: Body,
    ) -> Result<api::Digest, RemoteError> {
        let mut hash = Sha256::new();
        let body = body::spooled(key, body, |bytes| hash.update(bytes)).await?;
        let digest = digest_of(hash.finalize().into(), size);
        if self.missing(calls, key, vec![digest.clone()]).await?.is_empty() {
            return Ok(digest);
        }
        self.write_stream(calls, key, &digest, body).await?;
        Ok(digest)
    }

    /// Uploads a blob by ByteStream, compressed if the server supports it.
    pub(super) async fn write_stream(
        &self,
        calls: &Calls,
        key: Key,
        digest: &api::Digest,
        body: Body,
    ) -> Result<(), RemoteError> {
        let packed = calls.zstd && digest.size_bytes as u64 >= PACKED_BYTES_MIN;
        let body = if packed { packed_body(key, body)? } else { body };
        let name = self.resource(&format!("uploads/{}/", self.upload_name()), packed, digest);
        // A stream of messages cannot carry an error. After one it ends without `finish_write`, and
        // the error is kept here.
        let broken = Arc::new(Mutex::new(None));
        let answer = calls.streams().write(messages(name, body, broken.clone())).await;
        if let Some(error) = broken.lock().take() {
            return Err(error);
        }
        let committed = answer.map_err(|status| self.failed(Some(key), &status))?.into_inner().committed_size;
        // For a compressed upload servers return either size, or -1 if the blob existed.
        if !packed && committed != digest.size_bytes && committed != -1 {
            let why = format!("the server took {committed} of {} bytes", digest.size_bytes);
            return Err(RemoteError::failed(&self.name, Some(key), Trouble::Cut, why));
        }
        Ok(())
    }

    /// Returns a random UUID, version 4.
    fn upload_name(&self) -> String {
        let half = || self.chance.below(u64::MAX);
        let (a, b) = (half(), half());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | (b >> 48 & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }
}

/// Returns the messages of an upload. The last one is marked as the last.
fn messages(
    name: String,
    body: Body,
    broken: Arc<Mutex<Option<RemoteError>>>,
) -> impl stream::Stream<Item = WriteRequest> + Send + 'static {
    let step = move |state: Option<(Body, Option<Bytes>, i64)>| {
        let (name, broken) = (name.clone(), broken.clone());
        async move {
            let (mut body, held, offset) = state?;
            let mut next = async || match body.try_next().await {
                Ok(next) => Some(next),
                Err(error) => {
                    *broken.lock() = Some(error);
                    None
                }
            };
            let this = match held {
                Some(held) => held,
                None => next().await?.unwrap_or_default(),
            };
            let after = next().await?;
            let message = |finish_write, data: &Bytes| WriteRequest {
                resource_name: if offset == 0 { name } else { String::new() },
                write_offset: offset,
                finish_write,
                data: data.to_vec(),
            };
            let end = offset + this.len() as i64;
            Some(match after {
                None => (message(true, &this), None),
                after => (message(false, &this), Some((body, after, end))),
            })
        }
    };
    stream::unfold(Some((body, None, 0)), step)
}

fn packed_body(key: Key, body: Body) -> Result<Body, RemoteError> {
    let here = move |error| RemoteError::here(key, error);
    let packer = Packer::new().map_err(here)?;
    let step = move |state: Option<(Body, Packer)>| async move {
        let Some((mut body, mut packer)) = state else { return Ok(None) };
        loop {
            match body.try_next().await? {
                None => return Ok(Some((packer.finish().map_err(here)?, None))),
                Some(bytes) => {
                    let packed = packer.pack(&bytes).map_err(here)?;
                    if !packed.is_empty() {
                        return Ok(Some((packed, Some((body, packer)))));
                    }
                }
            }
        }
    };
    Ok(stream::try_unfold(Some((body, packer)), step).boxed())
}
