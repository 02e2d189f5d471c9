//! Stall: a request fails if no byte is transferred for too long. The length of a transfer that
//! goes on is not limited.
//!
//! In an upload each piece that the service takes from the body counts as progress. The service may
//! hold several megabytes of it, and does not say how many it has sent. So an upload on a slow
//! connection gets more time, which is that of a connection with [`SLOWEST`].
//!
//! Unaware of: which service it is.

use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, Stored, Trouble};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A slower connection counts as stalled, in bytes per second: what a connection of 2.6 Mbit/s
/// leaves to each of five uploads.
const SLOWEST: u64 = 64 << 10;

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
        self.sends(0, key, work).await
    }

    /// Awaits a request that sends so many bytes.
    async fn sends<T>(
        &self,
        bytes: u64,
        key: Option<Key>,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        let patience = self.patience_for(bytes);
        match tokio::time::timeout(patience, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(stalled(&self.name, key, patience)),
        }
    }

    /// Returns how long sending so many bytes may take without a sign of progress.
    fn patience_for(&self, bytes: u64) -> Duration {
        self.patience + Duration::from_millis(bytes * 1000 / SLOWEST)
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
            let patience = self.patience_for(size.min(self.abilities().held_bytes));
            loop {
                let before = taken.load(Ordering::Relaxed);
                match tokio::time::timeout(patience, &mut put).await {
                    Ok(outcome) => return outcome,
                    Err(_) if taken.load(Ordering::Relaxed) != before => {}
                    Err(_) => return Err(stalled(&self.name, Some(key), patience)),
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
        let bytes = objects.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        Box::pin(self.sends(bytes, objects.first().map(|(key, _)| *key), self.inner.put_small(objects, how)))
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(self.within(Some(key), self.inner.get_marked(key)))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        Box::pin(self.sends(bytes.len() as u64, Some(key), self.inner.swap(key, bytes, seen)))
    }
}
