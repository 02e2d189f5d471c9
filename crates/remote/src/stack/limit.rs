//! Limit: a maximum of requests under way, including their bodies, and of the memory that uploads
//! hold. Further requests wait.
//!
//! An upload waits for memory before it counts as under way, so that many large uploads do not keep
//! lookups waiting.
//!
//! Unaware of: which service it is.

use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, Stored};
use bytes::Bytes;
use futures::stream::StreamExt;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most bytes that all uploads hold in memory together.
const HELD_BYTES_MAX: u64 = 40 << 20;
const HELD_UNIT_BYTES: u64 = 64 << 10;

/// A decorator that limits how many requests are under way.
pub struct Limit {
    inner: Arc<dyn Remote>,
    turns: Arc<Semaphore>,
    /// One permit for each `HELD_UNIT_BYTES` that an upload may hold.
    memory: Semaphore,
}

impl Limit {
    /// Returns a decorator that lets `requests` through at once.
    pub fn new(inner: Arc<dyn Remote>, requests: usize) -> Self {
        let memory = Semaphore::new((HELD_BYTES_MAX / HELD_UNIT_BYTES) as usize);
        Limit { inner, turns: Arc::new(Semaphore::new(requests.max(1))), memory }
    }

    async fn turn(&self) -> OwnedSemaphorePermit {
        self.turns.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    fn limited<'a, T: Send + 'a>(&'a self, work: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let _turn = self.turn().await;
            work.await
        })
    }
}

impl Remote for Limit {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let turn = self.turn().await;
            let found = self.inner.get(key).await?;
            // The permit is released when the body was read to its end or is dropped.
            Ok(found.map(|(size, mut body)| {
                let held = futures::stream::poll_fn(move |context| {
                    let _ = &turn;
                    body.poll_next_unpin(context)
                });
                (size, held.boxed())
            }))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(async move {
            let held = size.min(self.abilities().held_bytes).min(HELD_BYTES_MAX).div_ceil(HELD_UNIT_BYTES);
            let _held = self.memory.acquire_many(held as u32).await.expect("the semaphore is never closed");
            let _turn = self.turn().await;
            self.inner.put(key, size, body, how).await
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        self.limited(self.inner.has(keys))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        self.limited(self.inner.get_small(keys))
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        self.limited(self.inner.put_small(objects, how))
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        self.limited(self.inner.get_marked(key))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        self.limited(self.inner.swap(key, bytes, seen))
    }
}
