//! Replacing existing files, killed at each system call that changes a name. Afterwards the old or
//! the new tree must be complete, or the sweep must say where the old one is.
//!
//! `strace` kills a child of this program when it is about to make the *n*-th call of a kind. It
//! also makes calls fail, like file systems that cannot exchange two names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use larder_image::{Aside, Existing, Left, sweep};

use crate::tree::Place;

/// What the child does, and in which directory.
const WORD: &str = "LARDER_TEST_REPLACE";
const DIR: &str = "LARDER_TEST_DIR";
const CALLS: &[&str] =
    &["rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "fsync", "syncfs"];
/// The most calls of one kind in a run. There are fewer.
const CALLS_MAX: u32 = 100;

/// Returns the files below a directory with their content; `None` if it is not a directory.
fn files(dir: &Path) -> Option<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    if !dir.is_dir() {
        return None;
    }
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).expect("lists").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if name.to_string_lossy().starts_with(".larder-") {
                continue;
            }
            if entry.file_type().expect("is there").is_dir() {
                open.push(path);
            } else {
                let text = fs::read_to_string(&path).expect("reads");
                found.insert(path.strip_prefix(dir).expect("is below").to_owned(), text);
            }
        }
    }
    Some(found)
}

fn make(dir: &Path, word: &str) {
    fs::create_dir_all(dir.join("sub/deep")).expect("makes");
    for name in ["a", "sub/b", "sub/deep/c"] {
        fs::write(dir.join(format!("{name}-{word}")), word).expect("writes");
    }
    fs::write(dir.join("both"), word).expect("writes");
    // Without write permission for its owner it cannot be renamed to another parent directory.
    fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o555)).expect("sets");
}

/// The child that is killed. Without the variables it does nothing.
#[test]
fn replaces() {
    let (Some(word), Some(dir)) = (std::env::var_os(WORD), std::env::var_os(DIR)) else { return };
    let dir = PathBuf::from(dir);
    let target = dir.join("t");
    if word == "aside" {
        let aside = Aside::begin(&target).expect("moves");
        fs::create_dir(&target).expect("makes");
        // Like a mount, it appears at once.
        fs::rename(dir.join("mounted"), &target).expect("is in place");
        return aside.expect("there is something").replaced();
    }
    let store = larder_store::Store::open(&dir.join("store")).expect("opens");
    if word == "inside" {
        std::env::set_current_dir(&target).expect("enters");
    }
    crate::tree::try_restore(&store, "k", &[(0, target)], Existing::Replace).expect("restores");
}

/// Makes the work directory `work` old. Returns true if a sweep of `dir` removes it then.
///
/// A process that another test starts at the same moment holds the locks of this one until it
/// executes its program. So the sweep is tried for a while.
fn is_swept(dir: &Path, work: &Path) -> bool {
    let began = Instant::now();
    while work.exists() && began.elapsed() < Duration::from_secs(20) {
        let hour = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(work).and_then(|work| work.set_modified(hour)).expect("is old");
        sweep(dir);
    }
    !work.exists()
}

struct Killed {
    place: Place,
    word: &'static str,
    refused: Option<&'static str>,
}

impl Killed {
    /// Runs the child. Returns false if it ended before the call number `number`.
    fn run(&self, call: &str, number: u32) -> bool {
        let program = std::env::current_exe().expect("is there");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={}", CALLS.join(","))]);
        strace.args(["-e", &format!("inject={call}:signal=KILL:when={number}")]);
        if let Some(refused) = self.refused {
            strace.args(["-e", &format!("inject={refused}:error=EINVAL")]);
        }
        strace.arg(program).args(["--exact", "killed::replaces", "--test-threads", "1"]);
        strace.env(WORD, self.word).env(DIR, self.place.dir.path());
        let ended = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("starts");
        assert!(ended.success() || ended.signal() == Some(9) || ended.code() == Some(137), "{call} {number}: {ended}");
        !ended.success()
    }

    /// Creates what exists before, and what is to be mounted.
    fn begin(&self) {
        let remove = |name| larder_sys::remove_tree(&self.place.path(name)).expect("removes");
        remove("t");
        make(&self.place.path("t"), "old");
        remove("mounted");
        make(&self.place.path("mounted"), "new");
    }

