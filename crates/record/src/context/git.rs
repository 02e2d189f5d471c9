//! Describes a checkout: its commit, the commits since a base, and uncommitted changes. Uses `git`
//! through `larder-git`, so that the checkout's configuration runs no program.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use larder_git::Repository;

use crate::Redact;
use crate::schema::Git;

/// The largest number of commits that are listed.
const COMMITS_MAX: usize = 500;
/// The largest number of lines of `git status`.
const STATUS_MAX: usize = 500;
/// The largest diff that is stored, in bytes. Of a larger one only the digest is kept.
const DIFF_BYTES_MAX: usize = 1 << 20;
/// The largest total size of untracked files that are hashed. Further ones are identified by name
/// and size.
const UNTRACKED_BYTES_MAX: u64 = 64 << 20;
const DIGEST_DIGITS: usize = 16;
/// The timeout of each git command, because the first one in a large checkout reads all of it from
/// the disk.
const PATIENCE: Duration = Duration::from_secs(600);
/// The revisions from which commits are counted by default. The first that exists is taken.
const BASES: &[&str] = &["@{upstream}", "origin/HEAD", "origin/main", "origin/master"];

/// The options for a checkout.
pub(super) struct Asked<'a> {
    pub(super) prefix: Option<&'a str>,
    pub(super) base: Option<&'a str>,
}

/// Returns a description of the checkout that contains `directory`, and its diff to the commit.
/// Returns `None` if it is in no checkout.
pub(super) fn checkout(
    directory: &Path,
    asked: &Asked,
    redact: &Redact,
    missing: &mut Vec<String>,
) -> Option<(Git, Vec<u8>)> {
    let git = &match Repository::open(&larder_git::top(&directory.canonicalize().ok()?)?, PATIENCE) {
        Ok(git) => git,
        Err(error) => {
            missing.push(format!("the project's commit: {error}"));
            return None;
        }
    };
    let top = git.top().display().to_string();
    let head = match git.ask(&["rev-parse", "--verify", "HEAD"]) {
        Ok(head) => text(&head),
        Err(error) => {
            missing.push(format!("the commit of {top}: there is none, or it cannot be read ({error})"));
            return None;
        }
    };
    let (base, range) = base(git, asked.base, missing);
    let limit = format!("--max-count={COMMITS_MAX}");
    let log = |range: &str| commits(&ask(git, &["log", &limit, "--format=%H%x09%s", range]).unwrap_or_default());
    let commits = range.as_deref().map(&log).unwrap_or_default();
    let tagged = match asked.prefix {
        Some(prefix) => {
            let all = if range.is_some() { commits.clone() } else { log("HEAD") };
            all.into_iter().filter(|(_, subject)| subject.starts_with(prefix)).collect()
        }
        None => Vec::new(),
    };
    // Of a submodule only the commit is compared, because otherwise git would start another git in
    // it.
    let status = ["status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"];
    let status = ask(git, &status).unwrap_or_default();
    let diff = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "HEAD"];
    let diff = git.ask(&diff).unwrap_or_default();
    let untracked_digest = untracked_digest(git).unwrap_or_default();
    let git = Git {
        top,
        head,
        branch: ask(git, &["symbolic-ref", "--quiet", "--short", "HEAD"]).unwrap_or_default(),
        base,
        commits,
        tagged,
        status: status.lines().take(STATUS_MAX).map(str::to_owned).collect(),
        diff_digest: if diff.is_empty() { String::new() } else { digits(&blake3::hash(&diff)) },
        untracked_digest,
    };
    let diff = if diff.len() > DIFF_BYTES_MAX {
        missing.push(format!("the diff to the commit: it has {} bytes, so only its digest is kept", diff.len()));
        Vec::new()
    } else {
        without_secrets(&diff, redact)
    };
    Some((git, diff))
}

fn digits(digest: &blake3::Hash) -> String {
    digest.to_hex()[..DIGEST_DIGITS].to_owned()
}

