//! Finds the directory of records, and the record that an argument means.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use larder_record::{PACKED, Record};

use crate::surroundings::Surroundings;

/// Returns the directory of all records, which need not exist.
pub(in crate::commands) fn records(around: &Surroundings) -> Result<PathBuf> {
    let home = || around.home().map(|home| home.join(".local/state"));
    let state = || around.absolute(b"XDG_STATE_HOME").or_else(home).map(|state| state.join("larder/records"));
    let found = around.settings().record_dir.clone().or_else(state);
    found.ok_or_else(|| anyhow!("the directory of records is not known: set LARDER_RECORD_DIR to a directory"))
}

/// Finds a record by its path, its name, or as `last`.
pub(in crate::commands) fn find(around: &Surroundings, called: &str) -> Result<PathBuf> {
    let path = Path::new(called);
    let is_there = path.is_file() || path.join("record.json").is_file();
    let is_path = called.contains('/') || called.ends_with(PACKED) || path.is_dir();
    if called != "last" && is_there && is_path {
        return Ok(path.to_owned());
    }
    let records = records(around)?;
    if called == "last" {
        let last = larder_record::list(&records).pop().map(|record| record.path);
        return last.ok_or_else(|| {
            anyhow!("there is no record in {}: make one with `larder record -- COMMAND`", records.display())
        });
    }
    let named = [records.join(called), records.join(format!("{called}{PACKED}"))];
    match named.into_iter().find(|path| path.exists()) {
        Some(path) => Ok(path),
        None if is_there => Ok(path.to_owned()),
        None => {
            bail!("there is no record `{called}`, here or in {}: `larder record list` lists all", records.display())
        }
    }
}

/// Finds and reads a record.
pub(in crate::commands) fn open(around: &Surroundings, called: &str) -> Result<Record> {
    Ok(Record::open(&find(around, called)?)?)
}

/// Reads the last record.
pub(in crate::commands) fn last(around: &Surroundings) -> Result<Record> {
    open(around, "last")
}

/// Returns the path of the packed file beside a record's directory.
pub(super) fn packed_beside(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(PACKED);
    name.into()
}
