//! Runs `git`. This is the only code that does, and it never lets git read the repository's own
//! configuration.
//!
//! A repository's configuration can make git start programs: filters, hooks, a file system monitor,
//! signature checks, and remotes from which missing objects are fetched. Switching these off one by
//! one depends on the version of git, and misses the next one. So git is given a repository
//! directory of our own instead:
//!
//! 1. [`Repository::open`] makes a temporary directory. It holds a copy of the checkout's `HEAD`,
//!    links to its refs, and a `config` that we write.
//! 2. `GIT_DIR` is set to that directory. `GIT_OBJECT_DIRECTORY`, `GIT_INDEX_FILE` and
//!    `GIT_WORK_TREE` are set to the checkout's parts. With these variables git looks for no other
//!    repository, and reads no configuration but ours.
//! 3. Of the checkout's configuration we copy the few values that [`is_copied`] lists. None of them
//!    names a program, a path or a URL. For example, `core.fileMode` says whether a changed mode is
//!    a change.
//!
//! The configuration of the system and of the user is not read either, because attributes in a
//! checkout select the filters that it defines. git's environment holds only what is set here.
//!
//! `.gitattributes` and `.gitmodules` of the checkout are read, but the drivers that they name are
//! defined nowhere. The callers pass `--ignore-submodules=dirty`, because git otherwise starts
//! itself inside each submodule, where it would read that submodule's configuration.
//!
//! Unaware of: which questions are asked, and why.
#![forbid(unsafe_code)]
// Only larderd calls git, and larderd runs only on Linux so far.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use larder_sys::Opening;
use tempfile::TempDir;

/// The number of bytes read of `HEAD`, `.git` and `commondir`. Each holds a path or the name of a
/// ref.
const LINE_BYTES_MAX: u64 = 8 << 10;
/// The number of bytes of configuration that are read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// The largest answer of git, in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
/// The parts of the repository directory that git reads and that hold no configuration. `logs` is
/// for revisions such as `main@{1}`.
const LINKED: &[&str] = &["refs", "packed-refs", "reftable", "shallow", "logs"];
/// The prefix of the file beside a split index that the index refers to.
const SHARED_INDEX: &str = "sharedindex.";
/// The constant part of our configuration.
const CONFIG: &[u8] =
    b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n\tfsmonitor = false\n\thooksPath = /dev/null\n\
    [diff]\n\tautoRefreshIndex = false\n";
/// git's environment, besides the variables for the parts of the repository. Our configuration
/// already prevents git from fetching and prompting; these are a second safeguard.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
];

/// The reason why git has no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No directory of `PATH` has it.
    #[error("git is not installed")]
    NotInstalled,
    /// A part of the repository cannot be read, or our directory cannot be created.
    #[error("{path}: {error}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// git did not exit in time.
    #[error("git did not answer within {} s", .0.as_secs_f64())]
    Hangs(Duration),
    /// git exited with an error.
    #[error("git: {0}")]
    Failed(String),
}

fn at<'a>(path: &'a Path) -> impl FnOnce(io::Error) -> GitError + 'a {
    move |error| GitError::Path { path: path.to_owned(), error }
}

/// Returns the directory with a `.git`: this one, or its nearest parent that has one.
pub fn top(directory: &Path) -> Option<PathBuf> {
    let is_top = |directory: &&Path| directory.join(".git").symlink_metadata().is_ok();
    directory.is_absolute().then_some(directory)?.ancestors().find(is_top).map(Path::to_owned)
}

/// A checkout, and the directory that git is given instead of the checkout's own.
#[derive(Debug)]
pub struct Repository {
    program: PathBuf,
    top: PathBuf,
    /// The checkout's index.
    index: PathBuf,
    objects: PathBuf,
    /// Our directory, which git uses as its repository directory.
    own: TempDir,
    patience: Duration,
}