/// Returns a digest of the names and contents of files that are neither tracked nor ignored.
fn untracked_digest(git: &Repository) -> Option<String> {
    let names = git.ask(&["ls-files", "--others", "--exclude-standard", "-z"]).ok()?;
    let mut hasher = blake3::Hasher::new();
    let mut left_bytes = UNTRACKED_BYTES_MAX;
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        hasher.update(name).update(&[0]);
        let path = git.top().join(OsStr::from_bytes(name));
        let Ok(look) = path.symlink_metadata() else { continue };
        hasher.update(&look.len().to_le_bytes());
        if look.is_symlink() {
            hasher.update(std::fs::read_link(&path).unwrap_or_default().as_os_str().as_bytes());
        } else if look.is_file() && look.len() <= left_bytes {
            left_bytes -= look.len();
            // An unreadable file is identified by its size.
            let _ = std::fs::File::open(&path).and_then(|file| hasher.update_reader(file.take(look.len())).map(drop));
        }
    }
    (!names.is_empty()).then(|| digits(&hasher.finalize()))
}

/// Returns the base from which commits are counted, in words, and the range of commits since then.
fn base(git: &Repository, asked: Option<&str>, missing: &mut Vec<String>) -> (String, Option<String>) {
    let digest = |revision: &str| ask(git, &["merge-base", "HEAD", revision]);
    let range = |base: &str| Some(format!("{base}..HEAD"));
    if let Some(revision) = asked {
        return match digest(revision) {
            Some(base) => (format!("{revision} ({base})"), range(&base)),
            None => {
                missing.push(format!(
                    "commits since {revision}: there is no such revision, or it has no common ancestor with HEAD"
                ));
                (String::new(), None)
            }
        };
    }
    let known = BASES.iter().find_map(|revision| Some((*revision, digest(revision)?)));
    let tag = || ask(git, &["describe", "--tags", "--abbrev=0"]);
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

fn without_secrets(diff: &[u8], redact: &Redact) -> Vec<u8> {
    let mut in_key = false;
    let line = |line: &[u8]| {
        let (is_begin, is_end) = (holds(line, b"-----BEGIN "), holds(line, b"-----END "));
        in_key = (in_key || is_begin && holds(line, b"PRIVATE KEY-----")) && !is_end;
        match line.split_first() {
            // Keeps the sign of an added or removed line.
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

fn ask(git: &Repository, words: &[&str]) -> Option<String> {
    git.ask(words).ok().map(|bytes| text(&bytes))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

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
    #[test]
    fn no_program_runs_because_of_a_checkout() {
        let place = tempfile::tempdir().expect("a directory");
        let (top, ran, outside) = (place.path().join("top"), place.path().join("ran"), place.path().join("program"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::create_dir(&top).expect("makes");
        std::fs::write(&outside, format!("#!/bin/sh\ntouch '{}'\ncat\n", ran.display())).expect("writes");
        std::fs::set_permissions(&outside, mode).expect("made executable");
        git(&top, &["init", "-q", "-b", "main"]);
        std::fs::write(top.join("x"), "1\n").expect("writes");
        std::fs::write(top.join(".gitattributes"), "* filter=evil diff=evil\n").expect("writes");
        git(&top, &["add", "."]);
        git(&top, &["commit", "-q", "-m", "first"]);
        for key in [
            "filter.evil.clean",
            "filter.evil.process",
            "diff.evil.textconv",
            "diff.evil.command",
            "diff.external",
            "core.fsmonitor",
            "core.pager",
            "gpg.program",
            "core.sshCommand",
        ] {
            git(&top, &["config", key, outside.to_str().expect("is text")]);
        }
        for (key, value) in [("core.hooksPath", place.path().to_str().expect("is text")), ("log.showSignature", "true")]
        {
            git(&top, &["config", key, value]);
        }
        std::fs::write(top.join("x"), "2\n").expect("writes");
        let asked = Asked { prefix: None, base: None };
        let (found, diff) = checkout(&top, &asked, &Redact::nothing(), &mut Vec::new()).expect("a checkout");
        assert!(!ran.exists(), "a program from the checkout's configuration was run");
        assert_eq!(found.status, [" M x"]);
        assert!(String::from_utf8_lossy(&diff).contains("+2"));
        // Plain git does run it.
        git(&top, &["status"]);
        assert!(ran.exists(), "the attack does not work even against plain git");
    }
}
