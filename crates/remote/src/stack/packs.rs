//! Packs: many small objects in one, on a service that accepts only so many uploads a minute.
//!
//! 1. `put` of a small object waits until the next pack is written. Packs are written one after
//!    another, at most one each [`PackPolicy::gather`].
//! 2. A pack is uploaded as a blob, and then the index that names its objects
//!    (`pack_index.rs`). Then all these calls of `put` return.
//! 3. `get` finds the object in the index, downloads its pack, and keeps the pack in memory,
//!    because the objects that were uploaded together are mostly used together.
//!
//! A large object is uploaded by itself, and is in the index as well. So an object that is not in
//! the index does not exist, and asking for it costs no request until the index is
//! [`PackPolicy::stale`].
//!
//! For example, 300 records with a blob each, which are put at once, take 4 uploads and not 600.
//!
//! Unaware of: which service it is, what objects contain.

use super::pack_index::{Index, Location, Pack};
use crate::bundle::compression;
use crate::wait::Wait;
use crate::{
    Abilities, Answer, Body, Fetched, Key, ObjectKind, Put, Remote, RemoteError, Stored, Trouble, body, collect, whole,
};
use bytes::Bytes;
use larder_model::Digest;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{OnceCell, Semaphore, oneshot};
use tokio::time::Instant;

/// Objects with more bytes are uploaded by themselves.
const PACKED_BYTES_MAX: u64 = 512 << 10;
/// The most bytes of objects in a pack, before compression.
const PACK_BYTES_MAX: usize = 4 << 20;
/// The most bytes that all calls of `put` hold in memory together.
const HELD_BYTES_MAX: u64 = 64 << 20;
const HELD_UNIT_BYTES: u64 = 4 << 10;
/// How many downloaded packs stay in memory.
const PACKS_KEPT: usize = 12;
/// How often another client may write the next index before us.
const TRIES_MAX: u32 = 24;
/// The number of an index that another client has begun to write so long ago, and that cannot be
/// read yet, counts as taken by an upload that failed.
const UNFINISHED_WAIT: Duration = Duration::from_secs(6);
/// How often an upload is repeated after a transient error.
const UPLOADS_MAX: u32 = 6;
/// The part of the service's limit that one client uses. Other jobs use the same cache.
const SHARE_PERCENT: u32 = 75;

/// When packs are written, and how long an index is believed.
#[derive(Clone, Copy, Debug)]
pub struct PackPolicy {
    /// How long a pack gathers objects.
    pub gather: Duration,
    /// An object that is not in an index read so long ago is looked up again.
    pub stale: Duration,
    /// The time to which the service's limit of uploads applies. Tests do not wait for a minute.
    pub minute: Duration,
    /// Returns the days since 1970.
    pub today: fn() -> u64,
}

impl Default for PackPolicy {
    fn default() -> Self {
        let today = || {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            since.as_secs() / (24 * 60 * 60)
        };
        let minute = Duration::from_secs(60);
        PackPolicy { gather: Duration::from_secs(1), stale: Duration::from_secs(5), minute, today }
    }
}

/// A decorator that packs small objects.
pub struct Packs {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Remote>,
    name: Arc<str>,
    policy: PackPolicy,
    wait: Wait,
    /// The index, and when it was last read.
    index: tokio::sync::Mutex<(Index, Option<Instant>)>,
    waiting: Mutex<Waiting>,
    room: Arc<Semaphore>,
    /// Downloaded packs, the one used last at the end.
    kept: Mutex<Vec<(Digest, Kept)>>,
    /// True for each pack that the service has, false for each that it does not have any more.
    known: Mutex<HashMap<Digest, bool>>,
    uploads: Uploads,
}

/// A pack's content once it is downloaded; `None` if the service does not have it.
type Kept = Arc<OnceCell<Option<Bytes>>>;

/// The objects that wait for the next pack.
#[derive(Default)]
struct Waiting {
    objects: Vec<One>,
    /// A task writes packs until no object waits.
    is_served: bool,
}

