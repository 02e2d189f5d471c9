//! A checkout: which commit it is at, what came since a base, what is not committed. Asks `git`.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Redact;
use crate::form::Git;

/// Commits that are listed.
const COMMITS_MAX: usize = 500;
/// Lines of what is not committed.
const STATUS_MAX: usize = 500;
/// Of a difference, in bytes: a larger one is named by its digest only.
const DIFF_BYTES_MAX: usize = 1 << 20;
/// Files that are in no commit are read up to so many bytes together; the others are known by name and size.
const UNTRACKED_BYTES_MAX: u64 = 64 << 20;
const DIGEST_DIGITS: usize = 16;
/// What commits are counted from, where nobody says: the first that there is.
const BASES: &[&str] = &["@{upstream}", "origin/HEAD", "origin/main", "origin/master"];

/// What is wanted.
pub(super) struct Asked<'a> {
    pub(super) prefix: Option<&'a str>,
    pub(super) base: Option<&'a str>,
}

/// The checkout that `directory` is in, and its difference to the commit; `None` where it is in none.
pub(super) fn checkout(
    directory: &Path,
    asked: &Asked,
    redact: &Redact,
    missing: &mut Vec<String>,
) -> Option<(Git, Vec<u8>)> {
    let Some(top) = ask(directory, &["rev-parse", "--show-toplevel"]) else {
        missing.extend(why_none(directory));
        return None;
    };
    let Some(head) = ask(directory, &["rev-parse", "--verify", "HEAD"]) else {
        missing.push(format!("the commit of {top}: it has none"));
        return None;
    };
    let (base, range) = base(directory, asked.base, missing);
    let limit = format!("--max-count={COMMITS_MAX}");
    let log = |range: &str| commits(&ask(directory, &["log", &limit, "--format=%H%x09%s", range]).unwrap_or_default());
    let commits = range.as_deref().map(&log).unwrap_or_default();
    let tagged = match asked.prefix {
        Some(prefix) => {
            let all = if range.is_some() { commits.clone() } else { log("HEAD") };
            all.into_iter().filter(|(_, subject)| subject.starts_with(prefix)).collect()
        }
        None => Vec::new(),
    };
    let status = ask(directory, &["status", "--porcelain", "--untracked-files=normal"]).unwrap_or_default();
    let diff = raw(directory, &["diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD"]).unwrap_or_default();
    let untracked_digest = untracked_digest(Path::new(&top)).unwrap_or_default();
    let git = Git {
        top,
        head,
        branch: ask(directory, &["symbolic-ref", "--quiet", "--short", "HEAD"]).unwrap_or_default(),
        base,
        commits,
        tagged,
        status: status.lines().take(STATUS_MAX).map(str::to_owned).collect(),
        diff_digest: if diff.is_empty() { String::new() } else { digits(&blake3::hash(&diff)) },
        untracked_digest,
    };
    let diff = if diff.len() > DIFF_BYTES_MAX {
        missing.push(format!("the difference to the commit: it has {} bytes, and is named by its digest", diff.len()));
        Vec::new()
    } else {
        without_secrets(&diff, redact)
    };
    Some((git, diff))
}

fn digits(digest: &blake3::Hash) -> String {
    digest.to_hex()[..DIGEST_DIGITS].to_owned()
}

/// Of the names of files below this directory that are neither tracked nor ignored, and of what is in them.
fn untracked_digest(directory: &Path) -> Option<String> {
    let names = raw(directory, &["ls-files", "--others", "--exclude-standard", "-z"])?;
    let mut hasher = blake3::Hasher::new();
    let mut left_bytes = UNTRACKED_BYTES_MAX;
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        hasher.update(name).update(&[0]);
        let path = directory.join(OsStr::from_bytes(name));
        let Ok(look) = path.symlink_metadata() else { continue };
        hasher.update(&look.len().to_le_bytes());
        if look.is_symlink() {
            hasher.update(std::fs::read_link(&path).unwrap_or_default().as_os_str().as_bytes());
        } else if look.is_file() && look.len() <= left_bytes {
            left_bytes -= look.len();
            // Who cannot read it knows it by its size.
            let _ = std::fs::File::open(&path).and_then(|file| hasher.update_reader(file.take(look.len())).map(drop));
        }
    }
    (!names.is_empty()).then(|| digits(&hasher.finalize()))
}

