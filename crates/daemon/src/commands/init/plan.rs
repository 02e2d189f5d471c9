//! The changes to be made, and the directories and programs that they are about.
//!
//! Unaware of: what each build tool needs, and how changes are applied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use larder_lookup::find;

use super::change::{Change, only_adds, read};
use super::journal::Journal;
use crate::surroundings::{Surroundings, nobody};

/// The name of the directory with links that have compilers' names, below the user's data.
const LINKS: &str = "larder/masquerade";

/// The directories and programs that changes are about. All paths are valid UTF-8.
pub(super) struct Places {
    pub(super) cwd: PathBuf,
    pub(super) home: PathBuf,
    /// `XDG_CONFIG_HOME`.
    pub(super) config: PathBuf,
    /// `XDG_DATA_HOME`.
    pub(super) data: PathBuf,
    /// The directory of the journal.
    pub(super) state: PathBuf,
    /// The path of larder for links.
    pub(super) larder: PathBuf,
    /// larder in a configuration file: its name if `PATH` leads to it, otherwise its path.
    pub(super) command: String,
}

impl Places {
    pub(super) fn new(around: &Surroundings) -> Result<Places> {
        let home = around.home().context("init: your home directory is not known: set HOME")?;
        let below_home = |name: &[u8], usual: &str| around.absolute(name).unwrap_or_else(|| home.join(usual));
        let wrapper =
            around.wrapper.clone().context("init: larder is not beside larderd: install both in one directory")?;
        let found = find(b"larder", around.variable(b"PATH"), &nobody(), false);
        let found = found.filter(|tool| around.ourselves.is(tool) && tool.path.starts_with(b"/"));
        let (larder, command) = match found {
            Some(tool) => (PathBuf::from(OsStr::from_bytes(&tool.path)), "larder".to_owned()),
            None => (wrapper.clone(), wrapper.display().to_string()),
        };
        let places = Places {
            cwd: around.cwd().context("init")?.to_owned(),
            config: below_home(b"XDG_CONFIG_HOME", ".config"),
            data: below_home(b"XDG_DATA_HOME", ".local/share"),
            state: below_home(b"XDG_STATE_HOME", ".local/state").join("larder"),
            home,
            larder,
            command,
        };
        for path in [&places.cwd, &places.home, &places.config, &places.data, &places.state, &places.larder] {
            ensure!(path.to_str().is_some(), "init: {} is not valid UTF-8, so no file can name it", path.display());
        }
        Ok(places)
    }

    /// Returns the directory for links with compilers' names.
    pub(super) fn links(&self) -> PathBuf {
        self.data.join(LINKS)
    }

    /// Returns a path as people write it.
    pub(super) fn shown(&self, path: &Path) -> String {
        match (path.strip_prefix(&self.cwd), path.strip_prefix(&self.home)) {
            (Ok(below), _) if !below.as_os_str().is_empty() => below.display().to_string(),
            (_, Ok(below)) => format!("~/{}", below.display()),
            _ => path.display().to_string(),
        }
    }
}

