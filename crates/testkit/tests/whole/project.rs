//! A project whose files are copied to any number of places, and commands that run there without
//! larder and through it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use larder_testkit::{Place, Ran, Tree, larder};

/// The age of files. It is no multiple of the difference between two time zones, because a time that
/// is so far from the run's is taken for the run's in another zone.
const AGE_S: u64 = 3500;

/// Files that are copied anew for each run.
pub(crate) struct Project {
    pub(crate) place: Place,
}

impl Project {
    /// Creates a project with these files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Project {
        let project = Project { place: Place::new() };
        for (name, text) in files {
            project.change(name, text);
        }
        project
    }

    /// Replaces the content of a file. Its mtime is [`AGE_S`] ago, like that of all files.
    pub(crate) fn change(&self, name: &str, text: &str) {
        let path = self.place.put(&format!("pristine/{name}"), text);
        age(&path, AGE_S);
    }

    /// Adds an executable script.
    pub(crate) fn tool(&self, name: &str, script: &str) {
        self.place.tool(&format!("work/pristine/{name}"), script);
        age(&self.place.path(format!("work/pristine/{name}")), AGE_S);
    }

    /// Sets the mtime of a file to this many seconds ago.
    pub(crate) fn age(&self, name: &str, seconds: u64) {
        age(&self.place.path(format!("work/pristine/{name}")), seconds);
    }

    /// Copies the files to `at`, a path relative to those of the places, and runs a command there
    /// without larder. Then does the same through `larder run`, and compares both. Returns the
    /// outcome.
    #[track_caller]
    pub(crate) fn compared_at(&self, at: &str, argv: &[&str]) -> String {
        let top = self.place.path(format!("work/{at}"));
        self.lay_out_at(&top);
        let plain = self.place.run(argv).cwd(&top).run();
        let plain_tree = Tree::of(&top);
        self.lay_out_at(&top);
        let whole: Vec<&str> = ["run", "--"].iter().chain(argv).copied().collect();
        let (ran, outcome) = self.logged(self.place.larder(&whole).cwd(&top));
        assert_eq!(ran, plain, "{argv:?} in {at} ({outcome})");
        assert_eq!(Tree::of(&top).difference(&plain_tree), None, "{argv:?} in {at} ({outcome})");
        outcome
    }

    /// Copies the files to `at` and runs a command there, in which `$LARDER` calls a compiler.
    /// Returns the outcome of the last call of larder.
    #[track_caller]
    pub(crate) fn wrapped_at(&self, at: &str, argv: &[&str]) -> String {
        self.wrapped_with(at, argv, &[])
    }

    /// Does what [`Project::wrapped_at`] does, with these variables.
    #[track_caller]
    pub(crate) fn wrapped_with(&self, at: &str, argv: &[&str], variables: &[(&str, &str)]) -> String {
        let top = self.place.path(format!("work/{at}"));
        self.lay_out_at(&top);
        let run = self.place.run(argv).cwd(&top).env("PWD", &top).env("LARDER", larder());
        let run = variables.iter().fold(run, |run, (name, value)| run.env(name, value));
        let (ran, outcome) = self.logged(run);
        ran.ends(0);
        outcome
    }

    fn logged(&self, run: larder_testkit::Run) -> (Ran, String) {
        let log = self.place.path("log");
        let _ = fs::remove_file(&log);
        let ran = run.env("LARDER_LOG", &log).run();
        let text = fs::read_to_string(&log).unwrap_or_default();
        (ran, text.lines().last().map(outcome).unwrap_or_default())
    }

    /// Returns the path of `name` in place `at`. The paths of places 0 to 9 have different lengths,
    /// and those of places 10 to 99 have the same length.
    pub(crate) fn text(&self, at: usize, name: &str) -> String {
        let place = if at < 10 { "p".repeat(at + 1) } else { at.to_string() };
        let path = self.place.path(format!("work/trees/{place}/{name}"));
        path.to_str().expect("not UTF-8").to_owned()
    }

    /// Copies the files anew to place `at`, and returns the path of the place.
    pub(crate) fn lay_out(&self, at: usize) -> String {
        let top = self.text(at, "");
        let top = top.trim_end_matches('/').to_owned();
        self.lay_out_at(Path::new(&top));
        top
    }

    fn lay_out_at(&self, top: &Path) {
        if top.exists() {
            fs::remove_dir_all(top).expect("cannot remove the directory");
        }
        fs::create_dir_all(top.parent().expect("no parent directory")).expect("cannot create the directory");
        let copied = Command::new("cp").arg("-a").arg(self.place.path("work/pristine")).arg(top).status();
        assert!(copied.expect("cannot start cp").success());
    }

    /// Runs a command there without larder. If the command itself calls larder, that is disabled.
    pub(crate) fn plain(&self, at: usize, argv: &[&str]) -> Ran {
        self.place.run(argv).cwd(self.text(at, "")).env("LARDER_DISABLE", "1").run()
    }

    /// Runs a command there through larder. Returns its result, and the outcomes from the log:
    /// first of each call of larder inside, last of the command itself.
    pub(crate) fn through_larder(&self, at: usize, argv: &[&str]) -> (Ran, Vec<String>) {
        let log = self.place.path("log");
        let _ = fs::remove_file(&log);
        let whole: Vec<&str> = ["run", "--"].iter().chain(argv).copied().collect();
        let ran = self.place.larder(&whole).cwd(self.text(at, "")).env("LARDER_LOG", &log).run();
        let text = fs::read_to_string(&log).unwrap_or_default();
        (ran, text.lines().map(outcome).collect())
    }

    /// Copies the files and runs the command without larder, then does the same through larder.
    /// Files (except logs), messages and exit code must be equal. Returns the outcome.
    #[track_caller]
    pub(crate) fn compared(&self, at: usize, argv: &[&str]) -> String {
        self.compared_inside(at, argv).pop().expect("the log is empty")
    }

    /// Does what [`Project::compared`] does, after another command has changed the copied files.
    #[track_caller]
    pub(crate) fn compared_after(&self, at: usize, argv: &[&str], change: &str) -> String {
        self.compared_in(at, argv, &[&["sh", "-c", change]]).pop().expect("the log is empty")
    }

    /// Does what [`Project::compared`] does, after the command itself has already run there.
    #[track_caller]
    pub(crate) fn compared_again(&self, at: usize, argv: &[&str]) -> String {
        self.compared_in(at, argv, &[argv]).pop().expect("the log is empty")
    }

    /// Does what [`Project::compared`] does, and returns the outcome of each call of larder, in
    /// order.
    #[track_caller]
    pub(crate) fn compared_inside(&self, at: usize, argv: &[&str]) -> Vec<String> {
        self.compared_in(at, argv, &[])
    }

    #[track_caller]
    fn compared_in(&self, at: usize, argv: &[&str], before: &[&[&str]]) -> Vec<String> {
        let lay_out = || {
            let top = self.lay_out(at);
            before.iter().for_each(|command| drop(self.plain(at, command)));
            top
        };
        let top = lay_out();
        let plain = self.plain(at, argv);
        let plain_tree = without_logs(&top);
        lay_out();
        let (ran, outcomes) = self.through_larder(at, argv);
        assert_eq!(ran, plain, "{argv:?} after {before:?} in {top} ({outcomes:?}): left is with larder, right without");
        if let Some(difference) = without_logs(&top).difference(&plain_tree) {
            panic!(
                "{argv:?} after {before:?} in {top} ({outcomes:?}): files differ (with larder / without): {difference}"
            );
        }
        outcomes
    }
}

fn without_logs(top: &str) -> Tree {
    let log = Path::new(top).join("config.log");
    if log.exists() {
        fs::write(log, "").expect("cannot empty the file");
    }
    let mut tree = Tree::of(Path::new(top));
    // The index of git holds times and inode numbers, and commits made by the test hold times.
    tree.0.retain(|path, _| !path.starts_with(".git"));
    tree
}

fn age(path: &Path, seconds: u64) {
    let file = fs::File::options().append(true).open(path).expect("cannot open the file");
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("cannot set the mtime");
}

/// Returns the outcome in a line `SECONDS PID OUTCOME: SUBJECT · WHY · DETAIL`, with the reason
/// unless it is `recorded`.
pub(crate) fn outcome(line: &str) -> String {
    let rest = line.splitn(3, ' ').nth(2).unwrap_or(line);
    let (what, about) = rest.split_once(": ").unwrap_or((rest, ""));
    let why = about.split(" · ").nth(1).unwrap_or("");
    if why.is_empty() || why == "recorded" { what.to_owned() } else { format!("{what}: {why}") }
}
