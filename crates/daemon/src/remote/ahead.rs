//! Fetching ahead: when a build begins in a checkout, the records that builds of its commit used elsewhere, or of a commit
//! before it, are fetched in bulk before they are asked for. And the other way: the list of what is used here, for others.
//!
//! What is recorded here or was fetched because it was asked for is noted; what a hit used is not, since a hit asks nobody. So
//! the list that a build began with is kept in the new one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_model::{Digest, Fingerprint, Manifest};
use larder_store::{Remote, Upload};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::arrival::{Alone, alone, believed};
use super::used::Used;
use super::{Shared, on_disk};

/// Manifests that are asked for in one request, and such requests at once.
const BATCH: usize = 64;
const BATCHES_AT_ONCE: usize = 4;
/// Records whose blobs are fetched at once.
const RECORDS_AT_ONCE: usize = 16;
/// A build that goes on for longer than this, or another one after it, begins anew.
const AGAIN: Duration = Duration::from_secs(600);
/// A list is sent when nothing was added for so long.
const SETTLED: Duration = Duration::from_secs(2);
/// Commits that are remembered.
const COMMITS_MAX: usize = 256;

/// What is known of commits, and what is on its way.
#[derive(Default)]
pub(super) struct Ahead {
    commits: Mutex<HashMap<Digest, Commit>>,
    coming: Mutex<HashMap<Fingerprint, watch::Receiver<()>>>,
}

#[derive(Default)]
struct Commit {
    /// What others used, as far as that was asked.
    base: Used,
    /// What was used here.
    here: Used,
    /// Since when something of that is not sent.
    unsent: Option<Instant>,
    /// When it was last asked.
    begun: Option<Instant>,
}

impl Ahead {
    fn commits(&self) -> MutexGuard<'_, HashMap<Digest, Commit>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<Fingerprint, watch::Receiver<()>>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record is used by a build of this commit.
    pub(super) fn note(&self, commit: Digest, record: Upload) {
        let mut commits = self.commits();
        if commits.len() >= COMMITS_MAX {
            commits.retain(|_, known| known.unsent.is_some());
        }
        let known = commits.entry(commit).or_default();
        if !known.base.contains(&record) && known.here.add(record) {
            known.unsent = Some(Instant::now());
        }
    }

    /// Whether the records of a fingerprint were on their way, and waits for them.
    pub(super) async fn came(&self, weak: &Fingerprint) -> bool {
        let coming = self.coming().get(weak).cloned();
        match coming {
            // Its end is that it is dropped.
            Some(mut coming) => coming.changed().await.is_err(),
            None => false,
        }
    }

    /// Whether it is time to ask after this commit; notes that it was.
    fn begins(&self, commit: &Digest) -> bool {
        let mut commits = self.commits();
        let known = commits.entry(*commit).or_default();
        let begins = known.begun.is_none_or(|begun| begun.elapsed() >= AGAIN);
        if begins {
            known.begun = Some(Instant::now());
        }
        begins
    }
}

/// Where a build begins: fetch what its commit used elsewhere.
pub(super) fn begin(shared: &Arc<Shared>, handle: &Handle, directory: &[u8]) {
    let commits = shared.places.commits(directory);
    if commits.first().is_some_and(|commit| shared.ahead.begins(commit)) {
        let shared = Arc::clone(shared);
        handle.spawn(async move {
            match shared.fetch_ahead(&commits).await {
                Ok(0) => {}
                Ok(count) => (shared.log)(&format!("{count} records were fetched ahead")),
                Err(error) => (shared.log)(&format!("nothing is fetched ahead: {error}")),
            }
        });
    }
}

/// A record that is on its way; whoever waits for it goes on when this is dropped.
struct Coming {
    shared: Arc<Shared>,
    weak: Fingerprint,
    _end: watch::Sender<()>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.shared.ahead.coming().remove(&self.weak);
    }
}

impl Shared {
    /// Fetch what the newest of these commits used of which there is a list. Returns how many records came.
    pub(super) async fn fetch_ahead(self: &Arc<Self>, commits: &[Digest]) -> Result<usize, String> {
        if !self.expected.may_ask(Instant::now()) {
            return Ok(0);
        }
        let lists = self.far.used(commits).await?;
        let Some(used) = lists.into_iter().flatten().find_map(|bytes| Used::decode(&bytes).ok()) else { return Ok(0) };
        if let Some(commit) = commits.first() {
            self.ahead.commits().entry(*commit).or_default().base = used.clone();
        }
        let (shared, records) = (Arc::clone(self), used.records().to_vec());
        let absent = on_disk(&Handle::current(), move || shared.absent(records)).await.unwrap_or_default();
        let coming: Vec<(Upload, Coming)> =
            absent.into_iter().map(|record| (record, self.is_coming(record.0))).collect();
        let (room, batches_room) =
            (Arc::new(Semaphore::new(RECORDS_AT_ONCE)), Arc::new(Semaphore::new(BATCHES_AT_ONCE)));
        let mut batches = JoinSet::new();
        let mut rest = coming.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<_> = rest.by_ref().take(BATCH).collect();
            let Ok(permit) = Arc::clone(&batches_room).acquire_owned().await else { break };
            batches.spawn(batch_of(Arc::clone(self), batch, Arc::clone(&room), permit));
        }
        let count = batches.join_all().await.into_iter().sum();
        self.count(Remote::Prefetched, count as u64);
        Ok(count)
    }

    fn is_coming(self: &Arc<Self>, weak: Fingerprint) -> Coming {
        let (end, coming) = watch::channel(());
        self.ahead.coming().insert(weak, coming);
        Coming { shared: Arc::clone(self), weak, _end: end }
    }

    /// The records of a list that are not in the store.
    fn absent(&self, records: Vec<Upload>) -> Vec<Upload> {
        let Ok(store) = self.store() else { return Vec::new() };
        let is_there = |(weak, strong): &Upload| {
            let file = store.read_manifest(weak, false).ok().flatten();
            file.is_some_and(|file| {
                let manifest = Manifest::decode(&file.bytes);
                manifest.is_ok_and(|manifest| manifest.entries.iter().any(|entry| entry.strong == *strong))
            })
        };
        records.into_iter().filter(|record| !is_there(record)).collect()
    }
}