/// The changes that `larder init` will make.
pub(super) struct Plan<'a> {
    journal: &'a Journal,
    /// The changes, in the order in which they are made.
    pub(super) changes: Vec<Change>,
    /// Changes that were made for another directory and serve this one as well.
    pub(super) shared: Vec<Change>,
    /// Notes that are shown before the question.
    pub(super) notes: Vec<String>,
    /// Commands that the user types afterwards.
    pub(super) next: Vec<String>,
    /// True if a sandbox needs `larderd`.
    pub(super) needs_daemon: bool,
    /// True if something of another program is in the way, which a note names.
    pub(super) is_blocked: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(journal: &'a Journal) -> Plan<'a> {
        let (changes, shared, notes, next) = Default::default();
        Plan { journal, changes, shared, notes, next, needs_daemon: false, is_blocked: false }
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Plans a change of a text file. `edit` gets its present text, and returns the new text, or
    /// `None` if nothing is missing. If the file cannot be edited, the error says what is to be added
    /// `by_hand`.
    pub(super) fn text(
        &mut self,
        path: PathBuf,
        by_hand: &str,
        edit: impl FnOnce(Option<&str>) -> Result<Option<String>>,
    ) -> Result<()> {
        if self.changes.iter().any(|change| change.path() == path) {
            return Ok(());
        }
        let before = read(&path)?;
        let edited = edited(before.as_deref(), edit);
        let failed = |error| anyhow!("{} cannot be changed: {error:#}: add {by_hand} by hand", path.display());
        match edited.map_err(failed)? {
            Some(after) => {
                self.directory_of(&path);
                self.changes.push(Change::Text { path, before, after });
            }
            None => self.share(&path),
        }
        Ok(())
    }

    /// Plans a change of a text file of a project. It is an error if the path leads out of the
    /// project, because a link in a checkout may lead to any file of the user's.
    pub(super) fn text_of_project(
        &mut self,
        project: &Path,
        path: PathBuf,
        by_hand: &str,
        edit: impl FnOnce(Option<&str>) -> Result<Option<String>>,
    ) -> Result<()> {
        let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(project);
        let real = existing.canonicalize().with_context(|| format!("{} cannot be read", existing.display()))?;
        let below = real.strip_prefix(project.canonicalize()?);
        ensure!(
            below.is_ok_and(|below| !below.iter().any(|part| part.eq_ignore_ascii_case(".git"))),
            "{} leads out of the project, to {}: larder changes nothing there",
            path.display(),
            real.display()
        );
        self.text(path, by_hand, edit)
    }

    /// Plans a link, unless it exists. Something else at the path is an error.
    pub(super) fn link(&mut self, path: PathBuf, target: PathBuf) -> Result<()> {
        if self.changes.iter().any(|change| change.path() == path) {
            return Ok(());
        }
        match std::fs::read_link(&path) {
            Ok(found) if found == target => self.share(&path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.directory_of(&path);
                self.changes.push(Change::Link { path, target });
            }
            found => {
                let made = found.ok().map(|target| Change::Link { path: path.clone(), target });
                if let Some(directory) = made.and_then(|made| self.journal.shared(&made, Path::new(""))) {
                    anyhow::bail!(
                        "{} leads to a larder at another place: run `larder init --undo` in {}, then try again",
                        path.display(),
                        directory.display()
                    );
                }
                anyhow::bail!(
                    "{} is something else than a link to {}: remove it, then try again",
                    path.display(),
                    target.display()
                )
            }
        }
        Ok(())
    }

    /// Plans the directories that are missing above a path.
    fn directory_of(&mut self, path: &Path) {
        let above: Vec<&Path> = path.ancestors().skip(1).take_while(|directory| !directory.exists()).collect();
        for directory in above.into_iter().rev() {
            let change = Change::Directory { path: directory.to_owned() };
            if !self.changes.contains(&change) {
                self.changes.push(change);
            }
        }
    }

    /// Notes that a change that is in place already serves this directory, too.
    fn share(&mut self, path: &Path) {
        self.shared.extend(self.journal.in_place(path).cloned());
    }
}

/// Edits a text that may begin with a byte order mark and whose lines may end in CR LF, as editors
/// of Windows write them. `edit` sees neither, and both stay. Fails unless lines are only added.
fn edited(before: Option<&str>, edit: impl FnOnce(Option<&str>) -> Result<Option<String>>) -> Result<Option<String>> {
    const MARK: &str = "\u{feff}";
    let text = before.unwrap_or_default();
    let mark = if text.starts_with(MARK) { MARK } else { "" };
    let is_crlf = text.contains('\n') && text.matches('\n').count() == text.matches("\r\n").count();
    let plain = text[mark.len()..].to_owned();
    let plain = if is_crlf { plain.replace("\r\n", "\n") } else { plain };
    let Some(after) = edit(before.map(|_| plain.as_str()))? else { return Ok(None) };
    // An editor of a format may end the last line. Then the change would be two insertions.
    let ended = after.strip_suffix('\n').filter(|_| !plain.ends_with('\n'));
    let candidates = [Some(after.as_str()), ended];
    let with_ends =
        |after: &str| format!("{mark}{}", if is_crlf { after.replace('\n', "\r\n") } else { after.to_owned() });
    let found = candidates.into_iter().flatten().map(with_ends).find(|after| only_adds(text, after));
    found
        .context("more than the added lines would change, for example because its lines end in different ways")
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_are_added() {
        let add = |before: Option<&str>, from: &str, to: &str| {
            let edit = |text: Option<&str>| Ok(Some(text.unwrap_or_default().replace(from, to)));
            edited(before, edit).ok().flatten()
        };
        assert_eq!(add(Some("a\r\nb\r\n"), "a\n", "a\nx\n").as_deref(), Some("a\r\nx\r\nb\r\n"));
        assert_eq!(add(Some("\u{feff}a\n"), "a\n", "x\na\n").as_deref(), Some("\u{feff}x\na\n"));
        assert_eq!(add(Some("a\nb"), "a\nb", "a\nx\nb\n").as_deref(), Some("a\nx\nb"));
        assert_eq!(add(Some("a\nb"), "a\nb", "a\nb\nx\n").as_deref(), Some("a\nb\nx\n"));
        assert_eq!(add(Some("a\r\nb\n"), "a\r\n", "a\nx\n"), None);
        assert_eq!(add(Some("a\nb\n"), "a", "x"), None);
        assert_eq!(edited(None, |_| Ok(Some("x\n".to_owned()))).expect("is fine").as_deref(), Some("x\n"));
    }
}