impl Repository {
    /// Prepares our directory for a checkout. `top` is the directory with the `.git`; `patience` is
    /// the timeout of each question.
    pub fn open(top: &Path, patience: Duration) -> Result<Repository, GitError> {
        let program = program().ok_or(GitError::NotInstalled)?;
        let directory = directory_of(top)?;
        let common = common_of(&directory);
        let own = tempfile::Builder::new().prefix("larder-git-").tempdir().map_err(at(Path::new("a directory")))?;
        let repository = Repository {
            program,
            top: top.to_owned(),
            index: directory.join("index"),
            objects: common.join("objects"),
            own,
            patience,
        };
        let own = repository.own.path();
        let head = directory.join("HEAD");
        fs::write(own.join("HEAD"), line_of(&head).map_err(at(&head))?).map_err(at(own))?;
        fs::write(own.join("config"), CONFIG).map_err(at(own))?;
        let is_shared_index = |name: &OsStr| name.as_bytes().starts_with(SHARED_INDEX.as_bytes());
        let indexes = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let indexes: Vec<_> = indexes.filter(|name| is_shared_index(name)).collect();
        for name in LINKED.iter().map(OsStr::new).chain(indexes.iter().map(|name| name.as_os_str())) {
            // In a linked worktree, the refs are those of the main repository.
            let part = [&common, &directory].map(|from| from.join(name)).into_iter().find(|part| part.exists());
            part.map_or(Ok(()), |part| symlink(part, own.join(name))).map_err(at(own))?;
        }
        fs::create_dir(own.join("info")).map_err(at(own))?;
        symlink(common.join("info/exclude"), own.join("info/exclude")).map_err(at(own))?;
        let config = repository.config(&common.join("config"))?;
        fs::write(own.join("config"), [CONFIG, &config].concat()).map_err(at(own))?;
        Ok(repository)
    }

    /// Returns the directory with the `.git`.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Runs git with these arguments and returns its output.
    pub fn ask(&self, words: &[&str]) -> Result<Vec<u8>, GitError> {
        self.run(&words.iter().map(OsStr::new).collect::<Vec<_>>(), ANSWER_BYTES_MAX)
    }

    /// Returns the copied values of the checkout's configuration, as text of a configuration file.
    fn config(&self, file: &Path) -> Result<Vec<u8>, GitError> {
        if !file.exists() {
            return Ok(Vec::new());
        }
        let words = ["config", "--file"].map(OsStr::new).into_iter().chain([file.as_os_str()]);
        let words = words.chain(["--no-includes", "--list", "-z"].map(OsStr::new));
        let listed = self.run(&words.collect::<Vec<_>>(), CONFIG_BYTES_MAX)?;
        let mut lines = Vec::new();
        for entry in listed.split(|&byte| byte == 0) {
            let Some(end) = entry.iter().position(|&byte| byte == b'\n') else { continue };
            let (key, value) = (&entry[..end], &entry[end + 1..]);
            if let Some(parts) = parts(key).filter(|parts| is_copied(parts, value)) {
                lines.extend(line(&parts, value));
            }
        }
        Ok(lines)
    }

    fn run(&self, words: &[&OsStr], bytes_max: u64) -> Result<Vec<u8>, GitError> {
        let own = self.own.path();
        let said = own.join("stderr");
        let stderr = File::create(&said).map_err(at(&said))?;
        let mut command = Command::new(&self.program);
        command.arg("--no-pager").arg("-C").arg(&self.top).args(words).current_dir(own).env_clear();
        command.envs(ENVIRONMENT.iter().copied()).env("HOME", own).env("GIT_DIR", own).env("GIT_WORK_TREE", &self.top);
        command.env("GIT_OBJECT_DIRECTORY", &self.objects).env("GIT_INDEX_FILE", &self.index);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut git = command.spawn().map_err(at(&self.program))?;
        let (send, answer) = channel();
        let stdout = git.stdout.take();
        thread::spawn(move || {
            let mut text = Vec::new();
            let read = stdout.map_or(Ok(0), |stdout| stdout.take(bytes_max).read_to_end(&mut text));
            let _ = send.send(read.map(|_| text));
        });
        let Ok(answer) = answer.recv_timeout(self.patience) else {
            let _ = git.kill();
            // A git that waits for a disk can only exit when the disk answers, so another thread
            // waits for it.
            thread::spawn(move || git.wait());
            return Err(GitError::Hangs(self.patience));
        };
        let status = git.wait().map_err(at(&self.program))?;
        let answer = answer.map_err(at(&self.program))?;
        // A git with more output than we read is killed by SIGPIPE, which is no error here.
        if status.success() || answer.len() as u64 == bytes_max {
            return Ok(answer);
        }
        let said = fs::read(&said).unwrap_or_default();
        Err(GitError::Failed(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned()))
    }
}

/// Returns the git of the first absolute directory of `PATH` that has one. Relative directories are
/// skipped, because they could lead into the checkout.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).filter(|directory| directory.is_absolute()).map(|at| at.join("git"));
    files.find(|file| file.is_file())
}

/// Returns the repository directory of a checkout: `.git`, or the directory that the file `.git`
/// names in worktrees and submodules.
fn directory_of(top: &Path) -> Result<PathBuf, GitError> {
    let path = top.join(".git");
    if path.is_dir() {
        return Ok(path);
    }
    let line = line_of(&path).map_err(at(&path))?;
    let named = line.strip_prefix(b"gitdir: ").map(|named| top.join(OsStr::from_bytes(named.trim_ascii_end())));
    named.ok_or_else(|| at(&path)(io::Error::other("does not name a git directory")))
}

