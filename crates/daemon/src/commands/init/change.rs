//! A change of one file or link: how it is shown, applied and taken back.
//!
//! Every change only adds. So a file that was edited after the change can still be restored: the
//! added lines are removed, and everything else stays.
//!
//! Unaware of: why something is changed.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use similar::TextDiff;

/// The largest file that is changed, in bytes. A configuration file written by people is smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The number of unchanged lines around a change in a diff.
const CONTEXT_LINES: usize = 3;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A text file gets lines, or is made. `before` is `None` if it does not exist.
    Text { path: PathBuf, before: Option<String>, after: String },
    /// A symbolic link is made.
    Link { path: PathBuf, target: PathBuf },
    /// An empty directory is made.
    Directory { path: PathBuf },
}

/// The result of taking one change back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// It is taken back.
    Done,
    /// It had been taken back by other means.
    AlreadyGone,
    /// It stays, for this reason.
    Kept(String),
}

impl Change {
    pub(super) fn path(&self) -> &Path {
        match self {
            Change::Text { path, .. } | Change::Link { path, .. } | Change::Directory { path } => path,
        }
    }

    /// Returns the change as a unified diff, or as a line. A link is listed by the caller, together
    /// with others of its directory.
    pub(super) fn diff(&self) -> Option<String> {
        let Change::Text { path, before, after } = self else { return None };
        let shown = path.display().to_string();
        let was = if before.is_some() { shown.as_str() } else { "/dev/null" };
        let diff = TextDiff::from_lines(before.as_deref().unwrap_or_default(), after);
        Some(diff.unified_diff().context_radius(CONTEXT_LINES).header(was, &shown).to_string())
    }

    /// Applies the change. Fails without an effect if the path is no longer as it was when the
    /// change was shown.
    pub(super) fn apply(&self) -> Result<()> {
        match self {
            Change::Text { path, before, after } => {
                ensure!(
                    read(path)? == *before,
                    "{} changed while you were being asked: run `larder init` again",
                    path.display()
                );
                let is_read_only = fs::metadata(path).is_ok_and(|look| look.permissions().readonly());
                ensure!(
                    !is_read_only,
                    "{} is read-only: make it writable (`chmod u+w`), or add the lines by hand",
                    path.display()
                );
                replace(path, after)
            }
            Change::Link { path, target } => symlink(target, path)
                .with_context(|| format!("{} cannot be made: check the rights of its directory", path.display())),
            Change::Directory { path } => match fs::create_dir(path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    Err(error).with_context(|| format!("the directory {} cannot be made", path.display()))
                }
                _ => Ok(()),
            },
        }
    }

    /// Takes the change back. What someone else changed since then is not touched.
    pub(super) fn take_back(&self) -> Result<Undone> {
        match self {
            Change::Text { path, before, after } => take_back_text(path, before.as_deref(), after),
            Change::Link { path, target } => match fs::read_link(path) {
                Ok(found) if found == *target => {
                    fs::remove_file(path).with_context(|| format!("{} cannot be removed", path.display()))?;
                    Ok(Undone::Done)
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Undone::AlreadyGone),
                _ => Ok(Undone::Kept("it is no longer the link that larder made".to_owned())),
            },
            Change::Directory { path } => match fs::remove_dir(path) {
                Ok(()) => Ok(Undone::Done),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Undone::AlreadyGone),
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                    Ok(Undone::Kept("other files are in it".to_owned()))
                }
                Err(error) => Err(error).with_context(|| format!("{} cannot be removed", path.display())),
            },
        }
    }

    /// Returns true if the change is in place: the file holds the added lines, or the link exists.
    pub(super) fn is_in_place(&self) -> bool {
        match self {
            Change::Text { path, before, after } => {
                let added = added(before.as_deref().unwrap_or_default(), after);
                read(path).is_ok_and(|text| text.is_some_and(|text| text.contains(added)))
            }
            Change::Link { path, target } => fs::read_link(path).is_ok_and(|found| found == *target),
            Change::Directory { path } => path.is_dir(),
        }
    }

    /// Returns the change as JSON, for the journal.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Change::Text { path, before, after } => json!({ "path": path, "before": before, "after": after }),
            Change::Link { path, target } => json!({ "path": path, "target": target }),
            Change::Directory { path } => json!({ "path": path }),
        }
    }

    /// Reads a change from the journal.
    pub(super) fn from_json(value: &Value) -> Option<Change> {
        let path = PathBuf::from(value["path"].as_str()?);
        Some(match (value["after"].as_str(), value["target"].as_str()) {
            (Some(after), _) => {
                Change::Text { path, before: value["before"].as_str().map(str::to_owned), after: after.to_owned() }
            }
            (None, Some(target)) => Change::Link { path, target: target.into() },
            (None, None) => Change::Directory { path },
        })
    }
}