/// One call of `put`.
struct One {
    key: Key,
    size: u64,
    /// `None` if the object was uploaded by itself.
    bytes: Option<Bytes>,
    done: oneshot::Sender<Result<Stored, RemoteError>>,
}

/// Limits the uploads of each minute.
struct Uploads {
    most: usize,
    minute: Duration,
    recent: tokio::sync::Mutex<VecDeque<Instant>>,
}

impl Uploads {
    /// Waits until one more upload is within the limit.
    async fn turn(&self) {
        // Later callers wait for this lock, so that they go on in the order in which they came.
        let mut recent = self.recent.lock().await;
        if recent.len() >= self.most
            && let Some(oldest) = recent.pop_front()
        {
            tokio::time::sleep_until(oldest + self.minute).await;
        }
        recent.push_back(Instant::now());
    }
}

impl Packs {
    /// Returns a decorator for a service that accepts so many uploads a minute. `seed` varies its
    /// waits.
    pub fn new(inner: Arc<dyn Remote>, writes_per_minute: u32, policy: PackPolicy, seed: u64) -> Self {
        let most = (writes_per_minute * SHARE_PERCENT / 100).max(1) as usize;
        let shared = Shared {
            name: inner.name().into(),
            inner,
            policy,
            wait: Wait::new(seed),
            index: tokio::sync::Mutex::default(),
            waiting: Mutex::default(),
            room: Arc::new(Semaphore::new((HELD_BYTES_MAX / HELD_UNIT_BYTES) as usize)),
            kept: Mutex::default(),
            known: Mutex::default(),
            uploads: Uploads { most, minute: policy.minute, recent: tokio::sync::Mutex::default() },
        };
        Packs { shared: Arc::new(shared) }
    }
}

/// Returns true for an error of a pack that is not as each client writes it.
fn is_wrong(error: &RemoteError) -> bool {
    matches!(error.trouble(), Some(Trouble::Damaged | Trouble::TooLarge))
}

impl Shared {
    /// Returns where objects are, by an index that is not stale if one of them is not in it.
    async fn places(&self, keys: &[Key]) -> Result<Vec<Option<Location>>, RemoteError> {
        let mut index = self.index.lock().await;
        let is_stale = index.1.is_none_or(|read| read.elapsed() >= self.policy.stale);
        if is_stale && keys.iter().any(|key| index.0.place(key).is_none()) {
            self.refresh(&mut index).await?;
        }
        Ok(keys.iter().map(|key| index.0.place(key)).collect())
    }

    async fn refresh(&self, index: &mut (Index, Option<Instant>)) -> Result<(), RemoteError> {
        let began = Instant::now();
        index.0.refresh(&*self.inner, (self.policy.today)()).await?;
        index.1 = Some(began);
        Ok(())
    }

    async fn get(&self, key: Key) -> Result<Fetched, RemoteError> {
        match self.places(&[key]).await?[0] {
            None => Ok(None),
            Some(Location::Alone) => self.inner.get(key).await,
            Some(Location::In { pack, offset, size }) => {
                let part = self.part(key, pack, offset..offset.saturating_add(size)).await;
                // Another client wrote the index, and it may be wrong. Without this pack, the object
                // can be uploaded again.
                if part.as_ref().map_or_else(is_wrong, Option::is_none) {
                    self.index.lock().await.0.forget(pack);
                }
                Ok(part?.map(|bytes| (Some(size as u64), whole(bytes))))
            }
        }
    }

    /// Returns an object that is a part of a pack; `None` if the service does not have the pack.
    async fn part(&self, key: Key, pack: Digest, range: Range<usize>) -> Result<Option<Bytes>, RemoteError> {
        let Some(content) = self.pack(pack).await? else { return Ok(None) };
        let bytes = (range.end <= content.len()).then(|| content.slice(range));
        let is_right = |bytes: &Bytes| key.kind != ObjectKind::Blob || Digest::of(bytes) == key.digest;
        bytes.filter(is_right).map(Some).ok_or_else(|| self.damaged(key))
    }