/// Returns the main repository directory if `directory` belongs to a linked worktree, else
/// `directory`.
fn common_of(directory: &Path) -> PathBuf {
    let line = line_of(&directory.join("commondir")).unwrap_or_default();
    if line.is_empty() { directory.to_owned() } else { directory.join(OsStr::from_bytes(line.trim_ascii_end())) }
}

/// Returns the first bytes of a regular file. Does not block on a FIFO.
fn line_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = larder_sys::open(path.as_os_str().as_bytes(), Opening::Read)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut line = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut line)?;
    Ok(line)
}

/// A key of git's configuration. For example, `branch.main.merge` has the section `branch`, the
/// subsection `main` and the name `merge`.
struct Key<'a> {
    section: &'a [u8],
    subsection: Option<&'a [u8]>,
    name: &'a [u8],
}

fn parts(key: &[u8]) -> Option<Key<'_>> {
    let first = key.iter().position(|&byte| byte == b'.')?;
    let last = key.iter().rposition(|&byte| byte == b'.')?;
    let subsection = (first < last).then(|| &key[first + 1..last]);
    Some(Key { section: &key[..first], subsection, name: &key[last + 1..] })
}

/// Returns true if a value of the checkout's configuration is copied into ours. git prints sections
/// and names in lower case. `branch.*` and `remote.*.fetch` define which ref `@{upstream}` is. No
/// URL is copied, so nothing can be fetched.
fn is_copied(key: &Key<'_>, value: &[u8]) -> bool {
    match (key.section, key.subsection, key.name) {
        (b"core", None, b"filemode" | b"symlinks" | b"ignorecase") => matches!(value, b"true" | b"false"),
        (b"core", None, b"autocrlf") => matches!(value, b"true" | b"false" | b"input"),
        (b"core", None, b"eol") => matches!(value, b"lf" | b"crlf" | b"native"),
        (b"extensions", None, b"objectformat") => matches!(value, b"sha1" | b"sha256"),
        (b"extensions", None, b"refstorage") => matches!(value, b"files" | b"reftable"),
        (b"branch", Some(_), b"remote" | b"merge") | (b"remote", Some(_), b"fetch") => true,
        _ => false,
    }
}

/// Returns a section of a configuration file with this one value.
fn line(key: &Key<'_>, value: &[u8]) -> Vec<u8> {
    let mut line = [b"[", key.section].concat();
    if let Some(subsection) = key.subsection {
        line.extend_from_slice(b" \"");
        escape(subsection, &mut line);
        line.push(b'"');
    }
    line.extend_from_slice(&[b"]\n\t", key.name, b" = \""].concat());
    escape(value, &mut line);
    line.extend_from_slice(b"\"\n");
    line
}

fn escape(text: &[u8], to: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'\n' => to.extend_from_slice(b"\\n"),
            b'"' | b'\\' => to.extend_from_slice(&[b'\\', byte]),
            _ => to.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_values_are_copied() {
        let copied =
            |key: &str, value: &str| parts(key.as_bytes()).is_some_and(|key| is_copied(&key, value.as_bytes()));
        for (key, value) in [
            ("core.filemode", "false"),
            ("core.autocrlf", "input"),
            ("extensions.objectformat", "sha256"),
            ("branch.a.b.merge", "refs/heads/a.b"),
            ("remote.o.fetch", "+refs/heads/*:refs/remotes/o/*"),
        ] {
            assert!(copied(key, value), "{key}");
        }
        for (key, value) in [
            ("core.filemode", "sh -c id"),
            ("core.fsmonitor", "true"),
            ("core.hookspath", "/x"),
            ("core.x.filemode", "true"),
            ("core", "true"),
            ("extensions.partialclone", "o"),
            ("extensions.refstorage", "reftable:///x"),
            ("remote.o.url", "ext::sh"),
            ("remote.o.uploadpack", "sh"),
            ("branch.merge", "x"),
            ("filter.x.clean", "sh"),
            ("include.path", "/x"),
        ] {
            assert!(!copied(key, value), "{key}");
        }
    }

    #[test]
    fn a_value_cannot_become_another_key() {
        let key = parts(b"branch.a\"]\\.merge").expect("a key");
        assert_eq!(
            line(&key, b"x\"\n[core]\n\tfsmonitor = \\sh"),
            b"[branch \"a\\\"]\\\\\"]\n\tmerge = \"x\\\"\\n[core]\\n\tfsmonitor = \\\\sh\"\n"
        );
    }
}
