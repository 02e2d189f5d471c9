//! Prefetch. When a build begins in a checkout, larderd downloads in bulk the records that builds
//! of the same commit (or of an ancestor) used on other machines. Most come in bundles, the rest
//! one by one. In the other direction, it uploads the list of records used here, and bundles of
//! them.
//!
//! The list of a commit gets records that were made here and records that were downloaded on
//! request. Hits in the local store are missing, because a hit does not contact larderd. To keep
//! them, the new list includes the list with which the build began.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_model::{Digest, Fingerprint, Manifest};
use larder_remote::{Bundle, Hint, Used, Whole};
use larder_store::Remote;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::arrival::newest;
use super::far::Failure;
use super::{Shared, on_disk};

/// The number of records that are downloaded one by one at the same time.
const AT_ONCE: usize = 64;
/// The number of bundles in memory at once. Each unpacks to about 2 MiB (`remote/src/bundle.rs`).
const BUNDLES_AT_ONCE: usize = 12;
/// A bundle is downloaded only if at least one in this many of its records is wanted. Otherwise the
/// wanted ones are downloaded one by one.
const WANTED_OF: usize = 8;
/// After this time, the next request of a build of the same commit starts a prefetch again.
const AGAIN: Duration = Duration::from_secs(600);
/// A list is uploaded when nothing was added to it for this time,
const SETTLED: Duration = Duration::from_secs(2);
/// or when something in it has waited for upload for this time.
const OVERDUE: Duration = Duration::from_secs(30);
/// The limits of what is remembered: commits, and fingerprints of all commits, which take up to
/// about 120 bytes each.
const COMMITS_MAX: usize = 256;
const FINGERPRINTS_MAX: usize = 16 * larder_remote::USED_MAX;

/// Receives the manifest of a prefetched record when it has arrived.
type Comes = watch::Receiver<Option<Bytes>>;

/// The known commits, and the records that are being prefetched.
#[derive(Default)]
pub(super) struct Ahead {
    commits: Mutex<HashMap<Digest, Commit>>,
    coming: Mutex<HashMap<Fingerprint, Comes>>,
}

#[derive(Default)]
struct Commit {
    /// The list that the last prefetch downloaded; empty if there was none.
    base: Used,
    /// The fingerprints of `base`, for lookup.
    elsewhere: HashSet<Fingerprint>,
    /// The records that were used here, oldest first.
    here: Vec<Fingerprint>,
    known: HashSet<Fingerprint>,
    /// The time since which a part of `here` waits to be uploaded, or `None`.
    unsent: Option<Instant>,
    /// The time when something was last added to `here`.
    added: Option<Instant>,
    /// The time when a prefetch last began.
    begun: Option<Instant>,
}

impl Commit {
    fn fingerprints(&self) -> usize {
        self.base.weaks.len() + self.here.len()
    }
}

/// Returns the state of a commit, created if it is new. If too much is remembered, other commits
/// are dropped first: those with nothing left to upload before the others, and the oldest before
/// the newer.
fn known(commits: &mut HashMap<Digest, Commit>, commit: Digest) -> &mut Commit {
    let is_much = |commits: &HashMap<Digest, Commit>| {
        commits.len() >= COMMITS_MAX || commits.values().map(Commit::fingerprints).sum::<usize>() >= FINGERPRINTS_MAX
    };
    while !commits.contains_key(&commit) && is_much(commits) {
        let oldest = commits.iter().min_by_key(|(_, known)| (known.unsent.is_some(), known.added.max(known.begun)));
        let Some(oldest) = oldest.map(|(commit, _)| *commit) else { break };
        commits.remove(&oldest);
    }
    commits.entry(commit).or_default()
}

impl Ahead {
    fn commits(&self) -> MutexGuard<'_, HashMap<Digest, Commit>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<Fingerprint, Comes>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a record was downloaded for a build of this commit.
    pub(super) fn note(&self, commit: Digest, weak: Fingerprint) {
        self.add(commit, weak, |known| !known.elsewhere.contains(&weak));
    }

    /// Notes that a build of this commit made a record. It is newer than what others may have, so
    /// it counts even if their list has the fingerprint.
    pub(super) fn note_new(&self, commit: Digest, weak: Fingerprint) {
        self.add(commit, weak, |_| true);
    }

    fn add(&self, commit: Digest, weak: Fingerprint, is_new: impl Fn(&Commit) -> bool) {
        let mut commits = self.commits();
        let known = known(&mut commits, commit);
        if known.here.len() < larder_remote::USED_MAX && is_new(known) && known.known.insert(weak) {
            known.here.push(weak);
            known.unsent.get_or_insert_with(Instant::now);
            known.added = Some(Instant::now());
        }
    }

