//! Limit: a maximum of requests under way, including their bodies. Further requests wait.
//!
//! Unaware of: which service it is.

use crate::{Abilities, Body, Key, Mark, Put, Remote, RemoteError, Stored};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::StreamExt;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A decorator that limits how many requests are under way.
pub struct Limit {
    inner: Arc<dyn Remote>,
    turns: Arc<Semaphore>,
}

impl Limit {
    /// Returns a decorator that lets `requests` through at once.
    pub fn new(inner: Arc<dyn Remote>, requests: usize) -> Self {
        Limit { inner, turns: Arc::new(Semaphore::new(requests.max(1))) }
    }

    async fn turn(&self) -> OwnedSemaphorePermit {
        self.turns.clone().acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Remote for Limit {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> BoxFuture<'_, Result<Option<(Option<u64>, Body)>, RemoteError>> {
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

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> BoxFuture<'_, Result<Stored, RemoteError>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            self.inner.put(key, size, body, how).await
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<bool>, RemoteError>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            self.inner.has(keys).await
        })
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, RemoteError>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            self.inner.get_small(keys).await
        })
    }

    fn put_small<'a>(
        &'a self,
        objects: &'a [(Key, Bytes)],
        how: Put,
    ) -> BoxFuture<'a, Result<Vec<Stored>, RemoteError>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            self.inner.put_small(objects, how).await
        })
    }

    fn get_marked(&self, key: Key) -> BoxFuture<'_, Result<Option<(Bytes, Mark)>, RemoteError>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            self.inner.get_marked(key).await
        })
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> BoxFuture<'_, Result<bool, RemoteError>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            self.inner.swap(key, bytes, seen).await
        })
    }
}