    /// Returns the content of a pack; `None` if the service does not have it any more.
    async fn pack(&self, digest: Digest) -> Result<Option<Bytes>, RemoteError> {
        let cell = {
            let mut kept = self.kept.lock();
            let at = kept.iter().position(|(known, _)| *known == digest);
            let one = at.map_or_else(|| (digest, Kept::default()), |at| kept.remove(at));
            if kept.len() >= PACKS_KEPT {
                kept.remove(0);
            }
            kept.push(one.clone());
            one.1
        };
        cell.get_or_try_init(|| self.download(digest)).await.cloned()
    }

    async fn download(&self, digest: Digest) -> Result<Option<Bytes>, RemoteError> {
        let key = Key::blob(digest);
        let fetched = self.inner.get(key).await?;
        self.known.lock().insert(digest, fetched.is_some());
        let Some((_, body)) = fetched else { return Ok(None) };
        let bytes = collect(&self.name, key, body, 2 * PACK_BYTES_MAX as u64).await?;
        if Digest::of(&bytes) != digest {
            return Err(self.damaged(key));
        }
        let content = compression::unpack(&bytes).map_err(|_| self.damaged(key))?;
        Ok(Some(content.into()))
    }

    fn damaged(&self, key: Key) -> RemoteError {
        RemoteError::failed(&self.name, Some(key), Trouble::Damaged, "a pack of small objects is damaged")
    }

    async fn has(&self, keys: &[Key]) -> Result<Vec<bool>, RemoteError> {
        let places = self.places(keys).await?;
        // The index may name what the service has forgotten.
        let asked: HashSet<Key> = {
            let known = self.known.lock();
            let unknown = |(key, place): (&Key, &Option<Location>)| match place {
                Some(Location::In { pack, .. }) if !known.contains_key(pack) => Some(Key::blob(*pack)),
                Some(Location::Alone) => Some(*key),
                _ => None,
            };
            keys.iter().zip(&places).filter_map(unknown).collect()
        };
        let asked: Vec<Key> = asked.into_iter().collect();
        let there = if asked.is_empty() { Vec::new() } else { self.inner.has(&asked).await? };
        let there: HashMap<Key, bool> = asked.into_iter().zip(there).collect();
        // Without the packs that are gone, their objects can be uploaded again.
        for (key, _) in there.iter().filter(|(_, there)| !**there) {
            self.index.lock().await.0.forget(key.digest);
        }
        let mut known = self.known.lock();
        let has = |(key, place): (&Key, Option<Location>)| match place {
            None => false,
            Some(Location::Alone) => there.get(key) == Some(&true),
            Some(Location::In { pack, .. }) => {
                *known.entry(pack).or_insert_with(|| there.get(&Key::blob(pack)) == Some(&true))
            }
        };
        Ok(keys.iter().zip(places).map(has).collect())
    }

    async fn put(self: &Arc<Self>, key: Key, size: u64, body: Body, how: Put) -> Result<Stored, RemoteError> {
        self.inner.abilities().takes(&self.name, key, size)?;
        if self.has(&[key]).await? == [true] {
            return Ok(Stored::Existed);
        }
        if size > PACKED_BYTES_MAX {
            self.uploads.turn().await;
            let stored = self.inner.put(key, size, body, how).await?;
            self.indexed(key, size, None).await?;
            return Ok(stored);
        }
        let units = size.div_ceil(HELD_UNIT_BYTES).max(1) as u32;
        let _held = self.room.acquire_many(units).await.expect("the semaphore is never closed");
        let body = body::exactly(self.name.clone(), key, size, body);
        let bytes = collect(&self.name, key, body, size).await?;
        self.indexed(key, size, Some(bytes)).await
    }

