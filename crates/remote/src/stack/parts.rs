//! Parts: stores an object that is larger than a service's values in several of them.
//!
//! ```text
//! value = u8 0, bytes of the object
//!       | u8 1, number size, number bytes of a part, 16 bytes nonce      each part has its own key
//! ```
//! The parts are stored before the value that names them, so an object is never visible in part.
//! For example, with parts of 128 KiB an object of 300 KiB has three parts and a table.
//!
//! The nonce of a blob is zero, because all writers of a blob store the same parts. For other
//! objects each write has a new nonce, so that the parts of two writers do not mix.
//!
//! If the service drops a part, fetching the object fails. For this process the object then counts
//! as missing until it is stored again.
//!
//! Unaware of: which service it is.

use crate::{Abilities, Answer, Body, Fetched, Key, Put, Remote, RemoteError, Stored, Trouble, body, collect, whole};
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, StreamExt, TryStreamExt};
use larder_model::{Digest, Reader, Writer};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many parts are fetched at once.
const AHEAD: usize = 4;
const WHOLE: u8 = 0;
const IN_PARTS: u8 = 1;

/// A decorator that stores large objects in parts.
pub struct Parts {
    inner: Arc<dyn Remote>,
    part_bytes: u64,
    seed: u64,
    written: AtomicU64,
    /// Objects that had a missing part.
    broken: Arc<Mutex<HashSet<Key>>>,
}

/// The value that stands for an object in parts.
#[derive(Clone, Copy)]
struct Table {
    size: u64,
    part_bytes: u64,
    nonce: [u8; 16],
}

impl Parts {
    /// Returns a decorator. `part_bytes` is the most bytes of a value; `seed` tells this writer
    /// from others.
    pub fn new(inner: Arc<dyn Remote>, part_bytes: u64, seed: u64) -> Self {
        Parts { inner, part_bytes, seed, written: AtomicU64::new(0), broken: Arc::default() }
    }

    fn is_broken(&self, key: Key) -> bool {
        self.broken.lock().contains(&key)
    }

    /// Returns the size and the body of the object that a value stands for.
    fn opened(&self, key: Key, value: Bytes) -> Result<(u64, Body), RemoteError> {
        let mut value = value;
        match value.first() {
            Some(&WHOLE) => {
                value.advance(1);
                Ok((value.len() as u64, whole(value)))
            }
            _ => {
                let table = Table::read(&value).ok_or_else(|| damaged(self.name(), key, "the value is malformed"))?;
                Ok((table.size, self.body(key, table)))
            }
        }
    }

    fn body(&self, key: Key, table: Table) -> Body {
        let (inner, broken) = (self.inner.clone(), self.broken.clone());
        let name: Arc<str> = self.name().into();
        let (part_name, count) = (name.clone(), table.size.div_ceil(table.part_bytes));
        let part = move |number: u64| {
            let (inner, broken, name) = (inner.clone(), broken.clone(), part_name.clone());
            async move {
                let part = table.key(key, number);
                let found = match inner.get(part).await? {
                    Some((_, body)) => Some(collect(&name, part, body, table.part_bytes).await?),
                    None => None,
                };
                found.ok_or_else(|| {
                    broken.lock().insert(key);
                    RemoteError::failed(&name, Some(key), Trouble::Damaged, "a part of the object is missing")
                })
            }
        };
        let parts = stream::iter(0..count).map(part).buffered(AHEAD).boxed();
        body::exactly(name, key, table.size, parts)
    }

