//! All configured remotes together, nearest first, as `larderd` uses them.
//!
//! Unaware of: the local store, the race between a fetch and the tool.

use crate::filling::Filling;
use crate::items::all_filled;
use crate::merge::{self, Merged};
use crate::record::{Dropped, Item, List};
use crate::sign::Keys;
use crate::stack::verified;
use crate::tally::{Share, Tally};
use crate::wait::Wait;
use crate::{
    Asked, Body, Connected, Counts, Key, Options, Remote, RemoteError, RemoteUrl, SMALL_BYTES_MAX, Switch, Trouble,
    connect,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use larder_model::{Digest, Manifest};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Once one remote has answered with records, the others get as long again, and at least this long.
const GRACE_MIN: Duration = Duration::from_millis(20);
/// A remote is late after this many times its 0.9 quantile of latencies, and at least [`LATE_MIN`].
/// The latencies are those of single fetches of 64 KiB to 1 MiB.
const LATE_TIMES: u32 = 4;
const LATE_MIN: Duration = Duration::from_millis(250);
/// The time limit for the last remote: practically none, because there is no other one to ask.
/// `Stall` and the connection have their own timeouts.
const FOREVER: Duration = Duration::from_secs(86_400);

/// Blobs with more bytes count as large.
const LARGE_BYTES: u64 = 1 << 20;
/// How many large blobs are fetched at once. Each holds one or two megabytes in buffers, and more
/// of them would not arrive earlier.
const LARGE_AT_ONCE: usize = 24;
/// The most entries of [`Remotes::wrong`].
const WRONG_MAX: usize = 4096;

/// All configured remotes, nearest first.
pub struct Remotes {
    pub(crate) all: Vec<One>,
    keys: Keys,
    settle: Duration,
    wait: Wait,
    pub(crate) tally: Tally,
    pub(crate) filling: Filling,
    /// Blobs that a remote has with wrong bytes, as remote and digest. Publishing the blob replaces
    /// them.
    wrong: Mutex<HashSet<(String, Digest)>>,
    /// One permit for each large blob that may be fetched.
    large: Semaphore,
}

/// One remote.
pub struct One {
    /// The outermost decorator: all requests go through it.
    pub remote: Arc<dyn Remote>,
    /// Nothing is uploaded to it.
    pub read_only: bool,
    /// Counters and latencies of its requests.
    pub counts: Arc<Counts>,
    /// The state of its breaker.
    pub breaker: Arc<Switch>,
}

impl One {
    /// Returns how long to wait for it once another remote has answered.
    fn patience(&self) -> Duration {
        let usual = self.counts.quantile(Asked::Get, SMALL_BYTES_MAX, 0.9).unwrap_or_default();
        (usual * LATE_TIMES).max(LATE_MIN)
    }
}

/// The destination of a blob's bytes. If a remote fails half-way, the next one starts again.
pub trait Sink: Send {
    /// Starts, or starts again: drops all bytes so far.
    fn begin(&mut self) -> BoxFuture<'_, io::Result<()>>;
    /// Adds bytes.
    fn more(&mut self, bytes: Bytes) -> BoxFuture<'_, io::Result<()>>;
    /// All bytes have arrived and are verified.
    fn end(&mut self) -> BoxFuture<'_, io::Result<()>>;
}

impl Sink for tokio::fs::File {
    fn begin(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.set_len(0).await?;
            self.rewind().await.map(drop)
        })
    }

    fn more(&mut self, bytes: Bytes) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.write_all(&bytes).await })
    }

    fn end(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.flush())
    }
}

