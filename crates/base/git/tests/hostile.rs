//! Checks that git starts no program that a repository's configuration names, for every question
//! that larder asks.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use larder_git::{GitError, Repository, top};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
/// All questions that `larderd` and `larder record` ask.
const QUESTIONS: &[&[&str]] = &[
    &["rev-list", "--max-count=12", "--first-parent", "HEAD"],
    &["rev-parse", "--verify", "HEAD"],
    &["merge-base", "HEAD", "@{upstream}"],
    &["describe", "--tags", "--abbrev=0"],
    &["log", "--max-count=500", "--format=%H%x09%s", "HEAD"],
    &["status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"],
    &["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "HEAD"],
    &["ls-files", "--others", "--exclude-standard", "-z"],
    &["symbolic-ref", "--quiet", "--short", "HEAD"],
];

/// A directory with a repository in `top`, and a program that creates the file `ran` when it runs.
struct Place {
    dir: TempDir,
}

impl Place {
    /// Creates a repository with a commit. Returns `None` if git is not installed.
    fn new() -> Option<Place> {
        if Command::new("git").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: git is not installed");
            return None;
        }
        let place = Place { dir: tempfile::tempdir().expect("a directory") };
        place.script(&place.program(), "cat");
        fs::create_dir(place.top()).expect("makes");
        place.git(&place.top(), &["init", "-q", "-b", "main"]);
        place.commit(&place.top());
        Some(place)
    }

    fn top(&self) -> PathBuf {
        self.dir.path().join("top")
    }

    fn ran(&self) -> PathBuf {
        self.dir.path().join("ran")
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("program")
    }

    fn script(&self, path: &Path, then: &str) {
        fs::write(path, format!("#!/bin/sh\ntouch '{}'\n{then}\n", self.ran().display())).expect("writes");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    fn commit(&self, top: &Path) {
        fs::write(top.join("x"), "1\n").expect("writes");
        self.git(top, &["add", "x"]);
        self.git(top, &["commit", "-q", "-m", "first"]);
    }

    fn git(&self, at: &Path, words: &[&str]) {
        assert!(self.plain(at, words).status().is_ok_and(|status| status.success()), "{words:?}");
    }

    /// Returns a plain git command, without our protection.
    fn plain(&self, at: &Path, words: &[&str]) -> Command {
        let mut git = Command::new("git");
        git.arg("-C").arg(at).args(["-c", "user.name=n", "-c", "user.email=e@example.org"]).args(words);
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", self.dir.path());
        git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        git
    }

    fn append(&self, file: &Path, text: &str) {
        let text = text.replace("PROGRAM", self.program().to_str().expect("is text"));
        let before = fs::read_to_string(file).unwrap_or_default();
        fs::write(file, before + &text).expect("writes");
    }

    /// Asks all questions at `at`, and checks that the program did not run. Returns true if plain
    /// git with `words` runs it.
    fn is_attack(&self, name: &str, at: &Path, words: &[&str]) -> bool {
        let repository = Repository::open(at, PATIENCE).expect("a repository");
        for question in QUESTIONS {
            match repository.ask(question) {
                Ok(_) | Err(GitError::Failed(_)) => {}
                Err(error) => panic!("{name}: {question:?}: {error}"),
            }
            assert!(!self.ran().exists(), "{name}: {question:?} ran it");
        }
        let _ = self.plain(at, words).status();
        self.ran().exists()
    }
}

/// Contents of a `.git/config`, and the arguments with which plain git would start the program.
const CONFIGURATIONS: &[(&str, &str, &[&str])] = &[
    ("filter.clean", "[filter \"evil\"]\n clean = PROGRAM\n", &["status"]),
    ("filter.process", "[filter \"evil\"]\n process = PROGRAM\n", &["status"]),
    ("textconv", "[diff \"evil\"]\n textconv = PROGRAM\n", &["diff"]),
    ("diff.command", "[diff \"evil\"]\n command = PROGRAM\n", &["diff"]),
    ("diff.external", "[diff]\n external = PROGRAM\n", &["diff"]),
    ("core.fsmonitor", "[core]\n fsmonitor = PROGRAM\n", &["status"]),
    ("core.pager", "[core]\n pager = PROGRAM\n[pager]\n log = PROGRAM\n", &["log"]),
    ("alias", "[alias]\n rev-list = !PROGRAM\n mine = !PROGRAM\n", &["mine"]),
    ("trace2", "[trace2]\n normalTarget = af_unix:PROGRAM\n", &["status"]),
];

/// Remotes of a partial clone that lacks its commit. Plain git fetches the commit when it is
/// needed.
const FETCHES: &[(&str, &str)] = &[
    ("ext", "[protocol \"ext\"]\n allow = always\n[remote \"o\"]\n url = ext::PROGRAM\n"),
    (
        "file with uploadpack",
        "[protocol \"file\"]\n allow = always\n[remote \"o\"]\n url = file:///\n uploadpack = PROGRAM;\n",
    ),
    (
        "ssh with core.sshCommand",
        "[core]\n sshCommand = PROGRAM\n[protocol \"ssh\"]\n allow = always\n[remote \"o\"]\n url = ssh://h.invalid/x\n",
    ),
];

#[test]
fn a_configuration_runs_nothing() {
    let mut attacks = Vec::new();
    for (name, config, words) in CONFIGURATIONS {
        let Some(place) = Place::new() else { return };
        fs::write(place.top().join(".gitattributes"), "* filter=evil diff=evil\n").expect("writes");
        fs::write(place.top().join("x"), "2\n").expect("writes");
        place.append(&place.top().join(".git/config"), config);
        attacks.extend(place.is_attack(name, &place.top(), words).then_some(*name));
    }
    // Checks that the attacks work at all. Some need a terminal, or another version of git.
    assert!(attacks.len() >= 6, "plain git runs only {attacks:?}");
}

#[test]
fn nothing_is_fetched() {
    let mut attacks = Vec::new();
    for (name, remote) in FETCHES {
        let Some(place) = Place::new() else { return };
        place.script(&place.program(), "exit 1");
        let config = place.top().join(".git/config");
        let text = fs::read_to_string(&config).expect("is there").replace("version = 0", "version = 1");
        fs::write(&config, text + "[extensions]\n partialClone = o\n").expect("writes");
        place.append(&config, &format!("{remote} promisor = true\n"));
        fs::write(place.top().join(".git/refs/heads/main"), "1".repeat(40)).expect("writes");
        attacks.extend(place.is_attack(name, &place.top(), &["rev-list", "HEAD"]).then_some(*name));
    }
    assert!(attacks.len() >= 2, "plain git runs only {attacks:?}");
}

/// The variable with the checkout for [`asks_in_a_child`].
const CHECKOUT: &str = "LARDER_TEST_CHECKOUT";

/// Does nothing unless the next test starts it: asks all questions.
#[test]
fn asks_in_a_child() {
    let Some(checkout) = std::env::var_os(CHECKOUT) else { return };
    let repository = Repository::open(Path::new(&checkout), PATIENCE).expect("a repository");
    for question in QUESTIONS {
        match repository.ask(question) {
            Ok(_) | Err(GitError::Failed(_)) => {}
            Err(error) => panic!("{question:?}: {error}"),
        }
    }
    let others = repository.ask(&["ls-files", "--others", "--exclude-standard"]).expect("answers");
    assert_eq!(String::from_utf8_lossy(&others), ".gitattributes\nnew\n");
}

/// `.gitattributes` selects filters that the user's configuration defines. Variables can name
/// programs, and a relative directory of `PATH` can be the checkout.
#[test]
fn nothing_of_the_callers_environment_is_used() {
    let Some(place) = Place::new() else { return };
    let (top, program) = (place.top(), place.program());
    fs::write(top.join(".gitattributes"), "* filter=evil diff=evil\n").expect("writes");
    fs::write(top.join("x"), "2\n").expect("writes");
    fs::write(top.join("new"), "").expect("writes");
    place.script(&top.join("git"), "");
    fs::write(top.join(".git/info/exclude"), "/git\n").expect("writes");
    let excludes = place.dir.path().join("excludes");
    fs::write(&excludes, "new\n").expect("writes");
    let config = "[filter \"evil\"]\n clean = PROGRAM\n[core]\n excludesFile = EXCLUDES\n";
    let config = config.replace("EXCLUDES", excludes.to_str().expect("is text"));
    place.append(&place.dir.path().join(".gitconfig"), &config);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([PathBuf::from(".")].into_iter().chain(std::env::split_paths(&path)));
    let hostile = |command: &mut Command| {
        command.current_dir(&top).env("HOME", place.dir.path()).env("GIT_EXTERNAL_DIFF", &program);
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "core.fsmonitor");
        command.env("GIT_CONFIG_VALUE_0", &program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("starts").success()
    };
    let mut child = Command::new(std::env::current_exe().expect("is known"));
    child.args(["--exact", "asks_in_a_child"]).env(CHECKOUT, &top).env("PATH", path.expect("is a path"));
    child.env("GIT_DIR", "/nonexistent");
    assert!(hostile(&mut child), "the answers are others");
    assert!(!place.ran().exists(), "the program ran");
    // Checks that plain git would run it.
    hostile(&mut place.plain(&top, &["status"]));
    assert!(place.ran().exists(), "plain git does not run it either");
}

#[test]
fn included_files_hooks_and_signatures_run_nothing() {
    let Some(place) = Place::new() else { return };
    let included = place.dir.path().join("included");
    place.append(&included, "[core]\n fsmonitor = PROGRAM\n");
    let config = place.top().join(".git/config");
    place.append(&config, &format!("[include]\n path = {}\n", included.display()));
    assert!(place.is_attack("include.path", &place.top(), &["status"]));

    let Some(place) = Place::new() else { return };
    let hooks = place.dir.path().join("hooks");
    for hooks in [&hooks, &place.top().join(".git/hooks")] {
        fs::create_dir_all(hooks).expect("makes");
        place.script(&hooks.join("post-index-change"), "true");
        place.script(&hooks.join("fsmonitor-watchman"), "true");
    }
    place.append(&place.top().join(".git/config"), &format!("[core]\n hooksPath = {}\n", hooks.display()));
    // The content is unchanged but the mtime is new, so git writes its index again.
    fs::write(place.top().join("x"), "1\n").expect("writes");
    assert!(place.is_attack("core.hooksPath", &place.top(), &["update-index", "--force-write-index", "--refresh"]));

    let Some(place) = Place::new() else { return };
    let head = place.plain(&place.top(), &["rev-parse", "HEAD^{tree}"]).stdout(Stdio::piped()).output().expect("asks");
    let tree = String::from_utf8(head.stdout).expect("is text");
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----";
    let who = "n <e@example.org> 1700000000 +0000";
    let commit = format!("tree {}\nauthor {who}\ncommitter {who}\n{signature}\n\nsigned\n", tree.trim());
    fs::write(place.dir.path().join("commit"), commit).expect("writes");
    let file = place.dir.path().join("commit");
    let write = ["hash-object", "-t", "commit", "-w", file.to_str().expect("is text")];
    let made = place.plain(&place.top(), &write).stdout(Stdio::piped()).output().expect("writes");
    fs::write(place.top().join(".git/refs/heads/main"), &made.stdout).expect("writes");
    place.append(&place.top().join(".git/config"), "[gpg]\n program = PROGRAM\n[log]\n showSignature = true\n");
    assert!(place.is_attack("gpg.program", &place.top(), &["log"]));
}

#[test]
fn worktrees_and_submodules_run_nothing() {
    let Some(place) = Place::new() else { return };
    let work = place.dir.path().join("work");
    place.git(&place.top(), &["worktree", "add", "-q", work.to_str().expect("is text"), "-b", "other"]);
    let config = place.top().join(".git/config");
    let text = fs::read_to_string(&config).expect("is there").replace("version = 0", "version = 1");
    fs::write(&config, text + "[extensions]\n worktreeConfig = true\n").expect("writes");
    place.append(&place.top().join(".git/worktrees/work/config.worktree"), "[core]\n fsmonitor = PROGRAM\n");
    assert!(place.is_attack("config.worktree", &work, &["status"]));
    let repository = Repository::open(&work, PATIENCE).expect("a repository");
    assert_eq!(repository.ask(&["symbolic-ref", "--short", "HEAD"]).expect("answers"), b"other\n");
    assert_eq!(repository.ask(&["log", "--format=%s"]).expect("answers"), b"first\n");
    assert_eq!(repository.ask(&["status", "--porcelain"]).expect("answers"), b"");

    let Some(place) = Place::new() else { return };
    let from = place.dir.path().join("from");
    fs::create_dir(&from).expect("makes");
    place.git(&from, &["init", "-q", "-b", "main"]);
    place.commit(&from);
    let add =
        ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from.to_str().expect("is text"), "sub"];
    place.git(&place.top(), &add);
    place.git(&place.top(), &["commit", "-q", "-m", "with a submodule"]);
    let sub = place.top().join("sub");
    fs::write(sub.join(".gitattributes"), "* filter=evil\n").expect("writes");
    fs::write(sub.join("x"), "2\n").expect("writes");
    place.append(&place.top().join(".git/modules/sub/config"), "[core]\n fsmonitor = PROGRAM\n");
    place.append(&place.top().join(".gitmodules"), " ignore = none\n");
    assert!(place.is_attack("a submodule", &place.top(), &["status"]));
    fs::remove_file(place.ran()).expect("removes");
    assert!(place.is_attack("in a submodule", &sub, &["status"]));
    let repository = Repository::open(&sub, PATIENCE).expect("a repository");
    assert_eq!(repository.ask(&["status", "--porcelain"]).expect("answers"), b" M x\n?? .gitattributes\n");
}

