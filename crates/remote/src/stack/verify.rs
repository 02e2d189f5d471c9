//! Verify: a decorator that checks the digest of blobs. If a blob is wrong, its reader gets an
//! error in place of the last piece.
//!
//! Unaware of: which service it is, what other objects contain.

use crate::{
    Abilities, Answer, Body, Fetched, Key, Mark, ObjectKind, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored, Trouble,
};
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use larder_model::{Digest, DigestWriter};
use std::sync::Arc;

/// A decorator that checks blobs in both directions. Other objects have their own checksums.
pub struct Verify {
    inner: Arc<dyn Remote>,
    name: Arc<str>,
}

impl Verify {
    /// Returns a decorator around `inner`.
    pub fn new(inner: Arc<dyn Remote>) -> Self {
        let name = inner.name().into();
        Verify { inner, name }
    }
}

/// Passes a body on and verifies it. The last piece is passed on only after all bytes were found to
/// have the digest of `key`, and the size if it is given.
pub(crate) fn verified(name: Arc<str>, key: Key, size: Option<u64>, body: Body) -> Body {
    struct State {
        body: Body,
        held: Option<Bytes>,
        hash: DigestWriter,
        length: u64,
        name: Arc<str>,
    }
    let state = State { body, held: None, hash: DigestWriter::default(), length: 0, name };
    let step = move |mut state: State| async move {
        loop {
            let Some(next) = state.body.try_next().await? else {
                let failed = |trouble, why: String| Err(RemoteError::failed(&state.name, Some(key), trouble, why));
                if size.is_some_and(|size| size > state.length) {
                    return failed(Trouble::Cut, format!("{} bytes of {}", state.length, size.unwrap_or_default()));
                }
                // This is reached a second time after the last piece was passed on. Nothing is held
                // then.
                return match state.held.take() {
                    _ if state.hash.finish() != key.digest => {
                        failed(Trouble::Damaged, format!("its {} bytes have another digest", state.length))
                    }
                    Some(last) => {
                        state.body = stream::empty().boxed();
                        Ok(Some((last, state)))
                    }
                    None => Ok(None),
                };
            };
            if next.is_empty() {
                continue;
            }
            state.hash.update(&next);
            state.length += next.len() as u64;
            if let Some(size) = size.filter(|&size| state.length > size) {
                let why = format!("more than its {size} bytes");
                return Err(RemoteError::failed(&state.name, Some(key), Trouble::Damaged, why));
            }
            if let Some(before) = state.held.replace(next) {
                return Ok(Some((before, state)));
            }
        }
    };
    stream::try_unfold(state, step).boxed()
}

impl Remote for Verify {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let found = self.inner.get(key).await?;
            Ok(found.map(|(size, body)| match key.kind {
                ObjectKind::Blob => (size, verified(self.name.clone(), key, None, body)),
                _ => (size, body),
            }))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = match key.kind {
            ObjectKind::Blob => verified(self.name.clone(), key, Some(size), body),
            _ => body,
        };
        self.inner.put(key, size, body, how)
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        self.inner.has(keys)
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        Box::pin(async move {
            // In a batch a damaged blob counts as missing, because the others are sound.
            let mut found = self.inner.get_small(keys).await?;
            for (bytes, key) in found.iter_mut().zip(keys) {
                bytes.take_if(|bytes| self.check(*key, bytes).is_err());
            }
            Ok(found)
        })
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        Box::pin(async move {
            objects.iter().try_for_each(|(key, bytes)| self.check(*key, bytes))?;
            self.inner.put_small(objects, how).await
        })
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        self.inner.get_marked(key)
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        self.inner.swap(key, bytes, seen)
    }
}

impl Verify {
    fn check(&self, key: Key, bytes: &Bytes) -> Result<(), RemoteError> {
        if key.kind != ObjectKind::Blob || (bytes.len() as u64 <= SMALL_BYTES_MAX && Digest::of(bytes) == key.digest) {
            return Ok(());
        }
        let why = format!("its {} bytes have another digest", bytes.len());
        Err(RemoteError::failed(&self.name, Some(key), Trouble::Damaged, why))
    }
}
