//! A fresh directory per test, with a store, a home and temporary files of its own; commands that run there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::{Counters, Ran, Run, Tree, larder};

/// The `PATH` of every place.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How old the files of a place are.
const AGE: Duration = Duration::from_secs(3600);
/// Between a change and a run that must see it: more than two ticks of the slowest clock of a file system. An input
/// that is as new as the run is not recorded, and a stamp this young is not believed.
const SETTLE: Duration = Duration::from_millis(30);

/// Where a test runs; removed afterwards.
pub struct Place {
    top: PathBuf,
    _dir: TempDir,
}

impl Default for Place {
    fn default() -> Self {
        Place::new()
    }
}

impl Place {
    /// A new one.
    pub fn new() -> Place {
        let dir = tempfile::Builder::new().prefix("larder-test-").tempdir().expect("a directory can be made");
        let top = dir.path().canonicalize().expect("is there");
        for name in ["work", "home", "tmp", "bin"] {
            fs::create_dir(top.join(name)).expect("can be made");
        }
        Place { top, _dir: dir }
    }

    /// A path in this place: `work` is where commands run, `bin` has fake tools, `store` the store.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.top.join(relative)
    }

    /// The same as text.
    pub fn text(&self, relative: &str) -> String {
        self.path(relative).to_str().expect("is text").to_owned()
    }

    /// Write a file below `work`, an hour old.
    pub fn put(&self, relative: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.write(&self.path("work").join(relative), bytes.as_ref(), 0o644)
    }

    /// Write a shell script below the place, an hour old: a tool that does what the test wants.
    pub fn tool(&self, relative: &str, script: &str) -> String {
        let path = self.path(relative);
        self.write(&path, format!("#!/bin/sh\n{script}\n").as_bytes(), 0o755);
        path.to_str().expect("is text").to_owned()
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> PathBuf {
        fs::create_dir_all(path.parent().expect("has one")).expect("can be made");
        fs::write(path, bytes).expect("can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("can be set");
        let file = fs::File::open(path).expect("can be opened");
        file.set_modified(SystemTime::now() - AGE).expect("can be set");
        path.to_owned()
    }

    /// The whole of a file below `work`.
    pub fn read(&self, relative: &str) -> Vec<u8> {
        fs::read(self.path("work").join(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
    }

    /// Remove files below `work` that may not be there.
    pub fn remove(&self, relative: &[&str]) {
        for name in relative {
            let _ = fs::remove_file(self.path("work").join(name));
        }
    }

    /// A link to larder, below the place: the name decides what larder takes itself for.
    pub fn link(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("has one")).expect("can be made");
        std::os::unix::fs::symlink(larder(), &path).expect("can be made");
        path.to_str().expect("is text").to_owned()
    }

    /// Any command here, with the environment of this place and nothing else.
    pub fn run<S: AsRef<OsStr>>(&self, argv: &[S]) -> Run {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(self.path("work")).env_clear();
        command.env("PATH", PATH).env("LC_ALL", "C");
        for (name, directory) in [
            ("HOME", "home"),
            ("TMPDIR", "tmp"),
            ("LARDER_DIR", "store"),
            // Not the user's own: other tests, and builds of this machine, are not to be waited for.
            ("LARDER_TOKENS_FILE", "tokens"),
        ] {
            command.env(name, self.path(directory));
        }
        Run::new(command)
    }

    /// A tool through larder.
    pub fn larder(&self, argv: &[&str]) -> Run {
        std::thread::sleep(SETTLE);
        let whole: Vec<&OsStr> = [larder().as_os_str()].into_iter().chain(argv.iter().map(OsStr::new)).collect();
        self.run(&whole)
    }

    /// Wait until what was written is clearly older than what follows.
    pub fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    /// The counters now.
    pub fn counters(&self) -> Counters {
        Counters::parse(&self.run(&[larder().as_os_str(), "stats".as_ref(), "--json".as_ref()]).run().ends(0).stdout)
    }

    /// Run, and say what was counted: `hit`, `miss`, `miss:clock`, `bypass:no-compile` …
    pub fn counted(&self, run: Run) -> (Ran, String) {
        let before = self.counters();
        let ran = run.run();
        let outcome = self.counters().since(&before);
        (ran, outcome)
    }

    /// Run `argv` plainly and then through larder once for each expected outcome, each time from the same files: exit
    /// code, messages, files and modes must be the same, and the outcomes those expected.
    #[track_caller]
    pub fn check(&self, argv: &[&str], outcomes: &[&str]) {
        self.check_with(argv, outcomes, |run| run);
    }

    /// The same, with changes to each run such as a variable.
    #[track_caller]
    pub fn check_with(&self, argv: &[&str], outcomes: &[&str], change: impl Fn(Run) -> Run) {
        let work = self.path("work");
        let before = Tree::of(&work);
        let plain = change(self.run(argv)).run();
        let plain_tree = Tree::of(&work);
        before.put_back(&work);
        let mut found = Vec::new();
        for at in 0..outcomes.len() {
            let (ran, outcome) = self.counted(change(self.larder(argv)));
            assert_eq!(ran, plain, "run {at} ({outcome}) of {argv:?}: larder left, plain right");
            let tree = Tree::of(&work);
            if let Some(difference) = tree.difference(&plain_tree) {
                panic!("run {at} ({outcome}) of {argv:?}: larder / plain: {difference}");
            }
            found.push(outcome);
            before.put_back(&work);
        }
        assert_eq!(found, outcomes, "{argv:?}");
    }
}
