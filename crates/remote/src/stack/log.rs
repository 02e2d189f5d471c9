//! Log: counts the requests to a remote, their outcomes and bytes, and their latencies by size.
//!
//! Unaware of: which service it is, what is stored.

use super::guard::Guard;
use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, Stored, Trouble};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Fetching an object, up to its last byte.
    Get,
    /// Storing an object.
    Put,
    /// Asking which objects exist.
    Has,
    /// Fetching several small objects, or one with its version.
    GetSmall,
    /// Storing several small objects.
    PutSmall,
    /// Compare-and-swap of an object.
    Swap,
}

impl Asked {
    /// All kinds, in the order of their counters.
    pub const ALL: [Asked; 6] = [Asked::Get, Asked::Put, Asked::Has, Asked::GetSmall, Asked::PutSmall, Asked::Swap];

    /// Returns the word for it in counters.
    pub fn word(self) -> &'static str {
        match self {
            Asked::Get => "get",
            Asked::Put => "put",
            Asked::Has => "has",
            Asked::GetSmall => "get-small",
            Asked::PutSmall => "put-small",
            Asked::Swap => "swap",
        }
    }
}

/// The upper bounds of the size classes, in bytes. One more class is above them. Requests that
/// moved no bytes are in the first class.
pub const SIZE_CLASSES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];
const CLASSES: usize = SIZE_CLASSES.len() + 1;
/// The number of latency buckets. Bucket *n* counts latencies from 2^n µs; the last one starts at
/// 2^31 µs, about half an hour.
const BUCKETS: usize = 32;

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub struct Counts {
    asked: [One; Asked::ALL.len()],
}

#[derive(Debug, Default)]
struct One {
    under_way: AtomicU64,
    answered: AtomicU64,
    absent: AtomicU64,
    cancelled: AtomicU64,
    bytes: AtomicU64,
    troubles: [AtomicU64; Trouble::ALL.len()],
    latencies: [[AtomicU64; BUCKETS]; CLASSES],
}

impl One {
    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let One { under_way, answered, absent, cancelled, bytes, troubles, latencies } = self;
        [under_way, answered, absent, cancelled, bytes].into_iter().chain(troubles).chain(latencies.iter().flatten())
    }
}

/// The counts of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Requests that have not ended yet.
    pub under_way: u64,
    /// Requests that succeeded.
    pub answered: u64,
    /// Those of `answered` that found no object.
    pub absent: u64,
    /// Requests that were dropped before they ended.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Bytes of objects that were transferred.
    pub bytes: u64,
}

