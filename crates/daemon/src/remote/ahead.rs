//! Fetching ahead: when a build begins in a checkout, the records that builds of its commit used elsewhere, or of a
//! commit before it, are fetched in bulk before they are asked for: most of them in bundles, the rest one by one. And
//! the other way: the list of what is used here, and bundles of it, for others.
//!
//! What is recorded here or was fetched because it was asked for is noted; what a hit used is not, since a hit asks
//! nobody. So the list that a build began with is kept in the new one.

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

/// Records that are fetched at once, one by one.
const AT_ONCE: usize = 64;
/// Bundles that are held at once: each unpacks to about 2 MiB (`remote/src/bundle.rs`).
const BUNDLES_AT_ONCE: usize = 12;
/// A bundle of which less than one record in so many is wanted is not opened for it: that one is fetched by itself.
const WANTED_OF: usize = 8;
/// A build that goes on for longer than this, or another one after it, begins anew.
const AGAIN: Duration = Duration::from_secs(600);
/// A list is sent when nothing was added to it for so long,
const SETTLED: Duration = Duration::from_secs(2);
/// or something in it was not sent for so long.
const OVERDUE: Duration = Duration::from_secs(30);
/// Commits that are remembered, and fingerprints of all of them, which take up to about 120 bytes each.
const COMMITS_MAX: usize = 256;
const FINGERPRINTS_MAX: usize = 16 * larder_remote::USED_MAX;

/// What comes, once it did.
type Comes = watch::Receiver<Option<Bytes>>;

/// What is known of commits, and what is on its way.
#[derive(Default)]
pub(super) struct Ahead {
    commits: Mutex<HashMap<Digest, Commit>>,
    coming: Mutex<HashMap<Fingerprint, Comes>>,
}

#[derive(Default)]
struct Commit {
    /// What others used, as far as that was asked.
    base: Used,
    /// The same, to be looked up.
    elsewhere: HashSet<Fingerprint>,
    /// What was used here, oldest first.
    here: Vec<Fingerprint>,
    known: HashSet<Fingerprint>,
    /// Since when something of that is not sent.
    unsent: Option<Instant>,
    /// When something was last added.
    added: Option<Instant>,
    /// When it was last asked.
    begun: Option<Instant>,
}

impl Commit {
    fn fingerprints(&self) -> usize {
        self.base.weaks.len() + self.here.len()
    }
}

/// One of them. Where too much is remembered, others are forgotten for a new one: first those of which all is sent, of
/// these the oldest.
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

    /// A record was fetched for a build of this commit.
    pub(super) fn note(&self, commit: Digest, weak: Fingerprint) {
        self.add(commit, weak, |known| !known.elsewhere.contains(&weak));
    }

    /// A record was made by a build of this commit: newer than what others may have of it.
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

    /// The records of a fingerprint, where they were on their way: waits for them.
    pub(super) async fn came(&self, weak: &Fingerprint) -> Option<Bytes> {
        let mut comes = self.coming().get(weak).cloned()?;
        comes.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Whether it is time to ask after this commit; notes that it was.
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

/// Where a build begins: fetch what its commit used elsewhere. Nobody waits for `git` to say which that is.
pub(super) fn begin(shared: &Arc<Shared>, handle: &Handle, directory: &[u8]) {
    let (shared, directory) = (Arc::clone(shared), directory.to_vec());
    handle.spawn(async move {
        let (began, asking) = (Instant::now(), Arc::clone(&shared));
        // Whoever asks already fetches ahead as well.
        let asks = move || asking.places.commits_unless_asked(&directory);
        let commits = on_disk(&Handle::current(), asks).await.unwrap_or_default();
        if !commits.first().is_some_and(|commit| shared.ahead.begins(commit)) {
            return;
        }
        match shared.fetch_ahead(&commits).await {
            Ok(0) => {}
            Ok(count) => (shared.log)(&format!("{count} records were fetched ahead in {:.2?}", began.elapsed())),
            Err(error) => (shared.log)(&format!("nothing is fetched ahead: {error}")),
        }
    });
}

/// Records that are on their way; whoever waits for them goes on when this is dropped.
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
    /// Fetch what the newest of these commits used of which there is a list. Returns how many records came.
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
        // In the order in which they were used: so they will be asked for.
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

    /// Fetch these in bundles, newest first. Returns how many came, and those that did not.
    async fn in_bundles(self: &Arc<Self>, bundles: Vec<Bundle>, coming: Vec<Coming>) -> (usize, Vec<Coming>) {
        let room = Arc::new(Semaphore::new(BUNDLES_AT_ONCE));
        let mut left: HashMap<Fingerprint, Coming> = coming.into_iter().map(|one| (one.weak, one)).collect();
        let mut opened = JoinSet::new();
        let mut shares = Vec::with_capacity(bundles.len());
        // What is in several is taken from the newest, and the oldest is fetched first.
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

    /// Fetch these, each by itself. Returns how many came.
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

    /// Those of which the store has no record, or not the one that the newest bundle has.
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

/// Fetch the records of a fingerprint, and what the newest of them needs.
async fn fetch(shared: Arc<Shared>, coming: Coming, permit: OwnedSemaphorePermit) -> bool {
    let came = match shared.far().records(&coming.weak).await {
        Ok(Some((bytes, _))) => Bytes::from(bytes),
        Ok(None) => return false,
        Err(error) => {
            (shared.log)(&format!("records cannot be fetched ahead: {error}"));
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

/// Send lists that have settled, for ever.
pub(super) async fn publish_lists(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SETTLED / 2).await;
        let is_over = |since: Option<Instant>, time| since.is_some_and(|since: Instant| since.elapsed() >= time);
        publish(&shared, |known| is_over(known.added, SETTLED) || is_over(known.unsent, OVERDUE)).await;
    }
}

/// Send all lists of which something was not sent.
pub(super) async fn publish_now(shared: &Arc<Shared>) {
    publish(shared, |_| true).await;
}

/// A list to be sent: whose, what was used here, newest first, what that build began with, since when it waits.
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
                (shared.log)(&format!("a list of records cannot be sent: {error}"));
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
        assert_eq!(runtime.block_on(ahead.came(&weak)), None, "nothing is on its way");
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
        assert!(ahead.commits()[&commit].unsent.is_none(), "the list has it already");
        ahead.note(commit, Digest([4; 32]));
        assert!(ahead.commits()[&commit].unsent.is_some());
        ahead.note_new(commit, weak);
        ahead.note_new(commit, weak);
        assert_eq!(ahead.commits()[&commit].here, [Digest([4; 32]), weak], "made anew, it is not what others have");
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
        assert!(!is_known(0) && is_known(2 * COMMITS_MAX - 1), "though nothing of them was sent");
        // Nothing is to be sent of the newest: it goes first.
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