    fn all(&self) -> u32 {
        let (dir, target) = (self.place.dir.path(), self.place.path("t"));
        let (old, new) = (files(&self.place.path("old")), files(&self.place.path("new")));
        let mut kills = 0;
        for call in CALLS.iter().filter(|call| Some(**call) != self.refused) {
            for number in 1..CALLS_MAX {
                self.begin();
                let was_killed = self.run(call, number);
                let what = format!("{} {:?}, killed at {call} {number}", self.word, self.refused);
                let mut left = sweep(dir);
                left.extend(sweep(&target));
                let there = files(&target);
                assert!(there == old || there == new, "{what}: {there:?} {left:?}");
                let mut kept = left.iter().filter_map(|left| match left {
                    Left::Kept { old, .. } => Some(old.clone()),
                    _ => None,
                });
                if let Some(aside) = kept.next() {
                    // Killed after the new tree was in place: the old one is complete, and the
                    // sweep says where.
                    assert!(there == new && files(&aside) == old, "{what}: {left:?}");
                    larder_sys::remove_tree(aside.parent().expect("is in a directory")).expect("removes");
                }
                for dir in [dir, &target] {
                    for entry in fs::read_dir(dir).expect("lists").flatten() {
                        if entry.file_name().to_string_lossy().starts_with(".larder-") {
                            assert!(is_swept(dir, &entry.path()), "{what}: something is left");
                        }
                    }
                }
                if !was_killed {
                    assert_eq!(there, new, "{what}");
                    break;
                }
                kills += 1;
            }
        }
        kills
    }
}

fn killed(word: &'static str, refused: Option<&'static str>) {
    let has_strace = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    larder_testkit::probe_skip!(has_strace, "strace is not installed");
    let place = Place::new();
    for word in ["old", "new"] {
        make(&place.path(word), word);
    }
    place.save("k", &["new"]);
    let killed = Killed { place, word, refused };
    killed.begin();
    larder_testkit::probe_skip!(killed.run("mkdir,mkdirat", 1), "strace cannot kill here");
    let kills = killed.all();
    assert!(kills >= 8, "{word} {refused:?}: {kills} kills");
}

#[test]
fn by_exchange() {
    killed("beside", None);
}

#[test]
fn without_exchange() {
    killed("beside", Some("renameat2"));
}

#[test]
fn what_is_in_the_working_directory() {
    killed("inside", None);
}

#[test]
fn what_is_mounted_over() {
    killed("aside", None);
}

/// Work directories of other users, in use, or behind a link are left alone.
#[test]
fn only_what_is_ours_is_swept() {
    let place = Place::new();
    let dir = place.dir.path();
    let outside = tempfile::tempdir().expect("a directory");
    fs::create_dir(outside.path().join("old")).expect("makes");
    fs::write(outside.path().join("belongs-to"), "t").expect("writes");
    std::os::unix::fs::symlink(outside.path(), dir.join(".larder-0000000000000001")).expect("links");
    let above = format!("../{}-x", dir.file_name().expect("has a name").to_string_lossy());
    for (name, note) in [("2", &*above), ("3", ".."), ("4", "")] {
        let work = dir.join(format!(".larder-000000000000000{name}"));
        fs::create_dir_all(work.join("old")).expect("makes");
        fs::write(work.join("belongs-to"), note).expect("writes");
    }
    if larder_testkit::is_root() {
        let theirs = dir.join(".larder-0000000000000005");
        fs::create_dir_all(theirs.join("old")).expect("makes");
        fs::write(theirs.join("belongs-to"), "t").expect("writes");
        std::os::unix::fs::chown(&theirs, Some(4321), Some(4321)).expect("gives away");
    }
    let left = sweep(dir);
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().all(|left| matches!(left, Left::Kept { old, .. } if old.is_dir())), "{left:?}");
    assert!(!place.path("t").exists() && !dir.join(&above).exists());
    assert!(outside.path().join("old").exists());
    assert!(!larder_testkit::is_root() || dir.join(".larder-0000000000000005/old").exists());
}

/// A commit may have a directory that looks like a work directory. The configuration of a repository
/// that is made of it could start programs.
#[test]
fn no_repository_is_made_of_what_a_commit_has() {
    for name in [".git", ".GIT"] {
        let place = Place::new();
        let old = place.path(".larder-0123456789abcdef/old");
        fs::create_dir_all(&old).expect("makes");
        fs::write(old.join("config"), "[core]\n\tfsmonitor = evil\n").expect("writes");
        fs::write(place.path(".larder-0123456789abcdef/belongs-to"), name).expect("writes");
        let kept = Left::Kept { target: place.dir.path().to_owned(), old: old.clone() };
        assert_eq!(sweep(place.dir.path()), [kept]);
        assert!(old.join("config").exists() && !place.path(name).exists());
    }
}

/// A file that was created meanwhile is not replaced.
#[test]
fn what_came_meanwhile_stays() {
    let place = Place::new();
    let work = place.path(".larder-0123456789abcdef");
    fs::create_dir_all(work.join("old")).expect("makes");
    fs::write(work.join("old/mine"), "by hand").expect("writes");
    fs::write(work.join("belongs-to"), "t").expect("writes");
    fs::write(place.path("t"), "newer").expect("writes");
    let (target, old) = (place.path("t"), work.join("old"));
    for _ in 0..2 {
        assert_eq!(sweep(place.dir.path()), [Left::Kept { target: target.clone(), old: old.clone() }]);
    }
    fs::remove_file(&target).expect("removes");
    assert_eq!(sweep(place.dir.path()), [Left::PutBack(target.clone())]);
    assert_eq!(fs::read_to_string(target.join("mine")).expect("reads"), "by hand");
    assert!(!work.exists());
}
