//! Stall: a request fails if no byte is transferred for too long. The length of a transfer that
//! goes on is not limited.
//!
//! In an upload each piece that the service takes from the body counts as progress.
//!
//! Unaware of: which service it is.

use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, Stored, Trouble};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A decorator under which a request without progress fails.
pub struct Stall {
    inner: Arc<dyn Remote>,
    name: Arc<str>,
    patience: Duration,
}

impl Stall {
    /// Returns a decorator under which a request fails after `patience` without progress.
    pub fn new(inner: Arc<dyn Remote>, patience: Duration) -> Self {
        let name = inner.name().into();
        Stall { inner, name, patience }
    }

    async fn within<T>(
        &self,
        key: Option<Key>,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        match tokio::time::timeout(self.patience, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(stalled(&self.name, key, self.patience)),
        }
    }
}

fn stalled(name: &Arc<str>, key: Option<Key>, patience: Duration) -> RemoteError {
    RemoteError::failed(name, key, Trouble::Stalled, format!("no data for {:.1} s", patience.as_secs_f64()))
}

impl Remote for Stall {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let found = self.within(Some(key), self.inner.get(key)).await?;
            let (name, patience) = (self.name.clone(), self.patience);
            let step = move |mut body: Body| {
                let name = name.clone();
                async move {
                    match tokio::time::timeout(patience, body.try_next()).await {
                        Ok(next) => Ok(next?.map(|bytes| (bytes, body))),
                        Err(_) => Err(stalled(&name, Some(key), patience)),
                    }
                }
            };
            Ok(found.map(|(size, body)| (size, stream::try_unfold(body, step).boxed())))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(async move {
            let taken = Arc::new(AtomicU64::new(0));
            let count = taken.clone();
            let body = body.inspect(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            let body = body.boxed();
            let mut put = self.inner.put(key, size, body, how);
            loop {
                let before = taken.load(Ordering::Relaxed);
                match tokio::time::timeout(self.patience, &mut put).await {
                    Ok(outcome) => return outcome,
                    Err(_) if taken.load(Ordering::Relaxed) != before => {}
                    Err(_) => return Err(stalled(&self.name, Some(key), self.patience)),
                }
            }
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(self.within(keys.first().copied(), self.inner.has(keys)))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        Box::pin(self.within(keys.first().copied(), self.inner.get_small(keys)))
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        Box::pin(self.within(objects.first().map(|(key, _)| *key), self.inner.put_small(objects, how)))
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(self.within(Some(key), self.inner.get_marked(key)))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        Box::pin(self.within(Some(key), self.inner.swap(key, bytes, seen)))
    }
}
