//! Faults: injects what remotes, networks and disks do wrong, by a seed.
//!
//! Unaware of: what is stored.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use larder_remote::{
    Abilities, Answer, Body, Fetched, Key, Mark, ObjectKind, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored,
    Trouble, collect, whole,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request fails and nothing is done.
    Error,
    /// The request never ends; a fetch stalls at its start or half-way.
    Stall,
    /// The object ends early, without an error.
    Truncate,
    /// One bit of the object is flipped.
    Flip,
    /// Another object of the same kind is returned.
    Swap,
    /// An older version of the object is returned, or none.
    Stale,
    /// The request takes long.
    Slow,
    /// The upload is done, but an error is returned.
    Denied,
}

impl Fault {
    /// All kinds, in the order of their counters.
    pub(crate) const ALL: [Fault; 8] = [
        Fault::Error,
        Fault::Stall,
        Fault::Truncate,
        Fault::Flip,
        Fault::Swap,
        Fault::Stale,
        Fault::Slow,
        Fault::Denied,
    ];
}

/// The most objects whose older version is remembered.
const REMEMBERED_MAX: usize = 4096;

/// A decorator that injects faults.
pub(crate) struct Faults {
    inner: Arc<dyn Remote>,
    name: Arc<str>,
    /// How many of 10,000 requests meet each kind of fault.
    often: u64,
    slow: Duration,
    /// The state of the random numbers.
    chance: AtomicU64,
    asked: AtomicU64,
    done: [AtomicU64; Fault::ALL.len()],
    /// The older version of each replaced object.
    before: Mutex<HashMap<Key, Bytes>>,
    /// The last object of each kind that was returned.
    last: Mutex<HashMap<ObjectKind, Bytes>>,
}

impl Faults {
    /// Returns a decorator in which each kind of fault meets `often` of 10,000 requests. A slow
    /// request takes up to `slow` longer.
    pub(crate) fn new(inner: Arc<dyn Remote>, often: u64, slow: Duration, seed: u64) -> Self {
        Faults {
            name: inner.name().into(),
            inner,
            often,
            slow,
            chance: AtomicU64::new(seed | 1),
            asked: AtomicU64::new(0),
            done: Default::default(),
            before: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Returns how many requests there were.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns how many requests met this kind of fault.
    pub(crate) fn done(&self, fault: Fault) -> u64 {
        self.done[fault as usize].load(Ordering::Relaxed)
    }

    /// Returns a random number below `count` (SplitMix64).
    fn below(&self, count: u64) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.chance.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % count.max(1)
    }

    /// Counts a request and returns the fault that it meets, if any.
    fn next(&self) -> Option<Fault> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let chance = self.below(10_000);
        let fault = *Fault::ALL.get((chance / self.often.max(1)) as usize).filter(|_| self.often > 0)?;
        self.done[fault as usize].fetch_add(1, Ordering::Relaxed);
        Some(fault)
    }

    fn failed(&self, key: Option<Key>) -> RemoteError {
        let trouble = [Trouble::Unreachable, Trouble::Busy, Trouble::Other][self.below(3) as usize];
        RemoteError::failed(&self.name, key, trouble, "an injected fault")
    }

