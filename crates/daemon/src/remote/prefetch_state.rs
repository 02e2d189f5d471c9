//! What prefetch remembers: the known commits with the records that were used, and the records that
//! are being prefetched.
//!
//! Unaware of: how records are downloaded and uploaded.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_model::{Digest, Fingerprint};
use larder_remote::Used;
use parking_lot::Mutex;
use tokio::sync::watch;

/// After this time, the next request of a build of the same commit starts a prefetch again.
pub(super) const AGAIN: Duration = Duration::from_secs(600);
/// The limits of what is remembered: commits, and fingerprints of all commits, which take up to
/// about 120 bytes each.
pub(super) const COMMITS_MAX: usize = 256;
pub(super) const FINGERPRINTS_MAX: usize = 16 * larder_remote::USED_MAX;

/// Receives the manifest of a prefetched record when it has arrived.
pub(super) type Comes = watch::Receiver<Option<Bytes>>;

/// The known commits, and the records that are being prefetched.
#[derive(Default)]
pub(super) struct Prefetching {
    pub(super) commits: Mutex<HashMap<Digest, Commit>>,
    pub(super) coming: Mutex<HashMap<Fingerprint, Comes>>,
}

#[derive(Default)]
pub(super) struct Commit {
    /// The list that the last prefetch downloaded; empty if there was none.
    pub(super) base: Used,
    /// The fingerprints of `base`, for lookup.
    pub(super) elsewhere: HashSet<Fingerprint>,
    /// The records that were used here, oldest first.
    pub(super) here: Vec<Fingerprint>,
    pub(super) known: HashSet<Fingerprint>,
    /// The time since which a part of `here` waits to be uploaded, or `None`.
    pub(super) unsent: Option<Instant>,
    /// The time when something was last added to `here`.
    pub(super) added: Option<Instant>,
    /// The time when a prefetch last began.
    pub(super) begun: Option<Instant>,
}

impl Commit {
    pub(super) fn fingerprints(&self) -> usize {
        self.base.weaks.len() + self.here.len()
    }
}

/// Returns the state of a commit, created if it is new. If too much is remembered, other commits
/// are dropped first: those with nothing left to upload before the others, and the oldest before
/// the newer.
pub(super) fn known(commits: &mut HashMap<Digest, Commit>, commit: Digest) -> &mut Commit {
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

impl Prefetching {
    /// Notes that a record was downloaded for a build of this commit.
    pub(super) fn note(&self, commit: Digest, weak: Fingerprint) {
        self.add(commit, weak, |known| !known.elsewhere.contains(&weak));
    }

    /// Notes that a build of this commit made a record. It is newer than what others may have, so
    /// it counts even if their list has the fingerprint.
    pub(super) fn note_new(&self, commit: Digest, weak: Fingerprint) {
        self.add(commit, weak, |_| true);
    }

    pub(super) fn add(&self, commit: Digest, weak: Fingerprint, is_new: impl Fn(&Commit) -> bool) {
        let mut commits = self.commits.lock();
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
        let mut comes = self.coming.lock().get(weak).cloned()?;
        comes.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Returns true if it is time to prefetch for this commit, and notes the time.
    pub(super) fn begins(&self, commit: &Digest) -> bool {
        let mut commits = self.commits.lock();
        let known = known(&mut commits, *commit);
        let begins = known.begun.is_none_or(|begun| begun.elapsed() >= AGAIN);
        if begins {
            known.begun = Some(Instant::now());
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_it_came_or_never_will() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("builds");
        let (prefetching, weak) = (Prefetching::default(), Digest([1; 32]));
        assert_eq!(runtime.block_on(prefetching.came(&weak)), None, "no prefetch is running");
        for came in [None, Some(Bytes::from_static(b"manifest"))] {
            let (end, comes) = watch::channel(None);
            prefetching.coming.lock().insert(weak, comes);
            let sent = came.clone();
            let send = async move { sent.map(|sent| end.send(Some(sent))) };
            let (found, _) = runtime.block_on(async { tokio::join!(prefetching.came(&weak), send) });
            assert_eq!(found, came);
        }
    }

    #[test]
    fn what_is_used_is_noted_once() {
        let prefetching = Prefetching::default();
        let (commit, weak) = (Digest([1; 32]), Digest([2; 32]));
        assert!(prefetching.begins(&commit) && !prefetching.begins(&commit));
        prefetching.commits.lock().get_mut(&commit).expect("is known").elsewhere.insert(weak);
        prefetching.note(commit, weak);
        assert!(prefetching.commits.lock()[&commit].unsent.is_none(), "the list of others has it already");
        prefetching.note(commit, Digest([4; 32]));
        assert!(prefetching.commits.lock()[&commit].unsent.is_some());
        prefetching.note_new(commit, weak);
        prefetching.note_new(commit, weak);
        assert_eq!(
            prefetching.commits.lock()[&commit].here,
            [Digest([4; 32]), weak],
            "a new record of a fingerprint counts although others have an older one"
        );
    }

    #[test]
    fn what_is_remembered_stays_within_its_limits() {
        let prefetching = Prefetching::default();
        let commit = |number: usize| Digest::of(&number.to_le_bytes());
        for number in 0..2 * COMMITS_MAX {
            prefetching.note(commit(number), Digest([1; 32]));
        }
        let is_known = |number: usize| prefetching.commits.lock().contains_key(&commit(number));
        assert_eq!(prefetching.commits.lock().len(), COMMITS_MAX);
        assert!(
            !is_known(0) && is_known(2 * COMMITS_MAX - 1),
            "the oldest are dropped although their lists were not uploaded"
        );
        // The newest has nothing to upload, so it is dropped first.
        let newest = commit(2 * COMMITS_MAX);
        assert!(prefetching.begins(&newest));
        assert!(prefetching.begins(&commit(0)) && !prefetching.commits.lock().contains_key(&newest));
        let prefetching = Prefetching::default();
        for number in 0..40 {
            prefetching.begins(&commit(number));
            let weaks = vec![Digest([1; 32]); larder_remote::USED_MAX];
            prefetching.commits.lock().get_mut(&commit(number)).expect("is known").base =
                Used { weaks, bundles: Vec::new() };
        }
        let all = prefetching.commits.lock().values().map(Commit::fingerprints).sum::<usize>();
        assert!(all <= FINGERPRINTS_MAX && prefetching.commits.lock().contains_key(&commit(39)), "{all}");
    }
}
