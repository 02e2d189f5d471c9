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
use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, Stored};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::Stream;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        self.body.lock().poll_next_unpin(context)
    }
}

impl Retry {
    /// Returns a decorator. `seed` varies its waits.
    pub fn new(inner: Arc<dyn Remote>, policy: RetryPolicy, seed: u64) -> Self {
        Retry { inner, policy, wait: Wait::new(seed) }
    }

    /// Repeats a request until it succeeds, fails for good, or has used all tries.
    async fn again<'a, T>(&'a self, ask: impl Fn() -> Answer<'a, T>) -> Result<T, RemoteError> {
        self.again_while(|| true, ask).await
    }

    /// Repeats a request like [`Retry::again`], but only while it may be repeated.
    async fn again_while<'a, T>(
        &'a self,
        it_may: impl Fn() -> bool,
        ask: impl Fn() -> Answer<'a, T>,
    ) -> Result<T, RemoteError> {
        let mut attempt = 0;
        loop {
            match ask().await {
                Err(error) if error.is_passing() && attempt + 1 < self.policy.tries && it_may() => {
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

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(self.again(move || self.inner.get(key)))
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = Untouched { body: Arc::new(Mutex::new(body)), touched: Arc::default() };
        let touched = body.touched.clone();
        let untouched = move || !touched.load(Ordering::Relaxed);
        Box::pin(self.again_while(untouched, move || self.inner.put(key, size, body.clone().fuse().boxed(), how)))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(self.again(move || self.inner.has(keys)))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        Box::pin(self.again(move || self.inner.get_small(keys)))
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        // Not repeated with `IfAbsent`: the first try may have stored some objects, and the second
        // one would report them as existing.
        match how {
            Put::Replace => Box::pin(self.again(move || self.inner.put_small(objects, how))),
            Put::IfAbsent => self.inner.put_small(objects, how),
        }
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(self.again(move || self.inner.get_marked(key)))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        self.inner.swap(key, bytes, seen)
    }
}