    /// Injects the faults that do not depend on the kind of request: an error, a stall, a delay.
    async fn meet(&self, fault: Option<Fault>, key: Option<Key>) -> Result<(), RemoteError> {
        match fault {
            Some(Fault::Error) => Err(self.failed(key)),
            Some(Fault::Stall) => std::future::pending().await,
            Some(Fault::Slow) => {
                tokio::time::sleep(Duration::from_micros(self.below(self.slow.as_micros() as u64 + 1))).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the wrong bytes for an object.
    fn wrong(&self, fault: Fault, key: Key, bytes: Option<Bytes>) -> Option<Bytes> {
        let lock =
            |map: &Mutex<HashMap<Key, Bytes>>| map.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        match fault {
            Fault::Truncate => bytes.map(|bytes| bytes.slice(..self.below(bytes.len() as u64) as usize)),
            Fault::Flip => bytes.map(|bytes| {
                let mut bytes = BytesMut::from(bytes);
                if !bytes.is_empty() {
                    let at = self.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.below(8);
                }
                bytes.freeze()
            }),
            Fault::Swap => {
                let other = self.last.lock().unwrap_or_else(PoisonError::into_inner).get(&key.kind).cloned();
                other.or(bytes)
            }
            Fault::Stale => lock(&self.before),
            _ => bytes,
        }
    }

    fn handed_out(&self, key: Key, bytes: &Option<Bytes>) {
        if let Some(bytes) = bytes {
            self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(key.kind, bytes.clone());
        }
    }

    async fn remember(&self, key: Key) {
        if key.kind != ObjectKind::Blob
            && let Ok(found) = self.inner.get_small(&[key]).await
            && let Some(Some(bytes)) = found.into_iter().next()
        {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            if before.len() < REMEMBERED_MAX {
                before.insert(key, bytes);
            }
        }
    }
}

impl Remote for Faults {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let fault = self.next();
            let half_way = fault == Some(Fault::Stall) && self.below(2) == 0;
            self.meet(fault.filter(|_| !half_way), Some(key)).await?;
            let found = match self.inner.get(key).await? {
                Some((_, body)) => Some(collect(&self.name, key, body, SMALL_BYTES_MAX).await?),
                None => None,
            };
            let found = match fault {
                Some(fault) => self.wrong(fault, key, found),
                None => found,
            };
            self.handed_out(key, &found);
            Ok(found.map(|bytes| {
                let size = self.below(2).eq(&0).then_some(bytes.len() as u64);
                let middle = bytes.len() / 2;
                let (first, rest) = (bytes.slice(..middle), bytes.slice(middle..));
                let rest = if half_way { stream::pending().boxed() } else { whole(rest) };
                (size, whole(first).chain(rest).boxed())
            }))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(async move {
            let fault = self.next();
            self.meet(fault, Some(key)).await?;
            self.remember(key).await;
            let stored = self.inner.put(key, size, body, how).await?;
            if fault == Some(Fault::Denied) { Err(self.failed(Some(key))) } else { Ok(stored) }
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(async move {
            let fault = self.next();
            self.meet(fault, keys.first().copied()).await?;
            let mut there = self.inner.has(keys).await?;
            if matches!(fault, Some(Fault::Flip | Fault::Stale | Fault::Swap)) {
                let at = self.below(there.len() as u64) as usize;
                there.iter_mut().skip(at).take(1).for_each(|there| *there = !*there);
            }
            Ok(there)
        })
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let fault = self.next();
            self.meet(fault, keys.first().copied()).await?;
            let mut found = self.inner.get_small(keys).await?;
            if let (Some(fault), false) = (fault, keys.is_empty()) {
                let at = self.below(keys.len() as u64) as usize;
                found[at] = self.wrong(fault, keys[at], found[at].take());
            }
            keys.iter().zip(&found).for_each(|(&key, bytes)| self.handed_out(key, bytes));
            Ok(found)
        })
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(async move {
            let fault = self.next();
            self.meet(fault, Some(key)).await?;
            let Some((bytes, mark)) = self.inner.get_marked(key).await? else { return Ok(None) };
            let bytes = match fault {
                Some(fault) => self.wrong(fault, key, Some(bytes)),
                None => Some(bytes),
            };
            Ok(bytes.map(|bytes| (bytes, mark)))
        })
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        Box::pin(async move {
            let fault = self.next();
            self.meet(fault, Some(key)).await?;
            self.remember(key).await;
            let done = self.inner.swap(key, bytes, seen).await?;
            if fault == Some(Fault::Denied) { Err(self.failed(Some(key))) } else { Ok(done) }
        })
    }
}