    /// Waits for the manifest of a fingerprint if it is being prefetched, and returns it. Returns
    /// `None` if it is not being prefetched or could not be downloaded.
    pub(super) async fn came(&self, weak: &Fingerprint) -> Option<Bytes> {
        let mut comes = self.coming().get(weak).cloned()?;
        comes.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Returns true if it is time to prefetch for this commit, and notes the time.
    fn begins(&self, commit: &Digest) -> bool {
        let mut commits = self.commits();
        let known = known(&mut commits, *commit);
        let begins = known.begun.is_none_or(|begun| begun.elapsed() >= AGAIN);
        if begins {
            known.begun = Some(Instant::now());
        }
        begins
    }
}

/// Starts a prefetch for a build in `directory`, if it is time for one. It runs in the background,
/// so the caller does not wait for `git`.
pub(super) fn begin(shared: &Arc<Shared>, handle: &Handle, directory: &[u8]) {
    let (shared, directory) = (Arc::clone(shared), directory.to_vec());
    handle.spawn(async move {
        let (began, asking) = (Instant::now(), Arc::clone(&shared));
        // If another thread is asking git for this checkout, that thread starts the prefetch.
        let asks = move || asking.places.commits_unless_asked(&directory);
        let commits = on_disk(&Handle::current(), asks).await.unwrap_or_default();
        if !commits.first().is_some_and(|commit| shared.ahead.begins(commit)) {
            return;
        }
        match shared.fetch_ahead(&commits).await {
            Ok(0) => {}
            Ok(count) => (shared.log)(&format!("{count} records were prefetched in {:.2?}", began.elapsed())),
            Err(error) => (shared.log)(&format!("the prefetch failed: {error}")),
        }
    });
}

/// A record that is being prefetched. Dropping it wakes the tasks that wait for the record.
struct Coming {
    shared: Arc<Shared>,
    weak: Fingerprint,
    end: watch::Sender<Option<Bytes>>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.shared.ahead.coming().remove(&self.weak);
    }
}

impl Shared {
    /// Prefetches the list of the newest of these commits that has one. Returns the number of
    /// records that arrived.
    pub(super) async fn fetch_ahead(self: &Arc<Self>, commits: &[Digest]) -> Result<usize, Failure> {
        if !self.expected.may_ask(Instant::now()) {
            return Ok(0);
        }
        let used = self.far().used(commits).await?;
        let (shared, list) = (Arc::clone(self), used.clone());
        let absent = on_disk(&Handle::current(), move || shared.absent(&list)).await.unwrap_or_default();
        if let Some(commit) = commits.first() {
            let mut commits = self.ahead.commits();
            let known = known(&mut commits, *commit);
            known.elsewhere.extend(&used.weaks);
            known.base = used.clone();
        }
        // In the order of use, because the build will ask for them in this order.
        let mut coming: Vec<Coming> = absent.into_iter().rev().map(|weak| self.is_coming(weak)).collect();
        let bundled: HashSet<Fingerprint> =
            used.bundles.iter().flat_map(|one| &one.records).map(|held| held.0).collect();
        let alone = coming.extract_if(.., |one| !bundled.contains(&one.weak)).collect();
        let bundles = self.in_bundles(used.bundles, coming);
        let (one_by_one, (came, rest)) = tokio::join!(self.one_by_one(alone), bundles);
        let count = came + one_by_one + self.one_by_one(rest).await;
        self.count(Remote::Prefetched, count as u64);
        self.count(Remote::Refused, self.far().refused());
        Ok(count)
    }

    /// Downloads these records in bundles. `bundles` has the newest first. Returns how many records
    /// arrived, and the records that did not.
    async fn in_bundles(self: &Arc<Self>, bundles: Vec<Bundle>, coming: Vec<Coming>) -> (usize, Vec<Coming>) {
        let room = Arc::new(Semaphore::new(BUNDLES_AT_ONCE));
        let mut left: HashMap<Fingerprint, Coming> = coming.into_iter().map(|one| (one.weak, one)).collect();
        let mut opened = JoinSet::new();
        let mut shares = Vec::with_capacity(bundles.len());
        // A record in several bundles is taken from the newest. The oldest bundle is downloaded
        // first.
        for bundle in bundles {
            let wanted = bundle.records.iter().filter_map(|(weak, _)| left.remove(weak));
            let wanted: HashMap<Fingerprint, Coming> = wanted.map(|one| (one.weak, one)).collect();
            shares.push((bundle, wanted));
        }
        let mut rest = Vec::new();
        for (bundle, wanted) in shares.into_iter().rev() {
            if wanted.len() * WANTED_OF < bundle.records.len().max(1) {
                rest.extend(wanted.into_values());
                continue;
            }
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
            let shared = Arc::clone(self);
            opened.spawn(async move { shared.open_bundle(&bundle, wanted, permit).await });
        }
        let mut came = 0;
        rest.extend(left.into_values());
        while let Some(done) = opened.join_next().await {
            let Ok((count, missing)) = done else { continue };
            came += count;
            rest.extend(missing);
        }
        (came, rest)
    }