impl Sink for Vec<u8> {
    fn begin(&mut self) -> BoxFuture<'_, io::Result<()>> {
        self.clear();
        Box::pin(async { Ok(()) })
    }

    fn more(&mut self, bytes: Bytes) -> BoxFuture<'_, io::Result<()>> {
        self.extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }

    fn end(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl Remotes {
    /// Opens the remotes of these URLs, nearest first. It sends nothing yet.
    pub fn open(urls: &[RemoteUrl], options: &Options) -> Result<Remotes, RemoteError> {
        let all: Result<Vec<_>, _> = urls.iter().map(|url| Ok((connect(url, options)?, url.read_only))).collect();
        Ok(Remotes::of(all?, options))
    }

    /// Returns these remotes, nearest first. Each `bool` says whether the remote is read-only.
    pub fn of(all: Vec<(Connected, bool)>, options: &Options) -> Remotes {
        let one = |(connected, read_only): (Connected, bool)| {
            let Connected { remote, counts, breaker } = connected;
            let read_only = read_only || options.read_only || !remote.abilities().writable;
            One { remote, read_only, counts, breaker }
        };
        Remotes {
            all: all.into_iter().map(one).collect(),
            keys: options.keys.clone(),
            settle: options.settle,
            wait: Wait::new(options.seed),
            tally: Tally::default(),
            filling: Filling::default(),
            wrong: Mutex::default(),
            large: Semaphore::new(LARGE_AT_ONCE),
        }
    }

    /// Returns all remotes, nearest first.
    pub fn each(&self) -> &[One] {
        &self.all
    }

    /// Returns true if there are no remotes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns true if at least one remote may be written.
    pub fn is_writable(&self) -> bool {
        self.all.iter().any(|one| !one.read_only)
    }

    /// Returns the counts of rejected and restored records.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the manifest of a weak fingerprint, encoded as in the local store. It has the
    /// trusted records of all remotes, those of the nearest first. Damaged, foreign and untrusted
    /// records are dropped and counted.
    ///
    /// Fails if no remote answered. Once one remote has answered, the others are waited for only
    /// for a limited time: see `One::patience` and `GRACE_MIN`. Being late counts as a failure for
    /// the breaker. Also returns the number of the nearest remote that has a record.
    pub async fn manifest(&self, weak: &Digest) -> Result<Option<(Vec<u8>, usize)>, RemoteError> {
        let mut answers: Vec<Option<Vec<(Item, Bytes)>>> = vec![None; self.all.len()];
        let mut waited: Vec<usize> = (0..self.all.len()).collect();
        let mut asked: FuturesUnordered<_> = self
            .all
            .iter()
            .enumerate()
            .map(|(number, one)| async move { (number, self.entries(&*one.remote, weak).await) })
            .collect();
        let start = Instant::now();
        let mut deadline: Option<Duration> = None;
        let mut trouble = None;
        loop {
            let somebody = answers.iter().any(Option::is_some);
            let patience = somebody.then(|| waited.iter().map(|&number| self.all[number].patience()).max());
            let next = match deadline.or(patience.flatten()) {
                None => asked.next().await,
                Some(wait) => match tokio::time::timeout(wait.saturating_sub(start.elapsed()), asked.next()).await {
                    Ok(next) => next,
                    Err(_) => break,
                },
            };
            let Some((number, answer)) = next else { break };
            waited.retain(|waited| *waited != number);
            match answer {
                Err(error) => trouble = Some(error),
                Ok(entries) => {
                    if !entries.is_empty() && deadline.is_none() {
                        deadline = Some((start.elapsed() * 2).max(start.elapsed() + GRACE_MIN));
                    }
                    answers[number] = Some(entries);
                }
            }
        }
        for one in waited.into_iter().map(|number| &self.all[number]) {
            if start.elapsed() >= one.patience() {
                one.breaker.late(Instant::now().into_std());
            }
        }
        let nobody = answers.iter().all(Option::is_none);
        self.note_lacking(weak, &answers);
        let nearest = answers.iter().position(|answer| answer.as_ref().is_some_and(|entries| !entries.is_empty()));
        let all = answers.into_iter().flatten().flatten();
        let encoded: Vec<(Digest, Bytes)> = all.map(|(item, bytes)| (item.strong, bytes)).collect();
        match (trouble, nearest) {
            (Some(error), _) if nobody => Err(error),
            (_, nearest) => Ok(nearest.map(|number| (together(weak, &encoded), number))),
        }
    }

    /// Returns the trusted records of one remote with their manifests, newest first.
    async fn entries(&self, remote: &dyn Remote, weak: &Digest) -> Result<Vec<(Item, Bytes)>, RemoteError> {
        let (list, damaged) = merge::read(remote, Key::manifest(*weak)).await?;
        self.tally.add(Share::Damaged, damaged);
        let mut believed = Vec::with_capacity(list.items.len());
        for item in all_filled(remote, list).await {
            match item.believed(weak, &self.keys) {
                Ok(bytes) => believed.push((item, bytes)),
                Err(why) => self.tally.add(why.into(), 1),
            }
        }
        Ok(believed)
    }

    /// Fetches a blob from the nearest remote that has it, and verifies it while it streams into
    /// `into`.
    ///
    /// If a remote fails or sends wrong bytes, the next one is tried. Every remote but the last has
    /// a limited time for its first bytes. Returns the number of the remote that the blob came from.
    /// Without one, or after an error, the bytes in `into` are meaningless.
    pub async fn blob(&self, digest: &Digest, size: u64, into: &mut dyn Sink) -> Result<Option<usize>, RemoteError> {
        let key = Key::blob(*digest);
        let is_large = size > LARGE_BYTES;
        let _turn = if is_large { self.large.acquire().await.ok() } else { None };
        let mut trouble = None;
        for (at, one) in self.all.iter().enumerate() {
            let is_last = at + 1 == self.all.len();
            let begun = tokio::time::timeout(if is_last { FOREVER } else { one.patience() }, begin(&*one.remote, key));
            let Ok(begun) = begun.await else {
                one.breaker.late(Instant::now().into_std());
                let silent = "no answer for much longer than it usually takes";
                trouble = Some(RemoteError::failed(&one.remote.name().into(), Some(key), Trouble::Stalled, silent));
                continue;
            };
            let fetched = match begun {
                Ok(Some((first, body))) => fetch(&*one.remote, key, size, first, body, into).await.map(|()| true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match fetched {
                Ok(true) => return Ok(Some(at)),
                Ok(false) => {}
                Err(here @ RemoteError::Here { .. }) => return Err(here),
                Err(error) => {
                    let wrong = matches!(error.trouble(), Some(Trouble::Damaged | Trouble::Cut));
                    self.tally.add(Share::WrongBlobs, u64::from(wrong));
                    if wrong {
                        self.note_wrong(&*one.remote, *digest);
                    }
                    trouble = Some(error);
                }
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    fn note_wrong(&self, remote: &dyn Remote, digest: Digest) {
        let mut wrong = self.wrong.lock();
        if wrong.len() < WRONG_MAX {
            wrong.insert((remote.name().to_owned(), digest));
        }
    }

    /// Returns true if a remote has returned wrong bytes for a blob.
    pub(crate) fn is_wrong(&self, remote: &dyn Remote, digest: Digest) -> bool {
        let wrong = self.wrong.lock();
        !wrong.is_empty() && wrong.contains(&(remote.name().to_owned(), digest))
    }

    /// Notes that a wrong blob was replaced.
    pub(crate) fn note_mended(&self, remote: &dyn Remote, digest: Digest) {
        self.wrong.lock().remove(&(remote.name().to_owned(), digest));
    }

    /// Returns true if signatures are required but our own records are not signed.
    pub fn would_not_believe_itself(&self) -> bool {
        self.keys.are_required() && !self.keys.can_sign()
    }

    /// Returns true if published records are signed.
    pub fn signs(&self) -> bool {
        self.keys.can_sign()
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn writable(&self) -> impl Iterator<Item = &dyn Remote> {
        self.all.iter().filter(|one| !one.read_only).map(|one| &*one.remote)
    }

    pub(crate) async fn add(&self, remote: &dyn Remote, list: Key, new: &[Item]) -> Result<Merged, RemoteError> {
        let merged = merge::add(remote, list, new, self.settle, &self.wait).await?;
        self.tally.add(Share::Contended, merged.contended);
        self.tally.add(Share::PutBack, merged.put_back);
        Ok(merged)
    }

    pub(crate) async fn backoff(&self, attempt: u32) {
        self.wait.backoff(attempt, Duration::from_millis(50), Duration::from_secs(2)).await;
    }
}

impl From<Dropped> for Share {
    fn from(why: Dropped) -> Self {
        match why {
            Dropped::Damaged => Share::Damaged,
            Dropped::Foreign => Share::Foreign,
            Dropped::Unsigned => Share::Unsigned,
            Dropped::Failed => Share::Failed,
        }
    }
}

/// Joins manifests of one entry each. Of entries with the same strong fingerprint the first stays.
fn together(weak: &Digest, encoded: &[(Digest, Bytes)]) -> Vec<u8> {
    let mut list = List::default();
    let items: Vec<Item> = encoded
        .iter()
        .map(|(strong, bytes)| Item { strong: *strong, digest: *strong, size: 0, bytes: Some(bytes.clone()) })
        .collect();
    list.merge(&items, &List::default());
    let bytes = |item: &Item| item.bytes.clone().expect("each item was made with bytes");
    let kept: Vec<Bytes> = list.items.iter().map(bytes).collect();
    let mut whole = Manifest { weak: *weak, fields: Vec::new(), entries: Vec::new() };
    for bytes in &kept {
        let one = Manifest::decode(bytes).expect("it was decoded when it was verified");
        whole.entries.extend(one.entries);
    }
    whole.encode()
}

/// Fetches an object up to its first bytes; `None` if it does not exist.
async fn begin(remote: &dyn Remote, key: Key) -> Result<Option<(Option<Bytes>, Body)>, RemoteError> {
    let Some((_, mut body)) = remote.get(key).await? else { return Ok(None) };
    let first = body.try_next().await?;
    Ok(Some((first, body)))
}

/// Writes a blob to `into` and verifies it. `first` and `rest` are its bytes.
async fn fetch(
    remote: &dyn Remote,
    key: Key,
    size: u64,
    first: Option<Bytes>,
    rest: Body,
    into: &mut dyn Sink,
) -> Result<(), RemoteError> {
    let here = |error| RemoteError::here(key, error);
    into.begin().await.map_err(here)?;
    let whole = stream::iter(first.map(Ok)).chain(rest).boxed();
    let mut body = verified(remote.name().into(), key, Some(size), whole);
    while let Some(bytes) = body.try_next().await? {
        into.more(bytes).await.map_err(here)?;
    }
    into.end().await.map_err(here)
}