/// Everything that belongs to a checkout is still visible: packed refs, an upstream, ignored files,
/// a changed mode.
#[test]
fn answers_are_those_of_git() {
    let Some(place) = Place::new() else { return };
    let top_of = place.top();
    let clone = place.dir.path().join("clone");
    place.git(place.dir.path(), &["clone", "-q", top_of.to_str().expect("is text"), clone.to_str().expect("is text")]);
    place.git(&clone, &["commit", "-q", "--allow-empty", "-m", "second"]);
    place.git(&clone, &["tag", "v1"]);
    place.git(&clone, &["pack-refs", "--all"]);
    place.git(&clone, &["config", "core.fileMode", "false"]);
    fs::write(clone.join(".git/info/exclude"), "ignored\n").expect("writes");
    for name in ["ignored", "new"] {
        fs::write(clone.join(name), "").expect("writes");
    }
    fs::set_permissions(clone.join("x"), fs::Permissions::from_mode(0o755)).expect("made executable");
    let below = clone.join("a/b");
    fs::create_dir_all(&below).expect("makes");
    assert_eq!(top(&below).as_deref(), Some(&*clone));
    let repository = Repository::open(&clone, PATIENCE).expect("a repository");
    for question in QUESTIONS {
        let plain = place.plain(&clone, question).stdout(Stdio::piped()).output().expect("asks");
        assert_eq!(repository.ask(question).expect("answers"), plain.stdout, "{question:?}");
    }
    assert_eq!(repository.ask(&["status", "--porcelain"]).expect("answers"), b"?? new\n");
    // The history of a shallow clone ends at its boundary.
    let (from, shallow) = (format!("file://{}", clone.display()), place.dir.path().join("shallow"));
    let words = ["clone", "-q", "--depth", "1", &from, shallow.to_str().expect("is text")];
    place.git(place.dir.path(), &words);
    let repository = Repository::open(&shallow, PATIENCE).expect("a repository");
    assert_eq!(repository.ask(&["log", "--format=%s"]).expect("answers"), b"second\n");
}

/// No file in the repository blocks us for ever: a FIFO without a writer is refused, or the
/// question times out.
#[test]
fn fifos_are_not_waited_for() {
    let short = Duration::from_millis(300);
    for (name, hangs) in [("HEAD", false), ("commondir", true), ("config", true), ("packed-refs", true)] {
        let Some(place) = Place::new() else { return };
        let path = place.top().join(".git").join(name);
        let _ = fs::remove_file(&path);
        if !Command::new("mkfifo").arg(&path).status().is_ok_and(|made| made.success()) {
            eprintln!("skipped: mkfifo is not installed");
            return;
        }
        // On a busy machine git may need longer for an answer than it is given if none can come.
        let limit = if hangs { short } else { PATIENCE };
        let asked = Repository::open(&place.top(), limit).and_then(|it| it.ask(&["rev-parse", "refs/tags/none"]));
        match asked {
            Err(GitError::Hangs(_)) => assert!(hangs, "{name}"),
            Err(GitError::Path { .. }) => assert!(!hangs, "{name}"),
            Err(GitError::Failed(_)) if name == "commondir" => {}
            other => panic!("{name}: {other:?}"),
        }
    }
}