    async fn open_bundle(
        self: &Arc<Self>,
        bundle: &Bundle,
        mut wanted: HashMap<Fingerprint, Coming>,
        permit: OwnedSemaphorePermit,
    ) -> (usize, Vec<Coming>) {
        let Some(unpacked) = self.far().bundle(bundle).await else { return (0, wanted.into_values().collect()) };
        let (shared, handle) = (Arc::clone(self), Handle::current());
        let taken = on_disk(&handle, move || {
            let (all, mut came) = (wanted.len(), Vec::with_capacity(wanted.len()));
            let wants: HashSet<Fingerprint> = wanted.keys().copied().collect();
            shared.take_bundle(
                &unpacked,
                |weak| wants.contains(weak),
                |weak, manifest| {
                    if let Some(coming) = wanted.remove(weak) {
                        let _ = coming.end.send(Some(manifest.clone()));
                        came.push(coming);
                    }
                },
            );
            drop(permit);
            (all - wanted.len(), wanted.into_values().collect())
        });
        taken.await.unwrap_or_default()
    }

    /// Downloads these records one by one. Returns how many arrived.
    async fn one_by_one(self: &Arc<Self>, coming: Vec<Coming>) -> usize {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let mut records = JoinSet::new();
        for one in coming {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
            records.spawn(fetch(Arc::clone(self), one, permit));
        }
        records.join_all().await.into_iter().filter(|came| *came).count()
    }

    fn is_coming(self: &Arc<Self>, weak: Fingerprint) -> Coming {
        let (end, comes) = watch::channel(None);
        self.ahead.coming().insert(weak, comes);
        Coming { shared: Arc::clone(self), weak, end }
    }

    /// Returns the fingerprints whose record is not in the store, or differs from the record in the
    /// newest bundle.
    fn absent(&self, used: &Used) -> Vec<Fingerprint> {
        let Ok(store) = self.store() else { return Vec::new() };
        let mut newest: HashMap<Fingerprint, Hint> = HashMap::new();
        for (weak, hint) in used.bundles.iter().flat_map(|bundle| &bundle.records) {
            newest.entry(*weak).or_insert(*hint);
        }
        let is_here = |weak: &Fingerprint| {
            let Ok(Some(file)) = store.read_manifest(weak, false) else { return false };
            let Ok(mut manifest) = Manifest::decode(&file.bytes) else { return false };
            manifest.keep_believed(&self.how.remote_trust);
            let Some(hint) = newest.get(weak) else { return !manifest.entries.is_empty() };
            Some(manifest).is_some_and(|all| all.entries.iter().any(|entry| entry.strong.0.starts_with(hint)))
        };
        used.weaks.iter().copied().filter(|weak| !is_here(weak)).collect()
    }
}

/// Downloads the manifest of a fingerprint, and the blobs of its newest record.
async fn fetch(shared: Arc<Shared>, coming: Coming, permit: OwnedSemaphorePermit) -> bool {
    let came = match shared.far().records(&coming.weak).await {
        Ok(Some((bytes, _))) => Bytes::from(bytes),
        Ok(None) => return false,
        Err(error) => {
            (shared.log)(&format!("records cannot be prefetched: {error}"));
            return false;
        }
    };
    let Some(alone) = newest(&came) else { return false };
    shared.count(Remote::BytesIn, came.len() as u64);
    let missing = shared.missing(&alone.blobs);
    if !shared.has_room_ahead(&missing) {
        return false;
    }
    let done = shared.take(alone, missing, None).await.is_ok();
    if done {
        let _ = coming.end.send(Some(came));
    }
    drop((coming, permit));
    done
}