/// Restores a text file: byte for byte if it is unchanged, otherwise by removing the added lines.
fn take_back_text(path: &Path, before: Option<&str>, after: &str) -> Result<Undone> {
    let Some(now) = read(path)? else { return Ok(Undone::AlreadyGone) };
    if now == after {
        match before {
            Some(before) => replace(path, before)?,
            None => fs::remove_file(path).with_context(|| format!("{} cannot be removed", path.display()))?,
        }
        return Ok(Undone::Done);
    }
    let added = added(before.unwrap_or_default(), after);
    match now.matches(added).count() {
        _ if before == Some(&now) || is_gone(added, &now) => Ok(Undone::AlreadyGone),
        1 if !added.is_empty() => {
            replace(path, &now.replacen(added, "", 1))?;
            Ok(Undone::Done)
        }
        _ => Ok(Undone::Kept(format!(
            "it was edited since; remove these lines yourself, then run `larder init --undo` again:\n{added}"
        ))),
    }
}

/// Returns true if someone removed the added lines. Those that name larder decide, because others,
/// such as `esac`, may be in the file for another reason.
fn is_gone(added: &str, now: &str) -> bool {
    let mut ours = added.lines().map(str::trim).filter(|line| line.contains("larder")).peekable();
    ours.peek().is_some() && ours.all(|line| !now.contains(line))
}

/// Returns the text that `after` has and `before` has not, as whole lines if possible. Empty unless
/// `after` is `before` with one insertion.
fn added<'a>(before: &str, after: &'a str) -> &'a str {
    let same = |(a, b): &(u8, u8)| a == b;
    let common = before.bytes().zip(after.bytes()).take_while(same).count();
    let begin_of_line = before[..begin_of_char(before, common)].rfind('\n').map_or(0, |at| at + 1);
    let insertion = |begin: usize| {
        let end = after.len().checked_sub(before.len() - begin)?;
        (begin <= end && after.get(end..)? == before.get(begin..)?).then_some(&after[begin..end])
    };
    insertion(begin_of_line).or_else(|| insertion(begin_of_char(before, common))).unwrap_or_default()
}

/// Returns true if `after` is `before` with one insertion, which `--undo` can remove again.
pub(super) fn only_adds(before: &str, after: &str) -> bool {
    !added(before, after).is_empty()
}

