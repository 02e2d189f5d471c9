//! Log: what was asked of a remote, how it went, how many bytes, and how long it took for each size.

use super::guard::Guard;
use crate::{Abilities, Body, Key, Mark, Put, Remote, RemoteError, Stored, Trouble};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An object, until its last byte.
    Get,
    /// To store one.
    Put,
    /// Which are there.
    Has,
    /// Several small objects.
    GetSmall,
    /// To store several small objects.
    PutSmall,
    /// To replace one that is as it was seen.
    Swap,
}

impl Asked {
    /// All of them, in their order.
    pub const ALL: [Asked; 6] = [Asked::Get, Asked::Put, Asked::Has, Asked::GetSmall, Asked::PutSmall, Asked::Swap];

    /// The word for it.
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

/// Upper bounds of the classes of size, bytes; a last class is above them. What moved no byte is in the first.
pub const SIZE_CLASSES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];
const CLASSES: usize = SIZE_CLASSES.len() + 1;
/// Latencies are counted by the power of two of their microseconds: 2^0 … 2^31, about half an hour.
const BUCKETS: usize = 32;

/// Counts since the start; shared by all who ask.
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

/// Numbers of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Not ended yet.
    pub under_way: u64,
    /// Ended well.
    pub answered: u64,
    /// Of these, such for what is not there.
    pub absent: u64,
    /// Let go before their end.
    pub cancelled: u64,
    /// Ended in trouble.
    pub failed: u64,
    /// Bytes of objects that were moved.
    pub bytes: u64,
}

impl Counts {
    /// Those of all these together, as they are now.
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

    /// The numbers of a kind of request.
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

    /// How many requests of all kinds ended in this trouble.
    pub fn troubles(&self, trouble: Trouble) -> u64 {
        let at = Trouble::ALL.iter().position(|known| *known == trouble).unwrap_or_default();
        self.asked.iter().map(|one| one.troubles[at].load(Ordering::Relaxed)).sum()
    }

    /// How many requests of this kind that moved about this many bytes were timed.
    pub fn timed(&self, asked: Asked, size: u64) -> u64 {
        self.asked[asked as usize].latencies[class(size)].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// In which time this share (0 to 1) of the requests of this kind ended that moved about this many bytes; at most
    /// twice what was measured. `None` where there was none.
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

/// Counts.
pub struct Log {
    inner: Arc<dyn Remote>,
    counts: Arc<Counts>,
}

impl Log {
    /// Around this, into `counts`.
    pub fn new(inner: Arc<dyn Remote>, counts: Arc<Counts>) -> Self {
        Log { inner, counts }
    }

    /// Times `work`, of whose outcome `moved` says how many bytes it moved and whether it found anything.
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

/// The body of a fetch: it ends when its last byte was read, fails, or is dropped.
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

    fn get(&self, key: Key) -> BoxFuture<'_, Result<Option<(Option<u64>, Body)>, RemoteError>> {
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

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> BoxFuture<'_, Result<Stored, RemoteError>> {
        let moved = move |stored: &Stored| (if *stored == Stored::New { size } else { 0 }, true);
        Box::pin(self.timed(Asked::Put, self.inner.put(key, size, body, how), moved))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<bool>, RemoteError>> {
        Box::pin(self.timed(Asked::Has, self.inner.has(keys), |there| (0, there.contains(&true))))
    }

    fn get_small<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, RemoteError>> {
        let moved = |found: &Vec<Option<Bytes>>| {
            let bytes = found.iter().flatten().map(|bytes| bytes.len() as u64).sum();
            (bytes, found.iter().any(Option::is_some))
        };
        Box::pin(self.timed(Asked::GetSmall, self.inner.get_small(keys), moved))
    }

    fn put_small<'a>(
        &'a self,
        objects: &'a [(Key, Bytes)],
        how: Put,
    ) -> BoxFuture<'a, Result<Vec<Stored>, RemoteError>> {
        let moved = move |stored: &Vec<Stored>| {
            let new = stored.iter().zip(objects).filter(|(stored, _)| **stored == Stored::New);
            (new.map(|(_, (_, bytes))| bytes.len() as u64).sum(), true)
        };
        Box::pin(self.timed(Asked::PutSmall, self.inner.put_small(objects, how), moved))
    }

    fn get_marked(&self, key: Key) -> BoxFuture<'_, Result<Option<(Bytes, Mark)>, RemoteError>> {
        let moved = |found: &Option<(Bytes, Mark)>| {
            (found.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64), found.is_some())
        };
        Box::pin(self.timed(Asked::GetSmall, self.inner.get_marked(key), moved))
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> BoxFuture<'_, Result<bool, RemoteError>> {
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