/// What commits are counted from, in words, and the range since then.
fn base(directory: &Path, asked: Option<&str>, missing: &mut Vec<String>) -> (String, Option<String>) {
    let digest = |revision: &str| ask(directory, &["merge-base", "HEAD", revision]);
    let range = |base: &str| Some(format!("{base}..HEAD"));
    if let Some(revision) = asked {
        return match digest(revision) {
            Some(base) => (format!("{revision} ({base})"), range(&base)),
            None => {
                missing
                    .push(format!("commits since {revision}: there is no such revision, or nothing in common with it"));
                (String::new(), None)
            }
        };
    }
    let known = BASES.iter().find_map(|revision| Some((*revision, digest(revision)?)));
    let tag = || ask(directory, &["describe", "--tags", "--abbrev=0"]);
    match known {
        Some((revision, base)) => (format!("{revision} ({base})"), range(&base)),
        None => match tag().and_then(|tag| Some((digest(&tag)?, tag))) {
            Some((base, tag)) => (format!("{tag} ({base})"), range(&base)),
            None => (String::new(), None),
        },
    }
}

fn commits(log: &str) -> Vec<(String, String)> {
    log.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(id, subject)| (id.to_owned(), subject.to_owned()))
        .collect()
}

/// Why a directory that seems to be in a checkout is in none that git reads: it belongs to another user, say.
fn why_none(directory: &Path) -> Option<String> {
    directory.ancestors().find(|above| above.join(".git").exists())?;
    let why = match command(directory, &["rev-parse", "--show-toplevel"]).stderr(Stdio::piped()).output() {
        Ok(output) => String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned(),
        Err(error) => format!("git: {error}"),
    };
    Some(format!("the project's commit: {why}"))
}

fn without_secrets(diff: &[u8], redact: &Redact) -> Vec<u8> {
    let mut in_key = false;
    let line = |line: &[u8]| {
        let (is_begin, is_end) = (holds(line, b"-----BEGIN "), holds(line, b"-----END "));
        in_key = (in_key || is_begin && holds(line, b"PRIVATE KEY-----")) && !is_end;
        match line.split_first() {
            // Behind the sign of a line that came or went.
            Some((sign, rest)) if in_key && !is_begin => {
                [&[*sign][..], (redact.argument)(b"--secret", rest).as_bytes()].concat()
            }
            _ => (redact.argument)(b"", line).into_bytes(),
        }
    };
    diff.split(|&b| b == b'\n').map(line).collect::<Vec<_>>().join(&b'\n')
}

fn holds(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

fn ask(directory: &Path, words: &[&str]) -> Option<String> {
    raw(directory, words).map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

fn raw(directory: &Path, words: &[&str]) -> Option<Vec<u8>> {
    let output = command(directory, words).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Neither writes to the checkout nor starts what its configuration names.
fn command(directory: &Path, words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(directory).args(["--no-optional-locks", "-c", "core.fsmonitor=false"]).args(words);
    git.stdin(Stdio::null()).stderr(Stdio::null());
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(directory: &Path, words: &[&str]) {
        let mut command = Command::new("git");
        command.arg("-C").arg(directory).args(["-c", "user.name=x", "-c", "user.email=x@example.org"]).args(words);
        assert!(command.stdout(Stdio::null()).status().expect("git").success(), "{words:?}");
    }

    #[test]
    fn commits_and_what_is_not_committed() {
        let place = tempfile::tempdir().expect("a directory");
        let (top, none) = (place.path(), Asked { prefix: None, base: None });
        let (redact, mut missing) = (Redact::nothing(), Vec::new());
        git(top, &["init", "-q", "-b", "main"]);
        assert!(checkout(top, &none, &redact, &mut missing).is_none() && missing.len() == 1);
        std::fs::write(top.join("x"), "1\n").expect("writes");
        git(top, &["add", "x"]);
        git(top, &["commit", "-q", "-m", "first"]);
        git(top, &["tag", "v1"]);
        git(top, &["commit", "-q", "--allow-empty", "-m", "[downstream] second"]);
        let (found, diff) = checkout(top, &none, &redact, &mut missing).expect("a checkout");
        assert!(found.base.starts_with("v1 (") && found.commits.len() == 1 && diff.is_empty(), "{found:?}");
        assert!(found.diff_digest.is_empty() && found.status.is_empty() && found.branch == "main");
        std::fs::write(top.join("x"), "2\n").expect("writes");
        std::fs::write(top.join("y"), "").expect("writes");
        let asked = Asked { prefix: Some("[downstream"), base: Some("HEAD~1") };
        let (found, diff) = checkout(top, &asked, &redact, &mut missing).expect("a checkout");
        assert_eq!((found.tagged.len(), found.status.len()), (1, 2), "{found:?}");
        assert!(String::from_utf8_lossy(&diff).contains("+2") && !found.diff_digest.is_empty());
        std::fs::write(top.join("y"), "3\n").expect("writes");
        let (again, _) = checkout(top, &asked, &redact, &mut missing).expect("a checkout");
        assert_eq!((&again.status, &again.diff_digest), (&found.status, &found.diff_digest));
        assert_ne!(again.untracked_digest, found.untracked_digest);
        let asked = Asked { prefix: None, base: Some("nonsense") };
        checkout(top, &asked, &redact, &mut missing);
        assert!(missing.last().is_some_and(|line| line.contains("nonsense")));
    }
}