impl Counts {
    /// Returns the current sum of several counts.
    pub fn together<'a>(all: impl IntoIterator<Item = &'a Counts>) -> Counts {
        let sum = Counts::default();
        for counts in all {
            for (to, from) in sum.asked.iter().zip(&counts.asked) {
                to.words().zip(from.words()).for_each(|(to, from)| {
                    to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
                });
            }
        }
        sum
    }

    /// Returns the counts of one kind of request.
    pub fn sum(&self, asked: Asked) -> Sum {
        let one = &self.asked[asked as usize];
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Sum {
            under_way: read(&one.under_way),
            answered: read(&one.answered),
            absent: read(&one.absent),
            cancelled: read(&one.cancelled),
            failed: one.troubles.iter().map(read).sum(),
            bytes: read(&one.bytes),
        }
    }

    /// Returns how many requests, of any kind, failed with this kind of error.
    pub fn troubles(&self, trouble: Trouble) -> u64 {
        let at = Trouble::ALL.iter().position(|known| *known == trouble).unwrap_or_default();
        self.asked.iter().map(|one| one.troubles[at].load(Ordering::Relaxed)).sum()
    }

    /// Returns how many requests of this kind, and of the size class of `size`, were timed.
    pub fn timed(&self, asked: Asked, size: u64) -> u64 {
        self.asked[asked as usize].latencies[class(size)].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns a quantile (`share` is 0 to 1) of the latencies of this kind of request in the size
    /// class of `size`. The result is rounded up to a power of two in µs. For example,
    /// `quantile(Asked::Get, 1000, 0.5)` is the median for objects of up to 4 KiB. Returns `None`
    /// if there were no requests.
    pub fn quantile(&self, asked: Asked, size: u64, share: f64) -> Option<Duration> {
        let buckets = &self.asked[asked as usize].latencies[class(size)];
        let wanted = (self.timed(asked, size) as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (power, count) in buckets.iter().enumerate() {
            seen += count.load(Ordering::Relaxed);
            if seen >= wanted {
                return Some(Duration::from_micros(1 << (power + 1)));
            }
        }
        None
    }

    fn began(&self, asked: Asked) {
        self.asked[asked as usize].under_way.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self, asked: Asked, took: Duration, outcome: Result<(u64, bool), Option<Trouble>>) {
        let one = &self.asked[asked as usize];
        let add = |count: &AtomicU64, more: u64| {
            count.fetch_add(more, Ordering::Relaxed);
        };
        one.under_way.fetch_sub(1, Ordering::Relaxed);
        match outcome {
            Ok((bytes, found)) => {
                add(&one.answered, 1);
                add(&one.absent, u64::from(!found));
                add(&one.bytes, bytes);
                let power = (took.as_micros().max(1).ilog2() as usize).min(BUCKETS - 1);
                add(&one.latencies[class(bytes)][power], 1);
            }
            Err(Some(trouble)) => {
                let at = Trouble::ALL.iter().position(|known| *known == trouble).unwrap_or_default();
                add(&one.troubles[at], 1);
            }
            Err(None) => add(&one.cancelled, 1),
        }
    }
}

fn class(size: u64) -> usize {
    SIZE_CLASSES.iter().position(|&most| size <= most).unwrap_or(SIZE_CLASSES.len())
}

/// A decorator that counts and times requests.
pub struct Log {
    inner: Arc<dyn Remote>,
    counts: Arc<Counts>,
}

impl Log {
    /// Returns a decorator that counts into `counts`.
    pub fn new(inner: Arc<dyn Remote>, counts: Arc<Counts>) -> Self {
        Log { inner, counts }
    }

    /// Runs and times `work`. `moved` returns the transferred bytes, and whether an object was
    /// found.
    async fn timed<T>(
        &self,
        asked: Asked,
        work: impl Future<Output = Result<T, RemoteError>>,
        moved: impl FnOnce(&T) -> (u64, bool),
    ) -> Result<T, RemoteError> {
        let start = Instant::now();
        self.counts.began(asked);
        let mut guard = Guard::new(|| self.counts.ended(asked, start.elapsed(), Err(None)));
        let outcome = work.await;
        guard.disarm();
        let summed = outcome.as_ref().map(moved).map_err(RemoteError::trouble);
        self.counts.ended(asked, start.elapsed(), summed);
        outcome
    }
}

/// Counts a fetch when its body was read to the end, fails, or is dropped.
fn timed_body(counts: Arc<Counts>, start: Instant, body: Body) -> Body {
    let dropped = counts.clone();
    let guard = Guard::new(move || dropped.ended(Asked::Get, start.elapsed(), Err(None)));
    let step = move |(mut body, mut bytes, mut guard, counts): (Body, u64, Guard<_>, Arc<Counts>)| async move {
        match body.try_next().await {
            Ok(Some(more)) => {
                bytes += more.len() as u64;
                Ok(Some((more, (body, bytes, guard, counts))))
            }
            Ok(None) => {
                guard.disarm();
                counts.ended(Asked::Get, start.elapsed(), Ok((bytes, true)));
                Ok(None)
            }
            Err(error) => {
                guard.disarm();
                counts.ended(Asked::Get, start.elapsed(), Err(error.trouble()));
                Err(error)
            }
        }
    };
    stream::try_unfold((body, 0, guard, counts), step).boxed()
}

impl Remote for Log {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let start = Instant::now();
            self.counts.began(Asked::Get);
            let mut guard = Guard::new(|| self.counts.ended(Asked::Get, start.elapsed(), Err(None)));
            let found = self.inner.get(key).await;
            guard.disarm();
            match found {
                Ok(Some((size, body))) => Ok(Some((size, timed_body(self.counts.clone(), start, body)))),
                Ok(None) => {
                    self.counts.ended(Asked::Get, start.elapsed(), Ok((0, false)));
                    Ok(None)
                }
                Err(error) => {
                    self.counts.ended(Asked::Get, start.elapsed(), Err(error.trouble()));
                    Err(error)
                }
            }
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let moved = move |stored: &Stored| (if *stored == Stored::New { size } else { 0 }, true);
        Box::pin(self.timed(Asked::Put, self.inner.put(key, size, body, how), moved))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(self.timed(Asked::Has, self.inner.has(keys), |there| (0, there.contains(&true))))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        let moved = |found: &Vec<Option<Bytes>>| {
            let bytes = found.iter().flatten().map(|bytes| bytes.len() as u64).sum();
            (bytes, found.iter().any(Option::is_some))
        };
        Box::pin(self.timed(Asked::GetSmall, self.inner.get_small(keys), moved))
    }

    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        let moved = move |stored: &Vec<Stored>| {
            let new = stored.iter().zip(objects).filter(|(stored, _)| **stored == Stored::New);
            (new.map(|(_, (_, bytes))| bytes.len() as u64).sum(), true)
        };
        Box::pin(self.timed(Asked::PutSmall, self.inner.put_small(objects, how), moved))
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        let moved = |found: &Option<(Bytes, Mark)>| {
            (found.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64), found.is_some())
        };
        Box::pin(self.timed(Asked::GetSmall, self.inner.get_marked(key), moved))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        let size = bytes.len() as u64;
        Box::pin(self.timed(Asked::Swap, self.inner.swap(key, bytes, seen), move |done| (size, *done)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_their_size() {
        let counts = Counts::default();
        for milliseconds in 1..=100 {
            counts.began(Asked::Get);
            counts.ended(Asked::Get, Duration::from_millis(milliseconds), Ok((100, true)));
        }
        counts.began(Asked::Get);
        counts.ended(Asked::Get, Duration::from_secs(9), Ok((1 << 30, true)));
        let median = counts.quantile(Asked::Get, 1, 0.5).expect("there are some");
        assert!((Duration::from_millis(50)..=Duration::from_millis(100)).contains(&median), "{median:?}");
        assert!(counts.quantile(Asked::Get, 2 << 30, 0.5).expect("one") > Duration::from_secs(8));
        assert_eq!(counts.quantile(Asked::Get, 1 << 20, 0.5), None);
        assert_eq!((counts.sum(Asked::Get).answered, counts.sum(Asked::Get).under_way), (101, 0));
    }
}