    /// Waits until the next pack is written with this object in it.
    async fn indexed(self: &Arc<Self>, key: Key, size: u64, bytes: Option<Bytes>) -> Result<Stored, RemoteError> {
        let (done, outcome) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.objects.push(One { key, size, bytes, done });
            !std::mem::replace(&mut waiting.is_served, true)
        };
        if is_first {
            // A task, because the others wait for it even if this caller is dropped.
            tokio::spawn(Arc::clone(self).serve());
        }
        let ended = "the runtime ends";
        outcome.await.unwrap_or_else(|_| Err(RemoteError::failed(&self.name, Some(key), Trouble::Other, ended)))
    }

    /// Writes packs until no object waits.
    async fn serve(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.policy.gather).await;
            let batch = {
                let mut waiting = self.waiting.lock();
                if waiting.objects.is_empty() {
                    waiting.is_served = false;
                    return;
                }
                std::mem::take(&mut waiting.objects)
            };
            match self.write(&batch).await {
                Ok(mut there) => batch.into_iter().for_each(|one| {
                    // Of several callers with one key, the first one has stored it.
                    let stored = if there.insert(one.key) { Stored::New } else { Stored::Existed };
                    // An error means that the caller was dropped.
                    let _ = one.done.send(Ok(stored));
                }),
                Err(error) => batch.into_iter().for_each(|one| drop(one.done.send(Err(error.clone())))),
            }
        }
    }

    /// Uploads the objects in packs, and then the index. Returns the keys that existed already.
    async fn write(&self, batch: &[One]) -> Result<HashSet<Key>, RemoteError> {
        let mut new: Vec<Pack> = Vec::new();
        let alone = batch.iter().filter(|one| one.bytes.is_none()).map(|one| (one.key, one.size)).collect::<Vec<_>>();
        if !alone.is_empty() {
            new.push(Pack { digest: None, objects: alone });
        }
        let (mut objects, mut content, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for one in batch {
            let Some(bytes) = one.bytes.as_ref().filter(|_| seen.insert(one.key)) else { continue };
            if content.len() + bytes.len() > PACK_BYTES_MAX && !objects.is_empty() {
                new.push(self.upload(std::mem::take(&mut objects), std::mem::take(&mut content)).await?);
            }
            objects.push((one.key, one.size));
            content.extend_from_slice(bytes);
        }
        if !objects.is_empty() {
            new.push(self.upload(objects, content).await?);
        }
        self.write_index(new).await
    }

    async fn upload(&self, objects: Vec<(Key, u64)>, mut content: Vec<u8>) -> Result<Pack, RemoteError> {
        for _ in 0..UPLOADS_MAX {
            let bytes = Bytes::from(compression::pack(&content));
            let digest = Digest::of(&bytes);
            let key = Key::blob(digest);
            if self.write_one(key, bytes).await? == Stored::New || self.inner.has(&[key]).await? == [true] {
                self.known.lock().insert(digest, true);
                return Ok(Pack { digest: Some(digest), objects });
            }
            // The name is reserved by an upload that failed. With one byte more it is another name.
            content.push(0);
        }
        let why = "the service reserves names without taking objects";
        Err(RemoteError::failed(&self.name, None, Trouble::Busy, why))
    }

    /// Adds packs to the index. Returns the keys that existed already.
    ///
    /// A writer whose upload took long may have been taken for dead, and then the indexes after its
    /// own lack its packs. It looks for that, and adds them again.
    async fn write_index(&self, new: Vec<Pack>) -> Result<HashSet<Key>, RemoteError> {
        let keys: HashSet<Key> = new.iter().flat_map(|pack| &pack.objects).map(|(key, _)| *key).collect();
        // What existed before our first index, and when each number was first refused.
        let (mut before, mut refused) = (None, HashMap::new());
        for attempt in 0..TRIES_MAX {
            let mut index = self.index.lock().await;
            self.refresh(&mut index).await?;
            let there: HashSet<Key> = keys.iter().filter(|key| index.0.place(key).is_some()).copied().collect();
            if there == keys {
                return Ok(before.unwrap_or(there));
            }
            let is_over = |first: &Instant| first.elapsed() >= UNFINISHED_WAIT;
            let is_taken = |at: &(u64, u64)| refused.get(at).is_some_and(is_over);
            let Some(next) = index.0.next((self.policy.today)(), is_taken, &new) else {
                let why = "the index of today is full, and the next day begins a new one";
                return Err(RemoteError::failed(&self.name, None, Trouble::Full, why));
            };
            let start = Instant::now();
            if self.write_one(next.key, next.bytes.clone()).await? == Stored::New {
                index.0.written(next, new.clone());
                let took = start.elapsed();
                if took < UNFINISHED_WAIT / 2 {
                    return Ok(before.unwrap_or(there));
                }
                before.get_or_insert(there);
                drop(index);
                self.wait.about(took).await;
                continue;
            }
            refused.entry(next.at).or_insert(start);
            drop(index);
            self.wait.backoff(attempt, Duration::from_millis(50), Duration::from_secs(2)).await;
        }
        let why = "other writers kept changing the index";
        Err(RemoteError::failed(&self.name, None, Trouble::Busy, why))
    }

    /// Uploads one object within the limit. After a transient error it waits and tries again.
    async fn write_one(&self, key: Key, bytes: Bytes) -> Result<Stored, RemoteError> {
        let mut attempt = 0;
        loop {
            self.uploads.turn().await;
            match self.inner.put(key, bytes.len() as u64, whole(bytes.clone()), Put::IfAbsent).await {
                Err(error)
                    if (error.is_passing() || error.trouble() == Some(Trouble::Open)) && attempt + 1 < UPLOADS_MAX =>
                {
                    self.wait.about(Duration::from_millis(250) * (1 << attempt)).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

impl Remote for Packs {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn abilities(&self) -> Abilities {
        self.shared.inner.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(self.shared.get(key))
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(self.shared.put(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(self.shared.has(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    /// Another client with the same rights may upload anything under a free name. It costs an
    /// object at most one download that is refused, and not its place for ever.
    #[test]
    fn an_index_that_lies_keeps_no_object_away() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        let policy = PackPolicy { gather: Duration::ZERO, today: || 20_000, ..PackPolicy::default() };
        let mine = Bytes::from_static(b"mine");
        let key = Key::blob(Digest::of(&mine));
        let valid = compression::pack(b"else");
        let huge = vec![0; 2 * PACK_BYTES_MAX + 1];
        let cases = [
            ("other bytes", Digest::of(&valid), valid.clone(), 4),
            ("more than the pack has", Digest::of(&valid), valid.clone(), 1 << 40),
            ("no pack", Digest::of(b"\xffno pack"), b"\xffno pack".to_vec(), 4),
            ("a pack with another digest", Digest::of(b"another"), valid, 4),
            ("a pack that is too large", Digest::of(&huge), huge, 4),
        ];
        for (case, digest, bytes, size) in cases {
            let abilities = Abilities { replace: false, swap: false, ..Memory::new("memory://").abilities() };
            let memory: Arc<dyn Remote> = Arc::new(Memory::with("memory://", abilities));
            let client = || Packs::new(Arc::clone(&memory), 600, policy, 1);
            let read = async |client: &Packs| match client.get(key).await? {
                Some((_, body)) => collect("memory://", key, body, 100).await.map(Some),
                None => Ok(None),
            };
            let lie = [Pack { digest: Some(digest), objects: vec![(key, size)] }];
            runtime.block_on(async {
                let lying = Index::default().next(20_000, |_| false, &lie).expect("the chain is empty");
                for (key, bytes) in [(Key::blob(digest), bytes.into()), (lying.key, lying.bytes)] {
                    let size = bytes.len() as u64;
                    memory.put(key, size, whole(bytes), Put::IfAbsent).await.expect("is stored");
                }
                let first = client();
                assert!(read(&first).await.is_err_and(|error| is_wrong(&error)), "{case}");
                assert_eq!(read(&first).await.expect("is a miss"), None, "{case}");
                let stored = first.put(key, 4, whole(mine.clone()), Put::IfAbsent).await.expect("is stored");
                assert_eq!(stored, Stored::New, "{case}");
                assert_eq!(read(&first).await.expect("reads"), Some(mine.clone()), "{case}");
                let second = client();
                assert!(read(&second).await.is_err(), "{case}");
                assert_eq!(read(&second).await.expect("reads"), Some(mine.clone()), "{case}");
            });
        }
    }
}
