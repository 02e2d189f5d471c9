//! Maps a directory to the commits under which other machines know its contents: the commit that is
//! checked out there, and its ancestors.
//!
//! A commit's hash is the same everywhere, so it identifies the repository as well. The commits
//! come from `git`, because only git knows where they are stored; answers are cached for a short
//! time.
//!
//! Unaware of: which lists are kept under a commit.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_git::{GitError, Repository, top};
use larder_model::Digest;
use parking_lot::{Condvar, Mutex};

/// How long an answer is valid without asking again, because a build does not check out another
/// commit.
const COARSE: Duration = Duration::from_secs(10);
/// The largest number of commits for which lists are requested: the checked-out one and its
/// ancestors.
const COMMITS_MAX: usize = 12;
/// The timeout of each call of `git`, because a repository may lie on a disk that hangs.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a repository that timed out is not asked again.
const HANGS: Duration = Duration::from_secs(300);
/// The largest number of checkouts in the cache.
const REMEMBERED_MAX: usize = 256;

/// A commit and its ancestors, as digests under which their lists are kept, the newest first.
pub(crate) type Commits = Vec<Digest>;

/// The cached commits of checkouts, and until when they are valid.
#[derive(Default)]
pub(crate) struct CommitScope {
    known: Mutex<HashMap<PathBuf, CheckoutState>>,
    answered: Condvar,
}

/// The state of one checkout.
enum CheckoutState {
    /// Another thread is asking `git`.
    Asked,
    Answered(Instant, Commits),
}

/// A running question to `git`. Dropping it wakes the threads that wait for the answer.
struct Asking<'a> {
    commit_scope: &'a CommitScope,
    top: &'a Path,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut known = self.commit_scope.known.lock();
        if let Some(CheckoutState::Asked) = known.get(self.top) {
            known.remove(self.top);
        }
        self.commit_scope.answered.notify_all();
    }
}

impl CommitScope {
    /// Returns the commits of the checkout that contains a directory, or none if it is in no
    /// checkout. May block on `git`, which runs once even if several threads ask at the same time.
    pub(crate) fn commits(&self, directory: &[u8]) -> Commits {
        self.look(directory, true)
    }

    /// Like [`Self::commits`], but returns no commits instead of waiting if another thread is
    /// asking `git`.
    pub(crate) fn commits_unless_asked(&self, directory: &[u8]) -> Commits {
        self.look(directory, false)
    }

    fn look(&self, directory: &[u8], waits: bool) -> Commits {
        let Some(top) = top(Path::new(OsStr::from_bytes(directory))) else { return Commits::new() };
        let mut known = self.known.lock();
        loop {
            match known.get(&top) {
                Some(CheckoutState::Answered(until, commits)) if Instant::now() < *until => return commits.clone(),
                Some(CheckoutState::Asked) if !waits => return Commits::new(),
                Some(CheckoutState::Asked) => self.answered.wait(&mut known),
                Some(CheckoutState::Answered(..)) | None => break,
            }
        }
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, one| matches!(one, CheckoutState::Asked));
        }
        known.insert(top.clone(), CheckoutState::Asked);
        drop(known);
        let asking = Asking { commit_scope: self, top: &top };
        let asked = ask(&top, PATIENCE);
        let until = Instant::now() + if asked.is_some() { COARSE } else { HANGS };
        let commits = asked.unwrap_or_default();
        self.known.lock().insert(top.clone(), CheckoutState::Answered(until, commits.clone()));
        drop(asking);
        commits
    }
}

/// Returns the checked-out commit and its ancestors, or `None` if `git` did not answer in time.
fn ask(top: &Path, patience: Duration) -> Option<Commits> {
    let count = format!("--max-count={COMMITS_MAX}");
    let repository = Repository::open(top, patience);
    let said = match repository.and_then(|repository| repository.ask(&["rev-list", &count, "--first-parent", "HEAD"])) {
        Err(GitError::Hangs(_)) => return None,
        // If git fails, the directory counts as having no commits.
        said => said.unwrap_or_default(),
    };
    let names = said.split(|byte| *byte == b'\n').filter(|name| name.len() >= 40);
    Some(names.map(|name| Digest::of(&[b"commit ", name].concat())).collect())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn commits_are_those_of_the_checkout() {
        let dir = tempfile::tempdir().expect("a directory");
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).expect("makes");
        let git = |words: &[&str]| {
            let identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"];
            let done = Command::new("git").args(identity).args(words).current_dir(dir.path()).output();
            done.is_ok_and(|output| output.status.success())
        };
        if !git(&["init", "-q"]) {
            eprintln!("skipped: git is not installed");
            return;
        }
        let asked = |path: &Path| CommitScope::default().commits(path.as_os_str().as_bytes());
        assert_eq!(asked(&below), [], "nothing is committed");
        assert!(git(&["commit", "-q", "--allow-empty", "-m", "one"]));
        let one = asked(&below);
        assert!(git(&["commit", "-q", "--allow-empty", "-m", "two"]));
        let two = asked(dir.path());
        assert_eq!((one.len(), two.len()), (1, 2));
        assert_eq!(one[0], two[1]);
        assert_eq!(asked(Path::new("/proc")), []);
        // Threads that ask at the same time all get the same answer.
        let commit_scope = CommitScope::default();
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| commit_scope.commits(below.as_os_str().as_bytes()))).collect();
            threads.into_iter().map(|thread| thread.join().expect("ends")).collect::<Vec<_>>()
        });
        assert!(all.iter().all(|commits| *commits == two), "{all:?}");
        let top = dir.path().to_owned();
        commit_scope.known.lock().insert(top.clone(), CheckoutState::Asked);
        assert_eq!(commit_scope.commits_unless_asked(below.as_os_str().as_bytes()), []);
        drop(Asking { commit_scope: &commit_scope, top: &top });
        assert_eq!(commit_scope.commits_unless_asked(below.as_os_str().as_bytes()), two);
        assert_eq!(asked(Path::new("relative")), []);
    }

    #[test]
    fn a_repository_that_hangs_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        for below in ["refs", "objects"] {
            std::fs::create_dir_all(dir.path().join(".git").join(below)).expect("makes");
        }
        std::fs::write(dir.path().join(".git/HEAD"), "ref: refs/heads/main\n").expect("writes");
        // A process that opens the FIFO blocks until there is a writer.
        let made = Command::new("mkfifo").arg(dir.path().join(".git/packed-refs")).status();
        if !made.is_ok_and(|made| made.success()) || Command::new("git").arg("--version").output().is_err() {
            eprintln!("skipped: mkfifo or git is not installed");
            return;
        }
        assert_eq!(ask(dir.path(), Duration::from_millis(200)), None);
        let began = Instant::now();
        let commit_scope = CommitScope::default();
        for _ in 0..20 {
            assert_eq!(commit_scope.commits(dir.path().as_os_str().as_bytes()), []);
        }
        assert!(began.elapsed() < PATIENCE * 10, "git is asked only once");
    }
}
