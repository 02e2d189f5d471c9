//! Prefetch. When a build begins in a checkout, larderd downloads in bulk the records that builds
//! of the same commit (or of an ancestor) used on other machines. Most come in bundles, the rest
//! one by one. In the other direction, it uploads the list of records used here, and bundles of
//! them.
//!
//! The list of a commit gets records that were made here and records that were downloaded on
//! request. Hits in the local store are missing, because a hit does not contact larderd. To keep
//! them, the new list includes the list with which the build began.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_model::{Digest, Fingerprint, Manifest};
use larder_remote::{Bundle, Hint, Used, Whole};
use larder_store::Remote;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::prefetch_state::{Commit, known};
use super::remote_client::Failure;
use super::shared::{Shared, on_disk};
use super::single_record::newest;

/// The number of records that are downloaded one by one at the same time.
const AT_ONCE: usize = 64;
/// The number of bundles in memory at once. Each unpacks to about 2 MiB (`remote/src/bundle.rs`).
const BUNDLES_AT_ONCE: usize = 12;
/// A bundle is downloaded only if at least one in this many of its records is wanted. Otherwise the
/// wanted ones are downloaded one by one.
const WANTED_OF: usize = 8;

/// A list is uploaded when nothing was added to it for this time,
const SETTLED: Duration = Duration::from_secs(2);
/// or when something in it has waited for upload for this time.
const OVERDUE: Duration = Duration::from_secs(30);

/// Starts a prefetch for a build in `directory`, if it is time for one. It runs in the background,
/// so the caller does not wait for `git`.
pub(super) fn begin(shared: &Arc<Shared>, handle: &Handle, directory: &[u8]) {
    let (shared, directory) = (Arc::clone(shared), directory.to_vec());
    handle.spawn(async move {
        let (began, asking) = (Instant::now(), Arc::clone(&shared));
        // If another thread is asking git for this checkout, that thread starts the prefetch.
        let asks = move || asking.commit_scope.commits_unless_asked(&directory);
        let commits = on_disk(&Handle::current(), asks).await.unwrap_or_default();
        if !commits.first().is_some_and(|commit| shared.prefetching.begins(commit)) {
            return;
        }
        match shared.prefetch(&commits).await {
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
        self.shared.prefetching.coming.lock().remove(&self.weak);
    }
}

impl Shared {
    /// Prefetches the list of the newest of these commits that has one. Returns the number of
    /// records that arrived.
    pub(super) async fn prefetch(self: &Arc<Self>, commits: &[Digest]) -> Result<usize, Failure> {
        if !self.latencies.may_ask(Instant::now()) {
            return Ok(0);
        }
        let used = self.client().used(commits).await?;
        let (shared, list) = (Arc::clone(self), used.clone());
        let absent = on_disk(&Handle::current(), move || shared.absent(&list)).await.unwrap_or_default();
        if let Some(commit) = commits.first() {
            let mut commits = self.prefetching.commits.lock();
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
        self.count(Remote::Refused, self.client().refused());
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
        let Some(unpacked) = self.client().bundle(bundle).await else { return (0, wanted.into_values().collect()) };
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
        self.prefetching.coming.lock().insert(weak, comes);
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
    let came = match shared.client().records(&coming.weak).await {
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
    if !shared.has_prefetch_room(&missing) {
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
        let mut commits = shared.prefetching.commits.lock();
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
        match shared.client().publish_used(&commit, &here, &base, &reading).await {
            Ok(bytes) => shared.count(Remote::BytesOut, bytes),
            Err(error) => {
                (shared.log)(&format!("a list of records cannot be uploaded: {error}"));
                if let Some(known) = shared.prefetching.commits.lock().get_mut(&commit) {
                    known.unsent = since;
                }
            }
        }
    }
}
