//! Remotes: all that are configured, near first, as `larderd` uses them.

use crate::fill::Filling;
use crate::merge::{self, Merged};
use crate::record::{Dropped, Item, List, RECORD_BYTES_MAX};
use crate::sign::Keys;
use crate::stack::verified;
use crate::tally::{Share, Tally};
use crate::wait::Wait;
use crate::{
    Asked, Body, Connected, Counts, Key, Options, Remote, RemoteError, RemoteUrl, SMALL_BYTES_MAX, Switch, Trouble,
    collect, connect,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use larder_model::{Digest, Manifest};
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::Instant;

/// A remote that has not answered when another has is waited for as long again, and at least so long.
const GRACE_MIN: Duration = Duration::from_millis(20);
/// One that takes longer than so many times what nine of ten of its answers took, and at least so long, is late.
const LATE_TIMES: u32 = 4;
const LATE_MIN: Duration = Duration::from_millis(250);
/// Nobody else could be asked: stall and connection have limits of their own.
const FOREVER: Duration = Duration::from_secs(86_400);
/// How many records that do not stand in their list are fetched at once.
const RECORDS_AT_ONCE: usize = 8;
/// Blobs of which a remote gave something else that are remembered.
const WRONG_MAX: usize = 4096;

/// All configured remotes, near first.
pub struct Remotes {
    pub(crate) all: Vec<One>,
    keys: Keys,
    settle: Duration,
    wait: Wait,
    pub(crate) tally: Tally,
    pub(crate) filling: Filling,
    /// What lies on which remote under a blob's name and is something else: it is replaced by who has the blob.
    wrong: Mutex<HashSet<(String, Digest)>>,
}

/// One of them.
pub struct One {
    /// To be asked.
    pub remote: Arc<dyn Remote>,
    /// Nothing is put there.
    pub read_only: bool,
    /// What was asked of it, and how long it took.
    pub counts: Arc<Counts>,
    /// Whether it is left alone now.
    pub breaker: Arc<Switch>,
}

impl One {
    /// How long it is waited for at most, once another has answered.
    fn patience(&self) -> Duration {
        let usual = self.counts.quantile(Asked::Get, SMALL_BYTES_MAX, 0.9).unwrap_or_default();
        (usual * LATE_TIMES).max(LATE_MIN)
    }
}

/// Where a blob's bytes go. A remote that fails half-way is followed by another, from the start.
pub trait Sink: Send {
    /// Forget what came, and begin.
    fn begin(&mut self) -> BoxFuture<'_, io::Result<()>>;
    /// More bytes.
    fn more(&mut self, bytes: Bytes) -> BoxFuture<'_, io::Result<()>>;
    /// All of them came, and they are right.
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
    /// Open these, near first. Nothing is sent yet.
    pub fn open(urls: &[RemoteUrl], options: &Options) -> Result<Remotes, RemoteError> {
        let all: Result<Vec<_>, _> = urls.iter().map(|url| Ok((connect(url, options)?, url.read_only))).collect();
        Ok(Remotes::of(all?, options))
    }

    /// These, near first, each with whether it is only read.
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
        }
    }

    /// Each of them, near first.
    pub fn each(&self) -> &[One] {
        &self.all
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether anything may be published.
    pub fn is_writable(&self) -> bool {
        self.all.iter().any(|one| !one.read_only)
    }

    /// What was dropped and put back so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The manifest of a weak fingerprint, as its bytes are in a store: of all remotes together, the nearest remote's
    /// entries first. Entries that are damaged, of another fingerprint, or not to be believed are dropped and counted.
    /// An error where no remote could say. One that is silent for longer than it is wont to be is not waited for once
    /// another has answered, and after a few times left alone by itself.
    pub async fn manifest(&self, weak: &Digest) -> Result<Option<Vec<u8>>, RemoteError> {
        Ok(self.manifest_from(weak).await?.map(|found| found.0))
    }

    /// The same, and the number of the nearest remote that has any of it.
    pub async fn manifest_from(&self, weak: &Digest) -> Result<Option<(Vec<u8>, usize)>, RemoteError> {
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

    /// The entries of one remote that are believed, each as a manifest of its own, newest first.
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

    /// Fetch a blob, verified while it streams: from the nearest remote that has it, else from the next. One that says
    /// nothing for longer than it ever does is not waited for while there is another. `false` where none has it. After an
    /// error or `false` what is in the sink has no meaning.
    pub async fn blob(&self, digest: &Digest, size: u64, into: &mut dyn Sink) -> Result<bool, RemoteError> {
        Ok(self.blob_from(digest, size, into).await?.is_some())
    }

    /// The same, and the number of the remote that it came from.
    pub async fn blob_from(
        &self,
        digest: &Digest,
        size: u64,
        into: &mut dyn Sink,
    ) -> Result<Option<usize>, RemoteError> {
        let key = Key::blob(*digest);
        let mut trouble = None;
        for (at, one) in self.all.iter().enumerate() {
            let is_last = at + 1 == self.all.len();
            let begun = tokio::time::timeout(if is_last { FOREVER } else { one.patience() }, begin(&*one.remote, key));
            let Ok(begun) = begun.await else {
                one.breaker.late(Instant::now().into_std());
                let silent = "it says nothing for longer than it ever does";
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

    /// Fetch blobs of at most [`crate::SMALL_BYTES_MAX`] bytes, as many in a request as a remote takes; in their order,
    /// verified. What cannot be had is `None`, trouble or not.
    pub async fn small_blobs(&self, digests: &[Digest]) -> Vec<Option<Bytes>> {
        let mut found = vec![None; digests.len()];
        for one in &self.all {
            let missing: Vec<usize> = (0..digests.len()).filter(|&at| found[at].is_none()).collect();
            if missing.is_empty() {
                break;
            }
            let keys: Vec<Key> = missing.iter().map(|&at| Key::blob(digests[at])).collect();
            let Ok(bytes) = one.remote.get_small(&keys).await else { continue };
            for (at, bytes) in missing.into_iter().zip(bytes) {
                found[at] = bytes.filter(|bytes| Digest::of(bytes) == digests[at]);
            }
        }
        found
    }

    fn wrong(&self) -> MutexGuard<'_, HashSet<(String, Digest)>> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_wrong(&self, remote: &dyn Remote, digest: Digest) {
        let mut wrong = self.wrong();
        if wrong.len() < WRONG_MAX {
            wrong.insert((remote.name().to_owned(), digest));
        }
    }

    /// Whether a remote gave something else for a blob.
    pub(crate) fn is_wrong(&self, remote: &dyn Remote, digest: Digest) -> bool {
        let wrong = self.wrong();
        !wrong.is_empty() && wrong.contains(&(remote.name().to_owned(), digest))
    }

    /// It was sent there again.
    pub(crate) fn note_mended(&self, remote: &dyn Remote, digest: Digest) {
        self.wrong().remove(&(remote.name().to_owned(), digest));
    }

    /// Whether records must be signed, and those that are made here are not.
    pub fn would_not_believe_itself(&self) -> bool {
        self.keys.are_required() && !self.keys.can_sign()
    }

    /// Whether what is published is signed.
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

/// Of all records of a list that do not stand in it, bytes that are fetched.
const LIST_BYTES_MAX: u64 = 128 << 20;

pub(crate) async fn get_one(remote: &dyn Remote, key: Key) -> Result<Option<Bytes>, RemoteError> {
    Ok(remote.get_small(&[key]).await?.into_iter().next().flatten())
}

/// An item with its bytes, where they can be had.
pub(crate) async fn filled(remote: &dyn Remote, mut item: Item) -> Item {
    if item.bytes.is_none() && item.size <= RECORD_BYTES_MAX {
        let fetched = async {
            let (_, body) = remote.get(Key::blob(item.digest)).await.ok()??;
            collect(remote.name(), Key::blob(item.digest), body, item.size).await.ok()
        };
        item.bytes = fetched.await;
    }
    item
}

/// The items of a list with their bytes, where they can be had, the newest first; whoever makes very many large ones is
/// not held in memory for it.
pub(crate) async fn all_filled(remote: &dyn Remote, list: List) -> Vec<Item> {
    let mut room = LIST_BYTES_MAX;
    let fits = |item: &Item| {
        room = room.saturating_sub(item.size);
        room > 0 || item.bytes.is_some()
    };
    let items: Vec<Item> = list.items.into_iter().filter(fits).collect();
    let fetched = stream::iter(items.into_iter().map(|item| filled(remote, item)));
    fetched.buffered(RECORDS_AT_ONCE).collect().await
}

/// One manifest of many of one entry each, each strong fingerprint once, the first that comes.
fn together(weak: &Digest, encoded: &[(Digest, Bytes)]) -> Vec<u8> {
    let mut list = List::default();
    let items: Vec<Item> = encoded
        .iter()
        .map(|(strong, bytes)| Item { strong: *strong, digest: *strong, size: 0, bytes: Some(bytes.clone()) })
        .collect();
    list.merge(&items, &List::default());
    let bytes = |item: &Item| item.bytes.clone().expect("each was made with bytes");
    let kept: Vec<Bytes> = list.items.iter().map(bytes).collect();
    let mut whole = Manifest { weak: *weak, fields: Vec::new(), entries: Vec::new() };
    for bytes in &kept {
        let one = Manifest::decode(bytes).expect("it was decoded when it was believed");
        whole.entries.extend(one.entries);
    }
    whole.encode()
}

/// Until the first bytes are here; `None` where it is not there.
async fn begin(remote: &dyn Remote, key: Key) -> Result<Option<(Option<Bytes>, Body)>, RemoteError> {
    let Some((_, mut body)) = remote.get(key).await? else { return Ok(None) };
    let first = body.try_next().await?;
    Ok(Some((first, body)))
}

/// The rest of it, and all of it verified.
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
