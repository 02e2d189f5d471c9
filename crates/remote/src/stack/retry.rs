//! Retry: repeats requests after transient errors, a few times, with random waits. For example, a
//! lookup that fails with `busy` is tried three times by default.
//!
//! Only requests that are safe to repeat are repeated:
//!
//! - checks whether objects exist, fetches up to their first bytes, and fetches of small objects;
//! - uploads whose body was not read yet, and replacing small objects.
//!
//! A transfer that breaks half-way is repeated by the caller, because bytes have been passed on
//! already. A swap is never repeated, because it is unknown whether the first one was done.
//!
//! Unaware of: which service it is.

use crate::wait::Wait;
use crate::{Abilities, Body, Key, Mark, Put, Remote, RemoteError, Stored};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, Stream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a request is tried, and the waits between.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The most tries, including the first.
    pub tries: u32,
    /// The upper bound of the first wait. It doubles with each further wait.
    pub first_wait: Duration,
    /// The longest wait.
    pub wait_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { tries: 3, first_wait: Duration::from_millis(50), wait_max: Duration::from_secs(1) }
    }
}

/// A decorator that repeats requests after transient errors.
pub struct Retry {
    inner: Arc<dyn Remote>,
    policy: RetryPolicy,
    wait: Wait,
}

/// A body that is shared by several tries. Once a try has read from it, there is no further try.
#[derive(Clone)]
struct Untouched {
    body: Arc<Mutex<Body>>,
    touched: Arc<AtomicBool>,
}

impl Stream for Untouched {
    type Item = Result<Bytes, RemoteError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.touched.store(true, Ordering::Relaxed);
        self.body.lock().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context)
    }
}

impl Retry {
    /// Returns a decorator. `seed` varies its waits.
    pub fn new(inner: Arc<dyn Remote>, policy: RetryPolicy, seed: u64) -> Self {
        Retry { inner, policy, wait: Wait::new(seed) }
    }

    /// Repeats a request until it succeeds, fails for good, or has used all tries.
    async fn again<'a, T>(&'a self, ask: impl Fn() -> BoxFuture<'a, Result<T, RemoteError>>) -> Result<T, RemoteError> {
        let mut attempt = 0;
        loop {
            match ask().await {
                Err(error) if error.is_passing() && attempt + 1 < self.policy.tries => {
                    self.wait.backoff(attempt, self.policy.first_wait, self.policy.wait_max).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

impl Remote for Retry {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> BoxFuture<'_, Result<Option<(Option<u64>, Body)>, RemoteError>> {
        Box::pin(self.again(move || self.inner.get(key)))
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> BoxFuture<'_, Result<Stored, RemoteError>> {
        let body = Untouched { body: Arc::new(Mutex::new(body)), touched: Arc::default() };
        Box::pin(async move {
            let mut attempt = 0;
            loop {
                let this = body.clone().chain(stream::empty()).boxed();
                match self.inner.put(key, size, this, how).await {
                    Err(error)
                        if error.is_passing()
                            && attempt + 1 < self.policy.tries
                            && !body.touched.load(Ordering::Relaxed) =>
                    {
                        self.wait.backoff(attempt, self.policy.first_wait, self.policy.wait_max).await;
                        attempt += 1;
                    }
                    outcome => return outcome,
                }
            }
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<bool>, RemoteError>> {
        Box::pin(self.again(move || self.inner.has(keys)))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, RemoteError>> {
        Box::pin(self.again(move || self.inner.get_small(keys)))
    }

    fn put_small<'a>(
        &'a self,
        objects: &'a [(Key, Bytes)],
        how: Put,
    ) -> BoxFuture<'a, Result<Vec<Stored>, RemoteError>> {
        // Not repeated with `IfAbsent`: the first try may have stored some objects, and the second
        // one would report them as existing.
        match how {
            Put::Replace => Box::pin(self.again(move || self.inner.put_small(objects, how))),
            Put::IfAbsent => self.inner.put_small(objects, how),
        }
    }

    fn get_marked(&self, key: Key) -> BoxFuture<'_, Result<Option<(Bytes, Mark)>, RemoteError>> {
        Box::pin(self.again(move || self.inner.get_marked(key)))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> BoxFuture<'_, Result<bool, RemoteError>> {
        self.inner.swap(key, bytes, seen)
    }
}