fn begin_of_char(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Reads a text file, or returns `None` if there is none. An error says what to do.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
    let shown = path.display();
    let look = match fs::metadata(path) {
        Ok(look) => look,
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{shown} cannot be read: correct it, then try again")),
    };
    ensure!(look.is_file(), "{shown} is not a file: larder changes nothing there");
    ensure!(
        look.len() <= FILE_BYTES_MAX,
        "{shown} is larger than 1 MiB: add the lines by hand (`larder init --print`)"
    );
    let bytes = fs::read(path).with_context(|| format!("{shown} cannot be read: check its permissions"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => bail!("{shown} is not valid UTF-8: add the lines by hand"),
    }
}

/// Replaces a file in one step. Its mode and owner stay, and a symbolic link to it stays a link.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let writing =
        || format!("{} cannot be written: check the permissions of the file and its directory", real.display());
    let directory = real.parent().with_context(writing)?;
    let mut file = tempfile::Builder::new().prefix(".larder-").tempfile_in(directory).with_context(writing)?;
    file.write_all(text.as_bytes()).with_context(writing)?;
    let mode = match fs::metadata(&real) {
        Ok(look) => {
            let now = file.as_file().metadata().with_context(writing)?;
            if (now.uid(), now.gid()) != (look.uid(), look.gid()) {
                // Otherwise a file that root edits for a user would belong to root.
                fchown(file.as_file(), Some(look.uid()), Some(look.gid())).with_context(|| {
                    format!("{} belongs to another user or group: run this as its owner", real.display())
                })?;
            }
            look.permissions()
        }
        Err(_) => PermissionsExt::from_mode(0o666 & !larder_sys::umask()),
    };
    file.as_file().set_permissions(mode).with_context(writing)?;
    file.persist(&real).with_context(writing)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added() {
        assert_eq!(added("a\nb\n", "a\nx\nb\n"), "x\n");
        assert_eq!(added("a\nb\n", "a\nbx\nb\n"), "bx\n");
        assert_eq!(added("", "x\n"), "x\n");
        assert_eq!(added("a", "a\nx\n"), "\nx\n");
        assert_eq!(added("a\n", "a\nab\n"), "ab\n");
        assert_eq!(added("a\na\n", "a\na\na\n"), "a\n");
        assert_eq!(added("ä\n", "ö\nä\n"), "ö\n");
        assert_eq!(added("a\n", "b\n"), "");
        assert!(only_adds("a\nb\n", "a\nx\nb\n") && !only_adds("a\r\nb\r\n", "a\nx\nb\r\n"));
    }

    fn change(dir: &Path, before: Option<&str>, after: &str) -> Change {
        let path = dir.join("file");
        Change::Text { path, before: before.map(str::to_owned), after: after.to_owned() }
    }

    #[test]
    fn edits_by_others_survive_the_way_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, "a\nb\n").expect("writes");
        let one = change(dir.path(), Some("a\nb\n"), "a\nours\nb\n");
        one.apply().expect("applies");
        assert!(one.is_in_place());
        fs::write(&path, "their\na\nours\nb\nlines\n").expect("writes");
        assert_eq!(one.take_back().expect("can be read"), Undone::Done);
        assert_eq!(fs::read_to_string(&path).expect("reads"), "their\na\nb\nlines\n");
        fs::write(&path, "a\nb\n").expect("writes");
        assert_eq!(one.take_back().expect("can be read"), Undone::AlreadyGone);
        fs::write(&path, "a\nours, edited\nb\n").expect("writes");
        assert!(matches!(one.take_back().expect("can be read"), Undone::Kept(_)));
        assert_eq!(fs::read_to_string(&path).expect("reads"), "a\nours, edited\nb\n");
    }

    #[test]
    fn lines_that_a_person_removed_are_gone() {
        let lines = "# larder\ncase\nlarder.toml\nesac\n";
        assert!(is_gone(lines, "case\nesac\nmore\n"));
        assert!(!is_gone(lines, "x\nlarder.toml # kept\n") && !is_gone("esac\n", "x\n"));
    }

    #[test]
    fn a_file_that_changed_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, "new\n").expect("writes");
        for one in [change(dir.path(), Some("old\n"), "old\nx\n"), change(dir.path(), None, "x\n")] {
            one.apply().expect_err("it is another file now");
            assert_eq!(fs::read_to_string(&path).expect("reads"), "new\n");
        }
    }

    #[test]
    fn a_read_only_file_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, "a\n").expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("sets");
        let error = change(dir.path(), Some("a\n"), "a\nb\n").apply().expect_err("must not be changed");
        assert!(error.to_string().contains("is read-only"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "a\n");
    }

    /// Root may edit the file of a user.
    #[test]
    fn the_owner_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, "a\n").expect("writes");
        if std::os::unix::fs::chown(&path, Some(1234), Some(1234)).is_err() {
            eprintln!("skipped: only the superuser can give a file away");
            return;
        }
        change(dir.path(), Some("a\n"), "a\nb\n").apply().expect("applies");
        let look = fs::metadata(&path).expect("is there");
        assert_eq!((look.uid(), look.gid()), (1234, 1234));
    }

    #[test]
    fn links_and_modes_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, real) = (dir.path().join("file"), dir.path().join("real"));
        fs::write(&real, "a\n").expect("writes");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("sets");
        symlink(&real, &path).expect("links");
        change(dir.path(), Some("a\n"), "a\nb\n").apply().expect("applies");
        assert!(fs::symlink_metadata(&path).expect("is there").is_symlink());
        assert_eq!(fs::read_to_string(&real).expect("reads"), "a\nb\n");
        assert_eq!(fs::metadata(&real).expect("is there").permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn the_journal_keeps_each_kind() {
        for one in [
            Change::Text { path: "/a".into(), before: None, after: "x".into() },
            Change::Text { path: "/a".into(), before: Some("y".into()), after: "x".into() },
            Change::Link { path: "/a".into(), target: "/b".into() },
            Change::Directory { path: "/a".into() },
        ] {
            assert_eq!(Change::from_json(&one.to_json()), Some(one));
        }
    }
}
