//! A fresh directory per test, with its own store, home and temporary files, and commands that run
//! there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::{Counters, Ran, Run, Tree, larder, larder_text, write_program};

/// The `PATH` of every command in a place.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The age that the files of a place are given.
const AGE: Duration = Duration::from_secs(3600);
/// The pause between a change and a run that must notice it: more than two clock ticks of the
/// coarsest file system. Without it, larder would not record an input as new as the run, and would
/// not use so young an entry of the stat cache.
const SETTLE: Duration = Duration::from_millis(30);

/// The directory of a store that has its files, after the version of the formats.
pub const STORE_VERSION: &str = "v18";

/// Sets the permissions of a file or directory.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("cannot set the mode");
}

/// Returns all files below a directory, in order. Links are not followed.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("cannot list the directory") {
        let path = entry.expect("cannot list the directory").path();
        if path.is_dir() && !path.is_symlink() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A directory in which a test runs. It is removed when the value is dropped.
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
    /// Creates a new place with the directories `work`, `home`, `tmp` and `bin`.
    pub fn new() -> Place {
        let dir =
            tempfile::Builder::new().prefix("larder-test-").tempdir().expect("cannot create a temporary directory");
        let top = dir.path().canonicalize().expect("cannot resolve the path of the temporary directory");
        for name in ["work", "home", "tmp", "bin"] {
            fs::create_dir(top.join(name)).expect("cannot create a directory of the place");
        }
        Place { top, _dir: dir }
    }

    /// Returns a path in this place. Commands run in `work`, `bin` holds fake tools, and `store` is
    /// the store.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.top.join(relative)
    }

    /// Returns the directory of the store that has its files.
    pub fn store(&self) -> PathBuf {
        self.path("store").join(STORE_VERSION)
    }

    /// Returns a path in this place as text.
    pub fn text(&self, relative: &str) -> String {
        self.path(relative).to_str().expect("the path is not UTF-8").to_owned()
    }

    /// Writes a file below `work` whose mtime is one hour ago.
    pub fn put(&self, relative: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.write(&self.path("work").join(relative), bytes.as_ref(), 0o644)
    }

    /// Writes a shell script below the place whose mtime is one hour ago: a fake tool. Returns its
    /// path.
    pub fn tool(&self, relative: &str, script: &str) -> String {
        let path = self.path(relative);
        self.write(&path, format!("#!/bin/sh\n{script}\n").as_bytes(), 0o755);
        path.to_str().expect("the path is not UTF-8").to_owned()
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> PathBuf {
        fs::create_dir_all(path.parent().expect("the path has no parent directory"))
            .expect("cannot create the parent directory");
        if mode & 0o111 != 0 {
            write_program(path, bytes);
        } else {
            fs::write(path, bytes).expect("cannot write the file");
        }
        set_mode(path, mode);
        let file = fs::File::open(path).expect("cannot open the file");
        file.set_modified(SystemTime::now() - AGE).expect("cannot set the mtime");
        path.to_owned()
    }

    /// Returns the content of a file below `work`.
    pub fn read(&self, relative: &str) -> Vec<u8> {
        fs::read(self.path("work").join(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
    }

    /// Removes files below `work`. Errors are ignored, because a file may not exist.
    pub fn remove(&self, relative: &[&str]) {
        for name in relative {
            let _ = fs::remove_file(self.path("work").join(name));
        }
    }

    /// Creates a symbolic link to larder below the place and returns its path. The name of the link
    /// decides which program larder poses as.
    pub fn link(&self, relative: &str) -> String {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("the path has no parent directory"))
            .expect("cannot create the parent directory");
        std::os::unix::fs::symlink(larder(), &path).expect("cannot create the symbolic link");
        path.to_str().expect("the path is not UTF-8").to_owned()
    }

    /// Returns a command that runs in this place, with the environment of this place and no other
    /// variables.
    pub fn run<S: AsRef<OsStr>>(&self, argv: &[S]) -> Run {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(self.path("work")).env_clear();
        command.env("PATH", PATH).env("LC_ALL", "C");
        for (name, directory) in [
            ("HOME", "home"),
            ("TMPDIR", "tmp"),
            ("LARDER_DIR", "store"),
            // Not the user's own file: a test must not wait for other tests or for builds on this
            // machine.
            ("LARDER_TOKENS_FILE", "tokens"),
        ] {
            command.env(name, self.path(directory));
        }
        Run::new(command)
    }

    /// Returns a command that runs a tool through larder.
    pub fn larder(&self, argv: &[&str]) -> Run {
        std::thread::sleep(SETTLE);
        let whole: Vec<&OsStr> = [larder().as_os_str()].into_iter().chain(argv.iter().map(OsStr::new)).collect();
        self.run(&whole)
    }

    /// Returns a command that runs a subcommand of larder.
    pub fn word(&self, words: &[&str]) -> Run {
        self.run(&[&[larder_text()], words].concat())
    }

    /// Returns a command that runs a subcommand of `larder image`.
    pub fn image(&self, words: &[&str]) -> Run {
        self.word(&[&["image"], words].concat())
    }

    /// Returns a command that runs a line of shell in a mount namespace of its own, in an overlay of
    /// `work/low`. Its file times are those of the clock's ticks. Returns `None`, and prints that the
    /// test is skipped, if overlayfs cannot be mounted here.
    pub fn in_overlay(&self, line: &str) -> Option<Run> {
        let mount = "mkdir -p low up upwork m && mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=upwork m";
        let alone = |line: String| self.run(&["unshare", "--mount", "sh", "-c", &line]);
        if alone(mount.to_owned()).run().code != Some(0) {
            eprintln!("skipped: overlayfs cannot be mounted here");
            return None;
        }
        Some(alone(format!("{mount} && cd m && {line}")))
    }

    /// Gives a command the tools of Rust, which are in the real home directory, where rustup must
    /// find them.
    pub fn with_cargo(&self, run: Run) -> Run {
        let home = PathBuf::from(std::env::var_os("HOME").expect("HOME is not set"));
        let rustup = std::env::var_os("RUSTUP_HOME").map_or(home.join(".rustup"), PathBuf::from);
        let path = format!("{}:{PATH}", home.join(".cargo/bin").display());
        run.env("RUSTUP_HOME", rustup).env("CARGO_HOME", self.path("cargo")).env("PATH", path)
    }

    /// Returns the number of mounts below `work`.
    pub fn mounts(&self) -> usize {
        let all = fs::read_to_string("/proc/self/mounts").expect("cannot read the file");
        all.lines().filter(|line| line.contains(&self.text("work"))).count()
    }

    /// Returns true if a process has its working directory below `work`.
    pub fn is_worked_in(&self) -> bool {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        // A process may end while they are listed.
        let mut directories = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
        directories.any(|directory| directory.starts_with(self.path("work")))
    }

    /// Waits until files written so far are clearly older than anything that follows.
    pub fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    /// Returns the counters of this place's store.
    pub fn counters(&self) -> Counters {
        Counters::parse(&self.word(&["stats", "--json"]).run().ends(0).stdout)
    }

    /// Runs a command and returns what was counted, for example `hit`, `miss:clock` or
    /// `bypass:no-compile`.
    pub fn counted(&self, run: Run) -> (Ran, String) {
        let before = self.counters();
        let ran = run.run();
        let outcome = self.counters().since(&before);
        (ran, outcome)
    }

    /// Runs `argv` directly, then through larder once for each expected outcome, each time from the
    /// same files. Asserts that exit code, messages, files and modes are equal, and that the
    /// outcomes are as expected.
    #[track_caller]
    pub fn check(&self, argv: &[&str], outcomes: &[&str]) {
        self.check_with(argv, outcomes, |run| run);
    }

    /// Like [`Place::check`], but applies `change` to each run, for example to set a variable.
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
            assert_eq!(ran, plain, "run {at} ({outcome}) of {argv:?} differs: left is with larder, right without");
            let tree = Tree::of(&work);
            if let Some(difference) = tree.difference(&plain_tree) {
                panic!("run {at} ({outcome}) of {argv:?}: files differ (with larder / without): {difference}");
            }
            found.push(outcome);
            before.put_back(&work);
        }
        assert_eq!(found, outcomes, "unexpected outcomes of {argv:?}");
    }
}