/// Uploads lists that have settled, for ever.
pub(super) async fn publish_lists(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SETTLED / 2).await;
        let is_over = |since: Option<Instant>, time| since.is_some_and(|since: Instant| since.elapsed() >= time);
        publish(&shared, |known| is_over(known.added, SETTLED) || is_over(known.unsent, OVERDUE)).await;
    }
}

/// Uploads all lists that have something new.
pub(super) async fn publish_now(shared: &Arc<Shared>) {
    publish(shared, |_| true).await;
}

/// A list to upload: the commit, the records used here (newest first), the list with which the
/// build began, and the time since which it waits.
type Due = (Digest, Vec<Fingerprint>, Used, Option<Instant>);

async fn publish(shared: &Arc<Shared>, is_due: impl Fn(&Commit) -> bool) {
    let due: Vec<Due> = {
        let mut commits = shared.ahead.commits();
        let due = commits.iter_mut().filter(|(_, known)| known.unsent.is_some() && is_due(known));
        due.map(|(commit, known)| {
            let here = known.here.iter().rev().copied().collect();
            (*commit, here, known.base.clone(), known.unsent.take())
        })
        .collect()
    };
    let reading = |weak: Fingerprint, most_bytes: u64| -> BoxFuture<'_, Option<Whole>> {
        let shared = Arc::clone(shared);
        Box::pin(async move { on_disk(&Handle::current(), move || shared.whole(&weak, most_bytes)).await? })
    };
    for (commit, here, base, since) in due {
        match shared.far().publish_used(&commit, &here, &base, &reading).await {
            Ok(bytes) => shared.count(Remote::BytesOut, bytes),
            Err(error) => {
                (shared.log)(&format!("a list of records cannot be uploaded: {error}"));
                if let Some(known) = shared.ahead.commits().get_mut(&commit) {
                    known.unsent = since;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_it_came_or_never_will() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("builds");
        let (ahead, weak) = (Ahead::default(), Digest([1; 32]));
        assert_eq!(runtime.block_on(ahead.came(&weak)), None, "no prefetch is running");
        for came in [None, Some(Bytes::from_static(b"manifest"))] {
            let (end, comes) = watch::channel(None);
            ahead.coming().insert(weak, comes);
            let sent = came.clone();
            let send = async move { sent.map(|sent| end.send(Some(sent))) };
            let (found, _) = runtime.block_on(async { tokio::join!(ahead.came(&weak), send) });
            assert_eq!(found, came);
        }
    }

    #[test]
    fn what_is_used_is_noted_once() {
        let ahead = Ahead::default();
        let (commit, weak) = (Digest([1; 32]), Digest([2; 32]));
        assert!(ahead.begins(&commit) && !ahead.begins(&commit));
        ahead.commits().get_mut(&commit).expect("is known").elsewhere.insert(weak);
        ahead.note(commit, weak);
        assert!(ahead.commits()[&commit].unsent.is_none(), "the list of others has it already");
        ahead.note(commit, Digest([4; 32]));
        assert!(ahead.commits()[&commit].unsent.is_some());
        ahead.note_new(commit, weak);
        ahead.note_new(commit, weak);
        assert_eq!(
            ahead.commits()[&commit].here,
            [Digest([4; 32]), weak],
            "a new record of a fingerprint counts although others have an older one"
        );
    }

    #[test]
    fn what_is_remembered_stays_within_its_limits() {
        let ahead = Ahead::default();
        let commit = |number: usize| Digest::of(&number.to_le_bytes());
        for number in 0..2 * COMMITS_MAX {
            ahead.note(commit(number), Digest([1; 32]));
        }
        let is_known = |number: usize| ahead.commits().contains_key(&commit(number));
        assert_eq!(ahead.commits().len(), COMMITS_MAX);
        assert!(
            !is_known(0) && is_known(2 * COMMITS_MAX - 1),
            "the oldest are dropped although their lists were not uploaded"
        );
        // The newest has nothing to upload, so it is dropped first.
        let newest = commit(2 * COMMITS_MAX);
        assert!(ahead.begins(&newest));
        assert!(ahead.begins(&commit(0)) && !ahead.commits().contains_key(&newest));
        let ahead = Ahead::default();
        for number in 0..40 {
            ahead.begins(&commit(number));
            let weaks = vec![Digest([1; 32]); larder_remote::USED_MAX];
            ahead.commits().get_mut(&commit(number)).expect("is known").base = Used { weaks, bundles: Vec::new() };
        }
        let all = ahead.commits().values().map(Commit::fingerprints).sum::<usize>();
        assert!(all <= FINGERPRINTS_MAX && ahead.commits().contains_key(&commit(39)), "{all}");
    }
}
