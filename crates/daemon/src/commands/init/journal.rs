//! The list of changes that `larder init` made, for `--undo`: one JSON file for a user.
//!
//! Unaware of: what the changes are for.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::change::{self, Change};

/// The version of the file. Files of another version are an error, because they may be newer.
const VERSION: u64 = 1;

/// The changes for each directory in which `larder init` ran, oldest first.
pub(super) struct Journal {
    file: PathBuf,
    entries: Vec<(PathBuf, Vec<Change>)>,
}

impl Journal {
    /// Reads the journal in this directory. It is empty if there is no file.
    pub(super) fn read(state: &Path) -> Result<Journal> {
        let file = state.join("init.json");
        let Some(text) = change::read(&file)? else { return Ok(Journal { file, entries: Vec::new() }) };
        let entries = entries(&text).with_context(|| {
            format!("{} cannot be understood: move it away to start anew; `--undo` then knows nothing", file.display())
        })?;
        Ok(Journal { file, entries })
    }

    /// Returns the changes that were made for a directory.
    pub(super) fn of(&self, directory: &Path) -> &[Change] {
        self.entries.iter().find(|(of, _)| of == directory).map_or(&[], |(_, changes)| changes)
    }

    /// Returns the directories that have changes.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.entries.iter().map(|(directory, _)| directory.as_path())
    }

    /// Returns another directory that the change was made for as well.
    pub(super) fn shared(&self, change: &Change, directory: &Path) -> Option<&Path> {
        let mut others = self.entries.iter().filter(|(of, _)| of != directory);
        others.find(|(_, changes)| changes.contains(change)).map(|(of, _)| of.as_path())
    }

    /// Returns the change of this path that was made for any directory and is still in place.
    pub(super) fn in_place(&self, path: &Path) -> Option<&Change> {
        let mut all = self.entries.iter().flat_map(|(_, changes)| changes);
        all.find(|change| change.path() == path && change.is_in_place())
    }

    /// Replaces the changes of a directory, and writes the file. Without changes, the directory is
    /// removed from the list, and with the last one the file.
    pub(super) fn set(&mut self, directory: &Path, changes: Vec<Change>) -> Result<()> {
        self.entries.retain(|(of, _)| of != directory);
        if !changes.is_empty() {
            self.entries.push((directory.to_owned(), changes));
        }
        let state = self.file.parent().context("the journal has no directory")?;
        if self.entries.is_empty() {
            match fs::remove_file(&self.file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("{} cannot be removed", self.file.display()));
                }
                // Records of builds may be in the directory. Then it stays.
                _ => drop(fs::remove_dir(state)),
            }
            return Ok(());
        }
        fs::create_dir_all(state).with_context(|| format!("{} cannot be made: set XDG_STATE_HOME", state.display()))?;
        let entry = |(directory, changes): &(PathBuf, Vec<Change>)| {
            let changes: Vec<Value> = changes.iter().map(Change::to_json).collect();
            json!({ "directory": directory, "changes": changes })
        };
        let text = json!({ "version": VERSION, "entries": self.entries.iter().map(entry).collect::<Vec<_>>() });
        change::replace(&self.file, &format!("{text:#}\n"))
    }
}

fn entries(text: &str) -> Result<Vec<(PathBuf, Vec<Change>)>> {
    let value: Value = serde_json::from_str(text)?;
    anyhow::ensure!(value["version"] == VERSION, "its version is {}", value["version"]);
    let entry = |entry: &Value| {
        let changes = entry["changes"].as_array()?.iter().map(Change::from_json).collect::<Option<_>>()?;
        Some((PathBuf::from(entry["directory"].as_str()?), changes))
    };
    let list = value["entries"].as_array().context("it has no list of entries")?;
    list.iter().map(entry).collect::<Option<_>>().context("an entry is incomplete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_change_is_known_to_both_directories() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut journal = Journal::read(dir.path()).expect("is empty");
        let change = Change::Link { path: "/l/gcc".into(), target: "/larder".into() };
        journal.set(Path::new("/a"), vec![change.clone()]).expect("writes");
        assert_eq!(journal.shared(&change, Path::new("/a")), None);
        journal.set(Path::new("/b"), vec![change.clone()]).expect("writes");
        let mut journal = Journal::read(dir.path()).expect("reads");
        assert_eq!(journal.shared(&change, Path::new("/a")), Some(Path::new("/b")));
        assert_eq!(journal.of(Path::new("/a")), std::slice::from_ref(&change));
        journal.set(Path::new("/b"), Vec::new()).expect("writes");
        assert_eq!(Journal::read(dir.path()).expect("reads").shared(&change, Path::new("/a")), None);
        assert!(dir.path().join("init.json").exists());
        journal.set(Path::new("/a"), Vec::new()).expect("writes");
        assert!(!dir.path().exists(), "something of larder stays after the last --undo");
    }

    #[test]
    fn a_damaged_journal_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        for text in ["", "{}", r#"{"version":2,"entries":[]}"#, r#"{"version":1,"entries":[{"directory":"/a"}]}"#] {
            fs::write(dir.path().join("init.json"), text).expect("writes");
            assert!(Journal::read(dir.path()).is_err(), "{text}");
        }
    }
}
