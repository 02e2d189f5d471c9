//! Fetching ahead: when a build begins in a checkout, the records that builds of its commit used elsewhere, or of a
//! commit before it, are fetched in bulk before they are asked for. And the other way: the list of what is used here,
//! for others.
//!
//! What is recorded here or was fetched because it was asked for is noted; what a hit used is not, since a hit asks
//! nobody. So the list that a build began with is kept in the new one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_model::{Digest, Fingerprint};
use larder_store::Remote;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::arrival::newest;
use super::far::Failure;
use super::{Shared, on_disk};

/// Records that are fetched at once.
const AT_ONCE: usize = 64;
/// A build that goes on for longer than this, or another one after it, begins anew.
const AGAIN: Duration = Duration::from_secs(600);
/// A list is sent when it was not for so long.
const SETTLED: Duration = Duration::from_secs(2);
/// Commits that are remembered.
const COMMITS_MAX: usize = 256;

/// What comes, once it did.
type Comes = watch::Receiver<Option<Arc<Vec<u8>>>>;

/// What is known of commits, and what is on its way.
#[derive(Default)]
pub(super) struct Ahead {
    commits: Mutex<HashMap<Digest, Commit>>,
    coming: Mutex<HashMap<Fingerprint, Comes>>,
}

#[derive(Default)]
struct Commit {
    /// What others used, as far as that was asked; newest first.
    base: Vec<Fingerprint>,
    /// What was used here, oldest first.
    here: Vec<Fingerprint>,
    known: HashSet<Fingerprint>,
    /// Since when something of that is not sent.
    unsent: Option<Instant>,
    /// When it was last asked.
    begun: Option<Instant>,
}

impl Ahead {
    fn commits(&self) -> MutexGuard<'_, HashMap<Digest, Commit>> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<Fingerprint, Comes>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record is used by a build of this commit.
    pub(super) fn note(&self, commit: Digest, weak: Fingerprint) {
        let mut commits = self.commits();
        if commits.len() >= COMMITS_MAX {
            commits.retain(|_, known| known.unsent.is_some());
        }
        let known = commits.entry(commit).or_default();
        if known.here.len() < larder_remote::USED_MAX && known.known.insert(weak) {
            known.here.push(weak);
            known.unsent.get_or_insert_with(Instant::now);
        }
    }

    /// The records of a fingerprint, where they were on their way: waits for them.
    pub(super) async fn came(&self, weak: &Fingerprint) -> Option<Arc<Vec<u8>>> {
        let mut comes = self.coming().get(weak).cloned()?;
        comes.wait_for(Option::is_some).await.ok()?.clone()
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
            let began = Instant::now();
            match shared.fetch_ahead(&commits).await {
                Ok(0) => {}
                Ok(count) => (shared.log)(&format!("{count} records were fetched ahead in {:.2?}", began.elapsed())),
                Err(error) => (shared.log)(&format!("nothing is fetched ahead: {error}")),
            }
        });
    }
}

/// Records that are on their way; whoever waits for them goes on when this is dropped.
struct Coming {
    shared: Arc<Shared>,
    weak: Fingerprint,
    end: watch::Sender<Option<Arc<Vec<u8>>>>,
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
        let (shared, weaks) = (Arc::clone(self), used.clone());
        let absent = on_disk(&Handle::current(), move || shared.absent(weaks)).await.unwrap_or_default();
        if let Some(commit) = commits.first() {
            let mut commits = self.ahead.commits();
            let known = commits.entry(*commit).or_default();
            known.known.extend(&used);
            known.base = used;
        }
        // In the order in which they were used: so they will be asked for.
        let coming: Vec<Coming> = absent.into_iter().rev().map(|weak| self.is_coming(weak)).collect();
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let mut records = JoinSet::new();
        for one in coming {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
            records.spawn(fetch(Arc::clone(self), one, permit));
        }
        let count = records.join_all().await.into_iter().filter(|came| *came).count();
        self.count(Remote::Prefetched, count as u64);
        self.count(Remote::Refused, self.far().refused());
        Ok(count)
    }

    fn is_coming(self: &Arc<Self>, weak: Fingerprint) -> Coming {
        let (end, comes) = watch::channel(None);
        self.ahead.coming().insert(weak, comes);
        Coming { shared: Arc::clone(self), weak, end }
    }

    /// Those of which the store has no record.
    fn absent(&self, weaks: Vec<Fingerprint>) -> Vec<Fingerprint> {
        let Ok(store) = self.store() else { return Vec::new() };
        weaks.into_iter().filter(|weak| !matches!(store.read_manifest(weak, false), Ok(Some(_)))).collect()
    }
}

/// Fetch the records of a fingerprint, and what the newest of them needs.
async fn fetch(shared: Arc<Shared>, coming: Coming, permit: OwnedSemaphorePermit) -> bool {
    let came = match shared.far().records(&coming.weak).await {
        Ok(Some(bytes)) => Arc::new(bytes),
        Ok(None) => return false,
        Err(error) => {
            (shared.log)(&format!("records cannot be fetched ahead: {error}"));
            return false;
        }
    };
    let Some(alone) = newest(&came) else { return false };
    shared.count(Remote::BytesIn, came.len() as u64);
    let missing = shared.missing(&alone.blobs);
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
        publish(&shared, SETTLED).await;
    }
}

/// Send all lists of which something was not sent.
pub(super) async fn publish_now(shared: &Arc<Shared>) {
    publish(shared, Duration::ZERO).await;
}

async fn publish(shared: &Arc<Shared>, settled: Duration) {
    let is_due = |known: &Commit| known.unsent.is_some_and(|since| since.elapsed() >= settled);
    let due: Vec<(Digest, Vec<Fingerprint>, Option<Instant>)> = {
        let mut commits = shared.ahead.commits();
        let due = commits.iter_mut().filter(|(_, known)| is_due(known));
        due.map(|(commit, known)| {
            let all = known.here.iter().rev().chain(&known.base).copied().collect();
            (*commit, all, known.unsent.take())
        })
        .collect()
    };
    for (commit, all, since) in due {
        if let Err(error) = shared.far().publish_used(&commit, &all).await {
            (shared.log)(&format!("a list of records cannot be sent: {error}"));
            if let Some(known) = shared.ahead.commits().get_mut(&commit) {
                known.unsent = since;
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
        for came in [None, Some(Arc::new(b"manifest".to_vec()))] {
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
        ahead.commits().get_mut(&commit).expect("is known").known.insert(weak);
        ahead.note(commit, weak);
        assert!(ahead.commits()[&commit].unsent.is_none(), "the list has it already");
        ahead.note(commit, Digest([4; 32]));
        assert!(ahead.commits()[&commit].unsent.is_some());
    }
}