/// Fetch the records of a batch that a remote has. Returns how many came.
async fn batch_of(
    shared: Arc<Shared>,
    batch: Vec<(Upload, Coming)>,
    room: Arc<Semaphore>,
    permit: OwnedSemaphorePermit,
) -> usize {
    let weaks: Vec<Fingerprint> = batch.iter().map(|((weak, _), _)| *weak).collect();
    let came = match shared.far.many_records(&weaks).await {
        Ok(came) => came,
        Err(error) => {
            (shared.log)(&format!("records cannot be fetched ahead: {error}"));
            return 0;
        }
    };
    drop(permit);
    let mut records = JoinSet::new();
    for (((weak, strong), coming), bytes) in batch.into_iter().zip(came) {
        let Some(bytes) = bytes else { continue };
        let (believed, refused) = believed(&bytes, &weak);
        if refused > 0 {
            shared.count(Remote::Refused, refused);
        }
        if let Some(alone) = believed.and_then(|bytes| alone(&bytes, &strong))
            && let Ok(permit) = Arc::clone(&room).acquire_owned().await
        {
            records.spawn(one(Arc::clone(&shared), alone, coming, permit));
        }
    }
    records.join_all().await.into_iter().filter(|done| *done).count()
}

async fn one(shared: Arc<Shared>, alone: Alone, coming: Coming, permit: OwnedSemaphorePermit) -> bool {
    let missing = shared.missing(&alone.blobs);
    let done = shared.take(alone, missing, None).await.is_ok();
    drop((coming, permit));
    done
}

/// Send lists that have settled, for ever.
pub(super) async fn publish_lists(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SETTLED / 2).await;
        publish(&shared, SETTLED).await;
    }
}

/// Send all lists of which something was not sent.
pub(super) async fn publish_now(shared: &Arc<Shared>) {
    publish(shared, Duration::ZERO).await;
}

async fn publish(shared: &Arc<Shared>, settled: Duration) {
    let is_due = |known: &Commit| known.unsent.is_some_and(|since| since.elapsed() >= settled);
    let due: Vec<(Digest, Used)> = {
        let commits = shared.ahead.commits();
        let due = commits.iter().filter(|(_, known)| is_due(known));
        due.map(|(commit, known)| {
            let mut all = known.base.clone();
            all.extend(&known.here);
            (*commit, all)
        })
        .collect()
    };
    for (commit, mut all) in due {
        // What others added meanwhile stays. Of two who send at once one may be lost, until it builds again.
        let there = shared.far.used(&[commit]).await.ok().and_then(|lists| lists.into_iter().flatten().next());
        if let Some(there) = there.and_then(|bytes| Used::decode(&bytes).ok()) {
            all.extend(&there);
        }
        match shared.far.publish_used(&commit, all.encode()).await {
            Ok(()) => {
                if let Some(known) = shared.ahead.commits().get_mut(&commit)
                    && is_due(known)
                {
                    known.unsent = None;
                }
            }
            Err(error) => (shared.log)(&format!("a list of records cannot be sent: {error}")),
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
        assert!(!runtime.block_on(ahead.came(&weak)), "nothing is on its way");
        let (end, coming) = watch::channel(());
        ahead.coming().insert(weak, coming);
        let (came, ()) = runtime.block_on(async { tokio::join!(ahead.came(&weak), async { drop(end) }) });
        assert!(came);
    }

    #[test]
    fn what_is_used_is_noted_once() {
        let ahead = Ahead::default();
        let (commit, record) = (Digest([1; 32]), (Digest([2; 32]), Digest([3; 32])));
        assert!(ahead.begins(&commit) && !ahead.begins(&commit));
        ahead.commits().get_mut(&commit).expect("is known").base.add(record);
        ahead.note(commit, record);
        assert!(ahead.commits()[&commit].unsent.is_none(), "the list has it already");
        ahead.note(commit, (Digest([4; 32]), Digest([3; 32])));
        assert!(ahead.commits()[&commit].unsent.is_some());
    }
}