    async fn store(&self, key: Key, size: u64, mut body: Body, how: Put) -> Result<Stored, RemoteError> {
        let mut held = BytesMut::new();
        if size < self.part_bytes {
            held.extend_from_slice(&[WHOLE]);
            while let Some(bytes) = body.try_next().await? {
                held.extend_from_slice(&bytes);
            }
            let stored = self.inner.put(key, held.len() as u64, whole(held.freeze()), how).await?;
            self.mended(key);
            return Ok(stored);
        }
        if how == Put::IfAbsent && self.has(&[key]).await? == [true] {
            return Ok(Stored::Existed);
        }
        let table = Table { size, part_bytes: self.part_bytes, nonce: self.nonce(key) };
        let mut number = 0;
        loop {
            let next = body.try_next().await?;
            let ended = next.is_none();
            held.extend_from_slice(&next.unwrap_or_default());
            while held.len() as u64 >= self.part_bytes || (ended && !held.is_empty()) {
                let length = held.len().min(self.part_bytes as usize);
                let part = held.split_to(length).freeze();
                self.inner.put(table.key(key, number), part.len() as u64, whole(part), Put::Replace).await?;
                number += 1;
            }
            if ended {
                break;
            }
        }
        let value = table.write();
        let stored = self.inner.put(key, value.len() as u64, whole(value), Put::Replace).await?;
        self.mended(key);
        Ok(stored)
    }

    fn mended(&self, key: Key) {
        self.broken.lock().remove(&key);
    }

    fn nonce(&self, key: Key) -> [u8; 16] {
        if key.kind.is_immutable() {
            return [0; 16];
        }
        let mut name = self.seed.to_le_bytes().to_vec();
        name.extend_from_slice(&self.written.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        name.extend_from_slice(&std::process::id().to_le_bytes());
        *Digest::of(&name).0.first_chunk().expect("a digest has 32 bytes")
    }
}

impl Table {
    fn key(&self, key: Key, number: u64) -> Key {
        let mut own = key;
        if self.nonce != [0; 16] {
            for (byte, with) in own.digest.0.iter_mut().zip(self.nonce) {
                *byte ^= with;
            }
        }
        own.part(number)
    }

    fn write(&self) -> Bytes {
        let mut w = Writer::default();
        w.u8(IN_PARTS);
        w.number(self.size);
        w.number(self.part_bytes);
        w.bytes.extend_from_slice(&self.nonce);
        w.bytes.into()
    }

    fn read(value: &[u8]) -> Option<Table> {
        let mut r = Reader::new(value);
        if r.u8().ok()? != IN_PARTS {
            return None;
        }
        let (size, part_bytes) = (r.number().ok()?, r.number().ok()?);
        let nonce = *r.take(16).ok()?.first_chunk()?;
        r.finish().ok()?;
        // The writer held a part in memory as a whole. Reject a part that is larger than we would
        // hold.
        (part_bytes > 0 && part_bytes <= crate::SMALL_BYTES_MAX).then_some(Table { size, part_bytes, nonce })
    }
}

fn damaged(name: &str, key: Key, why: &str) -> RemoteError {
    RemoteError::failed(&name.into(), Some(key), Trouble::Damaged, why)
}

impl Remote for Parts {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        // The first byte of a value tells the two forms apart.
        Abilities { swap: false, one_request_bytes: self.part_bytes - 1, largest_bytes: None, ..self.inner.abilities() }
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let Some((_, body)) = self.inner.get(key).await? else { return Ok(None) };
            let value = collect(self.name(), key, body, self.part_bytes.max(64)).await?;
            self.opened(key, value).map(|(size, body)| Some((Some(size), body)))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = body::exactly(self.name().into(), key, size, body);
        // A broken object exists, but must be replaced nevertheless.
        let how = if self.is_broken(key) { Put::Replace } else { how };
        Box::pin(self.store(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(async move {
            let there = self.inner.has(keys).await?;
            Ok(there.iter().zip(keys).map(|(&there, &key)| there && !self.is_broken(key)).collect())
        })
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let mut found = self.inner.get_small(keys).await?;
            for (value, &key) in found.iter_mut().zip(keys) {
                if let Some(bytes) = value.take() {
                    let (_, body) = self.opened(key, bytes)?;
                    *value = Some(collect(self.name(), key, body, crate::SMALL_BYTES_MAX).await?);
                }
            }
            Ok(found)
        })
    }
}
